"""The planted faults are what they say they are: seen by running Keras's own train step.

TensorFlow's numeric checks, which know nothing of this package, name the first
operation that is not finite and the line that made it.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp

from .clean import CLEAN
from .planted import FAULTS, plant, planted_alone
from .running import loss_scale_for, nonfinite_results, run_step

pytestmark = [
    # What NumPy says of -1e9 in float16 is the fault.
    pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning"),
    # They test the faults that other tests plant: to be run where one is changed.
    pytest.mark.slow,
]

SEEDS = (1, 2)
SINGLE_WHERE = "SingleWhere"
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])


@functools.cache
def results_of(planted, precision):
    with amp.amp_scope(precision):
        return run_step(planted.build(), loss_scale_for(precision))


@each_fault
def test_a_planted_fault_reaches_a_result(fault):
    half = fault.halves[-1]
    assert nonfinite_results(results_of(planted_alone(fault, half), half))


@each_fault
def test_a_planted_fault_is_there_in_float32_as_it_says(fault):
    results = results_of(planted_alone(fault), "float32")
    assert bool(nonfinite_results(results)) == fault.in_float32


@each_fault
def test_only_a_fault_of_the_backward_pass_leaves_the_forward_pass_finite(fault):
    half = fault.halves[-1]
    results = results_of(planted_alone(fault, half), half)
    forward = [name for name in results if not name.startswith("gradient/")]
    is_finite = all(np.isfinite(results[name]).all() for name in forward)
    assert is_finite == (fault.direction == "backward")


def checked_origin(planted):
    """Return the operation and all lines that TensorFlow's numeric checks name."""
    # The checks in a loop's body may fail before earlier ones outside of it do. So
    # there is no loop behind a fault here, nor one of the backward pass's own.
    backward = planted.fault.direction == "backward"
    with amp.amp_scope(planted.precision):
        built = planted.build()
        tf.debugging.enable_check_numerics(stack_height_limit=300, path_length_limit=500)
        try:
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                run_step(built, loss_scale_for(planted.precision), backward=backward)
        finally:
            tf.debugging.disable_check_numerics()
    message = str(caught.value)
    lines = re.findall(r"(\S+\.py)[^\d\n]*(\d+)", message)
    return re.search(r'graph op "(\w+)"', message)[1], [int(line) for _, line in lines]


# The checks stop at the logarithm that reaches nothing.
@pytest.mark.parametrize(
    "fault",
    [fault for fault in FAULTS if fault.name != SINGLE_WHERE],
    ids=[fault.name for fault in FAULTS if fault.name != SINGLE_WHERE],
)
def test_the_first_operation_that_is_not_finite_is_the_planted_one(fault):
    operation, lines = checked_origin(planted_alone(fault))
    # An operation of the backward pass that TensorFlow makes has no line of the layer's.
    assert operation == fault.operation
    assert fault.line in lines or operation == "SqrtGrad"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("model", CLEAN)
def test_a_fault_at_a_random_place_reaches_a_result(model, seed):
    planted = plant(seed, model)
    assert nonfinite_results(results_of(planted, planted.precision))


def test_faults_are_planted_at_the_same_places_in_every_process():
    assert [str(plant(1, model)) for model in list(CLEAN)[:3]] == [
        "MLP: BadLog after dropout in bfloat16",
        "CNN with norms and pooling: FaultInSublayer after average in float16",
        "U-Net: HugeProduct after down in bfloat16",
    ]
