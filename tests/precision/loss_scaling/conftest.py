"""Warnings that are recorded each time they are given."""

from __future__ import annotations

import warnings

import pytest


@pytest.fixture
def caught(recwarn: pytest.WarningsRecorder) -> pytest.WarningsRecorder:
    # By default Python drops a warning that one line gives again.
    warnings.simplefilter("always")
    return recwarn
