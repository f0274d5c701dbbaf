"""What the errors mean that a model's own code raises while a step is traced."""

from __future__ import annotations

import re
from typing import Any, Final

import tensorflow as tf

from tf_amp_kit.errors import AmpError, InputsError, ModelError, TracingError
from tf_amp_kit.formats import is_half

__all__ = ["TRANSLATED", "meaning_of"]

_NEEDS_VALUES: Final = (tf.errors.OperatorNotAllowedInGraphError, NotImplementedError)

#: Errors that may have a meaning.
TRANSLATED: Final = (*_NEEDS_VALUES, TypeError, AttributeError, ValueError)

# What `float(tensor)` and `tensor.numpy()` complain about, and losses without targets.
_SYMBOLIC: Final = "'SymbolicTensor'"
_NO_LOSS: Final = "No loss to compute"
_NO_VALUE: Final = "None values not supported"


def meaning_of(
    error: Exception, model: Any, *, has_targets: bool, is_wide: bool, is_of_loss: bool = False
) -> AmpError | None:
    """Says what an error means, if it is known.

    Args:
        error: What was raised.
        model: The model that was traced.
        has_targets: Whether the data had targets.
        is_wide: Whether half-precision layers were to compute in float32.
        is_of_loss: Whether the loss raised it.

    Returns:
        The error to raise instead, or None.
    """
    text = str(error)
    name = type(model).__name__
    if isinstance(error, _NEEDS_VALUES) or _SYMBOLIC in text:
        return TracingError(
            f"The train step cannot be traced: the Python code of {name} needs values. Use "
            f"`keras.ops.cond` and `keras.ops.while_loop` there. Received: {text}"
        )
    if not has_targets and _NO_VALUE in text:
        return InputsError(
            "The loss needs targets. Expected data of inputs and targets, `(x, y)`. "
            f"Received: inputs alone, and {text!r}."
        )
    if is_wide and isinstance(error, TypeError) and any(map(is_half, re.findall(r"\w+", text))):
        return TracingError(
            f"The train step cannot be traced in float32: the code of {name} or of a layer in it "
            "names a half format. Take the dtype from `self.compute_dtype`, or from a tensor, "
            f"there. Received: {text}"
        )
    if _NO_LOSS in text:
        return ModelError(
            "The model has no loss: it was compiled without one, and adds none itself. Expected a "
            f"loss in `compile()`, or `loss=`. Received: {name} named {model.name!r}."
        )
    if is_of_loss and isinstance(error, ValueError) and not isinstance(error, AmpError):
        return InputsError(
            "The loss cannot be computed. Expected targets, and sample weights if any, that fit "
            f"the model's outputs and the loss. Received: {text}"
        )
    return None
