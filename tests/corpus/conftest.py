"""The corpus is left out unless it is asked for: its packages need not be there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_asked_for = re.search(r"(?<!not )\bcorpus\b", config.option.markexpr)
    return None if is_asked_for else True
