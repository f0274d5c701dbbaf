"""Private names of TensorFlow about graphs, functions and eager operations."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from tf_amp_kit._keras.captures import handles_of
from tf_amp_kit._keras.patching import ClassPatch, context_value


def function_graph(graph: Any, name: str) -> Any:
    """Returns the body of a While, If or function call, or None.

    Uses `Graph._get_function`: the public `as_graph_def` has neither shapes nor
    the tracebacks of the operations.
    """
    function = graph._get_function(name)
    return getattr(function, "graph", None)


def trace_to_graph(
    function: Callable[..., Any], args: Any, kwargs: Any, *, is_to_run: bool = False
) -> Any:
    """Traces a Python function into a graph.

    Uses `func_graph.func_graph_from_py_func`, and `_distribution_strategy_stack` of
    the graph that it makes: the public
    `tf.function(...).get_concrete_function` puts variables that are created
    during the trace into the graph, so that a layer that builds itself then is
    left without values.

    Args:
        function: Takes tensors.
        args: Structures of `tf.TypeSpec`s.
        kwargs: Likewise, by name.
        is_to_run: Whether reads and writes of variables keep their order, as a
            graph needs that will run.

    Returns:
        The `FuncGraph`.
    """
    from tensorflow.python.framework.func_graph import func_graph_from_py_func

    def traced(args: Any, kwargs: Any) -> Any:
        if is_to_run:
            # Inside a strategy's scope there is no replica whose gradients could be taken.
            tf.compat.v1.get_default_graph()._distribution_strategy_stack = []
        return function(*args, **kwargs)

    # As one structure: its own `kwargs` fail in TensorFlow 2.21 unless they are empty.
    return func_graph_from_py_func(
        "trace",
        traced,
        (tuple(args), dict(kwargs)),
        {},
        add_control_dependencies=is_to_run,
    )


_numbers = itertools.count()


def graph_function(graph: Any, outputs: Sequence[Any]) -> Callable[..., list[Any]]:
    """Makes a function that computes some tensors of a graph.

    Uses `atomic_function.from_func_graph` and `FuncGraph.captures`: the public
    ways to a function trace Python code again, or import a copy of the graph.

    Args:
        graph: A `FuncGraph` that was traced with `is_to_run`.
        outputs: Tensors of the graph.

    Returns:
        A function of the graph's flat inputs, captured ones aside.
    """
    from tensorflow.python.eager.polymorphic_function import atomic_function

    before = graph.outputs
    graph.outputs = list(outputs)
    try:
        name = f"tf_amp_kit_{next(_numbers)}"
        function = atomic_function.from_func_graph(name, graph, {})
    finally:
        graph.outputs = before
    captured = [outside for outside, _ in graph.captures]

    def call(*values: Any) -> list[Any]:
        return list(function.call_flat(*values, *captured))

    return call


@contextlib.contextmanager
def graph_optimizer_off() -> Iterator[None]:
    """Runs functions that this thread calls as they are, without optimizing their graphs.

    Uses `context.context().function_call_options`: the public `tf.config.optimizer` is
    global to all threads, and two that overlap would leave it switched off.
    """
    from tensorflow.python.eager import context

    tf_context = context.context()
    before = tf_context.function_call_options
    config = tf.compat.v1.ConfigProto.FromString(before.config_proto_serialized)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    tf_context.function_call_options = context.FunctionCallOptions(before.executor_type, config)
    try:
        yield
    finally:
        tf_context.function_call_options = before


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


# Made at import: two threads that made one each would undo each other's.
_inline_patch = ClassPatch(_function_class(), "__call__", _make_inlined_call)


@contextlib.contextmanager
def functions_inlined() -> Iterator[None]:
    """Runs the Python bodies of `tf.function`s called by this thread.

    A function that was traced before is not traced again, so that the layers
    inside it would stay unseen. Uses `polymorphic_function.Function.__call__`
    and `autograph_util.py_func_from_autograph`: the public switch,
    `tf.config.run_functions_eagerly`, is global to all threads and leaves out
    autograph.
    """
    with _inline_patch.installed(), context_value(_inlining, True):
        yield


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


@contextlib.contextmanager
def op_callbacks_off() -> Iterator[None]:
    """Keeps what watches operations, `tf.debugging.enable_check_numerics` say, away.

    It would put its own operations into our graphs, and raise where we look. Uses
    `context.op_callbacks`, of this thread: those who watch have no public switch.
    """
    from tensorflow.python.eager import context

    callbacks = context.context().op_callbacks
    before = list(callbacks)
    callbacks.clear()
    try:
        yield
    finally:
        callbacks[:] = before


def is_compiled_by_xla() -> bool:
    """Tells, while a function is traced, whether XLA will compile it.

    Uses `tensorflow.python.ops.control_flow_util.GraphOrParentsInXlaContext`, as
    TensorFlow's own conditions do: `jit_compile` is known to no public name.
    """
    from tensorflow.python.ops import control_flow_util

    if tf.executing_eagerly():
        return False
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def traced_function_graph() -> Any:
    """Returns the graph of the function that is being traced.

    Uses `outer_graph` of `FuncGraph`, of a class that has no public name, and the names of
    its classes for branches and loops: those are parts of the function around them.
    """
    graph = tf.compat.v1.get_default_graph()
    while type(graph).__name__ in (
        "CondBranchFuncGraph",
        "WhileBodyFuncGraph",
        "WhileCondFuncGraph",
    ):
        graph = graph.outer_graph
    return graph


def may_be_written(variable: Any) -> bool:
    """Tells whether the graph being traced may have written a variable by now.

    Uses `FuncGraph.captures`, of a class that has no public name. Outside of a
    graph nobody knows, and the answer is yes.

    Args:
        variable: A `tf.Variable`, distributed or not.
    """
    if tf.executing_eagerly():
        return True
    handles = handles_of(variable)
    return any(
        consumer.type != "ReadVariableOp"
        for outside, inside in tf.compat.v1.get_default_graph().captures
        if any(outside is handle for handle in handles)
        for consumer in inside.consumers()
    )
