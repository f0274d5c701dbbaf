"""`tf-amp-kit memory`."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

from tf_amp_kit.cli.options import add_json, add_quiet, count, data_help, given, printed
from tf_amp_kit.cli.process import EXIT_FINDINGS, EXIT_FINE
from tf_amp_kit.cli.user_code import precision_scope, users_modules

__all__ = ["add_memory"]

_DEFAULT_BATCH_SIZE: Final = 32

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt]?)(i?)b?", re.IGNORECASE)
_PREFIXES: Final = ("", "k", "m", "g", "t")


def add_memory(commands: Any) -> None:
    """Adds the parser of `memory`."""
    parser = commands.add_parser(
        "memory",
        help="how much memory training takes, and the largest batch that fits",
        description="Estimates the memory of a train step from its graph, without running it: "
        "weights, gradients, optimizer slots, activations kept for the backward pass, peak.",
        epilog="Exits 0 if there is an estimate, 1 if it is above --memory for a batch size that "
        "was asked for, or for one sample if none was, 2 if there is no model to look at. An "
        "exception of the builder's own, or the data's, keeps its traceback.",
    )
    parser.add_argument("model", help="a .keras file, or package.module:builder")
    parser.add_argument(
        "data",
        nargs="?",
        help=data_help("training data, whose shapes are taken, and validation data")
        + ". Needed only where the model does not tell the shapes of its inputs and targets",
    )
    parser.add_argument(
        "--amp",
        metavar="PRECISION",
        help="bf16, fp16, fp32 or auto: what a builder runs under, and what the model of a file "
        "is converted to",
    )
    parser.add_argument(
        "--optimizer",
        metavar="NAME",
        help="adam, sgd or another one of Keras's (default: the compiled one)",
    )
    _add_sizes(parser)
    parser.add_argument(
        "--layers", action="store_true", help="show all layers, not only those that take the most"
    )
    add_json(parser)
    add_quiet(parser)
    parser.set_defaults(run=_run_memory)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--batch-size",
        metavar="N",
        type=_counts,
        help="how many samples a batch holds, or several such numbers with commas between "
        "(default: 32, or with --memory the largest that fits)",
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        type=_num_bytes,
        help="also find the largest batch that fits into this: 8GiB, 16GB (of 1000 MB) or bytes",
    )


def _run_memory(arguments: argparse.Namespace) -> int:
    largest = None
    with _opened(arguments) as (model, options):
        if arguments.memory is not None:
            largest = _largest(model, arguments.memory, options)
        default = _DEFAULT_BATCH_SIZE if largest is None else max(largest, 1)
        batch_sizes = arguments.batch_size or [default]
        estimates = [_estimated(model, one, options) for one in batch_sizes]
    if arguments.json:
        print(_json(estimates, arguments.memory, largest))
    else:
        print(_text(estimates, arguments, largest))
    fits = largest is None or max(batch_sizes) <= largest
    return EXIT_FINE if fits else EXIT_FINDINGS


def _estimated(model: Any, batch_size: int, options: dict[str, Any]) -> Any:
    from tf_amp_kit import estimate_memory

    return estimate_memory(model, batch_size, **options, verbose=0)


def _largest(model: Any, num_bytes: int, options: dict[str, Any]) -> int:
    from tf_amp_kit import largest_batch_size

    return largest_batch_size(model, num_bytes, **options)


@contextlib.contextmanager
def _opened(arguments: argparse.Namespace) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Makes the model, and picks what else the library is told."""
    from tf_amp_kit.model_source import built_model, load_data, load_source
    from tf_amp_kit.precision.policy import current_amp

    with contextlib.ExitStack() as stack:
        stack.enter_context(users_modules(keeps_stdout=arguments.json, is_quiet=arguments.quiet))
        stack.enter_context(precision_scope(arguments.amp))
        source = load_source(arguments.model)
        stack.enter_context(precision_scope(arguments.amp))
        model = built_model(source, needs_loss=False)
        options = given(arguments, "optimizer")
        if arguments.data is not None:
            options["data"] = load_data(arguments.data)[0]
            stack.enter_context(precision_scope(arguments.amp))
        asked = None if arguments.amp is None else current_amp()
        # A file's model has a precision of its own, whatever scope it is opened in.
        if asked is not None and model is source:
            options["precision"] = asked.precision
        yield model, options


def _json(estimates: Sequence[Any], num_bytes: int | None, largest: int | None) -> str:
    content = {
        "estimates": [one.to_dict() for one in estimates],
        "memory_bytes": num_bytes,
        "largest_batch_size": largest,
    }
    return json.dumps(content, indent=2, allow_nan=False)


def _text(estimates: Sequence[Any], arguments: argparse.Namespace, largest: int | None) -> str:
    parts = [_table(estimates)] if len(estimates) > 1 else [_whole(estimates[0], arguments)]
    if largest is not None:
        parts.insert(0, _limit(arguments.memory, largest))
    return "\n\n".join(parts)


def _limit(num_bytes: int, largest: int) -> str:
    from tf_amp_kit.comparison.words import size

    if not largest:
        return f"Not even a batch of 1 fits into {size(num_bytes)}."
    return f"Largest batch size that fits into {size(num_bytes)}: {largest}."


def _whole(estimate: Any, arguments: argparse.Namespace) -> str:
    return str(estimate.text()) if arguments.layers else printed(estimate)


def _table(estimates: Sequence[Any]) -> str:
    from tf_amp_kit.comparison.words import size
    from tf_amp_kit.tables import render_table

    rows = [
        [f"{one.batch_size}", *map(size, (one.peak_bytes, one.activations_bytes))]
        for one in estimates
    ]
    columns = ["Batch size", "Peak", "Activations"]
    return render_table(columns, rows, right_aligned=columns)


def _counts(text: str) -> list[int]:
    return [count(one.strip()) for one in text.split(",")]


def _num_bytes(text: str) -> int:
    """Reads a size: 8GiB and 8Gi are 8 * 1024**3 bytes, 8GB and 8G are 8 * 1000**3."""
    found = _SIZE.fullmatch(text.strip())
    if not found or (found[3] and not found[2]):
        raise argparse.ArgumentTypeError(f"expected 8GiB, 16GB or bytes, not {text!r}")
    number, prefix, binary = found.groups()
    size = int(Fraction(number) * (1024 if binary else 1000) ** _PREFIXES.index(prefix.lower()))
    if not size:
        raise argparse.ArgumentTypeError(f"expected some memory, not {text!r}")
    return size
