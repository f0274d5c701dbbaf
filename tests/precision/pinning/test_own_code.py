"""Layers whose own code is written for half precision, and raises in float32."""

from __future__ import annotations

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tf_amp_kit.errors import PinError


class Scaled(keras.layers.Layer):
    def call(self, x):
        return keras.ops.softmax(tf.multiply(x, tf.constant(0.3, "float16")))


@pytest.fixture
def model():
    with amp.amp_scope("fp16"):
        return keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(4, name="dense"), Scaled(name="scaled")]
        )


def test_it_is_left_in_half_with_a_remark(model):
    pins = amp.pin_float32(model)
    assert pins.paths == ("dense",)
    assert any("scaled, or its own code raises in float32" in one for one in pins.remarks)
    assert model(np.ones((1, 4))).dtype == "float16"


def test_by_name_it_is_refused(model):
    with pytest.raises(PinError, match=re.escape("'scaled' cannot run in float32")):
        amp.pin_float32(model, "scaled")
    assert model.get_layer("scaled").compute_dtype == "float16"
