"""Private names of Keras about layers and models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from contextvars import ContextVar
from typing import Any, Final

import keras

from tf_amp_kit._keras.normalization import statistics_patch
from tf_amp_kit._keras.patching import ClassPatch, context_value
from tf_amp_kit.formats import is_half

# Attributes in which Keras keeps a second reference to what hangs elsewhere.
_BOOKKEEPING_ATTRIBUTES: Final = frozenset(
    {
        "_layers",
        "_functional",
        "_tracker",
        "_metrics",
        "_operations",
        "_nodes",
        "_nodes_by_depth",
        "_operations_by_depth",
        "_inbound_nodes",
        "_outbound_nodes",
        "_call_context_args",
        "_seed_generators",
        "_trainable_variables",
        "_non_trainable_variables",
    }
)


def is_bookkeeping(owner: Any, attribute: str) -> bool:
    """Tells whether an attribute of a layer or optimizer only repeats what hangs elsewhere.

    The names are private ones of Keras, and `_self_` begins TensorFlow's own.
    """
    if isinstance(owner, keras.optimizers.Optimizer) and attribute == "_variables":
        return True
    return attribute in _BOOKKEEPING_ATTRIBUTES or attribute.startswith("_self_")


def is_functional(model: Any) -> bool:
    """Tells whether a model is a graph of layers: Functional or Sequential.

    Uses `keras.src.models.functional.Functional`: the class has no public name.
    """
    from keras.src.models.functional import Functional

    return isinstance(model, Functional | keras.Sequential)


def writes_its_layers(model: Any) -> bool:
    """Tells whether the configuration of a model is a graph of its layers.

    Uses `keras.src.models.functional.functional_like_constructor`: a class that
    makes its graph in its constructor is made anew by that, instead.
    """
    from keras.src.models.functional import functional_like_constructor

    if isinstance(model, keras.Sequential):
        return type(model) is keras.Sequential
    return is_functional(model) and bool(functional_like_constructor(type(model)))


def inputs_structure(model: Any) -> Any:
    """Returns a graph model's symbolic inputs in the structure that it takes.

    Uses `Functional._inputs_struct`: the public `inputs` is flat, and a flat
    list makes a model with named inputs warn.
    """
    functional = getattr(model, "_functional", None) or model
    return getattr(functional, "_inputs_struct", model.inputs)


def tracked_layers(layer: Any) -> list[Any]:
    """Returns the layers that Keras itself tracks as direct sublayers.

    Uses `Layer._layers`: only models have a public `layers`.
    """
    return [sub for sub in getattr(layer, "_layers", ()) if isinstance(sub, keras.layers.Layer)]


@contextlib.contextmanager
def losses_restored(layers: list[Any]) -> Iterator[None]:
    """Gives layers back the losses that they held before a `with` block.

    Uses `Layer._losses` and `Layer._loss_ids`: a trace leaves tensors of a
    closed graph in them, and the public `losses` cannot be written.
    """
    restore = _restoring_losses(layers)
    try:
        yield
    finally:
        restore()


@contextlib.contextmanager
def state_restored_on_failure(layers: list[Any]) -> Iterator[None]:
    """Gives layers back their losses, and a stateless call its state, if a `with` block fails.

    Uses `StatelessScope.state_mapping`, where a stateless call keeps what it assigns.
    """
    from keras.src.backend.common.stateless_scope import get_stateless_scope

    restore, scope = _restoring_losses(layers), get_stateless_scope()
    state = dict(scope.state_mapping) if scope is not None else {}
    try:
        yield
    except BaseException:
        restore()
        if scope is not None:
            scope.state_mapping = state
        raise


def is_stateless() -> bool:
    """Tells whether variables stay as they are: in a stateless call, or shape inference.

    Uses `keras.src.backend.common.stateless_scope.in_stateless_scope`.
    """
    from keras.src.backend.common.stateless_scope import in_stateless_scope

    return bool(in_stateless_scope())


def _restoring_losses(layers: list[Any]) -> Callable[[], None]:
    saved = [
        (layer, list(getattr(layer, "_losses", ())), set(getattr(layer, "_loss_ids", ())))
        for layer in layers
    ]

    def restore() -> None:
        for layer, losses, ids in saved:
            if hasattr(layer, "_losses"):
                layer._losses[:] = losses
            if hasattr(layer, "_loss_ids"):
                layer._loss_ids.clear()
                layer._loss_ids.update(ids)

    return restore


@contextlib.contextmanager
def fresh_loss(model: Any, loss: Any = None) -> Iterator[None]:
    """Gives a model a loss that was never called, for the time of a `with` block.

    Uses `Trainer._compile_loss` and its class: the compiled loss builds itself
    for the first batch that it sees, and would keep what a trace made of it.

    Args:
        model: A Keras model, compiled unless a loss is given.
        loss: What `compile` takes as `loss`; None for the compiled one.
    """
    from keras.src.trainers.compile_utils import CompileLoss

    before = model._compile_loss
    attributes = vars(model)  # past `__setattr__`, which would track it anew
    if loss is not None:
        fresh = CompileLoss(loss, output_names=getattr(model, "output_names", None))
    elif before is not None:
        fresh = CompileLoss(
            before._user_loss, before._user_loss_weights, output_names=before.output_names
        )
    else:
        fresh = None
    attributes["_compile_loss"] = fresh
    try:
        yield
    finally:
        attributes["_compile_loss"] = before


@contextlib.contextmanager
def fresh_metrics(model: Any) -> Iterator[None]:
    """Gives a model compiled metrics that never saw a batch, for a `with` block.

    Uses `Trainer._compile_metrics` and its class, for the reason that
    `fresh_loss` has. Metrics of Keras's own are made anew, those of a user's class
    are the same objects.

    Args:
        model: A Keras model, compiled or not.
    """
    from keras.src.trainers.compile_utils import CompileMetrics

    before = model._compile_metrics
    attributes = vars(model)  # past `__setattr__`, which would track it anew
    if before is not None:
        attributes["_compile_metrics"] = CompileMetrics(
            _fresh(before._user_metrics),
            _fresh(before._user_weighted_metrics),
            output_names=before.output_names,
        )
    try:
        yield
    finally:
        attributes["_compile_metrics"] = before


def _fresh(metrics: Any) -> Any:
    """Copies the metrics of Keras's own in a structure: some make their state late."""
    if isinstance(metrics, dict):
        return {key: _fresh(one) for key, one in metrics.items()}
    if isinstance(metrics, list | tuple):
        return [_fresh(one) for one in metrics]
    is_own = isinstance(metrics, keras.metrics.Metric) and type(metrics).__module__.startswith(
        "keras."
    )
    return type(metrics).from_config(metrics.get_config()) if is_own else metrics


