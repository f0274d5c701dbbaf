"""Attributes of a wrapper that are those of what it wraps."""

from __future__ import annotations

from typing import Any, Final

import keras

from tf_amp_kit.errors import OptimizerError

__all__ = ["ForwardsToInner"]

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

# In every optimizer, and yet each one's own.
_OWN: Final = frozenset({"name", "built"})


class ForwardsToInner(keras.optimizers.LossScaleOptimizer):
    """A wrapper whose hyper-parameters are read from and written to the inner optimizer.

    Keras's own keeps a second set, at defaults that nothing looks at.
    """

    # Never the inner optimizer's, whatever it calls its own attributes.
    dynamic_scale: Any = None
    step_counter: Any = None
    initial_scale: Any = None
    dynamic_growth_steps: Any = None

    def __init__(self, inner_optimizer: Any, *args: Any, **kwargs: Any) -> None:
        _check_inner(inner_optimizer)
        super().__init__(inner_optimizer, *args, **kwargs)
        for name in vars(self).keys() & vars(inner_optimizer).keys():
            if not name.startswith("_") and name not in _OWN:
                del self.__dict__[name]

    def __getattr__(self, name: str) -> Any:
        # Reached only for names that neither the instance nor its class has.
        inner = self.__dict__.get("inner_optimizer")
        if not name.startswith("_") and inner is not None and hasattr(inner, name):
            return getattr(inner, name)
        way_out = f" {_WAYS_OUT[name]}" if name in _WAYS_OUT else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}.{way_out}")

    def __setattr__(self, name: str, value: Any) -> None:
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
