"""The graph of a train step, against small nets whose gradients are known by hand."""

from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit.data import Batch
from tf_amp_kit.errors import InputsError, ModelError, TracingError
from tf_amp_kit.tracing.running import StepRunner
from tf_amp_kit.tracing.saved import SavedTensor
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import GRADIENTS, LOSS, OUTPUTS, Observers
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


def phases_of(step: StepTrace) -> set[str]:
    return {
        step.phase(op) for op in step.trace.operations if op.type not in ("Placeholder", "Const")
    }


def test_a_step_until_the_outputs_needs_neither_loss_nor_targets() -> None:
    step = trace_step(mlp(), (X,), until=OUTPUTS)
    assert (step.loss, step.gradients, list(step.model_outputs)) == (None, {}, ["0"])
    assert "@loss" not in step.trace.outputs and phases_of(step) == {""}


def test_a_step_until_the_loss_has_no_gradients() -> None:
    step = trace_step(mlp(), (X, Y), loss="mse", until=LOSS)
    assert (step.loss is None, step.gradients) == (False, {})
    assert {"@loss"} <= phases_of(step) <= {"", "@loss"}


def test_a_step_goes_to_the_gradients_if_nothing_is_said() -> None:
    steps = [trace_step(mlp(), (X, Y), loss="mse", **more) for more in ({}, {"until": GRADIENTS})]
    assert [phases_of(step) >= {"", "@loss", "@gradients"} for step in steps] == [True, True]


def test_a_step_until_the_loss_needs_one() -> None:
    with pytest.raises(ModelError, match=re.escape("The model has no loss.")):
        trace_step(mlp(), (X, Y), until=LOSS)


def test_a_step_that_ends_early_tells_its_input_names_all_the_same() -> None:
    step = trace_step(mlp(), (X, Y), until=OUTPUTS)
    assert step.input_names == ("@input/0", "@loss_scale", "@target/0")


@pytest.mark.parametrize(("training", "draws"), [(True, True), (False, False)])
def test_dropout_draws_in_training_only(training: bool, draws: bool) -> None:
    model = mlp(keras.layers.Dropout(0.5))
    step = trace_step(model, (X, Y), loss="mse", training=training)
    assert any("Random" in op.type for op in step.trace.live) is draws


@pytest.mark.parametrize(("training", "num_written"), [(True, 2), (False, 0)])
def test_statistics_are_written_in_training_only(training: bool, num_written: int) -> None:
    model = mlp(keras.layers.BatchNormalization())
    step = trace_step(model, (X, Y), loss="mse", training=training)
    assert len(step.variables) == num_written


def test_a_loss_of_the_model_s_own_is_told_the_mode() -> None:
    seen = []

    class Model(keras.Model):
        def call(self, x: Any, training: Any = None) -> Any:
            seen.append(training)
            return x

        def compute_loss(self, training: Any = True, **others: Any) -> Any:
            seen.append(training)
            return super().compute_loss(training=training, **others)

    trace_step(Model(), (X, X), loss="mse", training=False)
    assert seen == [False, False]


def test_a_model_that_takes_no_mode_is_given_none() -> None:
    class Model(keras.Model):
        def call(self, x: Any) -> Any:
            return 2 * x

    assert trace_step(Model(), (X,), until=OUTPUTS, training=False).model_outputs


def computed(step: StepTrace, *tensors: Any) -> list[Any]:
    """Runs a step on X and Y."""
    batch = Batch(tf.constant(X), tf.constant(Y))
    return [one.numpy() for one in StepRunner(step).function(tensors)(batch, 1.0)]


def output_of(observers: Observers, *layers: keras.layers.Layer) -> Any:
    model = keras.Sequential([keras.Input((3,)), *layers])
    step = trace_step(model, (X, Y), observers=observers, until=OUTPUTS)
    (key,) = step.model_outputs.values()
    return computed(step, step.reader.symbolic[key])[0]


def scaled(factor: float, name: str) -> keras.layers.Layer:
    return keras.layers.Rescaling(factor, name=name)


def test_what_a_layer_takes_may_be_changed() -> None:
    def on_inputs(call: Any) -> Any:
        (x,), kwargs = call.arguments
        return ((x + 1,) if call.path == "b" else (x,)), kwargs

    found = output_of(Observers(on_inputs=on_inputs), scaled(3, "a"), scaled(10, "b"))
    np.testing.assert_array_equal(found, np.full((4, 3), (3 * 1 + 1) * 10))


def test_changed_inputs_are_what_the_call_is_known_to_have_taken() -> None:
    taken: dict[str, Any] = {}

    def on_inputs(call: Any) -> Any:
        taken[call.path] = tf.identity(call.arguments[0][0])
        return (taken[call.path],), call.arguments[1]

    def on_outputs(call: Any) -> Any:
        assert call.arguments[0][0] is taken[call.path]
        return call.outputs

    output_of(Observers(on_inputs=on_inputs, on_outputs=on_outputs), scaled(3, "a"))
    assert set(taken) == {"", "a"}


def test_calls_begin_from_the_outside_in_and_return_from_the_inside_out() -> None:
    seen: list[str] = []

    def on_inputs(call: Any) -> Any:
        seen.append(f"+{call.path}")
        return call.arguments

    def on_outputs(call: Any) -> Any:
        seen.append(f"-{call.path}")
        return call.outputs

    output_of(Observers(on_inputs, on_outputs), scaled(3, "a"), scaled(10, "b"))
    assert seen == ["+", "+a", "-a", "+b", "-b", "-"]


