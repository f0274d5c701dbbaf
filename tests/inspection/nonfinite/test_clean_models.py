"""The clean models are clean: seen by running Keras's own train step."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tf_amp_kit as amp

from .clean import CLEAN, clean_models
from .harmless import HARMLESS
from .running import loss_scale_for, nonfinite_results, run_step
from .slots import Slots

# Keras's spectral norm has a bound of 1e12, which is infinite in float16 and does no harm.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")

PRECISIONS = ("float16", "bfloat16")
MODELS = clean_models()
each_model = pytest.mark.parametrize("build", [b for _, b in MODELS], ids=[n for n, _ in MODELS])


@functools.cache
def results_of(build, precision):
    with amp.amp_scope(precision):
        return run_step(build(), loss_scale_for(precision))


# These three test the models of other tests: to be run where one is changed.
@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@each_model
def test_a_clean_model_gives_finite_results(build, precision):
    assert nonfinite_results(results_of(build, precision)) == []


@pytest.mark.slow
@each_model
def test_gradients_reach_the_weights_of_a_clean_model(build):
    results = results_of(build, "bfloat16")
    gradients = [value for name, value in results.items() if name.startswith("gradient/")]
    assert len(gradients) >= 4
    assert all(np.any(value) for value in gradients[-2:])


def test_there_are_twenty_clean_models():
    assert len(MODELS) == 20


@pytest.mark.slow
@pytest.mark.parametrize("layer", HARMLESS)
def test_a_harmless_infinity_leaves_all_results_finite(layer):
    with amp.amp_scope("float16"):
        results = run_step(CLEAN["MLP"](Slots(layer=layer, place="second")))
    assert nonfinite_results(results) == []
