"""What a model computed on some batches, and how far that is from float32."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tf_amp_kit.comparison.planning.record.parts import BatchDifference, Errors
from tf_amp_kit.comparison.planning.running.watch import Extremes

__all__ = ["Results", "difference_of_batches", "errors_between", "norm"]

_Arrays = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Results:
    """What one batch gave.

    Attributes:
        outputs: The float outputs by key.
        loss: The loss; None if it was not computed.
        gradients: The gradients by the weight's path, the loss scale taken out; empty if
            they were not computed.
        extremes: What was seen of the units, in the order of their calls.
    """

    outputs: _Arrays
    loss: float | None
    gradients: _Arrays
    extremes: tuple[Extremes, ...]

    @property
    def is_finite(self) -> bool:
        """Whether there is no NaN, and no infinite loss or gradient."""
        numbers = [one for one in self.outputs.values() if np.isnan(one).any()]
        loss_is_fine = self.loss is None or math.isfinite(self.loss)
        return not numbers and loss_is_fine and _are_finite(self.gradients.values())


def errors_between(wide: Sequence[Results], half: Sequence[Results]) -> Errors:
    """Compares the results of the same batches in float32 and with half precision.

    Args:
        wide: Those of float32.
        half: The others, in the same order.

    Returns:
        The errors over all batches. What neither side has is None.
    """
    keys = wide[0].outputs
    outputs = [
        _relative([one.outputs[key] for one in wide], [one.outputs[key] for one in half])
        for key in keys
    ]
    losses = [(one.loss, other.loss) for one, other in zip(wide, half, strict=True)]
    pairs = [pair for pair in zip(wide, half, strict=True) if all(one.gradients for one in pair)]
    flat = [(_flat(one), _flat(other)) for one, other in pairs]
    return Errors(
        output=math.hypot(*outputs),
        loss=_loss_error(losses),
        gradient=_relative(*zip(*flat, strict=True)) if flat else None,
        gradient_cosine=_cosine(flat) if flat else None,
    )


def difference_of_batches(first: Results, second: Results) -> BatchDifference | None:
    """Compares two batches in float32; None without a loss and gradients."""
    if first.loss is None or second.loss is None or not first.gradients:
        return None
    one, other = _flat(first), _flat(second)
    loss = _loss_error([(first.loss, second.loss)])
    return BatchDifference(
        loss=math.inf if loss is None else loss,
        gradient=_relative([one], [other]),
        gradient_cosine=_cosine([(one, other)]),
    )


def norm(arrays: Iterable[NDArray[np.float32]]) -> float:
    """Returns the norm of all finite elements together."""
    return math.hypot(*(_finite_norm(one) for one in arrays))


def _finite_norm(array: NDArray[np.float32]) -> float:
    wide = array.astype(np.float64)
    return float(np.linalg.norm(np.where(np.isfinite(wide), wide, 0.0)))


def _relative(wide: Sequence[NDArray[np.float32]], half: Sequence[NDArray[np.float32]]) -> float:
    with np.errstate(invalid="ignore"):
        # Infinities that are there in float32 too are no error.
        differences = [
            np.where(one == other, 0.0, one.astype(np.float64) - other)
            for one, other in zip(wide, half, strict=True)
        ]
    if not _are_finite(differences):
        return math.inf
    distance, length = norm(differences), norm(wide)
    if not distance:
        return 0.0
    return distance / length if length else math.inf


def _are_finite(arrays: Iterable[NDArray[np.floating]]) -> bool:
    return all(bool(np.isfinite(one).all()) for one in arrays)


def _loss_error(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    if not known:
        return None
    distance = sum(abs(one - other) for one, other in known)
    if not math.isfinite(distance):
        return math.inf
    length = sum(abs(one) for one, _ in known)
    return distance / length if length else (math.inf if distance else 0.0)


def _cosine(pairs: Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]]) -> float:
    if not all(_are_finite(pair) for pair in pairs):
        return math.nan
    lengths = [norm(side) for side in zip(*pairs, strict=True)]
    product = sum(float(np.dot(*_float64(pair))) for pair in pairs)
    return product / math.prod(lengths) if all(lengths) else math.nan


def _float64(pair: Sequence[NDArray[np.float32]]) -> Iterator[NDArray[np.float64]]:
    return (one.astype(np.float64) for one in pair)


def _flat(results: Results) -> NDArray[np.float32]:
    parts = [np.ravel(results.gradients[path]) for path in sorted(results.gradients)]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)
