"""One mistake is one finding, at its own place: what once was told twice, or not."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from tf_amp_kit.errors import InputsError
from tf_amp_kit.inspection.audit import audit_layer_dtypes

from .expect import Expected, check

WIDTH = 8


def head(**kwargs):
    return layers.Dense(1, dtype="float32", name="head", **kwargs)


def functional(make, shape=(WIDTH,)):
    inputs = keras.Input(shape)
    return keras.Model(inputs, head()(make(layers.Dense(WIDTH)(inputs))))


def audit(model, **kwargs):
    return audit_layer_dtypes(model, verbose=0, **kwargs)


def found(report, code):
    return [one for one in report.findings if one.code == code]


class Inner(layers.Layer):
    def call(self, inputs):
        return ops.multiply(inputs, np.float32(2))  # PLANTED


class AlsoReverts(layers.Layer):
    """Passes a reverting sublayer on, and makes a mistake of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = Inner()

    def call(self, inputs):
        own = ops.multiply(inputs, np.float32(3))  # PLANTED
        return self.inner(inputs) + own


def test_a_layers_own_mistake_is_told_beside_its_sublayers(half):
    check(
        audit(functional(AlsoReverts(name="outer"))),
        (
            Expected("AMP101", "outer", planted=AlsoReverts),
            Expected("AMP101", "outer/inner", planted=Inner),
        ),
    )


