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
from typing import Any, Final
from weakref import WeakKeyDictionary

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.callers import stacklevel_of_user
from tf_amp_kit.errors import AmpError, ConflictWarning
from tf_amp_kit.precision.pinning import registry
from tf_amp_kit.precision.pinning.applying import set_pins
from tf_amp_kit.precision.pinning.attempts import Attempts, Cured, holds_half_layers
from tf_amp_kit.precision.pinning.rehearsal import rehearsed, spec_of
from tf_amp_kit.precision.pinning.targets import held
from tf_amp_kit.tables import some
from tf_amp_kit.tracing.conflicts import POSSIBLE_ERRORS, describe
from tf_amp_kit.tracing.inputs import accepts_training, candidate_specs
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.state import variables_restored_on_failure

__all__ = ["UNSET", "Curing", "in_this_context", "resting"]


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

    def run(self, layer: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Runs a layer call, in float32 if half precision makes it fail."""
        attempts = _attempts.get()
        if attempts is not None:
            return attempts.call(layer, original, args, kwargs)
        if _keras.is_stateless():
            return self._in_place(layer, original, args, kwargs)
        if _is_within.get():
            return original(layer, *args, **kwargs)
        if _is_symbolic((args, kwargs)):
            return self._in_place(layer, original, args, kwargs)
        key = _key(args, kwargs)
        if key in self._seen.get(layer, ()) or _is_one_of_several_replicas():
            with _keras.context_value(_is_within, True):
                return original(layer, *args, **kwargs)
        run = self._eagerly if tf.executing_eagerly() else self._after_a_rehearsal
        outputs = run(layer, original, args, kwargs)
        self._seen.setdefault(layer, set()).add(key)
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

    def _eagerly(self, layer: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Makes a call as it would be made, and again from the start if dtypes make it fail."""
        paths = LayerPaths(layer)
        try:
            with (
                _keras.context_value(_is_within, True),
                _keras.unbuilt_again(one for _, one in paths),
                variables_restored_on_failure(paths),
            ):
                return original(layer, *args, **kwargs)
        except POSSIBLE_ERRORS as error:
            if not (describe(error).blames_half and holds_half_layers(layer)):
                raise
            return self._in_place(layer, original, args, kwargs)

    def _after_a_rehearsal(
        self, layer: Any, original: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Makes a call that is traced into a graph which will run."""
        # Errors are left to the call itself, which will say what is wrong.
        if not layer.built:
            with contextlib.suppress(Exception), _keras.unbuilt_again([layer]):
                _keras.build_as_called(layer, args, kwargs)
        with contextlib.suppress(Exception):
            self._rehearse(layer, original, args, kwargs)
        self.warn()
        with _keras.context_value(_is_within, True):
            return original(layer, *args, **kwargs)

    def _rehearse(self, layer: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> None:
        if not holds_half_layers(layer):
            return
        with self._attempting(layer) as attempts:

            def call(*args: Any, **kwargs: Any) -> Any:
                return attempts.call(layer, original, args, kwargs)

            rehearsed(layer, call, args, kwargs)

    def _in_place(self, layer: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with self._attempting(layer) as attempts:
            return attempts.call(layer, original, args, kwargs)

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
        alive = [(layer, one.claim) for one in self._cured if (layer := one.layer()) is not None]
        paths = LayerPaths(root)
        held_here = {id(layer): path for path, layer in paths}
        found = [pair for pair in alive if id(pair[0]) in held_here]
        # Those of an earlier time are claims of `set_pins` by now, which finds them itself.
        new = [pair for pair in found if any(one is pair[1] for one in registry.claims(pair[0]))]
        reasons = {held_here[id(layer)]: claim.reason for layer, claim in new}
        registry.unpin(root, new)
        try:
            with tf.init_scope(), resting():
                set_pins(root, dict(held(LayerPaths(root), reasons)), is_named=False, look=False)
        except AmpError:  # no file keeps them
            for layer, claim in new:
                registry.pin(LayerPaths(layer), "", claim)


_attempts: ContextVar[Attempts | None] = ContextVar("attempts", default=None)
# Whether a call is being made as it would be without any of this.
_is_within: ContextVar[bool] = ContextVar("is_within", default=False)
UNSET: Final = object()
#: What cures calls in this context: a `Curing`, None for nothing, or what holds elsewhere.
in_this_context: ContextVar[Any] = ContextVar("curing", default=UNSET)


@contextlib.contextmanager
def resting() -> Iterator[None]:
    """Lets calls in this context fail as they would, for the time of a `with` block."""
    with _keras.context_value(in_this_context, None):
        yield


def _key(args: Any, kwargs: Any) -> Hashable:
    """Returns what tells calls apart that may take different ways through the code.

    Numbers are left out: they count steps and positions, and no two calls would be alike.
    """
    leaves = (spec_of(leaf) or leaf for leaf in tf.nest.flatten((args, kwargs)))
    by_value = (bool, str, type(None), tf.TypeSpec)
    kinds = (leaf if isinstance(leaf, by_value) else type(leaf) for leaf in leaves)
    return (tf.executing_eagerly(), tuple(sorted(kwargs)), *kinds)


def _is_symbolic(arguments: Any) -> bool:
    return any(isinstance(one, keras.KerasTensor) for one in keras.tree.flatten(arguments))


def _is_one_of_several_replicas() -> bool:
    strategy = tf.distribute.get_strategy()
    return strategy.num_replicas_in_sync > 1 and not tf.distribute.in_cross_replica_context()
