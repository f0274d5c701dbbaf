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
_NUM_CANDIDATES = 10


def _mlp(*units: int) -> keras.Sequential:
    return keras.Sequential([keras.layers.Dense(width, activation="relu") for width in units])


def _id_inputs() -> list[keras.KerasTensor]:
    return [
        keras.Input((), dtype="int32", name=f"feature_{index}") for index in range(_NUM_FEATURES)
    ]


def _embed(inputs: list[keras.KerasTensor]) -> list[keras.KerasTensor]:
    return [keras.layers.Embedding(_VOCABULARY, _WIDTH)(ids) for ids in inputs]


def _deep_cross_network(
    projection_dim: int | None = None, diag_scale: float = 0.0, parallel: bool = False
) -> keras.Model:
    inputs = _id_inputs()
    embedded = keras.layers.Concatenate()(_embed(inputs))
    crossed = embedded
    for _ in range(2):
        crossed = keras_rs.layers.FeatureCross(
            projection_dim=projection_dim, diag_scale=diag_scale, pre_activation="tanh"
        )(embedded, crossed)
    if parallel:
        deep = keras.layers.Concatenate()([crossed, _mlp(16, 8)(embedded)])
    else:
        deep = _mlp(16, 8)(crossed)
    return keras.Model(inputs, keras.layers.Dense(1)(deep))


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


def _bag_of_items(combiner: str) -> keras.Model:
    history = keras.Input((_HISTORY,), dtype="int32", name="history")
    weights = keras.Input((_HISTORY,), name="weights")
    bag = keras_rs.layers.EmbedReduce(_VOCABULARY, _WIDTH, combiner=combiner)(history, weights)
    return keras.Model([history, weights], keras.layers.Dense(1)(_mlp(8)(bag)))


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


class TwoTowers(keras.Model):
    """Trains on the other samples of the batch as negatives, as the retrieval guides do."""

    def __init__(self) -> None:
        super().__init__()
        self.query_tower = keras.Sequential(
            [keras.layers.Embedding(_VOCABULARY, _WIDTH), keras.layers.Dense(_WIDTH)]
        )
        self.candidate_tower = keras.Sequential(
            [keras.layers.Embedding(_VOCABULARY, _WIDTH), keras.layers.Dense(_WIDTH)]
        )
        self.correction = keras_rs.layers.SamplingProbabilityCorrection()
        self.accidental_hits = keras_rs.layers.RemoveAccidentalHits()
        self.hard_negatives = keras_rs.layers.HardNegativeMining(num_hard_negatives=1)

    def call(self, inputs):
        queries = self.query_tower(inputs["user"])
        candidates = self.candidate_tower(inputs["item"])
        logits = keras.ops.matmul(queries, keras.ops.transpose(candidates))
        labels = keras.ops.eye(keras.ops.shape(logits)[0], dtype=logits.dtype)
        logits = self.correction(logits, inputs["probability"])
        logits = self.accidental_hits(logits, labels, inputs["item"])
        return self.hard_negatives(logits, labels)


class SequentialRetrieval(keras.Model):
    """A recurrent query tower over the history, and the candidates it ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = keras.layers.Embedding(_VOCABULARY, _WIDTH, mask_zero=True)
        self.recurrent = keras.layers.GRU(_WIDTH)
        candidates = np.random.default_rng(1).normal(size=(_NUM_CANDIDATES, _WIDTH))
        self.retrieval = keras_rs.layers.BruteForceRetrieval(
            candidate_embeddings=candidates.astype("float32"),
            candidate_ids=np.arange(_NUM_CANDIDATES, dtype="int32"),
            k=3,
        )

    def call(self, history):
        return self.retrieval(self.recurrent(self.embedding(history)))


class SelfAttentiveRecommender(keras.Model):
    """SASRec: causal self-attention over the history, scored against the item embeddings."""

    def __init__(self, num_blocks: int = 2) -> None:
        super().__init__()
        self.items = keras.layers.ReversibleEmbedding(_VOCABULARY, _WIDTH, mask_zero=True)
        self.positions = keras.layers.Embedding(_HISTORY, _WIDTH)
        self.attentions = [keras.layers.MultiHeadAttention(2, 4) for _ in range(num_blocks)]
        self.norms = [keras.layers.LayerNormalization() for _ in range(2 * num_blocks)]
        self.networks = [_mlp(16, _WIDTH) for _ in range(num_blocks)]
        self.dropout = keras.layers.Dropout(0.1)
        self.retrieval = keras_rs.layers.BruteForceRetrieval(k=3, return_scores=True)

    def build(self, input_shape):
        self.items.build(input_shape)
        self.retrieval.update_candidates(self.items.embeddings)
        self.built = True

    def call(self, history, training=False):
        x = self.items(history) * _WIDTH**0.5
        x = self.dropout(x + self.positions(keras.ops.arange(_HISTORY)), training=training)
        for index, attention in enumerate(self.attentions):
            normal = self.norms[2 * index](x)
            x = x + attention(normal, x, use_causal_mask=True, training=training)
            x = x + self.networks[index](self.norms[2 * index + 1](x))
        if training:
            return self.items(x, reverse=True)
        return self.retrieval(x[:, -1])


def _ids(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, _VOCABULARY, shape, dtype=np.int32)


def _features() -> list[np.ndarray]:
    return [_ids(2, seed=seed) for seed in range(_NUM_FEATURES)]


def _dense_and_features() -> list[np.ndarray]:
    dense = np.random.default_rng(0).random((2, 4), dtype=np.float32)
    return [dense, *_features()]


def _weighted_history() -> list[np.ndarray]:
    weights = np.random.default_rng(0).random((2, _HISTORY), dtype=np.float32)
    return [_ids(2, _HISTORY), weights]


def _two_histories() -> dict[str, np.ndarray]:
    return {"items": _ids(2, _HISTORY), "shops": _ids(2, _HISTORY, seed=1)}


def _user_and_item() -> dict[str, np.ndarray]:
    return {
        "user": _ids(2),
        "item": _ids(2, seed=1),
        "probability": np.array([0.1, 0.5], dtype=np.float32),
    }


def _architecture(name: str, build: Callable[[], keras.Model], batch: Callable) -> Architecture:
    return Architecture(name=f"keras_rs/{name}", build=build, batch=batch)


_history = partial(_ids, 2, _HISTORY)

ARCHITECTURES: tuple[Architecture, ...] = (
    _architecture("FeatureCross", _deep_cross_network, _features),
    _architecture(
        "FeatureCross_low_rank", partial(_deep_cross_network, 4, diag_scale=0.1), _features
    ),
    _architecture("FeatureCross_parallel", partial(_deep_cross_network, parallel=True), _features),
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
    _architecture("EmbedReduce", _wide_and_bags, _history),
    _architecture("EmbedReduce_mean", partial(_bag_of_items, "mean"), _weighted_history),
    _architecture("EmbedReduce_sqrtn", partial(_bag_of_items, "sqrtn"), _weighted_history),
    _architecture("DistributedEmbedding", _distributed_tables, _two_histories),
    _architecture("HardNegativeMining", TwoTowers, _user_and_item),
    _architecture("BruteForceRetrieval", SequentialRetrieval, _history),
    _architecture("BruteForceRetrieval_SASRec", SelfAttentiveRecommender, _history),
)
