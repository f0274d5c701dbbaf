"""Plans that are made by running small models, from the first comparison to the last check."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import tf_amp_kit as amp
from tf_amp_kit.errors import InputsError, ModelError, PrecisionError
from tf_amp_kit.tracing.paths import LayerPaths

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((96, 6)).astype("float32")
Y = RANDOM.standard_normal((96, 2)).astype("float32")


ROUGH = 0.02


class Exp(layers.Layer):
    """Overflows float16 above 11.09."""

    def call(self, inputs):
        return ops.exp(inputs)


class Residual(layers.Layer):
    """Adds by an operator, which takes no float32 number beside a half one."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(6, dtype=self.dtype_policy)

    def build(self, input_shape):
        self.dense.build(input_shape)

    def call(self, inputs):
        return inputs + self.dense(inputs)


class BigSquares(Residual):
    """Is finite in each layer, and not between them in float16: 300 squared is 90,000."""

    def call(self, inputs):
        near_300 = self.dense(inputs) * 0.01 + 300.0
        return near_300 * near_300 / 300.0 / 300.0


@pytest.fixture(autouse=True)
def _seeded():
    keras.utils.set_random_seed(1)


def mlp(*middle, width=6, outputs=2):
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(width, name="first"),
            *middle,
            layers.Dense(outputs, name="head"),
        ],
        name="net",
    )
    model.compile("sgd", "mse")
    return model


def fragile():
    """Exp of about 12, and small again: only `exp` and `small` have to be in float32.

    Within `ROUGH`: a rounded 12 makes 0.4 % in the exponential.
    """
    to_12 = layers.Rescaling(0.01, 12.0, name="to_12")
    return mlp(
        to_12, Exp(name="exp"), layers.Rescaling(1e-5, name="small"), layers.Dense(6, name="last")
    )


def plan_of(model, data=X, y=None, **options):
    return amp.plan_precision(model, data, y, **{"time_steps": False, "verbose": 0} | options)


def deep(count=6):
    return mlp(*(layers.Dense(6, activation="tanh", name=f"d{i}") for i in range(count)))


# Plans are made once for all tests that only read them.


@pytest.fixture(scope="module")
def fragile_plan():
    keras.utils.set_random_seed(1)
    return plan_of(fragile(), precision="fp16", tolerance=ROUGH)


@pytest.fixture(scope="module")
def deep_model():
    keras.utils.set_random_seed(1)
    return deep()


@pytest.fixture(scope="module")
def deep_plan(deep_model):
    """Within half of what all in half precision costs, checked on the samples left."""
    half = plan_of(deep_model, precision="bf16", validation=X[64:]).half
    return plan_of(deep_model, precision="bf16", tolerance=half.output / 2, validation=X[64:])


@pytest.fixture(scope="module")
def tight_plan():
    """Within less than the format can do, with as many probes as there are outputs."""
    keras.utils.set_random_seed(1)
    model = deep(3)
    return model, plan_of(model, precision="bf16", tolerance=1e-4, validation=X[64:], probes=4)


def error_of(model, reference, x):
    wide, half = (
        np.asarray(ops.cast(one(x, training=False), "float32")) for one in (reference, model)
    )
    return np.linalg.norm(half - wide) / np.linalg.norm(wide)


def fingerprint(model):
    """Everything of a model and of the process that planning must leave alone."""
    return (
        [one.tobytes() for one in model.get_weights()],
        [one.numpy().tobytes() for one in model.non_trainable_variables],
        [(path, layer.dtype_policy.name, layer.compute_dtype) for path, layer in LayerPaths(model)],
        [id(getattr(model, f"{name}_function")) for name in ("train", "test", "predict")],
        None
        if model.optimizer is None
        else [v.numpy().tobytes() for v in model.optimizer.variables],
        keras.config.dtype_policy().name,
        random.getstate(),
        np.random.get_state()[1].tobytes(),
        [vars(layer).keys() for _, layer in LayerPaths(model)],
        keras.layers.Layer.__call__,
        keras.layers.Layer.__dict__["compute_dtype"],
    )


def _loss_of(model, part):
    outputs = np.asarray(ops.cast(model(X[part], training=False), "float32"), np.float64)
    return np.square(outputs - Y[part]).mean()


