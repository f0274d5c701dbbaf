"""What each call of a layer got, gave and ran, against values known by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit.errors import InputsError, ModelError
from tf_amp_kit.tracing.model_graph import trace_modes
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.records import LayerCall

L = keras.layers
F32, BF16 = "float32", "bfloat16"
Dtypes = tuple[list[str], list[str]]


@pytest.fixture(autouse=True)
def _mixed() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")


def look(model: Any, inputs: Any = None, training: bool = False) -> ModelTrace:
    (trace,) = trace_modes(model, inputs=inputs, modes=[training])
    return trace


def dtypes(trace: ModelTrace, call: LayerCall) -> Dtypes:
    def names(keys: tuple[int, ...]) -> list[str]:
        return [trace.tensors[key].dtype for key in keys]

    return names(call.inputs), names(call.outputs)


def by_path(trace: ModelTrace) -> dict[str, Dtypes]:
    """Input and output dtypes of the first call of each path."""
    found: dict[str, Dtypes] = {}
    for call in trace.calls:
        found.setdefault(call.path, dtypes(trace, call))
    return found


def output_dtypes(trace: ModelTrace) -> dict[str, str]:
    return {key: trace.tensors[number].dtype for key, number in trace.outputs.items()}


def own_types(trace: ModelTrace, path: str) -> set[str]:
    indices = {call.index for call in trace.calls if call.path == path}
    return {op.type for op in trace.live if op.call in indices}


class Doubles(L.Layer):
    """Returns float32 whatever it computes in."""

    def call(self, inputs: Any) -> Any:
        return keras.ops.cast(inputs, "float32") * 2.0


class Subclassed(keras.Model):
    """Calls the layers that it is given, one after the other."""

    def __init__(self, *parts: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.parts = list(parts)

    def call(self, inputs: Any) -> Any:
        for part in self.parts:
            inputs = part(inputs)
        return inputs


X = np.ones((2, 4), F32)

CHAIN = {
    "": ([F32], [F32]),
    "dense": ([F32], [BF16]),
    "doubles": ([BF16], [F32]),
    "dense_1": ([F32], [BF16]),
    "head": ([BF16], [F32]),
}


def chain() -> list[Any]:
    return [L.Dense(4), Doubles(), L.Dense(4), L.Dense(1, dtype=F32, name="head")]


def test_a_sequential_model_shows_the_dtypes_of_every_call() -> None:
    model = keras.Sequential([keras.Input((4,)), *chain()])
    assert by_path(look(model)) == CHAIN


def test_a_functional_model_shows_the_same() -> None:
    inputs = outputs = keras.Input((4,))
    for layer in chain():
        outputs = layer(outputs)
    assert by_path(look(keras.Model(inputs, outputs))) == CHAIN


# A subclassed model casts its inputs itself, as every layer does.
SUBCLASSED_CHAIN = {
    "": ([F32], [F32]),
    "parts/0": ([BF16], [BF16]),
    "parts/1": ([BF16], [F32]),
    "parts/2": ([F32], [BF16]),
    "parts/3": ([BF16], [F32]),
}


def test_a_subclassed_model_shows_the_same_by_attribute() -> None:
    assert by_path(look(Subclassed(*chain()), X)) == SUBCLASSED_CHAIN


def test_a_nested_model_is_a_call_around_its_layers() -> None:
    inner = keras.Sequential([keras.Input((4,)), L.Dense(4), Doubles()], name="inner")
    trace = look(keras.Sequential([keras.Input((4,)), inner, L.Dense(1)]))
    tree = [(call.path, call.parent, call.depth, call.kind) for call in trace.calls]
    assert tree == [
        ("", -1, 1, "model"),
        ("inner", 0, 2, "model"),
        ("inner/dense", 1, 3, "layer"),
        ("inner/doubles", 1, 3, "layer"),
        ("dense", 0, 2, "layer"),
    ]


def test_the_policy_of_each_layer_is_named() -> None:
    trace = look(keras.Sequential([keras.Input((4,)), *chain()]))
    policies = {call.path: (call.policy, call.compute_dtype) for call in trace.calls}
    assert (policies["dense"], policies["head"]) == (("mixed_bfloat16", BF16), (F32, F32))


def test_only_classes_outside_keras_are_custom() -> None:
    layers = [L.Dense(4), Doubles(), L.Lambda(lambda x: x)]
    trace = look(keras.Sequential([keras.Input((4,)), *layers]))
    assert [call.path for call in trace.calls if call.is_custom] == ["doubles", "lambda"]


def test_operations_belong_to_the_layer_that_ran_them() -> None:
    trace = look(keras.Sequential([keras.Input((4,)), L.Dense(4, "relu"), L.Softmax()]))
    matmul_and_relu = {"MatMul", "BiasAdd", "Relu"}
    assert (
        own_types(trace, "dense") & {*matmul_and_relu, "Softmax"},
        own_types(trace, "softmax") & {*matmul_and_relu, "Softmax"},
    ) == (matmul_and_relu, {"Softmax"})


def test_a_matmul_computes_in_half_with_a_cast_kernel() -> None:
    trace = look(keras.Sequential([keras.Input((4,)), L.Dense(3)]))
    (matmul,) = [op for op in trace.live if op.type == "MatMul"]
    operands = [(trace.tensors[k].dtype, trace.tensors[k].shape) for k in matmul.inputs]
    kernel_cast = trace.producers[matmul.inputs[1]].type
    assert (operands, kernel_cast) == ([(BF16, (None, 4)), (BF16, (4, 3))], "Cast")


def test_a_shared_layer_is_one_path_with_two_calls() -> None:
    inputs = keras.Input((4,))
    shared = L.Dense(4, name="shared")
    trace = look(keras.Model(inputs, shared(Doubles()(shared(inputs)))))
    calls = [dtypes(trace, call) for call in trace.calls if call.path == "shared"]
    assert calls == [([F32], [BF16]), ([F32], [BF16])]


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_several_inputs_and_outputs_have_keys(kind: str) -> None:
    a, b = keras.Input((4,), name="a"), keras.Input((3,), name="b", dtype="int32")
    wide = Doubles(name="wide")(L.Dense(2)(a))
    half = L.Flatten(name="half")(L.Embedding(5, 2)(b))
    if kind == "list":
        model, keys = keras.Model([a, b], [wide, half]), ("0", "1")
    else:
        model, keys = keras.Model({"a": a, "b": b}, {"wide": wide, "half": half}), ("wide", "half")
    assert output_dtypes(look(model)) == dict(zip(keys, (F32, BF16), strict=True))


def test_a_tuple_in_a_dictionary_has_joined_keys() -> None:
    class Nested(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense, self.doubles = L.Dense(2), Doubles()

        def call(self, inputs: Any) -> Any:
            half = self.dense(inputs["x"])
            return {"pair": (half, self.doubles(half)), "count": keras.ops.shape(half)[1]}

    trace = look(Nested(), {"x": X})
    assert output_dtypes(trace) == {"pair/0": BF16, "pair/1": F32}


def test_a_layer_with_several_arguments_shows_them_all() -> None:
    inputs = keras.Input((3, 4))
    trace = look(keras.Model(inputs, L.MultiHeadAttention(2, 2)(inputs, Doubles()(inputs))))
    assert by_path(trace)["multi_head_attention"] == ([F32, F32], [BF16])


class SquaringCell(L.Layer):
    """A recurrent cell whose state reverts to float32."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.state_size = self.output_size = 4

    def call(self, inputs: Any, states: Any) -> Any:
        output = keras.ops.square(inputs) + states[0]
        return output, [output]


