"""Networks of keras-cv-attention-models, one or two of a family, without weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import keras_cv_attention_models as kecam
import numpy as np

from tests.corpus.architecture import Architecture
from tests.corpus.architectures import kecam_functional

kecam_functional.install()

PACKAGE = "keras_cv_attention_models"
IMAGE_SHAPE = (64, 64, 3)
VOCABULARY = 32


def _images() -> np.ndarray:
    return np.random.default_rng(0).random((2, *IMAGE_SHAPE), dtype=np.float32)


def _tokens() -> np.ndarray:
    return np.random.default_rng(0).integers(0, VOCABULARY, (2, 8), dtype=np.int32)


def _vision(factory: Callable[..., keras.Model], **settings: Any) -> Architecture:
    build = partial(factory, input_shape=IMAGE_SHAPE, num_classes=4, pretrained=None, **settings)
    return Architecture(f"{PACKAGE}/{factory.__name__}", build, _images)


def _language(factory: Callable[..., keras.Model], **settings: Any) -> Architecture:
    build = partial(
        factory,
        num_blocks=2,
        embedding_size=16,
        num_heads=2,
        vocab_size=VOCABULARY,
        max_block_size=8,
        pretrained=None,
        **settings,
    )
    return Architecture(f"{PACKAGE}/{factory.__name__}", build, _tokens)


ARCHITECTURES: tuple[Architecture, ...] = (
    _language(kecam.gpt2.GPT2),
    _language(kecam.llama2.LLaMA2),
    _vision(kecam.levit.LeViT128S),
    _vision(kecam.beit.EVA02TinyPatch14),
    _vision(kecam.coatnet.CoAtNet0),
    _vision(kecam.gcvit.GCViT_XXTiny),
    _vision(kecam.swin_transformer_v2.SwinTransformerV2Tiny_window8),
    _vision(kecam.caformer.CAFormerS18),
    _vision(kecam.coat.CoaTLiteMini),
    _vision(kecam.davit.DaViT_T),
    _vision(kecam.efficientvit.EfficientViT_B0),
    _vision(kecam.hiera.HieraTiny),
    _vision(kecam.botnet.BotNet50),
    _vision(kecam.mobilevit.MobileViT_V2_050),
    _vision(kecam.pvt.PVT_V2B0),
    _vision(kecam.beit.ViTTinyPatch16),
    _vision(kecam.convnext.ConvNeXtV2Atto),
    _vision(kecam.mlp_family.GMLPTiny16),
    _vision(kecam.mlp_family.ResMLP12),
    _vision(kecam.ghostnet.GhostNetV2_100),
    _vision(kecam.mobilenetv3_family.MobileNetV3Small050),
)
