"""What a precision plan says of its numbers, in tables and in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tf_amp_kit.comparison.planning.record.parts import Errors, UnitEffect
from tf_amp_kit.comparison.timing import Quartiles
from tf_amp_kit.comparison.words import counted, milliseconds, number
from tf_amp_kit.tables import render_table

if TYPE_CHECKING:
    from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan

__all__ = [
    "apart",
    "effort",
    "error_rows",
    "errors_table",
    "step_times",
    "unit_rows",
    "units_table",
    "verdict",
]

_UNIT_COLUMNS: Final = ("Layer", "Class", "Why", "Alone", "Predicted", "Measured", "Largest")
_UNIT_NUMBERS: Final = frozenset(_UNIT_COLUMNS[3:])
_ERROR_COLUMNS: Final = ("Against float32", "Batches", "Output", "Loss", "Gradient", "Cosine")
# Where repr has no more digits to tell two numbers apart by.
_MOST_DIGITS: Final = 17


def apart(value: float, other: float) -> tuple[str, str]:
    """Writes two numbers with as many digits as it takes to tell them apart.

    Example:

    >>> apart(0.5, 0.25), apart(0.0020004, 0.002)
    (('0.5', '0.25'), ('0.0020004', '0.002'))
    """
    for digits in range(3, _MOST_DIGITS + 1):
        texts = number(value, digits), number(other, digits)
        if texts[0] != texts[1] or value == other:
            break
    return texts


def verdict(plan: PrecisionPlan) -> str:
    """Says in a sentence or two whether the tolerance is met, and by what."""
    after, tolerance = apart(plan.error, plan.tolerance)
    before = number(getattr(plan.half, plan.metric))
    change = f"{before} -> {after}" if plan.pins.pins else after
    errors = f"{plan.metric} error {change}, tolerance {tolerance}"
    if plan.held_out_error is not None:
        errors += f"; held out {apart(plan.held_out_error, plan.tolerance)[0]}"
    if plan.meets_tolerance:
        return f"{_choice(plan)}: {errors}."
    where = " on the held-out batches" if plan.error <= plan.tolerance else ""
    return f"The tolerance is not met{where}. {_choice(plan, is_met=False)}: {errors}."


def _choice(plan: PrecisionPlan, *, is_met: bool = True) -> str:
    """Says what runs in which precision."""
    name, num_pins = repr(plan.model_name), len(plan.units_in_float32())
    if not num_pins:
        return f"All of {name} {'may run' if is_met else 'runs'} in {plan.precision}"
    pinned = f"{num_pins} of {counted(len(plan.units), 'layer')}"
    verb = "stays" if num_pins == 1 else "stay"
    return f"{pinned} of {name} {verb} in float32, the rest in {plan.precision}"


def units_table(
    plan: PrecisionPlan, units: Sequence[UnitEffect], *, with_precision: bool = False
) -> str:
    """Lays out units with their effects.

    Args:
        plan: The plan that they belong to.
        units: Those to show, in this order.
        with_precision: Whether a column says what each runs in.
    """
    title, columns, rows = unit_rows(plan, units, with_precision=with_precision)
    kept = dict.fromkeys(columns[1:], 24)
    return render_table(columns, rows, right_aligned=_UNIT_NUMBERS, kept_widths=kept, title=title)


def unit_rows(
    plan: PrecisionPlan, units: Sequence[UnitEffect], *, with_precision: bool = False
) -> tuple[str, list[str], list[list[str]]]:
    """Returns title, columns and rows of `units_table`."""
    columns = [*_UNIT_COLUMNS]
    rows = [list(_unit_cells(unit)) for unit in units]
    if with_precision:
        columns.insert(2, "Runs in")
        wide = {unit.path for unit in plan.units_in_float32()}
        for unit, row in zip(units, rows, strict=True):
            row.insert(2, "float32" if unit.path in wide else plan.precision)
    title = (
        f"Errors in the {plan.metric}: a layer alone in half; the plan without its pin, "
        "predicted and measured"
    )
    return title, columns, rows


def _unit_cells(unit: UnitEffect) -> Sequence[str]:
    return (
        unit.path or "(model)",
        unit.layer_class,
        unit.reason,
        number(unit.score),
        number(unit.predicted_without),
        number(unit.measured_without),
        number(unit.largest, 4),
    )


def errors_table(plan: PrecisionPlan) -> str:
    """Lays out the errors in all metrics, and next to them how much two batches differ."""
    columns, cells = error_rows(plan)
    return render_table(columns, cells, right_aligned=columns[1:])


def error_rows(plan: PrecisionPlan) -> tuple[list[str], list[list[str]]]:
    """Returns columns and rows of `errors_table`."""
    rows = list(_error_rows(plan))
    shown = [i for i in range(len(_ERROR_COLUMNS)) if any(row[i] != "-" for row in rows)]
    return [_ERROR_COLUMNS[i] for i in shown], [[row[i] for i in shown] for row in rows]


def _error_rows(plan: PrecisionPlan) -> Iterator[Sequence[str]]:
    searched, held_out = f"{plan.num_batches}", f"{plan.num_held_out_batches} held out"
    everything, planned = f"all in {plan.precision}", "with the pins"
    yield everything, searched, *_error_cells(plan.half)
    if plan.pins.pins:
        yield planned, searched, *_error_cells(plan.planned)
    if plan.half_held_out is not None:
        yield everything, held_out, *_error_cells(plan.half_held_out)
    if plan.pins.pins and plan.planned_held_out is not None:
        yield planned, held_out, *_error_cells(plan.planned_held_out)
    between = plan.between_batches
    if between is not None:
        numbers = number(between.loss), number(between.gradient)
        yield "float32, batch to batch", "2", "-", *numbers, _cosine(between.gradient_cosine)


def _error_cells(errors: Errors) -> Sequence[str]:
    numbers = (number(one) for one in (errors.output, errors.loss, errors.gradient))
    return *numbers, _cosine(errors.gradient_cosine)


def _cosine(value: float | None) -> str:
    # What matters is how far it is from 1: three digits would round that away.
    return number(value, 6)


def step_times(plan: PrecisionPlan) -> str:
    """Says how long a step takes; nothing if that was not timed."""
    times = plan.step_times
    if times is None:
        return ""
    parts = [("float32", times.float32), (plan.precision, times.half)]
    if plan.pins.pins:
        parts.append(("with the pins", times.planned))
    texts = ", ".join(f"{name} {_milliseconds(one)}" for name, one in parts)
    rounds = counted(times.num_rounds, "round")
    return f"Milliseconds of a {times.what}, median and quartiles of {rounds}: {texts}."


def _milliseconds(times: Quartiles) -> str:
    low, median, high = map(milliseconds, (times.low, times.median, times.high))
    return f"{median} ({low} to {high})"


def effort(plan: PrecisionPlan) -> str:
    """Says on what the plan was made, and what that took."""
    held_out = (
        f" and {counted(plan.num_held_out_batches, 'held-out batch')}"
        if plan.num_held_out_batches
        else ""
    )
    return (
        f"Made on {counted(plan.num_batches, 'batch')} of "
        f"{counted(plan.num_samples, 'sample')} in all{held_out}, with "
        f"{counted(plan.num_validations, 'validation')} and {counted(plan.num_passes, 'pass')}, "
        f"in {plan.seconds:.1f} s."
    )
