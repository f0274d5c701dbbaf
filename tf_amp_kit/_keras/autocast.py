"""Private names of Keras about the dtype in which a layer reads its variables."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any


def autocast_scope(dtype: str | None) -> AbstractContextManager[Any]:
    """Makes float variables read as another dtype inside a `with` block.

    Uses `keras.src.backend.common.variables.AutocastScope`: Keras opens one in
    each layer's `__call__`, and no public name does it for a part of a call.

    Args:
        dtype: A float dtype's name, or None for the dtype that they are stored in.
    """
    from keras.src.backend.common.variables import AutocastScope

    return AutocastScope(dtype)  # type: ignore[no-any-return]


def autocast_dtype() -> str | None:
    """Returns the dtype that float variables read as here, or None for their own.

    Uses `keras.src.backend.common.variables.get_autocast_scope`: that scope is
    the only trace of which layer's call the running code is part of.
    """
    from keras.src.backend.common.variables import get_autocast_scope

    scope = get_autocast_scope()
    return None if scope is None else scope.dtype


def stored_dtype(variable: Any) -> str:
    """Returns the dtype in which a variable is stored.

    Uses `Variable._dtype`: inside a layer's call the public `dtype` is the one
    that the variable reads as.
    """
    return str(variable._dtype)


def is_autocast(variable: Any) -> bool:
    """Tells whether layers read a variable in their compute dtype.

    Uses `Variable._autocast`: moving statistics and the like stay as they are stored,
    and no public name tells.
    """
    return bool(getattr(variable, "_autocast", True))
