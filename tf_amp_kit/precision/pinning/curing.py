"""Pinning what half precision makes fail, when a model is built or first called.

A layer whose call raises because of dtypes is turned to float32 and called again. Of
the layers that may be to blame the innermost one that cures it is taken: a sublayer
whose half result the failing code got, then the layer itself. A model that is built
already is rehearsed before its first call: in a graph that never runs, so that nothing
is computed twice, and what has no kernel is found before it is run.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.callers import stacklevel_of_user
from tf_amp_kit.errors import AmpError, ConflictWarning, LayerError
from tf_amp_kit.formats import is_half
from tf_amp_kit.precision.pinning import registry
from tf_amp_kit.precision.pinning.applying import set_pins
from tf_amp_kit.precision.pinning.registry import Claim
from tf_amp_kit.precision.pinning.rehearsal import rehearsed
from tf_amp_kit.precision.pinning.targets import held
from tf_amp_kit.tables import some
from tf_amp_kit.tracing.conflicts import POSSIBLE_ERRORS, Clash, describe
from tf_amp_kit.tracing.inputs import accepts_training, candidate_specs
from tf_amp_kit.tracing.paths import ROOT, LayerPaths
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["UNSET", "Curing", "in_this_context", "resting"]

# How many sublayers are tried, the latest first, before the layer around them: those
# that the failing line has got results of are among the last that ran.
_MAX_SUBLAYERS: Final = 4


@dataclass(eq=False)
class _Call:
    """A layer call while it runs; `givers` are sublayers that returned half tensors."""

    layer: Any
    givers: list[Any] = field(default_factory=list)
    #: Layers that were tried in vain, for the outermost call and all that it makes.
    in_vain: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class _Cured:
    layer: Any  # a weak reference
    claim: Claim
    label: str


class Curing:
    """Pins what fails, and remembers what it pinned; keeps no layer alive."""

    def __init__(self, *, warns: bool = True) -> None:
        self._warns = warns
        self._cured: list[_Cured] = []
        self._num_told = 0
        self._rehearsed: WeakKeyDictionary[Any, set[bool]] = WeakKeyDictionary()

    def told(self) -> list[str]:
        """Returns what was pinned since the last time, each with the reason."""
        found = [one.label for one in self._cured[self._num_told :]]
        self._num_told = len(self._cured)
        return found

    def warn(self) -> None:
        """Warns of what was pinned since the last time."""
        labels = self.told() if self._warns else []
        if labels:
            one, shown = len(labels) == 1, some(labels).replace("'", "")
            warnings.warn(
                f"{'A layer fails' if one else f'{len(labels)} layers fail'} in half precision, "
                f"and {'is' if one else 'are'} pinned in float32: {shown}. "
                "`tf_amp_kit.Pins.on(model)` has the pins, to print, save or undo.",
                ConflictWarning,
                stacklevel=stacklevel_of_user(),
            )

    def run(self, layer: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Runs a layer call, in float32 if half precision makes it fail."""
        outer = _call.get()
        if outer is None and isinstance(layer, keras.Model):
            self._rehearse_once(layer, original, args, kwargs)
        mark = len(self._cured)
        outputs = self._called(layer, outer, original, args, kwargs)
        if outer is None:
            if len(self._cured) > mark:
                self._settle(layer)
        elif _holds_half(outputs):
            outer.givers.append(layer)
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
            kwargs = {**specs.kwargs, **mode}
            self._rehearse_once(model, keras.layers.Layer.__call__, specs.args, kwargs)

    def _rehearse_once(
        self, model: Any, original: Callable[..., Any], args: Any, kwargs: Any
    ) -> None:
        modes = self._rehearsed.setdefault(model, set())
        training = bool(kwargs.get("training"))
        # A `build` may keep tensors, and those of a rehearsal would be of no use.
        if not model.built or training in modes:
            return
        if _is_symbolic((args, kwargs)) or _is_one_of_several_replicas():
            return
        modes.add(training)
        mark = len(self._cured)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._called(model, None, original, args, kwargs)

        try:
            rehearsed(model, call, args, kwargs)
        except (AmpError, *USER_CODE_ERRORS):
            self._take_back(mark)  # the call itself will say what is wrong
        except BaseException:
            self._take_back(mark)
            modes.discard(training)
            raise
        self._settle(model)
        self.warn()

    def _called(
        self, layer: Any, outer: _Call | None, original: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        call = _Call(layer, in_vain=outer.in_vain if outer else [])

        def attempt() -> Any:
            call.givers.clear()
            with _keras.unbuilt_again(() if layer.built else [one for _, one in LayerPaths(layer)]):
                return original(layer, *args, **kwargs)

        with _keras.context_value(_call, call):
            try:
                return attempt()
            except POSSIBLE_ERRORS as error:
                clash = describe(error)
                if clash.is_missing_kernel or clash.is_about_dtypes:
                    for candidate in _candidates(call):
                        mark = len(self._cured)
                        if self._pin(candidate, clash):
                            try:
                                return attempt()
                            except BaseException as again:
                                self._take_back(mark)
                                if not isinstance(again, POSSIBLE_ERRORS):
                                    raise
                        call.in_vain.append(candidate)
                raise

    def _pin(self, layer: Any, clash: Clash) -> bool:
        """Turns a layer to float32, unless it is that already, or stores half weights."""
        if not any(is_half(one.compute_dtype) for _, one in LayerPaths(layer)):
            return False
        claim = Claim(_reason(clash), is_named=False)
        try:
            registry.pin(LayerPaths(layer), ROOT, claim)
        except LayerError:
            return False
        label = f"{layer.name} ({type(layer).__name__}, {claim.reason})"
        self._cured.append(_Cured(ref(layer), claim, label))
        return True

    def _take_back(self, mark: int) -> None:
        """Takes off what was pinned in an attempt that failed."""
        for one in reversed(self._cured[mark:]):
            layer = one.layer()
            if layer is not None:
                registry.unpin(layer, [(layer, one.claim)])
        del self._cured[mark:]

    def _settle(self, root: Any) -> None:
        """Gives pins below a model, or a layer, their place in its configuration."""
        alive = [(layer, one.claim) for one in self._cured if (layer := one.layer()) is not None]
        paths = LayerPaths(root) if alive else ()
        held_here = {id(layer): path for path, layer in paths}
        found = [pair for pair in alive if id(pair[0]) in held_here]
        # Those of an earlier time are claims of `set_pins` by now, which finds them itself.
        new = [pair for pair in found if any(one is pair[1] for one in registry.claims(pair[0]))]
        if found:
            reasons = {held_here[id(layer)]: claim.reason for layer, claim in new}
            registry.unpin(root, new)
            with tf.init_scope(), resting():
                set_pins(root, dict(held(LayerPaths(root), reasons)), is_named=False, look=False)


_call: ContextVar[_Call | None] = ContextVar("call", default=None)
UNSET: Final = object()
#: What cures calls in this context: a `Curing`, None for nothing, or what holds elsewhere.
in_this_context: ContextVar[Any] = ContextVar("curing", default=UNSET)


@contextlib.contextmanager
def resting() -> Iterator[None]:
    """Lets calls in this context fail as they would, for the time of a `with` block."""
    with _keras.context_value(in_this_context, None):
        yield


def _candidates(call: _Call) -> list[Any]:
    """Returns what may be pinned for a call that failed, the innermost first."""
    latest = [*dict.fromkeys(reversed(call.givers))][:_MAX_SUBLAYERS]
    return [one for one in (*latest, call.layer) if not any(one is other for other in call.in_vain)]


def _reason(clash: Clash) -> str:
    what = " and ".join(clash.dtypes) or "half precision"
    operation = f" in {clash.operation}" if clash.operation else ""
    if clash.is_missing_kernel:
        return f"{clash.operation or 'an operation'} has no {what} kernel"
    return f"{what} {'meet' if len(clash.dtypes) > 1 else 'is refused'}{operation}"


def _holds_half(outputs: Any) -> bool:
    dtypes = (getattr(value, "dtype", "") for value in tf.nest.flatten(outputs))
    return any(is_half(str(getattr(dtype, "name", dtype))) for dtype in dtypes)


def _is_symbolic(arguments: Any) -> bool:
    return any(isinstance(one, keras.KerasTensor) for one in keras.tree.flatten(arguments))


def _is_one_of_several_replicas() -> bool:
    strategy = tf.distribute.get_strategy()
    return strategy.num_replicas_in_sync > 1 and not tf.distribute.in_cross_replica_context()
