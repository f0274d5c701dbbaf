"""Private names of Keras about what a layer is before it is built."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import keras


@contextlib.contextmanager
def unbuilt_again(layers: Iterable[Any]) -> Iterator[None]:
    """Gives layers that are not built back what they were, if a `with` block fails.

    Uses `Layer._tracker`, with its `config`, `stored_ids` and `locked`, and the global
    attribute `uninitialized_variables`: what `build` made before it failed hangs there, and a
    second `build` would make it again. Policies stay as they were set meanwhile.

    Args:
        layers: Layers; those that are built are left alone.
    """
    from keras.src.backend.common import global_state

    undo = [_unbuilding(layer) for layer in layers if not getattr(layer, "built", True)]
    waiting = list(global_state.get_global_attribute(_WAITING) or [])
    try:
        yield
    except BaseException:
        if undo:
            global_state.set_global_attribute(_WAITING, waiting)
        for restore in undo:
            restore()
        raise


def build_as_called(layer: Any, args: Any, kwargs: Any) -> None:
    """Builds a layer as its call would, without the call.

    Uses `CallSpec`, `Layer._call_signature`, `_call_context_args`, `_open_name_scope` and
    `_maybe_build`: what a `build` makes stays with the layer, wherever the call then runs.

    Args:
        layer: A layer that is not built.
        args: The arguments of the call by position.
        kwargs: The others.
    """
    from keras.src.layers.layer import CallSpec

    policy = layer.dtype_policy
    args, kwargs = keras.tree.map_structure(
        lambda value: policy.convert_input(value, layer.autocast, layer.input_dtype),
        (args, kwargs),
    )
    spec = CallSpec(layer._call_signature, layer._call_context_args, args, kwargs)
    with layer._open_name_scope():
        layer._maybe_build(spec)


# Variables that get their values when the outermost shape inference ends.
_WAITING: Final = "uninitialized_variables"


def _unbuilding(layer: Any) -> Callable[[], None]:
    attributes, tracker = dict(vars(layer)), layer._tracker
    stores = [store for _, store in tracker.config.values()]
    held = [*stores, *attributes.values()]
    # By type, and past the methods of Keras's own containers, which would track anew.
    lists = [(one, list(one)) for one in held if issubclass(type(one), list)]
    others: list[tuple[Any, Any, Any]] = [
        (kind, one, kind(one))
        for kind in (dict, set)
        for one in held
        if issubclass(type(one), kind)
    ]
    ids = {name: set(found) for name, found in tracker.stored_ids.items()}
    is_locked = tracker.locked

    def restore() -> None:
        policy = layer._dtype_policy
        vars(layer).clear()  # past `__delattr__`, which would untrack one by one
        vars(layer).update(attributes)
        layer._dtype_policy = policy
        for one, before in lists:
            list.__setitem__(one, slice(None), before)
        for kind, one, content in others:
            kind.clear(one)
            kind.update(one, content)
        tracker.stored_ids.update(ids)
        tracker.locked = is_locked

    return restore
