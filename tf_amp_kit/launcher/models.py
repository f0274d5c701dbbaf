"""What a script's models are given: pins, loss scaling, the monitor, an audit."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import CodeType, GeneratorType
from typing import Any, Final

import keras

from tf_amp_kit.data import as_data, batch_specs
from tf_amp_kit.errors import AmpError
from tf_amp_kit.formats import is_half
from tf_amp_kit.inspection.expected import computes_in
from tf_amp_kit.inspection.monitor import AmpMonitor
from tf_amp_kit.inspection.readings import ScaleReader
from tf_amp_kit.inspection.report import AuditReport
from tf_amp_kit.launcher.summary import ModelSummary
from tf_amp_kit.precision import state
from tf_amp_kit.precision.curing.calls import Curing
from tf_amp_kit.precision.loss_scaling.factory import make_loss_scale_optimizer
from tf_amp_kit.precision.loss_scaling.settings import STATIC
from tf_amp_kit.precision.pinning.pin import pin_float32
from tf_amp_kit.precision.pinning.registry import pinned_paths
from tf_amp_kit.tracing.facts import layer_facts
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.step_graph import build_by_step
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["Audit", "Companion"]

Audit = Callable[[Any], AuditReport]

# A step of the model's own code that scales no loss: gradients are checked, and
# neither multiplied nor divided.
_ONLY_CHECKED: Final = {"scaling": STATIC, "initial_scale": 1.0}


class _Unheard(AmpMonitor):
    """Protects statistics, and leaves histories and progress bars as the script knows them."""

    def __init__(self) -> None:
        super().__init__(verbose=0)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keeps what it adds to itself."""
        super().on_epoch_end(epoch, dict(logs or {}))


