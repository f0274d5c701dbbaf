"""Plans of models that are unusual: what raises, what cannot be pinned, what is not there."""

from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import tf_amp_kit as amp
from tf_amp_kit.errors import ModelError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6)).astype(np.float32)
Y = RNG.normal(size=(40, 2)).astype(np.float32)

#: Less than float16 can do.
TINY = 1e-6


def plan_of(model: keras.Model, x: Any = X, y: Any = None, **options: Any) -> amp.PrecisionPlan:
    settings = {"precision": "fp16", "time_steps": False, "verbose": 0} | options
    return amp.plan_precision(model, x, y, **settings)


def net(*stack: layers.Layer) -> keras.Model:
    return keras.Sequential([keras.Input((6,)), *stack, layers.Dense(2, name="head")], name="net")


def reasons_of(plan: amp.PrecisionPlan) -> dict[str, str]:
    return {pin.path: pin.reason for pin in plan.pins.pins}


def note_with(plan: amp.PrecisionPlan, words: str) -> str:
    (found,) = (one for one in plan.notes if words in one)
    return found


# --- what cannot be pinned ---


class Adds(layers.Layer):
    """Adds by an operator, which takes no float32 number beside a half one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(autocast=False, **options)

    def call(self, x: Any, other: Any) -> Any:
        return ops.cast(x + other, self.compute_dtype)

    def compute_output_shape(self, x_shape: Any, other_shape: Any) -> Any:
        return x_shape


def test_layers_that_each_break_the_other_s_code_are_both_left_in_half():
    inputs = keras.Input((6,))
    hidden = layers.Dense(6, name="first")(inputs)
    one, other = Adds(name="one"), Adds(name="other")
    back = one(hidden, other(hidden, one(hidden, hidden)))
    model = keras.Model(inputs, layers.Dense(2, name="head")(back))

    plan = plan_of(model, tolerance=TINY)

    assert not {"one", "other"} & set(plan.pins.paths)
    assert "cannot be pinned, for the code around would raise" in note_with(plan, "cannot be")


class Sum(keras.Model):
    """Most of the error is that of `left`, which meets `right` in code of the model."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        wide = keras.initializers.RandomNormal(stddev=5.0)
        self.left = layers.Dense(2, kernel_initializer=wide, name="left")
        self.right = layers.Dense(2, name="right")

    def call(self, x: Any) -> Any:
        return self.left(x) + self.right(x)


def test_layers_whose_results_the_model_s_own_code_adds_cannot_be_pinned_one_by_one():
    model = Sum(name="sum")
    model(X)

    plan = plan_of(model, tolerance=plan_of(model).half.output / 2)

    assert note_with(plan, "cannot be pinned").startswith(
        "'left', 'right' cannot be pinned, for the code around would raise: the model raises: "
    )
    twin = amp.convert_model(model, "fp16")
    amp.apply_plan(twin, plan)
    assert np.isfinite(np.asarray(twin(X), np.float32)).all()


class Mixed(layers.Layer):
    """Adds a float32 constant by TensorFlow, which raises in half precision."""

    def call(self, x: Any) -> Any:
        return tf.add(x, tf.ones((6,)))

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


class TestRaising:
    def test_a_layer_that_raises_in_half_precision_is_pinned_for_that(self):
        plan = plan_of(net(layers.Dense(6, name="first"), Mixed(name="mixed")))

        assert reasons_of(plan) == {"mixed": "raises in float16"}
        assert plan.meets_tolerance

    def test_its_error_is_infinite_and_its_reason_told(self):
        plan = plan_of(net(Mixed(name="mixed")))

        (unit,) = (one for one in plan.units if one.path == "mixed")
        assert (unit.reason, unit.score, plan.half.output) == ("raises", np.inf, np.inf)
        assert "mixed raises in float16" in note_with(plan, "raises")

    def test_the_pinned_model_runs(self):
        model = net(layers.Dense(6, name="first"), Mixed(name="mixed"))
        twin = amp.convert_model(model, "fp16")
        amp.apply_plan(twin, plan_of(model))

        np.testing.assert_allclose(np.asarray(twin(X), np.float32), model(X), atol=0.01)


