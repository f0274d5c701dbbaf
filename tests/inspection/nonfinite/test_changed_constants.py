"""Constants that half precision changed, seen next to the same step in float32."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tf_amp_kit.data import batch_specs
from tf_amp_kit.inspection.nonfinite.constants import Constants
from tf_amp_kit.tracing.step_graph import trace_step

from .small import ONES, chain, dense, fault

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")


class Compared:
    """A step with one function in it, in half precision and in float32."""

    def __init__(self, function, policy="mixed_float16", **kwargs):
        keras.config.set_dtype_policy(policy)
        model = chain(fault(function, **kwargs), dense())
        specs = batch_specs((ONES, ONES))
        self.step = trace_step(model, specs)
        self.constants = Constants(self.step, trace_step(model, specs, in_float32=True))

    def operations(self, kind):
        paths = {call.index: call.path for call in self.step.trace.calls}
        return [
            op
            for op in self.step.trace.operations
            if op.type == kind and paths.get(op.call) == "fault"
        ]

    def behind(self, kind):
        """What the first input of an operation was to be kept off an edge by."""
        changed = self.constants.behind(self.operations(kind)[0].inputs[0])
        return changed and changed.intended


@pytest.mark.parametrize(
    "guard",
    [
        lambda x: x + 1e-8,
        lambda x: ops.maximum(x, 1e-8),
        lambda x: ops.clip(x, 1e-8, 3.0),
        lambda x: tf.identity(ops.maximum(x, 1e-8)),
        lambda x: tf.reshape(x + 1e-8, (-1, 4)),
    ],
    ids=["sum", "maximum", "clip", "handed on", "reshaped"],
)
def test_a_guard_that_became_zero_is_known_as_it_was_written(guard):
    assert Compared(lambda x: ops.log(guard(x))).behind("Log") == 1e-8


def test_a_bound_that_became_one_is_known_as_it_was_written():
    found = Compared(lambda x: ops.log(1 - ops.minimum(x, 1 - 1e-7))).behind("Log")
    assert found == pytest.approx(1 - 1e-7, abs=1e-9)


@pytest.mark.parametrize("number", [0.5, 0.0, 1.0, 3.0, 1e-4])
def test_a_constant_that_only_rounds_is_not_changed(number):
    assert Compared(lambda x: ops.log(ops.maximum(x, number))).behind("Log") is None


def test_a_guard_that_bfloat16_holds_is_not_changed():
    function = lambda x: ops.log(x + 1e-8)  # noqa: E731
    assert Compared(function, "mixed_bfloat16").behind("Log") is None


def test_what_is_multiplied_is_no_guard():
    assert Compared(lambda x: ops.log(x * 1e-8)).behind("Log") is None


def test_a_changed_constant_has_its_line():
    compared = Compared(lambda x: ops.log(x + 1e-8))
    changed = compared.constants.behind(compared.operations("Log")[0].inputs[0])
    assert changed.source.text == "compared = Compared(lambda x: ops.log(x + 1e-8))"


def infinite_constants(function, **kwargs):
    compared = Compared(function, **kwargs)
    infinite = [op for op in compared.operations("Const") if not np.isfinite(op.constant()).all()]
    return [compared.constants.is_deliberate(op) for op in infinite]


def test_an_infinity_that_is_written_is_meant():
    assert infinite_constants(lambda x: x + tf.constant(-np.inf, x.dtype)) == [True]


def test_an_infinity_that_float16_made_is_not_meant():
    assert infinite_constants(lambda x: x + tf.constant(-1e9, x.dtype)) == [False]


def test_an_infinity_in_a_float32_layer_is_meant():
    assert infinite_constants(lambda x: x + tf.constant(-np.inf), dtype="float32") == [True]


def test_two_constants_of_one_line_are_told_apart():
    def function(x):
        return x + tf.constant(-np.inf, x.dtype) + tf.constant(-1e9, x.dtype)

    assert infinite_constants(function) == [True, False]
