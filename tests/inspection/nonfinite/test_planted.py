"""`find_nonfinite` names every planted fault: path, operation, direction, file and line."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tf_amp_kit as amp
from tf_amp_kit.inspection.nonfinite.find import find_nonfinite

from .clean import CLEAN
from .planted import BY_NAME, FAULTS, plant, planted_alone
from .running import loss_scale_for
from .told import told, told_by, truth

# What NumPy says of -1e9 in float16 is the fault.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")

# Each of them takes a second: a few of each kind, and the others when asked for.
PLACES = [
    pytest.param(model, seed, marks=() if seed == 1 and number % 3 == 0 else pytest.mark.slow)
    for seed in (1, 2)
    for number, model in enumerate(CLEAN)
]
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])


@pytest.mark.parametrize(("model", "seed"), PLACES)
def test_a_fault_at_a_random_place_is_found_at_its_line(model, seed):
    planted = plant(seed, model)
    assert told(planted) == truth(planted)


@functools.cache
def report_of(fault):
    planted = planted_alone(fault)
    with amp.amp_scope(planted.precision):
        built = planted.build()
        scale = loss_scale_for(planted.precision)
        return find_nonfinite(built.model, built.data, loss_scale=scale, verbose=0)


@each_fault
def test_every_kind_of_fault_is_found_at_its_line(fault):
    assert told_by(report_of(fault)) == truth(planted_alone(fault))


@pytest.mark.parametrize(
    "name", ["BadLog", "ClippedLog", "SqrtAtZero", "FaultInMapFn", "FaultyMetric"]
)
def test_a_fault_is_found_in_bfloat16(name):
    planted = planted_alone(BY_NAME[name], "bfloat16")
    assert told(planted) == truth(planted)


@each_fault
def test_the_report_says_whether_float32_has_it_too(fault):
    assert report_of(fault).in_float32 == fault.in_float32


@pytest.mark.parametrize("name", ["FaultInAssign", "FaultyMetric", "BadLog"])
def test_finding_leaves_every_variable_as_it_was(name):
    planted = planted_alone(BY_NAME[name])
    with amp.amp_scope(planted.precision):
        model, data = planted.build()
        variables = [*model.variables, *model.metrics_variables]
        before = [np.array(variable) for variable in variables]
        find_nonfinite(model, data, verbose=0)
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(np.array(variable), value)
