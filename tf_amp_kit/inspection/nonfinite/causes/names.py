"""TensorFlow's types of operations, by what they do."""

from __future__ import annotations

from typing import Final

# Sums along axes or segments; the first operand holds what is summed.
REDUCED_SUMS: Final = frozenset(
    {
        "AvgPool",
        "AvgPool3D",
        "BiasAddGrad",
        "Cumsum",
        "EuclideanNorm",
        "L2Loss",
        "Mean",
        "SegmentMean",
        "SegmentSum",
        "SegmentSumV2",
        "SparseSegmentMean",
        "SparseSegmentSqrtN",
        "SparseSegmentSum",
        "Sum",
        "UnsortedSegmentSum",
    }
)
REDUCED_PRODUCTS: Final = frozenset({"Cumprod", "Prod", "UnsortedSegmentProd", "SegmentProd"})
MATMULS: Final = frozenset({"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "MatMul"})
CONVOLUTIONS: Final = frozenset({"Conv2D", "Conv3D", "DepthwiseConv2dNative"})
INPUT_GRADIENTS: Final = frozenset(
    {
        "Conv2DBackpropInput",
        "Conv3DBackpropInputV2",
        "DepthwiseConv2dNativeBackpropInput",
    }
)
FILTER_GRADIENTS: Final = frozenset(
    {
        "Conv2DBackpropFilter",
        "Conv3DBackpropFilterV2",
        "DepthwiseConv2dNativeBackpropFilter",
    }
)
CONTRACTIONS: Final = MATMULS | CONVOLUTIONS | INPUT_GRADIENTS | FILTER_GRADIENTS | {"Einsum"}
DIVISIONS: Final = frozenset({"Div", "FloorDiv", "RealDiv", "TruncateDiv"})
ACTIVATION_GRADIENTS: Final = frozenset(
    {"EluGrad", "ReluGrad", "SigmoidGrad", "SoftplusGrad", "TanhGrad"}
)
