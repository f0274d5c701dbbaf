"""Calling a layer again, with what half precision made fail turned to float32.

Of the layers that may be to blame for an error the innermost one that cures it is taken:
first the sublayers whose half results the failing code got, the latest ones, then the
layer itself. What a failed attempt did to the model's state is taken back, so that the
call counts once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import ref

import keras

from tf_amp_kit import _keras
from tf_amp_kit.errors import LayerError
from tf_amp_kit.formats import is_half
from tf_amp_kit.precision.curing.rehearsal import is_kept_graph
from tf_amp_kit.precision.layer_policies import policy_scope
from tf_amp_kit.precision.pinning import registry
from tf_amp_kit.precision.pinning.registry import Claim
from tf_amp_kit.tracing.conflicts import POSSIBLE_ERRORS, Clash, describe
from tf_amp_kit.tracing.paths import ROOT, LayerPaths
from tf_amp_kit.tracing.state import variables_restored_on_failure
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["Attempts", "Cured", "holds_half_layers", "left_on_failure"]

# How many sublayers are tried, the latest first, before the layer around them: those
# that the failing line has got results of are among the last that ran.
_MAX_SUBLAYERS: Final = 4


@dataclass(frozen=True)
class Cured:
    """A layer that was pinned.

    Attributes:
        layer_ref: A weak reference to it.
        claim: The pin.
        label: Its name, what it holds, and why.
        is_whole: Whether layers that it holds are pinned with it.
    """

    layer_ref: Any
    claim: Claim
    label: str
    is_whole: bool


@dataclass(eq=False)
class _Giver:
    """A sublayer that returned half tensors, and the one of its own that made them."""

    layer: Any
    returned: list[Any]
    maker: _Giver | None

    def innermost_first(self) -> Iterator[Any]:
        """Yields the layers that returned these very tensors."""
        if self.maker is not None:
            yield from self.maker.innermost_first()
        yield self.layer


@dataclass(eq=False)
class _Call:
    """A layer call while it runs; `givers` are sublayers that returned half tensors."""

    layer: Any
    givers: list[_Giver] = field(default_factory=list)

    def maker_of(self, tensors: list[Any]) -> _Giver | None:
        """Returns the latest sublayer that returned the same tensors, if any did."""
        for giver in reversed(self.givers):
            if len(giver.returned) == len(tensors) and all(
                one is other for one, other in zip(giver.returned, tensors, strict=True)
            ):
                return giver
        return None


class _AgainFromOutside(BaseException):
    """Leaves a function that is being traced, so that nobody keeps what failed in it."""


class Attempts:
    """What was pinned within one outermost call, and what was tried in vain.

    Attributes:
        cured: What was pinned.
        are_made: Whether calls that fail are made again. Otherwise they run as they would,
            but where shapes are inferred, which leaves nothing behind.
    """

    def __init__(self) -> None:
        self.cured: list[Cured] = []
        self.are_made = True
        self._in_vain: list[Any] = []

    def call(self, layer: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Calls a layer, and again in float32 if half precision makes it fail.

        Args:
            layer: The layer.
            original: Keras's own way of calling one.
            args: The arguments by position.
            kwargs: The others.

        Raises:
            Exception: What the first attempt raised, if nothing cures it.
        """
        if not (self.are_made or _keras.is_stateless()):
            return original(layer, *args, **kwargs)
        outer, call = _call.get(), _Call(layer)

        def attempt() -> Any:
            call.givers.clear()
            with left_on_failure(layer), _keras.context_value(_call, call):
                return original(layer, *args, **kwargs)

        # What is traced here will be called, and so would what failed in it.
        is_kept = outer is not None and is_kept_graph()
        while True:
            try:
                outputs = self._cured(call, attempt, is_kept=is_kept)
                break
            except _AgainFromOutside:
                if is_kept:
                    raise
        tensors = _half_tensors(outputs)
        if outer is not None and tensors:
            outer.givers.append(_Giver(layer, tensors, call.maker_of(tensors)))
        return outputs

    def _cured(self, call: _Call, attempt: Callable[[], Any], *, is_kept: bool) -> Any:
        try:
            return attempt()
        except POSSIBLE_ERRORS as error:
            clash = describe(error)
            if not clash.blames_half:
                raise
            for candidate in self._candidates(call):
                mark = len(self.cured)
                if self._pin(candidate, clash):
                    is_made_now = candidate is call.layer and not candidate.built
                    # What its `build` makes without a dtype takes the global policy.
                    scope = policy_scope("float32") if is_made_now else contextlib.nullcontext()
                    try:
                        with scope:
                            outputs = attempt()
                    except USER_CODE_ERRORS:
                        self.take_back(mark)
                    else:
                        if is_kept:
                            raise _AgainFromOutside from None
                        return outputs
                self._in_vain.append(candidate)
            raise

    def take_back(self, mark: int = 0) -> None:
        """Takes off what was pinned since there were `mark` pins."""
        while len(self.cured) > mark:
            one = self.cured[-1]
            layer = one.layer_ref()
            if layer is not None:
                registry.unpin(layer, [(layer, one.claim)])
            self.cured.pop()

    def _candidates(self, call: _Call) -> list[Any]:
        """Returns what may be pinned for a call that failed, in the order to try."""
        latest = {id(one.layer): one for one in call.givers}  # the last result of each
        givers = sorted(latest.values(), key=call.givers.index, reverse=True)
        layers = [one for giver in givers[:_MAX_SUBLAYERS] for one in giver.innermost_first()]
        found = {id(one): one for one in (*layers, call.layer)}
        tried = {id(one) for one in self._in_vain}
        return [one for key, one in found.items() if key not in tried]

    def _pin(self, layer: Any, clash: Clash) -> bool:
        """Turns a layer to float32, unless it is that already, or stores half weights."""
        if not holds_half_layers(layer):
            return False
        claim, paths = Claim(_reason(clash), is_named=False), LayerPaths(layer)
        num_inside = sum(1 for _ in paths) - 1
        self.cured.append(
            Cured(ref(layer), claim, _label(layer, num_inside, claim), num_inside > 0)
        )
        try:
            registry.pin(paths, ROOT, claim)
        except LayerError:
            self.cured.pop()
            return False
        return True


