"""Private names of Keras about dtype policies, and what follows from them."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import keras

from tf_amp_kit._keras.autocast import autocast_scope
from tf_amp_kit._keras.layers import is_functional
from tf_amp_kit._keras.patching import ClassPatch
from tf_amp_kit.formats import is_float


class _FarCounts(collections.defaultdict[str, int]):
    """Counts of automatic names that no layer of a real model has come to."""

    def __init__(self) -> None:
        super().__init__(lambda: 1_000_000)

    def __contains__(self, name: object) -> bool:
        return True


def replace_policy(layer: Any, policy: Any) -> None:
    """Gives a layer another dtype policy, and nothing else one.

    Uses `Layer._dtype_policy`: where a `DTypePolicyMap` is in force, the public
    setter writes into that map, which other layers share.

    Args:
        layer: The layer.
        policy: A `keras.dtype_policies.DTypePolicy`, or a map of them.
    """
    layer._dtype_policy = policy


def refresh_symbolic_dtypes(
    model: Any, changed: Collection[Any], errors: tuple[type[Exception], ...]
) -> None:
    """Brings the recorded dtypes of a graph model in line with changed policies.

    Uses `Function._nodes_by_depth` and `KerasTensor._dtype`: Keras infers the
    dtypes when the model is built, and never again.

    Args:
        model: A Functional model, or a Sequential one.
        changed: Layers whose policies changed, and what holds them.
        errors: What layers raise that do not run under the policy that they have now;
            what is recorded of those stays.
    """
    graph = getattr(model, "_functional", None) or model
    by_depth = getattr(graph, "_nodes_by_depth", {})
    identities = {id(layer) for layer in changed}
    stale: set[int] = set()
    for depth in sorted(by_depth, reverse=True):
        for node in by_depth[depth]:
            is_stale = (
                id(node.operation) in identities
                or any(id(tensor) in stale for tensor in node.input_tensors)
                or _differs_from_nested(node)
            )
            if is_stale and not node.is_input:
                with contextlib.suppress(*errors):
                    stale.update(_refresh(node))


def _differs_from_nested(node: Any) -> bool:
    """Tells whether a nested model was refreshed without the one around it."""
    outputs = getattr(node.operation, "outputs", ()) if is_functional(node.operation) else ()
    recorded = [tensor.dtype for tensor in node.output_tensors]
    return bool(outputs) and [tensor.dtype for tensor in outputs] != recorded


def _refresh(node: Any) -> Iterator[int]:
    operation, arguments = node.operation, (node.arguments.args, node.arguments.kwargs)
    scope: Any = contextlib.nullcontext()
    # What `Layer.__call__` does first; through it, the graph would get new nodes.
    if isinstance(operation, keras.layers.Layer) and operation.autocast:
        dtype = operation.compute_dtype
        arguments = keras.tree.map_structure(lambda value: _fitted(value, dtype), arguments)
        scope = autocast_scope(dtype if is_float(dtype) else None)
    with scope:
        spec = operation.compute_output_spec(*arguments[0], **arguments[1])
    for tensor, new in zip(node.output_tensors, keras.tree.flatten(spec), strict=False):
        if tensor.dtype != new.dtype:
            tensor._dtype = new.dtype
            yield id(tensor)


def _fitted(value: Any, dtype: str) -> Any:
    is_cast = isinstance(value, keras.KerasTensor) and is_float(value.dtype) and is_float(dtype)
    return keras.KerasTensor(value.shape, dtype, name=value.name) if is_cast else value


def unsafe_deserialization() -> contextlib.AbstractContextManager[Any]:
    """Lets configurations of layers that exist already bring their Python code.

    Uses `keras.src.saving.serialization_lib.SafeModeScope`: the public switch
    stays on for the whole process.
    """
    from keras.src.saving.serialization_lib import SafeModeScope

    return SafeModeScope(False)  # type: ignore[no-any-return]


@contextlib.contextmanager
def names_of_another_process() -> Iterator[None]:
    """Counts automatic names from elsewhere on, and goes back afterwards.

    Uses the global attribute `object_name_uids`: Keras counts names up there,
    and `keras.backend.get_uid` can only count further.
    """
    from keras.src.backend.common import global_state

    counts = global_state.get_global_attribute("object_name_uids")
    global_state.set_global_attribute("object_name_uids", _FarCounts())
    try:
        yield
    finally:
        global_state.set_global_attribute("object_name_uids", counts)


def default_policy_chosen(
    choose: Callable[[], str | None],
) -> contextlib.AbstractContextManager[None]:
    """Lets a function choose the dtype policy wherever nobody has set one.

    Uses `global_state.get_global_attribute`: Keras keeps the policy for each thread, and
    `clear_session()` forgets it; the public setter reaches neither.

    Args:
        choose: Takes nothing and returns the name of a policy; None leaves it to Keras.
    """
    from keras.src.backend.common import global_state

    def make(original: Any) -> Any:
        def get_global_attribute(
            name: str, default: Any = None, set_to_default: bool = False
        ) -> Any:
            found = original(name, default, set_to_default)
            if name != "dtype_policy" or found is not None or (chosen := choose()) is None:
                return found
            policy = keras.DTypePolicy(chosen)
            global_state.set_global_attribute(name, policy)
            return policy

        return get_global_attribute

    return ClassPatch(global_state, "get_global_attribute", make).installed()