def test_the_step_of_a_recurrent_layer_is_seen_inside_its_loop() -> None:
    model = keras.Sequential([keras.Input((5, 4)), L.RNN(SquaringCell())])
    trace = look(model)
    assert "Square" in own_types(trace, "rnn/cell")
    assert by_path(trace)["rnn/cell"] == ([BF16, BF16], [BF16, BF16])


@pytest.mark.parametrize("unroll", [False, True])
def test_an_lstm_multiplies_in_half(unroll: bool) -> None:
    model = keras.Sequential([keras.Input((3, 4)), L.LSTM(2, use_cudnn=False, unroll=unroll)])
    trace = look(model)
    products = {trace.tensors[op.outputs[0]].dtype for op in trace.live if op.type == "MatMul"}
    assert products == {BF16}


def test_a_bidirectional_layer_keeps_its_cells_in_float32() -> None:
    # Keras gives the wrapper's policy to the wrapper alone: fact of Keras 3.15.
    layer = L.Bidirectional(L.LSTM(2, use_cudnn=False, dtype=F32), dtype="mixed_bfloat16")
    trace = look(keras.Sequential([keras.Input((3, 4)), layer]))
    products = {trace.tensors[op.outputs[0]].dtype for op in trace.live if op.type == "MatMul"}
    assert products == {F32}


