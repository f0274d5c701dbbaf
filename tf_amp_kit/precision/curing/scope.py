"""Where layers that half precision makes fail are pinned, and for how long."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import keras

from tf_amp_kit import _keras
from tf_amp_kit.errors import AmpError, ConflictWarning
from tf_amp_kit.precision.curing.calls import UNSET, Curing, in_this_context, resting
from tf_amp_kit.tracing.observe import is_observed
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["curing", "curing_unless_resting", "resting"]

_everywhere: Curing | None = None


@contextlib.contextmanager
def curing(*, in_every_thread: bool = False) -> Iterator[Curing]:
    """Pins layers that half precision makes fail, for the time of a `with` block.

    Warns at the end of what was pinned, unless it is for every thread.

    Args:
        in_every_thread: Whether it is for the process, not for this context alone.

    Yields:
        What does it.
    """
    global _everywhere
    found = Curing(warns=not in_every_thread)
    with _calls.installed(), _train_functions.installed():
        try:
            if in_every_thread:
                before, _everywhere = _everywhere, found
                try:
                    yield found
                finally:
                    _everywhere = before
            else:
                with _keras.context_value(in_this_context, found):
                    yield found
        except BaseException:
            with contextlib.suppress(ConflictWarning):  # where warnings are errors
                found.warn()
            raise
        found.warn()


def curing_unless_resting() -> contextlib.AbstractContextManager[Any]:
    """Does what `curing` does, but where errors have been asked for."""
    return contextlib.nullcontext() if in_this_context.get() is None else curing()


def _present() -> Curing | None:
    found = in_this_context.get()
    return _everywhere if found is UNSET else found


def _cured_calls(original: Any) -> Any:
    @functools.wraps(original)
    def cured_call(layer: Any, /, *args: Any, **kwargs: Any) -> Any:
        found = _present()
        if found is None or is_observed():
            return original(layer, *args, **kwargs)
        return found.run(layer, original, args, kwargs)

    return cured_call


def _rehearsing_before_replicas(original: Any) -> Any:
    """Rehearses models that train on several replicas, which are threads of their own."""

    @functools.wraps(original)
    def make_train_function(model: Any, *args: Any, **kwargs: Any) -> Any:
        found = _present()
        if found is not None and model.distribute_strategy.num_replicas_in_sync > 1:
            # The replicas will say what is wrong.
            with contextlib.suppress(AmpError, *USER_CODE_ERRORS):
                found.rehearse(model)
        return original(model, *args, **kwargs)

    return make_train_function


_calls = _keras.ClassPatch(keras.layers.Layer, "__call__", _cured_calls)
_train_functions = _keras.train_function_patch(_rehearsing_before_replicas)
