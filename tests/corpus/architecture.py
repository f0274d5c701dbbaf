"""What an entry of the corpus is: a model that somebody else wrote, and a batch for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras

__all__ = ["Architecture"]


@dataclass(frozen=True)
class Architecture:
    """One architecture of a package, in the smallest size that shows all its layers.

    Attributes:
        name: The package and the class or function, `"keras_hub/BertBackbone"`.
        build: Makes the model under whatever dtype policy is in force; downloads nothing.
        batch: Makes two samples, as the one argument that the model is called with:
            an array, or a list or dictionary of arrays.
    """

    name: str
    build: Callable[[], keras.Model]
    batch: Callable[[], Any]
