"""Whole models measured: what is called twice or in loops, and what stays as it was."""

from __future__ import annotations

import gc
import threading
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.inspection.numerics.measured import (
    expected,
    facts,
    measure,
    names,
    sequential,
    summed,
    tensor,
)
from tf_amp_kit.errors import InputsError, TracingError
from tf_amp_kit.inspection.numerics.probes import Probes
from tf_amp_kit.precision.pinning.pin import pin_float32

X = np.array([[1, 2, -4], [0, 8, 1], [3, 3, 3], [-1, 0, 2]], np.float32)
SEQUENCES = np.arange(24, dtype=np.float32).reshape(2, 4, 3)


def randoms(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def everything(report: Any) -> list[Any]:
    return [(one.kind, one.path, one.position, facts(one)) for one in report.tensors]


def test_two_batches_are_counted_as_one_of_both() -> None:
    # A sum as loss: the gradients of outputs are those of the samples alone.
    layers = keras.layers.Dense(5, activation="relu"), keras.layers.Dense(2)
    model = sequential((3,), *layers)
    values = randoms(8, 3)
    once = measure(model, values)
    twice = measure(model, values, batch_size=4, batches=2)
    kinds = ("input", "output", "gradient", "weight")
    found = [[entry for entry in everything(one) if entry[0] in kinds] for one in (once, twice)]
    assert found[0] == found[1]


def test_the_gradients_of_weights_are_counted_once_for_each_batch() -> None:
    model = sequential((3,), keras.layers.Dense(1, name="out"))
    report = measure(model, X, batch_size=2, batches=2)
    wanted = expected(X[:2].sum(axis=0), X[2:].sum(axis=0))
    assert facts(tensor(report, "weight_gradient", "out/kernel")) == wanted


def test_batches_and_samples_are_told() -> None:
    report = measure(sequential((3,), keras.layers.Dense(1)), X, batch_size=3, batches=9)
    assert (report.num_batches, report.num_samples) == (2, 4)


def test_batches_of_other_lengths_are_measured_too() -> None:
    # A dataset's spec may name one length for all, and the data another.
    model = keras.Sequential([keras.layers.LSTM(2, name="lstm")])
    model.build((None, None, 3))
    batches = [np.ones((2, 4, 3), np.float32), np.ones((2, 6, 3), np.float32)]

    class Lengths(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return batches[index], np.zeros((2, 2), np.float32)

    report = measure(model, Lengths(), loss="mse", batches=2)
    assert tensor(report, "input", "@input/0").statistics.num_elements == 2 * (4 + 6) * 3


def test_both_calls_of_a_shared_layer_are_counted() -> None:
    inputs = keras.Input((1,))
    twice = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", name="twice")
    model = keras.Model(inputs, twice(keras.layers.Rescaling(4.0)(twice(inputs))))
    report = measure(model, np.array([[3.0]], np.float32))
    found = [facts(tensor(report, kind, "twice")) for kind in ("output", "gradient")]
    assert found == [expected([3.0, 12.0]), expected([4.0, 1.0])]


def test_layers_of_a_nested_model_are_measured_once() -> None:
    inner = sequential((3,), keras.layers.Dense(2, name="a"), keras.layers.ReLU(name="b"))
    inner.name = "inner"
    report = measure(sequential((3,), inner, keras.layers.Dense(1, name="out")), X)
    assert names(report, "output") == ["inner/a", "inner/b", "out"]


def test_layers_in_a_subclassed_model_are_measured_by_attribute() -> None:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = [keras.layers.Dense(2), keras.layers.Dense(1)]

        def call(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return x * 2

    report = measure(Net(), X)
    assert names(report, "output") == ["blocks/0", "blocks/1", "(model)"]


class AddingCell(keras.layers.Layer):
    """Adds up its inputs, by way of a layer inside."""

    state_size = 3
    output_size = 3

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.inside = keras.layers.Rescaling(2.0)
        self.weight = self.add_weight(shape=(), initializer="ones", name="weight")

    def build(self, shape: Any) -> None:
        self.built = True

    def call(self, x: Any, states: Any) -> Any:
        total = states[0] + self.inside(x * self.weight)
        return total, [total]


@pytest.mark.parametrize("unroll", [False, True])
def test_a_layer_in_a_loop_is_counted_in_every_step(unroll: bool) -> None:
    rnn = keras.layers.RNN(AddingCell(name="cell"), unroll=unroll, name="rnn")
    report = measure(sequential((4, 3), rnn), SEQUENCES)
    assert facts(tensor(report, "output", "rnn/cell/inside")) == expected(2 * SEQUENCES)


@pytest.mark.parametrize("unroll", [False, True])
def test_a_gradient_in_a_loop_is_counted_in_every_step(unroll: bool) -> None:
    rnn = keras.layers.RNN(AddingCell(name="cell"), unroll=unroll, name="rnn")
    report = measure(sequential((4, 3), rnn), SEQUENCES)
    found = facts(tensor(report, "gradient", "rnn/cell/inside"))
    assert found == expected(np.ones_like(SEQUENCES))


def test_a_time_distributed_layer_is_counted_for_every_step() -> None:
    inner = keras.layers.Dense(2, kernel_initializer="ones")
    each = keras.layers.TimeDistributed(inner, name="each")
    report = measure(sequential((4, 3), each), SEQUENCES)
    sums = SEQUENCES.sum(axis=-1)
    assert facts(tensor(report, "output", "each")) == expected(sums, sums)


def test_layers_of_a_time_distributed_model_are_counted_for_every_step() -> None:
    inner = sequential((3,), keras.layers.Dense(1, kernel_initializer="ones", name="dense"))
    each = keras.layers.TimeDistributed(inner, name="each")
    report = measure(sequential((4, 3), each), SEQUENCES)
    found = [facts(tensor(report, kind, "each/layer/dense")) for kind in ("output", "gradient")]
    assert found == [expected(SEQUENCES.sum(axis=-1)), expected(np.ones((2, 4)))]


class Mapped(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__(name="mapped")
        self.inner = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")

    def build(self, shape: Any) -> None:
        self.inner.build((None, shape[-1]))
        self.built = True

    def call(self, x: Any) -> Any:
        return tf.map_fn(self.inner, x)


def test_a_layer_under_map_fn_is_counted_for_every_element() -> None:
    report = measure(sequential((4, 3), Mapped()), SEQUENCES)
    found = [facts(tensor(report, kind, "mapped/inner")) for kind in ("output", "gradient")]
    assert found == [expected(SEQUENCES.sum(axis=-1)), expected(np.ones((2, 4)))]


class Vectorized(Mapped):
    def call(self, x: Any) -> Any:
        return tf.vectorized_map(self.inner, x)


def test_a_layer_under_vectorized_map_is_counted_for_every_element() -> None:
    # Not its gradient: TensorFlow makes other operations of those that are watched.
    report = measure(sequential((4, 3), Vectorized()), SEQUENCES)
    assert facts(tensor(report, "output", "mapped/inner")) == expected(SEQUENCES.sum(axis=-1))


class RunAgain(Mapped):
    def call(self, x: Any) -> Any:
        return tf.recompute_grad(lambda value: self.inner(value))(x)


def test_what_is_run_again_for_the_gradient_is_counted_once() -> None:
    report = measure(sequential((4, 3), RunAgain()), SEQUENCES)
    found = [facts(tensor(report, kind, "mapped/inner")) for kind in ("output", "gradient")]
    assert found == [expected(SEQUENCES.sum(axis=-1)), expected(np.ones((2, 4)))]


class Branched(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__(name="branched")
        self.yes, self.no = keras.layers.Rescaling(2.0), keras.layers.Rescaling(3.0)

    def call(self, x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: self.yes(x), lambda: self.no(x))


def test_only_the_branch_that_was_taken_is_counted() -> None:
    report = measure(sequential((3,), Branched()), X)
    found = [facts(tensor(report, "output", f"branched/{name}")) for name in ("yes", "no")]
    assert found == [expected(2 * X), expected([])]


def test_a_layer_that_hands_on_its_input_has_the_numbers_of_that() -> None:
    dense, same = keras.layers.Dense(2, name="dense"), keras.layers.Dropout(0.0, name="same")
    report = measure(sequential((3,), dense, same), X)
    for kind in ("output", "gradient"):
        assert facts(tensor(report, kind, "same")) == facts(tensor(report, kind, "dense"))


def test_each_call_of_a_layer_that_hands_on_its_input_is_counted() -> None:
    inputs, same = keras.Input((3,)), keras.layers.Identity(name="same")
    first, second = keras.layers.Rescaling(2.0)(inputs), keras.layers.Rescaling(3.0)(inputs)
    report = measure(keras.Model(inputs, same(first) + same(second)), X)
    assert facts(tensor(report, "output", "same")) == expected(2 * X, 3 * X)


class Around(keras.layers.Layer):
    def __init__(self, inner: Any, **options: Any) -> None:
        super().__init__(**options)
        self.inner = inner

    def call(self, x: Any) -> Any:
        return self.inner(x)


def test_a_layer_around_a_shared_one_has_the_numbers_of_its_own_calls() -> None:
    inputs, inner = keras.Input((3,)), keras.layers.Rescaling(2.0)
    around = Around(inner, name="around")
    model = keras.Model(inputs, around(inputs) + inner(keras.layers.Rescaling(100.0)(inputs)))
    assert facts(tensor(measure(model, X), "output", "around")) == expected(2 * X)


class Twice(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        doubled = x * 2.0
        return doubled, doubled


def test_a_tensor_that_is_returned_twice_has_one_gradient() -> None:
    inputs = keras.Input((3,))
    first, second = Twice(name="twice")(keras.layers.Dense(2)(inputs))
    report = measure(keras.Model(inputs, first + second), X)
    found = {one.name: facts(one) for one in report.of_kind("gradient") if one.path == "twice"}
    assert found == {"twice": expected(np.full((4, 2), 2.0))}


def test_the_cell_of_a_loop_is_counted_once_a_step() -> None:
    report = measure(sequential((4, 3), keras.layers.LSTM(2, name="lstm")), SEQUENCES)
    cells = [one for one in report.tensors if one.kind == "output" and one.path == "lstm/cell"]
    assert [one.statistics.num_elements for one in cells] == [2 * 4 * 2] * len(cells)


class Unbuilt(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = keras.layers.Dense(4), keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.b(self.a(x))


def test_a_model_that_is_not_built_is_measured_as_a_built_one() -> None:
    model = Unbuilt()
    first, second = everything(measure(model, X)), everything(measure(model, X))
    paths = [path for kind, path, *_ in first if kind == "weight_gradient"]
    assert (first, paths) == (second, ["a/kernel", "a/bias", "b/kernel", "b/bias"])


def test_weights_kept_in_half_have_gradients_that_are_not_rounded() -> None:
    # Their sum over two samples; in float16 it would be zero.
    x = np.full((2, 3), 1e-9, np.float32)
    model = sequential((3,), keras.layers.Dense(1, name="out", dtype="float16"))
    report = measure(model, x, loss=lambda y, p: tf.reduce_sum(p), loss_scale=1.0)
    gradient = tensor(report, "weight_gradient", "out/kernel").statistics
    assert gradient.largest == np.float32(2e-9) and gradient.num_zeros == 0


def test_what_stays_in_half_in_the_float32_run_is_noted() -> None:
    class Narrow(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return tf.cast(tf.cast(x, "float16"), x.dtype)

    report = measure(sequential((3,), Narrow(name="narrow")), X, loss_scale=2.0)
    assert report.notes == (
        "'narrow' kept something in half precision in the float32 run: a dtype in the code, or a "
        "constant made when the layer was built.",
    )


@pytest.mark.parametrize(("scale", "count"), [(1.0, 1), (2.0, 0)])
def test_gradients_without_a_scale_are_noted(scale: float, count: int) -> None:
    model = sequential((3,), keras.layers.Dense(1, name="out"))
    notes = measure(model, X, loss_scale=scale).notes
    assert [note.startswith("Gradients are not scaled here.") for note in notes] == [True] * count


def test_a_loss_scale_that_only_gradients_do_not_stand_is_noted() -> None:
    model = sequential((3,), keras.layers.Dense(1, name="out"))
    report = measure(model, X, loss=lambda y, p: tf.reduce_sum(p) * 1e30, loss_scale=2.0**30)
    assert report.notes[-1] == (
        "Loss scale 1.07374e+09 may be the reason, as only gradients do: measure at a smaller one."
    )


class Several(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return {"b": x + 1, "a": (2 * x, tf.cast(x, tf.int32))}


def test_each_float_output_of_a_layer_has_its_position() -> None:
    report = measure(sequential((3,), Several(name="several")), X, loss=lambda y, p: 0.0)
    found = {one.name: facts(one) for one in report.of_kind("output")}
    assert found == {"several": expected(2 * X), "several[2]": expected(X + 1)}


def test_masks_reach_later_layers() -> None:
    ids = np.array([[1, 2, 0, 0], [3, 0, 0, 0]], np.int32)
    layers = [keras.layers.Embedding(5, 3, mask_zero=True), keras.layers.LSTM(2, name="lstm")]
    model = sequential((4,), *layers, dtype="int32")
    wanted, report = model(ids).numpy(), measure(model, ids)
    one = tensor(report, "output", "lstm").statistics
    assert (one.minimum, one.maximum, one.mean) == pytest.approx(
        (wanted.min(), wanted.max(), wanted.mean()), rel=1e-6
    )


def test_draws_go_on_from_batch_to_batch_as_in_training() -> None:
    ones = np.ones((1, 1000), np.float32)
    model = sequential((1000,), keras.layers.Dropout(0.5, seed=7, name="drop"))
    data = tf.data.Dataset.from_tensor_slices((np.concatenate([ones, ones]),)).batch(1)
    report = measure(model, data, batches=2)
    drawn = [model(ones, training=True).numpy() for _ in range(2)]
    zeros = sum(np.sum(one == 0) for one in drawn)
    is_drawn_twice = bool(np.any(drawn[0] != drawn[1]))
    assert (tensor(report, "output", "drop").statistics.num_zeros, is_drawn_twice) == (zeros, True)


def test_statistics_of_a_batch_normalise_it_as_in_training() -> None:
    layer = keras.layers.BatchNormalization(epsilon=0.0, name="norm")
    x = np.array([[1.0], [3.0]], np.float32)
    report = measure(sequential((1,), layer), x)
    assert facts(tensor(report, "output", "norm")) == expected([-1.0, 1.0])


def stateful() -> keras.Model:
    layers = (
        keras.layers.Dense(4),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.5, seed=3),
        keras.layers.Dense(1),
    )
    model = sequential((3,), *layers)
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(X, np.ones((4, 1)), epochs=1, verbose=0)
    return model


def test_weights_statistics_seeds_metrics_and_optimizer_are_as_before() -> None:
    model = stateful()
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    before = [np.array(one) for one in variables]
    measure(model, X, np.ones((4, 1)), loss=None, batches=2, batch_size=2)
    np.testing.assert_equal([np.array(one) for one in variables], before)


def test_policies_are_as_before() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    model = stateful()
    before = [layer.dtype_policy.name for layer in model.layers], keras.config.dtype_policy().name
    measure(model, X, np.ones((4, 1)), loss=None)
    after = [layer.dtype_policy.name for layer in model.layers], keras.config.dtype_policy().name
    assert after == before


def test_the_draws_of_tensorflow_and_keras_go_on_as_if_nothing_was_measured() -> None:
    model = sequential((3,), keras.layers.Dropout(0.5))

    def drawn(is_measured: bool) -> Any:
        # Older Kerases go on with a generator that is there already.
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(5)
        if is_measured:
            measure(model, X)
        return tf.random.uniform((3,)).numpy(), keras.random.uniform((3,)).numpy()

    np.testing.assert_equal(drawn(True), drawn(False))


def test_training_goes_on_as_if_nothing_was_measured() -> None:
    def trained(is_measured: bool) -> Any:
        keras.utils.set_random_seed(5)
        model = stateful()
        if is_measured:
            measure(model, X, np.ones((4, 1)), loss=None)
        model.fit(X, np.ones((4, 1)), epochs=1, verbose=0)
        return model.get_weights()

    np.testing.assert_equal(trained(True), trained(False))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16", "float32"])
def test_the_run_is_in_float32_whatever_the_policy_is(policy: str) -> None:
    # float16 would make 1e5 infinite; bfloat16 would round it to 99840.
    layer = keras.layers.Dense(1, use_bias=False, dtype=policy, name="wide")
    model = sequential((1,), layer)
    layer.set_weights([np.array([[4.0]])])
    report = measure(model, np.array([[25000.0]], np.float32))
    assert facts(tensor(report, "output", "wide")) == expected([1e5])


def pinned() -> keras.Model:
    keras.config.set_dtype_policy("mixed_float16")
    layers = [
        keras.layers.Dense(1, use_bias=False, name="hidden"),
        keras.layers.Dense(1, use_bias=False, name="out"),
    ]
    model = sequential((1,), *layers)
    model.set_weights([np.array([[1.0]]), np.array([[2.0**-12]])])
    return model


def test_gradients_of_pinned_layers_leave_the_scale_alone() -> None:
    # The half layer's gradients are 2^-12, and up to 2^27 times that fits: 2^15 does,
    # 2^16 does not. Those of the pinned one are 1 and 64.
    model = pinned()
    with_all = measure(model, np.array([[64.0]], np.float32)).scale.highest
    pin_float32(model, "out")
    without = measure(model, np.array([[1.0]], np.float32)).scale.highest
    assert (with_all, without) == (2.0**9, 2.0**27)


def test_dtypes_are_those_the_layers_compute_in() -> None:
    model = pinned()
    pin_float32(model, "out")
    report = measure(model, np.array([[1.0]], np.float32))
    found = {(one.kind, one.path): one.dtype for one in report.tensors if one.kind != "input"}
    assert found == {
        ("output", "hidden"): "float16",
        ("output", "out"): "float32",
        ("gradient", "hidden"): "float16",
        ("gradient", "out"): "float32",
        ("weight", "hidden/kernel"): "float16",
        ("weight", "out/kernel"): "float32",
        ("weight_gradient", "hidden/kernel"): "float16",
        ("weight_gradient", "out/kernel"): "float32",
    }


@pytest.mark.parametrize(
    ("policy", "asked", "expected_precision"),
    [
        ("float32", None, "float16"),
        ("mixed_bfloat16", None, "bfloat16"),
        ("mixed_float16", None, "float16"),
        ("mixed_float16", "bf16", "bfloat16"),
    ],
)
def test_the_format_is_the_one_asked_for_or_the_model_s(
    policy: str, asked: str | None, expected_precision: str
) -> None:
    model = sequential((3,), keras.layers.Dense(1, dtype=policy))
    assert measure(model, X, precision=asked).precision == expected_precision


def test_the_format_is_that_of_the_layers_in_half_where_more_are_pinned() -> None:
    layers = [keras.layers.Dense(1, dtype=one) for one in ("mixed_bfloat16", "float32", "float32")]
    assert measure(sequential((3,), *layers), X, precision=None).precision == "bfloat16"


def test_moving_statistics_are_known_to_stay_in_float32() -> None:
    layers = keras.layers.Dense(2), keras.layers.BatchNormalization(name="norm")
    model = sequential((3,), *layers)
    report = measure(model, X)
    assert tensor(report, "weight", "norm/moving_variance").dtype == "float32"


class NamesFloat16(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return x * tf.constant(2.0, tf.float16)


def test_a_layer_that_names_a_half_format_is_told() -> None:
    model = sequential((3,), NamesFloat16(dtype="mixed_float16"))
    with pytest.raises(TracingError, match="names a half format"):
        measure(model, X)


@pytest.mark.parametrize("take", [float, lambda x: x.numpy()])
def test_code_that_needs_values_is_told(take: Any) -> None:
    class Needs(Unbuilt):
        def call(self, x: Any) -> Any:
            take(tf.reduce_sum(x) if take is float else x)
            return super().call(x)

    with pytest.raises(TracingError, match="the Python code of Needs needs values"):
        measure(Needs(), X)


def test_a_loss_that_has_no_targets_is_told() -> None:
    with pytest.raises(InputsError, match=r"The loss needs targets\."):
        measure(sequential((3,), keras.layers.Dense(1)), X, loss="mse")


class Adding(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        self.add_loss(tf.reduce_sum(x))
        return x


@pytest.mark.parametrize("is_dataset", [False, True])
def test_inputs_alone_are_enough_where_layers_add_the_loss(is_dataset: bool) -> None:
    model = sequential((3,), keras.layers.Dense(1, name="out"), Adding())
    model.compile("sgd")
    data = tf.data.Dataset.from_tensor_slices(X).batch(4) if is_dataset else X
    report = measure(model, data, loss=None)
    assert facts(tensor(report, "weight_gradient", "out/bias")) == expected([4.0])


def test_a_second_measurement_gives_the_same_numbers() -> None:
    model = stateful()
    first, second = [measure(model, X, np.ones((4, 1)), loss=None) for _ in range(2)]
    assert everything(first) == everything(second)


def test_two_threads_have_the_numbers_of_their_own_models() -> None:
    models = [sequential((3,), keras.layers.Dense(4, name="out")) for _ in range(2)]
    values = [randoms(64, 3), 100 * randoms(64, 3)]
    alone = [everything(measure(*pair)) for pair in zip(models, values, strict=True)]
    together: dict[int, Any] = {}

    def work(index: int) -> None:
        for _ in range(2):
            together[index] = everything(measure(models[index], values[index]))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together.get(index) for index in range(2)] == alone


def count_live(*names: str) -> dict[str, int]:
    gc.collect()
    kinds = [type(one).__name__ for one in gc.get_objects()]
    return {name: kinds.count(name) for name in names}


def test_nothing_is_kept_of_a_measurement() -> None:
    model = sequential((3,), keras.layers.Dense(1))
    measure(model, X)
    before = count_live("FuncGraph", "Probes", "StatisticsCounter", "StepTrace")
    for _ in range(20):
        measure(model, X)
    # Graphs of tests that ran before may go meanwhile.
    assert all(count <= before[name] for name, count in count_live(*before).items())


def test_probes_are_gone_with_their_measurement() -> None:
    measure(sequential((3,), keras.layers.Dense(1)), X, loss=summed)
    assert count_live(Probes.__name__) == {"Probes": 0}


@pytest.mark.parametrize(("precision", "count"), [(None, 1), ("float16", 0)])
def test_a_format_that_nobody_asks_for_is_noted(precision: str | None, count: int) -> None:
    model = sequential((3,), keras.layers.Dense(1, name="out"))
    notes = measure(model, X, precision=precision, loss_scale=2.0).notes
    told = "Nothing asks for half precision here: float16 is what the numbers are judged by."
    assert notes == (told,) * count
