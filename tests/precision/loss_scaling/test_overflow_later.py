"""Finite gradients that the inner optimizer would make infinite, and those it would not."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.precision.loss_scaling.helpers import (
    HUGE,
    bits,
    constant,
    in_each_mode,
    in_mode,
    is_usable,
    scaled,
    variable,
)

SGD = keras.optimizers.SGD


def outcome(inner: Any, *grads: float, dtype: str = "float32", **settings: Any) -> list[bool]:
    """Whether each step was applied; weights must stay finite, and a skip change nothing."""
    optimizer = scaled(inner, **settings)
    weights = [keras.Variable(np.ones(3), dtype=dtype, name=name) for name in ("kernel", "bias")]
    optimizer.build(weights)
    seen = []
    for grad in grads:
        before, skipped = bits(optimizer, *weights), optimizer.loss_scale_state().skipped_steps
        optimizer.apply([constant(grad, 1.0, -grad), constant(1.0, 1.0, 1.0)], weights)
        seen.append(optimizer.loss_scale_state().skipped_steps == skipped)
        assert all(np.isfinite(weight.numpy().astype(np.float32)).all() for weight in weights)
        assert seen[-1] or bits(optimizer, *weights) == before
    return seen


def at_scale(scale: float) -> dict[str, Any]:
    return {"scaling": "static", "initial_scale": scale}


@pytest.mark.parametrize(
    ("inner", "scale", "grad", "is_applied"),
    [
        (lambda: SGD(1e-38), 1.0, HUGE, True),
        (lambda: SGD(1e-38), 0.5, HUGE, False),
        (lambda: SGD(1e-38), 0.9, HUGE, True),
        # 3e38 times the norm to clip to, before the division by the norm.
        (lambda: SGD(1e-3, clipnorm=10.0), 1.0, HUGE, False),
        (lambda: SGD(1e-3, clipnorm=10.0), 2.0**15, HUGE, True),
        (lambda: SGD(1e-3, clipnorm=0.1), 1.0, HUGE, True),
        # The sum of squares: 3e19 squared is no float32, 1e19 squared is one.
        (lambda: SGD(1e-3, global_clipnorm=1.0), 1.0, 3e19, False),
        (lambda: SGD(1e-3, global_clipnorm=1.0), 1.0, 1e19, True),
        (lambda: SGD(1e-3, global_clipnorm=1.0), 2.0**15, HUGE, False),
        (lambda: SGD(1e-3, global_clipnorm=1.0), 2.0**15, 3e23, True),
        (lambda: SGD(1e-3, clipvalue=1.0), 1.0, HUGE, True),
    ],
)
def test_a_finite_gradient_is_applied_if_it_stays_finite(
    inner: Any, scale: float, grad: float, is_applied: bool
) -> None:
    assert outcome(inner(), grad, **at_scale(scale)) == [is_applied]


def test_accumulated_gradients_are_divided_before_they_are_added_up() -> None:
    inner = SGD(1e-38, gradient_accumulation_steps=3)
    assert outcome(inner, HUGE, HUGE, HUGE, HUGE, initial_scale=2.0**15) == [True] * 4


def test_accumulated_gradients_may_not_overflow_at_a_scale_of_1() -> None:
    inner = SGD(1e-38, gradient_accumulation_steps=3)
    assert False in outcome(inner, HUGE, HUGE, HUGE, **at_scale(1.0))


def test_accumulated_gradients_that_fit_are_applied_at_a_scale_of_1() -> None:
    inner = SGD(1e-38, gradient_accumulation_steps=3)
    assert outcome(inner, 1e38, 1e38, 1e38, **at_scale(1.0)) == [True] * 3


def test_accumulated_gradients_are_clipped_without_overflow() -> None:
    inner = SGD(1e-3, gradient_accumulation_steps=2, global_clipnorm=1.0)
    assert outcome(inner, 1e19, 1e19, **at_scale(1.0)) == [True, True]
    inner = SGD(1e-3, gradient_accumulation_steps=2, clipnorm=10.0)
    assert False in outcome(inner, HUGE / 2, HUGE / 2, **at_scale(1.0))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_variable_in_half_precision_overflows_where_its_format_does(dtype: str) -> None:
    # Halfway between 65504 and the next step float16 would have rounds to infinity.
    seen = outcome(SGD(1e-3), 65519.0, 65520.0, 1e30, dtype=dtype, **at_scale(1.0))
    assert seen == ([True, False, False] if dtype == "float16" else [True, True, True])


def test_a_half_variable_takes_what_the_division_brings_into_range() -> None:
    assert outcome(SGD(1e-3), 65520.0, 2e9, 3e9, dtype="float16", initial_scale=2.0**15) == [
        True,
        True,
        False,
    ]


def test_a_lone_large_gradient_of_float16_is_finite_in_float32() -> None:
    optimizer, weight = scaled(SGD(1.0, gradient_accumulation_steps=4)), keras.Variable([1.0])
    for _ in range(4):
        optimizer.apply([constant(65504.0, dtype="float16")], [weight])
    assert optimizer.loss_scale_state().applied_steps == 4
    assert weight.numpy() == np.float32(1 - 65504 / 2**15)


@in_each_mode
def test_the_inner_clip_is_looked_at_in_every_mode(mode: str) -> None:
    optimizer = scaled(SGD(1e-3, global_clipnorm=1.0), **at_scale(1.0))
    weight = keras.Variable(np.ones(2, np.float32))
    optimizer.build([weight])
    step = in_mode(lambda grad: optimizer.apply([grad], [weight]), mode)
    step(constant(3e19, 1.0))
    assert weight.numpy().tolist() == [1.0, 1.0]
    step(constant(3.0, 4.0))
    assert weight.numpy() == pytest.approx([1 - 6e-4, 1 - 8e-4], rel=1e-6)


@pytest.mark.parametrize(
    "inside",
    [{"global_clipnorm": 1.0}, {"clipnorm": 1e10}, {"gradient_accumulation_steps": 2}],
    ids=lambda inside: next(iter(inside)),
)
@pytest.mark.skipif(not hasattr(keras.optimizers, "MultiOptimizer"), reason="Keras has none")
def test_optimizers_inside_a_multi_optimizer_are_looked_at(inside: dict[str, float]) -> None:
    inner = {"bias": SGD(1e-3), "kernel": SGD(1e-3, **inside)}
    multi = keras.optimizers.MultiOptimizer(lambda weight: inner[weight.name])
    assert False in outcome(multi, HUGE, HUGE, **at_scale(1.0))


def test_a_sparse_gradient_overflows_where_a_row_does() -> None:
    optimizer, weight = (
        scaled(SGD(1e-38), **at_scale(1.0)),
        keras.Variable(np.ones((4, 1), "float32")),
    )
    optimizer.build([weight])

    def step(rows: list[int]) -> int:
        grad = tf.IndexedSlices(tf.fill([2, 1], HUGE), tf.constant(rows), tf.constant([4, 1]))
        optimizer.apply([grad], [weight])
        return optimizer.loss_scale_state().skipped_steps

    assert [step([0, 1]), step([2, 2])] == [0, 1]
    assert np.isfinite(weight.numpy()).all()


@in_each_mode
@pytest.mark.parametrize("name", ["Adam", "RMSprop", "Adagrad", "Adadelta", "Adafactor", "Nadam"])
def test_a_gradient_with_an_infinite_square_ruins_no_second_moment(name: str, mode: str) -> None:
    # 2e19 squared is 4e38, more than float32 has; 1e17 squared leaves room for sums.
    inner = getattr(keras.optimizers, name)(1e-3)
    optimizer, weight = scaled(inner, initial_scale=1, max_scale=1), variable(1.0, 1.0)
    optimizer.build([weight])
    step = in_mode(lambda grad: optimizer.apply([grad], [weight]), mode)
    for large in (1e17, 2e19, 1e17):
        step(constant(large, 1.0))
    assert optimizer.loss_scale_state().skipped_steps == 1
    assert np.isfinite([one.numpy() for one in inner.variables[2:] if one.shape == (2,)]).all()
    assert np.isfinite(weight.numpy()).all()


@pytest.mark.parametrize("inner", [{"clipvalue": 1.0}, {"clipnorm": 1.0}])
def test_an_infinite_square_is_none_after_clipping(inner: dict[str, float]) -> None:
    optimizer, weight = scaled(keras.optimizers.Adam(**inner), initial_scale=1), variable(1.0)
    optimizer.apply([constant(2e19)], [weight])
    assert optimizer.loss_scale_state().applied_steps == 1
    assert np.isfinite(weight.numpy()).all()


NAMES = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Nadam", "Lamb", "Lion", "Muon")
# Each adds up gradients or their squares in a way of its own.
NAMES = (*NAMES, "Adafactor", "Adamax", "Ftrl")
KEPT = [name for name in NAMES if is_usable(name)]


@pytest.mark.parametrize("name", KEPT)
def test_near_overflow_no_gradients_ruin_the_weights_of_any_optimizer(name: str) -> None:
    inner = getattr(keras.optimizers, name)
    for grads in ([1e18, 1.8e19, 1.8e19, -1.8e19, 1.0, 1.0], [HUGE, 1.0, HUGE, -HUGE, 1.0, 1.0]):
        outcome(inner(1e-3), *grads, **at_scale(1.0))
