"""Trains on two workers for a long time with random faults; not collected by pytest.

    python -m tests.distributed.soak --steps 20000

Every few hundred steps each worker compares scale and counts with the algorithm
in plain numbers; weights, moving statistics and slots, bit for bit, with plain
Keras that sees the good steps alone; and the workers' weights are compared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.distributed.processes import run_module

SECONDS_PER_STEP = 0.5  # many times what one takes
START_SECONDS = 120.0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    num_steps = parser.parse_args(argv).steps
    with tempfile.TemporaryDirectory() as folder:
        run = run_module(
            "tests.distributed.soak_steps",
            str(num_steps),
            folder=Path(folder),
            num_workers=2,
            time_limit_seconds=START_SECONDS + SECONDS_PER_STEP * num_steps,
        )
    reports = [result.get("soak", {}).get("value") for result in run.results]
    if None in reports or run.exit_codes != [0, 0]:
        print(f"FAILED after {run.seconds:.0f} s\n{run.output()}")
        return 1
    first, second = reports
    if first["checks"] != second["checks"]:
        print(f"FAILED: the workers' weights differ.\n{first['checks']}\n{second['checks']}")
        return 1
    print(
        f"{num_steps} steps in {run.seconds:.0f} s: {first['applied']} applied, "
        f"{first['skipped']} skipped, {first['growths']} growths, scale from "
        f"{first['scales'][0]:g} to {first['scales'][1]:g}, {len(first['checks'])} checks on each "
        "of 2 workers: all equal"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