def test_a_time_distributed_layer_owns_the_operations_of_the_layer_inside() -> None:
    # Keras runs the inner `call` itself, without a call of the layer.
    model = keras.Sequential([keras.Input((3, 4)), L.TimeDistributed(L.Dense(2))])
    trace = look(model)
    assert {"MatMul", "BatchMatMulV2", "Tensordot"} & own_types(trace, "time_distributed")
    assert by_path(trace)["time_distributed"] == ([F32], [BF16])


class InFunction(L.Layer):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inner = Doubles()

    @tf.function
    def body(self, inputs: Any) -> Any:
        return self.inner(tf.exp(inputs))

    def call(self, inputs: Any) -> Any:
        return self.body(inputs)


@pytest.mark.parametrize("traced_before", [False, True])
def test_the_body_of_a_function_is_seen(traced_before: bool) -> None:
    model = keras.Sequential([keras.Input((4,)), InFunction()])
    if traced_before:
        model(X)
        look(model)
    trace = look(model)
    assert (own_types(trace, "in_function"), by_path(trace)["in_function/inner"]) == (
        {"Cast", "Exp"},
        ([BF16], [F32]),
    )


def while_loop(x: Any, step: Any) -> Any:
    return keras.ops.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, step(y)), (0, x))[1]


def scan(x: Any, step: Any) -> Any:
    return keras.ops.scan(lambda carry, _: (step(carry), carry), x, xs=None, length=3)[0]


LOOPS: dict[str, Any] = {
    "while_loop": while_loop,
    "fori_loop": lambda x, step: keras.ops.fori_loop(0, 3, lambda _, y: step(y), x),
    "scan": scan,
    "map": lambda x, step: keras.ops.map(step, x),
    "tf.while_loop": lambda x, step: tf.while_loop(
        lambda _: True, lambda y: (step(y),), (x,), maximum_iterations=3
    ),
    "tf.map_fn": lambda x, step: tf.map_fn(step, x),
    "cond": lambda x, step: keras.ops.cond(keras.ops.sum(x) > 0, lambda: step(x), lambda: x),
    "switch": lambda x, step: keras.ops.switch(
        keras.ops.cast(keras.ops.sum(x), "int32"), [lambda y: y, step], x
    ),
    "tf.cond": lambda x, step: tf.cond(tf.reduce_sum(x) > 0, lambda: step(x), lambda: x),
    "tf.switch_case": lambda x, step: tf.switch_case(
        tf.cast(tf.reduce_sum(x), tf.int32), [lambda: x, lambda: step(x)]
    ),
}


