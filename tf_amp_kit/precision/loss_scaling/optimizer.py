"""The optimizer that scales the loss, and skips what would ruin the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, cast

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.errors import OptimizerError
from tf_amp_kit.precision.loss_scaling import rule
from tf_amp_kit.precision.loss_scaling.advice import Advice
from tf_amp_kit.precision.loss_scaling.agreement import decide_together
from tf_amp_kit.precision.loss_scaling.finite import all_finite
from tf_amp_kit.precision.loss_scaling.forwarding import ForwardsToInner
from tf_amp_kit.precision.loss_scaling.gradients import are_applicable, divided
from tf_amp_kit.precision.loss_scaling.ledger import Ledger
from tf_amp_kit.precision.loss_scaling.settings import DYNAMIC, ScaleSettings, settings_of_keras
from tf_amp_kit.precision.loss_scaling.shadows import Protection, Shadows, variables_of
from tf_amp_kit.precision.loss_scaling.state import LossScaleState
from tf_amp_kit.precision.loss_scaling.verdict import LastVerdict

__all__ = ["LossScaleOptimizer"]

_DEFAULT: Final = ScaleSettings()

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _without_autograph(function: _Function) -> _Function:
    return cast(_Function, tf.autograph.experimental.do_not_convert(function))


@keras.saving.register_keras_serializable("tf_amp_kit")
class LossScaleOptimizer(ForwardsToInner):
    """DOC

    Example:

    >>> 1
    1
    """

    def __init__(
        self,
        inner_optimizer: keras.optimizers.Optimizer,
        *,
        scaling: str = DYNAMIC,
        initial_scale: float = _DEFAULT.initial_scale,
        growth_factor: float = _DEFAULT.growth_factor,
        backoff_factor: float = _DEFAULT.backoff_factor,
        growth_interval: int = _DEFAULT.growth_interval,
        min_scale: float = _DEFAULT.min_scale,
        max_scale: float = _DEFAULT.max_scale,
        hysteresis: int = _DEFAULT.hysteresis,
        max_consecutive_skips: int | None = _DEFAULT.max_consecutive_skips,
        name: str | None = None,
    ) -> None:
        settings = ScaleSettings(
            scaling=scaling,
            initial_scale=initial_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            min_scale=min_scale,
            max_scale=max_scale,
            hysteresis=hysteresis,
            max_consecutive_skips=max_consecutive_skips,
        )
        super().__init__(inner_optimizer, settings.initial_scale, settings.growth_interval, name)
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
        self._ledger = Ledger(settings, self.dynamic_scale, self.step_counter, self._counters)
        self._strategy = tf.distribute.get_strategy()
        self._shadows = Shadows()
        self._last_verdict = LastVerdict()
        self._advice = Advice()

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

    @_without_autograph
    def scale_loss(self, loss: Any) -> Any:
        """Multiplies a loss by the loss scale, in float32.

        Args:
            loss: A float tensor of any shape, in any precision.

        Returns:
            A float32 tensor of the same shape; float64 for a float64 loss.
        """
        self._advice.note_that_a_loss_was_scaled()
        loss = tf.convert_to_tensor(loss)
        dtype = tf.float64 if loss.dtype == tf.float64 else tf.float32
        return tf.cast(loss, dtype) * tf.cast(self._ledger.scale(), dtype)

    @_without_autograph
    def unscale(self, grads: Sequence[Any]) -> list[Any]:
        """Divides gradients of a scaled loss by the scale: to look at, or to clip.

        Pass the result on to `apply_unscaled`. Whether a gradient was infinite
        is remembered until then, so that clipping cannot hide it.

        Args:
            grads: Tensors, `tf.IndexedSlices` or None.

        Returns:
            A list of the same kinds, in float32 or float64.
        """
        self._advice.check_that_a_loss_was_scaled()
        grads = list(grads)
        self._last_verdict.remember(all_finite([grad for grad in grads if grad is not None]))
        return divided(grads, self._ledger.scale())

    @_without_autograph
    def apply(self, grads: Sequence[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        """Applies gradients of a scaled loss, or skips the step.

        Args:
            grads: Gradients of `scale_loss(loss)`, one per variable: tensors,
                `tf.IndexedSlices`, or None where a variable has no part in it.
            trainable_variables: The variables; None for those of `build`.

        Raises:
            TrainingStuckError: If `max_consecutive_skips` steps in a row were
                skipped; inside a `tf.function`, `tf.errors.InvalidArgumentError`
                with the same text.
            OptimizerError: If there are no variables yet, or not one gradient
                for each.
            EnvironmentUnfit: If called across replicas, or where replicas
                cannot agree.
        """
        self._advice.check_that_a_loss_was_scaled()
        self._last_verdict.forget()
        self._step(list(grads), trainable_variables, is_scaled=True)

    @_without_autograph
    def apply_unscaled(
        self, grads: Sequence[Any], trainable_variables: Iterable[Any] | None = None
    ) -> None:
        """Applies true gradients, from `unscale`, or skips the step.

        Checks, counts and moves the scale as `apply` does.

        Args:
            grads: Gradients that are not scaled any more.
            trainable_variables: As in `apply`.

        Raises:
            TrainingStuckError: As in `apply`.
            OptimizerError: As in `apply`.
            EnvironmentUnfit: As in `apply`.
        """
        self._step(list(grads), trainable_variables, is_scaled=False)

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Any:
        """Applies pairs of a gradient and a variable, as `apply` does.

        Returns:
            The number of steps that the inner optimizer has made.
        """
        pairs = list(grads_and_vars)
        self.apply([grad for grad, _ in pairs], [variable for _, variable in pairs])
        return self.iterations

    def protect(self, *targets: Any) -> Protection:
        """Binds what a skipped step must give back: statistics of the forward pass.

        A model updates BatchNormalization's moving statistics, and whatever is
        like them, before anyone knows that the gradients are bad. Protected
        variables are copied after each applied step, and put back after each
        skipped one. The copies take the variables' size once more, on each
        replica; no file keeps them. Call it before the first step, and again
        after you changed the variables yourself. Optimizers of one loop that
        protect the same variables share the copies.

        Args:
            *targets: Built models or layers, of which the float variables count
                that were created as not trainable; variables; or lists of these.

        Returns:
            A `Protection`: how much is protected by now.

        Raises:
            ModelError: If a model is not built, or a target is none of these.
        """
        with tf.init_scope(), self._strategy.scope():
            self._shadows.add(variables_of(targets), self._strategy)
            self._shadows.refresh(self._strategy)
        return self._shadows.summary()

    def loss_scale_state(self) -> LossScaleState:
        """Reads the scale and the counts; waits for the device, so not every step.

        Returns:
            A `LossScaleState` of plain numbers.
        """
        return self._ledger.state()

    def check_that_it_trains(self) -> None:
        """Raises if too many steps in a row were skipped, as a step does by itself.

        Compiled with `jit_compile=True` a step cannot raise, so somebody has to
        ask: `AmpMonitor` does.

        Raises:
            TrainingStuckError: If `max_consecutive_skips` is reached.
        """
        self._ledger.raise_if_stuck()

    def get_config(self) -> dict[str, Any]:
        """Gives the settings and the inner optimizer's config, without any state."""
        return {
            "name": self.name,
            "inner_optimizer": keras.saving.serialize_keras_object(self.inner_optimizer),
            **self._ledger.settings.to_dict(),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> LossScaleOptimizer:
        """Makes an optimizer from a config, also from one of Keras's own optimizer."""
        config = dict(config)
        inner = keras.saving.deserialize_keras_object(
            config.pop("inner_optimizer"), custom_objects=custom_objects
        )
        if "dynamic_growth_steps" in config:
            config = {"name": config.get("name"), **settings_of_keras(**config)}
        return cls(inner, **config)

    @classmethod
    def from_keras(
        cls, optimizer: keras.optimizers.LossScaleOptimizer, **settings: Any
    ) -> LossScaleOptimizer:
        """Takes over Keras's own optimizer: its inner one, its scale, its count.

        Args:
            optimizer: Keras's optimizer, built or not; not to be used any more.
            **settings: Settings that are to differ from it.

        Returns:
            An optimizer that goes on where the other one is.
        """
        kept = settings_of_keras(optimizer.initial_scale, optimizer.dynamic_growth_steps)
        twin = cls(optimizer.inner_optimizer, **{"name": optimizer.name, **kept, **settings})
        if optimizer.built:
            twin.built = True
            twin._ledger.adopt(optimizer.dynamic_scale.value, optimizer.step_counter.value)
        return twin

    def load_own_variables(self, store: Any) -> None:
        """Loads what this optimizer saved, or Keras's own, or the inner one alone.

        Where the counters are missing they start from zero, and a scale out of
        bounds is brought inside.
        """
        if len(store.keys()) == len(self.inner_optimizer.variables):
            self.inner_optimizer.load_own_variables(store)
            return
        if len(store.keys()) == len(self.variables) - 1:
            for position, variable in enumerate(self.variables[:-1]):
                variable.assign(store[str(position)])
            self._ledger.adopt(self.dynamic_scale.value, self.step_counter.value)
        else:
            super().load_own_variables(store)

    def stateless_apply(self, *args: Any, **kwargs: Any) -> Any:
        """Not available: TensorFlow's optimizers keep their state."""
        raise OptimizerError(
            "stateless_apply is for backends without state. Expected apply() on TensorFlow."
        )

    def _step(self, grads: list[Any], variables: Iterable[Any] | None, *, is_scaled: bool) -> None:
        if not grads:
            return
        variables = self._variables_for(grads, variables)
        self._advice.check_that_state_is_protected(self, self._shadows)
        inner = self.inner_optimizer
        num_replicas = tf.distribute.get_strategy().num_replicas_in_sync

        def accept(values: Any) -> Any:
            grads, scale, was_finite = values
            applicable = are_applicable(
                grads,
                variables,
                scale=scale,
                smallest_scale=self._ledger.settings.bounds[0] if is_scaled else 1.0,
                num_sums=num_replicas * (inner.gradient_accumulation_steps or 1),
                clips_global_norm=bool(inner.global_clipnorm),
            )
            return tf.logical_and(was_finite, applicable)

        def apply(values: Any) -> None:
            grads, scale, _ = values
            inner.apply(divided(grads, scale, variables) if is_scaled else grads, variables)

        def settle(strategy: Any, is_applied: Any) -> None:
            self._shadows.settle(strategy, is_applied)
            self._ledger.record(is_applied)

        scale = self._ledger.scale() if is_scaled else tf.constant(1.0)
        values = (grads, scale, self._last_verdict.take())
        decide_together(values, accept=accept, apply=apply, settle=settle)

    def _variables_for(self, grads: list[Any], variables: Iterable[Any] | None) -> list[Any]:
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
