"""The record of what a half format does to a model's numbers, and how it prints itself."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tf_amp_kit.formats import is_half
from tf_amp_kit.inspection.numerics.exponents import Judgement
from tf_amp_kit.inspection.numerics.noise import are_idle
from tf_amp_kit.inspection.numerics.scales import ScaleAdvice
from tf_amp_kit.inspection.numerics.statistics import TensorStatistics
from tf_amp_kit.tables import percent, render_table, some, wrapped

__all__ = ["NUMERICS_COLUMNS", "NumericsReport", "TensorNumerics"]

NUMERICS_COLUMNS: Final = (
    "Tensor",
    "Kind",
    "Largest",
    "Overflow",
    "Underflow",
    "Subnormal",
    "Headroom",
)
_NUMBERS: Final = frozenset(NUMERICS_COLUMNS[2:])
# Numbers stay in one piece; paths wrap well.
_KEPT_WIDTHS: Final = dict.fromkeys(NUMERICS_COLUMNS[1:], 15)
_NUM_SHOWN: Final = 10


@dataclass(frozen=True)
class TensorNumerics:
    """One tensor: what it held in float32, and what a half format would make of it.

    Attributes:
        kind: `"input"`, `"output"` (of a layer), `"gradient"` (of that output),
            `"weight"` or `"weight_gradient"`.
        path: The layer's path; of a weight its own; of an input `@input/<key>`.
        position: The position among several tensors of one path.
        layer_class: The layer's class name; empty for inputs and weights.
        dtype: What its layer computes in, or the layer of the weight; empty for inputs.
        statistics: The float32 values; gradients are multiplied by the loss scale.
        judgement: What the half format makes of them.
    """

    kind: str
    path: str
    position: int
    layer_class: str
    dtype: str
    statistics: TensorStatistics
    judgement: Judgement

    @property
    def name(self) -> str:
        """The path, with the position where there are several tensors."""
        return (
            f"{self.path or '(model)'}[{self.position}]"
            if self.position
            else self.path or "(model)"
        )

    @property
    def overflow_fraction(self) -> float:
        """The share of finite non-zero elements that become infinite, 0 to 1."""
        return self.judgement.overflow_fraction

    @property
    def underflow_fraction(self) -> float:
        """The share of finite non-zero elements that become zero, 0 to 1."""
        return self.judgement.underflow_fraction

    @property
    def subnormal_fraction(self) -> float:
        """The share of finite non-zero elements that become subnormal, 0 to 1."""
        return self.judgement.subnormal_fraction

    @property
    def num_nonfinite(self) -> int:
        """Elements that are NaN or infinite."""
        return self.statistics.num_nan + self.statistics.num_infinite

    @property
    def headroom(self) -> float:
        """Powers of two to the largest finite value; negative where it is exceeded."""
        return self.judgement.headroom

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dictionary for strict JSON."""
        return {
            "kind": self.kind,
            "path": self.path,
            "position": self.position,
            "layer_class": self.layer_class,
            "dtype": self.dtype,
            **self.statistics.to_dict(),
            **self.judgement.to_dict(),
        }


