"""The gradients of half precision next to float32, at points of the float32 run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tf_amp_kit.comparison.training.candidates import FLOAT32, Candidate
from tf_amp_kit.comparison.training.record.parts import GradientPoint
from tf_amp_kit.comparison.training.running.builds import Builder
from tf_amp_kit.comparison.training.running.folder import Folder
from tf_amp_kit.comparison.training.running.sources import Source
from tf_amp_kit.inspection.numerics.gradients import compare_gradients

__all__ = ["gradients_along"]


def gradients_along(
    builder: Builder,
    candidate: Candidate,
    train: Source,
    folder: Folder,
    seed: int,
    steps: Sequence[int],
) -> tuple[GradientPoint, ...]:
    """Compares gradients with the weights and on the batches that float32 had.

    Args:
        builder: Makes the model.
        candidate: A half precision.
        train: The batches.
        folder: Where the float32 run kept its weights.
        seed: The seed of that run.
        steps: After how many of its steps.

    Returns:
        One point per step whose weights were kept.
    """
    points = []
    train = train.opened()
    kept = {step for step in steps if folder.has_weights(FLOAT32, seed, step)}
    batches = itertools.islice(train.steps(seed), max(kept, default=0) + 1)
    first = next(train.steps(seed))
    with builder.model(candidate, seed, first, folder.weights(FLOAT32, seed, 0)) as model:
        for step, batch in enumerate(batches):
            if step not in kept:
                continue
            model.set_weights(folder.weights(FLOAT32, seed, step))
            comparison = compare_gradients(
                model,
                tuple(batch),
                precision=candidate.state.precision,
                batch_size=None,
                verbose=0,
            )
            points.append(GradientPoint(step, comparison))
    return tuple(points)
