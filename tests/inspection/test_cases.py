"""The audit finds each mistake once, at its line, and nothing else."""

import functools
import re

import keras
import pytest

from tf_amp_kit.inspection.audit import audit_layer_dtypes

from .cases_conflict import CONFLICTS, MISSING_KERNELS
from .cases_constants import CONSTANTS
from .cases_heads import FLOAT32_HEADS, HEADS
from .cases_optimizers import OPTIMIZERS
from .cases_outside import OUTSIDE_LAYERS
from .cases_reverting import REVERTING, WIDE_INSIDE
from .expect import check


def each(cases):
    """Parametrise a test over cases and the formats for which they hold."""
    pairs = [(case, half) for case in cases for half in case.halves]
    ids = [f"{case.name}-{half}" for case, half in pairs]
    return pytest.mark.parametrize(("case", "half"), pairs, ids=ids)


def audit(case, half):
    """Audit a case's model under the case's global policy."""
    keras.config.set_dtype_policy(case.policy.format(half=half))
    subject = functools.partial(case.build, half) if case.as_builder else case.build(half)
    return audit_layer_dtypes(subject, verbose=0, **case.audit)


@each(REVERTING)
def test_a_silent_reversion_is_found_at_its_line(case, half):
    check(audit(case, half), case.expected, case.tolerated)


@each(WIDE_INSIDE)
def test_wide_compute_behind_a_half_output_is_found(case, half):
    check(audit(case, half), case.expected, case.tolerated)


@each(CONFLICTS)
def test_conflicting_dtypes_are_a_finding_and_no_crash(case, half):
    check(audit(case, half), case.expected, case.tolerated)


@each(MISSING_KERNELS)
def test_a_missing_kernel_is_a_finding_and_no_crash(case, half):
    report = audit(case, half)
    check(report, case.expected)
    assert [finding.code for finding in report.findings].count("AMP401") == len(case.expected)


@each(OUTSIDE_LAYERS)
def test_operations_outside_layers_are_watched(case, half):
    check(audit(case, half), case.expected, case.tolerated)


@each(HEADS)
def test_a_half_output_is_told(case, half):
    check(audit(case, half), case.expected)


@each(FLOAT32_HEADS)
def test_a_float32_head_leaves_nothing_to_tell(case, half):
    check(audit(case, half), allowed=frozenset({"AMP108"}))


# NumPy says so too while the constant is being made.
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@each(CONSTANTS)
def test_constants_that_the_format_cannot_hold_are_found(case, half):
    check(audit(case, half), case.expected)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_the_fix_of_a_mask_suggests_a_safe_value():
    case = next(case for case in CONSTANTS if case.name == "WhereMask")
    (finding,) = (one for one in audit(case, "float16").findings if one.code == "AMP204")
    assert re.search(r"safe_mask_value|-\d", finding.fix)


@each(OPTIMIZERS)
def test_float16_without_loss_scaling_is_found(case, half):
    check(audit(case, half), case.expected)


def test_the_rows_show_where_the_model_is_wide(half):
    case = next(case for case in REVERTING if case.name == "HiddenCast in a nested sequential")
    rows = {row.path: row for row in audit(case, half).rows}
    row = rows["block/fault"]
    assert (row.layer_class, row.policy) == ("HiddenCast", f"mixed_{half}")
    assert set(row.output_dtypes) == {"float32"}


def test_what_a_mistake_touches_hangs_on_the_one_finding(half):
    case = next(case for case in REVERTING if case.name == "passed on by the layers after it")
    report = audit(case, half)
    (finding,) = (finding for finding in report.findings if finding.code == "AMP101")
    assert {"first", "second"} <= set(finding.affects)


def test_a_second_audit_of_the_same_model_says_the_same(half):
    case = next(case for case in REVERTING if case.name == "WideWeight in a model of dicts")
    model = case.build(half)
    first, second = (audit_layer_dtypes(model, verbose=0).findings for _ in range(2))
    assert first == second


def test_ignored_codes_are_not_reported(half):
    case = next(case for case in REVERTING if case.name == "HiddenCast")
    report = audit_layer_dtypes(case.build(half), verbose=0, ignore=("AMP101",))
    check(report)
