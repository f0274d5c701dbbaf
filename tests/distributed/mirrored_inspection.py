"""Cases of looking into models under MirroredStrategy, inside and outside of its scope."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tf_amp_kit as amp
from tests.distributed import cases
from tests.distributed.mirrored_steps import strategy_over
from tf_amp_kit.tracing.paths import LayerPaths

CASES = cases.Cases()

X = np.ones((4, 1), "float32")
Y = np.zeros((4, 1), "float32")


def compiled(*inner: Any) -> Any:
    """A model whose last layer has the one weight 0.5."""
    half = keras.initializers.Constant(0.5)
    head = layers.Dense(1, use_bias=False, kernel_initializer=half, name="head")
    with strategy_over(2).scope():
        model = keras.Sequential([keras.Input((1,)), *[make() for make in inner], head])
        model.compile("sgd", "mse")
    return model


def scope_of(where: str) -> Any:
    return strategy_over(2).scope() if where == "inside" else nullcontext()


class Growth(layers.Layer):
    def call(self, inputs: Any) -> Any:
        return keras.ops.exp(inputs * 12)


@CASES.case("find, inside", "inside")
@CASES.case("find, outside", "outside")
def find(where: str) -> Any:
    keras.config.set_dtype_policy("mixed_float16")
    model = compiled(lambda: Growth(name="growth"))
    before = cases.bits(model.variables)
    with scope_of(where):
        report = amp.find_nonfinite(model, X, Y, loss_scale=1.0, verbose=0)
    origin = report.origin
    return {
        "origin": [origin.path, origin.operation, origin.direction],
        "is_unchanged": cases.bits(model.variables) == before,
    }


@CASES.case("find in statistics, inside", "inside")
@CASES.case("find in statistics, outside", "outside")
def find_in_statistics(where: str) -> Any:
    model = compiled(lambda: layers.BatchNormalization(name="bn"))
    model.get_layer("bn").moving_variance.assign([np.nan])
    with scope_of(where):
        report = amp.find_nonfinite(model, X, Y, loss_scale=1.0, verbose=0)
    return {"path": report.origin.path, "reached": report.reached, "notes": report.notes}


@CASES.case("measure, inside", "inside")
@CASES.case("measure, outside", "outside")
def measure(where: str) -> Any:
    keras.config.set_dtype_policy("mixed_float16")
    model = compiled()
    with scope_of(where):
        report = amp.measure_numerics(model, X, Y, loss_scale=1.0, verbose=0)
    return {
        f"{one.kind} {one.path}": [one.statistics.num_elements, one.statistics.largest]
        for one in report.tensors
    }


@CASES.case("compare, inside", "inside")
@CASES.case("compare, outside", "outside")
def compare(where: str) -> Any:
    keras.config.set_dtype_policy("mixed_float16")
    model = compiled()
    with scope_of(where):
        report = amp.compare_gradients(model, X, Y, loss_scale=8.0, verbose=0)
    (gradient,) = report.pairs
    return {"path": gradient.path, "cosine": gradient.cosine, "error": gradient.relative_error}


class FailsInTraining(layers.Layer):
    """Normalizes, and multiplies by a float32 constant in training."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.norm = layers.BatchNormalization(momentum=0.5)

    def build(self, shape: Any) -> None:
        self.norm.build(shape)

    def call(self, inputs: Any, training: bool = False) -> Any:
        x = self.norm(inputs, training=training)
        return tf.square(x) * tf.ones([1]) if training else x


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.clash, self.head = FailsInTraining(name="clash"), layers.Dense(1, name="head")

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.head(self.clash(inputs, training=training))


@CASES.case("cure, functional", True)
@CASES.case("cure, subclassed", False)
def cure(is_functional: bool) -> Any:
    with amp.amp_scope("bf16", on_conflict="float32"), strategy_over(2).scope():
        if is_functional:
            clash, head = FailsInTraining(name="clash"), layers.Dense(1, name="head")
            model = keras.Sequential([keras.Input((1,)), clash, head])
        else:
            model = Subclassed()
            clash = model.clash
        model.compile(keras.optimizers.SGD(0.0), "mse")
        model.fit(X, Y, batch_size=4, verbose=0)
    return {
        "dtypes": {path: one.compute_dtype for path, one in LayerPaths(model) if path},
        "mean": clash.norm.moving_mean.numpy().tolist(),
    }
