"""The graph of a train step, against small nets whose gradients are known by hand."""

from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit.errors import InputsError, ModelError, TracingError
from tf_amp_kit.tracing.saved import SavedTensor
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_trace import StepTrace

X = np.ones((4, 3), "float32")
Y = np.ones((4, 2), "float32")


@pytest.fixture(params=["float32", "mixed_bfloat16", "mixed_float16"])
def compute_dtype(request: pytest.FixtureRequest) -> str:
    keras.config.set_dtype_policy(request.param)
    return keras.config.dtype_policy().compute_dtype


def mlp(*hidden: keras.layers.Layer) -> keras.Model:
    head = keras.layers.Dense(2, dtype="float32")
    return keras.Sequential([keras.Input((3,)), *hidden, head])


def activations_of(step: StepTrace, path: str) -> list[tuple[str, tuple[int | None, ...] | None]]:
    """Dtypes and shapes of what a layer made and the gradients read the values of."""
    return [
        (saved.dtype, saved.shape)
        for saved in step.saved_tensors
        if saved.path == path and saved.kind == "activation" and not saved.is_shape_only
    ]


def weights_of(step: StepTrace, path: str) -> list[tuple[str, tuple[int | None, ...] | None]]:
    return [(s.dtype, s.shape) for s in step.saved_tensors if s.path == path and s.kind == "weight"]


def gradient_dtypes(step: StepTrace) -> dict[str, str | None]:
    return {
        path: None if key is None else step.trace.tensors[key].dtype
        for path, key in step.gradients.items()
    }


def test_dense_with_relu_keeps_its_cast_input_and_its_output(compute_dtype: str) -> None:
    # d kernel = input^T d out; d relu is read off relu's output.
    model = mlp(keras.layers.Dense(5, activation="relu"))
    step = trace_step(model, (X, Y), loss="mse")
    cast_input = [] if compute_dtype == "float32" else [(compute_dtype, (None, 3))]
    expected = [*cast_input, (compute_dtype, (None, 5))]
    assert activations_of(step, "dense") == expected


def test_a_float32_model_keeps_its_input_without_a_copy() -> None:
    model = mlp(keras.layers.Dense(5, activation="relu"))
    step = trace_step(model, (X, Y), loss="mse")
    inputs = [s for s in step.saved_tensors if s.kind == "input" and not s.is_shape_only]
    # The scalar is the loss scale.
    assert [(s.dtype, s.shape) for s in inputs] == [("float32", (None, 3)), ("float32", ())]


def test_the_first_kernel_is_not_kept_and_the_second_one_is(compute_dtype: str) -> None:
    # Only the gradient of a layer's input needs its kernel, and data need none.
    hidden = keras.layers.Dense(5, activation="relu"), keras.layers.Dense(7, activation="relu")
    step = trace_step(mlp(*hidden), (X, Y), loss="mse")
    kept = (weights_of(step, "dense"), weights_of(step, "dense_1"))
    assert kept == ([], [(compute_dtype, (5, 7))])


def test_gradients_of_weights_are_float32_under_mixed_policies(compute_dtype: str) -> None:
    step = trace_step(mlp(keras.layers.Dense(5)), (X, Y), loss="mse")
    paths = ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]
    assert gradient_dtypes(step) == dict.fromkeys(paths, "float32")


def test_gradients_of_pure_half_weights_are_half() -> None:
    keras.config.set_dtype_policy("bfloat16")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    step = trace_step(model, (X, Y), loss="mse")
    assert gradient_dtypes(step) == {"dense/kernel": "bfloat16", "dense/bias": "bfloat16"}


def test_dropout_keeps_its_mask_and_no_values() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    step = trace_step(mlp(keras.layers.Dense(5), keras.layers.Dropout(0.5)), (X, Y), loss="mse")
    assert activations_of(step, "dropout") == [("bool", (None, 5))]


def test_a_linear_layer_before_the_loss_keeps_nothing_of_its_own() -> None:
    # d mse = 2 (y - prediction): the loss keeps the difference, not the prediction.
    step = trace_step(mlp(), (X, Y), loss="mse")
    assert activations_of(step, "dense") == []


def test_a_reshaped_tensor_is_kept_once() -> None:
    class ReadTwice(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            values = keras.ops.exp(inputs)  # its own gradient reads it ...
            return keras.ops.square(keras.ops.reshape(values, (-1, 1, 5)))  # ... and so does this

    last = keras.layers.Flatten(), keras.layers.Activation("linear")
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(5), ReadTwice(), *last])
    step = trace_step(model, (np.ones((4, 5)), np.ones((4, 5))), loss="mse")
    assert activations_of(step, "read_twice") == [("float32", (None, 5))]


def recurrent() -> keras.Model:
    cell = keras.layers.SimpleRNNCell(4)
    layers = [keras.Input((6, 3)), keras.layers.RNN(cell), keras.layers.Dense(2, dtype="float32")]
    return keras.Sequential(layers)


