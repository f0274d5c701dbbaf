from __future__ import annotations

import keras

import tf_amp_kit as amp

SAMPLES, ROWS = 4, 64
SOFTMAX_BYTES = SAMPLES * ROWS * ROWS * 4


def live_bytes(model: keras.Model) -> int:
    model.compile("sgd", "mse")
    return amp.estimate_memory(model, SAMPLES, verbose=0).live_bytes


class Attention(keras.layers.Layer):
    """Softmax of scores, times a constant or not: both softmaxes are kept."""

    def __init__(self, scale: float | None) -> None:
        super().__init__()
        self.scale = scale

    def call(self, x):
        for _ in range(3):
            x = keras.ops.softmax(x if self.scale is None else x * self.scale)
        return x


def test_the_scale_of_scores_keeps_another_product_from_the_forward_pass() -> None:
    plain, scaled = (
        live_bytes(
            keras.Sequential(
                [keras.Input((ROWS, ROWS)), keras.layers.Dense(ROWS), Attention(scale)]
            )
        )
        for scale in (None, 0.25)
    )
    # c * softmax is there for each of three, before the gradients are.
    assert 2 * SOFTMAX_BYTES <= scaled - plain <= 4 * SOFTMAX_BYTES