class TestCleanModels:
    def test_a_clean_model_gets_an_empty_plan_in_one_comparison(self):
        plan = plan_of(mlp(layers.ReLU()), X, Y, precision="fp16")

        assert (plan.pins.paths, plan.units, plan.num_validations) == ((), (), 1)
        assert plan.meets_tolerance

    def test_what_all_half_costs_is_what_running_both_models_gives(self):
        model = mlp(layers.ReLU())
        twin = amp.convert_model(model, "bf16")

        plan = plan_of(model, X, Y, precision="bf16", validation=(X[64:], Y[64:]))

        assert plan.half.output == pytest.approx(error_of(twin, model, X[:64]), rel=1e-3)
        assert plan.half_held_out.output == pytest.approx(error_of(twin, model, X[64:]), rel=1e-3)

    def test_the_loss_and_the_gradients_are_compared_where_there_is_a_loss(self):
        model = mlp(layers.ReLU())

        plan = plan_of(model, X, Y, precision="bf16", validation=(X[64:], Y[64:]))

        wide, half = (
            [_loss_of(net, part) for part in (slice(32), slice(32, 64))]
            for net in (model, amp.convert_model(model, "bf16"))
        )
        change = sum(abs(one - other) for one, other in zip(wide, half, strict=True)) / sum(wide)
        assert plan.half.loss == pytest.approx(change, rel=1e-2)
        assert 0.99 < plan.half.gradient_cosine <= 1
        assert 0 < plan.half.gradient < 0.1

    def test_without_a_loss_only_outputs_are_compared(self):
        plan = plan_of(keras.Sequential([keras.Input((6,)), layers.Dense(2)]), precision="fp16")

        assert (plan.half.loss, plan.half.gradient, plan.between_batches) == (None, None, None)

    def test_two_batches_differ_as_their_gradients_do(self):
        model = mlp()
        x = np.concatenate([X[:32], X[32:64]])

        plan = plan_of(model, x, Y[:64], precision="fp16")

        def gradient(part):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(keras.losses.mean_squared_error(Y[part], model(x[part])))
            found = tape.gradient(loss, [one.value for one in model.trainable_variables])
            return np.concatenate([np.ravel(one) for one in found])

        one, other = gradient(slice(32)), gradient(slice(32, 64))
        cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        assert plan.between_batches.gradient_cosine == pytest.approx(cosine, rel=1e-4)
        difference = np.linalg.norm(one - other) / np.linalg.norm(one)
        assert plan.between_batches.gradient == pytest.approx(difference, rel=1e-4)


class TestPlantedLayers:
    def test_layers_that_make_infinities_are_found_exactly(self, fragile_plan):
        assert set(fragile_plan.pins.paths) == {"exp", "small"}
        assert fragile_plan.half.output == np.inf
        assert fragile_plan.planned.output < ROUGH

    def test_layers_that_overflow_on_other_batches_alone_are_found_one_after_the_other(self):
        # On the batches of the search both are exact, and last in the order.
        fragile = [Exp(name="exp"), layers.Rescaling(2.0**-17, name="small")]
        model = keras.Sequential([keras.Input((6,)), *fragile, layers.Dense(3), layers.Dense(2)])
        zeros, twelves = np.zeros((64, 6), "float32"), np.full((64, 6), 12, "float32")

        plan = plan_of(model, zeros, validation=twelves, precision="fp16", tolerance=ROUGH)

        assert set(plan.pins.paths) == {"exp", "small"}
        assert plan.planned_held_out.output < ROUGH

    def test_the_reason_of_what_makes_infinities_is_told(self, fragile_plan):
        reasons = {unit.path: unit.reason for unit in fragile_plan.units}
        assert reasons["exp"] == "non-finite"
        assert fragile_plan.pins.pins[0].reason == "makes NaN or Inf in float16"

    def test_bfloat16_has_the_range_and_needs_no_pin(self):
        assert plan_of(fragile(), precision="bf16", tolerance=0.1).pins.paths == ()

    def test_each_pin_is_measured_without(self, fragile_plan):
        pinned = [unit for unit in fragile_plan.units if unit.is_pinned]
        assert [unit.measured_without for unit in pinned] == [np.inf, np.inf]

    def test_what_overflows_between_layers_is_pinned_as_the_layer_that_runs_it(self):
        plan = plan_of(
            mlp(BigSquares(name="squares"), layers.Dense(4, name="last")), precision="fp16"
        )

        assert plan.pins.paths == ("squares",)

    def test_an_overflow_outside_of_layers_is_pinned_where_it_comes_from(self):
        inputs = keras.Input((6,))
        near_300 = [
            layers.Rescaling(scale, 300.0, name=name)(inputs)
            for name, scale in (("hub", 1.0), ("left", 2.0), ("right", -1.0))
        ]
        means = [ops.sqrt(ops.multiply(near_300[0], one)) for one in near_300[1:]]
        near_1 = [layers.Rescaling(1 / 256, name=f"to_1_{i}")(one) for i, one in enumerate(means)]
        model = keras.Model(inputs, layers.Multiply(name="gate")(near_1))

        plan = plan_of(model, precision="fp16")

        assert plan.pins.paths == ("hub",)
        assert plan.planned.output < 0.002


