"""Float32 models of about 30 units with planted layers that float16 breaks.

All other layers are harmless: with the planted ones in float32, what remains is rounding.
The trunk is a residual net over `(8, 16)` inputs; the planted layers hang on a branch from
its middle that starts with a LayerNormalization, so the numbers there are known: about 0,
plus or minus 1, before they are moved to where float16 ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

WIDTH, NUM_BLOCKS = 32, 4


class Fragile(NamedTuple):
    """A model with planted layers.

    Attributes:
        model: The float32 model.
        x: Inputs for it.
        planted: The paths of the layers that have to stay in float32, and suffice.
    """

    model: keras.Model
    x: np.ndarray
    planted: frozenset[str]


@keras.saving.register_keras_serializable("fragile")
class LogSumExp(layers.Layer):
    """The logarithm of a sum of exponentials, without subtracting the maximum."""

    def call(self, inputs: Any) -> Any:
        return ops.log(ops.sum(ops.exp(inputs), axis=-1, keepdims=True))


@keras.saving.register_keras_serializable("fragile")
class L2Normalize(layers.Layer):
    """Vectors of length 1, by the sum of the squares."""

    def call(self, inputs: Any) -> Any:
        return inputs / ops.sqrt(ops.sum(inputs * inputs, axis=-1, keepdims=True))


@keras.saving.register_keras_serializable("fragile")
class Exp(layers.Layer):
    """The exponential function."""

    def call(self, inputs: Any) -> Any:
        return ops.exp(inputs)


@keras.saving.register_keras_serializable("fragile")
class Log(layers.Layer):
    """The natural logarithm."""

    def call(self, inputs: Any) -> Any:
        return ops.log(inputs)


@keras.saving.register_keras_serializable("fragile")
class Shares(layers.Layer):
    """A softmax by hand, without subtracting the maximum."""

    def call(self, inputs: Any) -> Any:
        exponentials = ops.exp(inputs)
        return exponentials / ops.sum(exponentials, axis=-1, keepdims=True)


@keras.saving.register_keras_serializable("fragile")
class UnscaledAttention(layers.Layer):
    """Attention without `1 / sqrt(d)`, whose scores come to about 100,000.

    Queries and keys are about 40 in each of 64 dimensions. What is common to the scores of
    a query cancels in the softmax, so that in float32 small differences are left.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        options = {"kernel_initializer": keras.initializers.RandomNormal(stddev=0.002)}
        options["bias_initializer"] = keras.initializers.Constant(40.0)
        self.query = layers.Dense(64, **options, dtype=self.dtype_policy)
        self.key = layers.Dense(64, **options, dtype=self.dtype_policy)
        options = {"kernel_initializer": keras.initializers.RandomNormal(stddev=0.05)}
        self.value = layers.Dense(WIDTH, **options, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        for layer in (self.query, self.key, self.value):
            layer.build(input_shape)

    def call(self, inputs: Any) -> Any:
        scores = ops.matmul(self.query(inputs), ops.swapaxes(self.key(inputs), -1, -2))
        return ops.matmul(ops.softmax(scores), self.value(inputs))


@keras.saving.register_keras_serializable("fragile")
class RawAttention(UnscaledAttention):
    """The same with functions of TensorFlow and operators."""

    def call(self, inputs: Any) -> Any:
        scores = tf.matmul(self.query(inputs), self.key(inputs), transpose_b=True)
        return tf.nn.softmax(scores) @ self.value(inputs)


@keras.saving.register_keras_serializable("fragile")
class Shift(layers.Layer):
    """Adds a weight and takes it away again; above 2048 float16 holds every second integer.

    It is a weight because TensorFlow's graph optimizer would do away with a constant.
    """

    def build(self, input_shape: Any) -> None:
        initializer = keras.initializers.Constant(1794.0)
        self.offset = self.add_weight(shape=(), initializer=initializer, trainable=False)

    def call(self, inputs: Any) -> Any:
        return (inputs + self.offset) - self.offset


@keras.saving.register_keras_serializable("fragile")
class Square(layers.Layer):
    """The square."""

    def call(self, inputs: Any) -> Any:
        return inputs * inputs


def clean(seed: int = 0) -> Fragile:
    """Build a model that float16 does not harm."""
    return _model(seed, lambda normed: normed, ())


def log_sum_exp(seed: int = 0) -> Fragile:
    """Plant a log-sum-exp by hand of numbers about 15: exp(15) is 3.3 million."""
    return _model(seed, _log_sum_exp, ("log_sum_exp",))


def l2_normalize(seed: int = 0) -> Fragile:
    """Plant an L2-normalisation by hand of numbers about 500, whose squares overflow.

    In float16 it returns zeros: finite, and wrong.
    """
    return _model(seed, _l2_normalize, ("l2_normalize",))


def unscaled_attention(seed: int = 0) -> Fragile:
    """Plant attention without a scale, by operations of Keras."""
    return _model(seed, UnscaledAttention(name="attention"), ("attention",))


def raw_attention(seed: int = 0) -> Fragile:
    """Plant attention without a scale, by operations of TensorFlow."""
    return _model(seed, RawAttention(name="attention"), ("attention",))


def shares_by_hand(seed: int = 0) -> Fragile:
    """Plant a softmax by hand of numbers about 12: exp(12) is 162,755."""
    return _model(seed, _shares, ("shares",))


def exp_then_log(seed: int = 0) -> Fragile:
    """Plant exp(12) in one layer and its logarithm in the next: both have to be pinned."""

    def branch(normed: Any) -> Any:
        raised = layers.Rescaling(1.0, 12.0, name="to_12")(normed)
        back = Log(name="log")(Exp(name="exp")(raised))
        return layers.Rescaling(1 / 8, name="to_1")(back)

    return _model(seed, branch, ("exp", "log"))


def three_at_once(seed: int = 0) -> Fragile:
    """Plant a log-sum-exp, an L2-normalisation and attention without a scale."""

    def branch(normed: Any) -> Any:
        attended = UnscaledAttention(name="attention")(normed)
        return layers.Add(name="sum")([_l2_normalize(normed), attended, _log_sum_exp(normed)])

    return _model(seed, branch, ("attention", "l2_normalize", "log_sum_exp"))


def product_between_layers(seed: int = 0) -> Fragile:
    """Plant layers that are finite each alone, and overflow together, by promotion.

    `hub`, `left` and `right` return about 300, and geometric means of them are taken outside
    of layers: two factors in float16 make a product of 90,000 in float16, one in float16
    and one in float32 make it in float32. With `hub` in float32 both products are fine,
    with one of the others only one of them.
    """

    def branch(normed: Any) -> Any:
        hub, left, right = (
            layers.Rescaling(scale, 300.0, name=name)(normed)
            for name, scale in (("hub", 10.0), ("left", 20.0), ("right", -10.0))
        )
        means = [ops.sqrt(ops.multiply(hub, one)) for one in (left, right)]
        near_1 = [
            layers.Rescaling(1 / 256, name=f"{place}_to_1")(mean)
            for place, mean in zip(("left", "right"), means, strict=True)
        ]
        return layers.Multiply(name="gate")([normed, *near_1])

    return _model(seed, branch, ("hub",))


def rounded_up(seed: int = 0) -> Fragile:
    """Plant layers that are finite each alone, and overflow together, by rounding.

    `shift` returns about 255.1, and 256 in float16. `square` makes 65,076 of the one, which
    float16 holds, and 65,536 of the other, which it does not. In float32 `square` is fine
    with either, but what takes its result then is not.
    """

    def branch(normed: Any) -> Any:
        near = layers.Rescaling(0.01, 255.1, name="to_255")(
            layers.Activation("tanh", name="tanh")(normed)
        )
        # No constant follows a product: the graph optimizer would apply it to a factor.
        exponent = Log(name="log")(Square(name="square")(Shift(name="shift")(near)))
        return layers.Multiply(name="gate")(
            [layers.Rescaling(1 / 16, name="to_1")(exponent), normed]
        )

    return _model(seed, branch, ("shift",))


# Where each planted layer fails by itself, and where it takes more than one.
PLANTED: dict[str, Callable[[int], Fragile]] = {
    one.__name__: one
    for one in (
        log_sum_exp,
        l2_normalize,
        unscaled_attention,
        raw_attention,
        shares_by_hand,
        exp_then_log,
        three_at_once,
    )
}
TOGETHER: dict[str, Callable[[int], Fragile]] = {
    one.__name__: one for one in (product_between_layers, rounded_up)
}


def _log_sum_exp(normed: Any) -> Any:
    raised = layers.Rescaling(1.0, 15.0, name="to_15")(normed)
    return layers.Rescaling(1 / 16, name="from_18")(LogSumExp(name="log_sum_exp")(raised))


def _l2_normalize(normed: Any) -> Any:
    wide = layers.Rescaling(500.0, name="to_500")(normed)
    unit = L2Normalize(name="l2_normalize")(wide)
    return layers.Rescaling(4.0, name="from_unit")(unit)


def _shares(normed: Any) -> Any:
    raised = layers.Rescaling(1.0, 12.0, name="to_12")(normed)
    return layers.Rescaling(16.0, name="from_share")(Shares(name="shares")(raised))


def _model(seed: int, branch: Callable[[Any], Any], planted: tuple[str, ...]) -> Fragile:
    """Hang a branch into the middle of the trunk."""
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((8, 16))
    hidden = layers.Dense(WIDTH, name="stem")(inputs)
    for index in range(NUM_BLOCKS):
        if index == NUM_BLOCKS // 2:
            normed = layers.LayerNormalization(name="branch_norm")(hidden)
            hidden = layers.Add(name="branch_end")([hidden, branch(normed)])
        hidden = _block(hidden, index)
    hidden = layers.LayerNormalization(name="last_norm")(hidden)
    pooled = layers.GlobalAveragePooling1D(name="pooling")(hidden)
    model = keras.Model(inputs, layers.Dense(5, name="head")(pooled), name="net")
    x = np.random.default_rng(seed).standard_normal((32, 8, 16)).astype("float32")
    return Fragile(model, x, frozenset(planted))


def _block(hidden: Any, index: int) -> Any:
    normed = layers.LayerNormalization(name=f"norm_{index}")(hidden)
    inner = layers.Dense(2 * WIDTH, name=f"widen_{index}")(normed)
    inner = layers.Activation("gelu", name=f"gelu_{index}")(inner)
    inner = layers.Dropout(0.1, name=f"drop_{index}")(
        layers.Dense(WIDTH, name=f"out_{index}")(inner)
    )
    return layers.Add(name=f"add_{index}")([hidden, inner])
