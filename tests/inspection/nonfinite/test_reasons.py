"""Elementwise operations that really ran on the CPU; limits are from `math`."""

import math

import pytest
import tensorflow as tf

from tests.inspection.nonfinite.operations import brain, half, reason_of, single

# The smallest magnitudes that round to infinity, half a step above the largest.
HALF, BRAIN, SINGLE = 65520.0, 2.0**128 - 2.0**119, 2.0**128 - 2.0**103


def check(operation, inputs, sentence):
    assert reason_of(operation, *inputs) == sentence


EXPONENTIALS = [
    ("Exp", [half(1, 12.4)], f"Exp of 12.4 overflows float16 above {math.log(HALF):.2f}."),
    ("Exp", [brain(89)], f"Exp of 89 overflows bfloat16 above {math.log(BRAIN):.2f}."),
    ("Exp", [single(88.75)], f"Exp of 88.75 overflows float32 above {math.log(SINGLE):.2f}."),
    (
        "Exp",
        [tf.constant([710.0], "float64")],
        f"Exp of 710 overflows float64 above {1024 * math.log(2):.1f}.",
    ),
    ("Expm1", [half(12)], f"Expm1 of 12 overflows float16 above {math.log1p(HALF):.2f}."),
    ("Sinh", [half(-12)], f"Sinh of -12 overflows float16 below {-math.asinh(HALF):.2f}."),
    ("Cosh", [half(12)], f"Cosh of 12 overflows float16 above {math.acosh(HALF):.2f}."),
    # 11.09375 is the first float16 above the limit 11.0901: four digits do not tell them apart.
    ("Exp", [half(11.09375)], "Exp of 11.094 overflows float16 above 11.09."),
]


@pytest.mark.parametrize(("operation", "inputs", "sentence"), EXPONENTIALS)
def test_an_exponential_tells_the_logarithm_of_the_limit(operation, inputs, sentence):
    check(operation, inputs, sentence)


CASTS = [
    (single(1, 200000), "float16", "Cast of 200000 overflows float16 from 65520 on."),
    (single(65520), "float16", "Cast of 65520 overflows float16 from 65520 on."),
    (single(-65520), "float16", "Cast of -65520 overflows float16 from -65520 on."),
    (single(-1e9), "float16", "Cast of -1e+09 overflows float16 from -65520 on."),
    (single(65521.5), "float16", "Cast of 65522 overflows float16 from 65520 on."),
    (brain(1e5), "float16", "Cast of 99840 overflows float16 from 65520 on."),
    (single(3.4e38), "bfloat16", f"Cast of 3.4e+38 overflows bfloat16 from {BRAIN:.4g} on."),
    (tf.constant([70000]), "float16", "Cast of 70000 overflows float16 from 65520 on."),
    (
        tf.constant([1e39], "float64"),
        "float32",
        f"Cast of 1e+39 overflows float32 from {SINGLE:.4g} on.",
    ),
]


@pytest.mark.parametrize(("x", "dtype", "sentence"), CASTS)
def test_a_cast_tells_where_the_result_s_format_overflows(x, dtype, sentence):
    assert reason_of("Cast", x, DstT=tf.as_dtype(dtype)) == sentence


PRODUCTS = [
    ("Mul", [half(300), half(300)], "Mul of 300 and 300 overflows float16 from 65520 on."),
    (
        "Mul",
        [half(1, -300), half(2, 400)],
        "Mul of values from -300 to 1 and values from 2 to 400 overflows float16 from 65520 on.",
    ),
    (
        "Mul",
        [brain(1e30), brain(1e30)],
        f"Mul of 1e+30 and 1e+30 overflows bfloat16 from {BRAIN:.4g} on.",
    ),
    (
        "MulNoNan",
        [half(300), half(300)],
        "MulNoNan of 300 and 300 overflows float16 from 65520 on.",
    ),
    ("Square", [half(300)], f"Square of 300 overflows float16 from {math.sqrt(HALF):.4g} on."),
    ("Square", [half(256)], f"Square of 256 overflows float16 from {math.sqrt(HALF):.2f} on."),
    (
        "SquaredDifference",
        [half(200, 0), half(-100, 0)],
        "SquaredDifference of values from 0 to 200 and values from -100 to 0: the square of a "
        "difference of up to 300 overflows float16 from 256 on.",
    ),
    ("Pow", [half(300), half(2)], "Pow of 300 to the power 2 overflows float16 from 65520 on."),
    (
        "Pow",
        [half(1e-3, 1), half(-2, 1)],
        "Pow of values from 0.001 to 1 to powers from -2 to 1 overflows float16 from 65520 on.",
    ),
    ("Selu", [half(64000)], "Selu of 64000 times up to 1.051 overflows float16 from 65520 on."),
    (
        "SeluGrad",
        [half(60000), half(-1e-3)],
        "SeluGrad of 60000 times up to 1.758 overflows float16 from 65520 on.",
    ),
    ("Lgamma", [half(60000)], "Lgamma of 60000 overflows float16 from 65520 on."),
    (
        "Xlogy",
        [half(60000), half(1e-3)],
        f"Xlogy of 60000 and a logarithm of up to {-math.log(0.00100040436):.4g} in magnitude "
        "overflows float16 from 65520 on.",
    ),
]


