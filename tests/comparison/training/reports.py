"""Comparisons of precisions made by hand: their records take any numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tests.reporting.records import comparison_of
from tf_amp_kit.comparison.timing import Quartiles
from tf_amp_kit.comparison.training.record.parts import (
    Difference,
    Drift,
    Evaluation,
    GradientPoint,
    MemoryUse,
    PrecisionResult,
    Recommendation,
    StepSpeed,
    TrainingRun,
    Verdict,
)
from tf_amp_kit.comparison.training.record.report import ComparisonReport
from tf_amp_kit.inspection.numerics.pairs import GradientComparison

MIB = 2**20


def speed(milliseconds: float, compile_seconds: float = 0.5) -> StepSpeed:
    """A step of 32 samples whose quartiles are 10 % off."""
    seconds = milliseconds / 1000
    quartiles = Quartiles(0.9 * seconds, seconds, 1.1 * seconds)
    return StepSpeed(quartiles, compile_seconds, 32 / seconds)


def _gradients(wide: Sequence[float], half: Sequence[float]) -> GradientComparison:
    return comparison_of({"w": (wide, half)}, precision="bfloat16")


FLOAT32 = PrecisionResult(
    "float32", "float32", "O0", 0, None, (),
    speed=speed(20), jit_speed=speed(16, 12), memory=MemoryUse(100 * MIB, 512, 120 * MIB),
)  # fmt: skip
BFLOAT16 = PrecisionResult(
    "bfloat16", "bfloat16", "O1", 2,
    Verdict("equal", ("Worse by 0.3 % of what float32 learned, within its own spread.",), 0.003),
    (
        Difference("val_loss", 0.5, 0.0125, 0.503, 0.003, 0.025, 0.003),
        Difference("val_accuracy", 0.9, 0.01, 0.91, -0.01, 0.02, -0.025),
    ),
    gradients=(
        GradientPoint(0, _gradients([3, 4, 2**-20], [3, 4, 2**-20])),
        GradientPoint(4, _gradients([3, 4, 2**-20], [3, 0, 0])),
    ),
    speed=speed(12.5), jit_speed=speed(8, 10), memory=MemoryUse(62 * MIB, 800, 90 * MIB),
)  # fmt: skip
FLOAT16 = PrecisionResult(
    "float16 O2", "float16", "O2", 1,
    Verdict("worse", ("It gave no finite loss with seed 1.",), math.inf),
    (
        Difference("val_loss", 0.5, 0.0125, math.nan, math.inf, 0.025, math.inf),
        Difference("val_accuracy", 0.9, 0.01, 0.7, 0.2, 0.02, 0.5),
    ),
    speed=speed(40),
    jit_speed=StepSpeed(None, failure="XLA cannot compile this model."),
    memory=MemoryUse(62 * MIB, 800, None),
)  # fmt: skip


def run_of(name: str, seed: int, losses: Sequence[float], **changes: Any) -> TrainingRun:
    return TrainingRun(name, seed, tuple(losses), **changes)


def evaluation(step: int, loss: float, accuracy: float) -> Evaluation:
    return Evaluation(step, {"loss": loss, "accuracy": accuracy})


RUNS = (
    run_of("float32", 0, (4, 3, 2, 1), evaluations=(evaluation(4, 0.5, 0.9),)),
    run_of("float32", 1, (4, 3, 2, 2), evaluations=(evaluation(4, 0.5, 0.9),)),
    run_of("float32", 2, (4, 3, 2, 3), evaluations=(evaluation(4, 0.5, 0.9),)),
    run_of(
        "bfloat16", 0, (4, 3, 2, 1),
        evaluations=(evaluation(4, 0.5, 0.9),), drift=(Drift(4, 0.001, 0.02),),
    ),
    run_of(
        "bfloat16", 1, (4, 3, 2, 2),
        evaluations=(evaluation(4, 0.506, 0.92),), drift=(Drift(4, 0.0015, 0.03),),
    ),
    run_of(
        "float16 O2", 0, (math.nan, 4, 3, 2), skipped_steps=1, loss_scale=16384,
        evaluations=(evaluation(4, 0.6, 0.7),), drift=(Drift(4, 0.01, 0.5),),
    ),
    run_of(
        "float16 O2", 1, (math.nan, 4), skipped_steps=1, loss_scale=16384,
        failure="The loss was NaN.",
    ),
)  # fmt: skip


def report_of(**changes: Any) -> ComparisonReport:
    """A report with three precisions, two seeds and a third one of float32, and every table."""
    fields: dict[str, Any] = {
        "model_name": "net",
        "machine": "2 CPUs (TensorFlow 2.21.0, Keras 3.12.0)",
        "batch_size": 32,
        "num_steps": 4,
        "seeds": (0, 1),
        "tolerance": 0.01,
        "measure": "val_loss",
        "results": (FLOAT32, BFLOAT16, FLOAT16),
        "runs": RUNS,
        "recommendation": Recommendation(
            "bfloat16",
            True,
            800,
            ("It trains as well as float32, and a step takes half the time.",),
        ),
        "seconds": 12.34,
        "notes": ("Something was seen.",),
    }
    return ComparisonReport(**{**fields, **changes})


def small_report(**changes: Any) -> ComparisonReport:
    """A report on one seed in which nothing but the training loss was measured."""
    loss = Difference("loss", 0.5, 0.01, 0.503, 0.003, 0.05, 0.2)
    undecided = Verdict("undecided", ("4 steps are too few.",), 0.2)
    fields: dict[str, Any] = {
        "seeds": (0,),
        "measure": "loss",
        "results": (
            PrecisionResult("float32", "float32", "O0", 0, None, ()),
            PrecisionResult("bfloat16", "bfloat16", "O1", 0, undecided, (loss,)),
        ),
        "runs": (run_of("float32", 0, (4, 3, 2, 1)), run_of("bfloat16", 0, (4, 3, 2, 1))),
        "recommendation": Recommendation("float32", None, None, ("Nothing was decided.",)),
        "notes": (),
    }
    return report_of(**{**fields, **changes})
