"""Layers that several models share, in configs: what Keras loses of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import keras
from keras.src.models import functional
from keras.src.saving import serialization_lib

from tf_amp_kit._keras.patching import ClassPatch, context_value

# The `id`s of layers that are told to be shared in every config of them.
_shareable: ContextVar[frozenset[int]] = ContextVar("shareable", default=frozenset())


@dataclass
class _Revival:
    """A graph of layers that is being made from its config."""

    config: dict[str, Any]
    is_shifted: bool = False


# The graphs that are being made now, the innermost last; None outside the scope.
_revivals: ContextVar[list[_Revival] | None] = ContextVar("revivals", default=None)


def _make_record(original: Any) -> Any:
    def record(obj: Any, config: dict[str, Any]) -> Any:
        original(obj, config)
        if id(obj) in _shareable.get():
            config["shared_object_id"] = id(obj)

    return record


def _make_revival(original: Any) -> Any:
    def revive(cls: Any, config: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        open_ones = _revivals.get()
        if open_ones is None:
            return original(cls, config, *args, **kwargs)
        # The original takes keys out of the config, but changes no list.
        open_ones.append(_Revival(dict(config)))
        try:
            return original(cls, config, *args, **kwargs)
        finally:
            open_ones.pop()

    return revive


def _make_node_reader(original: Any) -> Any:
    def read(node_data: Any, created_layers: dict[str, Any]) -> Any:
        open_ones = _revivals.get()
        if open_ones and not open_ones[-1].is_shifted:
            # Now all layers exist, and the graph has not called any of them.
            open_ones[-1].is_shifted = True
            _shift_nodes(open_ones[-1].config, created_layers)
        return original(node_data, created_layers)

    return read


# Functions of modules, which have attributes as classes do.
_record_patch = ClassPatch(serialization_lib, "record_object_after_serialization", _make_record)
_revival_patch = ClassPatch(functional, "functional_from_config", _make_revival)
_node_patch = ClassPatch(functional, "deserialize_node", _make_node_reader)


@contextlib.contextmanager
def sharing_told(layers: list[Any]) -> Iterator[None]:
    """Makes Keras write down, in each config of a layer, which layer it is.

    Wraps `serialization_lib.record_object_after_serialization`, which adds this
    to the first config only once there is a second; a Functional model has made
    a copy of the first by then, and the layer that it shares becomes two.

    Args:
        layers: The layers. They must live as long as the configs are needed.
    """
    ids = frozenset(map(id, layers))
    with _record_patch.installed(), context_value(_shareable, ids):
        yield


@contextlib.contextmanager
def sharing_revived() -> Iterator[None]:
    """Makes Keras connect layers that were called by another model before.

    Wraps `functional.functional_from_config` and `functional.deserialize_node`:
    a config counts the calls of its own model, and Keras looks them up among
    all calls, so that a layer shared with an inner model is connected wrongly.
    """
    with (
        _revival_patch.installed(),
        _node_patch.installed(),
        context_value(_revivals, []),
    ):
        yield


def _shift_nodes(config: dict[str, Any], created_layers: dict[str, Any]) -> None:
    calls_before = {
        name: len(layer._inbound_nodes)
        for name, layer in created_layers.items()
        # Making an input is its one call.
        if not isinstance(layer, keras.layers.InputLayer)
    }
    if any(calls_before.values()):
        for layer in config["layers"]:
            _shift(layer["inbound_nodes"], calls_before)
        _shift(config["input_layers"], calls_before)
        _shift(config["output_layers"], calls_before)


def _shift(part: Any, calls_before: dict[str, int]) -> None:
    """Shifts each `[layer name, call, output]` in a part of a config, in place."""
    match part:
        case [str(name), int(call), int()] if isinstance(part, list):
            part[1] = call + calls_before.get(name, 0)
        case list() | tuple():
            for one in part:
                _shift(one, calls_before)
        case dict():
            for one in part.values():
                _shift(one, calls_before)
