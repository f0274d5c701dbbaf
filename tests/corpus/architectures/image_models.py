"""Image models of packages with a few each: cstmodels, keras.applications, kimm and kyolo."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import kimm
import kyolo
import numpy as np
from cstmodels import CST15
from keras import applications

# The classes that take depths and widths are not part of kimm's public names.
from kimm._src.models.convmixer import ConvMixer
from kimm._src.models.inception_next import InceptionNeXt
from kimm._src.models.vision_transformer import VisionTransformer

from tests.corpus.architecture import Architecture

__all__ = ["ARCHITECTURES"]

_SET_SIZE = 2
_SET_IMAGE_SIZE = 32
_NUM_CLASSES = 4
_STAGES = {"depths": [1, 1, 1, 1], "hidden_channels": [16, 16, 32, 32]}


def _images(size: int) -> np.ndarray:
    return np.random.default_rng(0).random((2, size, size, 3), dtype=np.float32)


def _image_sets() -> np.ndarray:
    shape = (2, _SET_SIZE, _SET_IMAGE_SIZE, _SET_IMAGE_SIZE, 3)
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def _classifier(
    package: str, factory: Callable[..., keras.Model], size: int, **settings: Any
) -> Architecture:
    return Architecture(
        name=f"{package}/{factory.__name__}",
        build=partial(
            factory, weights=None, input_shape=(size, size, 3), classes=_NUM_CLASSES, **settings
        ),
        batch=partial(_images, size),
    )


def _application(factory: Callable[..., keras.Model], size: int = 32) -> Architecture:
    return _classifier("keras_applications", factory, size)


def _kimm(factory: Callable[..., keras.Model], size: int = 32, **settings: Any) -> Architecture:
    return _classifier("kimm", factory, size, **settings)


def _detector(name: str, factory: Callable[..., keras.Model], **settings: Any) -> Architecture:
    build = partial(factory, nc=3, input_shape=(64, 64, 3), **settings)
    return Architecture(f"kyolo/{name}", build, partial(_images, 64))


ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture("cstmodels/CST15", lambda: CST15(pretrained=False), _image_sets),
    # 71 and 75 pixels are the least that Xception and the Inceptions accept; the others take 32.
    _application(applications.ConvNeXtTiny),
    _application(applications.DenseNet121),
    _application(applications.EfficientNetB0),
    _application(applications.EfficientNetV2B0),
    _application(applications.InceptionResNetV2, 75),
    _application(applications.InceptionV3, 75),
    _application(applications.MobileNet),
    _application(applications.MobileNetV2),
    _application(applications.MobileNetV3Small),
    _application(applications.NASNetMobile),
    _application(applications.ResNet50),
    _application(applications.ResNet50V2),
    _application(applications.VGG16),
    _application(applications.Xception, 71),
    _kimm(ConvMixer, depth=2, hidden_channels=16, patch_size=4, kernel_size=3),
    _kimm(InceptionNeXt, **_STAGES),
    _kimm(kimm.models.MobileViTXXS, 64),
    _kimm(
        VisionTransformer,
        patch_size=8,
        embed_dim=16,
        depth=2,
        num_heads=2,
        pos_dropout_rate=0.1,
    ),
    _detector("yolov9t", kyolo.yolov9t, deploy=False),
    _detector("yolo12n", kyolo.yolo12n),
)
