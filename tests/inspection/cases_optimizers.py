"""Float16 gradients and optimizers that do not scale the loss."""

from __future__ import annotations

import keras
import numpy as np
from keras import layers

from . import places
from .expect import Case, Expected
from .faults import WIDTH


def _compiled(model: keras.Model, optimizer="adam", **kwargs) -> keras.Model:
    model.compile(optimizer, "mse", **kwargs)
    return model


def _per_layer(half: str, optimizer="adam") -> keras.Model:
    mixed = f"mixed_{half}"
    stack = [layers.Dense(WIDTH, dtype=mixed), layers.Dense(WIDTH, dtype=mixed)]
    head = layers.Dense(1, dtype="float32")
    return _compiled(keras.Sequential([keras.Input((WIDTH,)), *stack, head]), optimizer)


def _plain(half: str) -> keras.Model:
    return keras.Sequential(
        [keras.Input((WIDTH,)), layers.Dense(WIDTH), layers.Dense(1, dtype="float32")]
    )


def _backbone(half: str) -> keras.Model:
    """A float16 backbone inside a float32 model."""
    mixed = f"mixed_{half}"
    stack = [layers.Dense(WIDTH, dtype=mixed) for _ in range(3)]
    backbone = keras.Sequential([keras.Input((WIDTH,)), *stack], name="backbone")
    return _compiled(keras.Sequential([keras.Input((WIDTH,)), backbone, layers.Dense(1)]))


class OwnsOptimizer(layers.Layer):
    """Trains itself with an optimizer of its own."""

    def __init__(self, optimizer, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(WIDTH)
        self.tuner = optimizer

    def call(self, inputs):
        return self.dense(inputs)


def _layer_owns(half: str, optimizer=keras.optimizers.Adam) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    hidden = OwnsOptimizer(optimizer(), name="owner")(inputs)
    return _compiled(keras.Model(inputs, places.head()(hidden)))


class Adversarial(keras.Model):
    """Two networks, two optimizers, a train step of its own."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential([layers.Dense(WIDTH), layers.Dense(WIDTH)])
        self.discriminator = keras.Sequential(
            [layers.Dense(WIDTH), layers.Dense(1, dtype="float32")]
        )

    def compile(self, make):
        super().compile(loss="mse")
        self.g_optimizer, self.d_optimizer = make(), make()

    def call(self, inputs):
        return self.discriminator(self.generator(inputs))


def _adversarial(make):
    def build(half: str) -> keras.Model:
        model = Adversarial()
        model(np.zeros((2, WIDTH), "float32"))
        model.compile(make)
        return model

    return build


def _scaled() -> keras.optimizers.Optimizer:
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())


def _mapped(half: str) -> keras.Model:
    before = keras.config.dtype_policy()
    policies = keras.dtype_policies.DTypePolicyMap(default_policy=f"mixed_{half}")
    keras.config.set_dtype_policy(policies)
    try:
        return _compiled(_plain(half))
    finally:
        keras.config.set_dtype_policy(before)


def _unscaled(name: str, build, policy="mixed_{half}", path=None, most=1, **kwargs) -> Case:
    finding = Expected("AMP301", path, below=True, most=most)
    return Case(name, build, (finding,), ("float16",), policy, **kwargs)


def _fine(name: str, build, halves=("float16", "bfloat16"), policy="mixed_{half}") -> Case:
    return Case(name, build, halves=halves, policy=policy)


OPTIMIZERS = [
    _unscaled("each layer mixed by itself", _per_layer, "float32"),
    _unscaled(
        "each layer mixed by itself, with SGD",
        lambda half: _per_layer(half, keras.optimizers.SGD(0.1)),
        "float32",
    ),
    _unscaled("a half backbone in a float32 model", _backbone, "float32"),
    _unscaled(
        "loss scaling switched off",
        lambda half: _compiled(_plain(half), auto_scale_loss=False),
    ),
    _unscaled("a policy map", _mapped),
    _unscaled("a layer owns an optimizer", _layer_owns, path="owner"),
    _unscaled("two networks with two optimizers", _adversarial(keras.optimizers.Adam), most=2),
    # Pure half has no float32 master weights either, which is another finding.
    Case(
        "pure float16",
        lambda half: _compiled(_plain(half)),
        (Expected("AMP301"), Expected("AMP302", most=3)),
        ("float16",),
        "{half}",
    ),
    _fine("compiled under the mixed policy", lambda half: _compiled(_plain(half))),
    _fine(
        "wrapped by hand in a float32 model",
        lambda half: _per_layer(half, _scaled()),
        policy="float32",
    ),
    _fine("bfloat16 layer by layer", _per_layer, ("bfloat16",), "float32"),
    _fine("bfloat16 without scaling", _adversarial(keras.optimizers.Adam), ("bfloat16",)),
    _fine("two scaled optimizers", _adversarial(_scaled)),
    _fine("a layer owns a scaled optimizer", lambda half: _layer_owns(half, _scaled)),
    _fine("not compiled", _plain),
]
