"""Runs against loops that are written by hand: the same numbers, bit for bit."""

from __future__ import annotations

import functools
import math
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tf_amp_kit as amp
from tests.comparison.training.given import SEED, X, Y, dense, made, run_of, seed_all, stateful
from tf_amp_kit.comparison.training.record.parts import TrainingRun
from tf_amp_kit.comparison.training.running import loop
from tf_amp_kit.comparison.training.running.folder import Folder
from tf_amp_kit.comparison.training.running.progress import Progress
from tf_amp_kit.errors import InputsError, ModelError

slow = pytest.mark.slow


def scaled() -> keras.Model:
    """With a loss scale that is too large for float16 at first."""
    inner = keras.optimizers.Adam(0.01)
    return stateful(amp.LossScaleOptimizer(inner, initial_scale=2.0**24, min_scale=1.0))


def scaled_by_keras() -> keras.Model:
    inner = keras.optimizers.SGD(0.05)
    return dense(keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**24))


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.head = (
            layers.Dense(8, "relu"), layers.BatchNormalization(), layers.Dense(2),
        )  # fmt: skip

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.head(self.norm(self.body(inputs), training=training))


def subclassed() -> keras.Model:
    model = Subclassed()
    model.compile("adam", "mse")
    return model


BUILDERS = {
    "dense": dense,
    "stateful": stateful,
    "scaled": scaled,
    "by Keras": scaled_by_keras,
    "subclassed": subclassed,
}


def batches(num_steps: int, size: int = 8) -> Iterator[tuple[Any, Any]]:
    """Batches shuffled as the documentation says, epoch after epoch."""
    per_epoch = len(X) // size
    for step in range(num_steps):
        epoch, number = divmod(step, per_epoch)
        order = np.random.default_rng((SEED, epoch)).permutation(len(X))
        rows = order[number * size : (number + 1) * size]
        yield tf.constant(X[rows]), tf.constant(Y[rows])


class ByHand:
    """A loop of `train_on_batch`, as a user writes it."""

    def __init__(self, build_fn: Callable[[], keras.Model], precision: str, steps: int = 6) -> None:
        name, _, level = precision.partition(":")
        keras.utils.set_random_seed(SEED)
        with amp.amp_scope("fp32"):
            start = build_fn().get_weights()
        keras.utils.set_random_seed(SEED)
        with amp.amp_scope(name, level=level or "O1"):
            model = build_fn()
            model.set_weights(start)
            if name != "fp32" and level != "O3":
                amp.pin_float32(model)
            optimizer = model.optimizer
            optimizer.build(model.trainable_variables)
            if isinstance(optimizer, amp.LossScaleOptimizer):
                optimizer.protect(model)
            self.losses, self.skipped = [], []
            for x, y in batches(steps):
                before = model.get_weights()
                model.reset_metrics()  # as later Keras does
                loss = model.train_on_batch(x, y, return_dict=True)["loss"]
                unchanged = np.array_equal(model.trainable_weights[0].numpy(), before[0])
                # Adam in pure bfloat16 moves nothing either: there, 0.999 is 1.
                may_skip = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
                self.skipped.append(unchanged and may_skip)
                self.losses.append(float(loss))
            self.start, self.weights, self.model = start, model.get_weights(), model


@functools.cache
def by_hand(name: str, precision: str, steps: int = 6) -> ByHand:
    return ByHand(BUILDERS[name], precision, steps)


# ------------------------------------------------------------------------------- losses


@pytest.mark.filterwarnings("ignore::tf_amp_kit.errors.PureHalfWarning")
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("dense", "fp32"),
        ("dense", "bf16"),
        ("stateful", "bf16"),
        ("stateful", "fp16"),
        pytest.param("stateful", "fp32", marks=slow),
        pytest.param("stateful", "fp16:O2", marks=slow),
        pytest.param("stateful", "bf16:O3", marks=slow),
    ],
)
def test_the_losses_are_those_of_a_loop_by_hand(name: str, precision: str, tmp_path: Path) -> None:
    hand = by_hand(name, precision)
    # A step that loss scaling skipped has no loss.
    expected = np.where(hand.skipped, math.nan, hand.losses)
    np.testing.assert_array_equal(made(BUILDERS[name], precision, tmp_path).losses, expected)


