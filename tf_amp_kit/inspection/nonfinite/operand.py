"""What is kept of an operation's operand: its dtype, its shape and its range."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tf_amp_kit.inspection.nonfinite.numbers import number

__all__ = ["Operand"]


@dataclass(frozen=True)
class Operand:
    """The range of one operand or result of an operation.

    Attributes:
        dtype: Its dtype's name, `"float16"` for example.
        shape: Its shape.
        minimum: The smallest finite element, nan if there is none.
        maximum: The largest finite element, nan if there is none.
        smallest: The smallest magnitude of the finite elements that are not
            zero, nan if there is none.
        num_elements: How many elements there are.
        num_zeros: How many of them are zero.
        num_nan: How many are NaN.
        num_infinite: How many are infinite, of either sign.
        constant: What the code says, if the operand comes from a constant that
            half precision changed: 1e-8 that became 0. Else None.
        constant_source: Where it says so, as `"file:line"`, or `""`.
        num_positive_infinite: How many are plus infinity, None if not known.
    """

    dtype: str
    shape: tuple[int, ...]
    minimum: float
    maximum: float
    smallest: float
    num_elements: int
    num_zeros: int
    num_nan: int
    num_infinite: int
    constant: float | None = None
    constant_source: str = ""
    num_positive_infinite: int | None = None

    @classmethod
    def of(
        cls, array: ArrayLike, *, constant: float | None = None, constant_source: str = ""
    ) -> Operand:
        """Measures an array.

        Args:
            array: Numbers of any shape and dtype, bfloat16 too. Text and complex
                numbers have no range: they are counted only.
            constant: What the code says, if half precision changed it.
            constant_source: Where it says so.

        Returns:
            An `Operand`.

        Example:

        >>> print(Operand.of(np.array([[0.5, -2.0]], "float16")))
        float16 (1, 2): -2 to 0.5
        """
        values = np.asarray(array)
        numbers = _as_floats(values)
        finite = numbers[np.isfinite(numbers)]
        magnitudes = np.abs(finite[finite != 0])
        num_infinite = int(np.isinf(numbers).sum())
        return cls(
            dtype=values.dtype.name,
            shape=tuple(values.shape),
            minimum=float(finite.min()) if finite.size else math.nan,
            maximum=float(finite.max()) if finite.size else math.nan,
            smallest=float(magnitudes.min()) if magnitudes.size else math.nan,
            num_elements=int(values.size),
            num_zeros=int((finite == 0).sum()),
            num_nan=int(np.isnan(numbers).sum()),
            num_infinite=num_infinite,
            constant=constant,
            constant_source=constant_source,
            num_positive_infinite=int((numbers == math.inf).sum()),
        )

    @property
    def largest(self) -> float:
        """The largest magnitude of the finite elements, nan if there is none."""
        return max(abs(self.minimum), abs(self.maximum))

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields and `largest` for strict JSON: None for what is not finite.

        Example:

        >>> Operand.of(np.array([np.inf], "float32")).to_dict()["maximum"] is None
        True
        """
        fields = {**asdict(self), "shape": list(self.shape), "largest": self.largest}
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in fields.items()
        }

    def __str__(self) -> str:
        if not self.num_elements:
            values = "no elements"
        elif math.isnan(self.minimum):
            values = "no finite numbers"
        else:
            values = f"{number(self.minimum)} to {number(self.maximum)}"
        counts = {"NaN": self.num_nan, "infinite": self.num_infinite}
        others = "".join(f", {count} {word}" for word, count in counts.items() if count)
        return f"{self.dtype} {self.shape}: {values}{others}"


def _as_floats(values: NDArray[Any]) -> NDArray[Any]:
    """Gives the numbers in a float dtype of NumPy's own, flat.

    Complex numbers come as NaN if they hold one, as infinity if they hold one,
    and are left out otherwise, as is text.
    """
    flat = values.reshape(-1)
    if np.iscomplexobj(flat):
        bad = flat[~np.isfinite(flat)]
        return np.where(np.isnan(bad), math.nan, math.inf)
    if flat.dtype.kind in "OSUM":
        return np.empty(0)
    # Half formats fit into float32, which takes half of the memory of float64.
    is_narrow = flat.dtype.itemsize <= 2
    floats: NDArray[Any] = flat.astype(np.float32 if is_narrow else np.float64, copy=False)
    return floats
