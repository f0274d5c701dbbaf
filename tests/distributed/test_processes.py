"""The harness: it ends what hangs, and tells what happened."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.distributed import processes
from tests.distributed.processes import Run, cluster_configs, run_module


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.5)


def misbehave(kind: str, folder: Path, *, seconds: float = 60.0, workers: int | None = None) -> Run:
    return run_module(
        "tests.distributed.misbehaving",
        kind,
        folder=folder,
        num_workers=workers,
        time_limit_seconds=seconds,
    )


def is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def all_have_gone(groups: list[int]) -> bool:
    # Whoever inherits an orphan takes its time to bury it.
    deadline = time.monotonic() + 10
    while any(map(is_alive, groups)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(is_alive, groups))


def test_a_process_that_hangs_is_killed_soon_after_the_time_limit(tmp_path: Path):
    assert misbehave("hang", tmp_path, seconds=1.0).seconds < 20


def test_nothing_is_left_of_a_process_that_hangs(tmp_path: Path):
    run = misbehave("hang", tmp_path, seconds=1.0)
    assert all_have_gone([run.value("group")])


def test_a_worker_that_fails_ends_the_others(tmp_path: Path):
    run = misbehave("let one fail", tmp_path, workers=2)
    assert all_have_gone(run.values("group"))


def test_a_worker_that_fails_ends_the_run_before_the_time_limit(tmp_path: Path):
    assert misbehave("let one fail", tmp_path, workers=2).seconds < 30


def test_exit_codes_tell_who_failed_and_who_was_killed(tmp_path: Path):
    assert misbehave("let one fail", tmp_path, workers=2).exit_codes == [3, -9]


def test_processes_are_killed_when_the_test_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    started = []

    def interrupt(running: list[subprocess.Popen[bytes]], deadline: float) -> None:
        started.extend(process.pid for process in running)
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "_wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        misbehave("hang", tmp_path, workers=2)
    assert all_have_gone(started)


def test_a_case_that_was_not_finished_fails_with_the_output(tmp_path: Path):
    run = misbehave("end", tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"did not finish 'absent'(.|\n)*about to end"):
        run.value("absent")


def test_a_case_that_failed_fails_with_its_traceback(tmp_path: Path):
    run = misbehave("end", tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"failed in 'fails'\.\nTraceback: it failed"):
        run.value("fails")


def test_each_worker_has_its_own_place_in_the_cluster(tmp_path: Path):
    run = misbehave("end", tmp_path, workers=2)
    tasks = [json.loads(seen["TF_CONFIG"])["task"] for seen in run.values("environment")]
    assert tasks == [{"type": "worker", "index": 0}, {"type": "worker", "index": 1}]


def test_one_process_is_in_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert "TF_CONFIG" not in misbehave("end", tmp_path).value("environment")


def test_workers_listen_at_different_ports():
    cluster = json.loads(cluster_configs(3)[0])["cluster"]["worker"]
    assert len(set(cluster)) == 3


def test_a_port_in_use_is_not_chosen(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as taken:
        taken.bind(("", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(processes, "PORTS", range(port, port + 1))
        with pytest.raises(RuntimeError, match="No 1 free ports"):
            cluster_configs(1)
