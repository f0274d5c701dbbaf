"""What an eager run proves of each layer, by path: the findings that an audit owes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.corpus.eager import HALF, EagerRun, LayerRun
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
    for outermost, one in ((run.calls[0], call) for run in runs for call in run.calls):
        path = _path(paths, one)
        if path is None:  # made anew in each call
            continue
        if one.is_operation:
            if (one.widened and one.had_half) or one.wide_products:
                found["between"].add(path)
            continue
        if one.is_half and one.widened and not one.is_model:
            found["widened"].add(path)
            if "float64" in one.outputs:
                found["doubled"].add(path)
        # A float32 layer whose result leaves the model is a head of its own choice.
        is_head = not one.is_half and one.returned & outermost.returned
        if one.wide_products and not is_head:
            half = [around for around in one.around() if around.is_half and not around.is_model]
            if half:
                found["products"].add(_path(paths, half[0]) or "")
    kinds = ("widened", "doubled", "products", "between")
    num_half_outputs = sum(dtype in HALF for dtype in runs[0].outputs)
    return Evidence(*(frozenset(found[kind]) for kind in kinds), num_half_outputs)


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
