"""Builders and data by their names, for processes that a subcommand starts.

What a name stands for is imported there: datasets, and functions without a name of
their own, cannot be handed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tf_amp_kit.model_source import load_data, load_source

__all__ = ["ImportedBuilder", "ImportedData"]


@dataclass(frozen=True)
class ImportedBuilder:
    """Calls a builder that it knows by name.

    Args:
        name: `package.module:builder`.

    Example:

    >>> ImportedBuilder("my_package.nets:build")
    ImportedBuilder(name='my_package.nets:build')
    """

    name: str

    def __call__(self) -> Any:
        """Imports the builder and calls it."""
        return load_source(self.name)()


@dataclass(frozen=True)
class ImportedData:
    """Calls a function for data that it knows by name.

    Args:
        name: `package.module:data`, as `load_data` takes it.
        part: Which of the data it returns.

    Example:

    >>> ImportedData("my_package.digits:load", "validation").part
    'validation'
    """

    name: str
    part: Literal["train", "validation"]

    def __call__(self) -> Any:
        """Imports the function, calls it and takes its part of the data."""
        train, validation = load_data(self.name)
        return train if self.part == "train" else validation
