"""What is clean is not accused: `find_nonfinite` on models that are finite in the end."""

from __future__ import annotations

import pytest

import tf_amp_kit as amp
from tf_amp_kit.inspection.nonfinite.find import find_nonfinite

from .clean import CLEAN, clean_models
from .harmless import HARMLESS
from .running import loss_scale_for
from .slots import Slots

# Keras's spectral norm has a bound of 1e12, which is infinite in float16 and does no harm.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")

MODELS = clean_models()
BFLOAT16 = pytest.param("bfloat16", marks=pytest.mark.slow)


def origin_in(build, precision):
    with amp.amp_scope(precision):
        built = build()
        return find_nonfinite(built.model, built.data, loss_scale=loss_scale_for(precision)).origin


@pytest.mark.parametrize("precision", ["float16", BFLOAT16])
@pytest.mark.parametrize("build", [b for _, b in MODELS], ids=[name for name, _ in MODELS])
def test_a_clean_model_has_no_origin(build, precision):
    assert origin_in(build, precision) is None


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    "model", ["transformer with fully masked rows", "masked softmax", "log-sum-exp of infinities"]
)
def test_masks_are_clean_in_wider_formats_too(model, precision):
    assert origin_in(lambda: CLEAN[model](Slots()), precision) is None


@pytest.mark.parametrize("layer", HARMLESS)
def test_an_infinity_that_reaches_no_result_is_no_origin(layer):
    slots = Slots(layer=layer, place="second")
    assert origin_in(lambda: CLEAN["MLP"](slots), "float16") is None
