"""What a pin changes at once, and what it must not do to the code around it."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import tf_amp_kit as amp
from tests.precision.pinning import models
from tf_amp_kit.precision.pinning.effects import find_conflicts
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import OUTPUTS

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")


@pytest.fixture(autouse=True)
def _mixed(half):
    keras.config.set_dtype_policy(f"mixed_{half}")


def inputs(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_a_pinned_head_gives_what_the_float32_head_gives_on_the_same_features():
    model = models.chain(layers.Dense(8, name="body"))
    body = keras.Model(model.inputs[0], model.get_layer("body").output)
    features = body(inputs(16, 4)).numpy().astype("float32")
    kernel, bias = model.get_layer("head").get_weights()
    logits = features @ kernel + bias
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    amp.pin_float32(model)
    np.testing.assert_allclose(model.predict(inputs(16, 4), verbose=0), expected, rtol=1e-6)


@pytest.mark.parametrize("method", ["predict", "evaluate", "fit"])
def test_functions_that_were_traced_before_are_renewed(method):
    model = models.chain(layers.Dense(8, name="body"), activation=None)
    model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mae"])
    x, y = inputs(8, 4), inputs(8, 2)
    args = {"predict": (x,), "evaluate": (x, y), "fit": (x, y)}[method]
    run = {
        "predict": lambda: model.predict(*args, verbose=0),
        "evaluate": lambda: model.evaluate(*args, verbose=0),
        "fit": lambda: list(model.fit(*args, verbose=0, shuffle=False).history.values()),
    }[method]
    before = np.asarray(run(), "float64")
    pins = amp.pin_float32(model, "body", "head")
    pinned = np.asarray(run(), "float64")
    pins.undo()
    after = np.asarray(run(), "float64")
    np.testing.assert_array_equal(after, before)
    assert not np.array_equal(pinned, before)


def test_weights_and_optimizer_state_stay():
    model = models.chain(layers.Dense(8, name="body"))
    model.compile("adam", "mse")
    model.fit(inputs(8, 4), inputs(8, 2), verbose=0)
    weights = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    amp.pin_float32(model)
    kept = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    assert all(np.array_equal(a, b) for a, b in zip(weights, kept, strict=True))
    assert int(model.optimizer.iterations.numpy()) == 1


def test_symbolic_dtypes_follow_through_nested_models_and_back(half):
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4, name="up")], name="inner")
    x = keras.Input((4,))
    model = keras.Model(x, layers.Flatten(name="flat", dtype="float32")(inner(x)) * 2)
    outer = keras.Model(x, inner(x) * 2)
    pins = amp.pin_float32(outer, "inner/up")
    assert (inner.outputs[0].dtype, outer.outputs[0].dtype) == ("float32", "float32")
    pins.undo()
    assert (inner.outputs[0].dtype, outer.outputs[0].dtype) == (half, half)
    assert model.outputs[0].dtype == "float32"


def test_the_symbolic_dtype_of_what_follows_in_half_stays_half(half):
    model = models.chain(layers.Dense(4, name="body"), layers.ReLU(name="relu"))
    amp.pin_float32(model, "body")
    dtypes = [layer.output.dtype for layer in model.layers]
    assert dtypes == ["float32", half, half]


def test_the_symbolic_dtype_of_a_layer_that_computes_with_its_weight_follows_and_goes_back(half):
    class Scale(layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=())

        def call(self, inputs):
            return self.scale * ops.ones((2, 2), self.compute_dtype)

    x = keras.Input((4,))
    model = keras.Model(x, Scale(name="scale")(x))
    pins = amp.pin_float32(model, "scale")
    assert model.outputs[0].dtype == "float32"
    pins.undo()
    assert model.outputs[0].dtype == half


def test_a_pin_that_would_make_code_raise_is_an_error_and_leaves_nothing():
    model = models.chain(models.Residual(name="block"))
    before = models.dtypes(model)
    message = "The code around 'block/dense' cannot take its float32 result"
    with pytest.raises(amp.errors.PinError, match=re.escape(message)) as error:
        amp.pin_float32(model, "block/dense")
    assert "models.py:" in str(error.value)
    assert "Pin 'block' as a whole" in str(error.value)
    assert models.dtypes(model) == before
    model(inputs(2, 4))
    assert amp.pin_float32(model, "block").paths == ("block",)
    model(inputs(2, 4))


def test_without_targets_such_a_layer_is_left_and_told():
    model = keras.Sequential([keras.Input((4,)), models.Residual(name="block")])
    pins = amp.pin_float32(model)
    assert pins.paths == ("block/norm",)
    assert pins.remarks[0].startswith("Left in half: block/dense, or block raises: ")
    model(inputs(2, 4))


def scored():
    inputs = keras.Input(batch_shape=(8, 4))
    block = models.Scored(name="block")(layers.Dense(4)(inputs))
    return keras.Model(inputs, layers.Dense(2, name="head")(block))


def test_without_targets_no_product_around_becomes_float32():
    model = scored()
    pins = amp.pin_float32(model)
    assert "block/norm" not in pins.paths
    assert "Left in half: block/norm, or block would run MatMul in float32." in pins.remarks


def test_with_targets_such_a_product_is_told():
    model = scored()
    pins = amp.pin_float32(model, "block/norm")
    assert pins.paths == ("block/norm",)
    assert pins.remarks[0] == "With block/norm pinned, block would run MatMul in float32."


def test_without_targets_no_product_between_layers_becomes_float32_either():
    first, unit, head = layers.Dense(4), layers.UnitNormalization(name="unit"), layers.Dense(2)
    keras.config.set_dtype_policy("float32")  # the model's own policy does nothing
    x = keras.Input(batch_shape=(8, 4))
    hidden = first(x)
    model = keras.Model(x, head(ops.matmul(unit(hidden), ops.transpose(hidden))))
    pins = amp.pin_float32(model)
    assert pins.paths == ("dense_1",)
    assert pins.remarks == ("Left in half: unit, or the model would run MatMul in float32.",)


def test_only_the_pin_that_feeds_such_a_product_is_left():
    x = keras.Input(batch_shape=(8, 4))
    hidden = layers.Dense(4)(layers.UnitNormalization(name="unit")(layers.Dense(4)(x)))
    model = keras.Model(x, layers.Dense(2, name="head")(models.Scored(name="block")(hidden)))
    assert amp.pin_float32(model).paths == ("unit", "head")


def test_a_product_that_was_float32_before_is_held_against_no_pin():
    class Wide(models.Scored):
        def call(self, inputs):
            norm, dense = (ops.cast(one(inputs), "float32") for one in (self.norm, self.dense))
            return ops.matmul(norm, ops.transpose(dense))

    x = keras.Input(batch_shape=(8, 4))
    model = keras.Model(x, layers.Dense(2, name="head")(Wide(name="block")(layers.Dense(4)(x))))
    pins = amp.pin_float32(model)
    assert pins.paths == ("block/norm", "head")
    assert pins.remarks == ()


def test_a_product_of_a_pinned_models_own_code_is_not_told():
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.head = layers.Dense(4)

        def call(self, inputs):
            return ops.matmul(self.head(inputs), ops.ones((4, 2), inputs.dtype))

    model = Net()
    model(inputs(2, 4))
    pins = amp.pin_float32(model, model)
    assert pins.paths == ("",)
    assert "MatMul" not in str(pins)


def test_code_that_raised_before_is_held_against_no_pin():
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.body, self.unit = layers.Dense(4), layers.UnitNormalization()

        def build(self, shape):
            self.body.build(shape)
            self.built = True

        def call(self, inputs):
            return self.body(inputs) + ops.cast(self.unit(inputs), "float32")

    model = Net()
    model.build((None, 4))
    assert amp.pin_float32(model, "unit", inputs=(None, 4)).paths == ("unit",)


def test_code_that_would_raise_is_told_once():
    class Both(models.Scored):
        def call(self, inputs):
            return super().call(inputs + self.norm(inputs))

    x = keras.Input(batch_shape=(8, 4))
    model = keras.Model(x, layers.Dense(2, name="head")(Both(name="block")(layers.Dense(4)(x))))
    (remark,) = amp.pin_float32(model).remarks
    assert remark.startswith("Left in half: block/norm, or block raises: ")


def test_code_that_would_raise_in_training_is_an_error_whatever_it_does_otherwise():
    class Modal(models.Passing):
        def call(self, inputs, training=False):
            norm = self.norm(inputs)
            dense = self.dense(ops.matmul(norm, ops.ones((4, 4), inputs.dtype)))
            return inputs + norm if training else dense

    model = models.chain(Modal(name="block"))
    with pytest.raises(amp.errors.PinError, match="cannot take its float32 result"):
        amp.pin_float32(model, "block/norm")


def test_where_all_pins_are_left_the_remarks_say_only_that(half):
    with amp.amp_scope(half, level="O2"):
        model = keras.Sequential([keras.Input((4,)), models.Residual(name="block")])
        pins = amp.pin_float32(model)
    assert pins.paths == ()
    (remark,) = pins.remarks
    assert remark.startswith("Left in half: block/dense, or block raises: ")


def test_an_audit_shows_the_pins_and_finds_nothing_against_them(half):
    model = models.chain(layers.UnitNormalization(), models.Passing(name="block"))
    amp.pin_float32(model)
    amp.pin_float32(model, "block/dense")
    report = amp.audit_layer_dtypes(model, verbose=0)
    remarks = {row.path: row.remark for row in report.rows}
    assert {path for path, remark in remarks.items() if remark == "pinned"} == {
        "unit_normalization",
        "block/norm",
        "block/dense",
        "head",
    }
    assert report.findings_at_least("warning") == ()


def test_undone_pins_are_not_shown(half):
    model = models.chain(layers.UnitNormalization())
    amp.pin_float32(model).undo()
    report = amp.audit_layer_dtypes(model, verbose=0)
    assert {row.remark for row in report.rows} == {""}


def test_an_audit_asks_for_the_pins_of_the_level_once(half):
    with amp.amp_scope(half):
        model = models.chain(layers.UnitNormalization())
        (finding,) = [
            one for one in amp.audit_layer_dtypes(model, verbose=0).findings if one.code == "AMP108"
        ]
        assert (finding.path, finding.affects) == ("", ("unit_normalization", "head"))
        amp.pin_float32(model)
        assert "AMP108" not in {
            one.code for one in amp.audit_layer_dtypes(model, verbose=0).findings
        }


def test_an_audit_asks_for_no_pins_where_nobody_asked_for_a_level():
    report = amp.audit_layer_dtypes(models.chain(layers.UnitNormalization()), verbose=0)
    assert "AMP108" not in {one.code for one in report.findings}


def test_an_audit_asks_for_the_given_pins(half, tmp_path):
    with amp.amp_scope(half):
        amp.pin_float32(models.chain(layers.Dense(4, name="body")), "body").save(tmp_path / "pins")
    with amp.amp_scope(half, pins=tmp_path / "pins"):
        model = models.chain(layers.Dense(4, name="body"))
        finding = amp.audit_layer_dtypes(model, verbose=0, ignore=("AMP201", "AMP202")).findings[0]
    assert (finding.code, finding.affects) == ("AMP108", ("body",))


def test_the_symbolic_dtype_follows_through_a_layer_that_casts_nothing():
    class Raw(layers.Layer):
        def __init__(self):
            super().__init__(autocast=False)

        def call(self, inputs):
            return inputs

    x = keras.Input((4,))
    model = keras.Model(x, Raw()(layers.Dense(4, name="dense")(x)))
    amp.pin_float32(model, "dense")
    assert model.outputs[0].dtype == model(inputs(2, 4)).dtype.name == "float32"


def conflicts_of(model, *pinned, before=()):
    """What pins break that ran before, with other layers in float32 already."""
    paths = dict(LayerPaths(model))
    traces = [
        trace_step(
            model,
            (inputs(2, 4),),
            in_float32=[paths[one] for one in wide],
            until=OUTPUTS,
            training=False,
        ).trace
        for wide in (before, (*before, *pinned))
    ]
    return list(find_conflicts(*traces, pinned))


class Sum(models.Passing):
    """A block that adds what its two layers make of one input."""

    def call(self, inputs):
        return tf.add(self.norm(inputs), self.dense(inputs))


def test_a_pin_that_breaks_the_code_around_it_is_named_with_the_error(half):
    (harm,) = conflicts_of(models.chain(models.Residual(name="block")), "block/dense")
    assert (harm.path, harm.around, harm.conflict.path) == ("block/dense", "block", "block")
    assert set(harm.conflict.dtypes) == {half, "float32"}
    assert harm.reason == f"block raises: {harm.conflict.message.rstrip('.')}"


def test_only_the_pins_are_named_whose_results_meet_others():
    # Of norm's result only `dense` hears, which casts it.
    model = models.chain(models.Residual(name="block"))
    harms = conflicts_of(model, "block/norm", "head", "block/dense")
    assert [one.path for one in harms] == ["block/dense"]


def test_pins_that_break_nothing_are_not_named():
    model = models.chain(models.Residual(name="block"))
    assert conflicts_of(model, "block/norm") == conflicts_of(model, "block") == []


@pytest.mark.parametrize("pin", ["block/norm", "block/dense"])
def test_either_of_two_results_in_float32_breaks_their_sum(pin):
    (harm,) = conflicts_of(models.chain(Sum(name="block")), pin)
    assert (harm.path, harm.around) == (pin, "block")


def test_both_results_in_float32_go_together():
    assert conflicts_of(models.chain(Sum(name="block")), "block/norm", "block/dense") == []


def test_what_raised_before_is_not_the_pin_s_fault():
    model = models.chain(Sum(name="block"))
    assert conflicts_of(model, "head", before=("block/norm",)) == []


def test_the_code_of_the_model_itself_is_called_the_model():
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.a, self.b = layers.Dense(4), layers.Dense(4)

        def call(self, x):
            return tf.add(self.a(x), self.b(x))

    model = Net()
    model(inputs(2, 4))
    (harm,) = conflicts_of(model, "b")
    assert (harm.path, harm.around) == ("b", "")
    assert harm.reason.startswith("the model raises: ")
