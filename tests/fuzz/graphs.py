"""Small models as data: what they are made of, and how they are drawn.

Every value between nodes has the shape (batch, 4, 4), so that any node can follow
any other. A description prints as the code that makes it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from hypothesis import strategies as st

from .kinds import (
    BINARY,
    CASTS,
    CONSTANTS,
    DTYPES,
    HALF_POLICIES,
    IN_CALL,
    IN_LAYER,
    IN_SEQUENCE,
    LAYERS,
    MERGES,
    OWN_CONSTANTS,
    STYLES,
    UNARY,
    WITH_OPERAND,
)

__all__ = [
    "Graph",
    "Node",
    "as_config",
    "from_config",
    "graphs",
    "graphs_with_products",
    "in_float32",
]


class _Shown:
    """Prints fields that are not at their default, as code."""

    def __repr__(self) -> str:
        shown = [
            f"{one.name}={getattr(self, one.name)!r}"
            for one in fields(self)  # type: ignore[arg-type]
            if getattr(self, one.name) != one.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class Node(_Shown):
    """A layer, an operation, or a container of nodes.

    Attributes:
        kind: One of the names of `kinds`, `block` for a custom layer, `model` for a nested
            model, `again` for the last layer once more.
        first: Which value it takes, counted back from the newest.
        second: The same for its second value, where it takes one.
        dtype: The layer's `dtype` argument.
        constant: What stands for the second value of an operation.
        is_training_only: Whether it only runs with `training=True`, in a `call`.
        inner: The nodes of a container.
        style: How a nested model is made.
    """

    kind: str
    first: int = 0
    second: int = 1
    dtype: str | None = None
    constant: str = "value"
    is_training_only: bool = False
    inner: tuple[Node, ...] = ()
    style: str = "functional"


@dataclass(frozen=True, repr=False)
class Graph(_Shown):
    """A model.

    Attributes:
        nodes: What it runs, in order.
        policy: The global policy that it is made under.
        style: One of `STYLES`.
        input_dtype: Of its input; `int32` are ids, for an Embedding.
        num_outputs: 2 returns a dictionary with the newest two values.
    """

    nodes: tuple[Node, ...]
    policy: str = "mixed_bfloat16"
    style: str = "functional"
    input_dtype: str = "float32"
    num_outputs: int = 1


def in_float32(graph: Graph) -> Graph:
    """Returns the same model with every layer in float32."""
    return replace(graph, policy="float32", nodes=_without_dtypes(graph.nodes))


def _without_dtypes(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    return tuple(replace(node, dtype=None, inner=_without_dtypes(node.inner)) for node in nodes)


# Most layers follow the global policy, in programs and here.
_dtypes = st.one_of(st.none(), st.none(), st.none(), st.sampled_from(DTYPES))
_places = st.integers(0, 3)


def _layers(kinds: Sequence[str] = (*LAYERS, *MERGES, "again")) -> st.SearchStrategy[Node]:
    return st.builds(
        Node, kind=st.sampled_from(kinds), first=_places, second=_places, dtype=_dtypes
    )


def _operations(*, is_in_call: bool) -> st.SearchStrategy[Node]:
    # Operands make most of what goes wrong, and casts most of the rest.
    groups: list[Sequence[str]] = [UNARY, BINARY, BINARY, ("matmul", "einsum"), CASTS]
    if is_in_call:
        groups.append(IN_CALL)
    kinds = st.one_of([st.sampled_from(group) for group in groups])
    constants = st.sampled_from((*CONSTANTS, *(OWN_CONSTANTS if is_in_call else ())))
    flag = st.sampled_from((False, False, False, True)) if is_in_call else st.just(False)
    plain = st.builds(Node, kind=kinds, first=_places, second=_places, is_training_only=flag)
    return st.builds(
        lambda node, kind: replace(node, constant=kind) if node.kind in WITH_OPERAND else node,
        plain,
        constants,
    )


def _listed(element: st.SearchStrategy[Node], most: int) -> st.SearchStrategy[tuple[Node, ...]]:
    return st.lists(element, min_size=1, max_size=most).map(tuple)


def _blocks(depth: int) -> st.SearchStrategy[Node]:
    inner_layers = _layers((*IN_LAYER, *MERGES, "again"))
    inside = st.one_of(_operations(is_in_call=True), _operations(is_in_call=True), inner_layers)
    if depth > 1:
        inside = st.one_of(inside, inside, _blocks(depth - 1))
    return st.builds(
        Node,
        kind=st.just("block"),
        first=_places,
        second=_places,
        dtype=_dtypes,
        inner=_listed(inside, 4),
    )


def _nested(depth: int) -> st.SearchStrategy[Node]:
    return st.sampled_from(STYLES).flatmap(
        lambda style: st.builds(
            Node,
            kind=st.just("model"),
            first=_places,
            second=_places,
            dtype=_dtypes if style == "subclassed" else st.none(),
            inner=_bodies(style, depth - 1, 3),
            style=st.just(style),
        )
    )


def _bodies(style: str, depth: int, most: int) -> st.SearchStrategy[tuple[Node, ...]]:
    if style in ("sequential", "deferred"):
        choices = [_layers(IN_SEQUENCE)]
    elif style == "subclassed":
        inner_layers = _layers((*IN_LAYER, *MERGES, "again"))
        choices = [inner_layers, _operations(is_in_call=True)]
    else:
        choices = [_layers(), _operations(is_in_call=False)]
    choices.append(_blocks(depth))
    if depth > 1:
        choices.append(_nested(depth))
    return _listed(st.one_of(choices), most)


def graphs(
    policies: Sequence[str] = (*HALF_POLICIES, "float32"), most: int = 6
) -> st.SearchStrategy[Graph]:
    """Returns a strategy for models.

    Args:
        policies: Global policies to draw from.
        most: The number of nodes at the top.
    """

    def of_style(style: str) -> st.SearchStrategy[Graph]:
        return st.builds(
            Graph,
            nodes=_bodies(style, 2, most),
            policy=st.sampled_from(policies),
            style=st.just(style),
            input_dtype=st.sampled_from(("float32", "float32", "int32", "float16", "bfloat16")),
            num_outputs=st.just(1)
            if style in ("sequential", "deferred")
            else st.sampled_from((1, 1, 2)),
        )

    return st.sampled_from(STYLES).flatmap(of_style)


def graphs_with_products(policies: Sequence[str] = HALF_POLICIES) -> st.SearchStrategy[Graph]:
    """Returns a strategy for models that end in a custom layer with a matrix product."""
    block = st.builds(
        lambda before, product, constant, after, dtype: Node(
            "block",
            dtype=dtype,
            inner=(Node(before), Node(product, constant=constant), Node(after)),
        ),
        st.sampled_from(("cast_float32", "cast_float32", "cast_float64", "relu")),
        st.sampled_from(("matmul", "einsum", "operator_matmul", "Dot", "Dense")),
        st.sampled_from(("value", "np.float32", "array float32", "weight", "weight kept")),
        st.sampled_from(("cast_compute", "cast_compute", "cast_bfloat16", "Dense", "relu")),
        _dtypes,
    )
    return st.builds(
        lambda graph, last: replace(graph, nodes=(*graph.nodes, last)),
        graphs(policies, most=3),
        block,
    )


def as_config(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Returns nodes as what a layer's configuration can hold."""
    return [{**vars(node), "inner": as_config(node.inner)} for node in nodes]


def from_config(config: Sequence[dict[str, Any]]) -> tuple[Node, ...]:
    """Reads what `as_config` wrote."""
    return tuple(Node(**{**one, "inner": from_config(one["inner"])}) for one in config)
