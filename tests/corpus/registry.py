"""All architectures of the corpus, and what is expected of each."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

import tests.corpus.architectures
from tests.corpus.architecture import Architecture

__all__ = ["EXPECTED_FOLDER", "architectures", "expected_of"]

EXPECTED_FOLDER = Path(__file__).parent / "expected"

_BOTH = "both"


def architectures() -> dict[str, Architecture]:
    """Returns the architectures by name, package by package."""
    modules = [
        importlib.import_module(f"{tests.corpus.architectures.__name__}.{info.name}")
        for info in pkgutil.iter_modules(tests.corpus.architectures.__path__)
    ]
    return {one.name: one for module in modules for one in module.ARCHITECTURES}


def expected_of(name: str, policy: str) -> dict[str, list[str]]:
    """Returns the paths by code that an audit has to find.

    Args:
        name: The architecture's name.
        policy: The mixed policy.

    Returns:
        Sorted paths by code, as `expected/<package>.json` has them: for both policies,
        and for the one.
    """
    package, _, rest = name.partition("/")
    entry = _file(package).get(rest, {})
    found: dict[str, list[str]] = {}
    for part in (entry.get(_BOTH, {}), entry.get(policy, {})):
        for code, paths in part.items():
            found[code] = sorted([*found.get(code, []), *paths])
    return dict(sorted(found.items()))


def _file(package: str) -> dict[str, Any]:
    path = EXPECTED_FOLDER / f"{package}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
