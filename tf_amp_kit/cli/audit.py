"""`tf-amp-kit audit`, and how it keeps a team's models clean.

In a job of GitHub Actions, findings as annotations on the lines of a pull request:

```yaml
- run: tf-amp-kit audit network:build_model --amp bf16 --format github
```

Or as code scanning alerts, which remember what was dismissed; the job needs
`permissions: {contents: read, security-events: write}`:

```yaml
- run: tf-amp-kit audit network:build_model --amp bf16 --format sarif > audit.sarif
- uses: github/codeql-action/upload-sarif@v4
  if: success() || failure()
  with:
    sarif_file: audit.sarif
```

In a test, by the builder or with a model that the test makes:

```python
from tf_amp_kit.cli import main


def test_the_network_computes_in_half():
    assert main(["audit", "network:build_model", "--amp", "bf16"]) == 0
```

```python
import tf_amp_kit as amp
from network import build_model
from tf_amp_kit.cli.settings import read_settings


def test_the_pinned_network_computes_in_half():
    with amp.amp_scope("bf16"):
        model = build_model()
        amp.pin_float32(model)
        settings = read_settings()
        report = settings.applied_to(amp.audit_layer_dtypes(model, verbose=0))
        report.raise_for_findings(settings.fail_on)
```

What a project ignores, and what fails it, stands in its pyproject.toml or setup.cfg:
see `tf_amp_kit.cli.settings`.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tf_amp_kit.cli.options import add_format, add_quiet
from tf_amp_kit.cli.process import EXIT_FINDINGS, EXIT_FINE, import_tensorflow
from tf_amp_kit.cli.project import source_root
from tf_amp_kit.cli.user_code import precision_scope, users_modules
from tf_amp_kit.errors import InputsError, ModelError

if TYPE_CHECKING:
    from tf_amp_kit.inspection.report import AuditReport
    from tf_amp_kit.tracing.source import Source

__all__ = ["add_audit"]

_FORMATS: Final = ("text", "json", "github", "sarif")


def add_audit(commands: Any) -> None:
    """Adds the parser of `audit`."""
    parser = commands.add_parser(
        "audit",
        help="what every layer of a model really computes in",
        description="Traces a model and reports layers that silently leave half precision.",
        epilog="Exits 1 on findings that --fail-on counts, 2 if there is no model to look at. "
        "An exception of the builder's own keeps its traceback. Settings are read from "
        "[tool.tf_amp_kit] in pyproject.toml or [tf_amp_kit] in setup.cfg. Settings, a CI job and "
        "a test to copy: python -m pydoc tf_amp_kit.cli.settings, and tf_amp_kit.cli.audit.",
    )
    parser.add_argument("model", help="a .keras file, or package.module:builder")
    parser.add_argument(
        "--amp",
        metavar="PRECISION",
        help="bf16, fp16, fp32 or auto: what a builder runs under and a file should be in",
    )
    add_format(parser, _FORMATS)
    add_quiet(parser)
    parser.add_argument(
        "--ignore",
        metavar="CODE",
        type=_finding_codes,
        nargs="+",
        action="extend",
        default=[],
        help="codes to leave out beside the settings', AMP203 for example; after the model",
    )
    parser.add_argument(
        "--fail-on",
        choices=("error", "warning", "note"),
        help="the least grave finding that counts (default: the settings', else warning)",
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
    from tf_amp_kit.cli.settings import read_settings
    from tf_amp_kit.inspection.audit import audit_layer_dtypes
    from tf_amp_kit.model_source import load_source

    ignore = [code for codes in arguments.ignore for code in codes]
    settings = read_settings().with_options(ignore=ignore, fail_on=arguments.fail_on)
    root = source_root(Path.cwd())  # before the user's code may go elsewhere
    shapes = arguments.input_shape
    with contextlib.ExitStack() as stack:
        is_for_programs = arguments.format != "text"
        stack.enter_context(users_modules(keeps_stdout=is_for_programs, is_quiet=arguments.quiet))
        stack.enter_context(precision_scope(arguments.amp))
        source = load_source(arguments.model)
        stack.enter_context(precision_scope(arguments.amp))
        stack.enter_context(_input_shape_named())
        report = audit_layer_dtypes(
            source,
            inputs=shapes[0] if shapes and len(shapes) == 1 else shapes,
            verbose=0,
        )
    report = settings.applied_to(report)
    print(_formatted(report, arguments.format, arguments.model, root, source))
    return EXIT_FINDINGS if report.findings_at_least(settings.fail_on) else EXIT_FINE


def _formatted(report: AuditReport, form: str, name: str, root: Path, source: Any) -> str:
    from tf_amp_kit.reporting.annotations import github_text
    from tf_amp_kit.reporting.places import Places
    from tf_amp_kit.reporting.sarif import sarif_text

    if form == "text":
        return str(report)
    if form == "json":
        return report.to_json()
    places = Places(str(root), _home_of(source, name))
    if form == "github":
        return github_text(report, places)
    return sarif_text(report, places, name=name)


def _home_of(source: Any, name: str) -> Source | None:
    """Returns the first line of a builder; of a file, which has no lines, the first too."""
    from tf_amp_kit.tracing.source import Source

    if name.endswith(".keras"):
        return Source(name, 1, "")
    code = getattr(inspect.unwrap(source), "__code__", None)
    if code is None:
        return None
    file, line = code.co_filename, code.co_firstlineno
    return Source(file, line, linecache.getline(file, line).strip())


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
