"""Whole models: silence on clean ones, and the one planted mistake on the others."""

import functools
import random

import keras
import pytest

from tf_amp_kit.inspection.audit import audit_layer_dtypes

from .expect import Expected, check
from .reversions import KINDS, ByDoubleArray
from .zoo import LARGE, SMALL, ZOO, planted_path

NUM_SEEDS = 50
# Every seventh seed meets the same model; these are on the small models.
QUICK_SEEDS = frozenset({0, 1, 2, 7, 8, 9, 14, 15, 16})
QUICK_LARGE = "MobileNetV3Small"


def _slow(name):
    return [pytest.mark.slow] if name in LARGE else []


MODELS = [pytest.param(name, marks=_slow(name)) for name in ZOO]
SEEDS = [
    pytest.param(seed, marks=[] if seed in QUICK_SEEDS else [pytest.mark.slow])
    for seed in range(NUM_SEEDS)
]


@pytest.mark.parametrize("name", MODELS)
def test_a_clean_model_has_no_finding_but_its_half_head(name, half):
    report = audit_layer_dtypes(ZOO[name](), verbose=0)
    check(report, (Expected("AMP202", "head"),))


@pytest.mark.parametrize("name", MODELS)
def test_a_clean_model_with_a_float32_head_has_no_finding(name, half):
    report = audit_layer_dtypes(ZOO[name](head="float32"), verbose=0)
    check(report, allowed=frozenset({"AMP108"}))


def test_a_clean_convolutional_model_has_no_finding():
    keras.config.set_dtype_policy("mixed_bfloat16")
    report = audit_layer_dtypes(LARGE[QUICK_LARGE](head="float32"), verbose=0)
    check(report, allowed=frozenset({"AMP108"}))


def planted_model(seed):
    """Return a seed's model builder, the expected finding and the policy."""
    draw = random.Random(seed)
    name = list(ZOO)[seed % len(ZOO)]
    kind, half = draw.choice(KINDS), draw.choice(("float16", "bfloat16"))
    plant = (kind, draw.random())
    code = "AMP102" if kind is ByDoubleArray else "AMP101"
    expected = Expected(code, planted_path(name, plant), planted=kind)
    return functools.partial(ZOO[name], "float32", plant), expected, f"mixed_{half}"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_planted_reversion_is_found_at_its_line_and_nowhere_else(seed):
    build, expected, policy = planted_model(seed)
    keras.config.set_dtype_policy(policy)
    report = audit_layer_dtypes(build(), verbose=0)
    check(report, (expected,), allowed=frozenset({"AMP108"}))


def test_the_seeds_cover_every_kind_and_every_model():
    kinds = {planted_model(seed)[1].planted for seed in range(NUM_SEEDS)}
    assert kinds == set(KINDS)
    assert {seed % len(ZOO) for seed in QUICK_SEEDS} == set(range(len(SMALL)))