class TestEarlierPins:
    def test_they_are_carried_and_come_before_the_plan_s_own(self):
        with amp.amp_scope("fp16"):
            model = net(layers.Dense(6, name="first"), layers.Dense(6, name="second"))
        pins = amp.pin_float32(model, "second")

        plan = plan_of(model, tolerance=TINY)

        assert plan.pins.paths[0] == "second"
        assert set(plan.pins.paths) == {"first", "second", "head"}
        assert reasons_of(plan)["second"] == "pinned before"
        assert note_with(plan, "Pinned before") == "Pinned before the plan, and still: 'second'."
        assert model.get_layer("second").compute_dtype == "float32"
        pins.undo()


class Clipped(layers.Layer):
    """An infinity that nobody sees: exp(12) is 162,755, and 100 at most goes on."""

    def call(self, x: Any) -> Any:
        return ops.minimum(x, 100.0) / 100.0


class Exp(layers.Layer):
    def call(self, x: Any) -> Any:
        return ops.exp(x)


class TestHidden:
    def test_infinities_that_no_output_shows_are_noted(self):
        to_12 = layers.Rescaling(0.01, 12.0, name="to_12")
        model = net(layers.Dense(6), to_12, Exp(name="exp"), Clipped(name="clipped"))

        plan = plan_of(model)

        assert (plan.pins.paths, plan.meets_tolerance) == ((), True)
        expected = "'exp': there is NaN or Inf in float16 that no output shows."
        assert note_with(plan, "no output shows") == expected

    def test_nothing_is_said_of_a_clean_model(self):
        plan = plan_of(net(layers.Dense(6)))
        assert not any("no output shows" in one for one in plan.notes)


# --- models with nothing to compare ---


def built_in(policy: str) -> keras.Model:
    keras.config.set_dtype_policy(policy)
    return net(layers.Dense(6))


class TestRefused:
    def test_half_weights_have_no_float32_to_compare_with(self):
        with pytest.raises(ModelError, match="The model stores variables in float16"):
            plan_of(built_in("float16"))

    def test_float64_is_not_made_half(self):
        with pytest.raises(ModelError):
            plan_of(built_in("float64"))

    def test_integers_are_no_outputs_to_compare(self):
        x = keras.Input((6,))
        model = keras.Model(x, ops.argmax(layers.Dense(3)(x), axis=-1), name="net")
        with pytest.raises(ModelError, match=re.escape("'net' has no float outputs.")):
            plan_of(model)

    def test_integers_beside_floats_are_left_out(self):
        x = keras.Input((6,))
        logits = layers.Dense(3)(x)
        plan = plan_of(keras.Model(x, [logits, ops.argmax(logits, axis=-1)]))
        assert 0 < plan.half.output < 0.002

    @pytest.mark.parametrize("build", ["frozen", "weightless"])
    def test_without_trainable_weights_there_is_no_gradient(self, build):
        if build == "frozen":
            model = net(layers.Dense(6))
            model.trainable = False
        else:
            stack = layers.Rescaling(2.0), layers.Activation("tanh")
            model = keras.Sequential([keras.Input((6,)), *stack], name="net")
        model.compile("sgd", "mse")
        y = np.zeros(model.output_shape[1:], np.float32)[None].repeat(len(X), 0)
        with pytest.raises(ModelError, match=re.escape("'net' has no trainable weights.")):
            plan_of(model, X, y, metric="gradient")


# --- a loss that half precision cannot compute ---


def regularized() -> keras.Model:
    """Keras adds up float32 losses and half ones of the activations, which raises."""
    # Built in half precision: the conversion of a model warns of such a loss.
    keras.config.set_dtype_policy("mixed_float16")
    model = net(layers.Dense(6, activity_regularizer="l2", name="first"))
    model.compile("sgd", "mse")
    return model


class TestLossesThatRaise:
    def test_outputs_are_compared_all_the_same(self):
        plan = plan_of(regularized(), X, Y)

        assert 0 < plan.half.output < 0.002
        assert (plan.half.loss, plan.half.gradient) == (None, None)
        note = note_with(plan, "Only outputs were compared")
        assert note.startswith("Only outputs were compared, for the loss raises: ")

    @pytest.mark.parametrize("metric", ["loss", "gradient"])
    def test_a_metric_that_needs_it_is_refused(self, metric):
        message = f"The metric '{metric}' needs a loss, and this one cannot be computed in float16"
        with pytest.raises(ModelError, match=re.escape(message)):
            plan_of(regularized(), X, Y, metric=metric)
