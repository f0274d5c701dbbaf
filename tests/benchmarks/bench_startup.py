"""How long it takes to begin: importing the package, and the command line's help.

    python -m tests.benchmarks.bench_startup [--rounds 10]

Each measurement is a process of its own. `import keras` and `import keras, tf_amp_kit` take
turns, as do Python alone and `tf-amp-kit --help`; printed are quartiles in milliseconds, and
those of the differences within each round. Goals: the package adds less than 50 ms to Keras,
and the help answers within 300 ms of it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

import numpy as np

WAYS = {
    "python": ["-c", "pass"],
    "tf-amp-kit --help": ["-m", "tf_amp_kit", "--help"],
    "import keras": ["-c", "import keras"],
    "import keras, tf_amp_kit": ["-c", "import keras, tf_amp_kit"],
}
DIFFERENCES = {
    "help over python": ("tf-amp-kit --help", "python"),
    "tf_amp_kit over keras": ("import keras, tf_amp_kit", "import keras"),
}


def milliseconds(arguments: list[str]) -> float:
    """Runs Python once, and returns how long that took."""
    start = time.perf_counter()
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, *arguments]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return 1e3 * (time.perf_counter() - start)


def main(argv: list[str] | None = None) -> int:
    """Measures in turns, and prints quartiles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args(argv).rounds
    for arguments in WAYS.values():  # whoever is first reads files that nobody has read
        milliseconds(arguments)
    times = {name: np.zeros(rounds) for name in WAYS}
    for number in range(rounds):
        for name, arguments in WAYS.items():
            times[name][number] = milliseconds(arguments)
    rows = {**times, **{name: times[a] - times[b] for name, (a, b) in DIFFERENCES.items()}}
    print(f"{'ms':26}{'quartile':>10}{'median':>10}{'quartile':>10}")
    for name, values in rows.items():
        low, median, high = np.percentile(values, (25, 50, 75))
        print(f"{name:26}{low:10.1f}{median:10.1f}{high:10.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
