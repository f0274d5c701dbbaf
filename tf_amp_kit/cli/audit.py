"""`tf-amp-kit audit`."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

from tf_amp_kit.cli.options import add_json
from tf_amp_kit.cli.process import EXIT_FINDINGS, EXIT_FINE, import_tensorflow
from tf_amp_kit.cli.user_code import precision_scope, users_modules
from tf_amp_kit.errors import InputsError, ModelError

__all__ = ["add_audit"]


def add_audit(commands: Any) -> None:
    """Adds the parser of `audit`."""
    parser = commands.add_parser(
        "audit",
        help="what every layer of a model really computes in",
        description="Traces a model and reports layers that silently leave half precision.",
        epilog="Exits 1 on findings that --fail-on counts, 2 if there is no model to look at. "
        "An exception of the builder's own keeps its traceback.",
    )
    parser.add_argument("model", help="a .keras file, or package.module:builder")
    parser.add_argument(
        "--amp",
        metavar="PRECISION",
        help="bf16, fp16, fp32 or auto: what a builder runs under and a file should be in",
    )
    add_json(parser)
    parser.add_argument(
        "--ignore",
        metavar="CODE",
        type=_finding_codes,
        nargs="+",
        action="extend",
        default=[],
        help="codes to leave out, AMP203 for example; after the model",
    )
    parser.add_argument(
        "--fail-on",
        choices=("error", "warning", "note"),
        default="warning",
        help="the least grave finding that counts (default: %(default)s)",
    )
    parser.add_argument(
        "--input-shape",
        metavar="SHAPE",
        type=_input_spec,
        action="append",
        help="28,28,1 or 16:int32, without the batch; once per input of a subclassed model",
    )
    parser.set_defaults(run=_run_audit)


def _run_audit(arguments: argparse.Namespace) -> int:
    from tf_amp_kit.inspection.audit import audit_layer_dtypes
    from tf_amp_kit.model_source import load_source

    shapes = arguments.input_shape
    with contextlib.ExitStack() as stack:
        stack.enter_context(users_modules(is_json=arguments.json))
        stack.enter_context(precision_scope(arguments.amp))
        source = load_source(arguments.model)
        stack.enter_context(precision_scope(arguments.amp))
        stack.enter_context(_input_shape_named())
        report = audit_layer_dtypes(
            source,
            inputs=shapes[0] if shapes and len(shapes) == 1 else shapes,
            ignore=[code for codes in arguments.ignore for code in codes],
            verbose=0,
        )
    print(report.to_json() if arguments.json else report)
    return EXIT_FINDINGS if report.findings_at_least(arguments.fail_on) else EXIT_FINE


@contextlib.contextmanager
def _input_shape_named() -> Iterator[None]:
    """Names the option where an error names the argument `inputs=`."""
    try:
        yield
    except (InputsError, ModelError) as error:
        if "inputs=" not in str(error):
            raise
        raise type(error)(f"{error} Here: --input-shape 28,28,1.") from error


def _finding_codes(text: str) -> list[str]:
    import_tensorflow()
    from tf_amp_kit.inspection.findings import CODES

    codes = text.split(",")
    unknown = [code for code in codes if code not in CODES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown code {unknown[0]!r}, expected some of {[*CODES]}"
        )
    return codes


def _input_spec(text: str) -> Any:
    import_tensorflow()
    import tensorflow as tf

    sizes, _, dtype = text.partition(":")
    try:
        shape = [None if size == "None" else int(size) for size in sizes.split(",")]
        return tf.TensorSpec([None, *shape], dtype or "float32")
    except (TypeError, ValueError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no shape, expected 28,28,1 or 16:int32, for example"
        ) from None
