"""The smallest member of each family of `keras.applications`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import keras
import numpy as np
from keras import applications

from tests.corpus.architecture import Architecture

__all__ = ["ARCHITECTURES"]

_NUM_CLASSES = 4


def _images(size: int) -> np.ndarray:
    return np.random.default_rng(0).random((2, size, size, 3), dtype=np.float32)


def _architecture(factory: Callable[..., keras.Model], size: int) -> Architecture:
    return Architecture(
        name=f"keras_applications/{factory.__name__}",
        build=partial(factory, weights=None, input_shape=(size, size, 3), classes=_NUM_CLASSES),
        batch=partial(_images, size),
    )


# 71 and 75 pixels are the least that Xception and the Inceptions accept; the others take 32.
ARCHITECTURES: tuple[Architecture, ...] = (
    _architecture(applications.ConvNeXtTiny, 32),
    _architecture(applications.DenseNet121, 32),
    _architecture(applications.EfficientNetB0, 32),
    _architecture(applications.EfficientNetV2B0, 32),
    _architecture(applications.InceptionResNetV2, 75),
    _architecture(applications.InceptionV3, 75),
    _architecture(applications.MobileNet, 32),
    _architecture(applications.MobileNetV2, 32),
    _architecture(applications.MobileNetV3Large, 32),
    _architecture(applications.MobileNetV3Small, 32),
    _architecture(applications.NASNetMobile, 32),
    _architecture(applications.ResNet50, 32),
    _architecture(applications.ResNet50V2, 32),
    _architecture(applications.VGG16, 32),
    _architecture(applications.Xception, 71),
)
