"""Where runs, and what they need of each other, are kept while a comparison is made."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from tf_amp_kit.comparison.training.record.parts import Drift, Evaluation, TrainingRun
from tf_amp_kit.comparison.training.running.builds import Weights
from tf_amp_kit.errors import InputsError

__all__ = ["Folder"]

_DESCRIPTION: Final = "comparison.json"


@dataclass(frozen=True)
class Folder:
    """A folder of finished and unfinished runs.

    Attributes:
        path: Where it is.
    """

    path: Path

    def describe(self, description: dict[str, Any]) -> None:
        """Writes down what the runs in it have in common, or compares it.

        Raises:
            InputsError: If the folder holds runs of another comparison.
        """
        if self.path.exists() and not self.path.is_dir():
            raise InputsError(f"Expected a folder. Received: resume={str(self.path)!r}, a file.")
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / _DESCRIPTION
        if not file.exists():
            _write_text(file, json.dumps(description, indent=2))
            return
        kept = _read_json(file)
        other = [name for name, value in description.items() if kept.get(name) != value]
        if other:
            name = other[0]
            raise InputsError(
                f"The folder holds runs of another comparison. Expected {name}="
                f"{description[name]!r}. Received: {str(self.path)!r}, made with {name}="
                f"{kept.get(name)!r}. Name another folder, or delete this one."
            )

    def save_weights(self, name: str, seed: int, step: int, weights: Weights) -> None:
        """Keeps the weights that a run has after some steps."""
        _write_arrays(self._file("weights", name, seed, step), weights)

    def weights(self, name: str, seed: int, step: int) -> list[NDArray[Any]]:
        """Returns kept weights."""
        return _read_arrays(self._file("weights", name, seed, step))

    def each_weight(self, name: str, seed: int, step: int) -> Iterator[NDArray[Any]]:
        """Yields kept weights, of which only one is in memory at a time."""
        return _each_array(self._file("weights", name, seed, step))

    def has_weights(self, name: str, seed: int, step: int) -> bool:
        """Tells whether weights are kept."""
        return self._file("weights", name, seed, step).exists()

    def save_fingerprints(self, seed: int, values: Sequence[int]) -> None:
        """Keeps what the batches of the float32 run look like."""
        _write_text(self._file("batches", seed, suffix="json"), json.dumps(list(values)))

    def fingerprints(self, seed: int) -> list[int]:
        """Returns what the batches of the float32 run look like."""
        return list(_read_json(self._file("batches", seed, suffix="json")))

    def save_run(self, run: TrainingRun, made_as: str) -> None:
        """Keeps a finished run, and drops what it could have been continued from.

        Args:
            run: The run.
            made_as: What its precision stands for.
        """
        content = {"made_as": made_as, "run": asdict(run)}
        _write_text(self._file("run", run.name, run.seed, suffix="json"), json.dumps(content))
        for suffix in ("npz", "json"):
            self._file("unfinished", run.name, run.seed, suffix=suffix).unlink(missing_ok=True)

    def run(self, name: str, seed: int, made_as: str) -> TrainingRun | None:
        """Returns a finished run, or None.

        Raises:
            InputsError: If its precision stood for something else, or the file is damaged.
        """
        file = self._file("run", name, seed, suffix="json")
        if not file.exists():
            return None
        content = _read_json(file, "made_as", "run")
        if content["made_as"] != made_as:
            raise InputsError(
                f"The folder holds a run of {name!r} that was made otherwise. Expected {made_as}. "
                f"Received: {str(file)!r}, made as {content['made_as']}. Name another folder, or "
                "delete the file."
            )
        return _as_run(content["run"], file)

    def save_unfinished(self, run: TrainingRun, variables: Weights, seen: Sequence[int]) -> None:
        """Keeps a run as far as it is, with all that it can go on from."""
        # Two files: the number of steps tells whether they belong together.
        arrays = [*variables, np.array(len(run.losses))]
        _write_arrays(self._file("unfinished", run.name, run.seed), arrays)
        content = {"run": asdict(run), "seen": list(seen)}
        _write_text(
            self._file("unfinished", run.name, run.seed, suffix="json"), json.dumps(content)
        )

    def unfinished(
        self, name: str, seed: int
    ) -> tuple[TrainingRun, list[NDArray[Any]], list[int]] | None:
        """Returns what `save_unfinished` kept, or None."""
        file = self._file("unfinished", name, seed, suffix="json")
        if not file.exists():
            return None
        content = _read_json(file, "run", "seen")
        variables = _read_arrays(self._file("unfinished", name, seed))
        run = _as_run(content["run"], file)
        belong_together = int(variables[-1]) == len(run.losses)
        return (run, variables[:-1], list(content["seen"])) if belong_together else None

    def _file(self, *words: Any, suffix: str = "npz") -> Path:
        name = "-".join(quote(str(word), safe="") for word in words)
        return self.path / f"{name}.{suffix}"


def _as_run(content: dict[str, Any], file: Path) -> TrainingRun:
    try:
        parts = {
            "losses": tuple(content["losses"]),
            "evaluations": tuple(Evaluation(**one) for one in content["evaluations"]),
            "drift": tuple(Drift(**one) for one in content["drift"]),
        }
        return TrainingRun(**{**content, **parts})
    except (KeyError, TypeError) as error:
        raise _damaged(file) from error


def _write_text(file: Path, text: str) -> None:
    # A program that is stopped meanwhile leaves the old file, or the new one.
    unfinished = file.with_suffix(".tmp")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, file)


def _write_arrays(file: Path, arrays: Weights) -> None:
    unfinished = file.with_suffix(".tmp.npz")
    np.savez(unfinished, *arrays)
    os.replace(unfinished, file)


def _read_arrays(file: Path) -> list[NDArray[Any]]:
    return list(_each_array(file))


def _each_array(file: Path) -> Iterator[NDArray[Any]]:
    try:
        # NumPy leaves a file open that it cannot read.
        with file.open("rb") as opened, np.load(opened) as arrays:
            for number in range(len(arrays.files)):
                yield arrays[f"arr_{number}"]
    except (EOFError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise _damaged(file) from error


def _read_json(file: Path, *keys: str) -> Any:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        for key in keys:
            content[key]
    except (LookupError, OSError, TypeError, ValueError) as error:
        raise _damaged(file) from error
    return content


def _damaged(file: Path) -> InputsError:
    state = "is damaged" if file.exists() else "is missing"
    return InputsError(
        f"A file of an earlier comparison {state}. Expected what it kept. Received: "
        f"{str(file)!r}. Name another folder, or delete this one."
    )