def test_the_losses_of_several_epochs_are_those_of_a_loop_by_hand(tmp_path: Path) -> None:
    record = made(stateful, "bf16", tmp_path, num_steps=12)
    assert record.losses == tuple(by_hand("stateful", "bf16", 12).losses)


def test_a_run_again_gives_the_same_losses(tmp_path: Path) -> None:
    record = made(stateful, "bf16", tmp_path, tries_again=True)
    assert record.repeats_exactly is True


def test_a_run_that_does_not_repeat_says_so(tmp_path: Path) -> None:
    drawn = np.random.default_rng(7)  # as an operation that adds up in another order

    class Noisy(layers.Layer):
        def call(self, inputs: Any) -> Any:
            noise = tf.numpy_function(lambda: np.float32(drawn.normal()), [], tf.float32)
            return inputs * (1 + tf.ensure_shape(noise, ()))

    def build() -> keras.Model:
        model = keras.Sequential([keras.Input((6,)), layers.Dense(2), Noisy()])
        model.compile("sgd", "mse")
        return model

    assert made(build, "fp32", tmp_path, tries_again=True).repeats_exactly is False


def test_whether_it_repeats_is_not_tried_unless_asked_for(tmp_path: Path) -> None:
    assert made(dense, "fp32", tmp_path).repeats_exactly is None


def test_trying_again_leaves_the_kept_weights_and_batches(tmp_path: Path) -> None:
    run = run_of(dense, "fp32", tmp_path, num_steps=12, tries_again=True)
    run.make()
    assert (len(run.folder.fingerprints(SEED)), run.folder.has_weights("float32", SEED, 12)) == (
        12,
        True,
    )


def test_a_control_starts_from_weights_of_its_own(tmp_path: Path) -> None:
    run_of(dense, "fp32", tmp_path).make()
    record = run_of(dense, "fp32 again", tmp_path, seed=SEED + 1).make()
    alone = run_of(dense, "fp32", tmp_path / "other", seed=SEED + 1)
    alone.folder.describe({})
    assert record.losses == alone.make().losses


def test_half_starts_from_the_weights_of_float32(tmp_path: Path) -> None:
    count = iter(range(9))

    def build() -> keras.Model:
        # Weights that no seed explains.
        model = dense()
        model.set_weights([one + 0.1 * next(count) for one in model.get_weights()])
        return model

    run = run_of(build, "fp32", tmp_path)
    first = run.make().losses[0]
    half = run_of(build, "bf16", tmp_path).make().losses[0]
    assert half == pytest.approx(first, rel=0.02)


# ------------------------------------------------------------------------ loss scaling


@pytest.mark.parametrize("name", ["scaled", "by Keras"])
def test_skipped_steps_are_counted_and_halve_the_scale(name: str, tmp_path: Path) -> None:
    count = sum(by_hand(name, "fp16", 20).skipped)
    record = made(BUILDERS[name], "fp16", tmp_path, num_steps=20)
    assert (record.skipped_steps, record.loss_scale) == (count, 2.0 ** (24 - count))


def test_accumulated_gradients_are_no_skipped_steps(tmp_path: Path) -> None:
    def build() -> keras.Model:
        inner = keras.optimizers.SGD(0.05, gradient_accumulation_steps=2)
        return dense(keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0))

    record = made(build, "fp16", tmp_path, num_steps=6)
    assert (record.failure, record.skipped_steps) == ("", 0)
    assert np.isfinite(record.losses).all()


def test_the_loss_of_a_skipped_step_is_nan_and_others_are_those_by_hand(tmp_path: Path) -> None:
    hand = by_hand("scaled", "fp16", 20)
    pairs = zip(hand.losses, hand.skipped, strict=True)
    expected = [math.nan if skipped else loss for loss, skipped in pairs]
    record = made(scaled, "fp16", tmp_path, num_steps=20)
    np.testing.assert_array_equal(record.losses, expected)


