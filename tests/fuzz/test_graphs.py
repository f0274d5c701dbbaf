"""A drawn graph can be printed as code, and kept in a file."""

from __future__ import annotations

from hypothesis import given

from .graphs import Graph, Node, as_config, from_config, graphs
from .test_fuzz import audits


@audits
@given(graphs())
def test_a_description_prints_as_the_code_that_makes_it(graph: Graph) -> None:
    assert eval(repr(graph), {"Graph": Graph, "Node": Node}) == graph


@audits
@given(graphs())
def test_a_description_comes_back_from_a_configuration(graph: Graph) -> None:
    assert from_config(as_config(graph.nodes)) == graph.nodes
