"""Half precision, where a test asks for it."""

from __future__ import annotations

import keras
import pytest


@pytest.fixture
def float16() -> None:
    keras.config.set_dtype_policy("mixed_float16")


@pytest.fixture
def bfloat16() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
