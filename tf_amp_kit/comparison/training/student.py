"""How far a mean of few numbers may be off by chance."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["student_t"]

_NUM_POINTS = 2001
_NUM_HALVINGS = 60


def student_t(degrees: int, error_rate: float) -> float:
    """Returns how many standard errors hold all but a share of the means of few numbers.

    Student's t distribution, from the integral over an angle: with t = sqrt(n) tan(a), the
    share between -t and t is the integral of cos(x)^(n - 1) from 0 to a over that from 0
    to a right angle.

    Args:
        degrees: The degrees of freedom n; infinite for 0 of them.
        error_rate: The share that lies outside, on both sides together, above 0.

    Returns:
        The quantile, to four digits.

    Example:

    >>> round(student_t(2, 0.05), 3), round(student_t(30, 0.05), 3), student_t(0, 0.05)
    (4.303, 2.042, inf)
    """
    if degrees < 1:
        return math.inf
    whole = _integral(math.pi / 2, degrees - 1)
    low, high = 0.0, math.pi / 2
    for _ in range(_NUM_HALVINGS):
        angle = (low + high) / 2
        is_inside = _integral(angle, degrees - 1) < (1 - error_rate) * whole
        low, high = (angle, high) if is_inside else (low, angle)
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _integral(angle: float, power: int) -> float:
    """Integrates a power of the cosine from 0 to an angle, by Simpson's rule."""
    points, step = np.linspace(0, angle, _NUM_POINTS, retstep=True)
    values = np.cos(points) ** power
    weights = np.where(np.arange(_NUM_POINTS) % 2, 4.0, 2.0)
    weights[[0, -1]] = 1.0
    return float(values @ weights * step / 3)
