"""One run of the processes of each group, for all tests that look at it."""

from __future__ import annotations

import pytest

from tests.distributed.processes import Run, run_module

# Many times what they take: a busy machine is slow, and only a hang is to be ended.
MIRRORED_SECONDS = 600.0
WORKERS_SECONDS = 300.0


@pytest.fixture(scope="session")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_module(
        "tests.distributed.mirrored",
        folder=tmp_path_factory.mktemp("mirrored"),
        time_limit_seconds=MIRRORED_SECONDS,
    )


@pytest.fixture(scope="session")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _run_workers(2, tmp_path_factory)


@pytest.fixture(scope="session")
def three_workers(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _run_workers(3, tmp_path_factory)


def _run_workers(num_workers: int, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_module(
        "tests.distributed.workers",
        folder=tmp_path_factory.mktemp("workers"),
        num_workers=num_workers,
        time_limit_seconds=WORKERS_SECONDS,
    )