_call: ContextVar[_Call | None] = ContextVar("call", default=None)


def holds_half_layers(layer: Any) -> bool:
    """Tells whether a layer, or one of its sublayers, computes in half precision."""
    return any(is_half(one.compute_dtype) for _, one in LayerPaths(layer))


@contextlib.contextmanager
def left_on_failure(layer: Any) -> Iterator[None]:
    """Leaves a layer as it is now, in what counts, if a `with` block fails.

    Args:
        layer: The layer.
    """
    paths = LayerPaths(layer)
    layers = [one for _, one in paths]
    with (
        _keras.unbuilt_again(layers),
        _keras.state_restored_on_failure(layers),
        variables_restored_on_failure(paths),
    ):
        yield


def _label(layer: Any, num_inside: int, claim: Claim) -> str:
    whole = f" with all {num_inside} layers in it" if num_inside else ""
    return f"{layer.name} ({type(layer).__name__}{whole}, {claim.reason})"


def _reason(clash: Clash) -> str:
    what = " and ".join(clash.dtypes) or "half precision"
    operation = f" in {clash.operation}" if clash.operation else ""
    if clash.is_missing_kernel:
        return f"{clash.operation or 'an operation'} has no {what} kernel"
    return f"{what} {'meet' if len(clash.dtypes) > 1 else 'is refused'}{operation}"


def _half_tensors(outputs: Any) -> list[Any]:
    dtypes = ((value, getattr(value, "dtype", "")) for value in keras.tree.flatten(outputs))
    return [value for value, dtype in dtypes if is_half(str(getattr(dtype, "name", dtype)))]
