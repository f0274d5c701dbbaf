"""The one gate that everything with a `model` argument lets its model through."""

from __future__ import annotations

from typing import Any

import keras

from tf_amp_kit.errors import ModelError

__all__ = ["check_keras_model"]


def check_keras_model(model: Any, *, argument: str = "model") -> keras.Model:
    """Refuses everything that is not a Keras 3 model, before any work starts.

    A tf_keras (Keras 2) model has layers, weights and `fit` too, and fails deep
    inside; it gets a message of its own.

    Args:
        model: What the user handed in. It may be unbuilt.
        argument: What the user calls it, for the message.

    Returns:
        The same model.

    Raises:
        ModelError: If it is not a `keras.Model` of Keras 3.

    Example:

    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> check_keras_model(model) is model
    True
    """
    if isinstance(model, keras.Model):
        return model
    received = f"Received: {argument}={model!r} (of type {_qualified_name(type(model))})."
    if _is_keras_2(model):
        raise ModelError(
            f"A Keras 2 model cannot be used here. Expected a keras.Model of Keras 3. {received} "
            "Build it with `import keras`, and leave TF_USE_LEGACY_KERAS unset if you build it "
            "with `tf.keras`."
        )
    if isinstance(model, keras.layers.Layer):
        raise ModelError(
            f"A layer is not a model. Expected a keras.Model. {received} "
            "Wrap it: keras.Sequential([keras.Input(shape), layer])."
        )
    way_out = "Pass the model itself, not the class or the file that it comes from."
    raise ModelError(f"Not a Keras model. Expected a keras.Model. {received} {way_out}")


def _is_keras_2(model: Any) -> bool:
    # By name, since tf_keras may not be installed. Old TensorFlows carry a
    # Keras 2 of their own below `tensorflow.python.keras`.
    homes = [cls.__module__.split(".") for cls in type(model).__mro__]
    return any(
        home[0] == "tf_keras" or (home[0] == "tensorflow" and "keras" in home) for home in homes
    )


def _qualified_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
