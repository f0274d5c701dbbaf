"""What an eager run proves of each layer, by path: the findings that an audit owes.

Each wide float is followed back to the calls whose code made it, of half precision or of
nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.eager import HALF, WIDE, Call, EagerRun, Operation, dtype_of, tensors_in
from tf_amp_kit.tracing.paths import LayerPaths, auto_name, join

__all__ = ["EAGER_CODES", "Evidence", "evidence_of"]

#: What an eager run can prove, or disprove.
EAGER_CODES = ("AMP101", "AMP102", "AMP103", "AMP105")


@dataclass(frozen=True)
class Evidence:
    """What was seen in eager runs of one model.

    Attributes:
        widened: Half layers that return float32 by their own code.
        doubled: Layers that return float64 by their own code.
        products: Half layers that run a matrix product in float32.
        between: Operations between layers that make a wide float of a half one, or run a
            matrix product in float32.
        num_half_outputs: How many outputs of the model are half, without training.
    """

    widened: frozenset[str]
    doubled: frozenset[str]
    products: frozenset[str]
    between: frozenset[str]
    num_half_outputs: int

    @property
    def findings(self) -> dict[str, list[str]]:
        """The paths by code that an audit has to find, and no others of these codes."""
        found = {
            "AMP101": self.widened - self.doubled,
            "AMP102": self.doubled,
            # What a product makes wide is one mistake, told once.
            "AMP103": self.products - self.widened,
            "AMP105": self.between,
        }
        return {code: sorted(paths) for code, paths in found.items() if paths}


def evidence_of(model: Any, runs: Iterable[EagerRun]) -> Evidence:
    """Collects what runs of a model show.

    Args:
        model: The model.
        runs: Its eager runs, the one without training first.
    """
    paths = LayerPaths(model)
    found: dict[str, set[str]] = defaultdict(set)
    runs = list(runs)
    for run in runs:
        for kind, path in _shown_by(run, paths):
            if path is not None:  # None where it is made anew in each call
                found[kind].add(path)
    kinds = ("widened", "doubled", "products", "between")
    num_half_outputs = sum(dtype in HALF for dtype in runs[0].calls[0].outputs)
    return Evidence(*(frozenset(found[kind]) for kind in kinds), num_half_outputs)


def _shown_by(run: EagerRun, paths: LayerPaths) -> Iterator[tuple[str, str | None]]:
    makers = _makers(run)
    returned = {id(one) for one in tensors_in(run.calls[0].result)}
    with_half = {one.call for one in run.eager_operations if _has_half(one)}
    with_products = {one.call for one in run.operations if _is_wide_product(one)}
    for call in run.calls:
        wide = [one for one in tensors_in(call.result) if dtype_of(one) in WIDE]
        is_widened = any(makers.get(id(one)) == {call} for one in wide)
        if not call.is_layer:
            if (is_widened and call in with_half) or call in with_products:
                yield "between", _path(paths, call)
            continue
        if call.is_half and is_widened:
            yield "widened", _path(paths, call)
            if "float64" in call.outputs:
                yield "doubled", _path(paths, call)
        # A float32 layer whose result leaves the model is a head of its own choice.
        leaves = any(id(one) in returned for one in tensors_in(call.result))
        if call in with_products and (call.is_told_half or not leaves):
            half = [around for around in call.with_all_around() if around.is_half]
            if half:
                yield "products", _path(paths, half[0])


def _makers(run: EagerRun) -> Mapping[int, frozenset[Call]]:
    """Returns the calls whose code made each wide float, by the tensor's identity."""
    makers: dict[int, frozenset[Call]] = {}
    for operation in run.eager_operations:
        call = operation.call
        if call is None:
            continue
        given = [makers[id(one)] for one in operation.inputs if id(one) in makers]
        inherited: frozenset[Call] = frozenset().union(*given)
        is_own = _has_half(operation) or not inherited
        for one in operation.outputs:
            if one.dtype.name in WIDE:
                makers[id(one)] = inherited | {call} if is_own else inherited
    return makers


def _has_half(operation: Operation) -> bool:
    return any(one.dtype.name in HALF for one in operation.inputs)


def _is_wide_product(operation: Operation) -> bool:
    has_wide = any(one.dtype.name in WIDE for one in operation.inputs)
    return operation.is_product and has_wide and not _has_half(operation)


def _path(paths: LayerPaths, call: Call) -> str | None:
    if call.is_layer:
        return paths.of(call.callee)
    owner = paths.of(call.around.callee) if call.around else None
    name = auto_name(type(call.callee).__name__)
    return (
        None
        if owner is None
        else join(owner, f"@{name}_{call.count}" if call.count else f"@{name}")
    )