class Looping(L.Layer):
    def __init__(self, loop: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.loop = loop
        self.inner = L.Activation("tanh", name="inner")

    def call(self, inputs: Any) -> Any:
        return self.loop(inputs, lambda y: self.inner(keras.ops.exp(y)))


@pytest.mark.parametrize("loop", LOOPS)
def test_a_layer_in_the_body_of_a_loop_or_branch_is_seen(loop: str) -> None:
    trace = look(keras.Sequential([keras.Input((4,)), Looping(LOOPS[loop])]))
    assert ("Exp" in own_types(trace, "looping"), own_types(trace, "looping/inner") & {"Tanh"}) == (
        True,
        {"Tanh"},
    )


def test_a_vectorized_map_leaves_the_operations_to_the_layer_around_it() -> None:
    # TensorFlow rewrites the body, and throws away what the layers in it made.
    loop = Looping(lambda x, step: keras.ops.vectorized_map(step, x))
    trace = look(keras.Sequential([keras.Input((4,)), loop]))
    assert {"Exp", "Tanh"} <= own_types(trace, "looping")


@pytest.mark.parametrize("loop", LOOPS)
def test_a_value_can_be_followed_through_a_body(loop: str) -> None:
    trace = look(keras.Sequential([keras.Input((4,)), Looping(LOOPS[loop])]))
    (start,) = trace.inputs.values()
    (end,) = trace.outputs.values()
    pending, seen = [end], set()
    while pending:
        key = pending.pop()
        if key not in seen and key in trace.producers:
            op = trace.producers[key]
            pending += [*op.inputs, *(inner for body in op.bodies for inner in body)]
        seen.add(key)
    made = {trace.producers[key].type for key in seen if key in trace.producers}
    assert start in seen and {"Exp", "Tanh"} <= made


def test_both_training_modes_are_traced() -> None:
    model = keras.Sequential([keras.Input((4,)), L.Dropout(0.5)])
    traces = trace_modes(model)
    drawn = [any("Random" in op.type for op in trace.operations) for trace in traces]
    assert ([trace.training for trace in traces], drawn) == ([False, True], [False, True])


def test_a_model_without_a_training_argument_is_traced_once() -> None:
    traces = trace_modes(Subclassed(L.Dense(2)), inputs=X)
    assert [trace.training for trace in traces] == [None]


def test_batch_statistics_are_live_only_in_training() -> None:
    model = keras.Sequential([keras.Input((4,)), L.BatchNormalization()])
    assigned = [any("Assign" in op.type for op in trace.live) for trace in trace_modes(model)]
    assert assigned == [False, True]


def test_a_mask_reaches_the_layer_that_uses_it() -> None:
    layers = [L.Embedding(9, 4, mask_zero=True), L.LSTM(3, use_cudnn=False), L.Dense(2)]
    trace = look(keras.Sequential([keras.Input((5,), dtype="int32"), *layers]))
    assert by_path(trace)["lstm"][1] == [BF16]
    assert "NotEqual" in {op.type for op in trace.live}


def test_an_explicit_mask_is_an_input_of_the_call() -> None:
    class Masked(L.Layer):
        supports_masking = True

        def call(self, inputs: Any, mask: Any = None) -> Any:
            return inputs * keras.ops.cast(mask, inputs.dtype)

    a, b = keras.Input((4,)), keras.Input((4,), dtype="bool")
    trace = look(keras.Model([a, b], Masked()(a, mask=b)))
    assert by_path(trace)["masked"] == ([F32, "bool"], [BF16])


def test_integers_stay_integers() -> None:
    model = keras.Sequential([keras.Input((3,), dtype="int64"), L.Embedding(5, 2)])
    assert by_path(look(model))["embedding"] == (["int64"], [BF16])


def test_strings_are_traced() -> None:
    lookup = L.StringLookup(vocabulary=["a", "b"])
    model = keras.Sequential([keras.Input((3,), dtype="string"), lookup, L.Embedding(3, 2)])
    assert by_path(look(model))["string_lookup"] == (["string"], ["int64"])


def test_sparse_inputs_are_traced() -> None:
    model = keras.Sequential([keras.Input((4,), sparse=True), L.Dense(2)])
    indices_values_and_shape = ["int64", F32, "int64"]
    assert by_path(look(model))["dense"] == (indices_values_and_shape, [BF16])


def test_ragged_inputs_are_traced() -> None:
    class Sums(L.Layer):
        def call(self, inputs: Any) -> Any:
            return tf.reduce_sum(inputs, axis=1)

    ragged = tf.ragged.constant([[1.0, 2.0], [3.0]])
    trace = look(Subclassed(Sums()), ragged)
    values_and_splits = [BF16, "int64"]
    assert (trace.is_eager, by_path(trace)["parts/0"][1]) == (False, [BF16])
    assert set(by_path(trace)["parts/0"][0]) <= {F32, *values_and_splits}


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return X, np.ones(2)


GIVEN: dict[str, Any] = {
    "array": X,
    "float64 array": X.astype("float64"),
    "tensor": tf.constant(X),
    "spec": tf.TensorSpec((None, 4), tf.float32),
    "shape": (None, 4),
    "keras tensor": keras.KerasTensor((None, 4)),
    "dataset": tf.data.Dataset.from_tensor_slices((X, X)).batch(2),
    "dataset of x": tf.data.Dataset.from_tensor_slices(X).batch(2),
    "PyDataset": Batches(),
}


@pytest.mark.parametrize("form", GIVEN)
def test_inputs_come_in_every_form(form: str) -> None:
    trace = look(Subclassed(*chain()), GIVEN[form])
    assert by_path(trace) == SUBCLASSED_CHAIN


def test_no_batch_size_is_taken_from_the_example() -> None:
    trace = look(Subclassed(L.Dense(3)), X)
    assert [trace.tensors[key].shape for key in trace.outputs.values()] == [(None, 3)]


@keras.saving.register_keras_serializable("test_model_graph")
class TwoArguments(keras.Model):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.first, self.second = L.Dense(3), L.Dense(3)

    def build(self, image_shape: Any, tokens_shape: Any) -> None:
        self.first.build(image_shape)
        self.second.build(tokens_shape)

    def call(self, image: Any, tokens: Any) -> Any:
        return self.first(image) + self.second(tokens)


def test_several_arguments_come_from_the_build_config() -> None:
    model = TwoArguments()
    model(X, np.ones((2, 5), F32))
    trace = look(model)
    assert not trace.is_eager
    assert by_path(trace)["first"] == by_path(trace)["second"] == ([BF16], [BF16])


@keras.saving.register_keras_serializable("test_model_graph")
class Tiny(keras.Model):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dense = L.Dense(3)

    def build(self, input_shape: Any) -> None:
        self.dense.build(input_shape)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)


