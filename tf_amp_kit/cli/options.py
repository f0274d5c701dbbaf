"""What subcommands have in common: options, checks of files, and what comes of both."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

__all__ = [
    "add_batch_size",
    "add_format",
    "add_json",
    "add_quiet",
    "add_sources",
    "check_drawing",
    "count",
    "data_help",
    "figure_file",
    "given",
    "input_file",
    "output_file",
    "output_folder",
    "prepare_folder",
    "printed",
    "save_figure",
    "seed",
]

_FIGURE_SUFFIXES: Final = (".pdf", ".png", ".svg")
_DOTS_PER_INCH: Final = 150

# How records say what a longer table takes: `plan.table() shows all`, for example.
_ALL_IN_PYTHON: Final = re.compile(r"\w+\.\w+\(\) shows all\.$", re.MULTILINE)


def add_sources(parser: argparse.ArgumentParser, *, model: str, validation: str) -> None:
    """Adds what is looked at: a model, and a function that returns data.

    Args:
        parser: The parser of the subcommand.
        model: What to say of the model, beside how it is named.
        validation: What to say of data for training and validation.
    """
    parser.add_argument("model", help=f"a .keras file, or package.module:builder; {model}")
    parser.add_argument("data", help=data_help(validation))


def data_help(validation: str) -> str:
    """Says what a function for data returns.

    Args:
        validation: What to say of data for training and validation.
    """
    return (
        "package.module:data, a function that returns (x, y), (x, y, sample_weight), a "
        f"dataset, or a tuple of two of these: {validation}. Several inputs are a list or a "
        "dictionary, not a tuple"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Adds `--quiet`."""
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="do not tell what takes long; it is told on a terminal only",
    )


def add_format(parser: argparse.ArgumentParser, formats: Iterable[str]) -> None:
    """Adds `--format`, of which `--json` is a short form.

    Args:
        parser: The parser of the subcommand.
        formats: The names of the formats: text, which is the default, json and others.
    """
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--format",
        choices=tuple(formats),
        default="text",
        help="how to print it (default: %(default)s)",
    )
    either.add_argument(
        "--json",
        dest="format",
        action="store_const",
        const="json",
        help="short for --format json",
    )


def add_batch_size(parser: argparse.ArgumentParser) -> None:
    """Adds `--batch-size`, which has the library's default."""
    parser.add_argument(
        "--batch-size",
        metavar="N",
        type=count,
        help="how many samples of arrays are a batch (default: 32)",
    )


def count(text: str) -> int:
    """Reads how many."""
    return _whole(text, 1)


def seed(text: str) -> int:
    """Reads what chooses random numbers."""
    return _whole(text, 0)


def figure_file(text: str) -> str:
    """Refuses what no figure can be written to."""
    if Path(text).suffix not in _FIGURE_SUFFIXES:
        raise argparse.ArgumentTypeError(f"expected a .png, .pdf or .svg file, not {text!r}")
    return output_file(text)


def output_file(text: str) -> str:
    """Refuses what could not be written in the end, after all the work."""
    path = Path(text)
    if path.is_dir() or not _is_writable(_nearest(path.absolute().parents)):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written")
    return text


def output_folder(text: str) -> str:
    """Refuses a folder that nothing could be written into."""
    path = Path(text).absolute()
    if not _is_writable(_nearest([path, *path.parents])):
        raise argparse.ArgumentTypeError(f"nothing can be written into {text!r}")
    return text


def input_file(text: str) -> str:
    """Refuses what cannot be read."""
    if not os.path.isfile(text):
        raise argparse.ArgumentTypeError(f"there is no file {text!r}")
    if not os.access(text, os.R_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be read")
    return text


def given(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Picks the options that were given: for others the library has its own defaults."""
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}


def check_drawing(*paths: str | None) -> None:
    """Raises what drawing would, before all the work, if anything is to be drawn."""
    from tf_amp_kit.reporting.canvas import drawing

    if any(paths):
        with drawing(1, 1):
            pass


def save_figure(plot: Callable[[Any], Any], record: Any, path: str | None) -> None:
    """Draws a record into a file, if one was named."""
    if path:
        prepare_folder(path)
        plot(record).savefig(path, dpi=_DOTS_PER_INCH)


def prepare_folder(path: str) -> None:
    """Makes the folder that a file is to be in."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)


def printed(record: Any) -> str:
    """Prints the start of a record, and names the option that shows the rest."""
    return _ALL_IN_PYTHON.sub("--all shows all.", str(record))


def _nearest(paths: Iterable[Path]) -> Path:
    return next(path for path in paths if path.exists())


def _is_writable(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK)


def _whole(text: str, smallest: int) -> int:
    if not text.isdecimal() or int(text) < smallest:
        raise argparse.ArgumentTypeError(
            f"expected a whole number from {smallest} up, not {text!r}"
        )
    return int(text)
