"""Which part of Keras a file of a traceback belongs to."""

from __future__ import annotations

import os
from functools import cache
from typing import Final

import keras

_FOLDER: Final = os.path.dirname(os.path.abspath(keras.__file__))
_LAYERS: Final = os.path.join(_FOLDER, "src", "layers")
_BASE_LAYER: Final = os.path.join(_LAYERS, "layer.py")
# Where operations bring their operands to one dtype. `core` casts only when told.
_PROMOTING: Final = (
    os.path.join(_FOLDER, "src", "ops"),
    os.path.join(_FOLDER, "src", "backend", "tensorflow"),
)


@cache
def kind_of_keras_code(file: str) -> str:
    """Sorts a file of Keras by the private folders that it lies in.

    Args:
        file: A file's path, as a traceback gives it.

    Returns:
        `"layer"` for the code of Keras's layers, `"promoting"` for operations
        that may widen their operands, `"plumbing"` for the rest of Keras, and an
        empty string for a file outside Keras.
    """
    path = os.path.abspath(file)
    if not path.startswith(_FOLDER + os.sep):
        return ""
    if path.startswith(_LAYERS + os.sep) and path != _BASE_LAYER:
        return "layer"
    is_promoting = path.startswith(tuple(folder + os.sep for folder in _PROMOTING))
    return "promoting" if is_promoting and os.path.basename(path) != "core.py" else "plumbing"