@pytest.mark.parametrize("model", [Tiny(), TwoArguments()], ids=["one", "two"])
def test_a_loaded_subclassed_model_remembers_its_inputs(model: Any, tmp_path: Path) -> None:
    model = type(model)()  # under the policy of the test
    model(*[X] * (2 if isinstance(model, TwoArguments) else 1))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert by_path(look(loaded)) == by_path(look(model))


def test_ids_of_a_subclassed_model_are_tried_as_integers() -> None:
    class OneHot(L.Layer):
        def call(self, inputs: Any) -> Any:
            return tf.one_hot(inputs, 4)

    model = Subclassed(OneHot(), L.Dense(2))
    model(np.ones((2, 3), "int32"))
    trace = look(model)
    assert (trace.is_eager, by_path(trace)[""][0]) == (False, ["int32"])


class NeedsValues(L.Layer):
    def call(self, inputs: Any) -> Any:
        return keras.ops.exp(inputs) if keras.ops.sum(inputs) > 0 else inputs


def test_python_control_flow_on_values_makes_the_run_eager_and_says_so() -> None:
    trace = look(Subclassed(L.Dense(4), NeedsValues(), Doubles()), X)
    assert trace.is_eager
    assert by_path(trace) == {
        "": ([F32], [F32]),
        "parts/0": ([BF16], [BF16]),
        "parts/1": ([BF16], [BF16]),
        "parts/2": ([BF16], [F32]),
    }


def test_a_traced_model_says_that_it_is_not_eager() -> None:
    assert not look(keras.Sequential([keras.Input((4,)), L.Dense(1)])).is_eager


def test_an_eager_run_takes_two_samples() -> None:
    trace = look(Subclassed(NeedsValues()), np.ones((64, 4), F32))
    assert {trace.tensors[key].shape for key in trace.inputs.values()} == {(2, 4)}