@pytest.mark.parametrize(("operation", "inputs", "sentence"), PRODUCTS)
def test_a_product_or_power_tells_its_factors(operation, inputs, sentence):
    check(operation, inputs, sentence)


def test_a_leaky_relu_tells_its_slope():
    sentence = "LeakyRelu of -60000 times up to 3 overflows float16 from 65520 on."
    assert reason_of("LeakyRelu", half(-60000), alpha=3.0) == sentence


SUMS_OF_TWO = [
    (
        "AddV2",
        [half(40000), half(30000)],
        "AddV2 of 40000 and 30000 overflows float16 from 65520 on.",
    ),
    (
        "Sub",
        [half(40000), half(-30000)],
        "Sub of 40000 and -30000 overflows float16 from 65520 on.",
    ),
    (
        "AddV2",
        [half(-40000), half(-30000)],
        "AddV2 of -40000 and -30000 overflows float16 from 65520 on.",
    ),
    (
        "BiasAdd",
        [tf.constant([[40000, 0]], "float16"), half(30000, 1)],
        "BiasAdd of values from 0 to 40000 and values from 1 to 30000 overflows float16 from "
        "65520 on.",
    ),
    (
        "AddN",
        [[half(30000)] * 3],
        "AddN of 30000 and 30000 and 30000 overflows float16 from 65520 on.",
    ),
    (
        "AddN",
        [[half(20000)] * 4],
        "AddN of 4 operands with magnitudes up to 20000 overflows float16 from 65520 on.",
    ),
]


@pytest.mark.parametrize(("operation", "inputs", "sentence"), SUMS_OF_TWO)
def test_a_sum_tells_its_terms(operation, inputs, sentence):
    check(operation, inputs, sentence)


GRADIENTS = [
    (
        "SqrtGrad",
        [half(0), half(1)],
        "SqrtGrad at 0: the slope of the square root there is infinite.",
    ),
    # Half of the smallest float16 is 0: NaN.
    (
        "SqrtGrad",
        [half(0), half(2.0**-24)],
        "SqrtGrad at 0: the slope of the square root there is infinite.",
    ),
    (
        "SqrtGrad",
        [half(1e-3), half(400)],
        "SqrtGrad divides half the gradient (400) by 0.001, which overflows float16 from 65520 on.",
    ),
    (
        "SqrtGrad",
        [half(*[6e-8] * 8), half(*[1e-3] * 8)],
        "SqrtGrad at 5.96e-08: the slope of the square root there overflows float16 from 65520 on.",
    ),
    (
        "RsqrtGrad",
        [half(300), half(1)],
        "RsqrtGrad multiplies the gradient (1) by half the cube of 300, which overflows float16 "
        "from 65520 on.",
    ),
    # 300 cubed times 1e-4 / 2 is 1350, but 300 squared overflows before.
    (
        "RsqrtGrad",
        [half(300), half(1e-4)],
        "RsqrtGrad multiplies the gradient (0.0001) by half the cube of 300, which overflows "
        "float16 from 65520 on.",
    ),
    (
        "ReciprocalGrad",
        [half(100, 1), half(10, -1)],
        "ReciprocalGrad multiplies the gradient (values from -1 to 10) by the square of values "
        "from 1 to 100, which overflows float16 from 65520 on.",
    ),
    (
        "SigmoidGrad",
        [half(300), half(300)],
        "SigmoidGrad multiplies the gradient (300) by the slope at outputs of 300, which "
        "overflows float16 from 65520 on.",
    ),
]


@pytest.mark.parametrize(("operation", "inputs", "sentence"), GRADIENTS)
def test_a_gradient_tells_what_it_multiplies(operation, inputs, sentence):
    check(operation, inputs, sentence)
