"""What makes an optimizer around another one: whose attributes, whose state, what files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, cast

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.errors import OptimizerError
from tf_amp_kit.precision.loss_scaling import rule
from tf_amp_kit.precision.loss_scaling.ledger import Ledger
from tf_amp_kit.precision.loss_scaling.settings import ScaleSettings

__all__ = ["WrapsOptimizer", "without_autograph"]

# Names of TensorFlow 2's wrapper, and what to write instead.
_WAYS_OUT: Final = {
    "get_scaled_loss": "Call scale_loss(loss).",
    "get_unscaled_gradients": "apply() divides by itself; to look at or clip true gradients, "
    "call unscale(grads) and then apply_unscaled(grads, variables).",
    "minimize": "Compute gradients of scale_loss(loss) with a tf.GradientTape, and call apply().",
    "loss_scale": "Read dynamic_scale, or loss_scale_state().scale on the host.",
    "dynamic": 'Pass scaling="dynamic" or "static".',
    "dynamic_counter": "Read step_counter.",
}

# Keras's names of settings, which nothing looks at later.
_FIXED: Final = frozenset({"initial_scale", "dynamic_growth_steps"})

# Each optimizer's own, though an inner one may use the names too.
_OWN: Final = frozenset({"name", "built", "inner_optimizer"}) | _FIXED


_Function = TypeVar("_Function", bound=Callable[..., Any])


def without_autograph(function: _Function) -> _Function:
    """Keeps a method as it is written where users' functions are converted."""
    return cast(_Function, tf.autograph.experimental.do_not_convert(function))


