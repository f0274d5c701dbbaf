"""Every way in which TensorFlow says that two dtypes do not go together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit.tracing import conflicts
from tf_amp_kit.tracing.building import build_observed
from tf_amp_kit.tracing.model_graph import trace_modes
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.records import Conflict

L = keras.layers
HERE = str(Path(__file__))
HALF, WIDE = "float16", "float32"
X = np.ones((2, 2), WIDE)


@pytest.fixture(autouse=True)
def _mixed() -> None:
    keras.config.set_dtype_policy("mixed_float16")


def ones(*shape: int) -> Any:
    return tf.ones(shape or (2, 2))


class Runs(L.Layer):
    """Runs a function of its input."""

    def __init__(self, function: Callable[[Any], Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.function = function

    def call(self, inputs: Any) -> Any:
        return self.function(inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape


class LooksAtValues(L.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs if float(keras.ops.sum(inputs)) < 1e9 else -inputs


class Model(keras.Model):
    def __init__(self, function: Callable[[Any], Any], *, eager: bool) -> None:
        super().__init__()
        self.looks = LooksAtValues() if eager else L.Activation("linear")
        self.runs = Runs(function)
        self.after = L.Activation("linear")

    def call(self, inputs: Any) -> Any:
        return self.after(self.runs(self.looks(inputs)))


def look(function: Callable[[Any], Any], *, eager: bool = False) -> ModelTrace:
    (trace,) = trace_modes(Model(function, eager=eager), inputs=X, modes=[False])
    assert trace.is_eager is eager
    return trace


def conflict_of(function: Callable[[Any], Any], *, eager: bool = False) -> Conflict:
    (conflict,) = look(function, eager=eager).conflicts
    return conflict


def widening_loop(x: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.cast(y, WIDE)), (0, x))[1]


def widening_keras_loop(x: Any) -> Any:
    def step(i: Any, y: Any) -> Any:
        return i + 1, keras.ops.cast(y, WIDE)

    return keras.ops.while_loop(lambda i, _: i < 3, step, (0, x))[1]


def widening_branch(x: Any) -> Any:
    return tf.cond(tf.reduce_sum(x) > 0, lambda: x, lambda: tf.cast(x, WIDE))


@tf.function
def plain_function(x: Any) -> Any:
    return x * ones()


def helper(x: Any) -> Any:
    return x - ones()


@tf.function
def converted_function(x: Any) -> Any:
    if tf.reduce_sum(x) > 0:
        x = helper(x)
    return x


# What to run, and the operation that TensorFlow's message names.
MET: dict[str, tuple[Callable[[Any], Any], str]] = {
    "multiplication": (lambda x: x * ones(), "Mul"),
    "addition": (lambda x: x + ones(), "AddV2"),
    "reflected subtraction": (lambda x: ones() - x, "Sub"),
    "division": (lambda x: x / ones(), ""),
    "comparison": (lambda x: tf.cast(x > ones(), HALF), "Greater"),
    "maximum": (lambda x: tf.maximum(x, ones()), "Maximum"),
    "matmul": (lambda x: tf.matmul(x, ones()), "MatMul"),
    "at": (lambda x: x @ ones(), "MatMul"),
    "einsum": (lambda x: tf.einsum("ij,jk->ik", x, ones()), "Einsum"),
    "convolution": (lambda x: tf.nn.conv1d(x[..., None], ones(1, 1, 1), 1, "SAME"), "Conv2D"),
    "concat": (lambda x: tf.concat([x, ones()], 0), "ConcatV2"),
    "stack": (lambda x: tf.stack([x, ones()]), "Pack"),
    "where": (lambda x: tf.where(x > 0, x, ones()), "SelectV2"),
    "clip": (lambda x: tf.clip_by_value(x, 0.0, ones()), "Minimum"),
    "scatter": (
        lambda x: tf.tensor_scatter_nd_update(x, [[0]], ones(1, 2)),
        "TensorScatterUpdate",
    ),
    "conversion": (lambda x: tf.convert_to_tensor(ones(), x.dtype) + x, ""),
    "complex of two": (lambda x: tf.abs(tf.complex(x, ones())), ""),
    "map": (lambda x: tf.map_fn(lambda row: row * ones(2), x), "Mul"),
    "function": (plain_function, "Mul"),
    "converted function": (converted_function, "Sub"),
}

GRAPH_ONLY: dict[str, Callable[[Any], Any]] = {
    "while loop": widening_loop,
    "keras while loop": widening_keras_loop,
    "cond": widening_branch,
}

REFUSED: dict[str, Callable[[Any], Any]] = {
    "fft": lambda x: tf.math.real(tf.signal.rfft(x)),
    "keras fft": lambda x: keras.ops.rfft(x)[0],
    "complex": lambda x: tf.abs(tf.complex(x, x)),
}


@pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])
@pytest.mark.parametrize("case", MET)
def test_the_two_dtypes_and_the_operation_are_read(case: str, eager: bool) -> None:
    function, operation = MET[case]
    conflict = conflict_of(function, eager=eager)
    assert (set(conflict.dtypes), conflict.operation) == ({HALF, WIDE}, operation)


@pytest.mark.parametrize("case", GRAPH_ONLY)
def test_the_two_dtypes_of_a_body_are_read(case: str) -> None:
    # Eager loops and branches run as Python, and nothing is wrong there.
    assert set(conflict_of(GRAPH_ONLY[case]).dtypes) == {HALF, WIDE}


@pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])
@pytest.mark.parametrize("case", REFUSED)
def test_an_operation_that_refuses_half_names_half_alone(case: str, eager: bool) -> None:
    assert conflict_of(REFUSED[case], eager=eager).dtypes == (HALF,)


def test_a_range_in_half_names_the_operation() -> None:
    conflict = conflict_of(lambda x: x + tf.range(2, dtype=x.dtype))
    assert (conflict.dtypes, conflict.operation) == ((HALF,), "Range")


ALL = {**{name: function for name, (function, _) in MET.items()}, **GRAPH_ONLY, **REFUSED}
EAGER_TOO = [name for name in ALL if name not in GRAPH_ONLY]


@pytest.mark.parametrize("case", ALL)
def test_the_line_of_a_graph_error_is_in_this_file(case: str) -> None:
    source = conflict_of(ALL[case]).source
    assert source is not None and source.file == HERE


@pytest.mark.parametrize("case", EAGER_TOO)
def test_the_line_of_an_eager_error_is_in_this_file(case: str) -> None:
    source = conflict_of(ALL[case], eager=True).source
    assert source is not None and source.file == HERE


@pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (plain_function, "return x * ones()"),
        (converted_function, "return x - ones()"),
    ],
    ids=["function", "converted"],
)
def test_a_line_in_a_function_is_the_one_that_was_written(
    function: Any, text: str, eager: bool
) -> None:
    source = conflict_of(function, eager=eager).source
    assert source is not None and source.text == text


def test_the_message_is_one_line_without_the_function_traceback() -> None:
    message = conflict_of(converted_function).message
    expected = "Input 'y' of 'Sub' Op has type float32 that does not match type float16"
    assert message == f"{expected} of argument 'x'."


def test_the_origin_of_a_constant_is_the_line_that_made_it() -> None:
    def function(x: Any) -> Any:
        table = tf.constant([1.0, 2.0])
        return x * table

    origins = conflict_of(function).origins
    line = function.__code__.co_firstlineno + 1
    made = f"float32 constant of {HERE}:{line} `table = tf.constant([1.0, 2.0])`"
    assert origins == ("float16 tensor", made)


def test_an_eager_tensor_is_called_a_tensor() -> None:
    assert conflict_of(lambda x: x * ones(), eager=True).origins == (
        "float16 tensor",
        "float32 tensor",
    )


@pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])
def test_the_layer_and_its_path_are_named(eager: bool) -> None:
    conflict = conflict_of(lambda x: x * ones(), eager=eager)
    assert (conflict.path, conflict.layer_class) == ("runs", "Runs")


@pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])
def test_the_layers_after_it_are_still_seen_in_half(eager: bool) -> None:
    trace = look(lambda x: x * ones(), eager=eager)
    (after,) = [call for call in trace.calls if call.path == "after"]
    assert [trace.tensors[key].dtype for key in (*after.inputs, *after.outputs)] == [HALF, HALF]


def test_the_failed_call_is_marked() -> None:
    trace = look(lambda x: x * ones())
    assert [call.path for call in trace.calls if call.is_conflicted] == ["runs"]


def test_a_float32_model_has_no_conflict() -> None:
    keras.config.set_dtype_policy("float32")
    assert look(lambda x: x * ones()).conflicts == ()


def test_an_error_that_float32_raises_too_is_the_users_own() -> None:
    with pytest.raises(
        (ValueError, tf.errors.InvalidArgumentError), match=r"[Dd]imensions|Matrix size"
    ):
        look(lambda x: tf.matmul(x, tf.ones((3, 3), x.dtype)))


def test_an_inner_layer_is_blamed_and_not_its_owner() -> None:
    class Owner(L.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Runs(lambda x: x * ones())

        def call(self, inputs: Any) -> Any:
            return self.inner(inputs)

    owner = Owner()
    (conflict,) = look(lambda x: owner(x)).conflicts
    assert conflict.layer_class == "Runs" and conflict.path.endswith("inner")


def test_a_missing_kernel_is_told_from_a_mismatch() -> None:
    try:
        tf.raw_ops.MaxPool3D(
            input=tf.ones((1, 2, 2, 2, 1), HALF), ksize=[1] * 5, strides=[1] * 5, padding="SAME"
        )
    except tf.errors.OpError as error:
        clash = conflicts.describe(error)
    assert clash.is_missing_kernel


def test_the_operands_are_found_behind_an_eager_function() -> None:
    assert conflict_of(plain_function, eager=True).origins == ("float16 tensor", "float32 tensor")


def test_an_error_in_shape_inference_has_the_line_that_was_written() -> None:
    class Infers(L.Layer):
        @tf.function
        def body(self, inputs: Any) -> Any:
            return inputs - ones()  # the line

        def call(self, inputs: Any) -> Any:
            return self.body(inputs)

    built = build_observed(lambda: keras.Sequential([keras.Input((2,)), Infers()]))
    sources = {conflict.source.text for conflict in built.conflicts if conflict.source}
    assert sources == {"return inputs - ones()  # the line"}