def test_a_loop_keeps_a_half_state_for_each_step() -> None:
    # d tanh is read off the new state; d recurrent_kernel = old_state^T d out.
    keras.config.set_dtype_policy("mixed_bfloat16")
    step = trace_step(recurrent(), (np.ones((4, 6, 3)), Y), loss="mse")
    kept = [
        (s.dtype, s.shape, step.trace.producers[s.tensor].type)
        for s in step.saved_tensors
        if s.is_per_iteration and s.kind == "activation"
    ]
    assert kept == [
        ("bfloat16", (None, 4), "Placeholder"),
        ("bfloat16", (None, 3), "TensorListGetItem"),
        ("bfloat16", (None, 4), "Tanh"),
    ]


def test_a_branch_keeps_what_its_gradient_reads() -> None:
    class Branch(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return keras.ops.cond(
                keras.ops.sum(inputs) > 0, lambda: keras.ops.exp(inputs), lambda: inputs
            )

    keras.config.set_dtype_policy("mixed_bfloat16")
    step = trace_step(mlp(keras.layers.Dense(5), Branch()), (X, Y), loss="mse")
    made = {step.trace.producers[s.tensor].type: s.dtype for s in step.saved_tensors}
    assert made["Exp"] == "bfloat16"


def test_an_embedding_has_a_gradient_of_rows() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    layers = keras.layers.Embedding(9, 3), keras.layers.Flatten(), keras.layers.Dense(2)
    model = keras.Sequential([keras.Input((6,)), *layers])
    step = trace_step(model, (np.ones((4, 6), "int32"), Y), loss="mse")
    gradient = step.trace.tensors[step.gradients["embedding/embeddings"] or -1]
    assert (gradient.dtype, gradient.shape) == ("float32", (None, 3))


def test_a_weight_that_nothing_depends_on_has_no_gradient() -> None:
    class Unused(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.spare = self.add_weight(shape=(3,), name="spare")

        def call(self, inputs: Any) -> Any:
            return inputs

    step = trace_step(mlp(Unused()), (X, Y), loss="mse")
    assert step.gradients["unused/spare"] is None


def test_each_operation_is_told_by_its_phase() -> None:
    step = trace_step(mlp(keras.layers.Dense(5, activation="relu")), (X, Y), loss="mse")
    phases: dict[str, set[str]] = {}
    for op in step.trace.operations:
        phases.setdefault(op.type, set()).add(step.phase(op))
    known = {kind: phases[kind] for kind in ("Relu", "ReluGrad", "BiasAddGrad")}
    assert known == {"Relu": {""}, "ReluGrad": {"@gradients"}, "BiasAddGrad": {"@gradients"}}


def test_two_dense_layers_have_two_products_forward_and_three_backward() -> None:
    # Each layer: d kernel; the second also d input. The first one's input is data.
    step = trace_step(mlp(keras.layers.Dense(5)), (X, Y), loss="mse")
    products = [step.is_gradient(op) for op in step.trace.live if op.type == "MatMul"]
    assert products == [False, False, True, True, True]


def test_gradients_in_a_loop_belong_to_the_backward_pass() -> None:
    step = trace_step(recurrent(), (np.ones((4, 6, 3), "float32"), Y), loss="mse")
    tanh = [step.is_gradient(op) for op in step.trace.live if op.type in ("Tanh", "TanhGrad")]
    assert tanh == [False, True]


def test_the_loss_is_multiplied_by_an_input_of_the_graph() -> None:
    step = trace_step(mlp(keras.layers.Dense(5)), (X, Y), loss="mse")
    last = step.trace.producers[step.loss]
    factor = step.reader.symbolic[last.inputs[1]]
    names = dict(zip(map(id, step.reader.graph.inputs), step.input_names, strict=False))
    assert (last.type, names[id(factor)]) == ("Mul", "@loss_scale")


def test_the_loss_line_of_the_user_is_found() -> None:
    def my_loss(y: Any, prediction: Any) -> Any:
        return keras.ops.mean(keras.ops.exp(y - prediction))

    step = trace_step(mlp(), (X, Y), loss=my_loss)
    (op,) = [op for op in step.trace.live if op.type == "Exp"]
    source = step.trace.source(op)
    text = "return keras.ops.mean(keras.ops.exp(y - prediction))"
    assert source is not None and source.text == text


def test_regularizers_and_added_losses_are_part_of_the_loss() -> None:
    hidden = keras.layers.Dense(5, kernel_regularizer="l2", activity_regularizer="l1")
    step = trace_step(mlp(hidden), (X, Y), loss="mse")
    in_loss = [op.type for op in step.trace.live if step.phase(op) == "@loss"]
    added = [loss.from_regularizer for loss in step.trace.losses]
    assert ("AddV2" in in_loss or "Sum" in in_loss, added) == (True, [True])


def multi_output(compiled: bool = True) -> keras.Model:
    inputs = {"a": keras.Input((3,), name="a"), "b": keras.Input((3,), name="b")}
    one = keras.layers.Dense(2, name="one")(inputs["a"])
    two = keras.layers.Dense(1, name="two")(inputs["b"])
    model = keras.Model(inputs, {"one": one, "two": two})
    if compiled:
        model.compile("sgd", {"one": "mse", "two": "mae"}, loss_weights={"one": 1.0, "two": 0.5})
    return model


def test_several_outputs_each_have_their_loss() -> None:
    data = ({"a": X, "b": X}, {"one": Y, "two": Y[:, :1]}, {"one": Y[:, 0], "two": Y[:, 0]})
    step = trace_step(multi_output(), data)
    assert None not in step.gradients.values()
    assert {"one", "two", "@loss"} <= set(step.trace.outputs)


@pytest.mark.parametrize(
    "data",
    [
        (tf.TensorSpec((None, 3)), tf.TensorSpec((None, 2))),
        ((None, 3), (None, 2)),
        tf.data.Dataset.from_tensor_slices((X, Y)).batch(2),
        (X, Y, np.ones(4, "float32")),
    ],
    ids=["specs", "shapes", "dataset", "weighted"],
)
def test_data_come_in_every_form(data: Any) -> None:
    step = trace_step(mlp(), data, loss="mse")
    assert gradient_dtypes(step) == {"dense/kernel": "float32", "dense/bias": "float32"}


def test_a_subclassed_model_is_built_by_the_trace_and_keeps_its_values() -> None:
    class Unbuilt(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.head = keras.layers.Dense(2)

        def call(self, inputs: Any) -> Any:
            return self.head(inputs)

    model = Unbuilt()
    step = trace_step(model, (X, Y), loss="mse")
    assert set(step.gradients) == {"head/kernel", "head/bias"}
    assert model.head.kernel.numpy().shape == (3, 2)


def test_a_model_without_a_loss_is_refused() -> None:
    model = mlp()
    message = (
        "The model has no loss. Expected a compiled model or `loss=`. "
        f"Received: Sequential named {model.name!r}, loss=None."
    )
    with pytest.raises(ModelError, match=f"^{re.escape(message)}$"):
        trace_step(model, (X, Y))


def test_inputs_without_targets_are_refused() -> None:
    with pytest.raises(InputsError, match=re.escape("Received: data of type ndarray.")):
        trace_step(mlp(), X, loss="mse")


def test_python_code_that_needs_values_is_named() -> None:
    class NeedsValues(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs if keras.ops.sum(inputs) > 0 else -inputs

    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.layer = NeedsValues()

        def call(self, inputs: Any) -> Any:
            return self.layer(inputs)

    with pytest.raises(TracingError, match=re.escape("the Python code of Model needs values")):
        trace_step(Model(), (X, Y), loss="mse")


def trained(traced: bool, build: Any, data: tuple[Any, ...]) -> list[np.ndarray]:
    keras.utils.set_random_seed(3)
    model = build()
    if traced:
        trace_step(model, data)
    model.fit(*data[:2], epochs=2, batch_size=2, verbose=0)
    return [np.asarray(w) for w in model.get_weights()]


def regularized() -> keras.Model:
    layers = keras.layers.Dense(5, kernel_regularizer="l2"), keras.layers.Dropout(0.5)
    model = mlp(*layers, keras.layers.BatchNormalization())
    model.compile("adam", "mse", metrics=["mae"])
    return model


@pytest.mark.parametrize(
    ("build", "data"),
    [(regularized, (X, Y)), (multi_output, ({"a": X, "b": X}, {"one": Y, "two": Y[:, :1]}))],
)
def test_a_traced_model_trains_to_the_same_weights(build: Any, data: Any) -> None:
    plain, traced = trained(False, build, data), trained(True, build, data)
    assert all(np.array_equal(a, b) for a, b in zip(plain, traced, strict=True))


def test_the_compiled_loss_is_as_it_was() -> None:
    model = multi_output()
    before = model.metrics_names
    trace_step(model, ({"a": X, "b": X}, {"one": Y, "two": Y[:, :1]}))
    assert (model.metrics_names, model.optimizer.built) == (before, False)


def test_losses_of_the_trace_do_not_stay_in_the_model() -> None:
    model = mlp(keras.layers.Dense(5, activity_regularizer="l1"))
    model(X)
    (before,) = [float(loss) for loss in model.losses]
    trace_step(model, (X, Y), loss="mse")
    assert [float(loss) for loss in model.losses] == [before]


def test_saved_tensors_are_plain_records() -> None:
    step = trace_step(mlp(), (X, Y), loss="mse")
    first = step.saved_tensors[0]
    assert first == SavedTensor(first.tensor, "float32", (None, 3), "", "input")
