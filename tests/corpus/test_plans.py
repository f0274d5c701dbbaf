"""Precision plans of models that other people wrote: made, and applied to a second build."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.corpus.registry import architectures
from tf_amp_kit.tracing.paths import LayerPaths

pytestmark = [pytest.mark.corpus, pytest.mark.filterwarnings("ignore")]

ALL = architectures()

#: Some of each kind of net; those of dictionaries as outputs have no one loss.
PLANNED = (
    "k3im/ViT",
    "k3im/SimpleViT",
    "k3im/ViT1DModel",
    "keras_hub/BertTextClassifier",
    "keras_hub/FNetTextClassifier",
    "keras_hub/ViTBackbone",
    "keras_rs/FeatureCross",
    "kimm/ConvMixer",
    "kimm/VisionTransformer",
    "keras_unet_collection/unet_2d",
    "tcn/TCN",
)


@pytest.mark.parametrize("name", PLANNED)
def test_a_plan_is_made_and_applied(name: str) -> None:
    architecture = ALL[name]
    batch = architecture.batch()
    with amp.amp_scope("bf16"):
        model = architecture.build()
        plan = amp.plan_precision(model, batch, tolerance=1e-2, time_steps=False)
        twin = architecture.build()
        pins = amp.apply_plan(twin, plan)
    assert plan.pins.paths == pins.paths
    layers = dict(LayerPaths(twin))
    assert {layers[path].compute_dtype for path in pins.paths} <= {"float32"}
    outputs = tf.nest.flatten(twin(batch))
    assert all(np.isfinite(np.asarray(one, "float32")).all() for one in outputs)
