"""What a memory estimate says in words and tables."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Final

from tf_amp_kit import tables
from tf_amp_kit.comparison.words import size
from tf_amp_kit.errors import InputsError

if TYPE_CHECKING:
    from tf_amp_kit.comparison.memory.record import MemoryEstimate

__all__ = ["LAYER_COLUMNS", "layer_rows", "layers_table", "part_rows", "parts_table", "verdict"]

LAYER_COLUMNS: Final = ("Layer", "Weights", "Kept")

_PHASES: Final = {
    "forward": "the forward pass",
    "backward": "the backward pass",
    "update": "the update of the weights",
}


def verdict(estimate: MemoryEstimate) -> str:
    """Says what the whole takes, and when."""
    samples = f"{estimate.batch_size} sample{'s' if estimate.batch_size > 1 else ''}"
    if estimate.num_replicas > 1:
        samples += f" on {estimate.num_replicas} replicas, on each of them"
    return (
        f"{estimate.model_name!r} in {estimate.precision} takes {size(estimate.peak_bytes)} to "
        f"train on {samples}, most of it in {_PHASES[estimate.peak_phase]}."
    )


def parts_table(estimate: MemoryEstimate) -> str:
    """Lays out what the memory is for."""
    return tables.render_table(("Part", "Size"), part_rows(estimate), right_aligned=("Size",))


def part_rows(estimate: MemoryEstimate) -> list[tuple[str, str]]:
    """Returns the rows of `parts_table`."""
    rows = [("weights", estimate.weights_bytes)]
    if estimate.master_weights_bytes:
        rows.append(("  float32 masters of half layers", estimate.master_weights_bytes))
        rows.append(("half copies of weights", estimate.half_weights_bytes))
    rows += [
        ("gradients", estimate.gradients_bytes),
        ("optimizer", estimate.optimizer_bytes),
        ("kept for the backward pass", estimate.activations_bytes),
        ("batch", estimate.inputs_bytes),
        ("in use at the peak", estimate.live_bytes),
        ("held by the process", estimate.peak_bytes),
    ]
    return [(name, size(value)) for name, value in rows]


def layers_table(estimate: MemoryEstimate, max_rows: int | None) -> str:
    """Lays out what layers take, those that take most first.

    Raises:
        InputsError: If `max_rows` is no whole number from 0 up, and not None.
    """
    is_count = isinstance(max_rows, Integral) and not isinstance(max_rows, bool) and max_rows >= 0
    if max_rows is not None and not is_count:
        raise InputsError(
            f"Expected a whole number from 0 up, or None for all. Received: max_rows={max_rows!r}."
        )
    rows = layer_rows(estimate)
    table = tables.render_table(LAYER_COLUMNS, rows[:max_rows], right_aligned=LAYER_COLUMNS[1:])
    if max_rows is not None and len(rows) > max_rows:
        table += f"\n... and {len(rows) - max_rows} more layers: estimate.table() shows all."
    return table


def layer_rows(estimate: MemoryEstimate) -> list[tuple[str, str, str]]:
    """Returns the rows of `layers_table`, those that take most first."""
    ranked = sorted(
        estimate.layers, key=lambda one: one.weights_bytes + one.activations_bytes, reverse=True
    )
    return [
        (one.path or "(model)", size(one.weights_bytes), size(one.activations_bytes))
        for one in ranked
    ]
