"""Calling a user's builder, and keeping what half precision makes fail there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from tf_amp_kit.tracing import conflicts
from tf_amp_kit.tracing.model_graph import conflict_record
from tf_amp_kit.tracing.observe import observing
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.recorder import Recorder
from tf_amp_kit.tracing.records import Conflict


@dataclass(frozen=True)
class Built:
    """What a builder gave.

    Attributes:
        name: The builder's name.
        model: What it returned.
        is_stopped: Whether the build could not be finished; then there is no model.
        conflicts: Calls that raised on the way because of half precision.
    """

    name: str
    model: Any
    conflicts: tuple[Conflict, ...]
    is_stopped: bool = False


def build_observed(builder: Callable[[], Any]) -> Built:
    """Calls a builder; a layer that half precision makes fail is called in float32.

    Args:
        builder: A function without arguments.

    Returns:
        What it returned, and the conflicts on the way.

    Raises:
        Exception: Whatever the builder raises by itself, with its traceback.
    """
    name = getattr(builder, "__name__", type(builder).__name__)
    recorder = Recorder(paths=None)
    try:
        with observing(recorder), np.errstate(over="ignore"):
            model = builder()
    except conflicts.MissingKernel as stop:
        return Built(name, None, (conflict_record(stop.layer, stop.clash, None),), is_stopped=True)
    paths = LayerPaths(model) if isinstance(model, keras.Model) else None
    found = tuple(conflict_record(layer, clash, paths) for layer, clash in recorder.conflicts)
    return Built(name, model, found)
