"""The optimizer that scales the loss, and skips what would ruin the weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import keras
import tensorflow as tf

from tf_amp_kit.precision.loss_scaling.advice import Advice
from tf_amp_kit.precision.loss_scaling.agreement import check_same_strategy, decide_together
from tf_amp_kit.precision.loss_scaling.finite import infinite_as_nan
from tf_amp_kit.precision.loss_scaling.gradients import (
    are_applicable,
    as_gradients,
    divided,
    treatment_by,
)
from tf_amp_kit.precision.loss_scaling.settings import DYNAMIC, ScaleSettings, settings_of_keras
from tf_amp_kit.precision.loss_scaling.shadows import Protection, Shadows, flattened, variables_of
from tf_amp_kit.precision.loss_scaling.state import LossScaleState
from tf_amp_kit.precision.loss_scaling.wrapper import WrapsOptimizer, without_autograph

__all__ = ["LossScaleOptimizer"]

_DEFAULT: Final = ScaleSettings()


@keras.saving.register_keras_serializable("tf_amp_kit")
class LossScaleOptimizer(WrapsOptimizer):
    """Scales the loss so that float16 gradients survive, and skips bad steps.

    float16 has no numbers between 0 and 6e-8, and gradients are often smaller.
    Multiplied by a loss scale they survive the backward pass; divided by it
    again, in float32, they update the weights. bfloat16 has float32's range and
    needs none of this: `make_loss_scale_optimizer` knows.

    The right scale is found by going too far. In each step:

    ```
    if all gradients / scale are finite, on every replica:
        inner_optimizer.apply(gradients / scale)
        good = good + 1;  skips = 0
        if good == growth_interval:  scale, good = scale * growth_factor, 0
    else:
        give back what the forward pass updated     # see protect()
        skips = skips + 1;  good = 0
        if skips >= hysteresis:  scale = scale * backoff_factor
        if skips >= max_consecutive_skips:  raise     # see apply()
    scale = min(max(scale, min_scale), max_scale)
    ```

    A skipped step changes no weight, slot, accumulated gradient or average of
    weights, and no statistic that is protected. Use it in `compile`, in `fit`
    under a distribution strategy (made inside its scope, like every optimizer),
    or in a loop of your own:

    ```
    with strategy.scope():
        model = build_model()
        model.compile(LossScaleOptimizer(keras.optimizers.Adam()), "mse")
    model.fit(dataset, callbacks=[AmpMonitor()])    # protects, logs, warns
    ```

    Compiled by XLA, as `fit` is on a GPU, a step cannot raise: `AmpMonitor` does.

    Args:
        inner_optimizer: Makes the steps. Its hyper-parameters are read and
            written through this one: `optimizer.clipnorm`.
        scaling: `"dynamic"`, or `"static"` for a scale that never moves.
        initial_scale: The first loss scale.
        growth_factor: Above 1; what the scale is raised by.
        backoff_factor: Between 0 and 1; what it is lowered by.
        growth_interval: Applied steps in a row before it is raised.
        min_scale: It never goes below.
        max_scale: It never goes above.
        hysteresis: Skipped steps in a row that it takes to lower it.
        max_consecutive_skips: Skipped steps in a row that end the run, or None.
        name: The optimizer's name; None for an automatic one.

    Raises:
        OptimizerError: If a setting is out of its range, or `inner_optimizer`
            is none or scales already.

    Example:

    >>> import keras, tensorflow as tf
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=1024)
    >>> protection = optimizer.protect(model)
    >>> @tf.function
    ... def train_step(inputs, targets):
    ...     with tf.GradientTape() as tape:
    ...         loss = tf.reduce_mean((model(inputs, training=True) - targets) ** 2)
    ...         scaled_loss = optimizer.scale_loss(loss)
    ...     grads = tape.gradient(scaled_loss, model.trainable_variables)
    ...     optimizer.apply(grads, model.trainable_variables)
    >>> train_step(tf.ones((4, 2)), tf.ones((4, 1)))
    >>> train_step(tf.fill((4, 2), float("inf")), tf.ones((4, 1)))
    >>> print(optimizer.loss_scale_state())
    loss scale 512, 1 step applied, 1 skipped (50.0 %), the last one at step 2
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
        super().__init__(inner_optimizer, settings, name)
        self._strategy = tf.distribute.get_strategy()
        self._shadows = Shadows()
        self._advice = Advice(expects_scaled_losses=settings.bounds != (1.0, 1.0))

    @without_autograph
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
        return tf.cast(loss, dtype) * tf.cast(self.ledger.scale(), dtype)

    @without_autograph
    def unscale(self, grads: Sequence[Any]) -> list[Any]:
        """Divides gradients of a scaled loss by the scale: to look at, or to clip.

        Pass the result on to `apply_unscaled`. Infinite elements come as NaN:
        clipping by value would make ordinary numbers of them, and hide them.
        (XLA of TensorFlow 2.17 does so even with NaN: clip by norm there.)

        Args:
            grads: Tensors, `tf.IndexedSlices` or None.

        Returns:
            A list of the same kinds, in float32 or float64.
        """
        self._advice.check_that_a_loss_was_scaled()
        true_grads = divided(as_gradients(grads), self.ledger.scale())
        return [infinite_as_nan(grad) for grad in true_grads]

    @without_autograph
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
            EnvironmentUnfit: If called across replicas, where replicas cannot
                agree, or if made outside of the strategy's scope.
        """
        self._advice.check_that_a_loss_was_scaled()
        self._step(as_gradients(grads), trainable_variables, is_scaled=True)

    @without_autograph
    def apply_unscaled(
        self, grads: Sequence[Any], trainable_variables: Iterable[Any] | None = None
    ) -> None:
        """Applies true gradients, from `unscale`, or skips the step.

        Checks, counts and moves the scale as `apply` does.

        Args:
            grads: Gradients that are not scaled any more.
            trainable_variables: As in `apply`.

        Raises:
            AmpError: As in `apply`.
        """
        self._step(as_gradients(grads), trainable_variables, is_scaled=False)

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Any:
        """Applies pairs of a gradient and a variable; returns the inner one's iterations."""
        pairs = list(grads_and_vars)
        self.apply([grad for grad, _ in pairs], [variable for _, variable in pairs])
        return self.iterations

    def protect(self, *targets: Any) -> Protection:
        """Binds what a skipped step must give back: statistics of the forward pass.

        BatchNormalization's moving statistics, and whatever is like them, are
        updated before anyone knows that the gradients are bad. Protected
        variables are copied after each applied step, and put back after each
        skipped one. The copies take their size once more, on each replica; no
        file keeps them, and optimizers share them. Call it before the first
        step, and again whenever you loaded or changed the variables yourself;
        run eagerly, also if your train step changes them after the optimizer.

        Args:
            *targets: Built models or layers, of which the float variables count
                that were created as not trainable; variables; or lists of these.

        Returns:
            A `Protection`: how much is protected by now.

        Raises:
            ModelError: If a model is not built, or a target is none of these.
            EnvironmentUnfit: If the optimizer was made outside of their strategy's scope.
        """
        self._advice.note_that_state_is_cared_for()
        named = flattened(targets)
        variables = [one for target in named for one in variables_of(target)]
        for used in {getattr(one.value, "distribute_strategy", None) for one in variables} - {None}:
            check_same_strategy(self._strategy, used, self.name)
        with tf.init_scope(), self._strategy.scope():
            num_new = self._shadows.add(variables, self._strategy)
            self._shadows.refresh(self._strategy)
        if num_new:
            self._advice.check_that_steps_are_traced_anew(self, named)
        return self._shadows.summary(num_new)

    def loss_scale_state(self) -> LossScaleState:
        """Reads the scale and the counts; waits for the device, so not every step.

        Returns:
            A `LossScaleState` of plain numbers.
        """
        return self.ledger.state()

    def check_that_it_trains(self) -> None:
        """Raises what a step would, if `jit_compile=True` did not keep it from it.

        Raises:
            TrainingStuckError: If `max_consecutive_skips` is reached.
        """
        self.ledger.raise_if_stuck()

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

    def _step(self, grads: list[Any], variables: Iterable[Any] | None, *, is_scaled: bool) -> None:
        if not grads:
            return
        variables = self.variables_for(grads, variables)
        self._advice.check_that_state_is_protected(self, self._shadows)
        inner = self.inner_optimizer
        strategy = tf.distribute.get_strategy()
        check_same_strategy(self._strategy, strategy, self.name)
        treatment = treatment_by(inner, strategy.num_replicas_in_sync)

        def accept(values: Any) -> Any:
            grads, scale = values
            return are_applicable(grads, variables, scale, treatment)

        def apply(values: Any) -> None:
            grads, scale = values
            inner.apply(divided(grads, scale, variables) if is_scaled else grads, variables)

        def settle(strategy: Any, is_applied: Any) -> None:
            self._shadows.settle(strategy, is_applied)
            self.ledger.record(is_applied)

        scale = self.ledger.scale() if is_scaled else tf.constant(1.0)
        decide_together((grads, scale), accept=accept, apply=apply, settle=settle)
