"""The gate for everything that is called `model`."""

from __future__ import annotations

import re

import keras
import pytest

from tf_amp_kit.errors import ModelError
from tf_amp_kit.tracing.model_check import check_keras_model


class Subclassed(keras.Model):
    pass


@pytest.mark.parametrize(
    "model", [keras.Sequential(), Subclassed()], ids=["sequential", "subclassed"]
)
def test_keras_3_models_pass_even_unbuilt(model: keras.Model) -> None:
    assert check_keras_model(model) is model


def keras_2_model(module: str) -> object:
    """An object of a class that says it comes from `module`, by inheritance."""
    base = type("Model", (), {"__module__": module})
    return type("MyModel", (base,), {"__module__": "mine", "__repr__": lambda self: "<mine>"})()


@pytest.mark.parametrize(
    "module", ["tf_keras.src.engine.training", "tensorflow.python.keras.engine.training"]
)
def test_a_keras_2_model_is_refused_by_name(module: str) -> None:
    message = (
        "A Keras 2 model cannot be used here. Expected a keras.Model of Keras 3. "
        "Received: model=<mine> (of type mine.MyModel). Build it with `import keras`, and leave "
        "TF_USE_LEGACY_KERAS unset if you build it with `tf.keras`."
    )
    with pytest.raises(ModelError, match=f"^{re.escape(message)}$"):
        check_keras_model(keras_2_model(module))


def test_a_layer_is_refused_with_the_wrapping_that_helps() -> None:
    message = (
        "A layer is not a model. Expected a keras.Model. Received: model=<Dense name=head, "
        "built=False> (of type keras.src.layers.core.dense.Dense). "
        "Wrap it: keras.Sequential([keras.Input(shape), layer])."
    )
    with pytest.raises(ModelError, match=f"^{re.escape(message)}$"):
        check_keras_model(keras.layers.Dense(1, name="head"))


@pytest.mark.parametrize("thing", [None, "model.keras", 3, Subclassed, lambda: Subclassed()])
def test_what_is_no_model_is_refused(thing: object) -> None:
    message = f"Not a Keras model. Expected a keras.Model. Received: model={thing!r}"
    with pytest.raises(ModelError, match=re.escape(message)):
        check_keras_model(thing)


def test_the_message_names_the_argument() -> None:
    with pytest.raises(ModelError, match=re.escape("Received: teacher=3")):
        check_keras_model(3, argument="teacher")
