"""Which way metrics are better, by what Keras says of them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from tf_amp_kit import _keras

X, Y = np.ones((4, 3), "float32"), np.array([[0.0], [1.0], [1.0], [0.0]], "float32")


class Unknown(keras.metrics.Metric):
    """A metric of a user, who did not say which way is better."""

    def update_state(self, *_: Any, **__: Any) -> None: ...

    def result(self) -> Any:
        return 1.0


def net(*metrics: Any, weighted: Any = None) -> keras.Model:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, "sigmoid")])
    model.compile("sgd", "binary_crossentropy", metrics=list(metrics), weighted_metrics=weighted)
    model.test_on_batch(X, Y)
    return model


@pytest.mark.parametrize(
    ("metric", "name", "direction"),
    [
        ("accuracy", "accuracy", "up"),
        (keras.metrics.AUC(name="area"), "area", "up"),
        (keras.metrics.Precision(name="precision"), "precision", "up"),
        ("mae", "mae", "down"),
        (keras.metrics.MeanSquaredError(name="error"), "error", "down"),
        (keras.metrics.BinaryCrossentropy(name="entropy"), "entropy", "down"),
        (Unknown(name="mine"), "mine", None),
    ],
)
def test_metrics_tell_which_way_is_better(metric: Any, name: str, direction: str | None) -> None:
    assert _keras.metric_directions(net(metric))[name] == direction


def test_a_function_of_a_user_tells_nothing() -> None:
    def off(y_true: Any, y_pred: Any) -> Any:
        return keras.ops.abs(y_true - y_pred)

    assert _keras.metric_directions(net(off))["off"] is None


def test_weighted_metrics_are_there_too() -> None:
    directions = _keras.metric_directions(net("mae", weighted=["accuracy"]))
    assert (directions["mae"], directions["accuracy"]) == ("down", "up")


def test_metrics_of_several_outputs_are_there() -> None:
    inputs = keras.Input((3,))
    heads = [keras.layers.Dense(1, "sigmoid", name=name)(inputs) for name in ("a", "b")]
    model = keras.Model(inputs, dict(zip("ab", heads, strict=True)))
    model.compile("sgd", "mse", metrics={"a": ["mae"], "b": ["accuracy"]})
    model.test_on_batch(X, {"a": Y, "b": Y})
    directions = _keras.metric_directions(model)
    assert (directions["mae"], directions["accuracy"]) == ("down", "up")


def test_without_metrics_nothing_but_the_loss_has_a_direction() -> None:
    directions = _keras.metric_directions(net())
    assert {name for name, way in directions.items() if way} <= {"loss"}
