"""What one measure says of a precision, and the sentence that tells why."""

from __future__ import annotations

import math
from typing import Final

from tf_amp_kit.comparison.training.record.parts import (
    BETTER,
    EQUAL,
    UNDECIDED,
    WORSE,
    Difference,
)

__all__ = ["outcome_of"]

# Where the seeds of float32 differ by more than this share of what was learned, a loss of
# as much would go unseen.
_COARSEST: Final = 0.1


def outcome_of(one: Difference, tolerance: float) -> tuple[str, str]:
    """Judges one measure.

    Args:
        one: How it differs.
        tolerance: What is accepted in any case, as a share of what float32 learned.

    Returns:
        The outcome, and why.
    """
    if math.isinf(one.bound):
        return UNDECIDED, (
            "What float32 differs by between seeds is not known: fewer than two of its runs are "
            "finished."
        )
    accepted, finest = one.accepted(tolerance), _COARSEST * max(one.learned, 0.0)
    size = abs(one.worsening)
    is_little = one.spread > finest or one.learned <= 0
    if is_little and size <= one.bound + abs(one.learned) + abs(one.reference):
        return UNDECIDED, _too_little(one)
    if not size <= one.resolution(tolerance):  # NaN among them
        outcome = BETTER if one.worsening < 0 else WORSE
        return outcome, f"{_values(one)}: {outcome} by {_amount(one)}; {_spread(one)}."
    if size > max(one.spread, accepted) and one.bound > finest:
        return UNDECIDED, _too_coarse(one)
    is_excused = size > one.bound
    excuse = f", but the tolerance accepts {accepted:.2g}" if is_excused else ""
    return EQUAL, (
        f"{_values(one)}: a difference of {_amount(one)}; {_spread(one)}{excuse}. Losing more "
        f"than {one.resolution(tolerance):.2g} would have shown."
    )


def _values(one: Difference) -> str:
    return f"{one.measure} is {one.value:.4g} where float32 has {one.reference:.4g}"


def _amount(one: Difference) -> str:
    amount = f"{abs(one.worsening):.2g}"
    share = abs(one.share)
    return f"{amount}, {100 * share:.2g} % of what float32 learned" if share < math.inf else amount


def _spread(one: Difference) -> str:
    if not one.spread:
        return "between seeds float32 itself does not differ"
    return (
        f"between seeds float32 itself differs by {one.spread:.2g} (standard deviation), which "
        f"makes up to {one.bound:.2g} for so few"
    )


def _too_little(one: Difference) -> str:
    if one.learned <= 0:
        return (
            f"float32 itself learned nothing: its {one.measure} ended {abs(one.learned):.2g} worse "
            "than it began. Train more steps, or look at the learning rate."
        )
    return (
        f"float32 itself gained {one.learned:.2g} in {one.measure}, and its seeds differ by "
        f"{one.spread:.2g} (standard deviation), {one.spread / one.learned:.0%} of it: half "
        "precision could lose as much unseen. Train more steps, until the seeds agree."
    ).replace("%", " %")


def _too_coarse(one: Difference) -> str:
    return (
        f"{_values(one)}: a difference of {_amount(one)}, more than the {one.spread:.2g} between "
        f"seeds of float32 (standard deviation), but up to {one.bound:.2g} may be chance with so "
        "few. Compare with more seeds."
    )