def test_without_loss_scaling_nothing_is_skipped(tmp_path: Path) -> None:
    record = made(dense, "bf16", tmp_path)
    assert (record.skipped_steps, record.loss_scale) == (0, 1.0)


# --------------------------------------------------------------------------- looking on


def test_the_validation_data_are_evaluated_at_their_steps(tmp_path: Path) -> None:
    options = {"validation": (X[:16], Y[:16]), "evaluated_at": (0, 3, 6)}
    record = made(stateful, "fp32", tmp_path, **options)
    assert [one.step for one in record.evaluations] == [0, 3, 6]


@pytest.mark.parametrize("form", ["arrays", "dataset", pytest.param("function", marks=slow)])
def test_evaluations_are_those_of_evaluate(form: str, tmp_path: Path) -> None:
    forms = {
        "arrays": (X[:20], Y[:20]),
        "dataset": tf.data.Dataset.from_tensor_slices((X[:20], Y[:20])).batch(8),
        "function": lambda: (X[:20], Y[:20]),
    }
    options = {"validation": forms[form], "evaluated_at": (6,)}
    record = made(stateful, "fp32", tmp_path, **options)
    model = by_hand("stateful", "fp32").model
    expected = model.evaluate(X[:20], Y[:20], batch_size=8, verbose=0, return_dict=True)
    assert record.evaluations[0].values == pytest.approx(expected)


def test_evaluating_changes_nothing_of_the_training(tmp_path: Path) -> None:
    plain = made(stateful, "fp32", tmp_path / "a", kept_at=())
    looked = made(
        stateful, "fp32", tmp_path / "b", validation=(X, Y), evaluated_at=range(7), kept_at=()
    )
    assert looked.losses == plain.losses


def test_the_weights_of_float32_are_kept_at_their_steps(tmp_path: Path) -> None:
    run = run_of(stateful, "fp32", tmp_path, kept_at=(0, 2, 6))
    run.make()
    there = [step for step in range(7) if run.folder.has_weights("float32", SEED, step)]
    assert there == [0, 2, 6]


