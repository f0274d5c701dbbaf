"""Whatever a small model is made of, the package sees it as an eager run does.

`TF_AMP_KIT_FUZZ=1000 pytest tests/fuzz` draws that many models per property, other
ones each time.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from . import checks, pin_checks
from .graphs import Graph, graphs, graphs_with_products
from .kinds import HALF_POLICIES

# Keras warns of models that it cannot build by itself, and of lost masks.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

_NUM_DRAWN = int(os.environ.get("TF_AMP_KIT_FUZZ", "0"))


def _fuzzed(num_quick: int) -> settings:
    return settings(
        max_examples=_NUM_DRAWN or num_quick,
        derandomize=not _NUM_DRAWN,
        deadline=None,
        database=None,
        print_blob=False,
        # Shrinking takes minutes.
        phases=list(Phase) if _NUM_DRAWN else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


audits, pins = _fuzzed(6), _fuzzed(4)

half_graphs = graphs(HALF_POLICIES)
named = st.lists(st.integers(0, 11), min_size=1, max_size=3).map(tuple)
# No targets: the level's pins.
targets = st.just(()) | named


@audits
@given(graphs())
def test_traced_calls_return_what_eager_calls_do(graph: Graph) -> None:
    checks.check_traced_dtypes(graph)


@audits
@given(graphs())
def test_the_rows_of_an_audit_have_the_dtypes_of_eager_runs(graph: Graph) -> None:
    checks.check_audited_dtypes(graph)


@pins
@given(half_graphs, targets)
def test_pinned_layers_compute_as_in_float32_and_undo_brings_all_back(
    graph: Graph, targets: tuple[int, ...]
) -> None:
    pin_checks.check_pins(graph, targets)


@pins
# The second are named: what the level pins depends on what is pinned already.
@given(half_graphs, targets, named, st.integers(0, 1))
def test_pins_can_be_undone_in_any_order(
    graph: Graph, targets: tuple[int, ...], others: tuple[int, ...], first_out: int
) -> None:
    pin_checks.check_overlapping_pins(graph, targets, others, first_out)


@pins
@given(half_graphs, targets)
def test_pins_do_the_same_in_a_second_build(graph: Graph, targets: tuple[int, ...]) -> None:
    pin_checks.check_pins_of_a_second_build(graph, targets)


@audits
@given(graphs())
def test_an_audit_leaves_a_model_as_it_was(graph: Graph) -> None:
    checks.check_audit_leaves_the_model(graph)


@audits
@given(graphs())
def test_an_audit_explains_what_half_precision_raises(graph: Graph) -> None:
    checks.check_audit_of_what_raises(graph)


@audits
@given(half_graphs)
def test_reversions_are_found_where_eager_runs_show_them(graph: Graph) -> None:
    checks.check_reversions(graph)


@audits
@given(graphs_with_products())
def test_wide_products_are_found_where_eager_runs_show_them(graph: Graph) -> None:
    checks.check_wide_products(graph)
