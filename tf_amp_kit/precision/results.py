"""The dtype in which layers that compute in float32 give their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import keras

from tf_amp_kit.errors import LayerError

__all__ = ["COMPUTE", "FLOAT32", "CastsResults", "Results", "checked_output"]

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


class CastsResults:
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
