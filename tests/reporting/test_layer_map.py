"""Maps of layers: colours, rows and labels, read back from what is drawn."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from tests.reporting.records import report_of, tensor
from tf_amp_kit.inspection.numerics.measure import measure_numerics
from tf_amp_kit.inspection.numerics.report import NumericsReport
from tf_amp_kit.reporting.plots import plot_layers

VANISHING, FINE, INFINITE = 1e-9, 1.0, 1e6


def shares(axes: Any) -> Any:
    """The data behind the colours, one row per layer; NaN where there is no colour."""
    return np.ma.filled(axes.collections[0].get_array(), np.nan)


def colours(axes: Any) -> list[tuple[float, ...]]:
    mesh = axes.collections[0]
    mesh.update_scalarmappable()
    return [tuple(colour) for colour in mesh.get_facecolors()]


def labels(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def lightness(colour: tuple[float, ...]) -> float:
    return float(np.dot(colour[:3], (0.2126, 0.7152, 0.0722)))


def deep_report(num_layers: int) -> NumericsReport:
    """Only layer 101 overflows, only layer 103 holds a NaN."""
    values = {101: [FINE, INFINITE], 103: [FINE, math.nan]}
    return report_of(
        [tensor("output", f"block/{i}", values.get(i, [FINE])) for i in range(num_layers)]
    )


def test_colours_are_the_shares_by_kind() -> None:
    report = report_of(
        [
            tensor("output", "a", [FINE, FINE, FINE, VANISHING]),
            tensor("gradient", "a", [VANISHING, INFINITE]),
            tensor("weight", "a/kernel", [FINE]),
            tensor("weight_gradient", "a/kernel", [VANISHING]),
        ]
    )
    underflow, overflow = plot_layers(report).axes
    assert [*shares(underflow)[0], *shares(overflow)[0]] == [0.25, 0.5, 0, 1, 0, 0.5, 0, 0]


def test_weights_of_one_layer_are_taken_together() -> None:
    weights = [("a/kernel", [FINE, FINE, FINE]), ("a/bias", [INFINITE])]
    report = report_of(
        [tensor("output", "a", [FINE]), *[tensor("weight", *one) for one in weights]]
    )
    assert shares(plot_layers(report).axes[1])[0, 2] == 0.25


def test_a_weight_belongs_to_the_innermost_layer_that_has_an_output() -> None:
    outputs = [tensor("output", path, [FINE]) for path in ("outer/inner", "outer")]
    report = report_of([*outputs, tensor("weight", "outer/inner/cell/kernel", [INFINITE])])
    assert shares(plot_layers(report).axes[1])[:, 2].tolist()[0] == 1


def test_layers_are_in_the_order_of_execution() -> None:
    report = report_of([tensor("output", path, [FINE]) for path in ("z", "a", "m")])
    assert labels(plot_layers(report).axes[0]) == ["z", "a", "m"]


def test_the_first_layer_is_on_top() -> None:
    bottom, top = plot_layers(deep_report(5)).axes[0].get_ylim()
    assert bottom > top


def test_a_tiny_share_differs_from_zero_in_grey_too() -> None:
    # One element in twenty thousand, the least that has the lightest colour.
    report = report_of(
        [tensor("output", "a", [FINE] * 20_000 + [VANISHING]), tensor("output", "b", [FINE])]
    )
    tiny, zero = (lightness(colours(plot_layers(report).axes[0])[i]) for i in (0, 4))
    assert zero - tiny > 0.25


def test_larger_shares_are_darker() -> None:
    values = [
        [VANISHING] * count + [FINE] * (20_000 - count) for count in (1, 10, 100, 1000, 20_000)
    ]
    report = report_of([tensor("output", str(i), one) for i, one in enumerate(values)])
    drawn = [lightness(one) for one in colours(plot_layers(report).axes[0])[::4]]
    assert np.all(np.diff(drawn) < -0.05)


def test_what_was_not_measured_has_no_colour() -> None:
    report = report_of([tensor("output", "a", [FINE]), tensor("gradient", "a", [0.0])])
    assert np.isnan(shares(plot_layers(report).axes[0])[0]).tolist() == [False, True, True, True]


def test_a_cell_with_nan_is_marked() -> None:
    axes = plot_layers(deep_report(110)).axes[0]
    marks = [line for line in axes.lines if line.get_marker() == "X"]
    assert [round(y) for one in marks for y in one.get_ydata()] == [103]


def test_few_layers_have_their_shares_in_words() -> None:
    report = report_of([tensor("output", "a", [FINE] * 9999 + [VANISHING])])
    assert [text.get_text() for text in plot_layers(report).axes[0].texts] == ["<0.05 %"]


def test_two_hundred_layers_have_labels_that_do_not_overlap() -> None:
    figure = plot_layers(deep_report(200))
    figure.draw_without_rendering()
    boxes = [one.get_window_extent() for one in figure.axes[0].get_yticklabels()]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_two_hundred_layers_have_all_their_rows() -> None:
    assert shares(plot_layers(deep_report(200)).axes[1]).shape == (200, 4)


def test_where_not_all_fit_the_worst_layer_has_its_label() -> None:
    assert "block/103" in labels(plot_layers(deep_report(200)).axes[0])


def test_a_real_model_has_a_row_for_each_layer() -> None:
    layers = [keras.Input((3,)), keras.layers.Dense(2, name="a"), keras.layers.ReLU(name="b")]
    x, y = np.ones((4, 3)), np.ones((4, 2))
    report = measure_numerics(
        keras.Sequential(layers), x, y, loss="mse", precision="fp16", verbose=0
    )
    assert labels(plot_layers(report).axes[0]) == ["a", "b"]
