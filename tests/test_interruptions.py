"""Whatever stops a look at a model, at whatever point: Keras and the model are as before."""

from __future__ import annotations

import contextlib
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests import patched_names
from tf_amp_kit.tracing.paths import LayerPaths

NUM_POINTS = 4
NUM_MANY_POINTS = 60

X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
Y = np.random.default_rng(1).normal(size=(8, 1)).astype("float32")


class Stop(KeyboardInterrupt):
    """What the test raises, so that it is told from an interruption of the test itself."""


class Tail(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = keras.layers.BatchNormalization(), keras.layers.Dense(1)

    def build(self, shape: Any) -> None:
        self.norm.build(shape)
        self.head.build(shape)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.head(self.norm(x, training=training))


LOOKS: dict[str, Callable[[keras.Model], Any]] = {
    "audit": lambda model: amp.audit_layer_dtypes(model, verbose=0),
    "numerics": lambda model: amp.measure_numerics(model, X, Y),
    "nonfinite": lambda model: amp.find_nonfinite(model, X, Y),
    "gradients": lambda model: amp.compare_gradients(model, X, Y),
    "plan": lambda model: amp.plan_precision(model, X),
    "memory": lambda model: amp.estimate_memory(model, batch_size=8),
    "pins": lambda model: amp.pin_float32(model, "dense"),
}


def build(*more: keras.layers.Layer) -> keras.Model:
    inputs = keras.Input((4,))
    x = keras.layers.Dropout(0.5)(keras.layers.Dense(4, name="dense")(inputs))
    for layer in more:
        x = layer(x)
    model = keras.Model(inputs, Tail()(x))
    model.compile(amp.make_loss_scale_optimizer("sgd"), "mse")
    return model


def state_of(model: keras.Model) -> Any:
    layers = dict(LayerPaths(model))
    return (
        [weight.tobytes() for weight in model.get_weights()],
        {path: (one.dtype_policy.name, sorted(vars(one))) for path, one in layers.items()},
        [tensor.dtype for tensor in model.outputs],
        keras.config.dtype_policy().name,
        patched_names.snapshot(),
    )


PACKAGE = str(Path(amp.__file__).parent)


class Stopper:
    """Counts the calls of this package's functions, and raises at one of them.

    TensorFlow's own code does not stand it everywhere: stopped on the way out of a graph, it
    stays in it.

    Args:
        at: Which one; 0 for none.
    """

    def __init__(self, at: int = 0) -> None:
        self.at, self.count = at, 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            self.count += 1
            if self.count == self.at:
                raise Stop

    def run(self, function: Callable[[], Any]) -> None:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            function()
        finally:
            sys.settrace(before)


# One may come where Python can only tell of it, while a generator is closed say.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "num_points", [NUM_POINTS, pytest.param(NUM_MANY_POINTS, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", LOOKS)
def test_a_look_that_is_stopped_leaves_everything_as_it_was(name: str, num_points: int) -> None:
    look = LOOKS[name]
    with amp.amp_scope("bf16"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        look(build())  # what is done once in a process is done
        counted, counter = build(), Stopper()
        counter.run(lambda: look(counted))
        draw = random.Random(f"{name} {num_points}")
        num_stopped = 0
        for _ in range(num_points):
            model = build()
            before = state_of(model)
            point = draw.randrange(1, counter.count)
            try:
                Stopper(point).run(lambda model=model: look(model))
            except Stop:
                num_stopped += 1
            # A generator that was stopped on the way into it ends with the traceback.
            assert state_of(model) == before, f"stopped at call {point}"
    # Some come where Python ignores them, in `__del__` say.
    assert num_stopped >= num_points // 2


@pytest.mark.parametrize("name", LOOKS)
def test_a_users_layer_that_fails_leaves_everything_as_it_was(name: str) -> None:
    class Moody(keras.layers.Layer):
        countdown = 1_000

        def call(self, x: Any) -> Any:
            Moody.countdown -= 1
            if not Moody.countdown:
                raise RuntimeError("not today")
            return x

    with amp.amp_scope("bf16"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = build(Moody())
        before = state_of(model)
        Moody.countdown = 1
        with contextlib.suppress(RuntimeError):
            LOOKS[name](model)
        assert Moody.countdown <= 0
        if name != "pins":  # which goes on without a look
            assert state_of(model) == before


def test_training_that_is_stopped_where_conflicts_are_cured_leaves_keras_as_it_was() -> None:
    class TimesOnes(keras.layers.Layer):
        def call(self, x: Any, training: bool = False) -> Any:
            return x * tf.ones([4]) if training else x

    def train() -> None:
        with amp.amp_scope("bf16", on_conflict="float32"):
            build(TimesOnes()).fit(X, Y, verbose=0)

    before = patched_names.snapshot(), keras.config.dtype_policy().name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counter = Stopper()
        counter.run(train)
        for seed in range(NUM_POINTS):
            with contextlib.suppress(Stop):
                Stopper(random.Random(seed).randrange(1, counter.count)).run(train)
            assert (patched_names.snapshot(), keras.config.dtype_policy().name) == before
