"""The record of what a train step takes in memory, and how it prints itself."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from tf_amp_kit.comparison.memory import words
from tf_amp_kit.tables import wrapped

__all__ = ["LayerMemory", "MemoryEstimate"]

_NUM_SHOWN: Final = 8


@dataclass(frozen=True)
class LayerMemory:
    """What one layer takes.

    Attributes:
        path: The layer's path; `@loss` and operations between layers have one, too.
        weights_bytes: Its own weights as they are stored.
        activations_bytes: What the backward pass reads of what it made.
    """

    path: str
    weights_bytes: int
    activations_bytes: int


@dataclass(frozen=True)
class MemoryEstimate:
    """What a train step takes in memory, by what it is for.

    Printing it gives the peak, its parts, and the layers that take most. The parts do not
    add up to the peak: gradients and activations are never all there at one time.

    Attributes:
        model_name: The model's name.
        precision: What the layers compute in: a half format, or `"float32"`.
        batch_size: Samples of a step, over all replicas.
        num_replicas: How many devices share them; all that follows is for one of them.
        weights_bytes: All variables of the model as they are stored.
        master_weights_bytes: Those of them that are float32 for layers that compute in
            half precision, which uses copies.
        half_weights_bytes: These copies, which live within a step.
        gradients_bytes: One gradient for each trainable weight.
        optimizer_bytes: The optimizer's variables: slots, and accumulated gradients.
        activations_bytes: What is kept from the forward pass for the backward pass.
        inputs_bytes: One batch of inputs, targets and sample weights.
        live_bytes: The most that is in use at one time in a step whose operations run
            one after the other: weights, slots and the batch with all that the step makes.
        peak_bytes: The most that the process holds for it after some steps. TensorFlow's
            allocator takes more than what is in use, and runs operations side by side.
        peak_phase: Where most is in use: `"forward"`, `"backward"` or `"update"`.
        layers: What each layer takes, in the order of the model.
        notes: What else there is to know, in sentences.

    Example:

    >>> estimate = MemoryEstimate(
    ...     model_name="net",
    ...     precision="float32",
    ...     batch_size=32,
    ...     num_replicas=1,
    ...     weights_bytes=4 * 2**20,
    ...     master_weights_bytes=0,
    ...     half_weights_bytes=0,
    ...     gradients_bytes=4 * 2**20,
    ...     optimizer_bytes=8 * 2**20,
    ...     activations_bytes=20 * 2**20,
    ...     inputs_bytes=1 * 2**20,
    ...     live_bytes=35 * 2**20,
    ...     peak_bytes=36 * 2**20,
    ...     peak_phase="backward",
    ...     layers=(),
    ... )
    >>> print(estimate)
    'net' in float32 takes 36.0 MiB to train on 32 samples, most of it in the backward pass.
    <BLANKLINE>
    Part                            Size
    ------------------------------------
    weights                     4.00 MiB
    gradients                   4.00 MiB
    optimizer                   8.00 MiB
    kept for the backward pass  20.0 MiB
    batch                       1.00 MiB
    in use at the peak          35.0 MiB
    held by the process         36.0 MiB
    """

    model_name: str
    precision: str
    batch_size: int
    num_replicas: int
    weights_bytes: int
    master_weights_bytes: int
    half_weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    inputs_bytes: int
    live_bytes: int
    peak_bytes: int
    peak_phase: str
    layers: tuple[LayerMemory, ...]
    notes: tuple[str, ...] = ()

    def table(self, max_rows: int | None = None) -> str:
        """Lays out what layers take as a text table, those that take most first.

        Args:
            max_rows: How many to show; None for all.

        Raises:
            InputsError: If `max_rows` is negative, or no whole number.
        """
        return words.layers_table(self, max_rows)

    def __str__(self) -> str:
        return self.text(_NUM_SHOWN)

    def text(self, max_rows: int | None = None) -> str:
        """Lays out what is printed: the peak, what it is for, the layers, the notes.

        Args:
            max_rows: How many layers to show; None for all.
        """
        parts = [wrapped(words.verdict(self)), words.parts_table(self)]
        if self.layers:
            parts.append(self.table(max_rows))
        if self.notes:
            parts.append("\n".join(wrapped(f"Note: {note}") for note in self.notes))
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Returns the record as a dictionary that `json.dumps` accepts."""
        return asdict(self) | {
            "layers": [asdict(layer) for layer in self.layers],
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Returns the record as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)
