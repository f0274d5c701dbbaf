"""What a loss scale may be and how it moves, validated before any work starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any, Final

from tf_amp_kit.errors import OptimizerError
from tf_amp_kit.formats import format_of

__all__ = ["DYNAMIC", "STATIC", "ScaleSettings", "settings_of_keras"]

DYNAMIC: Final = "dynamic"
STATIC: Final = "static"

_FLOAT32: Final = format_of("float32")


@dataclass(frozen=True, kw_only=True)
class ScaleSettings:
    """How the loss scale starts, moves and is bounded.

    Attributes:
        scaling: `"dynamic"`, or `"static"` for a scale that never moves.
        initial_scale: The first scale; Keras's own default.
        growth_factor: What the scale is multiplied by to raise it; above 1.
        backoff_factor: What it is multiplied by to lower it; between 0 and 1.
        growth_interval: Applied steps in a row before the scale is raised.
        min_scale: The scale never goes below. At 1 gradients are what they are
            without scaling; if those overflow, average the loss, or go lower.
        max_scale: The scale never goes above. At 2**24, gradients down to
            4e-15 survive in float16.
        hysteresis: Skipped steps in a row that it takes to lower the scale.
        max_consecutive_skips: Skipped steps in a row after which the run is
            stopped; None for never. From the largest scale, 24 of them reach 1.

    Raises:
        OptimizerError: If a setting is out of its range, or the initial scale
            out of its bounds.

    Example:

    >>> ScaleSettings(initial_scale=1024).bounds
    (1.0, 16777216.0)
    """

    scaling: str = DYNAMIC
    initial_scale: float = 2.0**15
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    min_scale: float = 1.0
    max_scale: float = 2.0**24
    hysteresis: int = 1
    max_consecutive_skips: int | None = 50

    def __post_init__(self) -> None:
        if self.scaling not in (DYNAMIC, STATIC):
            raise OptimizerError(
                f"Unknown kind of loss scaling. Expected {DYNAMIC!r} or {STATIC!r}. "
                f"Received: scaling={self.scaling!r}."
            )
        for name in ("initial_scale", "min_scale", "max_scale"):
            self._check_real(name, _FLOAT32.smallest_normal, _FLOAT32.largest)
        self._check_real(
            "growth_factor", 1.0 + _FLOAT32.epsilon, _FLOAT32.largest, "a number above 1"
        )
        self._check_real(
            "backoff_factor",
            _FLOAT32.smallest_normal,
            1.0 - _FLOAT32.epsilon,
            "a number between 0 and 1",
        )
        self._check_count("growth_interval")
        self._check_count("hysteresis")
        if self.max_consecutive_skips is not None:
            self._check_count("max_consecutive_skips", or_none=" or None")
        if not self.min_scale <= self.initial_scale <= self.max_scale and self.is_dynamic:
            raise OptimizerError(
                "The loss scale must start inside its bounds. Expected "
                "min_scale <= initial_scale <= max_scale. "
                f"Received: initial_scale={self.initial_scale}, min_scale={self.min_scale}, "
                f"max_scale={self.max_scale}."
            )

    @property
    def is_dynamic(self) -> bool:
        """Whether the scale moves at all."""
        return self.scaling == DYNAMIC

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest scale that will ever be used."""
        if self.is_dynamic:
            return self.min_scale, self.max_scale
        return self.initial_scale, self.initial_scale

    def to_dict(self) -> dict[str, Any]:
        """Gives the settings as plain values, as a config keeps them."""
        return asdict(self)

    def _check_real(self, name: str, lowest: float, highest: float, what: str = "") -> None:
        value = getattr(self, name)
        is_real = isinstance(value, Real) and not isinstance(value, bool)
        if not is_real or not lowest <= float(value) <= highest:
            what = what or f"a number from {lowest:.6g} to {highest:.6g}"
            raise OptimizerError(f"Expected {what} as {name}. Received: {name}={value!r}.")
        # NumPy's scalars too become what a config can keep.
        object.__setattr__(self, name, float(value))

    def _check_count(self, name: str, *, or_none: str = "") -> None:
        value = getattr(self, name)
        is_count = isinstance(value, Integral) and not isinstance(value, bool)
        if not is_count or int(value) < 1:
            raise OptimizerError(
                f"Expected a whole number of steps from 1 up{or_none} as {name}. "
                f"Received: {name}={value!r}."
            )
        object.__setattr__(self, name, int(value))


def settings_of_keras(
    initial_scale: float, dynamic_growth_steps: int, **_: Any
) -> dict[str, float | int]:
    """Translates the settings of Keras's own optimizer, which knows no bounds.

    Args:
        initial_scale: As Keras has it. Bounds that exclude it are widened.
        dynamic_growth_steps: As Keras has it.

    Returns:
        Arguments of `ScaleSettings`.

    Example:

    >>> settings_of_keras(1024.0, 100)["growth_interval"]
    100
    """
    return {
        "initial_scale": initial_scale,
        "growth_interval": dynamic_growth_steps,
        "min_scale": min(initial_scale, ScaleSettings.min_scale),
        "max_scale": max(initial_scale, ScaleSettings.max_scale),
    }
