"""The evidence is right about models whose findings are known by hand."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from tests.corpus.evidence import Evidence, evidence_of
from tests.eager import seen_eagerly

pytestmark = pytest.mark.corpus


class Scaled(keras.layers.Layer):
    """Multiplies by a constant that may be wide, or calls a layer and does."""

    def __init__(self, inner: Any = None, dtype_of_scale: str = "float32", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inner, self.dtype_of_scale = inner, dtype_of_scale

    def call(self, inputs: Any) -> Any:
        x = inputs if self.inner is None else self.inner(inputs)
        return keras.ops.multiply(
            keras.ops.cast(x, self.dtype_of_scale), keras.ops.ones((), self.dtype_of_scale)
        )


class WideProduct(keras.layers.Layer):
    """Multiplies matrices in float32, and returns half precision."""

    def call(self, inputs: Any) -> Any:
        x = keras.ops.cast(inputs, "float32")
        x = keras.ops.matmul(x, keras.ops.eye(4, dtype="float32"))
        return keras.ops.cast(x, self.compute_dtype)


def shown(*layers: Any) -> Evidence:
    model = keras.Sequential([keras.Input((4,)), *layers])
    with seen_eagerly() as run:
        model(np.ones((2, 4), "float32"))
    return evidence_of(model, [run])


@pytest.fixture(autouse=True)
def half() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")


def test_a_layer_that_widens_is_named_and_not_what_follows_it() -> None:
    assert shown(Scaled(name="a"), keras.layers.ReLU(name="b")).findings == {"AMP101": ["a"]}


def test_float64_is_told_apart() -> None:
    assert shown(Scaled(dtype_of_scale="float64", name="a")).findings == {"AMP102": ["a"]}


def test_the_innermost_layer_answers_for_what_it_hands_on() -> None:
    class Holds(keras.layers.Layer):
        def __init__(self, inner: Any, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.inner = inner

        def call(self, inputs: Any) -> Any:
            return self.inner(inputs) + 1.0

    assert shown(Holds(Scaled(name="inner"), name="a")).findings == {"AMP101": ["a/inner"]}


def test_a_float32_head_is_a_choice_and_a_product_in_half_layers_is_not() -> None:
    head = keras.layers.Dense(2, dtype="float32")
    assert shown(WideProduct(name="a"), head).findings == {"AMP103": ["a"]}


def test_operations_between_layers_are_counted_by_class() -> None:
    inputs = keras.Input((4,))
    x = keras.ops.cast(keras.layers.Dense(4)(inputs), "bfloat16")
    outputs = keras.layers.Dense(2)(keras.ops.cast(x, "float32"))
    model = keras.Model(inputs, outputs)
    with seen_eagerly() as run:
        model(np.ones((2, 4), "float32"))
    evidence = evidence_of(model, [run])
    assert evidence.findings == {"AMP105": ["@cast_1"]}
    assert evidence.num_half_outputs == 1
