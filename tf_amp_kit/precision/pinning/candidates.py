"""Which layers a level keeps in float32: found by what a trace shows.

The head of an output is the last layer with weights before it, and all that runs
after that layer. Sensitive are operations that published lists keep in float32,
averages over windows, and what scales raw inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tf_amp_kit.formats import is_float, is_half
from tf_amp_kit.precision.pinning.units import Units
from tf_amp_kit.tracing.heads import ancestors, saturating_activations
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.paths import is_below
from tf_amp_kit.tracing.products import PRODUCT_TYPES
from tf_amp_kit.tracing.records import LayerCall, Operation
from tf_amp_kit.tracing.sensitivity import lists_with

__all__ = ["Candidates", "find_candidates", "topmost"]

# They add up a window in the dtype of their input: neither published list has them.
_AVERAGES: Final = frozenset({"AvgPool", "AvgPool3D"})

# Worth a matrix product in float32. The others can be had without one.
_WORTH_A_PRODUCT: Final = frozenset({"Exp", "Expm1", "LogSoftmax", "Rsqrt", "Softmax"})

_SCALING_TYPES: Final = frozenset({"AddV2", "FusedBatchNormV3", "Mul", "RealDiv", "Sub"})
_MOVING_TYPES: Final = frozenset(
    {
        "Cast",
        "ConcatV2",
        "Const",
        "Pack",
        "Pad",
        "Shape",
        "Split",
        "SplitV",
        "StridedSlice",
        "Tile",
        "Transpose",
        "Unpack",
    }
)


@dataclass(frozen=True)
class Candidates:
    """What could be pinned in a model, as reasons by layer path.

    Attributes:
        head: The heads of the outputs, and layers that add a half loss.
        sensitive: Numerically sensitive layers.
        left: Sensitive code that stays half, with the reason.
    """

    head: dict[str, str]
    sensitive: dict[str, str]
    left: dict[str, str]

    def at_level(self, level: str, *, sensitive: bool = True) -> dict[str, str]:
        """Returns what a level pins, without layers below others of it.

        Args:
            level: `"O0"` to `"O3"`. O1 pins all, O2 the head, the others nothing.
            sensitive: False leaves the sensitive layers out at O1 too.
        """
        if level not in ("O1", "O2"):
            return {}
        return topmost({**(self.sensitive if sensitive and level == "O1" else {}), **self.head})


def find_candidates(trace: ModelTrace) -> Candidates:
    """Finds what the levels keep in float32.

    Args:
        trace: A trace with `training=True`.

    Returns:
        Only layers that compute in half precision, or run some that do.
    """
    units = Units(trace)
    head = dict(_heads(units)) | dict(_trapped(units)) | dict(_losing(units))
    sensitive, left = _sensitive(units)
    return Candidates(head, {**dict(_scaling(units)), **sensitive}, left)


def topmost(reasons: dict[str, str]) -> dict[str, str]:
    """Leaves out what hangs below another path: sublayers follow.

    Example:

    >>> topmost({"block/dense": "a", "block": "b"})
    {'block': 'b'}
    """
    return {
        path: why
        for path, why in reasons.items()
        if not any(other != path and is_below(path, other) for other in reasons)
    }


def _heads(units: Units) -> Iterator[tuple[str, str]]:
    for key, tensor in units.trace.outputs.items():
        for unit in _head(units, tensor):
            if units.is_half(unit):
                yield unit.path, f"head of output {key!r}"


def _head(units: Units, tensor: int) -> Iterator[LayerCall]:
    """Yields the last calls with weights before an output, and what runs after them."""
    weighted: dict[int, LayerCall] = {}
    between: dict[int, Operation] = {}

    def is_weightless(op: Operation) -> bool:
        unit = units.of(op)
        if unit is not None and units.has_weights(unit):
            weighted[unit.index] = unit
        else:
            between[op.index] = op
        return op.index in between

    ancestors(units.trace, [tensor], through=is_weightless)
    # The branch around a block ends at an earlier block, which is no head.
    last = set(weighted)
    for unit in weighted.values():
        before = {units.of(op) for op in ancestors(units.trace, unit.inputs)}
        last -= {one.index for one in before if one is not None}
    yield from (weighted[index] for index in sorted(last))
    after: set[int] = set()
    for index in sorted(between):
        op = between[index]
        makers = [units.trace.producers.get(key) for key in op.inputs]
        if any(one and (one.index in after or _runs_in(units, one, last)) for one in makers):
            after.add(index)
            weightless = units.of(op)
            if weightless is not None and not units.is_composite(weightless):
                yield weightless


def _runs_in(units: Units, op: Operation, calls: set[int]) -> bool:
    unit = units.of(op)
    return unit is not None and unit.index in calls


def _trapped(units: Units) -> Iterator[tuple[str, str]]:
    for op in saturating_activations(units.trace):
        unit = units.of(op)
        if unit is not None and _dtype(units, op) and not units.is_composite(unit):
            yield unit.path, f"{op.type.lower()} of an output"


def _losing(units: Units) -> Iterator[tuple[str, str]]:
    for loss, call in units.trace.half_losses:
        unit = units.around(call)
        if unit is not None:
            yield unit.path, f"adds a loss in {loss.dtype}, which `fit` refuses"


def _sensitive(units: Units) -> tuple[dict[str, str], dict[str, str]]:
    found: dict[str, tuple[LayerCall, dict[str, str]]] = {}
    for op in units.trace.live:
        dtype, unit = _dtype(units, op), units.of(op)
        if unit is not None and dtype and (lists_with(op.type, dtype) or op.type in _AVERAGES):
            found.setdefault(unit.path, (unit, {}))[1][op.type] = dtype
    multiplying = {
        unit.path
        for op in units.trace.live
        if op.type in PRODUCT_TYPES and (unit := units.of(op)) is not None
    }
    pinned, left = {}, {}
    for path, (unit, types) in found.items():
        what = f"runs {', '.join(types)} in {next(iter(types.values()))}"
        if units.is_composite(unit):
            left[path] = f"{what} in code of its own around other layers"
        elif path in multiplying and not _WORTH_A_PRODUCT & set(types):
            left[path] = f"{what} beside a matrix product"
        else:
            pinned[path] = what
    return pinned, left


def _scaling(units: Units) -> Iterator[tuple[str, str]]:
    """Finds layers that only scale and shift raw inputs, and what moves these there."""
    raw = set(units.trace.inputs.values())
    for call in units.trace.calls:
        if call.kind != "layer" or not call.is_half or units.is_composite(call):
            continue
        ops = list(units.trace.own_operations(call))
        if any(op.type in PRODUCT_TYPES or op.bodies for op in ops):
            continue
        operands = [key for op in ops if _scales(units, op, call) for key in op.inputs]
        movers = [one for key in operands if (one := _movers(units, key, raw)) is not None]
        if movers:
            raw.update(call.outputs)
            yield call.path, "scales raw inputs"
            between = dict.fromkeys(one.path for found in movers for one in found)
            yield from (
                (path, f"hands raw inputs to {call.path!r}")
                for path in between
                if path != call.path
            )


def _scales(units: Units, op: Operation, call: LayerCall) -> bool:
    # Indices are computed with too, before they are looked up. And a user's own
    # layer that is wide already is a mistake, to be found by an audit.
    dtype = units.trace.tensors[op.outputs[0]].dtype if op.outputs else ""
    return op.type in _SCALING_TYPES and (is_half(dtype) if call.is_custom else is_float(dtype))


def _movers(units: Units, key: int, raw: set[int]) -> list[LayerCall] | None:
    """Returns the half layers that raw values were moved through; None for other values."""
    if key in raw:
        return []
    is_raw, is_moved = False, True

    def is_moving(op: Operation) -> bool:
        nonlocal is_raw, is_moved
        is_given = any(one in raw for one in op.outputs)
        is_raw |= is_given
        is_moved &= is_given or op.is_passing or op.type in _MOVING_TYPES
        return is_moved and not is_given

    ops = [op for op in ancestors(units.trace, [key], through=is_moving) if op.type != "Const"]
    given = {op.index for op in ops if any(one in raw for one in op.outputs)}
    layers = [units.of(op) for op in ops if op.index not in given]
    movers = [one for one in layers if one is not None and one.is_half]
    is_moved &= not any(map(units.is_composite, movers))
    return movers if is_raw and is_moved else None


def _dtype(units: Units, op: Operation) -> str:
    """Returns the half dtype that an operation gives, or nothing."""
    dtype = units.trace.tensors[op.outputs[0]].dtype if op.outputs else ""
    return dtype if is_half(dtype) else ""