class TestSearch:
    def test_a_tolerance_half_of_all_half_is_met_on_all_batches(self, deep_plan):
        assert 0 < len(deep_plan.pins.paths) < 8
        assert deep_plan.meets_tolerance
        assert deep_plan.num_validations <= 7 + len(deep_plan.pins.paths)

    def test_the_measured_error_is_what_the_pinned_model_has(self, deep_model, deep_plan):
        twin = amp.convert_model(deep_model, "bf16")
        amp.apply_plan(twin, deep_plan)

        found = [deep_plan.planned.output, deep_plan.planned_held_out.output]
        expected = [error_of(twin, deep_model, X[part]) for part in (slice(64), slice(64, None))]
        assert found == pytest.approx(expected, rel=1e-3)

    def test_scores_are_what_each_layer_does_alone(self, tight_plan):
        model, plan = tight_plan
        twin = amp.convert_model(model, "bf16")
        for unit in plan.units:
            others = [one.path for one in plan.units if one.path != unit.path]
            pins = amp.pin_float32(twin, *others)
            # Two outputs per sample: four orthogonal probes see all there is.
            assert unit.score == pytest.approx(error_of(twin, model, X[:64]), rel=0.05)
            pins.undo()

    def test_the_prediction_for_all_in_half_is_within_a_quarter(self, deep_plan):
        assert deep_plan.curve[0].num_pins == 0
        assert deep_plan.curve[0].predicted == pytest.approx(deep_plan.half.output, rel=0.25)

    def test_a_tolerance_below_the_format_is_said_before_the_search(self, capsys):
        plan = plan_of(mlp(layers.ReLU()), precision="bf16", tolerance=1e-4, verbose=1)

        first = capsys.readouterr().out.splitlines()[0]
        assert first.startswith("A tolerance of 0.0001 is less than bfloat16 makes of one number")
        assert plan.meets_tolerance

    def test_the_number_of_runs_can_be_bounded(self):
        plan = plan_of(deep(3), precision="bf16", tolerance=1e-3, max_validations=2)

        assert plan.num_validations <= 2

    def test_the_same_seed_gives_the_same_plan(self):
        model = deep(2)

        plans = [plan_of(model, precision="bf16", tolerance=2e-3, seed=3) for _ in range(2)]

        assert plans[0].units == plans[1].units
        assert plans[0].pins == plans[1].pins

    @pytest.mark.parametrize("metric", ["loss", "gradient"])
    def test_other_metrics_are_brought_within_their_tolerance(self, metric):
        model = deep(2)
        half = getattr(plan_of(model, X, Y, precision="bf16").half, metric)

        plan = plan_of(model, X, Y, precision="bf16", metric=metric, tolerance=half / 3)

        assert plan.pins.paths
        assert getattr(plan.planned, metric) <= half / 3

    def test_scores_of_gradients_are_what_each_layer_does_alone(self):
        model = deep(2)
        plan = plan_of(model, X, Y, precision="bf16", metric="gradient", tolerance=1e-5, probes=16)

        twin = amp.convert_model(model, "bf16")
        for unit in plan.units:
            others = [one.path for one in plan.units if one.path != unit.path]
            pins = amp.pin_float32(twin, *others)
            alone = _gradient_error(twin, model)
            assert unit.score == pytest.approx(alone, rel=0.25)
            pins.undo()