def test_what_is_added_at_the_end_can_be_computed() -> None:
    added: list[Any] = []

    def on_end(tensors: Any) -> None:
        gradients = [gradient for _, gradient in tensors.gradients]
        added.extend([tf.reduce_sum(tensors.outputs), tensors.loss * 2, *gradients])

    head = keras.layers.Dense(2, use_bias=False, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((3,)), head])
    step = trace_step(model, (X, Y), loss="mse", observers=Observers(on_end=on_end))
    total, loss, kernel = computed(step, *added)
    # Outputs are 3 where 1 was wanted: the loss is 4, its slope 2 * 2 / 2 for each of two.
    assert (total, loss) == (4 * 2 * 3, 2 * 4)
    np.testing.assert_array_equal(kernel, np.full((3, 2), 2.0))


@pytest.mark.parametrize("until", [OUTPUTS, LOSS])
def test_at_the_end_there_is_nothing_of_what_was_not_reached(until: str) -> None:
    seen: list[Any] = []
    observers = Observers(on_end=seen.append)
    trace_step(mlp(), (X, Y), loss="mse", observers=observers, until=until)
    ((outputs, loss, gradients),) = seen
    assert (outputs.shape[-1], loss is None, gradients) == (2, until == OUTPUTS, [])


def test_at_the_end_gradients_are_what_was_made_of_them() -> None:
    seen: list[Any] = []

    def on_gradients(pairs: Any) -> Any:
        return [(variable, None) for variable, _ in pairs]

    observers = Observers(on_gradients=on_gradients, on_end=lambda one: seen.extend(one.gradients))
    trace_step(mlp(), (X, Y), loss="mse", observers=observers)
    assert [gradient for _, gradient in seen] == [None, None]


def test_some_layers_can_compute_in_float32() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    wide, half = keras.layers.Dense(5, name="wide"), keras.layers.Dense(5, name="half")
    step = trace_step(mlp(wide, half), (X, Y), loss="mse", in_float32=[wide])
    dtypes = {
        call.path: step.trace.tensors[call.outputs[0]].dtype for call in step.trace.calls[1:3]
    }
    assert dtypes == {"wide": "float32", "half": "float16"}


class Clashing(keras.layers.Layer):
    """Adds float32 to what it is given."""

    def call(self, x: Any) -> Any:
        return tf.add(x, tf.ones((1,)))

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


@pytest.mark.parametrize("until", [OUTPUTS, LOSS, GRADIENTS])
def test_code_that_half_precision_breaks_is_in_the_record(until: str) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    step = trace_step(mlp(Clashing(name="bad")), (X, Y), loss="mse", until=until)
    found = [(one.path, set(one.dtypes), one.operation) for one in step.trace.conflicts]
    assert found == [("bad", {"float16", "float32"}, "AddV2")]


def test_in_float32_the_same_code_is_fine() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    step = trace_step(mlp(Clashing()), (X, Y), loss="mse", in_float32=True)
    assert step.trace.conflicts == ()


class Counts(keras.layers.Layer):
    """Counts rows, and large batches in a branch that gives nothing back."""

    def build(self, shape: Any) -> None:
        self.rows = self.add_weight(shape=(4, 1), trainable=False, initializer="zeros")
        self.large = self.add_weight(shape=(), trainable=False, initializer="zeros")

    def call(self, x: Any) -> Any:
        self.rows.value.scatter_add(tf.IndexedSlices(tf.ones((1, 1)), tf.constant([0])))
        tf.cond(tf.reduce_sum(x) > 0, self.count, lambda: None)
        return x

    def count(self) -> None:
        self.large.value.assign_add(1.0)


def test_what_writes_a_variable_is_live_in_a_branch_and_by_rows() -> None:
    step = trace_step(mlp(Counts()), (X, Y), loss="mse")
    types = [op.type for op in step.trace.live]
    assert {"If", "AssignAddVariableOp", "ResourceScatterAdd"} <= set(types)
    branch = next(op for op in step.trace.live if op.type == "If")
    inside = [step.trace.operations[n].type for n in branch.body_spans[0]]
    assert "AssignAddVariableOp" in inside


def test_an_update_is_a_phase_of_its_own() -> None:
    model = mlp()
    seen = []

    def update(step: Any) -> None:
        for variable, gradient in step.gradients:
            seen.append(variable.path)
            variable.value.assign_sub(gradient)

    step = trace_step(model, (X, Y), loss="mse", observers=Observers(on_update=update))
    phases = {step.phase(op) for op in step.trace.live if op.type == "AssignSubVariableOp"}
    assert phases == {"@update"}
    assert len(seen) == 2


def test_targets_that_the_loss_refuses_are_an_error_of_inputs() -> None:
    with pytest.raises(InputsError, match="Expected targets, and sample weights if any, that fit"):
        trace_step(mlp(), (X, np.ones((4, 5), "float32")), loss="mse")


def test_a_model_compiled_without_loss_has_none() -> None:
    model = mlp()
    model.compile("sgd")
    with pytest.raises(ModelError, match="it was compiled without one, and adds none itself"):
        trace_step(model, (X, Y))