def test_the_kept_weights_are_those_of_a_loop_by_hand(tmp_path: Path) -> None:
    run = run_of(stateful, "fp32", tmp_path)
    run.make()
    hand = by_hand("stateful", "fp32")
    for one, other in zip(run.folder.weights("float32", SEED, 6), hand.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_drift_is_the_distance_to_the_weights_of_float32(tmp_path: Path) -> None:
    record = made(dense, "bf16", tmp_path)
    half, full = by_hand("dense", "bf16"), by_hand("dense", "fp32")

    def norm(ones: Any, others: Any) -> float:
        pairs = zip(ones, others, strict=True)
        return math.sqrt(sum(float(np.sum((a.astype("float64") - b) ** 2)) for a, b in pairs))

    apart = norm(half.weights, full.weights)
    way, size = norm(full.weights, full.start), norm(full.weights, [0.0] * len(full.weights))
    (drift,) = record.drift
    assert (drift.step, drift.relative, drift.of_the_way) == pytest.approx(
        (6, apart / size, apart / way)
    )


def test_float32_has_no_drift(tmp_path: Path) -> None:
    assert made(dense, "fp32", tmp_path).drift == ()


# ---------------------------------------------------------------------- kinds of models


def of_two() -> keras.Model:
    one, two = keras.Input((6,), name="one"), keras.Input((2,), name="two")
    hidden = layers.Dense(8, "relu")(layers.Concatenate()([one, two]))
    outputs = {"a": layers.Dense(2, name="a")(hidden), "b": layers.Dense(1, name="b")(hidden)}
    model = keras.Model({"one": one, "two": two}, outputs)
    model.compile("sgd", {"a": "mse", "b": "mae"}, loss_weights={"a": 1.0, "b": 0.5})
    return model


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_models_with_several_inputs_and_outputs_are_trained(precision: str, tmp_path: Path) -> None:
    data = ({"one": X, "two": Y}, {"a": Y, "b": Y[:, :1]})
    record = made(of_two, precision, tmp_path, data=data, num_steps=30)
    assert record.losses[-1] < 0.8 * record.losses[0]


def test_sample_weights_weigh(tmp_path: Path) -> None:
    once = made(dense, "fp32", tmp_path / "a", data=(X, Y, np.ones(40, "float32")), num_steps=1)
    thrice = made(dense, "fp32", tmp_path / "b", data=(X, Y, np.full(40, 3.0)), num_steps=1)
    assert thrice.losses[0] == pytest.approx(3 * once.losses[0], rel=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_subclassed_models_are_trained(precision: str, tmp_path: Path) -> None:
    record = made(subclassed, precision, tmp_path)
    assert (len(record.losses), record.failure) == (6, "")


class Sequence(keras.utils.PyDataset):
    """The same samples in batches, always in the same order; reading one may be interrupted."""

    def __init__(self, pressed_at: int | None = None) -> None:
        super().__init__()
        self.pressed_at = pressed_at

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        if index == self.pressed_at:
            os.kill(os.getpid(), signal.SIGINT)
        rows = slice(index * 8, index * 8 + 8)
        return X[rows], Y[rows]


def test_every_form_of_data_trains_alike(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    forms = {"pydataset": Sequence(), "dataset": dataset, "function": lambda: dataset}
    losses = {made(dense, "fp32", tmp_path / name, data=one).losses for name, one in forms.items()}
    assert len(losses) == 1


# ----------------------------------------------------------------------------- mistakes


def test_other_batches_than_those_of_float32_are_refused_where_they_differ(
    tmp_path: Path,
) -> None:
    run_of(dense, "fp32", tmp_path, data=tf_batches(X)).make()
    changed = X.copy()
    changed[24] += 1  # the fourth batch
    with pytest.raises(InputsError, match="second time: batch 4 of train_data differs"):
        run_of(dense, "bf16", tmp_path, data=tf_batches(changed)).make()


def tf_batches(x: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((x, Y)).batch(8)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_of_float32_that_is_not_finite_is_refused(value: float, tmp_path: Path) -> None:
    targets = Y.copy()
    targets[16] = value  # the third batch
    data = tf.data.Dataset.from_tensor_slices((X, targets)).batch(8)
    message = f"The loss is {value} in float32 already, at step 3 with seed 5"
    with pytest.raises(InputsError, match=re.escape(message)):
        made(dense, "fp32", tmp_path, data=data)


class OnlyFloat32(layers.Layer):
    """Raises in half precision, where it is built or where it is run."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self.when = when

    def call(self, inputs: Any) -> Any:
        if self.compute_dtype != "float32":
            if self.when == "built":
                raise ValueError("Only float32.\nMore about it.")
            with tf.control_dependencies(
                [tf.debugging.assert_less(inputs, tf.cast(-9, inputs.dtype))]
            ):
                return tf.identity(inputs)
        return inputs


@pytest.mark.parametrize(
    ("when", "failure", "num_losses"),
    [("built", "ValueError: ", 0), ("run", "InvalidArgumentError: ", 0)],
)
def test_a_model_that_raises_in_half_has_failed(
    when: str, failure: str, num_losses: int, tmp_path: Path
) -> None:
    def build() -> keras.Model:
        stack = [layers.Dense(8), OnlyFloat32(when), layers.Dense(2)]
        model = keras.Sequential([keras.Input((6,)), *stack])
        model.compile("sgd", "mse")
        return model

    record = made(build, "bf16", tmp_path)
    assert (record.failure.startswith(failure), "\n" in record.failure, len(record.losses)) == (
        True,
        False,
        num_losses,
    )


def test_a_model_that_raises_in_float32_raises(tmp_path: Path) -> None:
    def build() -> keras.Model:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        made(build, "fp32", tmp_path)


def test_a_mistake_of_the_user_is_raised_in_half_too(tmp_path: Path) -> None:
    kinds = iter([True, False])

    def build() -> keras.Model:
        model = dense()
        return model if next(kinds) else keras.Sequential([keras.Input((6,)), layers.Dense(2)])

    with pytest.raises(ModelError, match="not compiled"):
        made(build, "bf16", tmp_path)


class Overflowing(layers.Layer):
    """Gives infinity in half precision, from some call on."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self.start = start

    def build(self, _: Any) -> None:
        self.count = self.add_weight(dtype="int32", initializer="zeros", trainable=False)

    def call(self, inputs: Any) -> Any:
        if self.compute_dtype == "float32":
            return inputs
        self.count.assign_add(1)
        factor = keras.ops.where(self.count > self.start, math.inf, 1.0)
        return inputs * keras.ops.cast(factor, inputs.dtype)


def overflowing(start: int) -> keras.Model:
    stack = [layers.Dense(8), Overflowing(start), layers.Dense(2)]
    model = keras.Sequential([keras.Input((6,)), *stack])
    model.compile("sgd", "mse")
    return model


def test_a_loss_that_stays_nan_in_half_has_failed(tmp_path: Path) -> None:
    record = made(lambda: overflowing(3), "bf16", tmp_path, num_steps=40)
    assert (record.failure, len(record.losses)) == (
        "its loss is NaN or infinite from step 4 on",
        23,
    )


def test_a_model_without_a_loss_in_its_step_is_refused(tmp_path: Path) -> None:
    class Silent(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            return {"mine": tf.constant(1.0)}

    def build() -> keras.Model:
        model = Silent([keras.Input((6,)), layers.Dense(2)])
        model.compile("sgd", "mse")
        return model

    message = "Expected a dictionary with 'loss'. Received: ['mine']."
    with pytest.raises(InputsError, match=re.escape(message)):
        made(build, "fp32", tmp_path)


# ------------------------------------------------------------- interruption and going on


@pytest.fixture
def _python_s_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Presser(Progress):
    """Presses Ctrl-C at the end of a step."""

    def __init__(self, after: int) -> None:
        super().__init__(99, is_shown=False)
        object.__setattr__(self, "after", after)

    def step(self, run: TrainingRun) -> None:
        if len(run.losses) == self.after:
            os.kill(os.getpid(), signal.SIGINT)


def steps_of(record: TrainingRun) -> tuple[Any, ...]:
    """What must not depend on whether a run was interrupted."""
    return (
        [one.hex() for one in record.losses],
        record.evaluations,
        record.drift,
        record.skipped_steps,
        record.loss_scale,
    )


WATCHED: dict[str, Any] = {
    "num_steps": 14,
    "validation": (X[:16], Y[:16]),
    "kept_at": (0, 7, 14),
    "evaluated_at": (0, 5, 14),
    "is_resumable": True,
}


@pytest.mark.usefixtures("_python_s_handler")
@pytest.mark.parametrize(
    ("name", "precision", "after"),
    [
        pytest.param("stateful", "fp32", 5, marks=slow),
        ("stateful", "bf16", 7),
        pytest.param("stateful", "fp16", 13, marks=slow),
        pytest.param("scaled", "fp16", 1, marks=slow),
        ("scaled", "fp16", 6),
        ("by Keras", "fp16", 2),
        pytest.param("stateful", "bf16:O3", 5, marks=slow),
        pytest.param("subclassed", "fp16", 3, marks=slow),
    ],
)
@pytest.mark.filterwarnings("ignore::tf_amp_kit.errors.PureHalfWarning")
def test_an_interrupted_run_goes_on_to_the_same_end(
    name: str, precision: str, after: int, tmp_path: Path
) -> None:
    build = BUILDERS[name]
    if precision != "fp32":
        run_of(build, "fp32", tmp_path, **WATCHED).make()
    whole = run_of(build, precision, tmp_path, **WATCHED).make()
    stopped = run_of(build, precision, tmp_path, **WATCHED, progress=Presser(after)).make()
    assert (stopped.failure, len(stopped.losses)) == ("interrupted", after)
    went_on = run_of(build, precision, tmp_path, **WATCHED).make()
    assert steps_of(went_on) == steps_of(whole)


@pytest.mark.usefixtures("_python_s_handler")
def test_ctrl_c_lets_the_step_end_that_it_meets(tmp_path: Path) -> None:
    record = made(dense, "fp32", tmp_path, data=Sequence(pressed_at=3))
    assert (record.failure, record.losses) == (
        "interrupted",
        made(dense, "fp32", tmp_path, data=Sequence()).losses[:4],
    )


@pytest.mark.usefixtures("_python_s_handler")
@pytest.mark.parametrize(
    "name", ["subclassed", *(pytest.param(one, marks=slow) for one in ("dense", "scaled"))]
)
def test_a_run_that_goes_on_makes_only_the_steps_that_are_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = BUILDERS[name]
    run_of(build, "fp32", tmp_path, **WATCHED, progress=Presser(10)).make()
    steps = []
    train = loop.Training._train

    def counted(*args: Any) -> None:
        steps.append(1)
        train(*args)

    monkeypatch.setattr(loop.Training, "_train", counted)
    run_of(build, "fp32", tmp_path, **WATCHED).make()
    assert len(steps) == 4


@pytest.mark.usefixtures("_python_s_handler")
def test_an_interrupted_run_that_is_not_to_be_resumed_is_not_kept(tmp_path: Path) -> None:
    run = run_of(dense, "fp32", tmp_path, progress=Presser(3))
    assert (run.make().failure, run.folder.unfinished("float32", SEED)) == ("interrupted", None)


@pytest.mark.usefixtures("_python_s_handler")
def test_after_an_interruption_ctrl_c_is_python_s_again(tmp_path: Path) -> None:
    run_of(dense, "fp32", tmp_path, progress=Presser(3)).make()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_run_is_kept_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    monkeypatch.setattr(loop, "_SAVE_SECONDS", 0.0)
    monkeypatch.setattr(
        Folder, "save_unfinished", lambda _, run, *rest: kept.append(len(run.losses))
    )
    run_of(dense, "fp32", tmp_path, is_resumable=True).make()
    assert kept == [1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("_python_s_handler")
def test_going_on_with_other_batches_is_refused(tmp_path: Path) -> None:
    options = {"is_resumable": True, "num_steps": 10}
    run_of(dense, "fp32", tmp_path, data=tf_batches(X), progress=Presser(8), **options).make()
    changed = X.copy()
    changed[9] += 1
    with pytest.raises(InputsError, match="batch 2 of train_data differs"):
        run_of(dense, "fp32", tmp_path, data=tf_batches(changed), **options).make()


# -------------------------------------------------------------------------------- traces


def states() -> tuple[Any, ...]:
    return (
        keras.config.dtype_policy().name,
        keras.config.floatx(),
        amp.current_amp(),
        list(tf.get_logger().filters),
        tf.config.optimizer.get_jit(),
        tf.config.functions_run_eagerly(),
        signal.getsignal(signal.SIGINT),
    )


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_nothing_global_is_left_behind(precision: str, tmp_path: Path) -> None:
    before = states()
    made(stateful, precision, tmp_path, validation=(X, Y), evaluated_at=(0, 6), tries_again=True)
    assert states() == before


def test_random_numbers_go_on_as_if_nothing_had_been_trained(tmp_path: Path) -> None:
    def draws() -> list[float]:
        return [float(keras.random.uniform(())), float(tf.random.uniform(())), np.random.random()]

    seed_all(1)
    expected = draws()
    seed_all(1)
    made(stateful, "fp16", tmp_path)
    assert draws() == expected


def test_functions_for_data_are_called_once_in_a_run(tmp_path: Path) -> None:
    calls = []

    def data() -> Any:
        calls.append("train")
        return X, Y

    def validation() -> Any:
        calls.append("validation")
        return X, Y

    made(dense, "fp32", tmp_path, data=data, validation=validation, evaluated_at=(0, 2, 4, 6))
    assert sorted(calls) == ["train", "validation"]
