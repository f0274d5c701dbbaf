"""Operands that are infinite on purpose, constants that half precision changed, and the rest."""

import math

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.inspection.nonfinite.operations import full, half, reason_of, single
from tf_amp_kit.inspection.nonfinite.operand import Operand
from tf_amp_kit.inspection.nonfinite.reasons import explain

INF, NAN = math.inf, math.nan

MEETINGS = [
    ("Sub", [half(-INF), half(-INF)], "Sub of two infinities of the same sign is NaN."),
    (
        "SquaredDifference",
        [half(INF), half(INF)],
        "SquaredDifference of two infinities of the same sign is NaN.",
    ),
    ("AddV2", [half(-INF), half(INF)], "AddV2 of inf and -inf is NaN."),
    ("AddN", [[half(-INF), half(1), half(INF)]], "AddN of inf and -inf is NaN."),
    ("Mul", [half(0, 1), half(-INF, 1)], "Mul of 0 and infinity is NaN."),
    ("RealDiv", [half(INF), half(-INF)], "RealDiv of infinity by infinity is NaN."),
    (
        "RealDiv",
        [half(INF, 0, 0), half(INF, 1, 0)],
        "RealDiv: 0 / 0 or infinity by infinity is NaN.",
    ),
    ("FloorMod", [half(INF), half(2)], "FloorMod of infinity is NaN."),
    ("Sin", [half(INF)], "Sin of infinity is NaN."),
    ("Sqrt", [half(-INF)], "Sqrt of -inf is NaN."),
    ("Sum", [half(INF, -INF, 1), tf.constant(0)], "Sum over inf and -inf is NaN."),
    ("Prod", [half(INF, 0), tf.constant(0)], "Prod over 0 and infinity is NaN."),
    (
        "MatMul",
        [full([1, 2], -INF), full([2, 1], 0.0)],
        "MatMul: 0 times infinity or a sum of inf and -inf is NaN.",
    ),
    ("MatMul", [full([1, 1], -INF), full([1, 1], 0.0)], "MatMul: 0 times infinity is NaN."),
    (
        "MatMul",
        [full([1, 2], -INF), tf.constant([[1], [-1]], "float16")],
        "MatMul: a sum of inf and -inf is NaN.",
    ),
    (
        "TanhGrad",
        [half(1), half(INF)],
        "TanhGrad of an infinite gradient: 0 times infinity is NaN.",
    ),
    (
        "ReluGrad",
        [half(INF), half(-1)],
        "ReluGrad of an infinite gradient: 0 times infinity is NaN.",
    ),
    ("EluGrad", [half(INF), half(-1)], "EluGrad of an infinite gradient: 0 times infinity is NaN."),
    (
        "SoftplusGrad",
        [half(INF), half(-300)],
        "SoftplusGrad of an infinite gradient: 0 times infinity is NaN.",
    ),
    ("Xlogy", [half(1), half(-INF)], "Xlogy: the logarithm of -inf is NaN."),
    ("DivNoNan", [half(INF), half(INF)], "DivNoNan of infinity by infinity is NaN."),
    (
        "Softmax",
        [tf.constant([[-INF, -INF], [1, -INF]], "float16")],
        "Softmax of a row that holds nothing but -inf is NaN.",
    ),
    ("Softmax", [tf.constant([[INF, 1]], "float16")], "Softmax of a row that holds inf is NaN."),
    (
        "LogSoftmax",
        [tf.constant([[-INF, -INF]], "float16")],
        "LogSoftmax of a row that holds nothing but -inf is NaN.",
    ),
    ("LogSoftmax", [tf.constant([[-INF, 1.0]])], "LogSoftmax of -inf is -inf."),
    (
        "SoftmaxCrossEntropyWithLogits",
        [tf.constant([[-INF, 1.0]]), tf.constant([[0.0, 1.0]])],
        "SoftmaxCrossEntropyWithLogits: a label of 0 times a logit of -inf is NaN.",
    ),
    (
        "SparseSoftmaxCrossEntropyWithLogits",
        [tf.constant([[-INF, 1.0]]), tf.constant([0])],
        "SparseSoftmaxCrossEntropyWithLogits of a logit of -inf is infinite where it is the "
        "label's.",
    ),
]


@pytest.mark.parametrize(("operation", "inputs", "sentence"), MEETINGS)
def test_infinities_that_meet_are_told(operation, inputs, sentence):
    assert reason_of(operation, *inputs) == sentence


def test_an_infinite_operand_makes_an_overflow_only_possible():
    # The infinity alone would do, and ranges do not tell whether 300 meets 300.
    sentence = (
        "Mul of values from 1 to 300 and values from 1 to 300 can overflow float16 from 65520 "
        "on, and an operand is infinite."
    )
    assert reason_of("Mul", half(INF, 300, 1), half(1, 1, 300)) == sentence


def test_a_sum_over_nan_is_not_called_an_overflow():
    assert reason_of("Sum", half(NAN, 6e4, 6e4), tf.constant(0)) == (
        "Sum of float16 60000, NaN and int32 0 is not finite."
    )


def explained(operation, operands, result, **attributes):
    return explain(operation, operands, Operand.of(result), attributes.get)


