"""What TensorFlow's kernels do with buffers: share, take over, or need more."""

from __future__ import annotations

from typing import Final

__all__ = ["AT_HAND_TYPES", "FORWARDING_TYPES"]

#: Operations whose outputs are there all the time, or so small that nobody counts them.
AT_HAND_TYPES: Final = frozenset(
    {
        "BroadcastGradientArgs",
        "Const",
        "NoOp",
        "Placeholder",
        "Rank",
        "ReadVariableOp",
        "Shape",
        "ShapeN",
        "Size",
        "VariableShape",
    }
)

_UNARY: Final = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Digamma Elu Erf Erfc Erfinv Exp Expm1 "
    "Floor Inv LeakyRelu Lgamma Log Log1p LogSoftmax LogicalNot Neg Reciprocal Relu Relu6 Rint "
    "Round Rsqrt Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Square Tan Tanh "
    "ZerosLike"
)
_BINARY: Final = (
    "Add AddV2 Atan2 BiasAdd Div DivNoNan FloorDiv FloorMod LogicalAnd LogicalOr Maximum Minimum "
    "Mod Mul MulNoNan Pow RealDiv SquaredDifference Sub TruncateDiv TruncateMod Xdivy Xlog1py "
    "Xlogy"
)
_GRADIENTS: Final = (
    "EluGrad InvGrad LeakyReluGrad ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad SeluGrad "
    "SigmoidGrad SoftplusGrad SoftsignGrad SqrtGrad TanhGrad"
)

#: Operations whose kernels write into the buffer of an input that nobody reads any more
#: (`forward_input_or_allocate_output`), if it has the output's size.
FORWARDING_TYPES: Final = frozenset(
    f"{_UNARY} {_BINARY} {_GRADIENTS} AddN ClipByValue Select SelectV2".split()
)