class WrapsOptimizer(keras.optimizers.LossScaleOptimizer):
    """Keras's wrapper with a scale that is bounded, counted and kept.

    Hyper-parameters are read from and written to the inner optimizer: Keras's
    own wrapper keeps a second set, at defaults that nothing looks at.

    Args:
        inner_optimizer: The optimizer to wrap.
        settings: How the loss scale moves.
        name: The wrapper's name; None for an automatic one.
    """

    ledger: Ledger

    # Never the inner optimizer's, whatever it calls its own attributes.
    dynamic_scale: Any = None
    step_counter: Any = None
    initial_scale: Any = None
    dynamic_growth_steps: Any = None

    def __init__(self, inner_optimizer: Any, settings: ScaleSettings, name: str | None) -> None:
        _check_inner(inner_optimizer)
        super().__init__(
            inner_optimizer,
            initial_scale=settings.initial_scale,
            dynamic_growth_steps=settings.growth_interval,
            name=name,
        )
        for attribute in vars(self).keys() & vars(inner_optimizer).keys() - _OWN:
            if not attribute.startswith("_"):
                del self.__dict__[attribute]
        # Here and not in `build`: a loss may be scaled, and traced, before that.
        self.step_counter = self.add_variable((), "zeros", dtype="int", name="step_counter")
        self.dynamic_scale = self.add_variable(
            (),
            keras.initializers.Constant(settings.initial_scale),
            dtype="float32",
            name="dynamic_scale",
        )
        self._counters = self.add_variable(
            (rule.NUM_COUNTERS,), "zeros", dtype="int", name="counters"
        )
        self.ledger = Ledger(settings, self.dynamic_scale, self.step_counter, self._counters)

    def __getattr__(self, name: str) -> Any:
        # Reached only for names that neither the instance nor its class has.
        inner = self.__dict__.get("inner_optimizer")
        if not name.startswith("_") and inner is not None and hasattr(inner, name):
            return getattr(inner, name)
        way_out = f" {_WAYS_OUT[name]}" if name in _WAYS_OUT else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}.{way_out}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "ledger" in self.__dict__:
            raise OptimizerError(
                f"Settings are fixed once an optimizer exists. Received: {name}={value!r}. "
                "Make a new one, or move the scale itself: dynamic_scale.assign(value)."
            )
        if self._is_of_inner(name):
            if name == "loss_scale_factor" and value is not None:
                raise OptimizerError(
                    "Gradients would be divided twice. Expected no factor beside a loss scale. "
                    f"Received: loss_scale_factor={value!r}. "
                    'Wrap with scaling="static" and this factor as initial_scale.'
                )
            setattr(self.inner_optimizer, name, value)
        else:
            super().__setattr__(name, value)

    def _is_of_inner(self, name: str) -> bool:
        inner = self.__dict__.get("inner_optimizer")
        is_own = name.startswith("_") or name in self.__dict__ or hasattr(type(self), name)
        return inner is not None and not is_own and hasattr(inner, name)

    def exclude_from_weight_decay(self, *args: Any, **kwargs: Any) -> None:
        """Passes on what the inner optimizer's `exclude_from_weight_decay` takes."""
        self.inner_optimizer.exclude_from_weight_decay(*args, **kwargs)

    def build(self, var_list: Sequence[Any]) -> None:
        """Creates the variables of the inner optimizer, unless they are there."""
        if not self.inner_optimizer.built:
            self.inner_optimizer.build(var_list)
        self.built = True

    @property
    def variables(self) -> list[Any]:
        """Keras's own variables in its own order, and the counters last.

        What Keras's optimizer saved is therefore a part of what this one loads.
        """
        others = [variable for variable in super().variables if variable is not self._counters]
        return [*others, self._counters]

    def variables_for(self, grads: list[Any], variables: Iterable[Any] | None) -> list[Any]:
        """Returns the variables that gradients are for; builds for them if need be.

        Raises:
            OptimizerError: If there are none yet, or not one gradient for each.
        """
        if variables is None and not self.built:
            raise OptimizerError(
                "The optimizer has no variables yet. Expected trainable_variables with the "
                "first gradients. Pass them, or call build(trainable_variables) before."
            )
        if variables is None:
            variables = _keras.trainable_variables_of(self.inner_optimizer)
        variables = list(variables)
        if len(grads) != len(variables):
            raise OptimizerError(
                "Expected one gradient for each variable. "
                f"Received: {len(grads)} gradients for {len(variables)} variables."
            )
        if not self.built:
            self.build(variables)
        return variables

    def get_config(self) -> dict[str, Any]:
        """Gives the settings and the inner optimizer's config, without any state."""
        return {
            "name": self.name,
            "inner_optimizer": keras.saving.serialize_keras_object(self.inner_optimizer),
            **self.ledger.settings.to_dict(),
        }

    def stateless_apply(self, *args: Any, **kwargs: Any) -> Any:
        """Not available: TensorFlow's optimizers keep their state."""
        raise OptimizerError(
            "stateless_apply is for backends without state. Expected apply() on TensorFlow."
        )

    def go_on_from(self, optimizer: keras.optimizers.LossScaleOptimizer) -> None:
        """Takes over scale and count of Keras's own wrapper of the same inner optimizer."""
        if optimizer.built:
            self.built = True
            self.ledger.adopt(optimizer.dynamic_scale.value, optimizer.step_counter.value)

    def load_own_variables(self, store: Any) -> None:
        """Loads what this optimizer saved, or Keras's own wrapper of the same optimizer.

        In the second case the counts start from zero, and a scale out of bounds
        is brought inside.
        """
        keras_variables = self.variables[:-1]
        if not _fits(store, keras_variables):
            super().load_own_variables(store)
            return
        for position, variable in enumerate(keras_variables):
            variable.assign(store[str(position)])
        self.ledger.adopt(self.dynamic_scale.value, self.step_counter.value)


def _check_inner(optimizer: Any) -> None:
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise OptimizerError(
            "A loss is scaled once. Expected an optimizer that does not scale as "
            f"inner_optimizer. Received: {type(optimizer).__name__}. "
            "Use make_loss_scale_optimizer(), which takes its state over."
        )
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise OptimizerError(
            "Expected a keras.optimizers.Optimizer as inner_optimizer. "
            f"Received: {optimizer!r}. "
            "Use make_loss_scale_optimizer() for a name or a config."
        )
    if optimizer.loss_scale_factor is not None:
        raise OptimizerError(
            "Gradients would be divided twice. Expected an inner_optimizer without a factor. "
            f"Received: loss_scale_factor={optimizer.loss_scale_factor!r}. "
            "Use make_loss_scale_optimizer(), which keeps it as a static scale."
        )


def _fits(store: Any, variables: Sequence[Any]) -> bool:
    """Tells whether a store has just these variables, as far as shapes and dtypes tell."""
    if len(store.keys()) != len(variables):
        return False
    values = [store[str(position)] for position in range(len(variables))]
    return all(
        tuple(value.shape) == tuple(variable.shape)
        and value.dtype.kind == np.dtype(variable.dtype).kind
        for value, variable in zip(values, variables, strict=True)
    )
