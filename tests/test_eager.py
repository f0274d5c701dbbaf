"""The independent check is right about models whose dtypes are known by hand."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tests.eager import EagerRun, seen_eagerly
from tests.fuzz.building import batch_of, build, made_under
from tests.fuzz.graphs import Graph, Node

WIDENING = Node("block", inner=(Node("multiply", constant="np.float32"),))
WIDE_PRODUCT = Node(
    "block", inner=(Node("cast_float32"), Node("matmul", second=0), Node("cast_compute"))
)
UNUSED_WIDE_PRODUCT = Node(
    "block", inner=(Node("cast_float32"), Node("matmul", second=0), Node("relu", first=2))
)


def seen(*nodes: Node) -> EagerRun:
    """Run a model of some nodes under mixed_bfloat16."""
    graph = Graph(nodes)
    with made_under(graph):
        model = build(graph)
        with seen_eagerly() as run:
            model(batch_of(graph), training=False)
    return run


def test_each_call_has_the_dtype_that_the_layer_returned() -> None:
    run = seen(WIDENING, Node("Dense"), Node("Dense", dtype="float32"))
    assert [call.outputs for call in run.layer_calls] == [
        ("float32",),  # the model
        ("float32",),
        ("bfloat16",),
        ("float32",),
    ]


def test_only_half_layers_revert() -> None:
    run = seen(WIDENING, Node("Dense", dtype="float32"))
    reverting = [call.is_half and run.returns_wide(call) for call in run.layer_calls]
    assert reverting == [False, True, False]


def test_a_wide_product_is_seen_with_the_layer_that_ran_it() -> None:
    run = seen(WIDE_PRODUCT, Node("Dense"))
    assert [product.call for product in run.wide_products] == [run.layer_calls[1]]


def test_a_product_that_nobody_uses_is_left_out() -> None:
    assert list(seen(UNUSED_WIDE_PRODUCT).wide_products) == []


def test_layers_are_as_before_after_an_error() -> None:
    before = keras.layers.Layer.__call__
    with pytest.raises(ValueError, match="incompatible"), seen_eagerly():
        keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])(np.ones((1, 3)))
    assert keras.layers.Layer.__call__ is before
