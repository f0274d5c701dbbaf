"""The record of where NaN or Inf was born, and how it prints itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tf_amp_kit.inspection.nonfinite.operand import Operand
from tf_amp_kit.tables import some, wrapped
from tf_amp_kit.tracing.source import Source

__all__ = ["NonFiniteOrigin", "NonFiniteReport"]

_NUM_SHOWN = 4


@dataclass(frozen=True)
class NonFiniteOrigin:
    """The first operation whose result is not finite although its inputs are.

    Attributes:
        path: The layer's path; of an operation between layers
            `<owner>/@operation`; `@loss` and `@metrics` outside the model. Data are
            `@input/<key>`, `@target/<key>` and `@sample_weight/<key>`, and a
            variable has its own path.
        layer_class: The layer's class name; empty outside of layers.
        operation: TensorFlow's operation type, `"Exp"` for example; empty if data
            or variables hold the NaN or Inf already.
        direction: `"forward"`, or `"backward"` in the computation of gradients.
        reason: Why the result is not finite, in one sentence.
        source: The line of user code, of the forward pass for a gradient; None
            where only Keras's own code ran.
        operands: What went in.
        result: What came out.
        iterations: The iteration of each loop around it, outermost first, from 0.
    """

    path: str
    layer_class: str
    operation: str
    direction: str
    reason: str
    source: Source | None
    operands: tuple[Operand, ...]
    result: Operand
    iterations: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dictionary for JSON."""
        return {
            "path": self.path,
            "layer_class": self.layer_class,
            "operation": self.operation,
            "direction": self.direction,
            "reason": self.reason,
            "source": self.source.to_dict() if self.source else None,
            "operands": [one.to_dict() for one in self.operands],
            "result": self.result.to_dict(),
            "iterations": list(self.iterations),
        }


@dataclass(frozen=True)
class NonFiniteReport:
    """Where the first NaN or Inf of a train step was born.

    Attributes:
        origin: Where; None if every batch was clean.
        num_batches: How many batches were looked at, the bad one included.
        precision: What most of the model computes in.
        loss_scale: What the loss was multiplied by.
        spread: Paths of the layers that it spread to, in the order of execution.
        reached: What it reached: outputs by key, `@loss`, `@gradients/<variable>`,
            `@metrics/<name>` and variables of the state.
        in_float32: Whether it is there in float32 as well, and so a bug and no
            matter of precision; None for a clean run, for what data and variables
            hold before the step, and where the model cannot run in float32.
        clean_scale: The largest loss scale, some halvings below the given one, at
            which the batch is clean: dynamic scaling gets there by itself. None if
            there is none.
        notes: What else was seen.
        saved_to: The file that holds the bad batch, if it was to be saved.

    Example:

    >>> print(NonFiniteReport(None, num_batches=2, precision="float16", loss_scale=32768.0))
    No NaN and no Inf in 2 batches (float16, loss scale 32768).
    """

    origin: NonFiniteOrigin | None
    num_batches: int
    precision: str
    loss_scale: float
    spread: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()
    in_float32: bool | None = None
    clean_scale: float | None = None
    notes: tuple[str, ...] = ()
    saved_to: str | None = None

    @property
    def is_only_loss_scale(self) -> bool:
        """Whether the batch is clean at a lower loss scale."""
        return self.clean_scale is not None

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dictionary for strict JSON."""
        return {
            "origin": self.origin.to_dict() if self.origin else None,
            "num_batches": self.num_batches,
            "precision": self.precision,
            "loss_scale": self.loss_scale,
            "spread": list(self.spread),
            "reached": list(self.reached),
            "in_float32": self.in_float32,
            "clean_scale": self.clean_scale,
            "notes": list(self.notes),
            "saved_to": self.saved_to,
        }

    def to_json(self) -> str:
        """Returns the record as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Returns what is printed, the headline first."""
        run = f"{self.precision}, loss scale {self.loss_scale:g}"
        notes = [wrapped(f"Note: {note}") for note in self.notes]
        if self.origin is None:
            count = "1 batch" if self.num_batches == 1 else f"{self.num_batches} batches"
            return [f"No NaN and no Inf in {count} ({run}).", *notes]
        lines = [wrapped(f"{_headline(self.origin)} of batch {self.num_batches} ({run}):")]
        lines += [wrapped(f"  {line}") for line in _description(self.origin)]
        lines.append(wrapped(f"  Spread to: {self._spread_in_words()}"))
        lines += [wrapped(f"  {line}") for line in self._verdicts()]
        if self.saved_to:
            lines.append(wrapped(f"  Saved:     the batch, as {self.saved_to}"))
        return [*lines, *notes]

    def _spread_in_words(self) -> str:
        gradients = [one for one in self.reached if one.startswith("@gradients/")]
        others = [one for one in self.reached if not one.startswith("@gradients/")]
        ends = [f"{len(gradients)} weight gradients"] if gradients else []
        layers = [some([path or "(model)" for path in self.spread], _NUM_SHOWN)]
        return "; ".join([*(layers if self.spread else []), ", ".join([*others, *ends])])

    def _verdicts(self) -> list[str]:
        if self.clean_scale is not None:
            return [
                f"Scale:     clean at {self.clean_scale:g}: dynamic loss scaling gets there by "
                "itself, by skipping steps, and no harm is done"
            ]
        verdicts = {
            True: "the same happens there: a bug, and no matter of precision",
            False: "finite there: a matter of precision",
            None: "not known: the model cannot run in float32",
        }
        if self.origin is not None and not self.origin.operation:
            return []
        if self.precision == "float32":
            return ["Float32:   this is float32: a bug, and no matter of precision"]
        return [f"Float32:   {verdicts[self.in_float32]}"]


def _headline(origin: NonFiniteOrigin) -> str:
    kind = "NaN" if origin.result.num_nan else "Inf"
    where = origin.path or "(model)"
    owner = f"{where} ({origin.layer_class})" if origin.layer_class else where
    if not origin.operation:
        return f"{kind} is in {owner} already,"
    loops = "".join(f", iteration {one + 1}" for one in origin.iterations)
    return f"The first {kind}: {origin.operation} in {owner}, {origin.direction} pass{loops},"


def _description(origin: NonFiniteOrigin) -> list[str]:
    lines = [f"{origin.source}", f"    {origin.source.text}"] if origin.source else []
    lines.append(f"Why:       {origin.reason}")
    lines += [f"Input:     {operand}" for operand in origin.operands]
    lines.append(f"Result:    {origin.result}")
    return lines
