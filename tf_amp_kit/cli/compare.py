"""`tf-amp-kit compare`."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from tf_amp_kit.cli.options import (
    add_batch_size,
    add_json,
    add_quiet,
    check_drawing,
    count,
    data_help,
    figure_file,
    given,
    input_file,
    output_file,
    output_folder,
    prepare_folder,
    save_figure,
)
from tf_amp_kit.cli.process import EXIT_FINDINGS, EXIT_FINE, EXIT_INTERRUPTED
from tf_amp_kit.cli.user_code import users_modules

__all__ = ["add_compare"]


def add_compare(commands: Any) -> None:
    """Adds the parser of `compare`."""
    parser = commands.add_parser(
        "compare",
        help="whether half precision trains as well as float32, and what it brings",
        description="Trains the same model from the same weights on the same batches in several "
        "precisions, compares quality, speed and memory, and recommends one.",
        epilog="Exits 0 if no precision trains worse than float32, 1 if one does (with --strict "
        "also if that is undecided), 2 if there are no builder and data to compare with. Ctrl-C "
        "ends the training, shows and saves what the finished runs say, and exits 130; with "
        "--resume the same command goes on from there. An exception of the builder's own, or the "
        "data's, keeps its traceback.",
    )
    parser.add_argument(
        "builder",
        type=_builder,
        help="package.module:builder, a function that returns a new, compiled model; it is "
        "called for each run, in that run's precision",
    )
    parser.add_argument("data", help=data_help("training data, and validation data to judge by"))
    _add_training(parser)
    _add_measurements(parser)
    _add_results(parser)
    parser.set_defaults(run=_run_compare)


def _add_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--precisions",
        metavar="PRECISION",
        type=_precisions,
        nargs="+",
        action="extend",
        help="what to train in: fp32, bf16, fp16, one with a level (bf16:O2) or a plan's file "
        "(plan.json), by spaces or commas; after builder and data (default: fp32 bf16 fp16). "
        "fp32 is always there, and named twice it is also compared with itself",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", metavar="N", type=count, help="how many steps each run takes")
    length.add_argument(
        "--epochs",
        metavar="N",
        type=count,
        help="how often each run sees the data (default: 1)",
    )
    parser.add_argument(
        "--seeds",
        metavar="N",
        type=count,
        help="how many runs there are per precision, each with a seed of its own (default: 1; "
        "float32 has at least 3, to see what seeds make of it)",
    )
    parser.add_argument(
        "--tolerance",
        metavar="SHARE",
        type=float,
        help="the loss of quality that is accepted in any case, as a share of what float32 "
        "learns (default: 0.01)",
    )
    add_batch_size(parser)
    parser.add_argument(
        "--no-pins",
        dest="pin",
        action="store_false",
        help="keep no layers in float32 but those that the builder keeps there itself",
    )


def _add_measurements(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-timing",
        dest="time_steps",
        action="store_false",
        help="leave out how long a step takes",
    )
    parser.add_argument(
        "--no-jit",
        dest="jit",
        action="store_false",
        help="leave out how long a step takes with jit_compile",
    )
    parser.add_argument(
        "--isolate",
        action="store_true",
        help="give each run a process of its own, which also measures its memory",
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--resume",
        metavar="FOLDER",
        type=output_folder,
        help="keep runs in this folder, finished or not, and go on from those that are there",
    )
    parser.add_argument(
        "--save-to",
        metavar="FILE",
        type=output_file,
        help="save the report as JSON, for ComparisonReport.load(FILE)",
    )
    parser.add_argument(
        "--figure",
        metavar="FILE",
        type=figure_file,
        help="draw the loss curves, and how they differ from float32: .png, .pdf or .svg",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit 1 as well if the steps or seeds are too few to decide",
    )
    add_json(parser)
    add_quiet(parser)


def _run_compare(arguments: argparse.Namespace) -> int:
    from tf_amp_kit.reporting.comparison_plots import plot_curves

    check_drawing(arguments.figure)
    try:
        with users_modules(keeps_stdout=arguments.json, is_quiet=True):
            report = _compared(arguments)
    except KeyboardInterrupt:
        print("tf-amp-kit: interrupted before any run was finished", file=sys.stderr)
        return EXIT_INTERRUPTED
    if arguments.save_to:
        prepare_folder(arguments.save_to)
        report.save(arguments.save_to)
    print(report.to_json() if arguments.json else report)
    save_figure(plot_curves, report, arguments.figure)
    return _exit_code(report, is_strict=arguments.strict)


def _compared(arguments: argparse.Namespace) -> Any:
    from tf_amp_kit.comparison.training.compare import compare_precisions

    sources = _sources(arguments.builder, arguments.data, isolate=arguments.isolate)
    with _stdout_kept_free():
        return compare_precisions(
            *sources, **_options(arguments), verbose=0 if arguments.quiet else 2
        )


@contextlib.contextmanager
def _stdout_kept_free() -> Iterator[None]:
    """Lets builders, which are called for every run, print to standard error.

    Standard output is for the report. By descriptor too, because the processes of
    `--isolate` inherit that.
    """
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    numbers = ("steps", "epochs", "seeds", "tolerance", "batch_size", "resume")
    options = given(arguments, *numbers, "pin", "time_steps", "jit", "isolate")
    precisions = [name for names in arguments.precisions or [] for name in names]
    return {**options, "precisions": precisions} if precisions else options


def _sources(builder: str, data: str, *, isolate: bool) -> tuple[Any, Any, Any]:
    """Imports the builder and the data, in a form that another process can be handed."""
    from tf_amp_kit.cli.imported import ImportedBuilder, ImportedData
    from tf_amp_kit.model_source import load_data, load_source

    build_fn = load_source(builder)
    train, validation = load_data(data)
    if not isolate:
        return build_fn, train, validation
    held_out = None if validation is None else ImportedData(data, "validation")
    return ImportedBuilder(builder), ImportedData(data, "train"), held_out


def _exit_code(report: Any, *, is_strict: bool) -> int:
    from tf_amp_kit.comparison.training.record.parts import UNDECIDED, WORSE

    if report.is_interrupted:
        return EXIT_INTERRUPTED
    counted = {WORSE, UNDECIDED} if is_strict else {WORSE}
    verdicts = (one.verdict for one in report.results)
    found = any(verdict and verdict.outcome in counted for verdict in verdicts)
    return EXIT_FINDINGS if found else EXIT_FINE


def _builder(text: str) -> str:
    """Refuses what cannot be built anew."""
    if text.endswith(".keras"):
        raise argparse.ArgumentTypeError(
            f"a file's model cannot be built anew with other seeds and in other precisions: "
            f"expected package.module:builder, not {text!r}"
        )
    return text


def _precisions(text: str) -> list[str]:
    """Splits a list, and refuses plans that are not there."""
    names = [name for name in re.split(r"[\s,]+", text) if name]
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r} names no precision")
    for name in names:
        if name.endswith(".json"):
            input_file(name)
    return names