@dataclass(frozen=True)
class NumericsReport:
    """What a half format does to the numbers of a model, measured in float32.

    Attributes:
        model_name: The model's name.
        precision: The half format that everything is judged by.
        loss_scale: What the loss was multiplied by.
        num_batches: How many batches were measured.
        num_samples: How many samples these held.
        tensors: Every tensor, in the order of execution, by kind.
        scale: Which loss scales lose nothing.
        notes: What else was seen.

    Example:

    >>> import keras, numpy as np, tf_amp_kit as amp
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="out")])
    >>> data = np.array([[1e5, 1.0]]), np.array([[0.0]])
    >>> report = amp.measure_numerics(model, data, loss="mse", precision="fp16", verbose=0)
    >>> [(one.kind, one.overflow_fraction) for one in report.tensors][0]
    ('input', 0.5)
    """

    model_name: str
    precision: str
    loss_scale: float
    num_batches: int
    num_samples: int
    tensors: tuple[TensorNumerics, ...]
    scale: ScaleAdvice
    notes: tuple[str, ...] = ()

    def worst(self) -> list[TensorNumerics]:
        """Returns the tensors, those that lose most first: by overflow, then by underflow.

        Gradients that are `idle`, and what pinned layers hold, come last.
        """
        last = {id(one) for one in self.tensors} - {id(one) for one in self.judged()}
        return sorted(
            self.tensors, key=lambda one: (id(one) not in last, *_badness(one)), reverse=True
        )

    @property
    def idle(self) -> tuple[str, ...]:
        """Weights whose gradient is zero but for rounding, in order."""
        gradients = self.of_kind("weight_gradient")
        flags = are_idle([one.statistics for one in gradients])
        return tuple(one.path for one, is_idle in zip(gradients, flags, strict=True) if is_idle)

    def judged(self) -> list[TensorNumerics]:
        """Returns what is, or would be, in half, and not only noise."""
        idle = set(self.idle)
        is_any_half = any(is_half(one.dtype) for one in self.tensors)
        return [
            one
            for one in self.tensors
            if not (one.kind == "weight_gradient" and one.path in idle)
            and not (is_any_half and one.dtype and not is_half(one.dtype))
        ]

    def of_kind(self, kind: str) -> list[TensorNumerics]:
        """Returns the tensors of one kind, in order."""
        return [one for one in self.tensors if one.kind == kind]

    def table(self, max_rows: int | None = None) -> str:
        """Lays the tensors out as a text table, the worst first.

        Args:
            max_rows: How many to show; None for all.
        """
        rows = list(self.cells(max_rows))
        return render_table(
            NUMERICS_COLUMNS,
            rows,
            right_aligned=_NUMBERS,
            kept_widths=_KEPT_WIDTHS,
            title=self.title(),
        )

    def cells(self, max_rows: int | None = None) -> Iterable[Sequence[str]]:
        """Yields the rows of the table, as text.

        Args:
            max_rows: How many to give; None for all.
        """
        return map(_cells, self.worst()[:max_rows])

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as a dictionary for strict JSON."""
        return {
            "model_name": self.model_name,
            "precision": self.precision,
            "loss_scale": self.loss_scale,
            "num_batches": self.num_batches,
            "num_samples": self.num_samples,
            "tensors": [one.to_dict() for one in self.tensors],
            "scale": self.scale.to_dict(),
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
            max_rows: How many tensors to show; None for all.
        """
        lines = [self.table(max_rows)]
        if max_rows is not None and len(self.tensors) > max_rows:
            hidden = len(self.tensors) - max_rows
            lines.append(f"... and {hidden} more tensors: report.table() shows all.")
        lines += ["", *map(wrapped, self.summary())]
        return "\n".join([*lines, *(wrapped(f"Note: {note}") for note in self.notes)])

    def title(self) -> str:
        """Says what was measured."""
        batches = "1 batch" if self.num_batches == 1 else f"{self.num_batches} batches"
        return (
            f"Numerics of {self.model_name!r} in {self.precision}, gradients at loss scale "
            f"{self.loss_scale:g}, {batches} of {self.num_samples} samples in all"
        )

    def summary(self) -> Iterable[str]:
        """Yields what it comes to, in sentences."""
        judged = self.judged()
        over = sum(one.judgement.num_overflow > 0 for one in judged)
        under = sum(one.judgement.num_underflow > 0 for one in judged)
        yield f"{over} of {len(self.tensors)} tensors overflow, in {under} something becomes zero."
        if self.idle:
            yield f"The gradients of {some(self.idle)} are zero but for rounding."
        advice = self.scale
        if advice.lowest is None or advice.highest is None:
            bad = any(one.num_nonfinite for one in self.tensors if "gradient" in one.kind)
            yield "No gradient is finite." if bad else "There are no gradients to scale."
            return
        lost = (
            f"{percent(advice.underflow_fraction)} of the gradients' elements become zero there, "
            f"{percent(advice.unscaled_underflow_fraction)} without scaling"
        )
        if advice.serves_both_ends:
            bounds = f"from {advice.lowest:g} to {advice.highest:g}"
            yield f"Loss scales {bounds} lose nothing; start from {advice.recommended:g}: {lost}."
            if advice.recommended > advice.highest:
                yield f"At {advice.recommended:g}, the lowest scale there is, gradients overflow."
        else:
            yield (
                f"No loss scale serves both ends: it takes {advice.lowest:g} for nothing to become "
                f"zero, and gradients overflow above {advice.highest:g}. Start from "
                f"{advice.recommended:g}: {lost}."
            )


def _badness(one: TensorNumerics) -> tuple[float, ...]:
    headroom = -one.headroom if math.isfinite(one.headroom) else -math.inf
    return (
        one.num_nonfinite,
        one.overflow_fraction,
        one.underflow_fraction,
        one.subnormal_fraction,
        headroom,
    )


def _cells(one: TensorNumerics) -> Sequence[str]:
    kind = one.kind.replace("_", " ")
    if not one.statistics.num_elements:
        return (one.name, kind, "-", "-", "-", "-", "-")
    bad = one.num_nonfinite
    largest = f"{one.statistics.largest:.4g}" if one.statistics.num_nonzero else "0"
    return (
        one.name,
        kind,
        f"{bad} not finite" if bad else largest,
        percent(one.overflow_fraction),
        percent(one.underflow_fraction),
        percent(one.subnormal_fraction),
        f"2^{one.headroom:.1f}" if math.isfinite(one.headroom) else "-",
    )
