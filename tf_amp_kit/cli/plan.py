"""`tf-amp-kit plan`."""

from __future__ import annotations

import argparse
from typing import Any

from tf_amp_kit.cli.options import (
    add_batch_size,
    add_json,
    add_quiet,
    add_sources,
    check_drawing,
    count,
    figure_file,
    given,
    input_file,
    output_file,
    prepare_folder,
    printed,
    save_figure,
    seed,
)
from tf_amp_kit.cli.process import EXIT_FINDINGS, EXIT_FINE
from tf_amp_kit.cli.user_code import opened

__all__ = ["add_plan"]


def add_plan(commands: Any) -> None:
    """Adds the parser of `plan`."""
    parser = commands.add_parser(
        "plan",
        help="which layers have to stay in float32",
        description="Finds, by running a trained model, the fewest layers that have to stay in "
        "float32 for its results to stay within a tolerance, and says what that brings.",
        epilog="Exits 0 if the tolerance is met, with all of the model in half precision or with "
        "the pins that were found, 1 if it is not met, or if --diff was given and the pins "
        "differ, 2 if there are no model and data to plan with. An exception of the builder's "
        "own, or the data's, keeps its traceback.",
    )
    add_sources(
        parser,
        model="compiled, unless the metric is output",
        validation="training data, which are searched on, and validation data, which the plan "
        "is checked on",
    )
    parser.add_argument(
        "--amp",
        metavar="PRECISION",
        help="bf16, fp16, fp32 or auto: what a builder runs under, and what is planned for "
        "(default: what the model computes in; float16 where that is float32)",
    )
    _add_search(parser)
    _add_results(parser)
    parser.set_defaults(run=_run_plan)


def _add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tolerance",
        metavar="ERROR",
        type=float,
        help="the largest relative error in the metric (default: 0.002 in float16 and 0.02 in "
        "bfloat16, or more where float32 itself or the batches differ by that)",
    )
    parser.add_argument(
        "--metric",
        choices=("output", "loss", "gradient"),
        default="output",
        help="what the tolerance is for (default: %(default)s)",
    )
    parser.add_argument(
        "--probes",
        metavar="N",
        type=count,
        help="how many random backward passes there are per batch (default: 4)",
    )
    parser.add_argument(
        "--max-validations",
        metavar="N",
        type=count,
        help="how many choices of pins may be run (default: 7, and one per pin)",
    )
    parser.add_argument(
        "--seed", metavar="N", type=seed, help="chooses the random numbers (default: 0)"
    )
    add_batch_size(parser)
    parser.add_argument(
        "--no-timing",
        dest="time_steps",
        action="store_false",
        help="leave out how long a step takes in float32, in half precision and with the pins",
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--save-to",
        metavar="FILE",
        type=output_file,
        help="save the plan as JSON, for enable_amp(pins=FILE), load_model(pins=FILE), "
        "apply_plan and --diff",
    )
    parser.add_argument(
        "--diff",
        metavar="FILE",
        type=input_file,
        help="instead of the table, print how the plan differs from an older one, saved in FILE",
    )
    parser.add_argument(
        "--figure",
        metavar="FILE",
        type=figure_file,
        help="draw the error by number of pins, and the layers' scores: .png, .pdf or .svg",
    )
    parser.add_argument(
        "--all", action="store_true", help="show all layers that were ranked, not only the pinned"
    )
    add_json(parser)
    add_quiet(parser)


def _run_plan(arguments: argparse.Namespace) -> int:
    from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan
    from tf_amp_kit.reporting.plots import plot_plan

    check_drawing(arguments.figure)
    # Before the new plan is saved, perhaps to the same file.
    older = None if arguments.diff is None else PrecisionPlan.load(arguments.diff)
    plan = _planned(arguments)
    if arguments.save_to:
        prepare_folder(arguments.save_to)
        plan.save(arguments.save_to)
    save_figure(plot_plan, plan, arguments.figure)
    difference = None if older is None else older.diff(plan)
    if arguments.json:
        print((plan if difference is None else difference).to_json())
    else:
        print(_text(plan, difference, arguments))
    is_fine = plan.meets_tolerance and not _has_other_pins(difference)
    return EXIT_FINE if is_fine else EXIT_FINDINGS


def _planned(arguments: argparse.Namespace) -> Any:
    from tf_amp_kit.comparison.planning.find import plan_precision

    options = ("tolerance", "metric", "probes", "max_validations", "seed", "batch_size")
    with opened(arguments, needs_loss=arguments.metric != "output") as subject:
        return plan_precision(
            subject.model,
            subject.data,
            validation=subject.validation,
            **given(arguments, *options, "time_steps"),
            verbose=0,
        )


def _has_other_pins(difference: Any) -> bool:
    return difference is not None and bool(difference.only_first or difference.only_second)


def _text(plan: Any, difference: Any, arguments: argparse.Namespace) -> str:
    if difference is None:
        return plan.text(all_units=True) if arguments.all else printed(plan)
    from tf_amp_kit.comparison.planning.record.words import verdict
    from tf_amp_kit.tables import wrapped

    changes = difference.text() if arguments.all else printed(difference)
    order = f"First plan: {arguments.diff}. Second plan: this one."
    # The exit code is also about the tolerance, of which a difference says nothing.
    return f"{wrapped(verdict(plan))}\n\n{order}\n{changes}"