def test_an_eager_run_knows_the_line_of_each_operation() -> None:
    trace = look(Subclassed(NeedsValues()), X)
    (exp,) = [op for op in trace.operations if op.type == "Exp"]
    source = trace.source(exp)
    assert source is not None
    assert source.text == "return keras.ops.exp(inputs) if keras.ops.sum(inputs) > 0 else inputs"


def test_an_unbuilt_model_without_inputs_is_refused_with_the_ways_out() -> None:
    model = Subclassed(L.Dense(2), name="mine")
    message = (
        "The model is not built, so that its inputs are unknown. Pass `inputs=` with a batch of "
        "data, `tf.TensorSpec`s, a `tf.data.Dataset` or a shape; for a `call` with several "
        "arguments, a dictionary of these by name. Or call the model on a batch first. Received: "
        "Subclassed named 'mine'."
    )
    with pytest.raises(ModelError, match=f"^{re.escape(message)}$"):
        look(model)


def test_inputs_of_the_wrong_shape_are_refused() -> None:
    model = keras.Sequential([keras.Input((4,)), L.Dense(1)])
    message = "Expected shapes [(None, 4)]. Received: inputs of shapes [(None, 5)]."
    with pytest.raises(InputsError, match=re.escape(message)):
        look(model, np.ones((2, 5)))


def test_a_dtype_conflict_is_recorded_and_the_rest_is_still_seen() -> None:
    class Clashes(L.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs * tf.ones((4,))

    trace = look(Subclassed(Clashes(), L.Dense(2)), X)
    (conflict,) = trace.conflicts
    found = (conflict.path, conflict.layer_class, set(conflict.dtypes))
    assert found == ("parts/0", "Clashes", {BF16, F32})
    assert by_path(trace)["parts/1"] == ([BF16], [BF16])


def test_an_error_of_the_user_comes_out_as_it_is() -> None:
    class Fails(L.Layer):
        def call(self, inputs: Any) -> Any:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        look(Subclassed(Fails()), X)


def test_a_graph_model_of_two_inputs_takes_them_as_a_list():
    first, second = keras.Input((3,), dtype="int32"), keras.Input((3,))
    x = keras.layers.Concatenate()(
        [keras.layers.Embedding(5, 2)(first), keras.layers.Reshape((3, 1))(second)]
    )
    model = keras.Model([first, second], keras.layers.Dense(1)(x))
    batch = [np.zeros((2, 3), "int32"), np.zeros((2, 3), "float32")]
    (trace,) = trace_modes(model, inputs=batch, modes=(False,))
    assert not trace.is_eager
    assert list(trace.input_shapes.values()) == [(None, 3), (None, 3)]


def test_a_graph_model_of_listed_inputs_takes_them_by_name():
    ids, mask = keras.Input((3,), dtype="int32", name="ids"), keras.Input((3, 1), name="a_mask")
    x = keras.layers.Multiply()([keras.layers.Embedding(5, 2)(ids), mask])
    model = keras.Model([ids, mask], keras.layers.Dense(1)(x))
    batch = {"ids": np.zeros((2, 3), "int32"), "a_mask": np.zeros((2, 3, 1), "float32")}
    (trace,) = trace_modes(model, inputs=batch, modes=(False,))
    assert not trace.is_eager
    with pytest.raises(InputsError, match="do not fit"):
        trace_modes(model, inputs={"ids": batch["ids"], "other": batch["a_mask"]})


def test_other_keys_than_those_of_the_inputs_are_nobodys_business():
    ids = keras.Input((3,), dtype="int32", name="ids")
    model = keras.Model({"ids": ids}, keras.layers.Embedding(5, 2)(ids))
    batch = {"ids": np.zeros((2, 3), "int32"), "a_label": np.zeros((2, 7))}
    with pytest.warns(UserWarning, match="structure of `inputs`"):  # as Keras does in any call
        (trace,) = trace_modes(model, inputs=batch, modes=(False,))
    assert not trace.is_eager
