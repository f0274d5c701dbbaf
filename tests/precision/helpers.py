"""What several tests of the policy look at."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import keras

import tf_amp_kit as amp

T = TypeVar("T")


def keras_policy() -> str:
    """The name of Keras's policy on this thread."""
    return str(keras.config.dtype_policy().name)


def now() -> tuple[str, amp.AmpState | None]:
    """What Keras has and what we recorded; the two may differ."""
    return keras_policy(), amp.current_amp()


def in_new_thread(function: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()
