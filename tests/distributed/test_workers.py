"""MultiWorkerMirroredStrategy in real processes: no worker waits for one that skips."""

from __future__ import annotations

import itertools

import pytest

from tests.distributed.processes import Run

NUM_STEPS = 4
ONES = [1.0, 1.0, 1.0]


@pytest.fixture(params=[2, 3])
def cluster(request: pytest.FixtureRequest) -> Run:
    names = {2: "two_workers", 3: "three_workers"}
    return request.getfixturevalue(names[request.param])


def num_workers(run: Run) -> int:
    return len(run.results)


def pairs(run: Run) -> list[tuple[int, int]]:
    return list(itertools.product(range(num_workers(run)), range(NUM_STEPS)))


def weight_without(run: Run, *bad_steps: int) -> float:
    """SGD(0.25) from 1 on gradients of 1, 2, 3 and 4 on each worker, without some."""
    good = sum(step + 1 for step in range(NUM_STEPS) if step not in bad_steps)
    return 1 - 0.25 * num_workers(run) * good


def test_worker_1_bad_at_step_0_gives_the_weights_of_l3(two_workers: Run):
    # 1 - 0.25 * 2 * (2 + 3 + 4)
    weights = [seen["weights"] for seen in two_workers.values("bad 1 at 0")]
    assert weights == [[[-3.5, -3.5, -3.5]]] * 2


def test_worker_1_bad_at_step_0_gives_the_iterations_of_l3(two_workers: Run):
    iterations = [seen["iterations of steps"] for seen in two_workers.values("bad 1 at 0")]
    assert iterations == [[0, 1, 2, 3]] * 2


def test_worker_1_bad_at_step_0_gives_the_scale_of_l3(two_workers: Run):
    assert [seen["scale"] for seen in two_workers.values("bad 1 at 0")] == [4.0] * 2


def test_no_worker_hangs_or_fails(cluster: Run):
    assert cluster.exit_codes == [0] * num_workers(cluster), cluster.output()


def test_whoever_is_bad_at_whichever_step_all_skip_that_step(cluster: Run):
    weights = {
        pair: [seen["weights"] for seen in cluster.values("bad {} at {}".format(*pair))]
        for pair in pairs(cluster)
    }
    expected = {
        (worker, step): [[[weight_without(cluster, step)] * 3]] * num_workers(cluster)
        for worker, step in pairs(cluster)
    }
    assert weights == expected


def test_whoever_is_bad_at_whichever_step_all_halve_the_scale_once(cluster: Run):
    scales = {
        seen["scale"]
        for pair in pairs(cluster)
        for seen in cluster.values("bad {} at {}".format(*pair))
    }
    assert scales == {4.0}


def test_whoever_is_bad_at_whichever_step_iterations_stand_still_there(cluster: Run):
    by_step = [[0, 1, 2, 3], [1, 1, 2, 3], [1, 2, 2, 3], [1, 2, 3, 3]]
    seen = {
        (worker, step): cluster.value(f"bad {worker} at {step}", worker)["iterations of steps"]
        for worker, step in pairs(cluster)
    }
    assert seen == {(worker, step): by_step[step] for worker, step in pairs(cluster)}


@pytest.mark.parametrize("step", range(NUM_STEPS))
def test_all_bad_at_once_is_one_skip(cluster: Run, step: int):
    skipped = [seen["skipped_steps"] for seen in cluster.values(f"all bad at {step}")]
    assert skipped == [1] * num_workers(cluster)


@pytest.mark.parametrize("step", range(NUM_STEPS))
def test_all_bad_at_once_skip_that_step(cluster: Run, step: int):
    weights = [seen["weights"] for seen in cluster.values(f"all bad at {step}")]
    assert weights == [[[weight_without(cluster, step)] * 3]] * num_workers(cluster)


def test_each_bad_at_another_step_skips_them_all(cluster: Run):
    bad = range(num_workers(cluster))
    weights = [seen["weights"] for seen in cluster.values("each bad at another step")]
    assert weights == [[[weight_without(cluster, *bad)] * 3]] * num_workers(cluster)


@pytest.mark.parametrize("case", ["eager, bad at 0", "without build"])
def test_a_worker_bad_in_the_first_step_of_all_hurts_nobody(cluster: Run, case: str):
    weights = [seen["weights"] for seen in cluster.values(case)]
    assert weights == [[[weight_without(cluster, 0)] * 3]] * num_workers(cluster)


