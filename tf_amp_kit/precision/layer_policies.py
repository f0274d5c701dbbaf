"""The dtype policies of layers: the one they are made under, and float32 ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras

from tf_amp_kit import _keras
from tf_amp_kit.errors import LayerError
from tf_amp_kit.formats import is_half
from tf_amp_kit.precision.results import CastsResults
from tf_amp_kit.tracing.paths import LayerPaths

__all__ = ["Was", "change_back", "half_variables", "policy_scope", "set_float32", "widen_inputs"]


@contextlib.contextmanager
def policy_scope(policy: str | keras.DTypePolicy) -> Iterator[None]:
    """Makes a policy Keras's global one in this thread for the time of a `with` block.

    Layers that a composite makes without a dtype take the global policy.

    Args:
        policy: A policy, or the name of one.

    Example:

    >>> with policy_scope("mixed_bfloat16"):
    ...     keras.layers.Dense(2).dtype_policy.name
    'mixed_bfloat16'
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


class Was(NamedTuple):
    """What was changed of a layer; of data alone, so that it keeps no layer alive.

    Attributes:
        policy: The policy that it had, or None if that was not changed.
        new_policy: The one that it got.
        input_dtypes: What a graph model cast its inputs to, if that was changed.
    """

    policy: Any = None
    new_policy: Any = None
    input_dtypes: tuple[str, ...] = ()


def half_variables(layer: Any) -> list[Any]:
    """Returns the variables that a layer and its sublayers store in half precision.

    Args:
        layer: A layer. What is not built yet has no variables.

    Returns:
        Keras variables, each once.

    Example:

    >>> dense = keras.layers.Dense(2, dtype="float16")
    >>> dense.build((None, 3))
    >>> [variable.name for variable in half_variables(dense)]
    ['kernel', 'bias']
    """
    variables = {id(v): v for _, sub in LayerPaths(layer) for v in sub.variables}
    return [v for v in variables.values() if is_half(_keras.stored_dtype(v))]


def set_float32(layer: Any) -> list[tuple[Any, Was]]:
    """Makes a layer and all its sublayers compute in float32, from their next call on.

    Sublayers are reached that no policy of the layer itself would reach, the
    softmax of MultiHeadAttention for one. What computes in float64 or in no
    float at all stays as it is.

    Args:
        layer: A layer, built or not; changed in place.

    Returns:
        The layers that were changed, each with what it was.

    Raises:
        LayerError: If variables are stored in half precision.

    Example:

    >>> dense = keras.layers.Dense(2, dtype="mixed_float16")
    >>> ((_, was),) = set_float32(dense)
    >>> dense.dtype_policy.name
    'float32'
    >>> change_back(dense, was)
    >>> dense.dtype_policy.name
    'mixed_float16'
    """
    halves = half_variables(layer)
    if halves:
        raise LayerError(
            "A layer that stores its variables in half precision cannot compute with float32 "
            f"ones. Expected variables in float32. Received: layer={layer.name!r} with "
            f"{len(halves)} in half, {halves[0].path!r} first. Build it with dtype='float32' "
            "or a mixed policy, whose variables are float32."
        )
    changed = []
    for _, sub in LayerPaths(layer):
        before = _policy(sub)
        if is_half(before.compute_dtype):
            # Quantized layers keep their mode: int8_from_mixed_bfloat16.
            *mode, _ = before.name.rpartition("_from_")
            _set_policy(sub, keras.dtype_policies.get("".join((*mode, "float32"))))
            changed.append((sub, Was(before, _policy(sub))))
        changed += widen_inputs(sub)
    return changed


def widen_inputs(model: Any) -> list[tuple[Any, Was]]:
    """Makes a graph model that rounds its inputs to half take float32 ones.

    A Sequential model that was built without an `Input`, under a mixed policy,
    does so. What computes in half rounds for itself.

    Args:
        model: A model; others and layers are left alone.

    Returns:
        The model, with what it was, if it was changed.
    """
    if not (_keras.is_functional(model) and model.built and getattr(model, "inputs", None)):
        return []
    dtypes = tuple(tensor.dtype for tensor in model.inputs)
    if not any(map(is_half, dtypes)):
        return []
    _keras.set_input_dtypes(model, ["float32" if is_half(dtype) else dtype for dtype in dtypes])
    return [(model, Was(input_dtypes=dtypes))]


def change_back(layer: Any, was: Was) -> None:
    """Gives a layer back what it was, unless it got yet another policy since."""
    if was.policy is not None and _policy(layer) is was.new_policy:
        _set_policy(layer, was.policy)
    if was.input_dtypes:
        _keras.set_input_dtypes(layer, was.input_dtypes)


def _policy(layer: Any) -> Any:
    """Returns the policy that can change: what casts its results is float32 for good."""
    return layer.results_policy if isinstance(layer, CastsResults) else layer.dtype_policy


def _set_policy(layer: Any, policy: Any) -> None:
    if isinstance(layer, CastsResults):
        layer.results_policy = policy
        return
    _keras.replace_policy(layer, policy)
    if isinstance(layer, keras.layers.Normalization) and layer.built:
        _keras.cast_statistics(layer)
