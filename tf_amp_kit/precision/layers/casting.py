"""What goes up to float32, what comes back, and to which dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import keras

from tf_amp_kit import _keras
from tf_amp_kit.errors import LayerError
from tf_amp_kit.formats import is_float, is_half

__all__ = [
    "COMPUTE",
    "FLOAT32",
    "GivesBack",
    "Results",
    "cast_floats",
    "checked_output",
    "dtype_name",
]

FLOAT32: Final = "float32"
COMPUTE: Final = "compute"


@dataclass(frozen=True)
class Results:
    """The dtype in which a layer that computes in float32 gives its results.

    Attributes:
        output: `"compute"` for the compute dtype of the policy, or `"float32"`.
        policy: The Keras dtype policy that the layer would have had otherwise.
    """

    output: str
    policy: Any

    @classmethod
    def parse(cls, output: Any, dtype: Any) -> Results:
        """Reads a layer's arguments; no dtype is the global policy of the moment."""
        return cls(checked_output(output), keras.dtype_policies.get(dtype))

    @property
    def dtype(self) -> str:
        """The dtype's name."""
        return FLOAT32 if self.output == FLOAT32 else str(self.policy.compute_dtype)

    def config(self) -> dict[str, Any]:
        """Returns the layer's arguments as a file keeps them."""
        return {"output": self.output, "dtype": keras.dtype_policies.serialize(self.policy)}


class GivesBack:
    """A layer whose own policy is float32, and whose results another one may tell.

    Comes before `keras.layers.Layer` among the bases.
    """

    _results: Results

    @property
    def results_policy(self) -> Any:
        """The dtype policy that results come back to, and that files keep."""
        return self._results.policy

    @results_policy.setter
    def results_policy(self, value: Any) -> None:
        self._results = Results.parse(self._results.output, value)

    @property
    def dtype_policy(self) -> Any:
        """The float32 policy; setting another changes what results come back to."""
        return super().dtype_policy  # type: ignore[misc]

    @dtype_policy.setter
    def dtype_policy(self, value: Any) -> None:
        self.results_policy = value


def checked_output(output: Any) -> str:
    """Returns the argument `output` if it is one of the two words.

    Raises:
        LayerError: If it is none of them.

    Example:

    >>> checked_output("compute")
    'compute'
    """
    if output in (COMPUTE, FLOAT32):
        return str(output)
    raise LayerError(
        f"Unknown output. Expected {COMPUTE!r}, for the compute dtype, or {FLOAT32!r}. "
        f"Received: output={output!r}."
    )


def cast_floats(structure: Any, dtype: str, *, only_half: bool = False) -> Any:
    """Casts the float tensors of a nested structure, masks kept; the rest stays.

    Args:
        structure: Tensors, symbolic ones too, and anything else, nested.
        dtype: The dtype to cast to.
        only_half: Leaves float32 and float64 tensors as they are.

    Returns:
        The same structure.

    Example:

    >>> half = keras.ops.ones((2,), "float16")
    >>> cast_floats({"x": half, "axis": 1}, "float32")["x"].dtype.name
    'float32'
    """
    is_meant = is_half if only_half else is_float

    def cast(value: Any) -> Any:
        found = dtype_name(value)
        return _keras.cast_with_mask(value, dtype) if is_meant(found) and found != dtype else value

    return keras.tree.map_structure(cast, structure)


def dtype_name(value: Any) -> str:
    """Returns the dtype of a tensor, and an empty string for what is none.

    Example:

    >>> dtype_name(keras.ops.ones((2,), "bfloat16")), dtype_name(1.5)
    ('bfloat16', '')
    """
    if isinstance(value, keras.KerasTensor) or keras.ops.is_tensor(value):
        return str(getattr(value.dtype, "name", value.dtype))
    return ""
