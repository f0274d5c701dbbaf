"""Models of a few numbers, and what `find_nonfinite` tells of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers

from tf_amp_kit.inspection.nonfinite.find import find_nonfinite
from tf_amp_kit.inspection.nonfinite.report import NonFiniteReport

ONES = np.ones((4, 4), "float32")


class Apply(layers.Layer):
    """Calls a function on its input, whose shape it keeps."""

    def __init__(self, function: Callable[[Any], Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.function = function

    def call(self, inputs):
        return self.function(inputs)

    def compute_output_shape(self, input_shape):
        return input_shape


def fault(function: Callable[[Any], Any], **kwargs: Any) -> Apply:
    return Apply(function, **{"name": "fault", **kwargs})


def chain(*inner: layers.Layer, shape: Any = (4,), loss: Any = "mse", **compiled: Any) -> Any:
    """A compiled sequential model."""
    model = keras.Sequential([keras.Input(shape), *inner])
    model.compile("sgd", loss, **compiled)
    return model


def dense(units: int = 4, **kwargs: Any) -> layers.Dense:
    return layers.Dense(units, **{"name": "head", **kwargs})


def single(weight: float, **kwargs: Any) -> layers.Dense:
    """One weight and no bias: a product, whose gradients are easily known."""
    start = keras.initializers.Constant(weight)
    return layers.Dense(1, use_bias=False, kernel_initializer=start, **{"name": "head", **kwargs})


def report_on(model: Any, data: Any = ONES, y: Any = ONES, **options: Any) -> NonFiniteReport:
    """What is found, at loss scale 1 unless told otherwise."""
    return find_nonfinite(model, data, y, **{"loss_scale": 1.0, "verbose": 0, **options})


def place(report: NonFiniteReport) -> tuple[str, str, str] | None:
    """Path, operation and direction; None for a clean report."""
    origin = report.origin
    return origin and (origin.path, origin.operation, origin.direction)


def place_on(model: Any, data: Any = ONES, y: Any = ONES, **options: Any) -> Any:
    return place(report_on(model, data, y, **options))


def line_in(report: NonFiniteReport) -> str:
    """The text of the line that is named."""
    origin = report.origin
    return origin.source.text if origin and origin.source else ""


def location(report: NonFiniteReport) -> tuple[str, int] | None:
    """File and line that are named."""
    origin = report.origin
    return (origin.source.file, origin.source.line) if origin and origin.source else None


def marked(code: Any) -> tuple[str, int]:
    """File and line of the one line of a class or function that ends with `# origin`."""
    lines, start = inspect.getsourcelines(code)
    (offset,) = [n for n, line in enumerate(lines) if line.rstrip().endswith("# origin")]
    return inspect.getsourcefile(code), start + offset
