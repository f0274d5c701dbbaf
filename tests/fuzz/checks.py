"""What an audit must say of a model, and leave alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import keras

from tests.eager import EagerRun, seen_eagerly, tensors_in
from tf_amp_kit.errors import AmpError
from tf_amp_kit.inspection.audit import AuditReport, audit_layer_dtypes
from tf_amp_kit.tracing.model_graph import trace_modes
from tf_amp_kit.tracing.paths import LayerPaths

from .building import batch_of, build, made_under
from .graphs import Graph, in_float32

_REVERTS = ("AMP101", "AMP102")
_RAISES = ("AMP107", "AMP401")
_MODES = (False, True)


@dataclass
class Seen:
    """A model and its eager runs.

    Attributes:
        model: The model; None if its build raised.
        batch: What it was called with.
        inputs: What the audit has to be told of its inputs.
        runs: One per `training` mode.
        error: What it raised.
    """

    model: Any
    batch: Any
    inputs: Any
    runs: list[EagerRun] = field(default_factory=list)
    error: Exception | None = None


def run(graph: Graph) -> Seen:
    """Builds a model, and runs it eagerly in both modes."""
    # Else the graph that Keras infers shapes in would grow from model to model.
    keras.utils.clear_session(free_memory=False)
    keras.config.set_dtype_policy(graph.policy)
    batch = batch_of(graph)
    seen = Seen(None, batch, batch if graph.style in ("deferred", "subclassed") else None)
    try:
        seen.model = build(graph)
        # The first call builds what is not built yet, in graphs.
        seen.model(batch, training=True)
        for training in _MODES:
            with seen_eagerly() as one:
                seen.model(batch, training=training)
            seen.runs.append(one)
    except Exception as error:  # whatever the model raises, the package may raise
        seen.error = error
    return seen


def dtypes_by_path(run: EagerRun, paths: LayerPaths) -> dict[str, set[tuple[str, ...]]]:
    """Returns what each layer returned, in all of its calls."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for call in run.layer_calls:
        found.setdefault(paths.of(call.callee) or "", set()).add(call.outputs)
    return found


def check_traced_dtypes(graph: Graph) -> None:
    """The trace has the calls of an eager run, and each returns the same dtypes."""
    with made_under(graph):
        seen = run(graph)
        if seen.error is not None:
            return
        paths = LayerPaths(seen.model)
        traces = trace_modes(seen.model, inputs=seen.inputs)
        assert [trace.training for trace in traces] == list(_MODES)
        for trace, eager in zip(traces, seen.runs, strict=True):
            traced: dict[str, set[tuple[str, ...]]] = {}
            for call in trace.calls:
                if call.kind != "operation":
                    dtypes = tuple(trace.tensors[key].dtype for key in call.outputs)
                    traced.setdefault(call.path, set()).add(dtypes)
            assert not trace.conflicts
            assert traced == dtypes_by_path(eager, paths)


def check_audited_dtypes(graph: Graph) -> None:
    """The rows of the audit have the dtypes of both eager runs."""
    with made_under(graph):
        seen = run(graph)
        if seen.error is not None:
            return
        paths = LayerPaths(seen.model)
        expected: dict[str, set[str]] = {path: set() for path, _ in paths}
        for one in seen.runs:
            for path, results in dtypes_by_path(one, paths).items():
                expected[path].update(*results)
        report = audit_layer_dtypes(seen.model, inputs=seen.inputs, verbose=0)
        assert {row.path: set(row.output_dtypes) for row in report.rows} == expected
        assert not [one for one in report.findings if one.code == "AMP107"]


def state_of(model: Any) -> list[Any]:
    """Returns all that an audit must leave: values, policies, and the model's results."""
    values = [(one.path, one.numpy().tobytes()) for one in model.variables]
    policies = [(path, layer.dtype_policy.name) for path, layer in LayerPaths(model)]
    return [values, policies, keras.config.dtype_policy().name, keras.layers.Layer.__call__]


