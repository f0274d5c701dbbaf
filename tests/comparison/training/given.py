"""Small models and runs that the tests of training share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers

from tf_amp_kit.comparison.training.candidates import Candidate, parse_candidates
from tf_amp_kit.comparison.training.record.parts import TrainingRun
from tf_amp_kit.comparison.training.running.builds import Builder
from tf_amp_kit.comparison.training.running.folder import Folder
from tf_amp_kit.comparison.training.running.progress import Progress
from tf_amp_kit.comparison.training.running.run import Run, Schedule
from tf_amp_kit.comparison.training.running.sources import Source

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(40, 6)).astype("float32")
Y = (X @ _RNG.normal(size=(6, 2))).astype("float32")
SEED = 5


def seed_all(seed: int) -> None:
    """Seeds all sequences, and Keras's own generator, which Keras 3.10 leaves as it is."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(seed)


def dense(optimizer: Any = None, loss: Any = "mse", **options: Any) -> keras.Model:
    """Two dense layers, the smallest net that trains."""
    stack = [layers.Dense(8, "relu", name="body"), layers.Dense(2, name="head")]
    model = keras.Sequential([keras.Input((6,)), *stack], name="net")
    model.compile(optimizer or keras.optimizers.SGD(0.05), loss, **options)
    return model


def stateful(optimizer: Any = None) -> keras.Model:
    """A net with all the state that training has: moving statistics, seeds, momentum."""
    stack = [
        layers.Dense(8, "relu", name="body"),
        layers.BatchNormalization(name="norm"),
        layers.Dropout(0.3, name="dropout"),
        layers.Dense(2, name="head"),
    ]
    model = keras.Sequential([keras.Input((6,)), *stack], name="net")
    model.compile(optimizer or keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def candidate(precision: str) -> Candidate:
    """The candidate that a user names; `"fp32 again"` is a control."""
    if precision == "fp32 again":
        return parse_candidates(["fp32", "fp32"])[1]
    return parse_candidates([precision])[-1]


def run_of(
    build_fn: Callable[[], keras.Model],
    precision: str,
    path: Path,
    *,
    num_steps: int = 6,
    data: Any = (X, Y),
    batch_size: int | None = 8,
    validation: Any = None,
    evaluated_at: Sequence[int] = (),
    kept_at: Sequence[int] | None = None,
    seed: int = SEED,
    is_resumable: bool = False,
    tries_again: bool = False,
    progress: Progress | None = None,
) -> Run:
    """A run as a comparison makes it."""
    path.mkdir(parents=True, exist_ok=True)
    return Run(
        builder=Builder(build_fn, pin=True),
        candidate=candidate(precision),
        seed=seed,
        train=Source(data, batch_size),
        validation=None if validation is None else Source(validation, batch_size, "validation"),
        schedule=Schedule(
            num_steps, tuple(evaluated_at), (0, num_steps) if kept_at is None else tuple(kept_at)
        ),
        folder=Folder(path),
        is_resumable=is_resumable,
        tries_again=tries_again,
        progress=progress or Progress(num_steps, is_shown=False),
    )


def made(
    build_fn: Callable[[], keras.Model], precision: str, path: Path, **options: Any
) -> TrainingRun:
    """The record of a run; one in half precision follows its float32 run."""
    if precision not in ("fp32", "fp32 again"):
        run_of(build_fn, "fp32", path, **{**options, "tries_again": False}).make()
    return run_of(build_fn, precision, path, **options).make()