def test_a_good_step_is_sgd_on_the_sum_over_workers(cluster: Run):
    # Gradients of 1 and 2, and of 3 where there is a third worker.
    weight = {2: 0.25, 3: -0.5}[num_workers(cluster)]
    weights = [seen["weights"] for seen in cluster.values("different gradients")]
    assert weights == [[[weight] * 3]] * num_workers(cluster)


def test_finite_gradients_with_an_infinite_sum_are_skipped_by_all(cluster: Run):
    weights = [seen["weights"] for seen in cluster.values("sum overflows")]
    assert weights == [[ONES]] * num_workers(cluster)


def test_slices_of_all_workers_add_up(cluster: Run):
    # Row 1 is read twice by worker 0, rows 1 and 3 once by each other one.
    others = num_workers(cluster) - 1
    rows = [[1.0, 1.0], [-1.0 - others] * 2, [1.0, 1.0], [1.0 - others] * 2]
    weights = [seen["weights"] for seen in cluster.values("sparse good")]
    assert weights == [[rows]] * num_workers(cluster)


def test_bad_slices_of_one_worker_keep_every_row_on_all(cluster: Run):
    weights = [seen["weights"] for seen in cluster.values("sparse bad")]
    assert weights == [[[[1.0, 1.0]] * 4]] * num_workers(cluster)


def test_a_skip_keeps_every_bit_of_weights_slots_and_averages(cluster: Run):
    kept = [seen["after"] == seen["before"] for seen in cluster.values("slots")]
    assert kept == [True] * num_workers(cluster)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_a_skip_gives_each_worker_its_own_statistics_back(cluster: Run, mode: str):
    # Worker w sees mean 4 * w + 1; the statistics go half of the way to it.
    means = [[step["mean"] for step in steps] for steps in cluster.values(f"statistics {mode}")]
    seen_by = [4.0 * worker + 1 for worker in range(num_workers(cluster))]
    assert means == [[[[part * mean]] for part in (0.5, 0.5, 0.75)] for mean in seen_by]


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_too_many_skips_raise_on_all_workers_at_the_same_step(cluster: Run, mode: str):
    raised = [
        [error is not None for error in seen["errors"]] for seen in cluster.values(f"stuck {mode}")
    ]
    assert raised == [[False, False, True, True]] * num_workers(cluster)


@pytest.mark.parametrize(
    ("mode", "error"), [("eager", "TrainingStuckError"), ("graph", "InvalidArgumentError")]
)
def test_too_many_skips_raise_the_same_error_on_all_workers(cluster: Run, mode: str, error: str):
    classes = [seen["errors"][2]["class"] for seen in cluster.values(f"stuck {mode}")]
    assert classes == [error] * num_workers(cluster)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_the_error_of_any_worker_says_what_happened(cluster: Run, mode: str):
    texts = [seen["errors"][2]["text"] for seen in cluster.values(f"stuck {mode}")]
    said = ["in each of them a gradient was not finite" in text for text in texts]
    assert said == [True] * num_workers(cluster)


def test_the_step_that_raises_gives_each_worker_its_statistics_back_first(cluster: Run):
    seen = [
        (seen["raised"], seen["before"]["mean"], seen["after"]["mean"])
        for seen in cluster.values("statistics of the step that raises")
    ]
    means = [[[0.5 * (4.0 * worker + 1)]] for worker in range(num_workers(cluster))]
    assert seen == [(True, mean, mean) for mean in means]


def test_workers_still_meet_after_the_error(cluster: Run):
    weights = [seen["weights"] for seen in cluster.values("good after stuck")]
    assert weights == [[[weight_without(cluster)] * 3]] * num_workers(cluster)


def test_the_train_step_of_keras_skips_a_batch_that_is_bad_on_one_worker(cluster: Run):
    # Each good batch halves the weight: the loss is its square.
    weights = [seen["weights"] for seen in cluster.values("train step of Keras")]
    assert weights == [[[[0.25]]]] * num_workers(cluster)


@pytest.mark.parametrize("optimizer", ["plain", "scaled"])
def test_fit_fails_in_keras_itself_with_any_optimizer(cluster: Run, optimizer: str):
    # F47. Where it works with a new Keras, ours must be seen to work in it.
    errors = [seen[optimizer] for seen in cluster.values("fit")]
    seen = [(error["class"], "a value (PerReplica:" in error["text"]) for error in errors]
    assert seen == [("ValueError", True)] * num_workers(cluster)
