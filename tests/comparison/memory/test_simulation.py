from __future__ import annotations

import random

from tf_amp_kit.comparison.memory.simulation import Step, find_peak, held_bytes

MEBIBYTE = 2**20


def test_a_buffer_lives_until_its_last_reader_is_over() -> None:
    steps = [
        Step("a", makes={0: 10}),
        Step("b", (0,), (0,), {1: 20}),
        Step("c", (1,), (0, 1), {2: 5}),
        Step("d", (2,), (2,), {3: 30}),
    ]
    # At c: 10 + 20 + 5; at d only 5 + 30.
    assert find_peak(steps).size_bytes == 35
    assert find_peak(steps).position == 2


def test_what_nobody_reads_goes_at_once() -> None:
    steps = [Step("a", makes={0: 10}), Step("b", (0,), (), {1: 10})]
    assert find_peak(steps).size_bytes == 10


def test_an_elementwise_step_takes_over_what_nobody_else_reads() -> None:
    steps = [Step("a", makes={0: 10}), Step("relu", (0,), (0,), {1: 10}, may_take_over=(0,))]
    assert find_peak(steps).size_bytes == 10


def test_a_buffer_with_another_reader_is_not_taken_over() -> None:
    steps = [
        Step("a", makes={0: 10}),
        Step("relu", (0,), (0,), {1: 10}, may_take_over=(0,)),
        Step("c", (1,), (0, 1)),
    ]
    assert find_peak(steps).size_bytes == 20


def test_a_buffer_of_another_size_is_not_taken_over() -> None:
    steps = [Step("a", makes={0: 10}), Step("cast", (0,), (0,), {1: 5}, may_take_over=(0,))]
    assert find_peak(steps).size_bytes == 15


def test_a_workspace_counts_only_while_its_step_runs() -> None:
    steps = [Step("a", makes={0: 1}, workspace_bytes=7), Step("b", (0,), (0,), {1: 2})]
    assert find_peak(steps).size_bytes == 8


def test_what_is_there_before_counts_nothing() -> None:
    assert find_peak([Step("a", (), (99,), {0: 3})]).size_bytes == 3


def test_no_steps_take_nothing() -> None:
    assert find_peak([]).size_bytes == 0


def test_steps_run_when_all_they_wait_for_is_over() -> None:
    # The third waits for nothing: it runs second, and its buffer is kept all the time.
    steps = [
        Step("a", makes={0: 10}),
        Step("b", (0,), (0,), {1: 1}),
        Step("early", (), (), {2: 100}),
        Step("c", (1, 2), (1, 2), {3: 5}),
    ]
    peak = find_peak(steps)
    assert peak.size_bytes == 111
    assert peak.live == {0: 10, 1: 1, 2: 100}


def test_steps_on_two_threads_are_alive_together() -> None:
    steps = [Step("a", makes={0: MEBIBYTE}), Step("b", makes={1: MEBIBYTE})]
    assert held_bytes(steps, [], {}, threads=1) == MEBIBYTE
    assert held_bytes(steps, [], {}, threads=2) == 2 * MEBIBYTE


def test_what_is_kept_is_held_besides() -> None:
    steps = [Step("a", makes={0: MEBIBYTE})]
    assert held_bytes(steps, [3 * MEBIBYTE, 100], {}, threads=1) == 4 * MEBIBYTE + 100


def test_what_a_run_is_given_is_held_until_it_is_over() -> None:
    steps = [Step("a", makes={0: MEBIBYTE})]
    assert held_bytes(steps, [], {}, threads=1, batch=[3 * MEBIBYTE]) == 4 * MEBIBYTE


def test_a_process_holds_at_least_what_is_alive_at_the_peak() -> None:
    draw = random.Random(1)
    for _ in range(20):
        steps = [Step("a", makes={0: draw.randrange(1, 4 * MEBIBYTE)})]
        for number in range(1, 40):
            reads = tuple({draw.randrange(number), number - 1})
            size = draw.randrange(1, 4 * MEBIBYTE)
            steps.append(Step("x", reads, reads, {number: size}, may_take_over=reads))
        assert held_bytes(steps, [], {}, threads=1) >= find_peak(steps).size_bytes


def test_a_weight_that_is_still_read_is_updated_in_a_new_place() -> None:
    # The update runs while what was read of the weight is still needed, or after that.
    read = Step("read", lends={1: 7})
    early = [read, Step("update", (0,), updates=7), Step("user", (1,), (1,))]
    late = [read, Step("user", (0,), (1,)), Step("update", (1,), updates=7)]
    assert held_bytes(early, [], {7: MEBIBYTE}, threads=1) == 2 * MEBIBYTE
    assert held_bytes(late, [], {7: MEBIBYTE}, threads=1) == MEBIBYTE


def test_a_copied_weight_is_no_larger_than_the_weight() -> None:
    read = Step("read", lends={1: 7})
    steps = [read, Step("update", (0,), updates=7), Step("user", (1,), (1,))]
    # A chunk below twice the size is taken whole: 1.25 of the first 2 MiB.
    size = 5 * MEBIBYTE // 4
    assert held_bytes(steps, [], {7: size}, threads=1) <= 3 * size


def test_a_new_value_becomes_the_variable_without_a_copy() -> None:
    steps = [
        Step("value", makes={0: MEBIBYTE}),
        Step("assign", (0,), (0,), updates=7, hands_over=0),
        Step("more", (1,), makes={1: MEBIBYTE}),
    ]
    # The old place of the variable is free for what comes after.
    assert held_bytes(steps, [], {7: MEBIBYTE}, threads=1) == 2 * MEBIBYTE


def test_a_gradient_is_used_before_others_are_made() -> None:
    size = MEBIBYTE
    steps = [Step("back", makes={0: size})]
    for layer in range(4):
        before = 3 * layer
        steps.append(Step("next", (before,), (10 * layer,), {10 * (layer + 1): size}))
        steps.append(Step("gradient", (before,), (10 * layer,), {10 * layer + 1: size}))
        steps.append(Step("update", (before + 2,), (10 * layer + 1,), updates=99))
        steps[-3], steps[-1] = steps[-3], steps[-1]
    # What comes back, what goes on, and one gradient: never the four of them.
    assert find_peak(steps).size_bytes <= 3 * size
