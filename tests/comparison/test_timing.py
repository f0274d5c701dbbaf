"""Interleaved timing, with a clock that the test moves."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence

import pytest

from tf_amp_kit.comparison.timing import Quartiles, StepTimes, time_interleaved


class Clock:
    """Stands still but for the runs, which take the seconds that they are given."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.now

    def run(self, name: str, seconds: Sequence[float]) -> Callable[[], None]:
        durations = iter(seconds)

        def run() -> None:
            self.calls.append(name)
            self.now += next(durations)

        return run


def rounds(calls: Sequence[str], size: int) -> list[str]:
    return ["".join(calls[i : i + size]) for i in range(0, len(calls), size)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], (7.0, 7.0, 7.0)),
        ([2.0, 1.0], (1.25, 1.5, 1.75)),
        ([5.0, 1.0, 4.0, 2.0, 3.0], (2.0, 3.0, 4.0)),
        ((i for i in [0.0, 4.0]), (1.0, 2.0, 3.0)),
    ],
)
def test_quartiles_are_between_values_in_proportion(values: object, expected: object) -> None:
    one = Quartiles.of(values)
    assert (one.low, one.median, one.high) == expected


def test_quartiles_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one duration"):
        Quartiles.of([])


def test_each_run_gets_the_quartiles_of_its_own_seconds_without_the_warm_up() -> None:
    clock = Clock()
    runs = {
        "a": clock.run("a", [90.0, 1.0, 2.0, 3.0]),
        "b": clock.run("b", [90.0, 10.0, 20.0, 30.0]),
    }
    times = time_interleaved(runs, max_rounds=3, budget_seconds=1e9, num_warm_ups=1, clock=clock)
    assert times.num_rounds == 3
    assert times.quartiles == {"a": Quartiles(1.5, 2.0, 2.5), "b": Quartiles(15.0, 20.0, 25.0)}


def test_rounds_come_in_every_order_in_turn() -> None:
    clock = Clock()
    runs = {name: clock.run(name, [1.0] * 9) for name in "abc"}
    time_interleaved(runs, max_rounds=7, budget_seconds=1e9, num_warm_ups=2, clock=clock)
    expected = ["abc", "acb", "bac", "bca", "cab", "cba", "abc", "acb", "bac"]
    assert rounds(clock.calls, 3) == expected


@pytest.mark.parametrize(
    ("budget", "num_rounds"), [(0.0, 3), (5.0, 3), (8.0, 4), (8.5, 5), (11.9, 6), (1e9, 6)]
)
def test_no_round_starts_after_the_budget_but_three_are_made(
    budget: float, num_rounds: int
) -> None:
    clock = Clock()
    # Of two seconds each, after a warm-up of a hundred that does not count.
    runs = {
        "a": clock.run("a", [50.0, 50.0, *[1.0] * 6]),
        "b": clock.run("b", [0.0, 0.0] + [1.0] * 6),
    }
    times = time_interleaved(runs, max_rounds=6, budget_seconds=budget, num_warm_ups=2, clock=clock)
    assert times.num_rounds == num_rounds


def test_fewer_rounds_than_three_are_made_if_no_more_are_allowed() -> None:
    clock = Clock()
    runs = {"a": clock.run("a", [1.0] * 4)}
    times = time_interleaved(runs, max_rounds=1, budget_seconds=0.0, clock=clock)
    assert (times.num_rounds, len(clock.calls)) == (1, 3)


def test_no_round_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one round"):
        time_interleaved({}, max_rounds=0, budget_seconds=1.0)


def test_garbage_is_not_collected_meanwhile_and_is_again_afterwards() -> None:
    seen: list[bool] = []
    time_interleaved(
        {"a": lambda: seen.append(gc.isenabled())}, max_rounds=2, budget_seconds=1.0, num_warm_ups=1
    )
    assert (seen, gc.isenabled()) == ([False] * 3, True)


def test_collecting_is_on_again_after_an_error() -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        time_interleaved({"a": fail}, max_rounds=1, budget_seconds=1.0)
    assert gc.isenabled()


def test_collecting_that_the_user_switched_off_stays_off() -> None:
    gc.disable()
    try:
        time_interleaved({"a": int}, max_rounds=1, budget_seconds=1.0)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_step_times_are_dictionaries_of_numbers() -> None:
    one = Quartiles(1.0, 2.0, 3.0)
    content = StepTimes("forward pass", 5, one, one, one).to_dict()
    assert content["planned"] == {"low": 1.0, "median": 2.0, "high": 3.0}
    assert math.isclose(content["num_rounds"], 5)
