"""Small models around the layers of packages that are a layer or two."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
from keras_efficient_kan import KANLinear
from keras_mdn_layer import MDN
from ncps.keras import LTC, CfC
from ncps.wirings import AutoNCP
from tcn import TCN
from tkan import TKAN

from tests.corpus.architecture import Architecture

STEPS = 6
FEATURES = 3


def _mixture_density_network() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((1,)),
            keras.layers.Dense(15, activation="relu"),
            MDN(2, 3),
        ]
    )


def _points() -> np.ndarray:
    return np.random.default_rng(0).random((2, 1), dtype=np.float32)


def _sequences() -> np.ndarray:
    return np.random.default_rng(0).random((2, STEPS, FEATURES), dtype=np.float32)


def _regressor(*make_layers: Callable[[], keras.layers.Layer]) -> keras.Model:
    layers = [make_layer() for make_layer in make_layers]
    return keras.Sequential([keras.Input((STEPS, FEATURES)), *layers, keras.layers.Dense(1)])


def _sequential(name: str, *make_layers: Callable[[], keras.layers.Layer]) -> Architecture:
    return Architecture(name, lambda: _regressor(*make_layers), _sequences)


ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture("keras_mdn_layer/MDN", _mixture_density_network, _points),
    _sequential(
        "tcn/TCN",
        lambda: TCN(4, dilations=(1, 2, 4), nb_stacks=2, dropout_rate=0.1),
    ),
    _sequential("ncps/CfC", lambda: CfC(4, backbone_units=8, return_sequences=True)),
    _sequential("ncps/CfC-mixed_memory", lambda: CfC(4, mixed_memory=True, backbone_units=8)),
    _sequential("ncps/CfC-wired", lambda: CfC(AutoNCP(8, 2), return_sequences=True)),
    _sequential("ncps/CfC-bidirectional", lambda: keras.layers.Bidirectional(CfC(4))),
    _sequential("ncps/LTC", lambda: LTC(4, ode_unfolds=2, return_sequences=True)),
    _sequential("ncps/LTC-mixed_memory", lambda: LTC(4, ode_unfolds=2, mixed_memory=True)),
    _sequential("tkan/TKAN", lambda: TKAN(4, sub_kan_configs=[None, None])),
    _sequential("tkan/TKAN-dense", lambda: TKAN(4, sub_kan_configs=["relu", "tanh"])),
    _sequential(
        "keras_efficient_kan/KANLinear",
        keras.layers.GlobalAveragePooling1D,
        lambda: KANLinear(4, grid_size=4),
        lambda: KANLinear(3, grid_size=3, spline_order=2, use_layernorm=False),
    ),
)
