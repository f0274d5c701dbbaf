"""Hypothesis keeps nothing in the tree."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import configuration

_elsewhere = tempfile.TemporaryDirectory(prefix="hypothesis")
# As early as this: Hypothesis writes while tests are collected.
configuration.set_hypothesis_home_dir(_elsewhere.name)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Removes what Hypothesis wrote."""
    configuration.set_hypothesis_home_dir(None)
    _elsewhere.cleanup()
