"""Five nets, trained a little, on which precision plans are compared with brute force.

Each builder returns a trained float32 model, samples that it was not trained on, and its
loss. A seed gives the same net on the same machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

NUM_SAMPLES = 128
NUM_CLASSES = 4
VOCABULARY, LENGTH, WIDTH, NUM_BLOCKS = 200, 32, 64, 4
NUM_TOPICS = 6


class Net(NamedTuple):
    """A trained net.

    Attributes:
        model: The model: float32, Functional, compiled.
        data: Inputs and targets that it was not trained on.
        loss: The loss that it was compiled with.
    """

    model: keras.Model
    data: tuple[np.ndarray, np.ndarray]
    loss: Any


@keras.saving.register_keras_serializable("plan_nets")
class AddPositions(layers.Layer):
    """Adds a learned vector for each position."""

    def build(self, input_shape: Any) -> None:
        self.positions = self.add_weight(shape=input_shape[1:], initializer="random_normal")

    def call(self, inputs: Any) -> Any:
        return inputs + self.positions


def cnn(seed: int) -> Net:
    """Train convolutions with BatchNormalization on scikit-learn's digits."""
    keras.utils.set_random_seed(seed)
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.images))
    x, y = digits.images[order, ..., None].astype("float32") / 16, digits.target[order]
    inputs = keras.Input((8, 8, 1))
    hidden = inputs
    for filters in (16, 32, 64):
        hidden = _convolved(_convolved(hidden, filters), filters)
        hidden = layers.MaxPooling2D()(hidden)
    hidden = layers.Dense(64)(layers.Flatten()(hidden))
    hidden = layers.Dropout(0.2)(layers.ReLU()(hidden))
    return _trained(inputs, layers.Dense(10)(hidden), x, y, _logits_loss(), epochs=5)


def transformer(seed: int) -> Net:
    """Train a language model on sequences in which a token mostly decides on the next."""
    keras.utils.set_random_seed(seed)
    tokens = _token_chains(np.random.default_rng(seed), 4096 + NUM_SAMPLES)
    inputs = keras.Input((LENGTH,), dtype="int32")
    hidden = AddPositions()(layers.Embedding(VOCABULARY, WIDTH)(inputs))
    for _ in range(NUM_BLOCKS):
        normed = layers.LayerNormalization()(hidden)
        attention = layers.MultiHeadAttention(4, WIDTH // 4)
        hidden = layers.Add()([hidden, attention(normed, normed, use_causal_mask=True)])
        normed = layers.LayerNormalization()(hidden)
        inner = layers.Dense(4 * WIDTH, activation="gelu")(normed)
        hidden = layers.Add()([hidden, layers.Dense(WIDTH)(inner)])
    outputs = layers.Dense(VOCABULARY)(layers.LayerNormalization()(hidden))
    return _trained(inputs, outputs, tokens[:, :-1], tokens[:, 1:], _logits_loss(), epochs=3)


def lstm(seed: int) -> Net:
    """Train recurrent layers to tell the topic of a text of random words."""
    keras.utils.set_random_seed(seed)
    x, y = _texts(np.random.default_rng(seed), 2048 + NUM_SAMPLES)
    inputs = keras.Input((LENGTH,), dtype="int32")
    hidden = layers.Embedding(VOCABULARY, 32)(inputs)
    hidden = layers.Bidirectional(layers.LSTM(32, return_sequences=True))(hidden)
    hidden = layers.LayerNormalization()(hidden)
    hidden = layers.LSTM(32, return_sequences=True)(hidden)
    hidden = layers.LSTM(32)(hidden)
    hidden = layers.Dense(64, activation="tanh")(hidden)
    hidden = layers.Dense(32, activation="relu")(hidden)
    return _trained(inputs, layers.Dense(NUM_TOPICS)(hidden), x, y, _logits_loss(), epochs=4)


def unet(seed: int) -> Net:
    """Train a U-Net to find the discs in noisy pictures of several shapes."""
    keras.utils.set_random_seed(seed)
    x, _, y = _pictures(np.random.default_rng(seed), 768 + NUM_SAMPLES, 32)
    inputs = keras.Input((32, 32, 3))
    hidden, skips = inputs, []
    for filters in (8, 16):
        skips.append(_convolved(_convolved(hidden, filters), filters))
        hidden = layers.MaxPooling2D()(skips[-1])
    hidden = _convolved(_convolved(hidden, 32), 32)
    for skip in reversed(skips):
        filters = skip.shape[-1]
        hidden = layers.Conv2DTranspose(filters, 2, strides=2)(hidden)
        hidden = layers.Concatenate()([skip, hidden])
        hidden = _convolved(_convolved(hidden, filters), filters)
    outputs = layers.Conv2D(1, 1, activation="sigmoid")(hidden)
    return _trained(inputs, outputs, x, y, keras.losses.BinaryCrossentropy(), epochs=6)


def mobilenet(seed: int) -> Net:
    """Train MobileNetV2 to tell four shapes in noisy pictures of 64 x 64."""
    keras.utils.set_random_seed(seed)
    x, y, _ = _pictures(np.random.default_rng(seed), 1024 + NUM_SAMPLES, 64)
    model = keras.applications.MobileNetV2(
        input_shape=(64, 64, 3), alpha=0.35, weights=None, classes=NUM_CLASSES
    )
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.9  # 0.999 would keep the initial statistics for 1000 steps
    loss = keras.losses.SparseCategoricalCrossentropy()
    return _trained(model.input, model.output, x, y, loss, epochs=6)


NETS: dict[str, Callable[[int], Net]] = {
    "CNN": cnn,
    "transformer": transformer,
    "LSTM": lstm,
    "U-Net": unet,
    "MobileNetV2": mobilenet,
}


def _convolved(hidden: Any, filters: int) -> Any:
    hidden = layers.Conv2D(filters, 3, padding="same", use_bias=False)(hidden)
    return layers.ReLU()(layers.BatchNormalization(momentum=0.9)(hidden))


def _logits_loss() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _trained(
    inputs: Any, outputs: Any, x: np.ndarray, y: np.ndarray, loss: Any, *, epochs: int
) -> Net:
    """Train on all samples but the last ones; the losses are in `model.history`."""
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(2e-3), loss)
    model.fit(x[:-NUM_SAMPLES], y[:-NUM_SAMPLES], batch_size=32, epochs=epochs, verbose=0)
    return Net(model, (x[-NUM_SAMPLES:], y[-NUM_SAMPLES:]), loss)


