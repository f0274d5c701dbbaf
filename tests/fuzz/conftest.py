"""Hypothesis keeps nothing in the tree."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import configuration


@pytest.fixture(scope="package", autouse=True)
def _hypothesis_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    configuration.set_hypothesis_home_dir(tmp_path_factory.mktemp("hypothesis"))
    try:
        yield
    finally:
        configuration.set_hypothesis_home_dir(None)
