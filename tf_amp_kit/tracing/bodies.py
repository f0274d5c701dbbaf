"""Operations that run graphs of their own, and operations that write variables."""

from __future__ import annotations

from typing import Any, Final

from tf_amp_kit.tracing.raw import GraphRaw

__all__ = ["CALLING_TYPES", "LOOP_TYPES", "NUM_OWN_INPUTS", "WRITING_TYPES", "body_names"]

#: How many inputs an operation keeps for itself, before those that its bodies get: a
#: branch its condition. Of all operations that have bodies.
NUM_OWN_INPUTS: Final = {
    "While": 0,
    "StatelessWhile": 0,
    "If": 1,
    "StatelessIf": 1,
    "Case": 1,
    "StatelessCase": 1,
    "PartitionedCall": 0,
    "StatefulPartitionedCall": 0,
}
CALLING_TYPES: Final = frozenset(NUM_OWN_INPUTS)

#: Those that run their body again and again: `body_names` gives condition and body.
LOOP_TYPES: Final = frozenset({"While", "StatelessWhile"})

#: Operations that write their last input to a variable, which is their first.
WRITING_TYPES: Final = frozenset(
    {"AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp", "ResourceStridedSliceAssign"}
    | {f"ResourceScatter{kind}" for kind in ("Add", "Div", "Max", "Min", "Mul", "Sub", "Update")}
    | {f"ResourceScatterNd{kind}" for kind in ("Add", "Max", "Min", "Sub", "Update")}
)

_BODY_ATTRIBUTES: Final = ("cond", "body", "then_branch", "else_branch", "f")


def body_names(operation: Any) -> list[str]:
    """Returns the names of an operation's bodies, in order; the first branch comes first.

    Args:
        operation: A `tf.Operation` of `CALLING_TYPES`.
    """
    if operation.type in ("Case", "StatelessCase"):
        return [branch.name for branch in operation.get_attr("branches")]
    attribute = GraphRaw(operation).attribute
    found = [attribute(name) for name in _BODY_ATTRIBUTES]
    return [function.name for function in found if function is not None]
