"""Switching a precision on and off, for a program or for a block of code.

| level | Keras policy | kept in float32 once there is a model |
|---|---|---|
| O0 | float32 | everything |
| O1 | mixed | numerically sensitive layers and the output head |
| O2 | mixed | the output head |
| O3 | pure half, variables too | nothing |

Layers take their policy when they are created, so switch on before building.
Levels O1 and O2 set the same Keras policy; the level is recorded for the steps
that have a model to work on.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tf_amp_kit import hardware
from tf_amp_kit.formats import parse_precision
from tf_amp_kit.precision import state
from tf_amp_kit.precision.curing.scope import curing, resting
from tf_amp_kit.precision.pinning.pins import HoldsPins, Pins
from tf_amp_kit.precision.request import (
    AUTO,
    DEFAULT_LEVEL,
    RAISE,
    check_on_conflict,
    doubts,
    parse_request,
)
from tf_amp_kit.precision.state import AmpState

__all__ = ["amp_scope", "current_amp", "disable_amp", "enable_amp", "is_supported"]

# Causes that were warned about in this process.
_warned: Final[set[str]] = set()


def enable_amp(
    name: str = AUTO,
    *,
    level: str = DEFAULT_LEVEL,
    pins: Pins | HoldsPins | str | Path | None = None,
) -> AmpState:
    """Switches a precision on, for every layer created from now on.

    Call it before the model is built: existing layers keep their policy. The
    request is recorded for the whole process. Keras's own policy is set on the
    calling thread only, and `keras.utils.clear_session()` resets it: call
    `enable_amp` again after it, and in each thread that builds models. Inside
    an `amp_scope`, the change lasts until that scope ends.

    Args:
        name: `"bf16"`, `"fp16"`, `"fp32"`, a dtype name, a Keras policy name,
            or `"auto"` for what this machine runs fastest.
        level: `"O0"` float32; `"O1"` mixed, meant with sensitive layers and the
            head in float32; `"O2"` mixed, meant with the head alone; `"O3"`
            pure half. float32 is always recorded as `"O0"`. The policy reaches
            all layers alike: `pin_float32(model)` applies the rest once there is a
            model, and until then the audit says so.
        pins: What `pin_float32(model)` pins instead of the level's layers: pins,
            a precision plan, or the file of either.

    Returns:
        The `AmpState` that is now current.

    Raises:
        PrecisionError: If `name` or `level` is unknown, or the two contradict
            each other.
        PinError: If `pins` are no pins.
        EnvironmentUnfit: If Keras runs on another backend than TensorFlow, or
            its floatx is not float32.

    Example:

    >>> import keras
    >>> print(enable_amp("bf16"))
    bfloat16, level O1, Keras policy mixed_bfloat16
    >>> keras.layers.Dense(2).compute_dtype
    'bfloat16'
    >>> disable_amp()
    """
    requested = _resolve(name, level, pins)
    state.switch_on(requested)
    return requested


def disable_amp() -> None:
    """Switches off what `enable_amp` switched on.

    The calling thread's Keras policy becomes what it was before the first
    `enable_amp`, be it float32 or a policy of your own. Inside an `amp_scope`,
    AMP is off until that scope ends. Where nothing was switched on, nothing
    changes: a policy set with Keras itself stays.

    Example:

    >>> import keras
    >>> state = enable_amp("bf16")
    >>> disable_amp()
    >>> current_amp() is None, keras.config.dtype_policy().name
    (True, 'float32')
    """
    state.switch_off()


def amp_scope(
    name: str = AUTO,
    *,
    level: str = DEFAULT_LEVEL,
    pins: Pins | HoldsPins | str | Path | None = None,
    on_conflict: str | None = None,
) -> AbstractContextManager[AmpState]:
    """Switches a precision on for the layers created inside a `with` block.

    At the end of the block Keras's policy and the current state are what they
    were, also after an exception, `clear_session()` or an `enable_amp` inside.
    Scopes nest, the innermost wins. Tasks that share a thread share Keras's
    policy: do not `await` between entering the scope and building the model.

    Args:
        name: As in `enable_amp`.
        level: As in `enable_amp`.
        pins: As in `enable_amp`.
        on_conflict: What happens to a layer whose call raises because of dtypes, or
            that runs an operation without a half-precision kernel. `"raise"`: the
            error is yours. `"float32"`: the innermost layer that cures it is pinned, and
            called again, for models that are built, called or trained while the block
            lasts. A call that is made again counts once: statistics, seeds and metrics move
            as they would have. What is traced into a graph is traced once before, to look.
            What only gradients cannot do, and loops of one's own over several replicas,
            raise as ever. A warning lists the layers, before a graph runs and at the end of
            the block; `Pins.on(model)` and `pin_float32(model)` have the pins. None is what
            holds around the block, and `"raise"` elsewhere.

    Returns:
        A context manager that gives the `AmpState`.

    Raises:
        PrecisionError: As in `enable_amp`, or if `on_conflict` is unknown.
        PinError: As in `enable_amp`.
        EnvironmentUnfit: As in `enable_amp`.

    Example:

    >>> import keras
    >>> with amp_scope("bf16"):
    ...     keras.layers.Dense(2).compute_dtype
    'bfloat16'
    >>> keras.layers.Dense(2).compute_dtype
    'float32'
    """
    check_on_conflict(on_conflict)
    requested = _resolve(name, level, pins)
    return (
        state.entered(requested) if on_conflict is None else _conflict_scope(requested, on_conflict)
    )


@contextmanager
def _conflict_scope(requested: AmpState, on_conflict: str) -> Iterator[AmpState]:
    way_out: AbstractContextManager[Any] = resting() if on_conflict == RAISE else curing()
    with state.entered(requested) as entered, way_out:
        yield entered


def current_amp() -> AmpState | None:
    """Tells what was asked for: by the innermost scope, else by `enable_amp`.

    It answers the same in every thread and after `clear_session()`, where
    Keras's own policy may have fallen back to float32 without a word.

    Returns:
        An `AmpState`, or None if AMP is off.

    Example:

    >>> with amp_scope("bf16", level="O2"):
    ...     print(current_amp())
    bfloat16, level O2, Keras policy mixed_bfloat16
    """
    return state.current()


def is_supported(precision: str) -> bool | None:
    """Tells whether this machine has a fast path for a precision.

    Without one TensorFlow still computes, often several times slower than in
    float32. `detect_hardware()` has the reason for each device.

    Args:
        precision: Any spelling that `enable_amp` takes, except `"auto"`.

    Returns:
        True, False, or None where the hardware does not tell.

    Raises:
        PrecisionError: If `precision` is unknown.

    Example:

    >>> is_supported("fp32")
    True
    """
    return hardware.detect_hardware().is_fast(parse_precision(precision, argument="precision"))


def _resolve(name: Any, level: Any, pins: Any) -> AmpState:
    """Validates a request and says what must be said; changes no state.

    Called by public functions directly: the stacklevel counts on it.
    """
    requested = replace(parse_request(name, level), pins=_detached(Pins.parse(pins)))
    for doubt in doubts(requested, level):
        if doubt.cause not in _warned:
            warnings.warn(doubt.message, doubt.category, stacklevel=3)
            # Afterwards, so that a warning turned into an error is said again.
            _warned.add(doubt.cause)
    return requested


def _detached(pins: Pins | None) -> Pins | None:
    # What is recorded for the process must not keep a model alive.
    return None if pins is None else Pins(pins.model_name, pins.pins)


def forget_warnings() -> None:
    """Lets every warning be given once more; meant for tests and notebooks."""
    _warned.clear()
