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


class Decorated(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(4, 4))

    @amp.float32_op
    def product(self, inputs):
        return ops.matmul(inputs, self.kernel)

    def call(self, inputs):
        return self.product(inputs)


class InContext(Decorated):
    def call(self, inputs):
        with amp.float32_op() as first:
            wide = first.back(ops.matmul(first.up(inputs), self.kernel))
        with amp.float32_op() as second:
            return second.back(ops.matmul(second.up(wide), self.kernel))


class Widening(Decorated):
    def call(self, inputs):
        with amp.float32_op(output="float32") as stretch:
            return stretch.back(ops.exp(stretch.up(inputs)))


class Unmarked(Decorated):
    def call(self, inputs):
        wide = ops.matmul(ops.cast(inputs, "float32"), ops.cast(self.kernel, "float32"))
        return ops.cast(wide, self.compute_dtype)


@pytest.mark.parametrize("make", [Decorated, InContext, Widening, Unmarked])
def test_a_stretch_that_says_it_is_float32_is_no_finding(make):
    keras.config.set_dtype_policy("mixed_bfloat16")
    between = [layers.Dense(4), make(), layers.Dense(2, dtype="float32")]
    report = amp.audit_layer_dtypes(keras.Sequential([keras.Input((4,)), *between]), verbose=0)
    expected = {"AMP103"} if make is Unmarked else set()
    assert {one.code for one in report.findings_at_least("warning")} == expected
