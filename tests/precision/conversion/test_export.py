"""What a mixed model cannot be exported to, its float32 twin can."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tf_amp_kit as amp
from tests.precision.conversion.helpers import bits
from tests.precision.conversion.models import (
    attention,
    built,
    composite_without_dtype,
    data_for,
    nested_sequential,
    subclassed,
)
from tf_amp_kit.errors import ConversionWarning


def exported(model: keras.Model, folder: Path) -> str:
    model.export(str(folder), verbose=False)
    return str(folder)


def run_lite(content: bytes, inputs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*tf.lite.Interpreter is deprecated")
        interpreter = tf.lite.Interpreter(model_content=content)
    index = interpreter.get_input_details()[0]["index"]
    interpreter.resize_tensor_input(index, inputs.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(index, inputs)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def test_tensorflow_lite_takes_the_twin_of_a_nested_mixed_model(tmp_path: Path) -> None:
    model = built(nested_sequential, "mixed_bfloat16")
    converter = tf.lite.TFLiteConverter.from_saved_model(exported(model, tmp_path / "mixed"))
    with pytest.raises(Exception, match="bf16"):
        converter.convert()
    twin = amp.to_float32(model)
    converter = tf.lite.TFLiteConverter.from_saved_model(exported(twin, tmp_path / "twin"))
    inputs, _ = data_for(twin)
    expected = twin.predict(inputs, verbose=0)
    # Its kernels sum in another order.
    assert np.allclose(run_lite(converter.convert(), inputs), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("builder", [attention, composite_without_dtype, subclassed])
def test_a_saved_model_of_the_twin_is_float32_and_predicts_the_same(
    tmp_path: Path, builder: Any
) -> None:
    twin = amp.to_float32(built(builder, "mixed_float16"))
    inputs, _ = data_for(twin)
    loaded = tf.saved_model.load(exported(twin, tmp_path))
    outputs = loaded.serve(tf.constant(inputs))
    assert bits(outputs) == bits(twin.predict(inputs, verbose=0))
    dtypes = {
        tensor.dtype
        for op in loaded.signatures["serving_default"].graph.get_operations()
        for tensor in op.outputs
    }
    assert not dtypes & {tf.float16, tf.bfloat16}


class CastsByName(layers.Layer):
    def call(self, inputs: Any) -> Any:
        rounded = keras.ops.cast(inputs, "bfloat16") * 2
        return keras.ops.cast(rounded, self.compute_dtype)


def test_a_cast_that_code_names_is_warned_about_with_its_line() -> None:
    model = built(
        lambda: keras.Sequential([keras.Input((2,)), CastsByName(name="rounds")]), "mixed_bfloat16"
    )
    expected = "in 1 place: layer 'rounds' (Cast at " + __file__
    with pytest.warns(ConversionWarning, match=re.escape(expected)) as caught:
        amp.to_float32(model)
    (one,) = [one for one in caught if one.category is ConversionWarning]
    assert 'keras.ops.cast(inputs, "bfloat16") * 2' in str(one.message)
    assert one.filename == __file__


def test_a_cast_between_layers_is_warned_about() -> None:
    inputs = keras.Input((2,))
    model = keras.Model(inputs, layers.Dense(2)(keras.ops.cast(inputs, "float16")))
    with pytest.warns(ConversionWarning, match="in 1 place: operation '@cast' \\(Cast"):
        amp.to_float32(model)


def test_a_constant_in_half_is_warned_about() -> None:
    constant = np.ones(2, "float16")
    shifted = layers.Lambda(lambda x: keras.ops.add(x, constant), name="shifted")
    model = keras.Sequential([keras.Input((2,)), shifted])
    with pytest.warns(ConversionWarning, match="in 1 place: layer 'shifted' \\(Const"):
        amp.to_float32(model)


class AsksForValues(keras.Model):
    """Cannot be traced: it asks a tensor for its value."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dense = layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        outputs = self.dense(inputs)
        return outputs if float(keras.ops.convert_to_numpy(inputs)[0, 0]) > 0 else -outputs


def test_a_model_that_cannot_be_traced_is_converted_all_the_same() -> None:
    model = AsksForValues()
    model(np.ones((1, 2), "float32"))
    twin = amp.to_float32(model)
    assert bits(twin.get_weights()) == bits(model.get_weights())
