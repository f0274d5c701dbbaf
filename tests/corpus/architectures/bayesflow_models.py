"""Networks of bayesflow for amortized inference, each called by a Keras model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
from bayesflow import networks

from tests.corpus.architecture import Architecture

SETS = (6, 3)
IMAGE = (16, 16, 3)
PARAMETERS = 4
CONDITIONS = 3


def _batch(shape: Sequence[int]) -> np.ndarray:
    return np.random.default_rng(0).random((2, *shape), dtype=np.float32)


def _batches(*shapes: Sequence[int]) -> list[np.ndarray]:
    return [_batch(shape) for shape in shapes]


def _summary(
    name: str, shape: Sequence[int], make: Callable[[], keras.layers.Layer]
) -> Architecture:
    def build() -> keras.Model:
        return keras.Sequential([keras.Input(tuple(shape)), make(), keras.layers.Dense(2)])

    return Architecture(f"bayesflow/{name}", build, partial(_batch, shape))


class Sampler(keras.Model):
    """Maps latents to data; sampling is never a training step."""

    def __init__(self, network: keras.layers.Layer) -> None:
        super().__init__()
        self.network = network

    def build(self, input_shape: Any) -> None:
        self.network.build(*map(tuple, input_shape))
        self.built = True

    def call(self, inputs: Sequence[Any], training: bool = False) -> Any:
        parameters, conditions = inputs
        return self.network(parameters, conditions, inverse=True, training=False)


class DensityEstimator(Sampler):
    """Maps data to latents and their log density."""

    def call(self, inputs: Sequence[Any], training: bool = False) -> Any:
        parameters, conditions = inputs
        return self.network(parameters, conditions, density=True, training=training)


def _inference(
    name: str,
    make: Callable[[], keras.layers.Layer],
    model_class: Callable[[keras.layers.Layer], keras.Model] = Sampler,
) -> Architecture:
    return Architecture(
        f"bayesflow/{name}",
        lambda: model_class(make()),
        partial(_batches, (PARAMETERS,), (CONDITIONS,)),
    )


class TimeConditioned(keras.Model):
    """Gives a denoising subnet the state, the time and the conditions as one tuple."""

    def __init__(self, subnet: keras.layers.Layer) -> None:
        super().__init__()
        self.subnet = subnet

    def call(self, inputs: Sequence[Any], training: bool = False) -> Any:
        return self.subnet(tuple(inputs), training=training)


SUBNET = {"widths": (8, 8)}

ARCHITECTURES: tuple[Architecture, ...] = (
    _summary(
        "DeepSet",
        SETS,
        lambda: networks.DeepSet(
            summary_dim=4, embed_dim=8, depth=1, mlp_widths=(8,), num_heads=2, num_seeds=2
        ),
    ),
    _summary(
        "FusionTransformer",
        SETS,
        lambda: networks.FusionTransformer(
            summary_dim=4, embed_dims=(8, 8), num_heads=(2, 2), template_dim=8
        ),
    ),
    _summary(
        "ConvolutionalNetwork",
        IMAGE,
        lambda: networks.ConvolutionalNetwork(
            summary_dim=4, widths=(8, 8), blocks_per_stage=1, pool_head="attention"
        ),
    ),
    Architecture(
        "bayesflow/UViT",
        lambda: TimeConditioned(
            networks.UViT(
                widths=(8, 8),
                res_blocks=1,
                transformer_blocks=1,
                transformer_width=8,
                num_heads=2,
                time_emb_dim=4,
                groups=4,
            )
        ),
        partial(_batches, IMAGE, (1,), IMAGE),
    ),
    _inference(
        "CouplingFlow",
        lambda: networks.CouplingFlow(depth=2, subnet_kwargs=SUBNET),
        DensityEstimator,
    ),
    _inference(
        "FlowMatching-density",
        lambda: networks.FlowMatching(
            subnet_kwargs=SUBNET, integrate_kwargs={"method": "euler", "steps": 2}
        ),
        DensityEstimator,
    ),
    _inference(
        "FlowMatching",
        lambda: networks.FlowMatching(
            subnet_kwargs=SUBNET, integrate_kwargs={"method": "euler", "steps": 3}
        ),
    ),
    _inference(
        "DiffusionModel",
        lambda: networks.DiffusionModel(
            subnet_kwargs=SUBNET, integrate_kwargs={"method": "euler", "steps": 3}
        ),
    ),
    _inference(
        "ConsistencyModel",
        lambda: networks.ConsistencyModel(total_steps=100, subnet_kwargs=SUBNET),
    ),
)
