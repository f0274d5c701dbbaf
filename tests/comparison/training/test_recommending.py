"""Recommendations from results made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tf_amp_kit import hardware
from tf_amp_kit.comparison.timing import Quartiles
from tf_amp_kit.comparison.training.recommending import recommend
from tf_amp_kit.comparison.training.record.parts import (
    MemoryUse,
    PrecisionResult,
    Recommendation,
    StepSpeed,
    Verdict,
)

CPU_PADDING = "Padding dimensions to multiples of 8 is for tensor cores, which a CPU lacks."
FAST, SLOW = hardware.Verdict(True, "native"), hardware.Verdict(False, "emulated")


def device(kind: str) -> hardware.Device:
    """One that is fast in bfloat16."""
    return hardware.Device(f"{kind.upper()}:0", kind, None, SLOW, FAST)


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, device("cpu"))


def use(monkeypatch: pytest.MonkeyPatch, one: hardware.Device | None) -> None:
    monkeypatch.setattr(hardware.Hardware, "default_device", property(lambda _: one))


def speed(median: float, *, around: float = 0.01, compiled_in: float = 1.0) -> StepSpeed:
    """Milliseconds; the quartiles are a share around them."""
    low, high = (1 - around) * median / 1000, (1 + around) * median / 1000
    return StepSpeed(Quartiles(low, median / 1000, high), compiled_in, 1.0)


def of(
    name: str,
    outcome: str | None,
    plain: StepSpeed | None = None,
    jit: StepSpeed | None = None,
    **memory: int,
) -> PrecisionResult:
    precision, _, level = name.partition(" ")
    sizes = {"estimated_bytes": None, "largest_batch_size": None, "measured_bytes": None}
    return PrecisionResult(
        name=name,
        precision=precision,
        level=level or "O1",
        num_pins=0,
        verdict=Verdict(outcome, ("Because.",), 0.0) if outcome else None,
        differences=(),
        speed=plain,
        jit_speed=jit,
        memory=MemoryUse(**{**sizes, **memory}),
    )


def float32(*speeds: StepSpeed, **memory: int) -> PrecisionResult:
    return of("float32", None, *speeds, **memory)


def chosen(*results: PrecisionResult) -> str:
    return recommend(results).name


# ------------------------------------------------------------------------------ quality


@pytest.mark.parametrize("outcome", ["worse", "undecided"])
def test_what_is_not_known_to_train_as_well_is_not_chosen_however_fast(outcome: str) -> None:
    found = recommend([float32(speed(10)), of("bfloat16", outcome, speed(1))])
    assert (found.name, found.reasons[0]) == (
        "float32",
        "Stay in float32: no half precision is known to train as well here.",
    )


def test_each_precision_that_is_not_chosen_for_its_quality_is_told() -> None:
    bfloat16, float16 = of("bfloat16", "undecided", speed(5)), of("float16", "worse", speed(1))
    assert recommend([float32(speed(10)), bfloat16, float16]).reasons[1:3] == (
        "Whether bfloat16 trains as well is not decided (a step takes 5 ms).",
        "float16 trains worse.",
    )


@pytest.mark.parametrize("outcome", ["equal", "better"])
def test_what_trains_as_well_and_faster_is_chosen(outcome: str) -> None:
    found = recommend([float32(speed(10)), of("bfloat16", outcome, speed(6))])
    assert (found.name, found.reasons[0]) == (
        "bfloat16",
        "bfloat16 trains as well, and a step takes 0.60 of the time.",
    )


def test_a_control_is_neither_chosen_nor_told() -> None:
    again = of("float32 again", "worse", speed(1))
    again = PrecisionResult(**{**vars(again), "precision": "float32"})
    found = recommend([float32(speed(10)), again, of("bfloat16", "equal", speed(6))])
    assert (found.name, [one for one in found.reasons if "again" in one]) == ("bfloat16", [])


def test_float32_alone_stays() -> None:
    assert chosen(float32(speed(10))) == "float32"


# -------------------------------------------------------------------------------- speed


def test_the_fastest_of_several_is_chosen() -> None:
    others = [of("bfloat16", "equal", speed(6)), of("float16", "equal", speed(5))]
    assert chosen(float32(speed(10)), *others) == "float16"


def test_the_fastest_way_of_each_counts() -> None:
    others = [
        of("bfloat16", "equal", speed(6), speed(20)),
        of("float16", "equal", speed(9), speed(4)),
    ]
    assert chosen(float32(speed(10), speed(12)), *others) == "float16"


def test_half_has_to_beat_float32_with_xla_where_that_is_faster() -> None:
    assert chosen(float32(speed(10), speed(5)), of("bfloat16", "equal", speed(6))) == "float32"


@pytest.mark.parametrize(("median", "name"), [(9.5, "bfloat16"), (9.6, "float32")])
def test_less_than_five_percent_is_no_gain(median: float, name: str) -> None:
    half = of("bfloat16", "equal", speed(median, around=0.001))
    assert chosen(float32(speed(10, around=0.001)), half) == name


def test_times_whose_quartiles_overlap_are_no_gain() -> None:
    half = of("bfloat16", "equal", speed(8, around=0.2))
    assert chosen(float32(speed(10, around=0.2)), half) == "float32"


def test_the_same_time_gains_nothing() -> None:
    found = recommend([float32(speed(10)), of("bfloat16", "equal", speed(10))])
    assert found.reasons[0] == (
        "Stay in float32: a step of bfloat16 takes as long, so nothing is gained at this size."
    )


def test_how_much_slower_half_is_is_told() -> None:
    found = recommend([float32(speed(10)), of("float16", "equal", speed(25))])
    assert found.reasons[0] == (
        "Stay in float32: a step of float16, the fastest of the others, takes 2.5 times as long."
    )


def test_times_that_overlap_tell_nothing() -> None:
    wide = StepSpeed(Quartiles(0.5, 0.6, 1.0))
    found = recommend([float32(StepSpeed(Quartiles(0.9, 1.0, 1.4))), of("bfloat16", "equal", wide)])
    assert found.reasons[0] == (
        "Stay in float32: the times of bfloat16 vary too much to be told from those of float32."
    )


def test_where_no_half_step_could_be_timed_float32_stays() -> None:
    failed = StepSpeed(None, failure="ValueError: no")
    found = recommend([float32(speed(10)), of("bfloat16", "equal", failed)])
    assert found.reasons[0] == "Stay in float32: no step in half precision could be timed."


# ------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(("size", "name"), [(90, "bfloat16"), (91, "float32")])
def test_as_fast_with_a_tenth_less_memory_is_chosen(size: int, name: str) -> None:
    half = of("bfloat16", "equal", speed(10), estimated_bytes=size)
    assert chosen(float32(speed(10), estimated_bytes=100), half) == name


def test_what_memory_is_saved_is_told() -> None:
    half = of("bfloat16", "equal", speed(10), estimated_bytes=55)
    found = recommend([float32(speed(10), estimated_bytes=100), half])
    assert found.reasons[0] == "bfloat16 trains as well, is not slower, and takes 45 % less memory."


def test_memory_does_not_make_up_for_slower_steps() -> None:
    half = of("bfloat16", "equal", speed(11), estimated_bytes=50)
    assert chosen(float32(speed(10), estimated_bytes=100), half) == "float32"


def test_measured_memory_counts_before_the_estimate() -> None:
    half = of("bfloat16", "equal", speed(10), estimated_bytes=50, measured_bytes=100)
    base = float32(speed(10), estimated_bytes=100, measured_bytes=100)
    assert chosen(base, half) == "float32"


def test_the_largest_batch_of_the_chosen_precision_is_told() -> None:
    half = of("bfloat16", "equal", speed(5), largest_batch_size=640)
    found = recommend([float32(speed(10), largest_batch_size=320), half])
    sentence = "About 640 samples per batch fit into the memory that is free now, by the estimate."
    assert (found.largest_batch_size, sentence in found.reasons) == (640, True)


# ---------------------------------------------------------------------------------- XLA


def test_xla_is_advised_with_the_steps_that_pay_for_compiling() -> None:
    # 3 s longer to compile, 4 ms saved per step.
    plain, jit = speed(10, compiled_in=1.0), speed(6, compiled_in=4.0)
    found = recommend([float32(plain, jit)])
    sentence = (
        "Use jit_compile=True: a step takes 0.60 of the time, which makes up for compiling after "
        "750 steps."
    )
    assert (found.jit_compile, sentence in found.reasons) == (True, True)


def test_slower_xla_is_advised_against() -> None:
    found = recommend([float32(speed(10), speed(15))])
    sentence = "Leave jit_compile off: with it a step takes 1.50 of the time."
    assert (found.jit_compile, sentence in found.reasons) == (False, True)


def test_xla_that_fails_is_advised_against_with_its_reason() -> None:
    failed = StepSpeed(None, failure="InvalidArgumentError: no kernel")
    found = recommend([float32(speed(10), failed)])
    sentence = "Leave jit_compile off: it fails (InvalidArgumentError: no kernel)."
    assert (found.jit_compile, sentence in found.reasons) == (False, True)


def test_without_times_of_xla_nothing_is_said_of_it() -> None:
    found = recommend([float32(speed(10))])
    assert found == Recommendation("float32", None, None, found.reasons)


# ----------------------------------------------------------------------------- hardware


def test_where_nothing_was_timed_the_precision_of_the_machine_is_chosen() -> None:
    half = [of("float16", "equal"), of("bfloat16", "equal")]
    found = recommend([float32(), *half])
    why = hardware.detect_hardware().auto_reason
    assert (found.name, found.reasons[0]) == (
        "bfloat16",
        f"bfloat16 trains as well; steps of float32 were not timed, but {why}.",
    )


def test_where_nothing_was_timed_another_half_precision_is_not_chosen() -> None:
    found = recommend([float32(), of("float16", "equal")])
    start = "Stay in float32: its steps were not timed"
    assert (found.name, found.reasons[0].startswith(start)) == ("float32", True)


@pytest.mark.parametrize(
    ("kind", "odd", "sentences"),
    [
        ("cpu", ("a",), [CPU_PADDING]),
        ("gpu", (), ["All large dimensions are multiples of 8 already."]),
        (
            "gpu",
            ("a", "b", "c", "d"),
            ["Pad the dimensions of 4 layers to multiples of 8: a, b, c."],
        ),
        ("tpu", (), []),
    ],
)
def test_padding_is_for_tensor_cores(
    monkeypatch: pytest.MonkeyPatch, kind: str, odd: tuple[str, ...], sentences: list[str]
) -> None:
    use(monkeypatch, device(kind))
    found: Any = recommend([float32(speed(10)), of("bfloat16", "equal", speed(5))], odd)
    assert list(found.reasons[1:]) == sentences


def test_without_a_device_nothing_is_said_of_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, None)
    assert recommend([float32(speed(10))]).reasons == ("No half precision was compared.",)