def check_audit_of_what_raises(graph: Graph) -> None:
    """The audit explains what half precision raises, or raises what the model does."""
    with made_under(graph):
        seen = run(graph)
        if seen.error is None:
            return
        call = keras.layers.Layer.__call__
        # Not the model that raised: its first call left it half built.
        subject = (lambda: build(graph)) if seen.model is None else build(graph)
        try:
            report = audit_layer_dtypes(subject, inputs=seen.inputs, verbose=0)
        except AmpError:
            pass
        except Exception as error:
            assert same_error(error, seen.error), (error, seen.error)
        else:
            check_shows(report)
            # An error that is none of half precision may need values, which a trace has not.
            codes = {one.code for one in report.findings}
            assert codes & set(_RAISES) or raises_in_float32(graph, seen.error), seen.error
        assert keras.layers.Layer.__call__ is call


def raises_in_float32(graph: Graph, expected: Exception) -> bool:
    """Tells whether a float32 model raises the same."""
    with made_under(in_float32(graph)):
        error = run(in_float32(graph)).error
    return error is not None and same_error(error, expected)


def same_error(error: BaseException, expected: BaseException) -> bool:
    """Tells whether an error is the one that the model itself raises."""
    # Known: what a custom layer holds is built by Keras in a graph, where the variables
    # of a bfloat16 RNN are yet to be made; the audit reads them, and there is no kernel.
    return type(error) is type(expected) or "Op<name=Qr" in str(error)


def check_shows(report: AuditReport) -> None:
    """A report can be shown in each form."""
    assert str(report) and report.to_json() and report._repr_html_()


def check_audit_leaves_the_model(graph: Graph) -> None:
    """The audit changes nothing of a model that runs, and its report can be shown."""
    with made_under(graph):
        seen = run(graph)
        if seen.error is not None:
            return
        before = state_of(seen.model)
        results = results_of(seen)
        check_shows(audit_layer_dtypes(seen.model, inputs=seen.inputs, verbose=0))
        assert state_of(seen.model) == before
        assert results_of(seen) == results


def results_of(seen: Seen) -> list[bytes]:
    """Returns what the model computes, as bytes."""
    return [one.numpy().tobytes() for one in tensors_in(seen.model(seen.batch, training=False))]


def reverting(run: EagerRun, paths: LayerPaths) -> Iterator[tuple[str, bool]]:
    """Yields the half layers that return wide floats, and whether that is their own doing.

    It is where no layer inside of it returns any, and none gives it any: Keras casts
    what a layer gets to its compute dtype.
    """
    wide_inside = {
        id(outer)
        for call in run.layer_calls
        if run.returns_wide(call)
        for outer in list(call.with_all_around())[1:]
    }
    for call in run.layer_calls:
        if call.is_half and run.returns_wide(call):
            yield paths.of(call.callee) or "", id(call) not in wide_inside


def check_reversions(graph: Graph) -> None:
    """AMP101 and AMP102 are where the eager runs show wide results of half layers."""
    with made_under(graph):
        seen = run(graph)
        if seen.error is not None:
            return
        paths = LayerPaths(seen.model)
        report = audit_layer_dtypes(seen.model, inputs=seen.inputs, verbose=0)
        found = {one.path for one in report.findings if one.code in _REVERTS}
        shown = [one for each in seen.runs for one in reverting(each, paths)]
        doubles = {
            paths.of(call.callee)
            for each in seen.runs
            for call in each.layer_calls
            if "float64" in call.outputs
        }
        allowed = {path for path, _ in shown} | doubles
        assert found <= allowed, found - allowed
        own = {path for path, is_own in shown if is_own}
        assert own <= found, own - found


def check_wide_products(graph: Graph) -> None:
    """AMP103 is where the eager runs multiply matrices in float32 inside half layers."""
    with made_under(graph):
        seen = run(graph)
        if seen.error is not None:
            return
        paths = LayerPaths(seen.model)
        report = audit_layer_dtypes(seen.model, inputs=seen.inputs, verbose=0)
        found = {one.path for one in report.findings if one.code == "AMP103"}
        explained = {
            path
            for one in report.findings
            if one.code in (*_REVERTS, "AMP103", "AMP105")
            for path in (one.path, *one.affects)
        }
        around, own = set(), set()
        for one in seen.runs:
            for product in one.wide_products:
                calls = list(product.call.with_all_around()) if product.call else []
                calls = [call for call in calls if call.is_layer]
                half = [call for call in calls if call.is_half]
                if half:
                    around.add(paths.of(half[0].callee))
                if half and half[0] is calls[0]:
                    own.add(paths.of(half[0].callee))
        assert found <= around, found - around
        assert own <= explained, own - explained
