"""The names of what a description can hold."""

from __future__ import annotations

from typing import Final

HALF_POLICIES: Final = ("mixed_bfloat16", "mixed_float16")
DTYPES: Final = ("float32", "mixed_bfloat16", "mixed_float16", "bfloat16", "float16")

#: Layers with one input.
LAYERS: Final = (
    "Dense",
    "Activation",
    "Softmax",
    "BatchNormalization",
    "LayerNormalization",
    "Dropout",
    "Rescaling",
    "Conv1D",
    "EinsumDense",
    "GlobalAveragePooling1D",
    "AveragePooling1D",
    "UnitNormalization",
    "GroupNormalization",
    "Normalization",
    "Masking",
    "PReLU",
    "GaussianNoise",
    "TimeDistributed",
    "LSTM",
    "GRU",
    "SimpleRNN",
    "Bidirectional",
)
#: Those that keep the shape, so that they need no step between them.
IN_SEQUENCE: Final = tuple(kind for kind in LAYERS if kind != "GlobalAveragePooling1D")
#: Those that a custom layer can hold: Keras builds them in a graph of its own, out of
#: which a Normalization keeps a tensor.
IN_LAYER: Final = tuple(kind for kind in LAYERS if kind != "Normalization")
#: Layers with two.
MERGES: Final = ("Add", "Multiply", "Concatenate", "Dot", "Attention", "MultiHeadAttention")

#: Operations of Keras on one value.
UNARY: Final = (
    "relu",
    "softmax",
    "mean",
    "sum",
    "exp",
    "sqrt",
    "logsumexp",
    "var",
    "cumsum",
    "max",
    "transpose",
    "one_hot",
    "stop_gradient",
    "layer_normalization",
    "cast_float32",
    "cast_float16",
    "cast_bfloat16",
    "cast_float64",
    "round_trip",
)
CASTS: Final = tuple(kind for kind in UNARY if kind.startswith("cast_"))
#: Operations of Keras on a value and an operand.
BINARY: Final = (
    "multiply",
    "add",
    "subtract",
    "divide",
    "maximum",
    "where",
    "matmul",
    "einsum",
    "concatenate",
    "stack",
    "power",
)
#: What only code inside a `call` can do: it needs tensors, and the layer.
IN_CALL: Final = (
    "cast_compute",
    "operator_multiply",
    "operator_add_left",
    "operator_matmul",
    "tf_multiply",
    "tf_add",
    "tf_matmul",
    "tf_einsum",
    "tf_concat",
    "tf_where",
    "cond",
    "loop",
    "map",
)
#: Operations with an operand beside their first value.
WITH_OPERAND: Final = frozenset(
    {*BINARY, *(kind for kind in IN_CALL if kind not in ("cast_compute", "loop", "map"))}
)

#: Operands: `value` is an earlier value of the graph.
CONSTANTS: Final = (
    "value",
    "float",
    "int",
    "np.float32",
    "np.float64",
    "np.float16",
    "array float32",
    "array float64",
    "array float16",
    "tensor float32",
    "tensor bfloat16",
    "tensor float16",
    "ops.full",
)
#: Operands that belong to a layer or a subclassed model.
OWN_CONSTANTS: Final = ("weight", "weight kept", "tf.Variable", "np.sqrt")

#: `deferred` is a Sequential model without an `Input`, built by its first call.
STYLES: Final = ("functional", "sequential", "deferred", "subclassed")
