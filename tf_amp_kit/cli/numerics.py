"""`tf-amp-kit numerics`."""

from __future__ import annotations

import argparse
import functools
from typing import Any, Final

from tf_amp_kit.cli.options import (
    add_batch_size,
    add_json,
    add_quiet,
    add_sources,
    check_drawing,
    count,
    figure_file,
    given,
    output_file,
    printed,
    save_figure,
)
from tf_amp_kit.cli.process import EXIT_FINDINGS, EXIT_FINE
from tf_amp_kit.cli.user_code import opened

__all__ = ["add_numerics"]

# Options that would be ignored beside others, and why.
_MISMATCHES: Final = (
    ("batches", "gradients", "which compares one batch"),
    ("all", "find_nonfinite", "which has no table"),
    ("figure", "find_nonfinite", "which has nothing to draw"),
    ("layer_figure", "find_nonfinite", "which has nothing to draw"),
    ("layer_figure", "gradients", "whose --figure has every weight"),
)


def add_numerics(commands: Any) -> None:
    """Adds the parser of `numerics`."""
    parser = commands.add_parser(
        "numerics",
        help="what half precision does to a model's numbers",
        description="Measures on real data which numbers of a train step would overflow or "
        "vanish in half precision, compares its gradients with float32, or finds its first NaN.",
        epilog="Exits 1 if something overflows or is not finite, or if an origin of NaN or Inf "
        "was found, 0 if not, 2 if there are no model and data to look at. An exception of the "
        "builder's own, or the data's, keeps its traceback.",
    )
    add_sources(
        parser,
        model="the model is compiled",
        validation="training data, which are taken, and validation data",
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--gradients",
        action="store_true",
        help="instead, compare the gradients of one batch in float32 and in half precision",
    )
    ways.add_argument(
        "--find-nonfinite",
        action="store_true",
        help="instead, run the batches and find the first NaN or Inf: layer, operation, line",
    )
    parser.add_argument(
        "--amp",
        metavar="PRECISION",
        help="bf16, fp16, fp32 or auto: what a builder runs under, what numbers are judged by, "
        "and what --find-nonfinite converts the model of a file to",
    )
    _add_details(parser)
    parser.set_defaults(run=_run_numerics, check=functools.partial(_check_options, parser))


def _add_details(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--loss-scale",
        metavar="SCALE",
        type=float,
        help="what the loss is multiplied by (default: the scale that the optimizer is at)",
    )
    parser.add_argument(
        "--batches",
        metavar="N",
        type=count,
        help="how many batches to measure (default: 1), or to search with --find-nonfinite "
        "(default: all)",
    )
    add_batch_size(parser)
    parser.add_argument(
        "--save-to",
        metavar="FILE",
        type=output_file,
        help="where --find-nonfinite saves the bad batch, as .npz",
    )
    parser.add_argument(
        "--figure",
        metavar="FILE",
        type=figure_file,
        help="draw the exponents, or with --gradients both gradients: .png, .pdf or .svg",
    )
    parser.add_argument(
        "--layer-figure",
        metavar="FILE",
        type=figure_file,
        help="draw a map of which layers overflow and underflow",
    )
    parser.add_argument("--all", action="store_true", help="show all rows, not only the worst")
    add_json(parser)
    add_quiet(parser)


def _check_options(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Refuses options that would be ignored."""
    if arguments.save_to is not None and not arguments.find_nonfinite:
        parser.error("--save-to needs --find-nonfinite, whose bad batch it saves")
    given = {name for name, value in vars(arguments).items() if value}
    for option, way, reason in _MISMATCHES:
        if {option, way} <= given:
            parser.error(f"{_spelled(option)} does not go with {_spelled(way)}, {reason}")


def _spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _run_numerics(arguments: argparse.Namespace) -> int:
    check_drawing(arguments.figure, arguments.layer_figure)
    look = _measure
    if arguments.gradients:
        look = _compare
    elif arguments.find_nonfinite:
        look = _find
    with opened(arguments, needs_loss=True) as subject:
        model = subject.model
        if arguments.find_nonfinite and subject.is_of_file:
            model = _as_asked(model, arguments.amp)
        report, has_findings = look(model, subject.data, arguments)
    print(report.to_json() if arguments.json else _text(report, arguments))
    _draw(report, arguments)
    return EXIT_FINDINGS if has_findings else EXIT_FINE


def _measure(model: Any, data: Any, arguments: argparse.Namespace) -> tuple[Any, bool]:
    from tf_amp_kit.inspection.numerics.measure import measure_numerics

    report = measure_numerics(
        model, data, **given(arguments, "loss_scale", "batches", "batch_size"), verbose=0
    )
    return report, any(
        one.judgement.num_overflow or one.statistics.num_nan or one.statistics.num_infinite
        for one in report.tensors
    )


def _compare(model: Any, data: Any, arguments: argparse.Namespace) -> tuple[Any, bool]:
    from tf_amp_kit.inspection.numerics.gradients import compare_gradients

    report = compare_gradients(
        model, data, **given(arguments, "loss_scale", "batch_size"), verbose=0
    )
    return report, report.whole.num_nonfinite > 0


def _find(model: Any, data: Any, arguments: argparse.Namespace) -> tuple[Any, bool]:
    from tf_amp_kit.inspection.nonfinite.find import find_nonfinite

    report = find_nonfinite(
        model,
        data,
        **given(arguments, "loss_scale", "batches", "batch_size", "save_to"),
        verbose=0,
    )
    return report, report.origin is not None


def _as_asked(model: Any, amp: str | None) -> Any:
    """Converts a file's model: it has a precision of its own, whatever scope it is opened in."""
    from tf_amp_kit.precision.conversion.convert import convert_model
    from tf_amp_kit.precision.policy import current_amp

    asked = current_amp() if amp is not None else None
    return model if asked is None else convert_model(model, asked.precision)


def _draw(report: Any, arguments: argparse.Namespace) -> None:
    from tf_amp_kit.reporting.plots import plot_exponents, plot_gradients, plot_layers

    plot = plot_gradients if arguments.gradients else plot_exponents
    save_figure(plot, report, arguments.figure)
    save_figure(plot_layers, report, arguments.layer_figure)


def _text(report: Any, arguments: argparse.Namespace) -> str:
    return str(report.text()) if arguments.all else printed(report)
