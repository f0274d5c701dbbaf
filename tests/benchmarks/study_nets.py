"""Four nets on real data that need no download, for the study of what half precision costs.

Each study has a builder, which takes no arguments and returns a compiled model in whatever
precision is on, and a function that returns `(train, validation)`: pairs of arrays, already
in an order to train in. The data are the same each time and, where `source` does not say
otherwise, on every machine; what differs from seed to seed are the weights.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits, load_sample_image

import tf_amp_kit as amp
from tests.benchmarks.plan_nets import AddPositions

Samples = tuple[np.ndarray, np.ndarray]

CNN_STEPS, MLP_STEPS, TEXT_STEPS = 600, 1000, 800
NUM_CLASSES = 10
CANVAS, NUM_PLACES = 12, 8
# Characters outside ASCII share the last index.
ALPHABET = string.printable
VOCABULARY = len(ALPHABET) + 1
LENGTH, STRIDE = 64, 8
WIDTH, NUM_BLOCKS = 64, 2
BAND_ROWS, REACH = 16, 2
# More would only make validation longer.
MAX_VALIDATION = 16384


class Study(NamedTuple):
    """A net and its data.

    Attributes:
        build: Takes no arguments; returns a compiled model.
        data: Takes no arguments; returns samples to train on, and others.
        steps: How many steps of `batch_size` samples train it.
        batch_size: How many samples a step takes.
        metric: The validation metric that is told beside the loss.
        source: What the data are, and what they depend on.
    """

    build: Callable[[], keras.Model]
    data: Callable[[], tuple[Samples, Samples]]
    steps: int
    batch_size: int
    metric: str
    source: str


def build_cnn() -> keras.Model:
    """Build convolutions with BatchNormalization that name a digit."""
    inputs = keras.Input((CANVAS, CANVAS, 1))
    hidden = inputs
    for filters in (16, 32):
        for _ in range(2):
            hidden = layers.Conv2D(filters, 3, padding="same", use_bias=False)(hidden)
            hidden = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(hidden))
        hidden = layers.MaxPooling2D()(hidden)
    hidden = layers.Dense(64, activation="relu")(layers.Flatten()(hidden))
    outputs = layers.Dense(NUM_CLASSES)(layers.Dropout(0.2)(hidden))
    return _classifier("cnn", inputs, outputs, CNN_STEPS, learning_rate=3e-3)


def digits() -> tuple[Samples, Samples]:
    """Return scikit-learn's digits, each in several places of a larger picture.

    A third of the digits is held out, before they are moved.
    """
    loaded = load_digits()
    order = np.random.default_rng(0).permutation(len(loaded.target))
    split = len(order) * 2 // 3
    return tuple(
        _moved(loaded.images[part] / 16, loaded.target[part])
        for part in (order[:split], order[split:])
    )


def build_mlp() -> keras.Model:
    """Build dense layers that tell a pixel's colour from those around it."""
    inputs = keras.Input((_neighbours()[0].size * 3,))
    hidden = inputs
    for _ in range(3):
        hidden = layers.Dense(256, activation="relu")(hidden)
    model = keras.Model(inputs, layers.Dense(3)(hidden), name="mlp")
    metrics = ["mean_absolute_error"]
    optimizer = _optimizer(2e-3, MLP_STEPS)
    model.compile(optimizer, "mean_squared_error", metrics=metrics, jit_compile=False)
    return model


def pixels() -> tuple[Samples, Samples]:
    """Return a table of pixels of two photographs that come with scikit-learn.

    The columns are the colours of the pixels before it, line by line, as far as two pixels
    away; the target is its own colour. Every third band of lines is held out.
    """
    down, right = _neighbours()
    tables: tuple[list[Samples], list[Samples]] = [], []
    for name in ("china.jpg", "flower.jpg"):
        picture = load_sample_image(name).astype("float32") / 255 - 0.5
        for number, top in enumerate(range(REACH, len(picture) - BAND_ROWS, BAND_ROWS)):
            row, column = np.mgrid[top : top + BAND_ROWS, REACH : picture.shape[1] - REACH]
            around = picture[row[..., None] + down, column[..., None] + right]
            table = around.reshape(row.size, -1), picture[row, column].reshape(row.size, 3)
            tables[number % 3 == 2].append(table)
    train, (x, y) = (_shuffled(*map(np.concatenate, zip(*one, strict=True))) for one in tables)
    return train, (x[:MAX_VALIDATION], y[:MAX_VALIDATION])


