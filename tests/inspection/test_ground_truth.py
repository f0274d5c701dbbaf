"""The cases are what they say they are: seen by running them, without the audit."""

import functools
import inspect
from collections import defaultdict

import keras
import numpy as np
import pytest
import tensorflow as tf

from . import conflicts
from .cases_conflict import CONFLICTS, MISSING_KERNELS
from .cases_constants import CONSTANTS
from .cases_heads import FLOAT32_HEADS, HEADS
from .cases_optimizers import OPTIMIZERS
from .cases_outside import OUTSIDE_LAYERS
from .cases_reverting import REVERTING, WIDE_INSIDE
from .test_cases import each

_PRODUCTS = ("MatMul", "BatchMatMul", "Conv", "Einsum", "Mul")


def example(model):
    """Return ones for a model with known inputs, else for vectors of 8."""
    if not getattr(model, "inputs", None):
        return tf.ones((2, 8))
    specs = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    return keras.tree.map_structure(
        lambda spec: tf.ones([2 if n is None else n for n in spec.shape], spec.dtype), specs
    )


def run(case, half, **kwargs):
    """Build and call a case's model; return the dtypes that each layer class returned."""
    seen = defaultdict(set)
    plain = keras.layers.Layer.__call__

    def observed(layer, *args, **kwargs):
        outputs = plain(layer, *args, **kwargs)
        # A wrapper may run its layer's `call` and leave the layer itself out.
        classes = {type(layer), type(getattr(layer, "layer", layer))}
        for tensor in keras.tree.flatten(outputs):
            if not isinstance(tensor, keras.KerasTensor):
                for each_class in classes:
                    seen[each_class].add(keras.backend.standardize_dtype(tensor.dtype))
        return outputs

    keras.config.set_dtype_policy(case.policy.format(half=half))
    model = case.build(half)
    inputs = case.audit.get("inputs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.layers.Layer, "__call__", observed)
        model(example(model) if inputs is None else inputs, **kwargs)
    return seen


def wide_products(model):
    """Return the types of float32 products in a model's graph, bodies of functions included."""
    graph = tf.function(model).get_concrete_function(example(model)).graph
    nodes = list(graph.as_graph_def().node)
    for function in graph.as_graph_def().library.function:
        nodes += function.node_def
    return [
        node.op
        for node in nodes
        if node.op.startswith(_PRODUCTS[:4]) and node.attr["T"].type == tf.float32.as_datatype_enum
    ]


@each([case for case in REVERTING if any(inspect.isclass(e.planted) for e in case.expected)])
def test_the_planted_layer_returns_a_wide_tensor(case, half):
    seen = run(case, half, training=True)
    for expected in case.expected:
        wide = "float64" if expected.code == "AMP102" else "float32"
        assert wide in seen[expected.planted]


@each(WIDE_INSIDE)
def test_the_planted_layer_multiplies_wide_and_returns_half(case, half):
    # The head is the one product that is float32 on purpose.
    keras.config.set_dtype_policy(case.policy.format(half=half))
    products = wide_products(case.build(half))
    assert len(products) > (0 if "last layer" in case.name else 1)


@each([case for case in CONFLICTS if case.expected and "bfloat16 has" not in case.name])
def test_the_planted_conflict_raises(case, half):
    with pytest.raises(
        (TypeError, ValueError, NotImplementedError, tf.errors.InvalidArgumentError)
    ):
        run(case, half, training=True)


@each([case for case in CONFLICTS if not case.expected or "bfloat16 has" in case.name])
def test_the_controls_of_the_conflicts_run(case, half):
    assert run(case, half, training=False)


@each([case for case in MISSING_KERNELS if case.expected])
def test_the_missing_kernel_is_missing(case, half):
    with pytest.raises((tf.errors.NotFoundError, tf.errors.InvalidArgumentError)):
        run(case, half)


@each([case for case in OUTSIDE_LAYERS if case.expected and case.as_builder])
def test_the_operation_outside_layers_is_wide(case, half):
    keras.config.set_dtype_policy(case.policy.format(half=half))
    outputs = [
        keras.backend.standardize_dtype(node.outputs[0].dtype)
        for node in _operations(case.build(half))
    ]
    assert {"float32", "float64"} & set(outputs)


def _operations(model):
    """Yield the nodes of a Functional model that are operations and not layers."""
    for operation in model.operations:
        if isinstance(operation, keras.Model):
            yield from _operations(operation)
        elif not isinstance(operation, keras.layers.Layer):
            yield operation._inbound_nodes[0]


def output_dtypes(case, half):
    keras.config.set_dtype_policy(case.policy.format(half=half))
    model = case.build(half)
    outputs = keras.tree.flatten(model(example(model)))
    return {keras.backend.standardize_dtype(output.dtype) for output in outputs}


@each([case for case in HEADS if "does not help" not in case.name])
def test_the_output_is_half(case, half):
    assert half in output_dtypes(case, half)


@each([*FLOAT32_HEADS, *[case for case in HEADS if "does not help" in case.name]])
def test_the_output_is_float32(case, half):
    assert output_dtypes(case, half) == {"float32"}


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@each(CONSTANTS)
def test_the_models_with_constants_run(case, half):
    assert output_dtypes(case, half) == {"float32"}


@each(OPTIMIZERS)
def test_the_optimizers_scale_or_do_not(case, half):
    keras.config.set_dtype_policy(case.policy.format(half=half))
    model = case.build(half)
    found = [
        value
        for owner in (model, *model.layers)
        for value in vars(owner).values()
        if isinstance(value, keras.optimizers.Optimizer)
    ]
    unscaled = [one for one in found if not isinstance(one, keras.optimizers.LossScaleOptimizer)]
    if half == "float16":
        assert bool(unscaled) == bool(case.expected)


def test_float16_rounds_the_constants_as_the_cases_say():
    with np.errstate(over="ignore"):
        large, small, high = np.array([-1e9, 1e-8, 1 - 1e-8]).astype("float16")
    assert (large, small, high) == (-np.inf, 0.0, 1.0)


def test_a_mixed_matmul_in_bfloat16_returns_float32():
    keras.config.set_dtype_policy("mixed_bfloat16")
    assert conflicts.TfMatmul()(tf.ones((2, 8))).dtype == tf.float32


def test_every_built_model_can_be_built_twice(half):
    builders = [functools.partial(case.build, half) for case in REVERTING[:3]]
    assert [build().count_params() for build in builders] == [
        build().count_params() for build in builders
    ]