def _gradient_error(model, reference):
    def gradients(net):
        parts = []
        for part in (slice(32), slice(32, 64)):
            with tf.GradientTape() as tape:
                outputs = tf.cast(net(X[part], training=False), tf.float32)
                loss = tf.reduce_mean(keras.losses.mean_squared_error(Y[part], outputs))
            found = tape.gradient(loss, [one.value for one in net.trainable_variables])
            parts += [np.ravel(one) for one in found]
        return np.concatenate(parts)

    wide, half = gradients(reference), gradients(model)
    return np.linalg.norm(half - wide) / np.linalg.norm(wide)


class TestUnits:
    def test_a_layer_whose_neighbours_cannot_take_float32_is_pinned_with_them(self):
        block = Residual(name="block")
        model = mlp(layers.Rescaling(100.0), block, layers.Dense(4, activation="tanh"))
        half = plan_of(model, precision="bf16").half.output

        plan = plan_of(model, precision="bf16", tolerance=half / 20)

        assert "block" in plan.pins.paths
        assert not any(path.startswith("block/") for path in plan.pins.paths)
        twin = amp.convert_model(model, "bf16")
        amp.apply_plan(twin, plan)
        assert np.isfinite(np.asarray(ops.cast(twin(X), "float32"))).all()

    def test_composites_of_keras_are_one_unit(self):
        inputs = keras.Input((5, 6))
        hidden = layers.MultiHeadAttention(2, 4, name="attention")(inputs, inputs)
        hidden = layers.Bidirectional(layers.LSTM(3), name="both")(hidden)
        model = keras.Model(inputs, layers.Dense(2, name="head")(hidden))

        plan = plan_of(model, RANDOM.standard_normal((64, 5, 6)), precision="bf16", tolerance=1e-4)

        assert {unit.path for unit in plan.units} == {"attention", "both", "head"}

    def test_layers_that_are_float32_already_stay(self):
        with amp.amp_scope("fp16"):
            model = fragile()
        pins = amp.pin_float32(model, "exp", "small")

        plan = plan_of(model, tolerance=ROUGH)

        assert (plan.precision, plan.units) == ("float16", ())
        assert plan.half.output < ROUGH
        # A fresh copy of the model needs them too.
        assert set(plan.pins.paths) == {"exp", "small"}
        pins.undo()


class TestInputs:
    def test_several_outputs_and_inputs_with_masks(self):
        tokens, numbers = (
            keras.Input((7,), dtype="int32", name="tokens"),
            keras.Input((3,), name="n"),
        )
        hidden = layers.LSTM(5, name="lstm")(layers.Embedding(11, 4, mask_zero=True)(tokens))
        joined = layers.Concatenate()([hidden, layers.Dense(4, name="side")(numbers)])
        outputs = {"a": layers.Dense(1, name="a")(joined), "b": layers.Dense(3, name="b")(joined)}
        model = keras.Model({"tokens": tokens, "n": numbers}, outputs)
        x = {"tokens": RANDOM.integers(11, size=(64, 7)), "n": RANDOM.standard_normal((64, 3))}

        plan = plan_of(model, x, precision="bf16", tolerance=3e-3)

        twin = amp.convert_model(model, "bf16")
        amp.apply_plan(twin, plan)
        searched = {key: value[:32] for key, value in x.items()}
        wide, half = model(searched), twin(searched)
        errors = [
            np.linalg.norm(np.asarray(ops.cast(half[key], "float32")) - np.asarray(wide[key]))
            / np.linalg.norm(wide[key])
            for key in "ab"
        ]
        assert np.hypot(*errors) == pytest.approx(plan.planned.output, rel=1e-3)

    def test_dropout_and_statistics_are_held_still(self):
        model = mlp(layers.BatchNormalization(), layers.Dropout(0.5), layers.GaussianNoise(1.0))

        plans = [plan_of(model, X, Y, precision="fp16") for _ in range(2)]

        assert plans[0].half == plans[1].half
        assert plans[0].half.output < 0.002

    def test_a_dataset_of_one_batch_has_none_to_check_on(self):
        data = tf.data.Dataset.from_tensors(X)

        plan = plan_of(mlp(), data, precision="fp16")

        assert plan.num_held_out_batches == 0
        assert "There was no second batch to check the plan on." in plan.notes

    def test_an_endless_dataset_is_read_as_far_as_needed(self):
        data = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(16)

        plan = plan_of(mlp(), data, precision="fp16")

        assert (plan.num_batches, plan.num_held_out_batches, plan.num_samples) == (4, 4, 64)


