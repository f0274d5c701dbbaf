"""What to train with, by quality, speed and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tf_amp_kit import hardware
from tf_amp_kit.comparison.training.candidates import FLOAT32
from tf_amp_kit.comparison.training.record.parts import (
    BETTER,
    EQUAL,
    UNDECIDED,
    PrecisionResult,
    Recommendation,
    StepSpeed,
)

__all__ = ["recommend"]

# Of two medians that are closer, the next measurement may say the contrary.
_NOTICEABLE: Final = 1.05
# So much less memory is worth a choice of its own.
_LESS_MEMORY: Final = 0.9


def recommend(results: Sequence[PrecisionResult], odd_layers: Sequence[str] = ()) -> Recommendation:
    """Chooses among float32 and the precisions that train as well.

    Args:
        results: What each precision came to, float32 first.
        odd_layers: Layers with products whose dimensions waste tensor cores.

    Returns:
        A `Recommendation`.
    """
    reference, *others = [one for one in results if one.precision != FLOAT32 or one is results[0]]
    fit = [one for one in others if _is_as_good(one)]
    reasons = [_why_not(one) for one in others if one not in fit]
    if not fit:
        chosen = reference
        reasons.insert(0, _why_none(others))
    elif _fastest(reference) is None:
        chosen = _by_hardware(reference, fit)
        reasons.insert(0, _hardware_reason(chosen, fit))
    else:
        chosen, reason = _by_measurement(reference, fit)
        reasons.insert(0, reason)
    jit_compile = _is_jit_faster(chosen)
    reasons += [*_about_jit(chosen, jit_compile), *_about_batch(chosen), _about_padding(odd_layers)]
    largest = chosen.memory.largest_batch_size
    return Recommendation(chosen.name, jit_compile, largest, tuple(filter(None, reasons)))


def _is_as_good(one: PrecisionResult) -> bool:
    return one.verdict is not None and one.verdict.outcome in (EQUAL, BETTER)


def _why_none(others: Sequence[PrecisionResult]) -> str:
    if not others:
        return "No half precision was compared."
    return "Stay in float32: no half precision is known to train as well here."


def _why_not(one: PrecisionResult) -> str:
    if one.verdict is not None and one.verdict.outcome == UNDECIDED:
        return f"Whether {one.name} trains as well is not decided{_gain_of(one)}."
    return f"{one.name} trains worse."


def _gain_of(one: PrecisionResult) -> str:
    speed = one.speed.seconds if one.speed else None
    return f" (a step takes {1000 * speed.median:.3g} ms)" if speed else ""


def _by_measurement(
    reference: PrecisionResult, fit: Sequence[PrecisionResult]
) -> tuple[PrecisionResult, str]:
    """Chooses the fastest, if that can be told, else one that saves memory."""
    base = _fastest(reference)
    timed = {one.name: speed for one in fit if (speed := _fastest(one)) is not None}
    if base is None or base.seconds is None or not timed:
        return reference, "Stay in float32: no step in half precision could be timed."
    best = min((one for one in fit if one.name in timed), key=lambda one: _median(timed[one.name]))
    speed = timed[best.name]
    ratio = _median(speed) / _median(base)
    if ratio <= 1 / _NOTICEABLE and _are_apart(speed, base):
        return best, f"{best.name} trains as well, and a step takes {ratio:.2f} of the time."
    for one in fit:
        share = _memory_ratio(one, reference)
        own = timed.get(one.name)
        if own and share <= _LESS_MEMORY and _median(own) <= _NOTICEABLE * _median(base):
            less = f"{100 * (1 - share):.0f} %"
            return one, f"{one.name} trains as well, is not slower, and takes {less} less memory."
    return reference, f"Stay in float32: {_no_gain(best, ratio, _are_apart(base, speed))}."


def _no_gain(best: PrecisionResult, ratio: float, is_slower: bool) -> str:
    if ratio >= _NOTICEABLE and is_slower:
        return f"a step of {best.name}, the fastest of the others, takes {ratio:.2g} times as long"
    if 1 / _NOTICEABLE < ratio < _NOTICEABLE:
        return f"a step of {best.name} takes as long, so nothing is gained at this size"
    return f"the times of {best.name} vary too much to be told from those of float32"


def _are_apart(faster: StepSpeed, slower: StepSpeed) -> bool:
    """Tells whether the middle halves of the times do not overlap."""
    if faster.seconds is None or slower.seconds is None:
        return False
    return faster.seconds.high < slower.seconds.low


def _by_hardware(reference: PrecisionResult, fit: Sequence[PrecisionResult]) -> PrecisionResult:
    """Chooses by what the machine is, where nothing was timed."""
    wanted = hardware.detect_hardware().auto_precision
    return next((one for one in fit if one.precision == wanted), reference)


def _hardware_reason(chosen: PrecisionResult, fit: Sequence[PrecisionResult]) -> str:
    why = hardware.detect_hardware().auto_reason
    if chosen in fit:
        return f"{chosen.name} trains as well; steps of float32 were not timed, but {why}."
    return f"Stay in float32: its steps were not timed, and {why}."


def _fastest(one: PrecisionResult) -> StepSpeed | None:
    timed = [speed for speed in (one.speed, one.jit_speed) if speed and speed.seconds]
    return min(timed, key=_median, default=None)


def _median(speed: StepSpeed) -> float:
    return speed.seconds.median if speed.seconds else float("inf")


def _memory_ratio(one: PrecisionResult, reference: PrecisionResult) -> float:
    for name in ("measured_bytes", "estimated_bytes"):
        own, other = getattr(one.memory, name), getattr(reference.memory, name)
        if own and other:
            return float(own / other)
    return 1.0


def _is_jit_faster(chosen: PrecisionResult) -> bool | None:
    plain, jit = chosen.speed, chosen.jit_speed
    if plain is None or jit is None or plain.seconds is None:
        return None
    return _NOTICEABLE * _median(jit) <= _median(plain) and _are_apart(jit, plain)


def _about_jit(chosen: PrecisionResult, is_faster: bool | None) -> Iterator[str]:
    plain, jit = chosen.speed, chosen.jit_speed
    if is_faster is None or plain is None or jit is None:
        return
    if jit.seconds is None:
        yield f"Leave jit_compile off: it fails ({jit.failure})."
    elif not is_faster:
        yield f"Leave jit_compile off: with it a step takes {_ratio(jit, plain)} of the time."
    else:
        saved = _median(plain) - _median(jit)
        steps = max(0.0, jit.compile_seconds - plain.compile_seconds) / saved
        yield (
            f"Use jit_compile=True: a step takes {_ratio(jit, plain)} of the time, which makes up "
            f"for compiling after {steps:.0f} steps."
        )


def _ratio(one: StepSpeed, other: StepSpeed) -> str:
    return f"{_median(one) / _median(other):.2f}"


def _about_batch(chosen: PrecisionResult) -> Iterator[str]:
    largest = chosen.memory.largest_batch_size
    if largest is not None:
        # An estimate has no more digits than two.
        unit = 10 ** max(0, len(str(largest)) - 2)
        yield (
            f"About {largest // unit * unit} samples per batch fit into the memory that is free "
            "now, by the estimate."
        )


def _about_padding(odd_layers: Sequence[str]) -> str:
    device = hardware.detect_hardware().default_device
    if device is not None and device.kind == "cpu":
        return "Padding dimensions to multiples of 8 is for tensor cores, which a CPU lacks."
    if device is None or device.kind != "gpu":
        return ""
    if not odd_layers:
        return "All large dimensions are multiples of 8 already."
    names = ", ".join(odd_layers[:3])
    return f"Pad the dimensions of {len(odd_layers)} layers to multiples of 8: {names}."