# The dtype, and the layers that it is for, or None for all.
_forced_compute_dtype: ContextVar[tuple[str, Collection[Any] | None] | None] = ContextVar(
    "forced_compute_dtype", default=None
)


def _make_forced_compute_dtype(original: Any) -> Any:
    def compute_dtype(layer: Any) -> Any:
        dtype = original.__get__(layer, type(layer))
        forced, only = _forced_compute_dtype.get() or (None, None)
        is_meant = forced is not None and (only is None or any(one is layer for one in only))
        return forced if is_meant and is_half(dtype) else dtype

    return property(compute_dtype, doc=original.__doc__)


_compute_dtype_patch = ClassPatch(keras.layers.Layer, "compute_dtype", _make_forced_compute_dtype)


@contextlib.contextmanager
def half_layers_compute_in(
    dtype: str, *, only: Collection[Any] | None = None, is_further: bool = False
) -> Iterator[None]:
    """Makes every half-precision layer compute in another dtype, in this thread.

    Replaces the public property `Layer.compute_dtype`, which Keras reads for
    the casts of inputs and weights. Setting policies instead would change the
    user's model, and in every thread.

    Args:
        dtype: The dtype, `"float32"` for example.
        only: The layers that it is for; None means all.
        is_further: Whether layers that a `with` block around this one is for go on
            doing so; otherwise they are half again.
    """
    _, around = (_forced_compute_dtype.get() if is_further else None) or (dtype, ())
    only = None if only is None or around is None else (*around, *only)
    forced = context_value(_forced_compute_dtype, (dtype, only))
    with _compute_dtype_patch.installed(), statistics_patch.installed(), forced:
        yield


def is_only_inferring_shapes() -> bool:
    """Tells whether Keras runs code only to learn the shapes of its outputs.

    Uses `keras.src.backend.common.symbolic_scope.in_symbolic_scope`: what runs
    then, when a layer is built by calling it, leaves nothing in the graph.
    """
    from keras.src.backend.common.symbolic_scope import in_symbolic_scope

    return bool(in_symbolic_scope())


def metric_directions(model: Any) -> dict[str, str | None]:
    """Tells of each compiled metric whether more is better, `"up"`, or less, `"down"`.

    Uses `Metric._direction`, which says nothing (None) for metrics that nobody gave one,
    and `CompileMetrics.metrics` by way of `Model.metrics`: there is no public way.

    Args:
        model: A compiled model that has been trained or evaluated.
    """
    pending, found = list(model.metrics), {}
    while pending:
        one = pending.pop()
        inner = getattr(one, "metrics", None)
        if inner:
            pending.extend(inner)
        else:
            found[one.name] = getattr(one, "_direction", None)
    return found
