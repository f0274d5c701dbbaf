"""Recommender models composed of the layers of Keras RS, after its own examples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import keras
import keras_rs
import numpy as np

from tests.corpus.architecture import Architecture

__all__ = ["ARCHITECTURES"]

_VOCABULARY = 20
_NUM_FEATURES = 3
_HISTORY = 6
_WIDTH = 8


def _mlp(*units: int) -> keras.Sequential:
    return keras.Sequential([keras.layers.Dense(width, activation="relu") for width in units])


def _id_inputs() -> list[keras.KerasTensor]:
    return [
        keras.Input((), dtype="int32", name=f"feature_{index}") for index in range(_NUM_FEATURES)
    ]


def _embed(inputs: list[keras.KerasTensor]) -> list[keras.KerasTensor]:
    return [keras.layers.Embedding(_VOCABULARY, _WIDTH)(ids) for ids in inputs]


def _deep_cross_network(projection_dim: int | None = None, diag_scale: float = 0.0) -> keras.Model:
    inputs = _id_inputs()
    embedded = keras.layers.Concatenate()(_embed(inputs))
    crossed = embedded
    for _ in range(2):
        crossed = keras_rs.layers.FeatureCross(
            projection_dim=projection_dim, diag_scale=diag_scale, pre_activation="tanh"
        )(embedded, crossed)
    return keras.Model(inputs, keras.layers.Dense(1)(_mlp(16, 8)(crossed)))


def _dlrm(self_interaction: bool, skip_gather: bool) -> keras.Model:
    dense_input = keras.Input((4,), name="dense")
    inputs = _id_inputs()
    bottom = _mlp(16, _WIDTH)(dense_input)
    interactions = keras_rs.layers.DotInteraction(
        self_interaction=self_interaction, skip_gather=skip_gather
    )([bottom, *_embed(inputs)])
    top = _mlp(16, 8)(keras.layers.Concatenate()([bottom, interactions]))
    outputs = keras.layers.Dense(1, activation="sigmoid")(top)
    return keras.Model([dense_input, *inputs], outputs)


def _wide_and_bags() -> keras.Model:
    history = keras.Input((_HISTORY,), dtype="int32", name="history")
    bags = [
        keras_rs.layers.EmbedReduce(_VOCABULARY, _WIDTH, combiner=combiner)(history)
        for combiner in ("mean", "sum", "sqrtn")
    ]
    interactions = keras_rs.layers.DotInteraction()(bags)
    crossed = keras_rs.layers.FeatureCross()(interactions)
    return keras.Model(history, keras.layers.Dense(1)(crossed))


def _distributed_tables() -> keras.Model:
    feature_configs = {
        name: keras_rs.layers.FeatureConfig(
            name=name,
            table=keras_rs.layers.TableConfig(
                name=f"{name}_table",
                vocabulary_size=_VOCABULARY,
                embedding_dim=_WIDTH,
                placement="default_device",
                combiner="sum",
            ),
            input_shape=(2, _HISTORY),
            output_shape=(2, _WIDTH),
        )
        for name in ("items", "shops")
    }
    inputs = {
        name: keras.Input((_HISTORY,), batch_size=2, dtype="int32", name=name)
        for name in feature_configs
    }
    embedded = keras_rs.layers.DistributedEmbedding(feature_configs)(inputs)
    crossed = keras_rs.layers.FeatureCross()(
        keras.layers.Concatenate()([embedded["items"], embedded["shops"]])
    )
    return keras.Model(inputs, keras.layers.Dense(1)(crossed))


def _ids(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, _VOCABULARY, shape, dtype=np.int32)


def _features() -> list[np.ndarray]:
    return [_ids(2, seed=seed) for seed in range(_NUM_FEATURES)]


def _dense_and_features() -> list[np.ndarray]:
    dense = np.random.default_rng(0).random((2, 4), dtype=np.float32)
    return [dense, *_features()]


def _two_histories() -> dict[str, np.ndarray]:
    return {"items": _ids(2, _HISTORY), "shops": _ids(2, _HISTORY, seed=1)}


def _architecture(name: str, build: Callable[[], keras.Model], batch: Callable) -> Architecture:
    return Architecture(name=f"keras_rs/{name}", build=build, batch=batch)


ARCHITECTURES: tuple[Architecture, ...] = (
    _architecture("FeatureCross", _deep_cross_network, _features),
    _architecture(
        "FeatureCross_low_rank", partial(_deep_cross_network, 4, diag_scale=0.1), _features
    ),
    _architecture(
        "DotInteraction",
        partial(_dlrm, self_interaction=False, skip_gather=False),
        _dense_and_features,
    ),
    _architecture(
        "DotInteraction_skip_gather",
        partial(_dlrm, self_interaction=True, skip_gather=True),
        _dense_and_features,
    ),
    _architecture("EmbedReduce", _wide_and_bags, partial(_ids, 2, _HISTORY)),
    _architecture("DistributedEmbedding", _distributed_tables, _two_histories),
)