def build_transformer() -> keras.Model:
    """Build a small transformer that predicts the next character."""
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
    return _classifier("transformer", inputs, outputs, TEXT_STEPS, learning_rate=4e-3)


def build_lstm() -> keras.Model:
    """Build a recurrent layer that predicts the next character."""
    inputs = keras.Input((LENGTH,), dtype="int32")
    hidden = layers.Embedding(VOCABULARY, 32)(inputs)
    hidden = layers.LSTM(128, return_sequences=True)(hidden)
    outputs = layers.Dense(VOCABULARY)(hidden)
    return _classifier("lstm", inputs, outputs, TEXT_STEPS, learning_rate=1e-2)


def text() -> tuple[Samples, Samples]:
    """Return windows of Python's language reference, as `help()` prints it.

    The topics share paragraphs: each is kept once. The last sixth of them is held out.
    """
    paragraphs = list(
        dict.fromkeys(one for name in sorted(topics) for one in topics[name].split("\n\n"))
    )
    split = len(paragraphs) * 5 // 6
    train, validation = _encoded(paragraphs[:split]), _encoded(paragraphs[split:])
    return _windows(train, STRIDE), _windows(validation, LENGTH)


_DIGITS = "scikit-learn's digits, moved about"
_PIXELS = "scikit-learn's two photographs; Pillow's JPEG decoder may differ by a grey level"
_TEXT = "Python's language reference, from `pydoc_data`; it changes a little with Python"

STUDIES: dict[str, Study] = {
    "CNN": Study(build_cnn, digits, CNN_STEPS, 32, "accuracy", _DIGITS),
    "MLP": Study(build_mlp, pixels, MLP_STEPS, 256, "mean_absolute_error", _PIXELS),
    "transformer": Study(build_transformer, text, TEXT_STEPS, 32, "accuracy", _TEXT),
    "LSTM": Study(build_lstm, text, TEXT_STEPS, 32, "accuracy", _TEXT),
}


def _classifier(
    name: str, inputs: Any, outputs: Any, steps: int, *, learning_rate: float
) -> keras.Model:
    model = keras.Model(inputs, outputs, name=name)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(_optimizer(learning_rate, steps), loss, metrics=["accuracy"], jit_compile=False)
    return model


def _optimizer(learning_rate: float, steps: int) -> keras.optimizers.Optimizer:
    """Scale the loss where needed; a rate that falls to zero ends with little noise."""
    schedule = keras.optimizers.schedules.CosineDecay(learning_rate, steps)
    return amp.make_loss_scale_optimizer(keras.optimizers.Adam(schedule))


def _moved(images: np.ndarray, targets: np.ndarray) -> Samples:
    """Put each image in several places of a larger one."""
    size = images.shape[1]
    moved = np.zeros((NUM_PLACES, len(images), CANVAS, CANVAS, 1), "float32")
    places = np.random.default_rng(1).integers(CANVAS - size + 1, size=(*moved.shape[:2], 2))
    for turn in range(NUM_PLACES):
        for number, (image, (down, right)) in enumerate(zip(images, places[turn], strict=True)):
            moved[turn, number, down : down + size, right : right + size, 0] = image
    return _shuffled(moved.reshape(-1, CANVAS, CANVAS, 1), np.tile(targets, NUM_PLACES))


def _neighbours() -> np.ndarray:
    """Return how far down and right the pixels before a pixel are, at most `REACH` away."""
    down, right = np.mgrid[-REACH:1, -REACH : REACH + 1].reshape(2, -1)
    return np.stack([down, right])[:, : (2 * REACH + 1) * REACH + REACH]


def _encoded(paragraphs: list[str]) -> np.ndarray:
    indices = {character: index for index, character in enumerate(ALPHABET)}
    characters = "\n\n".join(paragraphs)
    return np.array([indices.get(one, len(ALPHABET)) for one in characters], "int32")


def _windows(tokens: np.ndarray, stride: int) -> Samples:
    """Cut windows, and the same ones a character later."""
    windows = np.lib.stride_tricks.sliding_window_view(tokens, LENGTH + 1)[::stride]
    return _shuffled(windows[:, :-1], windows[:, 1:])


def _shuffled(x: np.ndarray, y: np.ndarray) -> Samples:
    order = np.random.default_rng(2).permutation(len(x))
    return x[order], y[order]
