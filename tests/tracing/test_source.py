"""The line of user code that a reader would point at."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit
from tf_amp_kit.tracing.model_graph import trace_modes
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.source import (
    Frame,
    Source,
    frames_below_call,
    is_user_code,
    source_of,
)

L = keras.layers
HERE = str(Path(__file__))
X = np.ones((2, 4), "float32")
KERAS = os.path.dirname(keras.__file__)
TENSORFLOW = os.path.dirname(tf.__file__)
PACKAGE = os.path.dirname(tf_amp_kit.__file__)
STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]
OBSERVE = os.path.join(PACKAGE, "tracing", "recorder.py")


def frame(file: str, line: int = 1, function: str = "f") -> Frame:
    return Frame(file, line, function)


@pytest.mark.parametrize(
    ("file", "is_user"),
    [
        (HERE, True),
        ("/somewhere/train.py", True),
        ("/site-packages/keras_hub/src/layers/position.py", True),
        ("<stdin>", True),
        (os.path.join(KERAS, "src", "layers", "core", "dense.py"), False),
        (os.path.join(TENSORFLOW, "python", "ops", "math_ops.py"), False),
        (os.path.join(PACKAGE, "tracing", "reading.py"), False),
        (os.path.join(STANDARD_LIBRARY, "contextlib.py"), False),
        (os.path.join(sysconfig.get_paths()["purelib"], "numpy", "_core", "numeric.py"), False),
    ],
)
def test_user_code_is_what_is_outside_the_frameworks(file: str, is_user: bool) -> None:
    assert is_user_code(file) is is_user


def test_the_innermost_user_frame_is_the_source() -> None:
    frames = [frame("/a.py", 1), frame("/b.py", 2), frame(os.path.join(TENSORFLOW, "ops.py"))]
    assert source_of(frames) == Source("/b.py", 2, "")


def test_a_keras_layer_is_the_source_where_no_user_code_ran() -> None:
    dense = os.path.join(KERAS, "src", "layers", "core", "dense.py")
    plumbing = os.path.join(KERAS, "src", "ops", "operation.py")
    found = source_of([frame(plumbing), frame(dense, 3), frame(plumbing)])
    assert found is not None and (found.file, found.line) == (dense, 3)


def test_nothing_but_plumbing_has_no_source() -> None:
    layer = os.path.join(KERAS, "src", "layers", "layer.py")
    assert source_of([frame(layer), frame(OBSERVE)]) is None


def test_no_frames_have_no_source() -> None:
    assert source_of([]) is None


def test_a_source_prints_as_file_and_line() -> None:
    assert str(Source("/a.py", 3, "x = 1")) == "/a.py:3"


def test_a_source_gives_its_fields() -> None:
    fields = {"file": "/a.py", "line": 3, "text": "x = 1"}
    assert Source(**fields).to_dict() == fields  # type: ignore[arg-type]


MARK = frame(OBSERVE, 1, "run")
A, B, C = frame("/a.py"), frame("/b.py"), frame("/c.py")


@pytest.mark.parametrize(
    ("depth", "expected"),
    [(1, [B]), (2, [C]), (0, [C]), (3, [C])],
    ids=["outer", "inner", "innermost", "deeper than seen"],
)
def test_a_traceback_is_cut_to_one_call(depth: int, expected: list[Frame]) -> None:
    assert list(frames_below_call([A, MARK, B, MARK, C], depth)) == expected


def test_a_traceback_without_calls_is_kept() -> None:
    assert list(frames_below_call([A, B], 0)) == [A, B]


class Exp(L.Layer):
    def call(self, inputs: Any) -> Any:
        return keras.ops.exp(inputs)  # the line of Exp


class LooksAtValues(L.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs if float(keras.ops.sum(inputs)) < 1e9 else -inputs


class InFunction(L.Layer):
    @tf.function
    def body(self, inputs: Any) -> Any:
        if tf.reduce_sum(inputs) > 0:
            inputs = tf.sin(inputs)  # the line in the branch
        for _ in tf.range(2):
            inputs = tf.cos(inputs)  # the line in the loop
        return helper(inputs)

    def call(self, inputs: Any) -> Any:
        return self.body(inputs)


def helper(inputs: Any) -> Any:
    return tf.tan(inputs)  # the line in the helper


class Model(keras.Model):
    def __init__(self, layer: Any, *, eager: bool) -> None:
        super().__init__()
        self.looks = LooksAtValues() if eager else L.Activation("linear")
        self.layer = layer

    def call(self, inputs: Any) -> Any:
        return self.layer(self.looks(inputs))


def look(layer: Any, *, eager: bool) -> ModelTrace:
    (trace,) = trace_modes(Model(layer, eager=eager), inputs=X, modes=[False])
    assert trace.is_eager is eager
    return trace


def sources(trace: ModelTrace, kind: str) -> list[Source | None]:
    return [trace.source(op) for op in trace.live if op.type == kind]


both = pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])


@both
def test_an_operation_is_traced_to_the_line_in_the_layer(eager: bool) -> None:
    (source,) = sources(look(Exp(), eager=eager), "Exp")
    assert source is not None
    text = "return keras.ops.exp(inputs)  # the line of Exp"
    assert (source.file, source.text) == (HERE, text)


@both
@pytest.mark.parametrize(
    ("kind", "comment"), [("Sin", "branch"), ("Cos", "loop"), ("Tan", "helper")]
)
def test_code_that_autograph_rewrote_has_the_lines_that_were_written(
    eager: bool, kind: str, comment: str
) -> None:
    found = sources(look(InFunction(), eager=eager), kind)
    places = {(s.file, s.text.rpartition("# ")[2]) for s in found if s is not None}
    assert places == {(HERE, f"the line in the {comment}")}


@both
def test_no_line_is_in_a_temporary_file(eager: bool) -> None:
    trace = look(InFunction(), eager=eager)
    files = {source.file for op in trace.operations if (source := trace.source(op)) is not None}
    assert [file for file in files if "autograph" in os.path.basename(file)] == []


@both
def test_the_line_of_an_outer_call_can_be_asked_for(eager: bool) -> None:
    trace = look(Exp(), eager=eager)
    (exp,) = [op for op in trace.live if op.type == "Exp"]
    source = trace.source(exp, trace.calls[0])
    assert source is not None and source.text == "return self.layer(self.looks(inputs))"


def test_a_layer_of_keras_is_traced_to_its_own_line() -> None:
    model = keras.Sequential([keras.Input((4,)), L.Dense(3)])
    (trace,) = trace_modes(model, modes=[False])
    (source,) = sources(trace, "MatMul")
    assert source is not None and os.path.basename(source.file) == "dense.py"


def test_an_operation_of_no_layer_does_not_point_at_the_line_that_asked() -> None:
    model = keras.Sequential([keras.Input((4,)), L.Dense(3)])
    (trace,) = trace_modes(model, modes=[False])
    outside = [trace.source(op) for op in trace.operations if op.call < 0]
    assert [source for source in outside if source is not None] == []


def test_a_lambda_on_several_lines_has_the_line_of_its_part() -> None:
    layer = L.Lambda(
        lambda x: keras.ops.exp(  # the outer line
            keras.ops.sin(x)  # the inner line
        )
    )
    trace = look(layer, eager=False)
    (sin,) = sources(trace, "Sin")
    assert sin is not None and sin.text == "keras.ops.sin(x)  # the inner line"
