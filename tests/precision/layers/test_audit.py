"""An audit knows that the wrapper and the twins are float32 on purpose."""

import keras
import pytest
from keras import layers, ops

import tf_amp_kit as amp


class Block(layers.Layer):
    def __init__(self):
        super().__init__(name="block")
        self.inner = amp.layers.Float32(layers.Dense(4), name="wide")

    def build(self, shape):
        self.inner.build(shape)

    def call(self, inputs):
        return ops.relu(self.inner(inputs))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_a_wrapped_layer_in_a_half_block_is_shown_as_pinned_and_is_no_finding(policy):
    keras.config.set_dtype_policy(policy)
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(4), Block(), layers.Dense(2, dtype="float32")]
    )
    report = amp.audit_layer_dtypes(model, verbose=0)
    remarks = {row.path: row.remark for row in report.rows}
    assert (remarks["block/inner"], remarks["block/inner/layer"]) == ("pinned", "pinned")
    assert report.findings_at_least("warning") == ()
