"""What an eager run proves of each layer, by path: the findings that an audit owes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.corpus.eager import HALF, WIDE, EagerRun, LayerRun
from tf_amp_kit.tracing.paths import LayerPaths, auto_name, join

__all__ = ["Evidence", "evidence_of"]


@dataclass(frozen=True)
class Evidence:
    """What was seen in eager runs of one model.

    Attributes:
        widened: Half layers, and operations between layers, that return a wide float by
            their own code.
        products: Half layers, and operations between layers, that run a matrix product
            in float32.
        wide: Half layers that return a wide float, whoever made it.
        num_half_outputs: How many outputs of the model are half, without training.
    """

    widened: frozenset[str]
    products: frozenset[str]
    wide: frozenset[str]
    num_half_outputs: int

    @property
    def owed(self) -> frozenset[str]:
        """The paths that findings have to name, or to say that they touch them."""
        return self.widened | self.products


def evidence_of(model: Any, runs: Iterable[EagerRun]) -> Evidence:
    """Collects what runs of a model show.

    Args:
        model: The model.
        runs: Its eager runs, the one without training first.
    """
    paths = LayerPaths(model)
    found: dict[str, set[str]] = defaultdict(set)
    runs = list(runs)
    for one in (call for run in runs for call in run.calls):
        path = _path(paths, one)
        if path is None:  # made anew in each call
            continue
        is_wide = any(dtype in WIDE for dtype in one.outputs)
        if one.is_operation:
            if one.widened and one.had_half:
                found["widened"].add(path)
            if one.wide_products:
                found["products"].add(path)
            continue
        if one.is_half and is_wide and not one.is_model:
            found["wide"].add(path)
            if one.widened:
                found["widened"].add(path)
        if one.wide_products:
            half = [around for around in one.around() if around.is_half and not around.is_model]
            if half:
                found["products"].add(_path(paths, half[0]) or "")
    return Evidence(
        frozenset(found["widened"]),
        frozenset(found["products"]),
        frozenset(found["wide"]),
        sum(dtype in HALF for dtype in runs[0].outputs),
    )


def _path(paths: LayerPaths, call: LayerRun) -> str | None:
    if not call.is_operation:
        return paths.of(call.layer)
    owner = paths.of(call.outer.layer) if call.outer else None
    name = auto_name(type(call.layer).__name__)
    return (
        None
        if owner is None
        else join(owner, f"@{name}_{call.count}" if call.count else f"@{name}")
    )
