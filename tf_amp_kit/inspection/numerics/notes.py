"""What a measurement has to say besides its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tf_amp_kit.formats import is_half
from tf_amp_kit.inspection.numerics.report import TensorNumerics
from tf_amp_kit.inspection.remarks import about_train_step
from tf_amp_kit.precision.loss_scaling.settings import ScaleSettings
from tf_amp_kit.tables import some
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["notes_on"]


def notes_on(
    model: Any,
    step: StepTrace,
    tensors: Sequence[TensorNumerics],
    judged_by: tuple[str, bool],
    loss_scale: float,
) -> Iterator[str]:
    """Yields the notes of a report.

    Args:
        model: The model.
        step: Its train step, traced in float32.
        tensors: What was measured.
        judged_by: The format, and whether nobody asked for it and nothing is in it.
        loss_scale: What the loss was multiplied by.
    """
    precision, is_guess = judged_by
    if is_guess:
        yield (
            f"Nothing asks for half precision here: {precision} is what the numbers are judged by."
        )
    bad = [one for one in tensors if one.num_nonfinite]
    if bad:
        yield (
            f"{len(bad)} tensors hold NaN or Inf, the first is {bad[0].name}: "
            "find_nonfinite(model, data) tells where they begin, and whether half "
            "precision is the reason."
        )
    if bad and loss_scale > 1 and all("gradient" in one.kind for one in bad):
        yield (
            f"Loss scale {loss_scale:g} may be the reason, as only gradients do: "
            "measure at a smaller one."
        )
    narrow = _still_half(step)
    if narrow:
        yield (
            f"{some(narrow)} kept something in half precision in the float32 run: a dtype "
            "in the code, or a constant made when the layer was built."
        )
    yield from about_train_step(model)
    if precision == "float16" and loss_scale == 1:
        yield (
            "Gradients are not scaled here. Training in float16 begins at a loss scale of "
            f"{ScaleSettings().initial_scale:g}: pass loss_scale= to see them there."
        )


def _still_half(step: StepTrace) -> list[str]:
    """Lists the layers that computed something in half all the same."""
    trace = step.trace
    hosts = (
        trace.host(op)
        for op in trace.live
        if not step.phase(op)
        and op.type not in ("Placeholder", "ReadVariableOp")
        and any(is_half(trace.tensors[key].dtype) for key in op.outputs)
    )
    return list(dict.fromkeys(host.path or "(model)" for host in hosts if host is not None))
