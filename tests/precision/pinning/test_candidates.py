"""Which layers the levels pin, against what each model was made to hold."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import tf_amp_kit as amp
from tests.precision.pinning import models

# The bound of UnitNormalization, 1e-12, is made into a float16 constant.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")


def two_outputs():
    inputs = keras.Input((4,))
    trunk = layers.Dense(4, name="trunk")(inputs)
    outputs = {
        "label": layers.Dense(3, name="label", activation="softmax")(trunk),
        "age": layers.Dense(1, name="age")(trunk),
    }
    return keras.Model(inputs, outputs)


def residual_end():
    inputs = keras.Input((4,))
    first = layers.Dense(4, name="first")(inputs)
    second = layers.Dense(4, name="second")(first)
    return keras.Model(inputs, layers.ReLU(name="relu")(layers.Add(name="add")([first, second])))


def joined(join):
    def build():
        inputs = keras.Input((4,))
        trunk = layers.Dense(4, name="trunk")(inputs)
        heads = [layers.Dense(2, name="left")(trunk), layers.Dense(2, name="right")(trunk)]
        return keras.Model(inputs, join()(heads))

    return build


def gated():
    inputs, gate = keras.Input((4,)), keras.Input((4,))
    head = layers.Dense(2, name="head")(layers.Dense(4, name="trunk")(inputs))
    gate_out = layers.Dense(2, activation="tanh", name="gate")(gate)
    return keras.Model([inputs, gate], layers.Multiply(name="times")([head, gate_out]))


def beside_an_input():
    inputs = keras.Input((4,))
    ends = [layers.Dense(2, name="head")(inputs), layers.Flatten(name="flat")(inputs)]
    return keras.Model(inputs, layers.Concatenate(name="join")(ends))


def nested():
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dense(2)], name="inner")
    inputs = keras.Input((4,))
    return keras.Model(inputs, layers.Softmax(name="softmax")(inner(inputs)))


def shared_head():
    left, right = keras.Input((4,)), keras.Input((4,))
    trunk, head = layers.Dense(4, name="trunk"), layers.Dense(1, name="head")
    return keras.Model([left, right], [head(trunk(left)), head(trunk(right))])


HEADS = {
    "a dense layer with its softmax": (lambda: models.chain(layers.Dense(4)), {"head"}),
    "the softmax after logits as well": (
        lambda: keras.Sequential(
            [keras.Input((4,)), layers.Dense(4), layers.Dense(2), layers.Softmax()]
        ),
        {"dense_1", "softmax"},
    ),
    "each output's own": (two_outputs, {"label", "age"}),
    "the last layer by order, not by branch": (residual_end, {"second", "add", "relu"}),
    "every head that an operation joins": (joined(lambda: ops.concatenate), {"left", "right"}),
    "every head that a layer joins": (
        joined(lambda: layers.Add(name="add")),
        {"left", "right", "add"},
    ),
    "a head and its gate": (gated, {"head", "gate", "times"}),
    "nothing before a head beside an input": (beside_an_input, {"head", "join"}),
    "the last layer of a nested model": (nested, {"inner/dense_1", "softmax"}),
    "a layer shared by two outputs once": (shared_head, {"head"}),
    "an LSTM whole": (
        lambda: keras.Sequential([keras.Input((5, 4)), layers.LSTM(3, name="lstm")]),
        {"lstm"},
    ),
    "a Bidirectional whole": (
        lambda: keras.Sequential(
            [keras.Input((5, 4)), layers.Bidirectional(layers.LSTM(3), name="both")]
        ),
        {"both"},
    ),
    "a TimeDistributed for its layer": (
        lambda: keras.Sequential(
            [keras.Input((5, 4)), layers.TimeDistributed(layers.Dense(1), name="each")]
        ),
        {"each"},
    ),
    "only the last layer of a user's own block": (
        lambda: keras.Sequential([keras.Input((4,)), models.Passing(name="block")]),
        {"block/dense"},
    ),
    "the head of a subclassed model": (models.net, {"head"}),
}


@pytest.mark.parametrize("case", HEADS)
def test_o2_pins(case, half):
    build, expected = HEADS[case]
    with amp.amp_scope(half, level="O2"):
        assert set(amp.pin_float32(build()).paths) == expected


def in_half_between(layer, shape=(4,)):
    return lambda: models.chain(layer(), layers.Flatten(), layers.Dense(4), shape=shape)


class Product(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(4, 4))

    def call(self, inputs):
        return ops.matmul(inputs * 2, self.kernel)


class Wide(layers.Layer):
    def call(self, inputs):
        return ops.cast(inputs, "float32") * 0.5


SENSITIVE = {
    "UnitNormalization": (in_half_between(layers.UnitNormalization), {"unit_normalization"}),
    "Softmax": (in_half_between(layers.Softmax), {"softmax"}),
    "AveragePooling": (
        in_half_between(lambda: layers.AveragePooling2D(2), (4, 4, 1)),
        {"average_pooling2d"},
    ),
    "a dense layer with a softmax inside": (
        in_half_between(lambda: layers.Dense(4, activation="softmax", name="gate")),
        {"gate"},
    ),
    "exponentials in a Lambda": (
        in_half_between(lambda: layers.Lambda(ops.exp, name="exp", output_shape=(4,))),
        {"exp"},
    ),
    "what scales raw inputs": (
        lambda: models.chain(
            layers.Rescaling(0.5), layers.Normalization(mean=[0.0] * 4, variance=[1.0] * 4)
        ),
        {"rescaling", "normalization"},
    ),
    "and what hands raw inputs there": (
        lambda: models.chain(layers.Flatten(), layers.Rescaling(0.5), shape=(2, 2)),
        {"flatten", "rescaling"},
    ),
    "a normalization of raw inputs that Keras computes in float32": (
        lambda: models.chain(layers.BatchNormalization(), layers.Dense(4)),
        {"batch_normalization"},
    ),
    "but no scaling of embeddings": (
        lambda: models.chain(
            layers.Embedding(9, 4), layers.Rescaling(2.0), layers.Flatten(), shape=(3,)
        ),
        set(),
    ),
    "but no scaling of hidden values": (
        lambda: models.chain(layers.Dense(4), layers.Rescaling(2.0)),
        set(),
    ),
    "but no scaling beside a matrix product": (lambda: models.chain(Product()), set()),
    "but no scaling in a layer whose code is wide already": (lambda: models.chain(Wide()), set()),
    "but nothing that Keras computes in float32 itself": (
        lambda: models.chain(
            layers.Conv2D(2, 2),
            layers.BatchNormalization(),
            layers.LayerNormalization(),
            layers.GroupNormalization(2),
            layers.GlobalAveragePooling2D(),
            shape=(4, 4, 1),
        ),
        set(),
    ),
    "but no softplus beside a matrix product": (
        lambda: models.chain(layers.Dense(4, activation="softplus")),
        set(),
    ),
    "but no softmax of MultiHeadAttention, which is float32": (models.attention, set()),
}


@pytest.mark.parametrize("case", SENSITIVE)
def test_o1_pins_besides_the_head(case, half):
    build, expected = SENSITIVE[case]
    with amp.amp_scope(half):
        assert set(amp.pin_float32(build()).paths) == {*expected, "head"}


def test_sensitive_false_pins_as_o2_does(half):
    with amp.amp_scope(half):
        pins = amp.pin_float32(models.chain(layers.UnitNormalization()), sensitive=False)
    assert pins.paths == ("head",)


def test_without_a_level_it_pins_as_o1_does(half):
    keras.config.set_dtype_policy(f"mixed_{half}")
    pins = amp.pin_float32(models.chain(layers.UnitNormalization()))
    assert set(pins.paths) == {"unit_normalization", "head"}


@pytest.mark.filterwarnings("ignore::tf_amp_kit.errors.PureHalfWarning")
@pytest.mark.parametrize(("name", "level"), [("fp32", "O0"), ("bf16", "O3")])
def test_other_levels_pin_nothing(name, level):
    with amp.amp_scope(name, level=level):
        pins = amp.pin_float32(models.chain(layers.UnitNormalization()))
    assert pins.paths == ()
    assert pins.remarks == (f"Nothing to pin at level {level}.",)


def test_a_float32_head_is_left_alone(half):
    keras.config.set_dtype_policy(f"mixed_{half}")
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2), layers.Dense(1, dtype="float32")])
    assert amp.pin_float32(model).paths == ()


def test_nothing_is_pinned_that_is_float32_already(half):
    keras.config.set_dtype_policy(f"mixed_{half}")
    wide = [
        layers.Flatten(dtype="float32"),
        layers.Rescaling(0.5, dtype="float32"),
        layers.Dense(4, activity_regularizer="l2", dtype="float32"),
        layers.Dense(1, activation="sigmoid", dtype="float32"),
    ]
    half_one = layers.Rescaling(2.0, name="half")
    model = keras.Sequential([keras.Input((2, 2)), wide[0], half_one, *wide[1:]])
    assert amp.pin_float32(model).paths == ("half",)


def test_the_policy_of_a_nested_model_makes_no_float32_layer_half(half):
    keras.config.set_dtype_policy(f"mixed_{half}")
    inner = keras.Sequential([layers.Dense(2, dtype="float32")])
    each = layers.TimeDistributed(inner, dtype="float32")
    assert amp.pin_float32(keras.Sequential([keras.Input((5, 4)), each])).paths == ()


def test_what_moves_and_scales_raw_inputs_does_not_hand_them_to_itself(half):
    keras.config.set_dtype_policy(f"mixed_{half}")
    scale = layers.Lambda(lambda x: 0.5 * ops.transpose(x, (0, 2, 1)), output_shape=(2, 2))
    model = models.chain(scale, layers.Flatten(), layers.Dense(4), shape=(2, 2))
    assert amp.pin_float32(model).pins[0].reason == "scales raw inputs"


def test_a_block_that_runs_its_layer_without_calling_it_is_one_layer(half):
    class Block(models.Passing):
        def call(self, inputs):
            return self.dense.call(ops.exp(inputs))

    keras.config.set_dtype_policy(f"mixed_{half}")
    assert amp.pin_float32(models.chain(Block(name="block"))).paths == ("block", "head")


def test_a_layer_in_a_branch_is_a_head(half):
    class Branching(models.Passing):
        def call(self, inputs):
            hidden, cast = self.norm(inputs), ops.cast
            is_large = ops.sum(cast(inputs, "float32")) > 0
            return ops.cond(is_large, lambda: cast(self.dense(hidden), half), lambda: hidden)

    with amp.amp_scope(half, level="O2"):
        model = keras.Sequential([keras.Input((4,)), Branching(name="block")])
        assert amp.pin_float32(model).paths == ("block/dense",)


def test_a_sigmoid_in_a_branch_is_found(half):
    class Branching(layers.Layer):
        def call(self, inputs):
            return ops.cond(
                ops.sum(ops.cast(inputs, "float32")) > 0,
                lambda: ops.sigmoid(inputs),
                lambda: ops.sigmoid(-inputs),
            )

    keras.config.set_dtype_policy(f"mixed_{half}")
    inputs = keras.Input((4,))
    wide = layers.Dense(4, dtype="float32")(inputs)
    model = keras.Model(inputs, Branching(name="branching")(wide))
    (pin,) = amp.pin_float32(model).pins
    assert (pin.path, pin.reason) == ("branching", "sigmoid of an output")


def test_a_block_with_sensitive_code_of_its_own_is_left_and_told(half):
    class Block(layers.Layer):
        def __init__(self):
            super().__init__(name="block")
            self.dense = layers.Dense(4)

        def call(self, inputs):
            return self.dense(ops.exp(inputs))

    keras.config.set_dtype_policy(f"mixed_{half}")
    pins = amp.pin_float32(models.chain(Block()))
    assert pins.paths == ("head",)
    assert pins.remarks == (
        f"Left in half: block runs Exp in {half} in code of its own around other layers.",
    )


def test_what_would_be_left_is_not_told_of_a_head_that_is_pinned(half):
    keras.config.set_dtype_policy(f"mixed_{half}")
    pins = amp.pin_float32(models.chain(activation="softplus"))
    assert (pins.paths, pins.remarks) == (("head",), ())


def test_a_block_that_ends_in_code_of_its_own_is_pinned_up_to_its_last_layer(half):
    class Block(models.Passing):
        def call(self, inputs):
            return ops.softmax(2 * super().call(inputs))

    with amp.amp_scope(half, level="O2"):
        model = keras.Sequential([keras.Input((4,)), Block(name="block")])
        assert amp.pin_float32(model).paths == ("block/dense",)


def test_a_block_of_layers_that_hands_raw_inputs_on_is_not_pinned(half):
    class Block(layers.Layer):
        def __init__(self):
            super().__init__(name="block")
            self.flat = layers.Flatten()

        def call(self, inputs):
            return ops.transpose(self.flat(inputs))

    keras.config.set_dtype_policy(f"mixed_{half}")
    inputs = keras.Input(batch_shape=(4, 4))
    scaled = layers.Rescaling(0.5)(Block()(inputs))
    model = keras.Model(inputs, layers.Dense(2, name="head")(scaled))
    assert amp.pin_float32(model).paths == ("head",)


def test_given_pins_of_enable_amp_come_instead_of_the_level(half, tmp_path):
    with amp.amp_scope(half):
        model = models.chain(layers.Dense(4, name="body"), layers.UnitNormalization())
        amp.pin_float32(model, "body").save(tmp_path / "pins.json")
    for pins in (tmp_path / "pins.json", amp.Pins.load(tmp_path / "pins.json")):
        with amp.amp_scope(half, pins=pins):
            again = models.chain(layers.Dense(4, name="body"), layers.UnitNormalization())
            assert amp.pin_float32(again).paths == ("body",)


def test_pins_of_another_kind_are_refused():
    with pytest.raises(amp.errors.PinError, match=r"Received: pins=\['head'\]"):
        amp.enable_amp("bf16", pins=["head"])
    assert amp.current_amp() is None


def test_looking_for_candidates_changes_no_weight_and_no_seed(half):
    with amp.amp_scope(half):
        model = models.chain(layers.Dense(4), layers.Dropout(0.5), layers.BatchNormalization())
        twin = keras.models.clone_model(model)
        twin.set_weights(model.get_weights())
        amp.pin_float32(model, "head").undo()
        inputs = np.ones((8, 4), "float32")
        model_out, twin_out = (one(inputs, training=False).numpy() for one in (model, twin))
    np.testing.assert_array_equal(model_out, twin_out)
