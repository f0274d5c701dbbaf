"""The judgement of a row of readings, without any training."""

from itertools import pairwise

import pytest

from tf_amp_kit.inspection.readings import Interval, Trend
from tf_amp_kit.precision.loss_scaling.state import LossScaleState


def intervals(*reads):
    """From (scale, applied, skipped) triples to what lies between them."""
    states = [LossScaleState(*read) for read in reads]
    return [Interval(*pair) for pair in pairwise(states)]


def told(trend, reads):
    """The number of messages after each interval."""
    return [len(list(trend.add(one))) for one in intervals(*reads)]


def test_an_interval_without_a_step_has_a_rate_of_0():
    (interval,) = intervals((1.0, 5, 5), (1.0, 5, 5))
    assert (interval.steps, interval.skip_rate) == (0, 0.0)


def test_counts_that_went_back_are_no_negative_steps():
    (interval,) = intervals((1.0, 5, 5), (1.0, 0, 2))
    assert (interval.applied, interval.skipped, interval.skip_rate) == (0, 0, 0.0)


def test_one_good_reading_between_bad_ones_is_not_staying_above():
    reads = [(8.0, 0, 0), (8.0, 1, 1), (8.0, 2, 2), (8.0, 4, 2), (8.0, 5, 3), (8.0, 6, 4)]
    trend = Trend("loss_scale", max_skip_rate=0.4, min_scale=None)
    assert told(trend, reads) == [0, 0, 0, 0, 0]
    assert told(trend, [(8.0, 6, 4), (8.0, 7, 5)]) == [1]


def test_a_reading_without_steps_neither_counts_nor_breaks_the_row():
    reads = [(8.0, 0, 0), (8.0, 0, 1), (8.0, 0, 1), (8.0, 0, 2), (8.0, 0, 2), (8.0, 0, 3)]
    trend = Trend("loss_scale", max_skip_rate=0.4, min_scale=None)
    assert told(trend, reads) == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(("lowest", "expected"), [(1.0, 1), (0.5, 0)])
def test_only_the_minimum_itself_is_the_minimum(lowest, expected):
    reads = [(2.0, 0, 0), (1.0, 1, 1), (1.0, 2, 1), (1.0, 3, 1)]
    trend = Trend("loss_scale", max_skip_rate=None, min_scale=lowest)
    assert told(trend, reads) == [0, 0, expected]


def test_both_causes_are_told_each_once():
    reads = [(1.0, 0, skipped) for skipped in range(6)]
    trend = Trend("loss_scale", max_skip_rate=0.5, min_scale=1.0)
    assert told(trend, reads) == [0, 0, 2, 0, 0]
