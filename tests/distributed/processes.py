"""Starts processes for the tests that pytest's own process cannot hold.

Logical devices and a worker's place in a cluster are fixed before TensorFlow
starts, and in pytest's process it has started. So the cases of a group run in
processes of their own, one per worker, and leave a line of JSON for each case.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

# Below the ports that systems give to outgoing connections, so that none takes
# one between its choice and its use: TensorFlow needs seconds to start.
PORTS = range(20_000, 32_000)

# A process that hangs shows its stacks and ends by itself after the time limit;
# this much later it is killed.
GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Run:
    """What the processes of a run left behind.

    Attributes:
        results: For each worker, what `cases.run_all` wrote by case.
        outputs: For each worker, what it printed.
        exit_codes: For each worker.
        seconds: How long all of them took.
    """

    results: list[dict[str, dict[str, Any]]]
    outputs: list[str]
    exit_codes: list[int]
    seconds: float

    def value(self, case: str, worker: int = 0) -> Any:
        """Gives what a case returned; fails the test if it did not return."""
        result = self.results[worker].get(case)
        if result is None:
            pytest.fail(f"Worker {worker} did not finish {case!r}.\n{self.output()}", pytrace=False)
        if "error" in result:
            pytest.fail(f"Worker {worker} failed in {case!r}.\n{result['error']}", pytrace=False)
        return result["value"]

    def values(self, case: str) -> list[Any]:
        """Gives what a case returned on each worker."""
        return [self.value(case, worker) for worker in range(len(self.results))]

    def output(self) -> str:
        """Gives the end of what each worker printed."""
        return "\n".join(
            f"--- worker {worker}, exit code {code}\n{output[-4000:]}"
            for worker, (code, output) in enumerate(zip(self.exit_codes, self.outputs, strict=True))
        )


def run_module(
    module: str,
    *arguments: str,
    folder: Path,
    num_workers: int | None = None,
    time_limit_seconds: float,
) -> Run:
    """Runs a module of cases in one process, or in one per worker of a cluster.

    Args:
        module: Its name; it calls `cases.main`.
        *arguments: For the module.
        folder: A new folder for results and output.
        num_workers: Workers of the cluster; None for one process outside of any.
        time_limit_seconds: After it the processes are ended, hanging or not.

    Returns:
        A `Run`, whatever became of the processes.
    """
    start = time.monotonic()
    configs = [None] if num_workers is None else cluster_configs(num_workers)
    processes = []
    with ExitStack() as stack:
        for worker, config in enumerate(configs):
            command = [sys.executable, "-m", module, str(folder / f"{worker}.jsonl")]
            processes.append(
                stack.enter_context(
                    _process(
                        [*command, str(time_limit_seconds), *arguments],
                        environment=_environment(config),
                        output=folder / f"{worker}.txt",
                    )
                )
            )
        _wait(processes, start + time_limit_seconds + GRACE_SECONDS)
    workers = range(len(configs))
    return Run(
        results=[_read_results(folder / f"{worker}.jsonl") for worker in workers],
        outputs=[(folder / f"{worker}.txt").read_text(errors="replace") for worker in workers],
        exit_codes=[process.returncode for process in processes],
        seconds=time.monotonic() - start,
    )


def cluster_configs(num_workers: int) -> list[str]:
    """Gives the value of TF_CONFIG for each worker of a new cluster on this machine."""
    addresses = [f"localhost:{port}" for port in _free_ports(num_workers)]
    return [
        json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": worker}})
        for worker in range(num_workers)
    ]


def _free_ports(count: int) -> Sequence[int]:
    free: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as candidate:
            try:
                candidate.bind(("", port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise RuntimeError(f"No {count} free ports from {PORTS.start} to {PORTS.stop}.")


def _environment(config: str | None) -> dict[str, str]:
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "-1",
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "no_proxy": "localhost",
    }
    environment.pop("TF_CONFIG", None)
    return environment if config is None else {**environment, "TF_CONFIG": config}


@contextmanager
def _process(
    command: list[str], *, environment: dict[str, str], output: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a group of its own, of which nothing is left behind."""
    with (
        output.open("wb") as file,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            _kill_group(process)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # The group's number stays taken until its leader has been waited for.
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(processes: list[subprocess.Popen[bytes]], deadline: float) -> None:
    """Waits until all have ended, the deadline is over, or one failed a while ago."""
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes):
            # Without it the others may wait for ever in a reduction.
            deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)


def _read_results(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    # A line that was being written when its process was killed has no end.
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return {result["case"]: result for result in map(json.loads, lines)}