class MeetsWide(layers.Layer):
    """Adds a half tensor to what a sublayer widened: that is no second mistake."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = Inner()

    def call(self, inputs):
        return ops.add(self.inner(inputs), inputs)


def test_meeting_what_a_sublayer_widened_is_no_mistake(half):
    check(
        audit(functional(MeetsWide(name="outer"))),
        (Expected("AMP101", "outer/inner", planted=Inner),),
    )


class Passes(layers.Layer):
    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner

    def call(self, inputs):
        return self.inner(inputs)


def test_a_float32_layer_in_nested_half_layers_is_told_once_at_the_innermost(half):
    inner = Passes(layers.Dense(WIDTH, dtype="float32"))
    outer = Passes(Passes(inner), name="outer")
    report = audit(functional(lambda x: layers.Dense(WIDTH)(outer(x))))
    check(report, (Expected("AMP101", "outer/inner/inner", says=("sublayer",)),))
    assert found(report, "AMP106") == []
    assert {"outer", "outer/inner"} <= set(found(report, "AMP101")[0].affects)


class TwoProducts(layers.Layer):
    def call(self, inputs):
        wide = ops.cast(inputs, "float32")
        square = ops.matmul(wide, ops.transpose(wide, (0, 2, 1)))  # PLANTED
        cube = ops.matmul(square, wide)  # PLANTED
        return ops.cast(cube, inputs.dtype)


def test_wide_products_on_two_lines_are_two_findings(half):
    model = functional(TwoProducts(name="fault"), (4, WIDTH))
    check(audit(model), (Expected("AMP103", "fault", planted=TwoProducts, most=2),))
    assert len(found(audit(model), "AMP103")) == 2


class ReturnsDouble(layers.Layer):
    def call(self, inputs):
        return ops.multiply(inputs, np.ones(WIDTH))  # PLANTED


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_a_float32_layer_that_returns_float64_is_an_error(policy):
    keras.config.set_dtype_policy(policy)
    model = functional(ReturnsDouble(name="fault", dtype="float32"))
    check(audit(model), (Expected("AMP102", "fault", planted=ReturnsDouble),))


def test_float32_is_no_way_out_of_float64(half):
    (one,) = found(audit(functional(ReturnsDouble())), "AMP102")
    assert 'dtype="float32"' not in one.fix


def test_the_share_of_a_reversion_leaves_a_float32_head_out(half):
    model = keras.Sequential([keras.Input((WIDTH,)), Inner(), head()])
    (one,) = found(audit(model), "AMP101")
    assert "%" not in one.message


class HeadModel(keras.Model):
    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[-1], 1), name="kernel")

    def call(self, inputs):
        return ops.matmul(inputs, self.kernel)


def test_a_float32_model_as_head_is_its_own_choice(half):
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    check(audit(keras.Model(inputs, HeadModel(dtype="float32")(hidden))))


# Heads, and what comes after them.


def test_an_average_of_half_sigmoids_is_as_flat_as_they_are(half):
    inputs = keras.Input((WIDTH,))
    heads = [layers.Dense(1, "sigmoid", name=name)(inputs) for name in ("one", "other")]
    report = audit(keras.Model(inputs, layers.Average(dtype="float32")(heads)))
    assert {one.path for one in found(report, "AMP202")} == {"one", "other"}


# Losses of weights that are stored in half.


def test_a_regularizer_of_half_weights_is_found_before_fit_raises():
    keras.config.set_dtype_policy("bfloat16")
    regularized = layers.Dense(1, kernel_regularizer="l2", name="loses")
    model = keras.Sequential([keras.Input((4,)), regularized])
    model.compile("sgd", "mse")
    assert [one.path for one in found(audit(model), "AMP303")] == ["loses"]
    with pytest.raises(TypeError, match="bfloat16"):
        model.fit(np.ones((4, 4), "float32"), np.ones((4, 1), "float32"), verbose=0)


# Ids: counted ones are exact, shifted ones are not.


class LooksUp(layers.Layer):
    def __init__(self, ids, **kwargs):
        super().__init__(**kwargs)
        self.ids = ids

    def build(self, input_shape):
        self.table = self.add_weight(shape=(5000, WIDTH), name="table")

    def call(self, inputs):
        return ops.take(self.table, self.ids(inputs), axis=0)


def test_ids_that_argmax_counts_are_exact(half):
    model = functional(LooksUp(lambda x: ops.argmax(x, -1)))
    assert found(audit(model), "AMP207") == []


def test_shifted_ids_merge_all_the_same(half):
    model = functional(LooksUp(lambda x: 1 + ops.cast(x[:, 0], "int32")))
    assert len(found(audit(model), "AMP207")) == 1


# One constant, one finding; one missing kernel, one finding.


class CastsConstant(layers.Layer):
    def call(self, inputs):
        lowest = tf.constant(-1e9)
        return ops.maximum(inputs, ops.cast(lowest, inputs.dtype))


def test_a_constant_and_its_cast_on_two_lines_are_one_finding():
    keras.config.set_dtype_policy("mixed_float16")
    assert len(found(audit(functional(CastsConstant())), "AMP204")) == 1


class PoolsMoreInTraining(layers.Layer):
    def call(self, inputs, training=False):
        pooled = tf.nn.max_pool3d(inputs, 2, 2, "SAME")
        return tf.nn.avg_pool3d(pooled, 2, 1, "SAME") if training else pooled


def test_kernels_that_both_modes_lack_are_one_finding():
    keras.config.set_dtype_policy("mixed_float16")
    inputs = keras.Input((4, 4, 4, 1))
    hidden = layers.Flatten()(PoolsMoreInTraining()(inputs))
    (one,) = found(audit(keras.Model(inputs, head()(hidden))), "AMP401")
    assert "AvgPool3D, MaxPool3D have no float16 kernel on CPU" in one.message


# Samples that do not fit.


def two_inputs():
    inputs = [keras.Input((WIDTH,), name="a"), keras.Input((WIDTH,), name="b")]
    return keras.Model(inputs, head()(layers.Add()(inputs)))


LARGE = np.full((2, WIDTH), 1e6, "float32")


@pytest.mark.parametrize("sample", [[LARGE, LARGE], {"a": LARGE, "b": LARGE}])
def test_a_sample_is_matched_by_order_or_by_name(sample):
    keras.config.set_dtype_policy("mixed_float16")
    assert len(found(audit(two_inputs(), sample=sample), "AMP206")) == 2


@pytest.mark.parametrize("sample", [[LARGE], {"a": LARGE, "c": LARGE}, [LARGE, LARGE[:, :3]]])
def test_a_sample_that_does_not_fit_is_refused(sample, half):
    with pytest.raises(InputsError, match="sample does not fit the model"):
        audit(two_inputs(), sample=sample)


# Looking at what is hard to look at.


class Holds(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.shelf = {}
        object.__setattr__(self, "ring", [])
        self.ring.append(self.ring)

    def call(self, inputs):
        return inputs


def test_a_list_that_holds_itself_is_no_obstacle(half):
    check(audit(functional(Holds())))


class RefusesGraphs(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = head()

    def call(self, inputs):
        if tf.inside_function():
            raise RuntimeError("no graph please")
        return self.head(inputs)


def test_the_remark_of_an_eager_run_gives_the_reason(half):
    report = audit(RefusesGraphs(), inputs=np.ones((2, WIDTH), "float32"))
    assert any("RuntimeError: no graph please" in remark for remark in report.remarks)


def test_a_model_that_is_mostly_float32_is_remarked_on(half):
    keras.config.set_dtype_policy("float32")
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(layers.Dense(WIDTH)(inputs))
    keras.config.set_dtype_policy(f"mixed_{half}")
    report = audit(keras.Model(inputs, layers.Dense(WIDTH)(hidden)))
    assert "2 of 3 layers with weights compute in float32." in report.remarks


# Two mistakes that meet do not excuse each other.


class CastsUp(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(WIDTH)

    def call(self, inputs):
        return ops.cast(self.inner(inputs), "float32")  # PLANTED


class ReadsWide(layers.Layer):
    def build(self, input_shape):
        self.table = self.add_weight(shape=(WIDTH,), autocast=False, name="table")

    def call(self, inputs):
        return ops.convert_to_tensor(self.table)[None]


class AddsUp(keras.Model):
    def __init__(self, one, other):
        super().__init__()
        self.one, self.other = one, other
        self.middle, self.head = layers.Dense(WIDTH), head()

    def call(self, inputs):
        return self.head(self.middle(self.one(inputs) + self.other(inputs)))


@pytest.mark.parametrize("make", [CastsUp, ReadsWide])
def test_two_reverting_layers_whose_outputs_meet_are_both_told(make, half):
    report = audit(AddsUp(make(), make()), inputs=(None, WIDTH))
    assert {one.path for one in found(report, "AMP101")} == {"one", "other"}


class AddsTable(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = ReadsWide()

    def call(self, inputs):
        return ops.add(inputs, self.table(inputs))


def test_a_layer_that_adds_a_wide_table_is_not_blamed_for_it(half):
    report = audit(functional(AddsTable(name="outer")))
    assert [one.path for one in found(report, "AMP101")] == ["outer/table"]


# Layers of one class are of one kind only if all that they hold is the same.


class AddsSmall(layers.Layer):
    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = config

    def call(self, inputs):
        return inputs / (ops.std(inputs, -1, keepdims=True) + self.config["small"])


@pytest.mark.parametrize("order", [("bad", "fine"), ("fine", "bad")])
def test_layers_of_one_class_with_other_settings_are_told_apart(order):
    keras.config.set_dtype_policy("mixed_float16")
    small = {"bad": 1e-9, "fine": 0.0}
    made = [AddsSmall({"small": small[name]}, name=name) for name in order]
    report = audit(keras.Sequential([keras.Input((WIDTH,)), *made, head()]))
    assert [one.path for one in found(report, "AMP205")] == ["bad"]


# What a conflict widens for the sake of looking is not the sublayers' doing.


class Doubles(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(autocast=False, **kwargs)

    def call(self, inputs):
        return inputs * 2


class ClashesAround(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.doubles = layers.Dense(WIDTH), Doubles()

    def build(self, input_shape):
        self.first.build(input_shape)

    def call(self, inputs):
        return self.doubles(self.first(inputs)) * tf.ones((1, WIDTH))  # PLANTED


def test_a_sublayer_of_a_conflict_gets_what_it_would_have_got(half):
    check(
        audit(lambda: functional(ClashesAround(name="fault"))),
        (Expected("AMP107", "fault", planted=ClashesAround),),
    )
