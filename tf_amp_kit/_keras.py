"""The only door to private names of Keras and TensorFlow.

Each function says which private name it uses, and why no public one will do.
Where a new Keras moves a name, this is the only file to change.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

import keras
import tensorflow as tf

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

_patch_lock = threading.RLock()


class ClassPatch:
    """Replaces one attribute of a class while at least one scope needs it.

    Scopes may overlap in several threads: the first one in installs the
    replacement, the last one out puts the original back.

    Args:
        owner: The class.
        name: The attribute's name.
        make: Takes the original and returns the replacement.
    """

    def __init__(self, owner: type, name: str, make: Callable[[Any], Any]) -> None:
        self.owner, self.name, self.make = owner, name, make
        self._depth = 0
        self._original: Any = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Installs the replacement for the time of a `with` block."""
        with _patch_lock:
            if self._depth == 0:
                self._original = self.owner.__dict__[self.name]
                setattr(self.owner, self.name, self.make(self._original))
            self._depth += 1
        try:
            yield
        finally:
            with _patch_lock:
                self._depth -= 1
                if self._depth == 0:
                    setattr(self.owner, self.name, self._original)


@contextlib.contextmanager
def context_value(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Sets a context variable for the time of a `with` block.

    Args:
        variable: The variable.
        value: Its value inside.
    """
    token = variable.set(value)
    try:
        yield
    finally:
        # A generator may be closed in another context, which has nothing to reset.
        with contextlib.suppress(ValueError):
            variable.reset(token)


def is_bookkeeping(attribute: str) -> bool:
    """Tells whether an attribute of a layer only repeats what hangs elsewhere.

    The names are private ones of Keras, and `_self_` begins TensorFlow's own.
    """
    return attribute in _BOOKKEEPING_ATTRIBUTES or attribute.startswith("_self_")


def is_functional(model: Any) -> bool:
    """Tells whether a model is a graph of layers: Functional or Sequential.

    Uses `keras.src.models.functional.Functional`: the class has no public name.
    """
    from keras.src.models.functional import Functional

    return isinstance(model, Functional | keras.Sequential)


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
    saved = [
        (layer, list(getattr(layer, "_losses", ())), set(getattr(layer, "_loss_ids", ())))
        for layer in layers
    ]
    try:
        yield
    finally:
        for layer, losses, ids in saved:
            if hasattr(layer, "_losses"):
                layer._losses[:] = losses
            if hasattr(layer, "_loss_ids"):
                layer._loss_ids.clear()
                layer._loss_ids.update(ids)


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


def function_graph(graph: Any, name: str) -> Any:
    """Returns the body of a While, If or function call, or None.

    Uses `Graph._get_function`: the public `as_graph_def` has neither shapes nor
    the tracebacks of the operations.
    """
    function = graph._get_function(name)
    return getattr(function, "graph", None)


def trace_to_graph(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Traces a Python function into a graph.

    Uses `func_graph.func_graph_from_py_func`: the public
    `tf.function(...).get_concrete_function` puts variables that are created
    during the trace into the graph, so that a layer that builds itself then is
    left without values.

    Args:
        function: Takes tensors.
        args: Structures of `tf.TypeSpec`s.
        kwargs: Likewise, by name.

    Returns:
        The `FuncGraph`.
    """
    from tensorflow.python.framework.func_graph import func_graph_from_py_func

    # As one structure: its own `kwargs` fail in TensorFlow 2.21 unless they are empty.
    return func_graph_from_py_func(
        "trace", lambda args, kwargs: function(*args, **kwargs), (tuple(args), dict(kwargs)), {}
    )


_inlining: ContextVar[bool] = ContextVar("inlining", default=False)


def _make_inlined_call(original: Any) -> Any:
    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        if not _inlining.get() or not _fits_signature(function, args):
            return original(function, *args, **kwargs)
        body = function.python_function
        if getattr(function, "_autograph", True):
            from tensorflow.python.eager.polymorphic_function import autograph_util

            body = autograph_util.py_func_from_autograph(body)
        return body(*args, **kwargs)

    return call


def _fits_signature(function: Any, args: tuple[Any, ...]) -> bool:
    """Tells whether a function takes the dtypes; if not, calling it shall raise."""
    given = [getattr(value, "dtype", None) for value in tf.nest.flatten(args)]
    wanted = [spec.dtype for spec in tf.nest.flatten(function.input_signature or ())]
    return not wanted or len(given) != len(wanted) or given == wanted


def _function_class() -> Any:
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    return Function


_inline_patch: ClassPatch | None = None


@contextlib.contextmanager
def functions_inlined() -> Iterator[None]:
    """Runs the Python bodies of `tf.function`s called by this thread.

    A function that was traced before is not traced again, so that the layers
    inside it would stay unseen. Uses `polymorphic_function.Function.__call__`
    and `autograph_util.py_func_from_autograph`: the public switch,
    `tf.config.run_functions_eagerly`, is global to all threads and leaves out
    autograph.
    """
    global _inline_patch
    if _inline_patch is None:
        _inline_patch = ClassPatch(_function_class(), "__call__", _make_inlined_call)
    with _inline_patch.installed(), context_value(_inlining, True):
        yield


# The dtype, and the one layer that it is for, or None for all.
_forced_compute_dtype: ContextVar[tuple[str, Any] | None] = ContextVar(
    "forced_compute_dtype", default=None
)


def _make_forced_compute_dtype(original: Any) -> Any:
    def compute_dtype(layer: Any) -> Any:
        dtype = original.__get__(layer, type(layer))
        forced, only = _forced_compute_dtype.get() or (None, None)
        is_meant = forced is not None and (only is None or only is layer)
        return forced if is_meant and is_half(dtype) else dtype

    return property(compute_dtype, doc=original.__doc__)


_compute_dtype_patch = ClassPatch(keras.layers.Layer, "compute_dtype", _make_forced_compute_dtype)


@contextlib.contextmanager
def half_layers_compute_in(dtype: str, *, only: Any = None) -> Iterator[None]:
    """Makes every half-precision layer compute in another dtype, in this thread.

    Replaces the public property `Layer.compute_dtype`, which Keras reads for
    the casts of inputs and weights. Setting policies instead would change the
    user's model, and in every thread.

    Args:
        dtype: The dtype, `"float32"` for example.
        only: The one layer that it is for; None means all.
    """
    with _compute_dtype_patch.installed(), context_value(_forced_compute_dtype, (dtype, only)):
        yield


def is_only_inferring_shapes() -> bool:
    """Tells whether Keras runs code only to learn the shapes of its outputs.

    Uses `keras.src.backend.common.symbolic_scope.in_symbolic_scope`: what runs
    then, when a layer is built by calling it, leaves nothing in the graph.
    """
    from keras.src.backend.common.symbolic_scope import in_symbolic_scope

    return bool(in_symbolic_scope())


@contextlib.contextmanager
def full_tracebacks() -> Iterator[None]:
    """Keeps the frames of Keras and TensorFlow in tracebacks, in this thread.

    Both switches are public, only TensorFlow's state is not readable in all
    versions through a public name: `tf.debugging.is_traceback_filtering_enabled`.
    """
    keras_filters = keras.config.is_traceback_filtering_enabled()
    tf_filters = tf.debugging.is_traceback_filtering_enabled()
    keras.config.disable_traceback_filtering()
    tf.debugging.disable_traceback_filtering()
    try:
        yield
    finally:
        if keras_filters:
            keras.config.enable_traceback_filtering()
        if tf_filters:
            tf.debugging.enable_traceback_filtering()


@contextlib.contextmanager
def eager_operations_seen(callback: Callable[..., None]) -> Iterator[None]:
    """Calls back after each operation that this thread runs eagerly.

    Uses `tensorflow.python.framework.op_callbacks`: there is no public hook for
    eager operations.

    Args:
        callback: Takes `op_type, inputs, attrs, outputs, op_name, graph`.
    """
    from tensorflow.python.framework import op_callbacks

    op_callbacks.add_op_callback(callback)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(callback)


def stack_frames() -> Any:
    """Returns this thread's stack, outermost first, with lines that the user wrote.

    Uses `tensorflow.python.util.tf_stack.extract_stack`: under autograph the
    running code stands in a temporary file, and only this function knows where
    it comes from. The frames are read when they are looked at.
    """
    from tensorflow.python.util import tf_stack

    return tf_stack.extract_stack()


def autograph_error(error: BaseException) -> tuple[str, tuple[tuple[str, int, str], ...]] | None:
    """Returns what autograph knows of an error that passed through it.

    Uses the attribute `ag_error_metadata`: the traceback points into a temporary
    file, and the message is one long text.

    Args:
        error: What was raised.

    Returns:
        The original message, and the frames (file, line, function) in the user's
        files, outermost first; None where autograph was not involved.
    """
    # Keras raises some errors anew, with a text around the first one's.
    current: BaseException | None = error
    while current is not None and not hasattr(current, "ag_error_metadata"):
        current = current.__cause__ or current.__context__
    if current is None:
        return None
    metadata = current.ag_error_metadata
    frames = [
        (frame.filename, frame.lineno, frame.function_name)
        for frame in reversed(metadata.translated_stack)
    ]
    _, _, message = metadata.cause_message.partition(": ")  # the class comes first
    return message, tuple(frames)


@cache
def registered_kernels(op_type: str) -> tuple[tuple[str, dict[str, tuple[str, ...]]], ...]:
    """Lists the kernels of an operation in this build of TensorFlow.

    Uses `tensorflow.python.framework.kernels`: there is no public list.

    Args:
        op_type: The operation's type, `"MaxPool3D"` for example.

    Returns:
        Pairs of a device type and the allowed dtype names of each attribute.
    """
    from tensorflow.python.framework import kernels

    return tuple(
        (
            kernel.device_type,
            {
                constraint.name: tuple(
                    tf.as_dtype(number).name for number in constraint.allowed_values.list.type
                )
                for constraint in kernel.constraint
            },
        )
        for kernel in kernels.get_registered_kernels_for_op(op_type).kernel
    )


@contextlib.contextmanager
def random_state_restored() -> Iterator[None]:
    """Gives TensorFlow and Keras their global random state back, for this thread.

    Uses `tensorflow.python.eager.context.context()._rng`, from which eager random
    operations draw, and Keras's `global_seed_generator`: both have only setters
    that start a new sequence.
    """
    from keras.src.backend.common import global_state
    from tensorflow.python.eager import context

    tf_context = context.context()
    generator = getattr(tf_context, "_rng", None)
    if generator is not None:
        # Each seed that is drawn starts a kernel that stays and goes on. Seeds of
        # another sequence leave the kernels of the user's own alone.
        tf_context._rng = random.Random(__name__)
    keras_generator = global_state.get_global_attribute("global_seed_generator")
    keras_seed = None if keras_generator is None else keras_generator.state.numpy()
    try:
        yield
    finally:
        if generator is not None:
            tf_context._rng = generator
        if keras_generator is not None:
            keras_generator.state.assign(keras_seed)
        else:
            global_state.set_global_attribute("global_seed_generator", None)


def onednn_accepts(dtype: str) -> bool | None:
    """Tells whether oneDNN takes a dtype on this CPU, as TensorFlow asks it.

    Uses `tensorflow.python.util._pywrap_utils.IsDataTypeSupportedByOneDNNOnThisCPU`.
    TensorFlow decides with it whether an operation goes to oneDNN, and offers no
    public way to ask. It is no answer about speed: for bfloat16 any CPU with
    AVX-512 gets True, also one on which oneDNN has to emulate it. On ARM it
    asks for x86 instructions, and so means nothing.

    Args:
        dtype: A dtype's name, `"bfloat16"` for example.

    Returns:
        True or False, or None where this TensorFlow does not have the function.

    Example:

    >>> onednn_accepts("float32") in (True, False, None)
    True
    """
    try:
        module = importlib.import_module("tensorflow.python.util._pywrap_utils")
        return bool(module.IsDataTypeSupportedByOneDNNOnThisCPU(tf.as_dtype(dtype)))
    except (ImportError, AttributeError, TypeError):
        return None


def onednn_is_enabled() -> bool | None:
    """Tells whether TensorFlow was built with oneDNN, and has it switched on.

    Uses `tensorflow.python.util._pywrap_util_port.IsMklEnabled`. The public
    `tf.sysconfig.get_build_info()` does not name oneDNN, and the environment
    variable `TF_ENABLE_ONEDNN_OPTS` alone does not show the build's default.

    Returns:
        True or False, or None where this TensorFlow does not have the function.

    Example:

    >>> onednn_is_enabled() in (True, False, None)
    True
    """
    try:
        module = importlib.import_module("tensorflow.python.util._pywrap_util_port")
        return bool(module.IsMklEnabled())
    except (ImportError, AttributeError, TypeError):
        return None
