"""Operations that others keep in float32, because half precision may hurt them.

Two lists are in use and differ. TensorFlow's grappler (`auto_mixed_precision_lists.h`)
denies half precision to some operations, fewer in bfloat16 than in float16.
torch's autocast runs another set in float32 (`torch.amp`, "CUDA Ops that can
autocast to float32").
"""

from __future__ import annotations

from typing import Final

from tf_amp_kit.formats import is_half

__all__ = ["lists_with"]

_TENSORFLOW_FLOAT16: Final = frozenset(
    {
        "Exp",
        "Expm1",
        "L2Loss",
        "Mean",
        "Pow",
        "SoftmaxCrossEntropyWithLogits",
        "SparseSoftmaxCrossEntropyWithLogits",
        "Sum",
    }
)
_TENSORFLOW: Final = {
    "float16": _TENSORFLOW_FLOAT16,
    # Both are accumulated in float32 there.
    "bfloat16": _TENSORFLOW_FLOAT16 - {"Mean", "Sum"},
}
_TORCH: Final = frozenset(
    {
        "Acos",
        "Asin",
        "Cosh",
        "Cumprod",
        "Cumsum",
        "Erfinv",
        "Exp",
        "Expm1",
        "EuclideanNorm",
        "Log",
        "Log1p",
        "LogSoftmax",
        "Pow",
        "Prod",
        "Reciprocal",
        "Rsqrt",
        "Sinh",
        "Softmax",
        "Softplus",
        "Sum",
        "Tan",
    }
)


def lists_with(op_type: str, dtype: str) -> list[str]:
    """Names the published lists that keep an operation out of a half precision.

    Args:
        op_type: TensorFlow's operation type.
        dtype: The dtype that it runs in.

    Returns:
        The names, none for a dtype that is not half.

    Example:

    >>> lists_with("Mean", "float16"), lists_with("Mean", "bfloat16")
    (["TensorFlow's graph rewriting"], [])
    """
    if not is_half(dtype):
        return []
    lists = {"TensorFlow's graph rewriting": _TENSORFLOW[dtype], "torch's autocast": _TORCH}
    return [name for name, types in lists.items() if op_type in types]
