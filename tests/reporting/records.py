"""Records made by hand, and what their figures show, read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf_amp_kit.inspection.numerics.pairs import GradientComparison, compare_arrays
from tf_amp_kit.inspection.numerics.report import NumericsReport, TensorNumerics
from tf_amp_kit.inspection.numerics.scales import ScaleAdvice
from tf_amp_kit.inspection.numerics.statistics import StatisticsCounter

NO_ADVICE = ScaleAdvice(1.0, None, None, 0.0, 0.0)


def tensor(
    kind: str, path: str, values: Sequence[float], precision: str = "float16"
) -> TensorNumerics:
    counter = StatisticsCounter(precision)
    counter.add(np.array(values, np.float32))
    statistics = counter.freeze()
    judgement = statistics.judge(precision)
    return TensorNumerics(kind, path, 0, "Dense", precision, statistics, judgement)


def report_of(
    tensors: Sequence[TensorNumerics], precision: str = "float16", *, model_name: str = "model"
) -> NumericsReport:
    return NumericsReport(model_name, precision, 1.0, 1, 4, tuple(tensors), NO_ADVICE)


def comparison_of(
    gradients: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    loss_scale: float = 1.0,
    precision: str = "float16",
) -> GradientComparison:
    arrays = {
        path: [np.array(values, np.float32) for values in pair] for path, pair in gradients.items()
    }
    pairs = [compare_arrays(path, [a], [b], precision) for path, (a, b) in arrays.items()]
    wide, half = [[pair[i] for pair in arrays.values()] for i in (0, 1)]
    whole = compare_arrays("", wide, half, precision)
    return GradientComparison("model", precision, loss_scale, 4, whole, tuple(pairs))


def bars(axes: Any, index: int = 0) -> dict[int, int]:
    """Heights by exponent, of the series of this index."""
    return {int(np.floor(one.get_x())): one.get_height() for one in axes.containers[index]}


def vertical_lines(axes: Any) -> list[float]:
    return [line.get_xdata()[0] for line in axes.lines]


def axes_titled(figure: Any, start: str) -> Any:
    return next(axes for axes in figure.axes if axes.get_title("left").startswith(start))


def right_titles(figure: Any) -> list[str]:
    return [axes.get_title("right") for axes in figure.axes if axes.get_title("right")]
