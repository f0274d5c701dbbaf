"""Values that functions are not defined for, and divisions, that really ran on the CPU."""

import pytest

from tests.inspection.nonfinite.operations import brain, half, reason_of, single

DOMAINS = [
    ("Log", [half(0, 1)], "Log of 0 is -inf."),
    ("Log", [single(-0.003, 0)], "Log of a negative value (-0.003) is NaN."),
    ("Log1p", [half(-1)], "Log1p of -1 is -inf."),
    ("Log1p", [half(-1.5)], "Log1p of a value below -1 (-1.5) is NaN."),
    ("Sqrt", [brain(-2)], "Sqrt of a negative value (-2) is NaN."),
    ("Rsqrt", [half(0)], "Rsqrt of 0 is infinite."),
    ("Rsqrt", [half(-2)], "Rsqrt of a negative value (-2) is NaN."),
    ("Reciprocal", [single(0)], "Reciprocal of 0 is infinite."),
    ("Inv", [half(0)], "Inv of 0 is infinite."),
    ("Acos", [half(1.5)], "Acos of a value outside of -1 to 1 (1.5) is NaN."),
    ("Asin", [half(-1.5)], "Asin of a value outside of -1 to 1 (-1.5) is NaN."),
    ("Atanh", [half(1)], "Atanh of 1 is inf."),
    ("Atanh", [half(-1)], "Atanh of -1 is -inf."),
    ("Atanh", [half(2)], "Atanh of a value outside of -1 to 1 (2) is NaN."),
    ("Acosh", [half(0.5)], "Acosh of a value below 1 (0.5) is NaN."),
    ("Lgamma", [half(0)], "Lgamma of 0 is infinite."),
    ("Lgamma", [half(-3)], "Lgamma of -3, a pole, is infinite."),
    ("Digamma", [half(-3)], "Digamma of -3, a pole, is NaN."),
    ("Erfinv", [single(1)], "Erfinv of 1 is inf."),
    ("Erfinv", [single(2)], "Erfinv of a value outside of -1 to 1 (2) is NaN."),
    ("Ndtri", [single(0)], "Ndtri of 0 is -inf."),
    ("Ndtri", [single(1)], "Ndtri of 1 is inf."),
    ("Ndtri", [single(1.5)], "Ndtri of a value outside of 0 to 1 (1.5) is NaN."),
    ("BesselK0", [half(0)], "BesselK0 of a value that is not positive (0) is infinite."),
    ("Xlogy", [half(1), half(0)], "Xlogy: the logarithm of 0 is -inf where its factor is not 0."),
    ("Xlogy", [half(1), half(-1)], "Xlogy: the logarithm of a negative value (-1) is NaN."),
    ("Xlog1py", [half(1), half(-1)], "Xlog1py: log1p of -1 is -inf where its factor is not 0."),
    ("Xlog1py", [half(1), half(-2)], "Xlog1py: log1p of a value below -1 (-2) is NaN."),
    ("FloorMod", [half(1), half(0)], "FloorMod by 0 is NaN."),
    ("Pow", [half(0), half(-1)], "Pow of 0 to a negative power (-1) is infinite."),
    ("Pow", [half(-2), half(0.5)], "Pow of a negative value (-2) to the power 0.5 is NaN."),
    (
        "Pow",
        [half(-2, 3), half(0.5, 2)],
        "Pow of a negative value (-2) to a power that is no whole number is NaN.",
    ),
    (
        "FloorMod",
        [single(*[1] * 8), single(*[1e-39] * 8)],
        "FloorMod by 1e-39 can be the cause: it is subnormal in float32, and devices take such "
        "values for 0.",
    ),
    # TensorFlow's CPU kernels take float32's and bfloat16's subnormal values for 0.
    (
        "Log",
        [single(*[1e-39] * 8)],
        "Log of 1e-39 can be the cause: it is subnormal in float32, and devices take such "
        "values for 0.",
    ),
]


@pytest.mark.parametrize(("operation", "inputs", "sentence"), DOMAINS)
def test_a_value_that_a_function_is_not_defined_for_is_told(operation, inputs, sentence):
    assert reason_of(operation, *inputs) == sentence


QUOTIENTS = [
    ("RealDiv", [half(0, 1), half(0, 1)], "RealDiv by 0: 0 / 0 is NaN."),
    ("RealDiv", [half(1, 2), half(0, 1)], "RealDiv by 0 is infinite."),
    ("Div", [half(1), half(0)], "Div by 0 is infinite."),
    ("FloorDiv", [half(0), half(0)], "FloorDiv by 0: 0 / 0 is NaN."),
    (
        "RealDiv",
        [half(100), half(1e-3)],
        "RealDiv of 100 by 0.001 overflows float16 from 65520 on.",
    ),
    (
        "RealDiv",
        [half(100, -3), half(1e-3, -2)],
        "RealDiv of values from -3 to 100 by magnitudes down to 0.001 overflows float16 from "
        "65520 on.",
    ),
    (
        "RealDiv",
        [half(0, 100, 1), half(0, 1e-3, 1)],
        "RealDiv by 0: 0 / 0 is NaN.",
    ),
    (
        "RealDiv",
        [half(0, 100, 1), half(1, 1e-3, 0)],
        "RealDiv of values from 0 to 100 by 0 or by magnitudes down to 0.001 is infinite in "
        "float16.",
    ),
    (
        "DivNoNan",
        [half(100), half(1e-3)],
        "DivNoNan of 100 by 0.001 overflows float16 from 65520 on.",
    ),
    ("Xdivy", [half(1), half(0)], "Xdivy by 0 of what is not 0 is infinite."),
    ("Reciprocal", [half(1e-5)], "Reciprocal of 1.001e-05 overflows float16 from 65520 on."),
    # 1e-30 / 1e-39 fits, 3e38 / 89 too: what the ranges allow did not happen.
    (
        "RealDiv",
        [single(*[1e-30] * 8, 3e38), single(*[1e-39] * 8, 89)],
        "RealDiv of values from 1e-30 to 3e+38 by magnitudes down to 1e-39 can overflow float32 "
        "from 3.403e+38 on.",
    ),
    (
        "RealDiv",
        [single(*[0.01] * 8), single(*[1e-39] * 8)],
        "RealDiv by 1e-39 can be the cause: it is subnormal in float32, and devices take such "
        "values for 0.",
    ),
]


@pytest.mark.parametrize(("operation", "inputs", "sentence"), QUOTIENTS)
def test_a_division_tells_whether_by_zero_or_too_large(operation, inputs, sentence):
    assert reason_of(operation, *inputs) == sentence
