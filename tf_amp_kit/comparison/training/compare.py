"""The one call that trains a model in several precisions and judges what comes of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final, TypeGuard

import keras

from tf_amp_kit.comparison.training.candidates import parse_candidates
from tf_amp_kit.comparison.training.comparison import Comparison
from tf_amp_kit.comparison.training.judging import FEWEST_SEEDS
from tf_amp_kit.comparison.training.record.report import ComparisonReport
from tf_amp_kit.comparison.training.running.builds import Builder
from tf_amp_kit.comparison.training.running.folder import Folder
from tf_amp_kit.comparison.training.running.isolation import check_sendable
from tf_amp_kit.comparison.training.running.progress import Progress
from tf_amp_kit.comparison.training.running.run import Schedule
from tf_amp_kit.comparison.training.running.sources import Source
from tf_amp_kit.comparison.training.setup import Setup
from tf_amp_kit.data import DEFAULT_BATCH_SIZE
from tf_amp_kit.errors import InputsError, PrecisionError

__all__ = ["compare_precisions"]

_DEFAULT_PRECISIONS: Final = ("fp32", "bf16", "fp16")

# A hundredth of what was learned: more than rounding costs, less than a choice of seeds.
_DEFAULT_TOLERANCE: Final = 0.01

# NumPy's limit, with room for seeds of our own.
_LARGEST_SEED: Final = 2**31

# How often the validation data are looked at, after the first time.
_NUM_EVALUATIONS: Final = 10


def compare_precisions(
    build_fn: Callable[[], keras.Model],
    train_data: Any,
    validation_data: Any = None,
    *,
    precisions: Sequence[Any] = _DEFAULT_PRECISIONS,
    steps: int | None = None,
    epochs: int | None = None,
    seeds: int | Sequence[int] = 1,
    tolerance: float = _DEFAULT_TOLERANCE,
    pin: bool = True,
    gradient_steps: Sequence[int] | None = None,
    batch_size: int | None = DEFAULT_BATCH_SIZE,
    time_steps: bool = True,
    jit: bool = True,
    isolate: bool = False,
    resume: str | os.PathLike[str] | None = None,
    verbose: int = 1,
) -> ComparisonReport:
    """Trains a model in several precisions from the same weights on the same batches.

    Use it before half precision goes into production: it answers whether your model loses
    quality, what it gains in speed and memory on this machine, and what to train with.

    Quality. float32 runs with several seeds (at least three, whatever `seeds` says), and
    what its results differ by is the measure: a mean over n runs may differ from float32
    by `t s sqrt(2 / n)` without meaning anything, with the standard deviation s between
    the float32 runs and Student's t at the 95 % level for as many of them (for several
    metrics, all together). Each run in another precision starts from the weights of
    float32 with the same seed and gets the same batches. `"worse"` is what loses more than
    that, and more than `tolerance`; `"undecided"` is what float32 itself cannot decide:
    too few steps, nothing learned, or seeds that differ by more than a tenth of what was
    learned. It is about the mean of the last three of ten evaluations on the validation
    data, in the loss and all compiled metrics whose better direction Keras knows; without
    validation data, about the mean loss of the last tenth of the steps. A run that raises,
    or whose loss stays NaN, is worse.

    Speed. Whole train steps on one batch are timed in turns, never epochs of `fit`, for
    which the models of all precisions are there at one time. Memory is estimated, and
    measured with `isolate`.

    What takes no part: callbacks, `class_weight`, and a `fit` of the model's own; steps
    are made by `train_on_batch`.

    What repeats: with the same seed, a run repeats bit for bit where TensorFlow's
    operations do. The first steps of each precision are made twice, and a note tells
    where they did not; `tf.config.experimental.enable_op_determinism()` helps there.

    Args:
        build_fn: Takes no arguments and returns a compiled model. It is called for every
            run, under `amp_scope` of the precision, after everything random was seeded.
        train_data: `(x, y[, sample_weight])` as arrays or tensors, a dataset or a Keras
            `PyDataset` of batches, or a function without arguments that returns one.
            Arrays are shuffled anew for each epoch, as in `fit`, and by each seed
            otherwise. Datasets have to give the same batches each time, and so all seeds
            see one order.
        validation_data: Likewise, not shuffled.
        precisions: What to compare: names as `enable_amp` takes (`"bf16"`), with a level
            behind a colon (`"fp16:O2"`), a level alone (`"O2"`, in the half precision that
            suits the machine), an `AmpState`, precision plans or their files. float32 is
            always there; named twice, the second one is a control with other seeds.
        steps: How many steps to train.
        epochs: How many epochs to train, instead; 1 without `steps`.
        seeds: How many seeds each precision runs with, or which.
        tolerance: The loss of quality that is accepted in any case, as a share (0 to 1) of
            what float32 learned after the first tenth of its steps: those often do no more
            than to find the size of the targets. Where that is less than the measure's
            own value at the end, it is a share of the latter.
        pin: Whether `pin_float32` keeps in float32 what each level says, as users of
            half precision should. Plans are always applied.
        gradient_steps: After how many steps of the float32 run gradients are compared, as
            by `compare_gradients`; None for the start, the middle and the end.
        batch_size: How many samples of arrays are a batch; None for all of them.
        time_steps: Whether to time train steps.
        jit: Whether to time them with `jit_compile=True`, too.
        isolate: Whether each run has a process of its own, for honest memory and no traces
            of the others. Functions have to be importable from a module then, and a
            script needs its `if __name__ == "__main__":`.
        resume: A folder that keeps runs, finished or not; they are not made again when the
            call is repeated with the same folder, after an interruption or with more
            seeds or precisions.
        verbose: 1 tells on standard error how far it is, and prints the report; 2 only
            tells how far it is; 0 is silent.

    Returns:
        A `ComparisonReport`. After Ctrl-C, what there is by then: unfinished runs say
        `"interrupted"`, and their precision is undecided.

    Raises:
        ModelError: If the builder returns no compiled Keras 3 model, the same one or the
            same optimizer each time, or other weights each time; if it does not compute in
            the precision that it is called under, or is made for several replicas.
        InputsError: If the data cannot be read, are other ones the second time, or never
            end; if float32 itself comes to a loss that is not finite; if the folder holds
            another comparison; or if a number is out of its range.
        PrecisionError: If a precision is unknown or named twice, or `tolerance` no share.
        PinError: If a plan is of another model.
        ProcessDiedError: If the process of a float32 run ended without an answer.
        PlanError: If a file holds no plan.
        Exception: Whatever the builder and the model raise in float32.

    Example:

    >>> import numpy as np
    >>> def build_model():
    ...     model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    ...     model.compile(keras.optimizers.SGD(0.1), "mse")
    ...     return model
    >>> x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
    >>> report = compare_precisions(
    ...     build_model,
    ...     (x, x @ np.ones((4, 1), "float32")),
    ...     precisions=["bf16"],
    ...     epochs=10,
    ...     time_steps=False,
    ...     verbose=0,
    ... )
    >>> report.result("bfloat16").verdict.outcome
    'equal'
    """
    candidates = parse_candidates(precisions)
    chosen_seeds = _parsed_seeds(seeds)
    _check_share("tolerance", tolerance)
    train = Source(train_data, batch_size)
    validation = None
    if validation_data is not None:
        validation = Source(validation_data, batch_size, "validation_data")
    if isolate:
        check_sendable(build_fn=build_fn, train_data=train_data, validation_data=validation_data)
    num_steps = _parsed_steps(steps, epochs, train)
    with tempfile.TemporaryDirectory() as temporary:
        setup = Setup(
            candidates=candidates,
            seeds=chosen_seeds,
            float32_seeds=_at_least(FEWEST_SEEDS, chosen_seeds),
            builder=Builder(build_fn, pin),
            train=train,
            validation=validation,
            schedule=_schedule(num_steps, gradient_steps),
            tolerance=float(tolerance),
            folder=Folder(Path(temporary if resume is None else resume)),
            is_resumable=resume is not None,
            is_isolated=isolate,
            progress=Progress(num_steps, is_shown=bool(verbose)),
        )
        report = Comparison(setup).make(time_steps=time_steps, jit=jit)
    if verbose == 1:
        print(report)
    return report


def _parsed_seeds(seeds: Any) -> tuple[int, ...]:
    if _is_whole(seeds, 1):
        return tuple(range(seeds))
    is_list = isinstance(seeds, Sequence) and not isinstance(seeds, str) and len(seeds) > 0
    if (
        is_list
        and all(_is_whole(one, 0) and one < _LARGEST_SEED for one in seeds)
        and len(set(seeds)) == len(seeds)
    ):
        return tuple(int(one) for one in seeds)
    raise InputsError(
        "Expected how many seeds, from 1 up, or a list of different whole numbers from 0 to 2**31. "
        f"Received: seeds={seeds!r}."
    )


def _at_least(count: int, seeds: tuple[int, ...]) -> tuple[int, ...]:
    """Adds seeds until there are enough to tell a spread."""
    start = max(seeds) + 1
    return (*seeds, *range(start, start + max(0, count - len(seeds))))


def _parsed_steps(steps: Any, epochs: Any, train: Source) -> int:
    if steps is not None and epochs is not None:
        raise InputsError(
            f"Expected `steps` or `epochs`. Received: steps={steps!r} and epochs={epochs!r}."
        )
    name, value = ("epochs", 1 if epochs is None else epochs) if steps is None else ("steps", steps)
    if not _is_whole(value, 1):
        raise InputsError(
            f"Expected a whole number of {name} from 1 up. Received: {name}={value!r}."
        )
    return value if name == "steps" else value * train.num_batches()


def _schedule(num_steps: int, gradient_steps: Any) -> Schedule:
    points = (0, num_steps // 2, num_steps) if gradient_steps is None else gradient_steps
    is_list = isinstance(points, Sequence) and not isinstance(points, str)
    if not is_list or not all(_is_whole(one, 0) and one <= num_steps for one in points):
        raise InputsError(
            f"Expected whole numbers of steps from 0 to {num_steps}. "
            f"Received: gradient_steps={gradient_steps!r}."
        )
    evaluated = {num_steps * one // _NUM_EVALUATIONS for one in range(_NUM_EVALUATIONS + 1)}
    return Schedule(
        num_steps,
        evaluated_at=tuple(sorted(evaluated)),
        kept_at=tuple(sorted({0, num_steps, *points})),
        compared_at=tuple(sorted(set(points))),
    )


def _is_whole(value: Any, low: int) -> TypeGuard[int]:
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    return is_whole and int(value) >= low


def _check_share(name: str, value: Any) -> None:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 <= float(value) <= 1:
        raise PrecisionError(f"Expected a number from 0 to 1. Received: {name}={value!r}.")
