"""Variables that a step writes, where NaN and Inf go when nothing hands them on."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from .small import ONES, chain, dense, place, report_on

NEVER = (
    "In 1 of the batches NaN or Inf was written to a variable by a branch, a loop or a function "
    "inside the step: this is not followed further."
)


class Bank(keras.layers.Layer):
    """Holds eight rows of zeros, and writes to them in its call."""

    def __init__(self) -> None:
        super().__init__(name="bank", dtype="float32")

    def build(self, shape: Any) -> None:
        self.rows = self.add_weight(
            shape=(8, 4), name="rows", trainable=False, initializer="zeros", autocast=False
        )

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


class Scattered(Bank):
    def call(self, x: Any) -> Any:
        self.rows.value.scatter_nd_update([[0]], tf.math.log(-tf.abs(x[:1])))
        return x


class ReadBack(Scattered):
    def call(self, x: Any) -> Any:
        return super().call(x) + self.rows[0]


class Branch(Bank):
    def call(self, x: Any) -> Any:
        def write() -> Any:
            self.rows.assign(ops.log(-ops.abs(ops.repeat(x[:1], 8, axis=0))))
            return ops.cast(1, "int32")

        ops.cond(ops.sum(x) > -1e9, write, lambda: ops.cast(0, "int32"))
        return x


class BranchReadBack(Branch):
    def call(self, x: Any) -> Any:
        return super().call(x) + self.rows[0]


@pytest.mark.parametrize("layer", [Scattered, ReadBack])
def test_what_is_scattered_to_a_variable_is_followed_back(layer: Any) -> None:
    assert place(report_on(chain(layer(), dense()))) == ("bank", "Log", "forward")


def test_a_variable_that_a_branch_wrote_was_finite_before_the_step() -> None:
    origin = report_on(chain(BranchReadBack(), dense())).origin
    assert (origin.path, origin.operation, origin.reason) == (
        "bank/rows",
        "",
        "It was finite before the step: a branch, a loop or a function inside the step wrote it.",
    )


def test_what_a_branch_writes_and_nothing_reads_is_noted() -> None:
    report = report_on(chain(Branch(), dense()))
    assert (report.origin, report.notes) == (None, (NEVER,))


def test_a_variable_that_was_spoilt_before_is_not_called_written() -> None:
    model = chain(Scattered(), dense())
    model.layers[0].rows.assign(np.full((8, 4), np.inf))
    notes = report_on(model, ONES * np.nan, ONES).notes
    assert NEVER not in notes
