"""Models that are not in the precision that was asked for."""

import functools
import threading

import keras
import numpy as np
import pytest
from keras import layers

from tf_amp_kit.inspection.audit import audit_layer_dtypes

from . import places
from .expect import Expected, check
from .faults import WIDTH

# Keras 3.15 saves through an argument that NumPy 2 has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

WHOLE = (Expected("AMP104"),)


def plain_model():
    return keras.Sequential(
        [keras.Input((WIDTH,)), layers.Dense(WIDTH, activation="relu"), layers.Dense(3)]
    )


@keras.saving.register_keras_serializable("tests.stale")
class Subclassed(keras.Model):
    """Hands its policy to nobody."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.last = layers.Dense(WIDTH), layers.Dense(3)

    def build(self, input_shape):
        self.first.build(input_shape)
        self.last.build((*input_shape[:-1], WIDTH))

    def call(self, inputs):
        return self.last(self.first(inputs))


def subclassed_model(**kwargs):
    model = Subclassed(**kwargs)
    model(np.zeros((2, WIDTH), "float32"))
    return model


def in_thread(function):
    """Run a function in another thread and return what it returned."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def under(policy, build):
    """Build under another global policy."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        return build()
    finally:
        keras.config.set_dtype_policy(before)


@pytest.mark.parametrize("asked", [True, False], ids=["asked for", "not asked for"])
def test_a_policy_on_a_subclassed_model_reaches_no_layer(asked, half):
    keras.config.set_dtype_policy("float32")
    model = subclassed_model(dtype=f"mixed_{half}")
    precision = f"mixed_{half}" if asked else None
    check(audit_layer_dtypes(model, precision=precision, verbose=0), WHOLE)


def test_a_policy_on_a_functional_model_is_ignored(half):
    keras.config.set_dtype_policy("float32")
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(3)(layers.Dense(WIDTH)(inputs))
    model = keras.Model(inputs, hidden, dtype=f"mixed_{half}")
    check(audit_layer_dtypes(model, precision=f"mixed_{half}", verbose=0), WHOLE)


@pytest.mark.parametrize("build", [plain_model, subclassed_model])
def test_a_model_built_before_the_policy_is_stale(build, half):
    model = under("float32", build)
    check(audit_layer_dtypes(model, verbose=0), WHOLE)


def test_a_float32_file_loaded_under_a_mixed_policy_is_stale(half, tmp_path):
    under("float32", plain_model).save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    check(audit_layer_dtypes(model, verbose=0), WHOLE)


def test_a_model_built_in_another_thread_is_stale(half):
    # Keras keeps the policy per thread, and another thread starts with float32.
    model = in_thread(plain_model)
    check(audit_layer_dtypes(model, verbose=0), WHOLE)


def test_a_model_built_in_the_other_half_is_stale(half):
    other = "float16" if half == "bfloat16" else "bfloat16"
    model = under(f"mixed_{other}", plain_model)
    check(audit_layer_dtypes(model, verbose=0), WHOLE)


@pytest.mark.parametrize("asked", [None, "alias"])
def test_an_asked_for_precision_is_what_counts(asked, half):
    keras.config.set_dtype_policy("float32")
    name = f"mixed_{half}" if asked is None else {"float16": "fp16", "bfloat16": "bf16"}[half]
    check(audit_layer_dtypes(plain_model(), precision=name, verbose=0), WHOLE)


def backbone_model(backbone):
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(backbone(layers.Dense(WIDTH)(inputs)))
    return keras.Model(inputs, places.head()(hidden))


def make_backbone():
    return keras.Sequential(
        [keras.Input((WIDTH,)), *[layers.Dense(WIDTH) for _ in range(3)]], name="backbone"
    )


def test_a_stale_submodel_is_one_finding_at_its_path(half):
    model = backbone_model(under("float32", make_backbone))
    check(audit_layer_dtypes(model, verbose=0), (Expected("AMP104", "backbone"),))


def test_a_fresh_submodel_is_fine(half):
    check(audit_layer_dtypes(backbone_model(make_backbone()), verbose=0))


def test_a_float32_head_is_intended_after_save_and_load(half, tmp_path):
    inputs = keras.Input((WIDTH,))
    model = keras.Model(inputs, places.head()(layers.Dense(WIDTH)(inputs)))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for one in (model, loaded):
        check(audit_layer_dtypes(one, verbose=0), allowed=frozenset({"AMP108"}))


def test_a_float32_model_in_a_float32_session_is_fine():
    check(audit_layer_dtypes(plain_model(), verbose=0))


@pytest.fixture
def enabled():
    """The package's own switch, put back afterwards."""
    amp = pytest.importorskip("tf_amp_kit")
    amp.enable_amp("bf16")
    yield
    amp.disable_amp()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("audit_in_thread", [False, True])
def test_a_worker_threads_model_is_held_against_what_was_enabled(enabled, audit_in_thread):
    model = in_thread(plain_model)
    audit = functools.partial(audit_layer_dtypes, model, verbose=0)
    check(in_thread(audit) if audit_in_thread else audit(), WHOLE)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_model_built_after_clear_session_is_held_against_what_was_enabled(enabled):
    keras.utils.clear_session()
    check(audit_layer_dtypes(plain_model(), verbose=0), WHOLE)


def test_a_stale_submodel_is_found_beside_a_fresh_one_with_a_longer_name(half):
    inputs = keras.Input((WIDTH,))
    fresh = keras.Sequential(
        [keras.Input((WIDTH,)), layers.Dense(WIDTH), layers.ReLU()], name="backbone_neck"
    )
    hidden = fresh(under("float32", make_backbone)(layers.Dense(WIDTH)(inputs)))
    model = keras.Model(inputs, places.head()(hidden))
    report = audit_layer_dtypes(model, verbose=0)
    assert [one.path for one in report.findings if one.code == "AMP104"] == ["backbone"]


def test_three_float32_layers_that_all_end_the_model_are_no_head(half):
    def make():
        inputs = keras.Input((WIDTH,))
        first = layers.Dense(WIDTH)(inputs)
        second = layers.Dense(WIDTH)(first)
        return keras.Model(inputs, layers.Dense(WIDTH)(second), name="tail")

    inputs = keras.Input((WIDTH,))
    model = keras.Model(inputs, under("float32", make)(layers.Dense(WIDTH)(inputs)))
    report = audit_layer_dtypes(model, verbose=0)
    assert [one.path for one in report.findings if one.code == "AMP104"] == ["tail"]


def test_as_many_float32_heads_as_the_model_has_outputs_are_its_own_choice(half):
    def make():
        inputs = keras.Input((WIDTH,))
        return keras.Model(inputs, [layers.Dense(1)(inputs) for _ in range(3)], name="heads")

    inputs = keras.Input((WIDTH,))
    model = keras.Model(inputs, under("float32", make)(layers.Dense(WIDTH)(inputs)))
    report = audit_layer_dtypes(model, verbose=0)
    assert [one.path for one in report.findings if one.code == "AMP104"] == []
