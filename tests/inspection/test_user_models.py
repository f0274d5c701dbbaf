"""Models as users write them: each was once told wrongly, or not at all."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from tf_amp_kit.errors import InputsError, LoadError
from tf_amp_kit.inspection.audit import audit_layer_dtypes

from .expect import Expected, check

WIDTH = 8
BATCH = np.ones((2, WIDTH), "float32")


def head():
    return layers.Dense(1, dtype="float32", name="head")


def functional(make, shape=(WIDTH,)):
    inputs = keras.Input(shape)
    return keras.Model(inputs, head()(make(layers.Dense(WIDTH)(inputs))))


def audit(model, **kwargs):
    return audit_layer_dtypes(model, verbose=0, **kwargs)


def codes(report):
    return [one.code for one in report.findings if one.severity != "note"]


# Between layers: what Keras computes in float32 and returns in half is no fault.

CONTAINED = {
    "mean": lambda h: layers.Dense(WIDTH)(ops.mean(h, axis=1)),
    "variance": lambda h: layers.Dense(WIDTH)(ops.var(h, axis=1)),
    "casts there and back": lambda h: layers.Dense(WIDTH)(
        ops.cast(ops.exp(ops.cast(h, "float32")), h.dtype)
    ),
    "an index": lambda h: layers.Dense(WIDTH)(ops.one_hot(ops.argmax(h, -1), WIDTH, dtype=h.dtype)),
}


@pytest.mark.parametrize("name", CONTAINED)
def test_what_stays_between_layers_is_no_finding(name, half):
    check(audit(functional(CONTAINED[name], (4, WIDTH))))


class MeansInCall(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.head = layers.Dense(WIDTH), head()

    def call(self, inputs):
        return self.head(ops.mean(self.first(inputs), axis=1))


def test_a_mean_in_the_call_of_a_model_is_no_finding(half):
    check(audit(MeansInCall(), inputs=(None, 4, WIDTH)))


# Inputs of subclassed models, which remember shapes at most.


class LanguageModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.table, self.middle, self.head = layers.Embedding(50_000, 4), layers.Dense(4), head()

    def call(self, ids):
        return self.head(self.middle(self.table(ids)))


def test_ids_of_a_guessed_dtype_are_no_finding_but_a_remark(half):
    model = LanguageModel()
    model(np.ones((2, 5), "int32"))
    report = audit(model)
    check(report)
    assert any("taken for float32" in remark for remark in report.remarks)


def test_given_ids_leave_nothing_to_guess(half):
    report = audit(LanguageModel(), inputs=np.ones((2, 5), "int32"))
    check(report)
    assert report.remarks == ()


class TakesTuple(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.head = layers.Dense(WIDTH), head()

    def call(self, pair):
        one, other = pair
        return self.head(ops.concatenate([self.first(one), other], -1))


def test_a_tuple_of_inputs_is_remembered_as_one(half):
    model = TakesTuple()
    model((BATCH, np.ones((2, 3), "float32")))
    check(audit(model))


class TakesTwo(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = layers.Dense(WIDTH), layers.Dense(WIDTH), head()

    def call(self, one, other):
        return self.head(self.first(one) + self.second(other))


@pytest.mark.parametrize("inputs", [(BATCH, BATCH), {"one": BATCH, "other": BATCH}])
def test_a_call_with_two_arguments_takes_both(inputs, half):
    check(audit(TakesTwo(), inputs=inputs))


def test_a_call_that_misses_an_argument_is_an_error_with_the_way_out(half):
    with pytest.raises(InputsError, match="a dictionary of these by name"):
        audit(TakesTwo(), inputs=BATCH)


def test_a_dictionary_for_a_model_of_one_input_is_refused(half):
    with pytest.raises(InputsError, match="do not fit the model"):
        audit(functional(layers.ReLU()), inputs={"a": BATCH})


# The line of a product that something before it widened.


class ScalesThenMultiplies(layers.Layer):
    def call(self, inputs):
        queries = ops.multiply(inputs, np.float32(0.5))  # PLANTED
        scores = ops.matmul(queries, ops.transpose(inputs, (0, 2, 1)))
        return ops.cast(ops.matmul(scores, inputs), inputs.dtype)


def test_a_wide_product_is_told_by_the_line_that_widened(half):
    model = functional(ScalesThenMultiplies(name="fault"), (4, WIDTH))
    check(audit(model), (Expected("AMP103", "fault", planted=ScalesThenMultiplies),))


# A conflict does not hide the rest.


class Doubles(layers.Layer):
    def call(self, inputs):
        return ops.multiply(inputs, np.float32(2))  # PLANTED


class Clashes(keras.Model):
    def __init__(self):
        super().__init__()
        self.doubles, self.first, self.head = Doubles(), layers.Dense(WIDTH), head()

    def call(self, inputs):
        hidden = self.first(self.doubles(inputs))
        return self.head(hidden * tf.ones(WIDTH))  # PLANTED


def test_a_conflict_in_a_models_call_leaves_its_layers_to_be_looked_at(half):
    report = audit(Clashes(), inputs=(None, WIDTH))
    check(
        report,
        (
            Expected("AMP107", "", planted=Clashes),
            Expected("AMP101", "doubles", planted=Doubles),
        ),
        allowed=frozenset(),
    )


# What is no conflict of dtypes.


class AsksFirst(layers.Layer):
    def call(self, inputs):
        if not getattr(self, "asked", False):
            self.asked = True
            raise ValueError("call adapt() first")
        return inputs


def test_an_error_about_something_else_stays_the_users_own(half):
    layer = AsksFirst()
    with pytest.raises(ValueError, match=r"call adapt\(\) first"):
        audit(lambda: functional(layer))


class TakesFloat32Only(layers.Layer):
    def build(self, input_shape):
        signature = [tf.TensorSpec([None, None], tf.float32)]
        self.doubled = tf.function(lambda x: x * 2.0, input_signature=signature)

    def call(self, inputs):
        return self.doubled(inputs)  # PLANTED


def test_a_function_signed_for_float32_conflicts_with_half(half):
    expected = Expected("AMP107", "fault", planted=TakesFloat32Only)
    check(audit(lambda: functional(TakesFloat32Only(name="fault"))), (expected,))


# Builders.


def test_a_builder_that_returns_nothing_is_an_error():
    with pytest.raises(LoadError, match="returned NoneType"):
        audit(lambda: None)


# Loops hand tensors on in lists.


class WidensInMap(layers.Layer):
    def call(self, inputs):
        def double(row):
            return ops.multiply(row, np.float32(2))  # PLANTED

        return ops.map(double, inputs)

    def compute_output_shape(self, input_shape):
        return input_shape


class WidensInMapFn(layers.Layer):
    def call(self, inputs):
        def double(row):
            return tf.cast(row, "float32") * 2  # PLANTED

        return tf.map_fn(double, inputs, fn_output_signature="float32")

    def compute_output_shape(self, input_shape):
        return input_shape


@pytest.mark.parametrize("layer", [WidensInMap, WidensInMapFn])
def test_the_line_inside_a_loop_over_rows_is_found(layer, half):
    model = functional(layer(name="fault"))
    check(audit(model), (Expected("AMP101", "fault", planted=layer),))


# Masks that are made in float32 and cast.


class CastsMask(layers.Layer):
    def call(self, inputs):
        kept = ops.cast(inputs > 0, "float32")
        mask = (1.0 - kept) * -1e9  # PLANTED
        return ops.softmax(inputs + ops.cast(mask, inputs.dtype))


class CastsTriangle(layers.Layer):
    def call(self, inputs):
        mask = np.triu(np.full((WIDTH, WIDTH), -1e9, "float32"), 1)
        return inputs + tf.reduce_min(tf.cast(tf.constant(mask), inputs.dtype), 0)  # PLANTED


class CastsChosen(layers.Layer):
    def call(self, inputs):
        chosen = tf.where(inputs > 0, tf.constant(0.0), tf.constant(-1e9))  # PLANTED
        return inputs + tf.cast(chosen, inputs.dtype)


@pytest.mark.parametrize("layer", [CastsMask, CastsTriangle, CastsChosen])
def test_a_float32_mask_that_is_cast_overflows_float16_only(layer, half):
    expected = (Expected("AMP204", "fault", planted=layer, says=(r"-1e\+09",)),)
    check(audit(functional(layer(name="fault"))), expected if half == "float16" else ())


class CombinesMasks(layers.Layer):
    def call(self, inputs):
        padding = ops.cast(ops.equal(ops.sum(inputs, -1), 0), "float32")[:, None]
        ahead = 1 - ops.triu(ops.ones((WIDTH, WIDTH)), 1)[0]
        mask = ops.maximum(padding, ahead) * -1e9  # PLANTED
        return inputs + ops.cast(mask, inputs.dtype)


class MasksBetweenLayers(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.add, self.head = layers.Dense(WIDTH), layers.Add(), head()

    def call(self, inputs):
        mask = (1.0 - ops.tril(ops.ones((WIDTH, WIDTH))))[None, 0] * -1e9  # PLANTED
        return self.head(self.add([self.first(inputs), mask]))


def test_a_combined_mask_overflows_float16(half):
    expected = (Expected("AMP204", "fault", planted=CombinesMasks),)
    report = audit(functional(CombinesMasks(name="fault")))
    check(report, expected if half == "float16" else ())


def test_a_mask_that_a_built_in_layer_casts_overflows_all_the_same():
    keras.config.set_dtype_policy("mixed_float16")
    report = audit(MasksBetweenLayers(), inputs=(None, WIDTH))
    check(report, (Expected("AMP204", "", planted=MasksBetweenLayers),))


class CastsScaled(layers.Layer):
    """A large factor for values of any size: nobody knows whether that overflows."""

    def call(self, inputs):
        switch = ops.cast(inputs > 0, "float32")
        small = switch * 1e9 * -1.0 * 1e-6
        return ops.cast(ops.cast(inputs, "float32") * 1e6 / 1e6 + small, inputs.dtype)


def test_a_large_factor_of_data_is_no_mask(half):
    check(audit(functional(CastsScaled())))


class ClipsToOpenInterval(layers.Layer):
    def call(self, inputs):
        return ops.log(ops.clip(inputs, 1e-8, 1 - 1e-8))  # PLANTED


def test_two_constants_that_vanish_on_one_line_are_both_named():
    keras.config.set_dtype_policy("mixed_float16")
    report = audit(functional(ClipsToOpenInterval(name="fault")))
    messages = [one.message for one in report.findings if one.code == "AMP205"]
    assert sorted(messages) == [
        "the constant 0.99999999 becomes 1.0 in float16",
        "the constant 1e-08 becomes 0.0 in float16",
    ]


class LooksUpHistogram(layers.Layer):
    def call(self, inputs):
        levels = ops.cast(inputs * 255, "int32")
        counts = tf.math.bincount(levels, minlength=5000, maxlength=5000)
        return ops.cast(tf.gather(counts, levels), inputs.dtype)


def test_a_lookup_in_something_else_than_a_weight_is_no_embedding(half):
    check(audit(functional(LooksUpHistogram())))


# Optimizers, wherever they hang.


class OwnsOptimizers(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = head()
        self.first = layers.Dense(WIDTH)
        self.rules = {"slow": keras.optimizers.SGD(), "fast": [keras.optimizers.Adam()]}

    def call(self, inputs):
        return self.head(self.first(inputs))


def test_optimizers_in_containers_are_found():
    keras.config.set_dtype_policy("mixed_float16")
    report = audit(OwnsOptimizers(), inputs=(None, WIDTH))
    paths = [one.path for one in report.findings if one.code == "AMP301"]
    assert paths == ["@rules/slow", "@rules/fast/0"]


# Python code that a graph cannot run.


class AssertsBatch(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = head()
        self.first = layers.Dense(WIDTH)

    def call(self, inputs):
        assert inputs.shape[0] is not None
        return self.head(self.first(inputs))


def test_a_model_that_insists_on_its_batch_size_is_traced_with_one(half):
    report = audit(AssertsBatch(), inputs=BATCH)
    check(report)
    assert report.remarks == ()


# Samples in the forms that `fit` takes.


def test_a_dataset_as_sample_is_looked_at():
    keras.config.set_dtype_policy("mixed_float16")
    data = np.full((4, WIDTH), 1e5, "float32")
    dataset = tf.data.Dataset.from_tensors((data, np.zeros(4)))
    assert "AMP206" in codes(audit(functional(layers.ReLU()), sample=dataset))


def test_integers_as_sample_of_a_float_input_are_looked_at():
    keras.config.set_dtype_policy("mixed_float16")
    report = audit(functional(layers.ReLU()), sample=np.full((4, WIDTH), 10**6))
    assert "AMP206" in codes(report)


# Variables as arguments, which TensorFlow takes for tensors.


class Adds(layers.Layer):
    def call(self, inputs, other):
        return inputs + ops.cast(other, "float32")  # PLANTED


class AddsScaled(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.large = -1e9

    def call(self, inputs, mask):
        return inputs + self.large * ops.cast(mask, inputs.dtype)  # PLANTED


class GivesWeight(layers.Layer):
    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner

    def build(self, input_shape):
        self.mask = self.add_weight(shape=(WIDTH,), autocast=False, trainable=False, name="mask")

    def call(self, inputs):
        return self.inner(inputs, self.mask)


def test_a_weight_as_argument_does_not_hide_a_conflict(half):
    build = lambda: functional(GivesWeight(Adds(), name="outer"))  # noqa: E731 - a builder
    check(audit(build), (Expected("AMP107", "outer/inner", planted=Adds),))


def test_a_weight_as_argument_does_not_hide_a_constant():
    keras.config.set_dtype_policy("mixed_float16")
    report = audit(lambda: functional(GivesWeight(AddsScaled(), name="outer")))
    check(report, (Expected("AMP204", "outer/inner", planted=AddsScaled, says=(r"-1e\+09",)),))


# An error that float32 does not cure is looked into once, not once per level.


class CountsAndFails(layers.Layer):
    calls = 0

    def call(self, inputs):
        CountsAndFails.calls += 1
        return tf.cast(inputs, tf.float16) * tf.ones((WIDTH,))


class Nests(layers.Layer):
    def __init__(self, depth, **kwargs):
        super().__init__(**kwargs)
        self.inner = Nests(depth - 1) if depth else CountsAndFails()

    def call(self, inputs):
        return self.inner(inputs)

    def compute_output_shape(self, input_shape):
        return input_shape


class FailsDeepDown(keras.Model):
    def __init__(self):
        super().__init__()
        self.nest, self.head = Nests(10), head()

    def call(self, inputs):
        return self.head(self.nest(inputs))


def test_a_mistake_of_the_users_own_is_not_tried_at_every_level():
    keras.config.set_dtype_policy("mixed_bfloat16")
    CountsAndFails.calls = 0
    with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
        audit(FailsDeepDown(), inputs=tf.TensorSpec([None, WIDTH]))
    # Keras itself tries each level once while it builds, for each way to call the model that
    # is tried; twice per level is 2**10.
    assert CountsAndFails.calls < 300


# Heads of more than one layer.


def test_two_float32_heads_in_a_submodel_are_its_own_choice(half):
    inner = keras.Input((WIDTH,))
    heads = [layers.Dense(size, dtype="float32")(inner) for size in (2, 4)]
    submodel = keras.Model(inner, heads, name="heads")
    inputs = keras.Input((WIDTH,))
    check(audit(keras.Model(inputs, submodel(layers.Dense(WIDTH)(inputs)))))


# Python code that reads a sequence's length.


class StepsThrough(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.head = layers.Dense(WIDTH), head()

    def call(self, inputs):
        hidden = self.first(inputs)
        return self.head(sum(hidden[:, step] for step in range(ops.shape(inputs)[1])))


def test_a_model_that_steps_through_a_sequence_is_traced_at_a_fixed_length(half):
    report = audit(StepsThrough(), inputs=(None, None, WIDTH))
    check(report)
    assert report.remarks == ()


def test_a_shared_layer_that_reverts_is_one_finding(half):
    shared = layers.Lambda(lambda x: ops.multiply(x, np.float32(2)), name="shared")
    inputs = keras.Input((WIDTH,))
    hidden = shared(layers.Dense(WIDTH)(shared(inputs)))
    check(audit(keras.Model(inputs, head()(hidden))), (Expected("AMP101", "shared"),))
