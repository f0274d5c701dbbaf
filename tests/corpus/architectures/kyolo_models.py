"""Detectors of kyolo: its YOLO families at their nano scale, with and without fused blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import kyolo
import numpy as np

from tests.corpus.architecture import Architecture

IMAGE_SHAPE = (64, 64, 3)


def _images() -> np.ndarray:
    return np.random.default_rng(0).random((2, *IMAGE_SHAPE), dtype=np.float32)


def _detector(name: str, factory: Callable[..., keras.Model], **settings: Any) -> Architecture:
    build = partial(factory, nc=3, input_shape=IMAGE_SHAPE, **settings)
    return Architecture(f"kyolo/{name}", build, _images)


def _decoded_yolov8() -> keras.Model:
    detector = kyolo.yolov8n(nc=3, input_shape=IMAGE_SHAPE)
    inputs = keras.Input(IMAGE_SHAPE)
    detections = kyolo.YOLOPostprocessor(nc=3, max_detections=10, pre_nms_topk=20)(detector(inputs))
    return keras.Model(inputs, detections)


ARCHITECTURES: tuple[Architecture, ...] = (
    _detector("yolov5n", kyolo.yolov5n),
    _detector("yolov8n", kyolo.yolov8n),
    _detector("yolov9t", kyolo.yolov9t, deploy=False),
    _detector("yolov10n", kyolo.yolov10n, deploy=False),
    _detector("yolo11n", kyolo.yolo11n),
    _detector("yolo12n", kyolo.yolo12n),
    _detector("yolo26n", kyolo.yolo26n),
    Architecture("kyolo/YOLOPostprocessor", _decoded_yolov8, _images),
)
