"""Counts in whole models, at the edges of the formats and for gradients known by hand."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.inspection.numerics.measured import (
    counts,
    expected,
    facts,
    measure,
    names,
    sequential,
    summed,
    tensor,
)
from tf_amp_kit.errors import InputsError, ModelError, OptimizerError, PrecisionError

ABOVE_TINY_16 = float(np.nextafter(np.float32(2.0**-25), np.float32(1)))
ABOVE_TINY_BF = float(np.nextafter(np.float32(2.0**-134), np.float32(1)))

# What a value becomes in float16 and in bfloat16, by IEEE 754: as an overflow, as a
# zero, as a subnormal, or as none of these.
EDGES: dict[str, tuple[float, str, str]] = {
    "one": (1.0, "", ""),
    "largest": (65504.0, "", ""),
    "below_overflow": (65519.996, "", ""),
    "overflow": (65520.0, "overflow", ""),
    "above_overflow": (65536.0, "overflow", ""),
    "smallest_normal": (2.0**-14, "", ""),
    "rounds_up_to_normal": (2.0**-14 - 2.0**-26, "", ""),
    "largest_subnormal": (2.0**-14 - 2.0**-24, "subnormal", ""),
    "smallest": (2.0**-24, "subnormal", ""),
    "above_tie": (ABOVE_TINY_16, "subnormal", ""),
    "tie": (2.0**-25, "underflow", ""),
    "smallest_normal_bfloat16": (2.0**-126, "underflow", ""),
    "float32_subnormal": (1e-40, "underflow", "subnormal"),
    "smallest_bfloat16": (2.0**-133, "underflow", "subnormal"),
    "above_tie_bfloat16": (ABOVE_TINY_BF, "underflow", "subnormal"),
    "tie_bfloat16": (2.0**-134, "underflow", "underflow"),
    "smallest_float32": (2.0**-149, "underflow", "underflow"),
    "below_overflow_bfloat16": (2.0**128 - 2.0**119 - 2.0**104, "overflow", ""),
    "overflow_bfloat16": (2.0**128 - 2.0**119, "overflow", "overflow"),
    "zero": (0.0, "", ""),
    "nan": (np.nan, "", ""),
    "infinite": (np.inf, "", ""),
}
FATES = ("overflow", "underflow", "subnormal")


def each_alone(values: dict[str, float], precision: str) -> Any:
    """Measures a model with a layer for each value, that returns it and its negative."""
    inputs = {name: keras.Input((1,), name=name) for name in values}
    outputs = {name: keras.layers.Identity(name=f"at_{name}")(x) for name, x in inputs.items()}
    x = {name: np.array([[value], [-value]], np.float32) for name, value in values.items()}
    return measure(keras.Model(inputs, outputs), x, loss=lambda y, p: 0.0, precision=precision)


@pytest.fixture(scope="module", params=["float16", "bfloat16"])
def edges(request: pytest.FixtureRequest) -> Any:
    return each_alone({name: value for name, (value, *_) in EDGES.items()}, request.param)


@pytest.mark.parametrize("name", EDGES)
def test_an_output_at_an_edge_of_the_format_has_its_fate(edges: Any, name: str) -> None:
    _, float16, bfloat16 = EDGES[name]
    fate = float16 if edges.precision == "float16" else bfloat16
    found = counts(tensor(edges, "output", f"at_{name}"))
    assert found == tuple(2 * (fate == one) for one in FATES)


@pytest.mark.parametrize("name", EDGES)
def test_an_input_is_judged_as_an_output_is(edges: Any, name: str) -> None:
    inside, outside = (
        tensor(edges, "input", f"@input/{name}"),
        tensor(edges, "output", f"at_{name}"),
    )
    assert counts(inside) == counts(outside)


@pytest.mark.parametrize("name", EDGES)
def test_an_output_at_an_edge_is_kept_exactly(edges: Any, name: str) -> None:
    value = np.float32(EDGES[name][0])
    assert facts(tensor(edges, "output", f"at_{name}")) == expected([value, -value])


def test_nan_and_inf_are_counted_and_noted(edges: Any) -> None:
    assert edges.notes[0] == (
        "4 tensors hold NaN or Inf, the first is @input/infinite: "
        "find_nonfinite(model, data) tells where they begin, and whether half precision is the "
        "reason."
    )


def test_shares_are_of_finite_nonzero_elements() -> None:
    x = np.array([[65520.0, 2.0**-25, 2.0**-24, 1.0, 0.0, 0.0, np.nan, np.inf]], np.float32)
    one = tensor(measure(sequential((8,), keras.layers.Identity()), x), "output", "identity")
    shares = (one.overflow_fraction, one.underflow_fraction, one.subnormal_fraction)
    assert shares == (0.25, 0.25, 0.25)


def test_integer_tensors_are_left_out() -> None:
    ids = keras.Input((2,), dtype="int32", name="ids")
    whole = keras.layers.Lambda(lambda x: x + 1, name="whole")(ids)
    vectors = keras.layers.Embedding(5, 3, name="vectors")(whole)
    report = measure(keras.Model(ids, vectors), np.array([[0, 1]], np.int32))
    assert (names(report, "input"), names(report, "output")) == ([], ["vectors"])


def test_an_empty_tensor_has_no_elements() -> None:
    empty = keras.layers.Lambda(lambda x: x[:, :0], name="empty")
    report = measure(sequential((3,), empty), np.ones((2, 3), np.float32))
    assert facts(tensor(report, "output", "empty")) == expected([])


def test_an_empty_batch_has_no_elements() -> None:
    report = measure(sequential((3,), keras.layers.Dense(2)), np.ones((0, 3), np.float32))
    assert facts(tensor(report, "output", "dense")) == expected([])


def test_headroom_is_in_powers_of_two_to_the_largest() -> None:
    x = np.array([[-65504.0 / 4]], np.float32)
    one = tensor(measure(sequential((1,), keras.layers.Identity()), x), "output", "identity")
    assert one.headroom == 2.0


X = np.array([[1, 2, -4], [0, 8, 1]], np.float32)
Y = np.array([[1, 0], [4, -2]], np.float32)
KERNEL = np.array([[1, -1], [2, 0], [0.5, 4]], np.float32)
BIAS = np.array([1, -3], np.float32)
# Of the mean of four squares; all are multiples of a half, and exact.
OUTPUT_GRADIENT = 2 / 4 * (X @ KERNEL + BIAS - Y)


def dense(**options: Any) -> keras.Model:
    layer = keras.layers.Dense(2, name="out", **options)
    model = sequential((3,), layer)
    layer.set_weights([KERNEL, BIAS])
    return model


@pytest.fixture(scope="module", params=[1.0, 1024.0, 3.0])
def scaled(request: pytest.FixtureRequest) -> Any:
    return measure(dense(), X, Y, loss="mse", loss_scale=request.param)


def test_the_gradient_of_an_output_is_multiplied_by_the_scale(scaled: Any) -> None:
    wanted = expected(scaled.loss_scale * OUTPUT_GRADIENT)
    assert facts(tensor(scaled, "gradient", "out")) == wanted


def test_the_gradient_of_a_kernel_is_multiplied_by_the_scale(scaled: Any) -> None:
    wanted = expected(scaled.loss_scale * (X.T @ OUTPUT_GRADIENT))
    assert facts(tensor(scaled, "weight_gradient", "out/kernel")) == wanted


def test_the_gradient_of_a_bias_is_multiplied_by_the_scale(scaled: Any) -> None:
    wanted = expected(scaled.loss_scale * OUTPUT_GRADIENT.sum(axis=0))
    assert facts(tensor(scaled, "weight_gradient", "out/bias")) == wanted


def test_forward_values_do_not_depend_on_the_scale(scaled: Any) -> None:
    found = [facts(tensor(scaled, *one)) for one in (("input", "@input/0"), ("output", "out"))]
    assert found == [expected(X), expected(X @ KERNEL + BIAS)]


def test_weights_are_counted_once_each(scaled: Any) -> None:
    found = [facts(tensor(scaled, "weight", path)) for path in ("out/kernel", "out/bias")]
    assert found == [expected(KERNEL), expected(BIAS)]


def test_the_scale_is_that_of_the_optimizer_where_none_is_given() -> None:
    model = dense()
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=64.0)
    model.compile(optimizer, "mse")
    report = measure(model, X, Y, loss=None)
    found = facts(tensor(report, "gradient", "out"))
    assert (report.loss_scale, found) == (64.0, expected(64 * OUTPUT_GRADIENT))


def test_sample_weights_scale_the_gradients() -> None:
    report = measure(dense(), (X, Y, np.array([4, 0.5], np.float32)), loss="mse")
    wanted = expected(OUTPUT_GRADIENT * np.array([[4], [0.5]], np.float32))
    assert facts(tensor(report, "gradient", "out")) == wanted


def test_an_embedding_has_the_gradients_of_the_rows_that_were_looked_up() -> None:
    table = keras.layers.Embedding(5, 2, name="table")
    weight = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    ids = np.array([[1, 1, 3]], np.int32)
    model = sequential((3,), table, dtype="int32")
    report = measure(model, ids, loss=lambda y, p: tf.reduce_sum(p * weight))
    assert facts(tensor(report, "weight_gradient", "table/embeddings")) == expected(weight)


class Idle(keras.layers.Layer):
    def build(self, shape: Any) -> None:
        self.spare = self.add_weight(shape=(3,), initializer="ones", name="spare")

    def call(self, x: Any) -> Any:
        return 2.0 * x


def test_a_weight_that_nothing_depends_on_has_no_gradient_elements() -> None:
    report = measure(sequential((3,), keras.layers.Dense(2), Idle(name="idle")), X)
    found = [facts(tensor(report, kind, "idle/spare")) for kind in ("weight", "weight_gradient")]
    assert found == [expected([1, 1, 1]), expected([])]


def test_a_frozen_layer_has_weights_and_no_gradients_of_them() -> None:
    frozen = keras.layers.Dense(2, name="frozen", trainable=False)
    report = measure(sequential((3,), frozen, keras.layers.Dense(1, name="out")), X)
    found = [names(report, kind) for kind in ("weight", "weight_gradient", "gradient")]
    assert found == [
        ["frozen/kernel", "frozen/bias", "out/kernel", "out/bias"],
        ["out/kernel", "out/bias"],
        ["out"],
    ]


def test_a_frozen_layer_behind_a_trained_one_has_the_gradient_of_its_output() -> None:
    frozen = keras.layers.Dense(2, name="frozen", trainable=False)
    report = measure(sequential((3,), keras.layers.Dense(2, name="in"), frozen), X)
    assert facts(tensor(report, "gradient", "frozen")) == expected(np.ones((2, 2)))


def test_tensors_are_in_the_order_of_execution_by_kind() -> None:
    first, second = keras.layers.Dense(2, name="z"), keras.layers.Dense(1, name="a")
    report = measure(sequential((3,), first, second), X)
    assert [(one.kind, one.path) for one in report.tensors] == [
        ("input", "@input/0"),
        ("output", "z"),
        ("output", "a"),
        ("gradient", "z"),
        ("gradient", "a"),
        ("weight", "z/kernel"),
        ("weight", "z/bias"),
        ("weight", "a/kernel"),
        ("weight", "a/bias"),
        ("weight_gradient", "z/kernel"),
        ("weight_gradient", "z/bias"),
        ("weight_gradient", "a/kernel"),
        ("weight_gradient", "a/bias"),
    ]


@pytest.mark.parametrize("batches", [0, -1, 1.5, True, "2", None])
def test_a_count_of_batches_that_is_none_is_refused(batches: Any) -> None:
    with pytest.raises(InputsError, match="Expected a whole number of batches from 1 up"):
        measure(dense(), X, Y, loss="mse", batches=batches)


def test_a_dataset_without_batches_is_refused() -> None:
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(2).take(0)
    with pytest.raises(InputsError, match=r"The data hold no batch\."):
        measure(dense(), data, loss="mse")


def test_a_precision_that_is_not_half_is_refused() -> None:
    with pytest.raises(PrecisionError):
        measure(dense(), X, Y, loss="mse", precision="float32")


@pytest.mark.parametrize("scale", [0, -1.0, float("nan"), float("inf"), "8"])
def test_a_loss_scale_that_cannot_be_one_is_refused(scale: Any) -> None:
    with pytest.raises(OptimizerError, match="Expected a positive finite loss scale"):
        measure(dense(), X, Y, loss="mse", loss_scale=scale)


def test_a_model_without_a_loss_is_refused() -> None:
    with pytest.raises(ModelError, match=r"The model has no loss\."):
        measure(dense(), X, Y, loss=None)


def test_the_report_is_printed_unless_asked_not_to(capsys: pytest.CaptureFixture[str]) -> None:
    report = measure(dense(), X, loss=summed, verbose=1)
    assert capsys.readouterr().out == f"{report}\n"