def test_the_epsilon_that_vanished_is_named_with_the_division_by_zero():
    zeros = np.zeros(4, "float16")
    divisor = Operand.of(zeros, constant=1e-8, constant_source="loss.py:14")
    with np.errstate(invalid="ignore"):
        result = zeros / zeros
    assert explained("RealDiv", [Operand.of(zeros), divisor], result) == (
        "RealDiv by 0: 0 / 0 is NaN; the constant 1e-08 (loss.py:14) that should prevent it is 0 "
        "in float16. Use tf_amp_kit.safe_epsilon."
    )


def test_an_epsilon_that_the_format_holds_is_not_blamed():
    # 1e-7 is subnormal in float16, and 1e-8 is normal in bfloat16.
    zeros = np.zeros(4, ml_dtypes.bfloat16)
    operand = Operand.of(zeros, constant=1e-8)
    assert explained("Log", [operand], np.float32(-INF)) == "Log of 0 is -inf."


def test_a_widened_operand_names_the_format_in_which_the_epsilon_vanished():
    operand = Operand.of(np.zeros(4, "float32"), constant=1e-8)
    assert explained("Log", [operand], np.float32(-INF)) == (
        "Log of 0 is -inf; the constant 1e-08 that should prevent it is 0 in float16. "
        "Use tf_amp_kit.safe_epsilon."
    )


def test_a_bound_that_became_one_is_named():
    operand = Operand.of(np.ones(1, "float16"), constant=0.99999999, constant_source="a.py:3")
    assert explained("Atanh", [operand], np.float16(INF)) == (
        "Atanh of 1 is inf; the constant 0.99999999 (a.py:3) is 1 in float16."
    )


def test_a_constant_that_the_format_cannot_hold_is_told_with_the_way_out():
    result = Operand.of(np.float16(-INF), constant=-1e9, constant_source="mask.py:3")
    assert explain("Const", [], result, {}.get) == (
        "Const: -1e+09 is -inf in float16. Use tf_amp_kit.safe_mask_value."
    )


def test_a_constant_that_is_infinite_in_the_code_is_told_as_it_is():
    assert explained("Const", [], np.float16(-INF)) == "Const holds infinity."


def test_a_mask_that_became_infinite_is_named_where_it_meets_zero():
    mask = Operand.of(np.float16(-INF), constant=-1e9, constant_source="mask.py:3")
    assert explained("Mul", [Operand.of(np.float16(0)), mask], np.float16(NAN)) == (
        "Mul of 0 and infinity is NaN; the constant -1e+09 (mask.py:3) is -inf in float16. "
        "Use tf_amp_kit.safe_mask_value."
    )


def test_an_infinite_operand_that_is_passed_on_is_told_with_its_constant():
    mask = Operand.of(np.float16(-INF), constant=-1e9, constant_source="mask.py:3")
    assert explained("AddV2", [Operand.of(np.float16(3)), mask], np.float16(-INF)) == (
        "AddV2 of float16 3 and float16 infinity is not finite; the constant -1e+09 (mask.py:3) "
        "is -inf in float16. Use tf_amp_kit.safe_mask_value."
    )


GENERIC = [
    ("Xyz", [half(-3, 12)], "Xyz of float16 values from -3 to 12 is not finite."),
    ("Xyz", [], "Xyz is not finite."),
    # Nothing in the range overflows: no other reason is made up.
    ("Exp", [half(-3, 11)], "Exp of float16 values from -3 to 11 is not finite."),
    ("Cast", [single(65519)], "Cast of float32 65519 is not finite."),
    ("Log", [single(1, 2)], "Log of float32 values from 1 to 2 is not finite."),
    ("RealDiv", [half(5), half(2)], "RealDiv of float16 5 and float16 2 is not finite."),
    ("MatMul", [half(1), half(1)], "MatMul of float16 1 and float16 1 is not finite."),
    ("Sqrt", [half(NAN, 1)], "Sqrt of float16 1, NaN is not finite."),
    ("Mul", [half(NAN), half(NAN)], "Mul of float16 NaN and float16 NaN is not finite."),
    (
        "Pack",
        [half(1), half(2), half(3), half(4), half(5)],
        "Pack of float16 1 and float16 2 and float16 3 and 2 more is not finite.",
    ),
]


@pytest.mark.parametrize(("operation", "inputs", "sentence"), GENERIC)
@pytest.mark.parametrize("bad", [NAN, INF])
def test_what_no_cause_is_true_of_gets_its_ranges(operation, inputs, sentence, bad):
    operands = [Operand.of(tensor.numpy()) for tensor in inputs]
    assert explained(operation, operands, np.float16(bad)) == sentence


def test_one_masked_logit_is_no_masked_row():
    logits = Operand.of(np.float16([[-INF, 1]]))
    assert explained("Softmax", [logits], np.float16([[NAN, NAN]])) == (
        "Softmax of float16 1, infinity is not finite."
    )


def test_a_value_that_would_make_nan_is_no_reason_for_infinity():
    operands = [Operand.of(np.float16(5)), Operand.of(np.float16(0))]
    assert explained("FloorMod", operands, np.float16(INF)) == (
        "FloorMod of float16 5 and float16 0 is not finite."
    )


def test_operands_that_are_missing_make_no_error():
    assert explained("Mul", [], np.float16(INF)) == "Mul is not finite."


def test_a_result_of_another_kind_gets_its_ranges():
    operand = Operand.of(np.float32([1, 2]))
    assert explained("FFT", [operand], np.complex64(NAN)) == (
        "FFT of float32 values from 1 to 2 is not finite."
    )
