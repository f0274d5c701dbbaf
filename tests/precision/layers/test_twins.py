"""Every twin, and `Float32` around its Keras layer, against a float32 program."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.precision.layers.cases import CASES, HALVES, Case, normal
from tests.precision.layers.helpers import assert_same, compared, is_far
from tf_amp_kit.precision.layers.twins import ABSENT, TWINS, Twin
from tf_amp_kit.tracing.paths import LayerPaths

# Half a step relative to a value: 2 ** -11 and 2 ** -8.
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}

squares_in_half = pytest.mark.skipif(
    keras.__version__.startswith("3.10."), reason="this Keras squares in half precision there"
)
by_twin = pytest.mark.parametrize("case", CASES, ids=lambda case: case.twin)
by_half = pytest.mark.parametrize("dtype", HALVES)


def test_every_twin_has_a_case() -> None:
    assert {case.twin for case in CASES} == set(TWINS)


@by_half
@by_twin
def test_a_twin_gives_the_results_of_a_float32_program(case: Case, dtype: str) -> None:
    found, expected = compared(case, lambda: case.twin_layer(amp.layers), dtype)
    assert_same(found.outputs, expected.outputs)
    assert_same(found.gradients, expected.gradients)


@by_half
@by_twin
def test_a_twin_returns_float32(case: Case, dtype: str) -> None:
    found, _ = compared(case, lambda: case.twin_layer(amp.layers), dtype)
    assert {out.dtype for out in found.outputs} == {tf.float32}


@by_half
@by_twin
def test_a_wrapped_layer_gives_the_results_of_a_float32_program(case: Case, dtype: str) -> None:
    found, expected = compared(
        case, lambda: amp.layers.Float32(case.keras_layer(), output="float32"), dtype
    )
    assert_same(found.outputs, expected.outputs)
    assert_same(found.gradients, expected.gradients)


@by_half
@by_twin
def test_a_wrapped_layer_gives_them_rounded_once_to_the_compute_dtype(
    case: Case, dtype: str
) -> None:
    found, expected = compared(case, lambda: amp.layers.Float32(case.keras_layer()), dtype)
    assert {out.dtype.name for out in found.outputs} == {dtype}
    assert_same(found.outputs, expected.outputs)


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, dtype, id=f"{case.twin}-{dtype}")
        for case in CASES
        for dtype in case.breaks_in
    ],
)
def test_the_layer_itself_breaks_in_half(case: Case, dtype: str) -> None:
    try:
        found, expected = compared(case, case.keras_layer, dtype)
    except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError):
        return  # no kernel
    assert is_far(found.outputs, expected.outputs) or is_far(found.gradients, expected.gradients)


@by_half
@pytest.mark.parametrize(
    "twin",
    [
        "BatchNormalization",
        pytest.param("RMSNormalization", marks=squares_in_half),
        "LayerNormalization",
        "GroupNormalization",
        "GlobalAveragePooling1D",
        "GlobalAveragePooling2D",
        "GlobalAveragePooling3D",
    ],
)
def test_what_keras_computes_in_float32_differs_in_half_by_rounding_only(
    twin: str, dtype: str
) -> None:
    case = next(case for case in CASES if case.twin == twin)
    found, expected = compared(case, case.keras_layer, dtype)
    for one, other in zip(found.outputs, expected.outputs, strict=True):
        wanted = tf.cast(tf.cast(other, dtype), "float32").numpy()
        step = 2 * ROUNDING[dtype] * np.abs(wanted)
        assert (np.abs(tf.cast(one, "float32").numpy() - wanted) <= step).all()


@pytest.mark.parametrize("twin", TWINS)
def test_a_twin_is_a_layer_of_keras_itself(twin: str) -> None:
    case = next(case for case in CASES if case.twin == twin)
    layer = case.twin_layer(amp.layers)
    assert type(layer) is TWINS[twin].keras_class
    assert layer.dtype_policy.name == "float32"


@pytest.mark.parametrize("twin", TWINS)
def test_a_twin_has_the_name_and_the_arguments_of_the_layer(twin: str) -> None:
    function = getattr(amp.layers, twin)
    parameters = list(inspect.signature(TWINS[twin].keras_class).parameters)
    assert function.__name__ == twin
    assert list(inspect.signature(function).parameters) == parameters[len(TWINS[twin].fixed) :]


@pytest.mark.parametrize("twin", TWINS)
def test_the_example_of_a_twin_runs(twin: str) -> None:
    example = doctest.DocTestParser().get_doctest(
        inspect.getdoc(getattr(amp.layers, twin)) or "", {"keras": keras}, twin, None, None
    )
    assert doctest.DocTestRunner().run(example) == (0, 3)


def test_type_checkers_know_every_twin_and_no_other_name() -> None:
    assert set(inspect.get_annotations(amp.layers)) == {*TWINS, *ABSENT}


def test_an_unknown_layer_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'tf_amp_kit.* has no attribute 'Sofmax'"):
        amp.layers.Sofmax  # noqa: B018


def test_a_layer_that_keras_is_too_old_for_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ABSENT, "Future", Twin("Future", "A reason."))
    message = (
        f"Keras {keras.__version__} has no layer 'Future': "
        "tf_amp_kit.layers.Future needs a newer one."
    )
    with pytest.raises(AttributeError, match=re.escape(message)):
        amp.layers.Future  # noqa: B018


@pytest.mark.parametrize("name", amp.layers.__all__)
def test_every_layer_has_a_docstring_with_an_example(name: str) -> None:
    docstring = inspect.getdoc(getattr(amp.layers, name)) or ""
    assert re.search(r"^Example:\n\n>>> ", docstring, re.MULTILINE)


def test_a_dtype_is_refused_with_the_way_out() -> None:
    message = (
        "Softmax is here to be float32. Expected no dtype. Received: dtype='float16'. "
        "For another one use keras.layers.Softmax; for results in half, Float32."
    )
    with pytest.raises(amp.errors.LayerError, match=re.escape(message)):
        amp.layers.Softmax(dtype="float16")


def test_the_layer_inside_spectral_normalization_is_float32_too() -> None:
    with amp.amp_scope("fp16"):
        layer = amp.layers.SpectralNormalization(keras.layers.Dense(2))
    assert layer.layer.dtype_policy.name == "float32"


def test_multi_head_attention_is_float32_down_to_its_softmax() -> None:
    with amp.amp_scope("fp16"):
        layer = amp.layers.MultiHeadAttention(2, 4)
        layer(*2 * [tf.ones((1, 3, 4), "float16")])
    assert {sub.compute_dtype for _, sub in LayerPaths(layer)} == {"float32"}


@pytest.mark.parametrize("twin", ["AveragePooling3D", "GlobalAveragePooling3D"])
def test_pooling_in_three_dimensions_needs_no_half_kernel(twin: str) -> None:
    case = next(case for case in CASES if case.twin == twin)
    inputs = tf.ones((1, 4, 4, 4, 1), "float16")
    assert float(tf.reduce_sum(getattr(amp.layers, twin)(*(4,) * len(case.args))(inputs))) == 1


def test_a_model_of_twins_opens_without_this_package(tmp_path: Path) -> None:
    with amp.amp_scope("bf16"):
        inputs = keras.Input((6, 4))
        x = amp.layers.MultiHeadAttention(2, 4)(inputs, inputs)
        x = amp.layers.RMSNormalization()(x)
        x = amp.layers.SpectralNormalization(keras.layers.Dense(3))(x)
        model = keras.Model(inputs, amp.layers.Sigmoid()(amp.layers.UnitNormalization()(x)))
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "x.npy", (x := normal(2, 6, 4)))
    np.save(tmp_path / "y.npy", model(x).numpy())
    code = (
        "import sys, keras, numpy as np\n"
        "model = keras.models.load_model('model.keras')\n"
        "np.testing.assert_array_equal(model(np.load('x.npy')), np.load('y.npy'))\n"
        "print('tf_amp_kit' in sys.modules, {layer.compute_dtype for layer in model.layers[1:]})"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "False {'float32'}\n"


def test_inside_time_distributed_only_the_wrapper_gets_float32() -> None:
    with amp.amp_scope("fp16"):
        x = tf.fill((1, 1, 4), tf.constant(300, "float16"))
        twin = keras.layers.TimeDistributed(amp.layers.UnitNormalization())(x)
        wrapped = keras.layers.TimeDistributed(
            amp.layers.Float32(keras.layers.UnitNormalization())
        )(x)
    assert twin.numpy().tolist() == [[[0.0] * 4]]
    assert wrapped.numpy().tolist() == [[[0.5] * 4]]