class Companion:
    """Goes along with one model, from its first `compile` to the end of the script.

    Keeps no model alive: what it has to tell is noted as long as the model is there.

    Args:
        model: The model.
        audit: Audits a model; None if it is not to be audited.
        curing: Pins what fails in half precision; None if that shall fail.
    """

    def __init__(self, model: Any, audit: Audit | None, curing: Curing | None = None) -> None:
        self._model = weakref.ref(model)
        self._audit, self._curing = audit, curing
        self._is_prepared = False
        self._summary = ModelSummary(model.name)

    def compile(self, call: Callable[..., Any], arguments: dict[str, Any]) -> None:
        """Compiles the model, with loss scaling if its precision needs that."""
        call(**self._scaled(arguments))
        model = self._model()
        if model is not None and model.built:
            self._prepare(model)

    def fit(self, call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Trains the model, with the monitor if its optimizer scales."""
        model = self._model()
        if model is not None and not self._is_prepared and self._is_half(model):
            data, arguments = _with_first_batch(arguments)
            self._build(model, *data)
        try:
            return call(**self._watched(arguments))
        finally:
            self.note()

    def note(self) -> None:
        """Notes what the model is like by now."""
        model = self._model()
        if model is None:
            return
        paths = LayerPaths(model)
        asked = state.current()
        precision = None if asked is None else asked.precision
        facts = [one for one in layer_facts(paths) if one.own_weight_dtypes]
        self._summary = replace(
            self._summary,
            name=model.name,
            num_layers=len(facts),
            num_half=sum(one.compute_dtype == precision for one in facts),
            pinned=tuple(pinned_paths(paths)),
            **self._steps(model.optimizer),
        )

    def summary(self) -> ModelSummary:
        """Returns what there is to tell."""
        self.note()
        return self._summary

    def _is_half(self, model: Any) -> bool:
        """Tells whether a model computes in the precision, by its layers if they have weights.

        The policy of a model itself may be that of the moment when it was loaded.
        """
        asked = state.current()
        if asked is None or not is_half(asked.precision):
            return False
        facts = layer_facts(LayerPaths(model))
        if any(one.own_weight_dtypes for one in facts):
            return computes_in(asked.precision, facts)
        return bool(model.dtype_policy.name == asked.policy_name)

    def _scaled(self, arguments: dict[str, Any]) -> dict[str, Any]:
        model = self._model()
        optimizer = arguments.get("optimizer", "rmsprop")
        asked = state.current()
        if model is None or optimizer is None or asked is None or asked.precision != "float16":
            return arguments
        if not arguments.get("auto_scale_loss", True):
            return arguments
        if not self._is_half(model):
            # Keras would go by the policy of the model itself.
            return {**arguments, "auto_scale_loss": False}
        settings: dict[str, Any] = {}
        if not _scales_its_loss(model):
            settings = _ONLY_CHECKED
            self._say(
                "its train_step scales no loss, so float16 loses gradients below 6e-8. Take "
                "gradients of optimizer.scale_loss(loss) there, or run it in bf16."
            )
            if "optimizer" not in arguments:
                return arguments  # Keras's default, which a step of one's own hardly uses
        present = getattr(model, "optimizer", None)
        if getattr(present, "inner_optimizer", None) is optimizer:
            return {**arguments, "optimizer": present}
        try:
            wrapped = make_loss_scale_optimizer(optimizer, precision="float16", **settings)
        except AmpError as error:
            self._say(f"its loss is not scaled: {error}")
            return arguments
        return {**arguments, "optimizer": wrapped}

    def _build(self, model: Any, x: Any, y: Any) -> None:
        """Builds a model by the data that it is about to be trained on."""
        try:
            with model.distribute_strategy.scope():
                build_by_step(model, batch_specs(as_data(x, y)))
        except (AmpError, *USER_CODE_ERRORS) as error:
            self._say(
                f"nothing is pinned, as it cannot be built before it trains: {_first_line(error)}"
            )
            self._is_prepared = True
            return
        self._prepare(model)

    def _prepare(self, model: Any) -> None:
        """Pins what the level says, and audits."""
        self._is_prepared = True
        asked = state.current()
        if asked is None or not is_half(asked.precision):
            return  # as it would be anyway
        if not self._is_half(model):
            facts = layer_facts(LayerPaths(model))
            used = sorted({one.compute_dtype for one in facts if one.own_weight_dtypes})
            own = ", ".join(used) or model.dtype_policy.name
            self._say(f"left as it is: its layers have policies of their own, in {own}.")
            return
        try:
            if self._curing is not None:
                self._curing.rehearse(model)
            if asked.level != "O3":
                pin_float32(model)
            if self._audit is not None:
                self._summary = replace(self._summary, audit=self._audit(model))
        except (AmpError, *USER_CODE_ERRORS) as error:
            self._say(f"it could not be looked at: {_first_line(error)}")
        self.note()

    def _watched(self, arguments: dict[str, Any]) -> dict[str, Any]:
        model = self._model()
        callbacks = arguments.get("callbacks")
        scales = model is not None and ScaleReader(model.optimizer).counts_steps
        if not scales or isinstance(callbacks, keras.callbacks.CallbackList):
            return arguments
        given = [] if callbacks is None else keras.tree.flatten(callbacks)
        if any(isinstance(one, AmpMonitor) for one in given):
            return arguments
        return {**arguments, "callbacks": [*given, _Unheard()]}

    @staticmethod
    def _steps(optimizer: Any) -> dict[str, Any]:
        if optimizer is None or not ScaleReader(optimizer).counts_steps:
            return {}
        found = ScaleReader(optimizer).read()
        steps = found.applied_steps + found.skipped_steps
        is_static = optimizer.ledger.settings.scaling == STATIC
        return {
            "num_steps": steps,
            "skipped_steps": found.skipped_steps,
            "loss_scale": None if is_static and found.scale == 1 else found.scale,
        }

    def _say(self, note: str) -> None:
        if note not in self._summary.notes:
            self._summary = replace(self._summary, notes=(*self._summary.notes, note))


def _with_first_batch(arguments: dict[str, Any]) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """Returns x and y to build a model by, and arguments of `fit` with nothing taken away."""
    x = arguments.get("x")
    if not isinstance(x, GeneratorType):
        return (x, arguments.get("y")), arguments
    first = next(x, None)

    def from_the_start() -> Iterator[Any]:
        if first is not None:
            yield first
            yield from x

    return (first, None), {**arguments, "x": from_the_start()}


def _scales_its_loss(model: Any) -> bool:
    """Tells whether a train step multiplies the loss by the optimizer's scale.

    Keras's own does. Of others the code is looked at, with the methods that it calls: it
    has to name `scale_loss`, or hand the step on to Keras by `super().train_step`.
    """
    order = type(model).__mro__
    own = order[: order.index(keras.Model)]
    named, is_handed_on = _called_by("train_step", own)
    seen = {"train_step"}
    while "scale_loss" not in named and named - seen:
        name = (named - seen).pop()
        seen.add(name)
        named |= _called_by(name, own)[0]
    return is_handed_on or "scale_loss" in named


def _called_by(method: str, classes: Sequence[type]) -> tuple[set[str], bool]:
    """Returns the names in a method's code, and whether it goes on to what is behind classes."""
    named: set[str] = set()
    for one in classes:
        if method in vars(one):
            own = set(_names(vars(one)[method]))
            named |= own
            if method not in own:  # no call of super()
                return named, False
    return named, True


def _names(function: Any) -> Iterator[str]:
    """Yields the names that a function's code uses, as they are written there."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function if isinstance(function, CodeType) else getattr(function, "__code__", None)
    if code is not None:
        yield from code.co_names
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from _names(constant)


def _first_line(error: BaseException) -> str:
    # TensorFlow's go on with stacks.
    return str(error).strip().partition("\n")[0]
