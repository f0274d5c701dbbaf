"""The planted models are what they say, by really running every choice of pins."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tf_amp_kit as amp
from tests.benchmarks.plan_brute import error_with_pins, in_float32, outputs, single_errors, units
from tests.comparison.fragile import PLANTED, TOGETHER, clean
from tf_amp_kit.tracing.paths import LayerPaths

# Rounding to float16 in all layers comes to less than 0.0013 here, a planted layer to 0.15.
GOOD, BAD = 0.002, 0.15
ALL = {**PLANTED, **TOGETHER}


@pytest.mark.parametrize("name", ALL)
def test_pinning_the_planted_layers_is_what_float16_needs(name: str) -> None:
    _check_that_pins_help(name)


@pytest.mark.parametrize("name", TOGETHER)
def test_compiled_code_overflows_together_as_eager_code_does(name: str) -> None:
    _check_that_pins_help(name, compiled=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_compiled_code_breaks_where_eager_code_does(name: str) -> None:
    _check_that_pins_help(name, compiled=True)


def _check_that_pins_help(name: str, *, compiled: bool = False) -> None:
    model, x, planted = ALL[name](0)
    twin, y32 = amp.convert_model(model, "float16"), outputs(model, x)

    assert all(np.isfinite(one).all() for one in y32)
    assert error_with_pins(twin, x, y32, (), compiled=compiled) > BAD
    assert error_with_pins(twin, x, y32, planted, compiled=compiled) < GOOD


@pytest.mark.parametrize("name", TOGETHER)
def test_no_other_layer_will_do_where_layers_overflow_together(name: str) -> None:
    _check_that_other_pins_do_not_help(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_no_other_layer_will_do_and_none_of_the_planted_can_be_left_out(name: str) -> None:
    _check_that_other_pins_do_not_help(name)


def _check_that_other_pins_do_not_help(name: str) -> None:
    model, x, planted = ALL[name](0)
    twin, y32 = amp.convert_model(model, "float16"), outputs(model, x)
    others = [(path,) for path in units(twin) if {path} != planted]
    too_few = itertools.combinations(planted, len(planted) - 1)

    for choice in (*others, *too_few):
        assert error_with_pins(twin, x, y32, choice) > BAD, choice


@pytest.mark.slow
def test_no_other_pair_will_do_where_two_are_planted() -> None:
    model, x, planted = PLANTED["exp_then_log"](0)
    twin, y32 = amp.convert_model(model, "float16"), outputs(model, x)

    for pair in itertools.combinations(units(twin), 2):
        assert (error_with_pins(twin, x, y32, pair) > BAD) == (set(pair) != planted), pair


@pytest.mark.parametrize("name", PLANTED)
def test_planted_layers_are_bad_and_all_others_harmless_alone(name: str) -> None:
    model, x, planted = PLANTED[name](0)

    errors = {path: one.error for path, one in single_errors(model, x, "float16").items()}

    assert {path for path, error in errors.items() if error > BAD} == planted
    assert max(error for path, error in errors.items() if path not in planted) < GOOD


@pytest.mark.parametrize("name", TOGETHER)
def test_layers_that_overflow_together_are_harmless_alone(name: str) -> None:
    model, x, _ = TOGETHER[name](0)

    errors = [one.error for one in single_errors(model, x, "float16").values()]

    assert max(errors) < GOOD


def test_a_clean_model_takes_float16() -> None:
    model, x, planted = clean(0)
    twin = amp.convert_model(model, "float16")

    assert not planted
    assert len(units(twin)) == 30
    assert error_with_pins(twin, x, outputs(model, x), ()) < GOOD


@pytest.mark.parametrize("name", ("log_sum_exp", "exp_then_log", "product_between_layers"))
def test_switching_policies_is_pinning_to_the_bit(name: str) -> None:
    model, x, planted = ALL[name](0)
    twin, pinned = (amp.convert_model(model, "float16") for _ in range(2))
    known = units(twin)

    amp.pin_float32(pinned, *planted)
    with in_float32([known[path] for path in planted]):
        switched = outputs(twin, x)

    np.testing.assert_array_equal(switched, outputs(pinned, x))


def test_switching_back_leaves_no_trace() -> None:
    model, x, planted = PLANTED["unscaled_attention"](0)
    twin = amp.convert_model(model, "float16")
    before = [layer.dtype_policy for _, layer in LayerPaths(twin)]

    error_with_pins(twin, x, outputs(model, x), planted)

    after = [layer.dtype_policy for _, layer in LayerPaths(twin)]
    assert all(one is two for one, two in zip(before, after, strict=True))
