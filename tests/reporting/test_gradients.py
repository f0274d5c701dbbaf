"""Figures of gradient comparisons, read back from what is drawn."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest

from tests.reporting.records import axes_titled, bars, comparison_of, vertical_lines
from tf_amp_kit.inspection.numerics.gradients import compare_gradients
from tf_amp_kit.reporting.plots import plot_gradients


def test_bars_side_by_side_are_the_counts_of_each_precision() -> None:
    float32, half = [1, 1, 2.0**-30], [1, 1.5, 0]
    axes = plot_gradients(comparison_of({"w": (float32, half)})).axes[1]
    assert [bars(axes, index) for index in (0, 1)] == [{-30: 1, 0: 2}, {0: 2}]


def test_the_limits_of_unscaled_gradients_are_divided_by_the_loss_scale() -> None:
    figure = plot_gradients(comparison_of({"w": ([1], [1])}, loss_scale=8.0))
    expected = [-27, -17, math.log2(8188)]
    assert vertical_lines(figure.axes[1]) == pytest.approx(expected)


def test_the_dots_are_the_cosines_and_the_relative_errors() -> None:
    # (3, 4) against (3, 0): cosine 3/5, error 4/5. And twice the gradient: 1 and 1.
    pairs = {"v": ([3, 4], [3, 0]), "w": ([3, 4], [6, 8])}
    cosines, errors = plot_gradients(comparison_of(pairs)).axes[2:4]
    drawn = [line.get_xydata().tolist() for axes in (cosines, errors) for line in axes.lines[1:]]
    assert np.array(drawn) == pytest.approx(np.array([[[0.6, 0], [1, 1]], [[0.8, 0], [1, 1]]]))


def test_gradients_that_are_not_finite_have_a_cross_at_the_right_edge() -> None:
    comparison = comparison_of({"v": ([1, 2], [1, 2.5]), "w": ([3, 4], [3, math.inf])})
    axes = plot_gradients(comparison).axes[3]
    cross = next(line for line in axes.lines if line.get_marker() == "X")
    assert cross.get_xydata().tolist() == [[axes.get_xlim()[1], 1]]


def test_idle_weights_have_a_hollow_dot() -> None:
    comparison = comparison_of({"v": ([1, 2], [1, 2]), "w": ([1e-9, 2e-9], [1e-9, 3e-9])})
    axes = plot_gradients(comparison).axes[3]
    hollow = [one for one in axes.lines if one.get_markerfacecolor() == "white"]
    assert [one.get_ydata().tolist() for one in hollow] == [[1]]


def test_a_weight_of_a_comparison_can_be_drawn_by_itself() -> None:
    figure = plot_gradients(comparison_of({"v": ([1], [1]), "w": ([4], [4])}), paths="w")
    assert bars(axes_titled(figure, "w"), 0) == {2: 1}


def test_real_gradients_are_drawn_for_every_weight() -> None:
    layers = [keras.layers.Dense(4, name="hidden"), keras.layers.Dense(1, name="out")]
    model = keras.Sequential([keras.Input((3,)), *layers])
    x, y = np.ones((5, 3), np.float32), np.ones((5, 1), np.float32)
    comparison = compare_gradients(
        model, x, y, loss="mse", precision="bf16", loss_scale=4.0, verbose=0
    )
    labels = [label.get_text() for label in plot_gradients(comparison).axes[2].get_yticklabels()]
    assert labels == ["hidden/kernel", "hidden/bias", "out/kernel", "out/bias"]
