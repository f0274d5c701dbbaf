"""What a comparison of precisions consists of: runs, judgements, speed and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tf_amp_kit.comparison.timing import Quartiles
from tf_amp_kit.inspection.numerics.pairs import GradientComparison

__all__ = [
    "BETTER",
    "EQUAL",
    "UNDECIDED",
    "WORSE",
    "Difference",
    "Drift",
    "Evaluation",
    "GradientPoint",
    "MemoryUse",
    "PrecisionResult",
    "Recommendation",
    "StepSpeed",
    "TrainingRun",
    "Verdict",
]

#: What a verdict may be.
EQUAL: Final = "equal"
WORSE: Final = "worse"
BETTER: Final = "better"
UNDECIDED: Final = "undecided"


@dataclass(frozen=True)
class Evaluation:
    """The metrics on the validation data at one point of a run.

    Attributes:
        step: After how many steps.
        values: The value of each metric by name, `"loss"` among them.
    """

    step: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Drift:
    """How far the weights of a run are from those of the float32 run with the same seed.

    Attributes:
        step: After how many steps.
        relative: The norm of the difference over the norm of the float32 weights.
        of_the_way: The norm of the difference over that of the way which the float32
            weights went from the start; NaN if they did not move.
    """

    step: int
    relative: float
    of_the_way: float


@dataclass(frozen=True)
class TrainingRun:
    """One training: of one precision, with one seed.

    Attributes:
        name: The name of the precision in the comparison.
        seed: What the weights, the order of the samples and dropout come from.
        losses: The loss of each step, on its batch before the update; NaN for a step
            that was skipped and kept out of the mean.
        evaluations: The metrics on the validation data, in the order of steps.
        skipped_steps: How many steps the optimizer skipped; None if nobody counted them.
        loss_scale: The loss scale at the end; 1 without loss scaling.
        drift: How far the weights went apart; nothing for the float32 run.
        seconds: How long the run took, evaluations included.
        peak_bytes: The largest resident set of the run's own process, or what TensorFlow
            allocated at most on the first GPU; None for a run in this process, or if the
            system does not tell.
        base_bytes: The resident set of that process before the model was built.
        repeats_exactly: Whether the first steps, done again, gave the same losses bit for
            bit; None if that was not tried.
        failure: Why it ended before its last step; empty if it did not.
    """

    name: str
    seed: int
    losses: tuple[float, ...]
    evaluations: tuple[Evaluation, ...] = ()
    skipped_steps: int | None = 0
    loss_scale: float = 1.0
    drift: tuple[Drift, ...] = ()
    seconds: float = 0.0
    peak_bytes: int | None = None
    base_bytes: int | None = None
    repeats_exactly: bool | None = None
    failure: str = ""


@dataclass(frozen=True)
class Difference:
    """One measure of quality, of a precision next to float32.

    Attributes:
        measure: `"loss"` for the training loss, `"val_loss"`, `"val_accuracy"` and so on.
        reference: The mean over the float32 runs with the same seeds, at their end.
        spread: The standard deviation between the float32 runs of different seeds, at
            least the standard error that the end of one run has.
        value: The mean over the runs in this precision.
        worsening: By how much it is worse than float32 with the same seeds, positive for
            worse; for a metric of unknown direction the plain difference.
        bound: What float32 itself differs by between seeds, at the 95 % level for as many
            runs and measures as were compared.
        share: The worsening as a share of what float32 learned; NaN if it learned nothing.
        is_judged: Whether it counts for the verdict.
        learned: What float32 gained between its start and its end; negative if it lost.
        learned_late: What it gained after the first tenth of its steps.
    """

    measure: str
    reference: float
    spread: float
    value: float
    worsening: float
    bound: float
    share: float
    is_judged: bool = True
    learned: float = math.nan
    learned_late: float = math.nan

    def accepted(self, tolerance: float) -> float:
        """Returns the worsening that is accepted in any case, in the measure's units.

        Where all was learned in the first steps, it is a share of the measure itself.

        Args:
            tolerance: The share, 0 to 1, of what float32 learned.
        """
        return tolerance * max(0.0, min(self.learned, max(self.learned_late, abs(self.reference))))

    def resolution(self, tolerance: float) -> float:
        """Returns up to which worsening a precision counts as equal, in the measure's units.

        Args:
            tolerance: As in `accepted`.

        Example:

        >>> one = Difference("loss", 0.5, 0.01, 0.503, 0.003, 0.05, 0.002, True, 2.0, 1.0)
        >>> one.resolution(0.01), one.resolution(0.1)
        (0.05, 0.1)
        """
        return max(self.bound, self.accepted(tolerance))


@dataclass(frozen=True)
class Verdict:
    """Whether a precision trains the model as well as float32 does.

    Attributes:
        outcome: `"equal"`, `"worse"`, `"better"` or `"undecided"`.
        reasons: Why, in sentences.
        share: By how much it is worse, as a share of what float32 learned; infinite if it
            gave no finite loss.
    """

    outcome: str
    reasons: tuple[str, ...]
    share: float


@dataclass(frozen=True)
class GradientPoint:
    """The weight gradients of one batch in half precision next to float32.

    Attributes:
        step: After how many steps of the float32 run the weights are taken.
        comparison: What `compare_gradients` returned there.
    """

    step: int
    comparison: GradientComparison = field(repr=False)


@dataclass(frozen=True)
class StepSpeed:
    """How long whole train steps take.

    Attributes:
        seconds: The quartiles of the steps, timed in turns with the other precisions;
            None if they could not be run.
        compile_seconds: How long the first step took longer than the median: tracing, and
            compiling if there is any.
        examples_per_second: Samples per second at the median.
        failure: Why there are no times; empty if there are.
    """

    seconds: Quartiles | None
    compile_seconds: float = 0.0
    examples_per_second: float = 0.0
    failure: str = ""


@dataclass(frozen=True)
class MemoryUse:
    """The memory of training.

    Attributes:
        estimated_bytes: The peak that `estimate_memory` gives; None if it could not.
        largest_batch_size: The largest batch that fits into the memory that was free, by
            the line through that peak and the one of a batch 16 times as large; None if
            nobody knows how much is free.
        measured_bytes: The largest rise of the resident set in a process of its own, over
            what it was before the model was built; None if it was not measured.
    """

    estimated_bytes: int | None = None
    largest_batch_size: int | None = None
    measured_bytes: int | None = None


@dataclass(frozen=True)
class PrecisionResult:
    """What one precision came to.

    Attributes:
        name: `"float32"`, `"bfloat16"`, `"float16 O2"`, `"bfloat16 plan"`: how the other
            records call it.
        precision: What it computes in: `"float32"`, `"bfloat16"` or `"float16"`.
        level: `"O0"` to `"O3"`.
        num_pins: How many layers were pinned in float32.
        verdict: None for float32, which the others are compared with.
        differences: One per measure of quality.
        gradients: The gradients at some steps; nothing for float32.
        speed: The train steps without `jit_compile`; None if they were not timed.
        jit_speed: Those with it; None if they were not timed.
        memory: The memory of training.
    """

    name: str
    precision: str
    level: str
    num_pins: int
    verdict: Verdict | None
    differences: tuple[Difference, ...]
    gradients: tuple[GradientPoint, ...] = ()
    speed: StepSpeed | None = None
    jit_speed: StepSpeed | None = None
    memory: MemoryUse = MemoryUse()


@dataclass(frozen=True)
class Recommendation:
    """What to train this model with on this machine.

    Attributes:
        name: The name of the precision in the comparison.
        jit_compile: Whether to compile with XLA; None if that was not timed.
        largest_batch_size: The largest batch that fits, by the estimate; None if unknown.
        reasons: Why, in sentences.
    """

    name: str
    jit_compile: bool | None
    largest_batch_size: int | None
    reasons: tuple[str, ...]
