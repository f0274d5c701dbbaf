"""Figures, read back from what is drawn."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import keras
import numpy as np
import pytest
from matplotlib import rc_context

from tests.reporting.records import (
    axes_titled,
    bars,
    comparison_of,
    report_of,
    right_titles,
    tensor,
    vertical_lines,
)
from tf_amp_kit.errors import AmpError, MissingExtraError, SelectionError
from tf_amp_kit.inspection.numerics.measure import measure_numerics
from tf_amp_kit.inspection.numerics.report import NumericsReport
from tf_amp_kit.reporting.plots import plot_exponents, plot_gradients, plot_layers

# By IEEE 754, and for bfloat16 by float32's exponents with 7 mantissa bits.
FLOAT16_LIMITS = [-24.0, -14.0, math.log2(65504)]
BFLOAT16_LIMITS = [-133.0, -126.0, math.log2(255 * 2.0**120)]


def tiny_model() -> keras.Model:
    layers = [keras.layers.Dense(4, name="hidden"), keras.layers.Dense(1, name="out")]
    return keras.Sequential([keras.Input((3,)), *layers], name="tiny")


def measured(**keywords: Any) -> NumericsReport:
    x, y = np.ones((5, 3), np.float32), np.ones((5, 1), np.float32)
    settings = {"loss": "mse", "precision": "fp16", "verbose": 0, "batch_size": 5, **keywords}
    return measure_numerics(tiny_model(), x, y, **settings)


def png(figure: Any) -> bytes:
    stream = BytesIO()
    figure.savefig(stream, format="png", dpi=50)
    return stream.getvalue()


def test_bars_of_outputs_are_the_counts_of_all_outputs_together() -> None:
    tensors = [tensor("output", "a", [1, 1.5, 4]), tensor("output", "b", [1.99, 0.25])]
    axes = axes_titled(plot_exponents(report_of([*tensors, tensor("input", "x", [1])])), "All out")
    assert bars(axes) == {-2: 1, 0: 3, 2: 1}


def test_bars_of_gradients_are_those_of_outputs_and_of_weights() -> None:
    tensors = [tensor("gradient", "a", [1]), tensor("weight_gradient", "a/kernel", [1, 8])]
    axes = axes_titled(plot_exponents(report_of(tensors)), "All gradients")
    assert bars(axes) == {0: 2, 3: 1}


def test_bars_of_a_measured_weight_are_its_exponents_by_numpy() -> None:
    model = tiny_model()
    x, y = np.ones((5, 3)), np.ones((5, 1))
    report = measure_numerics(model, x, y, loss="mse", precision="fp16", verbose=0)
    figure = plot_exponents(report, paths="hidden/kernel", kinds="weight")
    exponents = np.floor(np.log2(np.abs(np.asarray(model.layers[0].kernel)))).astype(int)
    expected = dict(zip(*np.unique(exponents, return_counts=True), strict=True))
    assert bars(figure.axes[1]) == expected


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_the_limits_of_both_formats_are_drawn_where_they_are(precision: str) -> None:
    figure = plot_exponents(report_of([tensor("output", "a", [1], precision)], precision))
    expected = sorted(FLOAT16_LIMITS + BFLOAT16_LIMITS)
    assert sorted(vertical_lines(figure.axes[1])) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("precision", "edges"),
    [
        # Half of the smallest subnormal, the smallest normal, and half a step above the largest.
        ("float16", [-25, -25, -14, math.log2(65520)]),
        ("bfloat16", [-134, -134, -126, math.log2(511 * 2.0**119)]),
    ],
)
def test_shading_starts_where_rounding_gives_zero_subnormal_and_infinity(
    precision: str, edges: list[float]
) -> None:
    axes = plot_exponents(report_of([tensor("output", "a", [1], precision)], precision)).axes[1]
    spans = [one for one in axes.patches if one.get_gid() == "range"]
    boxes = [one.get_path().get_extents(one.get_patch_transform()) for one in spans]
    ends = [x for box in boxes for x in box.intervalx]
    assert ends[1:5] == pytest.approx(edges)


def test_the_limits_are_labelled_with_their_values() -> None:
    figure = plot_exponents(report_of([tensor("output", "a", [2.0**-140, 1])]))
    texts = " ".join(text.get_text().strip() for text in figure.axes[0].texts)
    values = ("$2^{-24}$ s", "$2^{-14}$ s", "65504 l", "$2^{-133}$ s", "$2^{-126}$ s", "3.39")
    assert [value for value in values if value not in texts] == []


def test_a_limit_out_of_view_is_labelled_with_an_arrow() -> None:
    figure = plot_exponents(report_of([tensor("output", "a", [1])]))
    assert any(text.get_text().startswith("← $2^{-133}$") for text in figure.axes[0].texts)


def test_the_note_has_the_shares_of_all_elements_of_the_histogram() -> None:
    tensors = [tensor("output", "a", [1e-9, 1, 1, 1e5]), tensor("output", "b", [1, 1e-6, 1, 1])]
    figure = plot_exponents(report_of(tensors))
    assert right_titles(figure)[0] == "zero: 12.5 %, subnormal: 12.5 %, infinite: 12.5 %"


def test_the_title_says_what_was_measured() -> None:
    title = plot_exponents(measured(loss_scale=512.0, batch_size=2, batches=2)).get_suptitle()
    assert title == (
        "Exponents of 'tiny' in float16, gradients at loss scale 512, 2 batches of 4 samples in all"
    )


def test_each_path_has_a_histogram_for_each_kind() -> None:
    figure = plot_exponents(measured(), paths=["out", "hidden/bias"])
    titles = [axes.get_title("left") for axes in figure.axes[1:]]
    assert titles == [
        "out, output",
        "out, gradient",
        "hidden/bias, weight",
        "hidden/bias, weight gradient",
    ]


def test_kinds_without_paths_have_a_histogram_each() -> None:
    figure = plot_exponents(measured(), kinds=["weight", "input"])
    titles = [axes.get_title("left") for axes in figure.axes[1:]]
    assert titles == ["Weights (4 tensors)", "Inputs (1 tensor)"]


def test_an_unknown_path_is_refused_with_paths_that_are_known() -> None:
    message = "such as 'a'. Received: 'b'."
    with pytest.raises(SelectionError, match=re.escape(message)):
        plot_exponents(report_of([tensor("output", "a", [1])]), paths=["a", "b"])


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(SelectionError, match=re.escape("Received: ['outputs'].")):
        plot_exponents(report_of([]), kinds="outputs")


def test_more_tensors_than_a_page_can_hold_are_refused() -> None:
    tensors = [tensor("output", f"layer_{i}", [1]) for i in range(41)]
    with pytest.raises(SelectionError, match="at most 40 tensors"):
        plot_exponents(report_of(tensors), paths=[one.path for one in tensors])


EMPTY = report_of([])
NAN = report_of([tensor(kind, "a", [math.nan]) for kind in ("output", "gradient")])
SPECIAL = report_of([tensor("output", "a$_{$", [1, 2])], model_name="$_{$")
NO_GRADIENTS = comparison_of({})
NAN_GRADIENTS = comparison_of({"w": ([math.nan], [math.nan]), "v": ([0], [0])})


@pytest.mark.parametrize("report", [EMPTY, NAN, SPECIAL], ids=["empty", "nan", "special"])
@pytest.mark.parametrize("plot", [plot_exponents, plot_layers])
def test_a_report_of_any_content_becomes_a_picture(plot: Any, report: NumericsReport) -> None:
    assert png(plot(report)).startswith(b"\x89PNG")


@pytest.mark.parametrize("comparison", [NO_GRADIENTS, NAN_GRADIENTS], ids=["empty", "nan"])
def test_a_comparison_of_any_content_becomes_a_picture(comparison: Any) -> None:
    assert png(plot_gradients(comparison)).startswith(b"\x89PNG")


def test_a_histogram_of_nothing_says_so() -> None:
    texts = [text.get_text() for text in plot_exponents(NAN).axes[1].texts]
    assert texts == ["no finite element that is not zero"]


def test_what_cannot_be_drawn_is_counted() -> None:
    assert right_titles(plot_exponents(NAN))[0] == "not drawn: 1 NaN or Inf in float32"


def test_figures_are_none_of_pyplots() -> None:
    from matplotlib import pyplot

    _ = [plot_exponents(EMPTY), plot_layers(EMPTY), plot_gradients(NO_GRADIENTS)]
    assert pyplot.get_fignums() == []


def test_the_users_style_neither_counts_nor_changes() -> None:
    report = report_of([tensor("output", "a", [1])])
    plain = png(plot_exponents(report))
    with rc_context({"font.size": 30, "text.color": "white", "axes.labelcolor": "white"}) as _:
        styled = png(plot_exponents(report))
    assert styled == plain


def overlaps(texts: Sequence[Any]) -> list[tuple[str, str]]:
    boxes = [(one.get_text(), one.get_window_extent()) for one in texts if one.get_text().strip()]
    return [
        (name, other)
        for i, (name, box) in enumerate(boxes)
        for other, other_box in boxes[:i]
        if box.overlaps(other_box)
    ]


# Views of which the limits of the other format are out, just in, and far in.
VIEWS = pytest.mark.parametrize(
    ("precision", "smallest", "largest"),
    [
        ("float16", 2.0**-10, 1.0),
        ("float16", 2.0**-60, 2.0**40),
        ("float16", 2.0**-110, 1.0),
        ("float16", 2.0**-149, 2.0**127),
        ("bfloat16", 1.0, 1.0),
    ],
)


def ruler_of(precision: str, smallest: float, largest: float) -> Any:
    one = tensor("output", "a", [smallest, largest], precision)
    figure = plot_exponents(report_of([one], precision))
    figure.draw_without_rendering()
    return figure.axes[0]


@VIEWS
def test_labels_of_limits_never_overlap(precision: str, smallest: float, largest: float) -> None:
    assert overlaps(ruler_of(precision, smallest, largest).texts) == []


@VIEWS
def test_labels_of_limits_are_never_cut_off(
    precision: str, smallest: float, largest: float
) -> None:
    ruler = ruler_of(precision, smallest, largest)
    left, right = ruler.get_window_extent().intervalx
    boxes = {text.get_text(): text.get_window_extent() for text in ruler.texts}
    assert [name for name, box in boxes.items() if box.x0 < left - 1 or box.x1 > right + 1] == []


def test_a_long_path_gives_way_to_the_note_beside_it() -> None:
    path = "/".join(["encoder_block"] * 12)
    one = tensor("output", path, [math.nan] * 100_000 + [1e-9, 1e-6, 1, 1e6])
    figure = plot_exponents(report_of([one]), paths=path)
    figure.draw_without_rendering()
    titles = [text for text in figure.axes[1].get_children() if "output" in str(text)]
    notes = [text for text in figure.axes[1].get_children() if "zero: " in str(text)]
    assert overlaps([*titles, *notes]) == []


def test_without_matplotlib_the_package_works_and_a_figure_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import tf_amp_kit as amp\n"
        "from tests.reporting.records import report_of\n"
        "try: amp.plot_layers(report_of([]))\n"
        "except amp.errors.MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'Install it: pip install "tf_amp_kit[plots]".' in done.stdout


@pytest.mark.parametrize("base", [AmpError, ImportError])
def test_the_error_of_a_missing_extra_is_an_import_error_of_the_package(base: type) -> None:
    assert issubclass(MissingExtraError, base)