def _token_chains(random: np.random.Generator, num_chains: int) -> np.ndarray:
    """Return chains of tokens: four of five follow from the two before them."""
    follows = random.permutation(VOCABULARY)
    tokens = random.integers(VOCABULARY, size=(num_chains, LENGTH + 1))
    is_free = random.random(tokens.shape) < 0.2
    for place in range(2, LENGTH + 1):
        follower = (follows[tokens[:, place - 1]] + tokens[:, place - 2] % 2) % VOCABULARY
        tokens[:, place] = np.where(is_free[:, place], tokens[:, place], follower)
    return tokens.astype("int32")


def _texts(random: np.random.Generator, num_texts: int) -> tuple[np.ndarray, np.ndarray]:
    """Return texts, a quarter of whose words are those of a topic, and the topics."""
    topics = random.integers(NUM_TOPICS, size=num_texts)
    words = random.integers(VOCABULARY, size=(num_texts, LENGTH))
    typical = topics[:, None] * 10 + random.integers(10, size=words.shape)
    is_typical = random.random(words.shape) < 0.25
    return np.where(is_typical, typical, words).astype("int32"), topics


def _pictures(
    random: np.random.Generator, num_pictures: int, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pictures of a shape each, the shapes, and where there is a disc."""
    kinds = random.integers(NUM_CLASSES, size=num_pictures)
    radius = random.uniform(size / 6, size / 4, size=(num_pictures, 1, 1))
    center = random.uniform(size * 3 / 8, size * 5 / 8, size=(2, num_pictures, 1, 1))
    down, right = np.mgrid[:size, :size][:, None] - center
    down, right = np.abs(down) / radius, np.abs(right) / radius
    shapes = np.stack(
        [
            np.hypot(down, right) < 1,
            np.maximum(down, right) < 0.9,
            down + right < 1.2,
            (np.minimum(down, right) < 0.3) & (np.maximum(down, right) < 1.1),
        ]
    )
    shape = shapes[kinds, np.arange(num_pictures)][..., None]
    color = random.uniform(0.4, 1, size=(num_pictures, 1, 1, 3))
    x = shape * color + 0.1 * random.standard_normal((num_pictures, size, size, 3))
    return x.astype("float32"), kinds, (shape & (kinds == 0)[:, None, None, None]).astype("float32")
