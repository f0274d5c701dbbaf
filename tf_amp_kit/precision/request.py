"""From what a user wrote to a validated state, and what to say about it.

Nothing here changes anything: a refused request leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import keras

from tf_amp_kit import hardware
from tf_amp_kit.errors import (
    AmpWarning,
    EnvironmentUnfit,
    PrecisionError,
    PureHalfWarning,
    SlowPrecisionWarning,
)
from tf_amp_kit.formats import is_half, parse_precision
from tf_amp_kit.precision.state import AmpState

__all__ = [
    "AUTO",
    "DEFAULT_LEVEL",
    "FLOAT32",
    "LEVELS",
    "ON_CONFLICT",
    "RAISE",
    "Doubt",
    "check_on_conflict",
    "doubts",
    "parse_request",
]

LEVELS: Final = ("O0", "O1", "O2", "O3")

# The level of the published recipes: half wherever it is safe.
DEFAULT_LEVEL: Final = "O1"

AUTO: Final = "auto"

#: What may happen to a layer that half precision makes fail.
RAISE: Final = "raise"
FLOAT32: Final = "float32"
ON_CONFLICT: Final = (RAISE, FLOAT32)


class Doubt(NamedTuple):
    """A reason to warn: what causes it, the warning's category and its text."""

    cause: str
    category: type[AmpWarning]
    message: str


def parse_request(name: Any, level: Any) -> AmpState:
    """Turns what a user wrote into a state, and asks the hardware for `"auto"`.

    Args:
        name: A precision in any spelling, or `"auto"`.
        level: One of `LEVELS`.

    Returns:
        An `AmpState`, which nobody has been told about yet.

    Raises:
        PrecisionError: If either is unknown, or the two contradict each other.
        EnvironmentUnfit: If Keras is set up in a way that cannot work.

    Example:

    >>> parse_request("half", "O2").policy_name
    'mixed_float16'
    """
    precision = parse_precision(name, also=(AUTO,))
    _check_level(level, name, precision)
    _check_environment()
    if level == "O0":
        return AmpState("float32", "O0", name)
    if precision == AUTO:
        precision = hardware.detect_hardware().auto_precision
    return AmpState(precision, level if is_half(precision) else "O0", name)


def doubts(request: AmpState, level: str) -> Iterator[Doubt]:
    """Finds what a user should know before the request is carried out.

    Args:
        request: The parsed request.
        level: The level as the user wrote it; float32 forgets it.

    Yields:
        One `Doubt` per cause.

    Example:

    >>> [doubt.category.__name__ for doubt in doubts(parse_request("fp32", "O1"), "O1")]
    []
    """
    precision, name = request.precision, request.requested
    if name.lower() == AUTO and precision == "float32" and level != "O0":
        yield Doubt(
            "auto is float32",
            SlowPrecisionWarning,
            f"'auto' picks float32: {hardware.detect_hardware().auto_reason}. "
            f"Received: name={name!r}. Ask for 'bf16' or 'fp16' to run half precision anyway.",
        )
    slow_reason = hardware.detect_hardware().slow_reason(precision) if is_half(precision) else None
    if slow_reason is not None:
        yield Doubt(
            f"{precision} is slow",
            SlowPrecisionWarning,
            f"{precision} runs slower than float32 on this machine: {slow_reason}. "
            f"Received: name={name!r}. "
            f"'auto' picks {hardware.detect_hardware().auto_precision} here.",
        )
    if request.level == "O3":
        yield Doubt(
            f"{precision} has no master weights",
            PureHalfWarning,
            f"Level 'O3' keeps variables and optimizer state in {precision}: there are no "
            "float32 master weights, so updates below half a rounding step of a weight are "
            "lost, and Keras adds no loss scaling. Received: level='O3'. "
            "Level 'O2' keeps master weights.",
        )


def check_on_conflict(value: Any) -> None:
    """Refuses what is neither None nor one of `ON_CONFLICT`.

    Raises:
        PrecisionError: Then.
    """
    if value is not None and value not in ON_CONFLICT:
        raise PrecisionError(
            f"Unknown way out of a conflict. Expected one of {list(ON_CONFLICT)}. "
            f"Received: on_conflict={value!r}."
        )


def _check_level(level: Any, name: Any, precision: str) -> None:
    if level not in LEVELS:
        raise PrecisionError(
            f"Unknown level. Expected one of {list(LEVELS)}. Received: level={level!r}. "
            f"Leave it out for {DEFAULT_LEVEL!r}."
        )
    if level == "O0" and is_half(precision):
        raise PrecisionError(
            "Level 'O0' is float32 everywhere. Expected a level from 'O1' to 'O3' with a half "
            f"precision. Received: name={name!r}, level={level!r}. "
            "Leave the level out, or ask for 'fp32'."
        )
    if level in ("O2", "O3") and precision == "float32":
        raise PrecisionError(
            f"Level {level!r} is about half precision. Expected no level with float32. "
            f"Received: name={name!r}, level={level!r}. Leave the level out, or ask for 'bf16'."
        )


def _check_environment() -> None:
    if keras.config.backend() != "tensorflow":
        raise EnvironmentUnfit(
            "Keras runs on another backend. Expected keras.config.backend() == 'tensorflow'. "
            f"Received: keras.config.backend()={keras.config.backend()!r}. "
            "Set the environment variable KERAS_BACKEND=tensorflow before Keras is imported."
        )
    if keras.config.floatx() != "float32":
        raise EnvironmentUnfit(
            "Mixed precision starts from float32. Expected keras.config.floatx() == 'float32'. "
            f"Received: keras.config.floatx()={keras.config.floatx()!r}. "
            "Call keras.config.set_floatx('float32') first; for half-precision variables "
            "use level='O3'."
        )
