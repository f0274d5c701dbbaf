"""Pinning what half precision makes fail, when a model is built or first called.

A call that runs eagerly runs as it would, and is made once more with pins if dtypes make
it fail: `attempts` has how. What a graph is traced of can be made only once, as all that a
failed attempt put into it would stay: before that, the call is rehearsed in a graph that
never runs, in which what has no kernel raises, too. Shapes are inferred where nothing is
kept, so that attempts are made in place there.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.callers import stacklevel_of_user
from tf_amp_kit.errors import AmpError, ConflictWarning
from tf_amp_kit.precision.curing.attempts import (
    Attempts,
    Cured,
    holds_half_layers,
    left_on_failure,
)
from tf_amp_kit.precision.curing.rehearsal import rehearsed, spec_of
from tf_amp_kit.precision.pinning import registry
from tf_amp_kit.precision.pinning.applying import set_pins
from tf_amp_kit.precision.pinning.targets import held
from tf_amp_kit.tables import some
from tf_amp_kit.tracing.conflicts import POSSIBLE_ERRORS, describe
from tf_amp_kit.tracing.inputs import accepts_training, candidate_specs
from tf_amp_kit.tracing.paths import ROOT, LayerPaths
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["UNSET", "Curing", "in_this_context", "resting"]


_Original: TypeAlias = Callable[..., Any]

# How many kinds of calls of one layer are told apart by the numbers among their arguments.
_MAX_KEYS: Final = 64

# What to do about a layer whose code mixes what several of its layers return.
_LESS: Final = (
    " More can stay in half where code casts constants to the dtype of the tensors that they "
    "meet, or where `tf_amp_kit.layers.Float32(layer)` casts the result of one layer back."
)


class Curing:
    """Pins what fails, and remembers what it pinned; keeps no layer alive."""

    def __init__(self, *, warns: bool = True) -> None:
        self._warns = warns
        self._cured: list[Cured] = []
        self._num_told = 0
        self._seen: WeakKeyDictionary[Any, set[Hashable]] = WeakKeyDictionary()

    def told(self) -> list[str]:
        """Returns what was pinned since the last time, each with the reason."""
        found = [one.label for one in self._cured[self._num_told :]]
        self._num_told += len(found)
        return found

    def warn(self) -> None:
        """Warns of what was pinned since the last time."""
        if not self._warns:
            return
        is_whole = any(one.is_whole for one in self._cured[self._num_told :])
        labels = self.told()
        if labels:
            one, shown = len(labels) == 1, some(labels).replace("'", "")
            warnings.warn(
                f"{'A layer fails' if one else f'{len(labels)} layers fail'} in half precision, "
                f"and {'is' if one else 'are'} pinned in float32: {shown}. "
                "`tf_amp_kit.Pins.on(model)` has the pins, to print, save or undo."
                f"{_LESS if is_whole else ''}",
                ConflictWarning,
                stacklevel=stacklevel_of_user(),
            )

    def run(self, layer: Any, original: _Original, args: Any, kwargs: Any) -> Any:
        """Runs a layer call, in float32 if half precision makes it fail."""
        attempts = _attempts.get()
        if attempts is not None:
            return attempts.call(layer, original, args, kwargs)
        with self._attempting(layer) as attempts:
            if _keras.is_stateless() or _is_symbolic((args, kwargs)):
                return attempts.call(layer, original, args, kwargs)
            attempts.are_made = False
            seen = self._seen.setdefault(layer, set())
            key = _key(args, kwargs, by_number=len(seen) < _MAX_KEYS)
            if key in seen or _is_one_of_several_replicas():
                way = _plainly
            else:
                way = _eagerly if tf.executing_eagerly() else self._after_a_rehearsal
            seen.discard(key)  # for as long as it may fail
            outputs = way(attempts, layer, original, args, kwargs)
            seen.add(key)
            return outputs

    def rehearse(self, model: Any) -> None:
        """Pins what would fail in calls of a model that is built, training or not.

        Args:
            model: The model.

        Raises:
            InputsError: If its inputs are unknown.
        """
        specs = next(iter(candidate_specs(model, None)))
        for mode in ({"training": False}, {"training": True}) if accepts_training(model) else ({},):
            self._rehearse(model, keras.layers.Layer.__call__, specs.args, {**specs.kwargs, **mode})
        self.warn()

    def _after_a_rehearsal(
        self, attempts: Attempts, layer: Any, original: _Original, args: Any, kwargs: Any
    ) -> Any:
        """Makes a call that is traced into a graph which will run."""
        # Whatever goes wrong, the call itself will say it.
        with contextlib.suppress(AmpError, *USER_CODE_ERRORS):
            if not layer.built:
                with left_on_failure(layer):
                    _keras.build_as_called(layer, args, kwargs)
            self._rehearse(layer, original, args, kwargs)
        self.warn()
        return original(layer, *args, **kwargs)

    def _rehearse(self, layer: Any, original: _Original, args: Any, kwargs: Any) -> None:
        if not holds_half_layers(layer):
            return
        with self._attempting(layer) as attempts:

            def call(*args: Any, **kwargs: Any) -> Any:
                return attempts.call(layer, original, args, kwargs)

            rehearsed(layer, call, args, kwargs)

    @contextlib.contextmanager
    def _attempting(self, root: Any) -> Iterator[Attempts]:
        """Keeps the pins of a call that succeeds; one that fails leaves none."""
        attempts = Attempts()
        try:
            with _keras.context_value(_attempts, attempts):
                yield attempts
        except BaseException:
            attempts.take_back()
            raise
        if attempts.cured:
            self._cured += attempts.cured
            self._settle(root)

    def _settle(self, root: Any) -> None:
        """Gives pins below a model, or a layer, their place in its configuration."""
        paths = LayerPaths(root)
        pinned = [(one.layer_ref(), one.claim) for one in self._cured]
        below = [pair for pair in pinned if paths.of(pair[0]) is not None]
        # Those of an earlier time are claims of `set_pins` by now, which finds them itself.
        new = [pair for pair in below if any(one is pair[1] for one in registry.claims(pair[0]))]
        reasons = {paths.of(layer) or ROOT: claim.reason for layer, claim in new}
        registry.unpin(root, new)
        try:
            with tf.init_scope(), resting():
                set_pins(root, dict(held(LayerPaths(root), reasons)), is_named=False, look=False)
        except AmpError:  # no file keeps them
            for layer, claim in new:
                registry.pin(LayerPaths(layer), ROOT, claim)


def _plainly(attempts: Attempts, layer: Any, original: _Original, args: Any, kwargs: Any) -> Any:
    """Makes a call as it would be made."""
    return original(layer, *args, **kwargs)


def _eagerly(attempts: Attempts, layer: Any, original: _Original, args: Any, kwargs: Any) -> Any:
    """Makes a call as it would be made, and again from the start if dtypes make it fail."""
    is_half = holds_half_layers(layer)
    try:
        with left_on_failure(layer):
            return original(layer, *args, **kwargs)
    except POSSIBLE_ERRORS as error:
        if not (is_half and describe(error).blames_half):
            raise
    # Out of the error's reach, whose traceback keeps what the first call made alive.
    attempts.are_made = True
    return attempts.call(layer, original, args, kwargs)


_attempts: ContextVar[Attempts | None] = ContextVar("attempts", default=None)
UNSET: Final = object()
#: What cures calls in this context: a `Curing`, None for nothing, or what holds elsewhere.
in_this_context: ContextVar[Any] = ContextVar("curing", default=UNSET)


@contextlib.contextmanager
def resting() -> Iterator[None]:
    """Lets calls in this context fail as they would, for the time of a `with` block."""
    with _keras.context_value(in_this_context, None):
        yield


def _key(args: Any, kwargs: Any, *, by_number: bool) -> Hashable:
    """Returns what tells calls apart that may take different ways through the code.

    Args:
        args: The arguments by position.
        kwargs: The others.
        by_number: Whether numbers count: no two calls are alike that are told their step.
    """
    by_value = (bool, str, type(None), tf.TypeSpec, *((int, float) if by_number else ()))
    leaves = keras.tree.flatten((args, kwargs))
    kinds = (spec_of(leaf) or leaf for leaf in leaves)
    return (
        tf.executing_eagerly(),
        tuple(sorted(kwargs)),
        tuple(_keras.mask_of(leaf) is not None for leaf in leaves),
        *(one if isinstance(one, by_value) else type(one) for one in kinds),
    )


def _is_symbolic(arguments: Any) -> bool:
    return any(isinstance(one, keras.KerasTensor) for one in keras.tree.flatten(arguments))


def _is_one_of_several_replicas() -> bool:
    strategy = tf.distribute.get_strategy()
    return strategy.num_replicas_in_sync > 1 and not tf.distribute.in_cross_replica_context()
