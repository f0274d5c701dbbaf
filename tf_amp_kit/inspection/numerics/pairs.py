"""The record of gradients in float32 next to those in half, and how it prints itself."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tf_amp_kit.inspection.numerics.noise import NOISE
from tf_amp_kit.inspection.numerics.statistics import StatisticsCounter, TensorStatistics
from tf_amp_kit.tables import percent, render_table, some, wrapped

__all__ = ["GRADIENT_COLUMNS", "GradientComparison", "GradientPair", "compare_arrays"]

GRADIENT_COLUMNS: Final = (
    "Gradient of",
    "Elements",
    "Cosine",
    "Relative error",
    "Vanished",
    "Not finite",
)
_NUM_SHOWN: Final = 10


@dataclass(frozen=True)
class GradientPair:
    """One weight's gradient in float32, and in half precision.

    Attributes:
        path: The weight's path; empty for all gradients as one vector.
        num_elements: How many elements it has.
        cosine: The cosine of the angle between both, -1 to 1; NaN if one of them is
            all zero or not finite.
        relative_error: The norm of the difference over the norm of the float32 one;
            NaN if that is zero, infinite if the half one is not finite.
        num_vanished: Elements that are zero in half, and not in float32.
        num_nonzero: Elements that are not zero in float32.
        float32: The statistics of the float32 gradient.
        half: Those of the half one, divided by the loss scale.
    """

    path: str
    num_elements: int
    cosine: float
    relative_error: float
    num_vanished: int
    num_nonzero: int
    float32: TensorStatistics
    half: TensorStatistics

    @property
    def vanished_fraction(self) -> float:
        """The share of non-zero elements that vanished, 0 to 1; 0 if there are none."""
        return self.num_vanished / self.num_nonzero if self.num_nonzero else 0.0

    @property
    def num_nonfinite(self) -> int:
        """Elements that are NaN or infinite in half."""
        return self.half.num_nan + self.half.num_infinite

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dictionary for strict JSON; None for what is not finite."""
        numbers = {"cosine": self.cosine, "relative_error": self.relative_error}
        return {
            "path": self.path,
            "num_elements": self.num_elements,
            **{key: one if math.isfinite(one) else None for key, one in numbers.items()},
            "num_vanished": self.num_vanished,
            "vanished_fraction": self.vanished_fraction,
            "float32": self.float32.to_dict(),
            "half": self.half.to_dict(),
        }