class TestErrors:
    def test_an_unknown_metric(self):
        with pytest.raises(PrecisionError, match=r"Unknown metric\. Expected one of"):
            plan_of(mlp(), metric="accuracy")

    @pytest.mark.parametrize("tolerance", [0, -1, float("nan"), float("inf"), "1", True])
    def test_what_is_no_tolerance(self, tolerance):
        with pytest.raises(PrecisionError, match="Expected a relative error above 0"):
            plan_of(mlp(), tolerance=tolerance)

    @pytest.mark.parametrize("name", ["probes", "max_validations"])
    def test_what_is_no_count(self, name):
        with pytest.raises(InputsError, match=f"Received: {name}=0"):
            plan_of(mlp(), **{name: 0})

    @pytest.mark.parametrize("metric", ["loss", "gradient"])
    def test_a_metric_without_a_loss(self, metric):
        model = keras.Sequential([keras.Input((6,)), layers.Dense(2)])

        with pytest.raises(ModelError, match="needs a loss"):
            plan_of(model, X, Y, metric=metric)

    def test_float32_that_is_not_finite_itself(self):
        with pytest.raises(InputsError, match="NaN or Inf in float32 already"):
            plan_of(mlp(), np.full((64, 6), np.nan, "float32"), precision="fp16")


class TestNothingIsLeftBehind:
    def test_a_model_is_bit_identical_after_planning(self):
        with amp.amp_scope("fp16"):
            model = fragile()
        model.fit(X, Y, verbose=0)
        model.predict(X, verbose=0)
        before = fingerprint(model)

        plan_of(model, X, Y)

        assert fingerprint(model) == before

    # Ten calls are all: of three comparisons, the probes with a shadow, and the search.
    @pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 9])
    def test_a_model_is_bit_identical_after_an_interruption(self, after, monkeypatch):
        with amp.amp_scope("fp16"):
            model = fragile()
        model.fit(X, Y, verbose=0)
        before = fingerprint(model)
        calls = iter(range(after))

        def call(self, inputs):
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return ops.exp(inputs)

        with monkeypatch.context() as patching:
            patching.setattr(Exp, "call", call)
            with pytest.raises(KeyboardInterrupt):
                plan_of(model, X, Y)

        assert fingerprint(model) == before


class TestApplying:
    def test_a_plan_saved_loaded_and_applied_to_a_fresh_copy_gives_the_same_numbers(
        self, tmp_path, fragile_plan
    ):
        file = tmp_path / "plan.json"
        fragile_plan.save(file)
        weights = fragile().get_weights()

        results = []
        for use in (
            fragile_plan,
            amp.PrecisionPlan.load(tmp_path / "plan.json"),
            tmp_path / "plan.json",
        ):
            with amp.amp_scope("fp16"):
                fresh = fragile()
            fresh.set_weights(weights)
            amp.apply_plan(fresh, use)
            results.append(np.asarray(fresh(X[:64])).tobytes())

        assert len(set(results)) == 1

    def test_the_scope_takes_a_plan_for_models_that_are_built_in_it(self, fragile_plan):
        with amp.amp_scope("fp16", pins=fragile_plan):
            model = fragile()
            pins = amp.pin_float32(model)

        assert set(pins.paths) == {"exp", "small"}

    def test_step_times_are_measured_for_all_three(self):
        plan = plan_of(fragile(), X, Y, precision="fp16", time_steps=True)

        times = plan.step_times
        assert times.what == "forward and backward pass"
        assert times.num_rounds >= 3
        for one in (times.float32, times.half, times.planned):
            assert 0 < one.low <= one.median <= one.high