@dataclass(frozen=True)
class GradientComparison:
    """Weight gradients of a float32 model next to those of the half-precision model.

    Attributes:
        model_name: The model's name.
        precision: The half format.
        loss_scale: What the loss was multiplied by in half precision.
        num_samples: How many samples the batch held.
        whole: All gradients as one vector.
        pairs: One pair per trainable weight that has a gradient, in the model's order.
        notes: What else was seen.

    Example:

    >>> import keras, tf_amp_kit as amp
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="out")])
    >>> model.set_weights([np.array([[1.0], [2.0]]), np.zeros(1)])
    >>> data = np.array([[1.0, 2.0]]), np.array([[1.0]])
    >>> report = amp.compare_gradients(model, data, loss="mse", precision="bf16", verbose=0)
    >>> report.whole.cosine, report.whole.relative_error
    (1.0, 0.0)
    """

    model_name: str
    precision: str
    loss_scale: float
    num_samples: int
    whole: GradientPair
    pairs: tuple[GradientPair, ...]
    notes: tuple[str, ...] = ()

    def worst(self) -> list[GradientPair]:
        """Returns the pairs, those that differ most first, and `idle` ones last."""
        idle = set(self.idle)
        return sorted(
            self.pairs, key=lambda one: (one.path not in idle, *_badness(one)), reverse=True
        )

    @property
    def idle(self) -> tuple[str, ...]:
        """Weights whose float32 gradient is zero but for rounding."""
        limit = NOISE * self.whole.float32.rms
        return tuple(one.path for one in self.pairs if _is_finite(one) and one.float32.rms <= limit)

    def table(self, max_rows: int | None = None) -> str:
        """Lays the pairs out as a text table, the worst first.

        Args:
            max_rows: How many to show; None for all.
        """
        rows = list(self.cells(max_rows))
        kept = dict.fromkeys(GRADIENT_COLUMNS[1:], 15)
        numbers = GRADIENT_COLUMNS[1:]
        return render_table(
            GRADIENT_COLUMNS, rows, right_aligned=numbers, kept_widths=kept, title=self.title()
        )

    def title(self) -> str:
        """Says what was compared."""
        return (
            f"Gradients of {self.model_name!r}: {self.precision} at loss scale "
            f"{self.loss_scale:g} against float32, one batch of {self.num_samples} samples"
        )

    def cells(self, max_rows: int | None = None) -> Iterable[Sequence[str]]:
        """Yields the rows of the table, as text: all weights together, then the worst.

        Args:
            max_rows: How many weights to give; None for all.
        """
        return map(_cells, (self.whole, *self.worst()[:max_rows]))

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as a dictionary for strict JSON."""
        return {
            "model_name": self.model_name,
            "precision": self.precision,
            "loss_scale": self.loss_scale,
            "num_samples": self.num_samples,
            "whole": self.whole.to_dict(),
            "pairs": [one.to_dict() for one in self.pairs],
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Returns the record as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        return self.text(_NUM_SHOWN)

    def text(self, max_rows: int | None = None) -> str:
        """Lays out what is printed: the table, and what it comes to in words.

        Args:
            max_rows: How many weights to show; None for all.
        """
        lines = [self.table(max_rows)]
        if max_rows is not None and len(self.pairs) > max_rows:
            hidden = len(self.pairs) - max_rows
            lines.append(f"... and {hidden} more weights: report.table() shows all.")
        if self.idle:
            lines.append(
                wrapped(f"The float32 gradients of {some(self.idle)} are zero but for rounding.")
            )
        return "\n".join([*lines, *(wrapped(f"Note: {note}") for note in self.notes)])


def compare_arrays(
    path: str,
    float32: Sequence[NDArray[Any]],
    half: Sequence[NDArray[Any]],
    precision: str,
) -> GradientPair:
    """Compares gradients, given as arrays of equal shapes that count as one vector.

    Args:
        path: The weight's path.
        float32: Arrays of the float32 run.
        half: Arrays of the half run, unscaled.
        precision: The half format, for the statistics.

    Returns:
        A `GradientPair`; sums are made in float64.

    Example:

    >>> pair = compare_arrays("w", [np.array([3.0, 4.0])], [np.array([3.0, 0.0])], "float16")
    >>> pair.cosine, pair.relative_error, pair.num_vanished
    (0.6, 0.8, 1)
    """
    counters = StatisticsCounter(precision), StatisticsCounter(precision)
    dot = square = half_square = difference = 0.0
    vanished = nonzero = 0
    with np.errstate(all="ignore"):
        for one, other in zip(float32, half, strict=True):
            counters[0].add(one)
            counters[1].add(other)
            a, b = one.astype(np.float64).ravel(), other.astype(np.float64).ravel()
            dot += float(a @ b)
            square += float(a @ a)
            half_square += float(b @ b)
            difference += float((a - b) @ (a - b))
            nonzero += int(np.count_nonzero(a))
            vanished += int(np.count_nonzero((a != 0) & (b == 0)))
    norms = math.sqrt(square) * math.sqrt(half_square)
    statistics = counters[0].freeze(), counters[1].freeze()
    is_finite = not (statistics[1].num_nan or statistics[1].num_infinite)
    return GradientPair(
        path=path,
        num_elements=statistics[0].num_elements,
        cosine=max(-1.0, min(1.0, dot / norms)) if norms and math.isfinite(norms) else math.nan,
        relative_error=_relative(difference, square) if is_finite else math.inf,
        num_vanished=vanished,
        num_nonzero=nonzero,
        float32=statistics[0],
        half=statistics[1],
    )


def _is_finite(pair: GradientPair) -> bool:
    return not (pair.float32.num_nan or pair.float32.num_infinite)


def _relative(difference: float, square: float) -> float:
    return math.sqrt(difference / square) if square else math.nan


def _badness(pair: GradientPair) -> tuple[float, ...]:
    error = pair.relative_error
    return pair.num_nonfinite, -math.inf if math.isnan(error) else error


def _cells(pair: GradientPair) -> Sequence[str]:
    return (
        pair.path or "(all)",
        f"{pair.num_elements}",
        "-" if math.isnan(pair.cosine) else f"{pair.cosine:.6f}",
        "-" if math.isnan(pair.relative_error) else f"{pair.relative_error:.2g}",
        percent(pair.vanished_fraction),
        f"{pair.num_nonfinite}",
    )
