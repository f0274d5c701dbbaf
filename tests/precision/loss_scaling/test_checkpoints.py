"""Runs that stop and go on: tf.train.Checkpoint and BackupAndRestore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.precision.loss_scaling.helpers import (
    BAD,
    GOOD,
    INF,
    bits,
    constant,
    fit,
    scaled,
    variable,
)


def ours(**settings: Any) -> amp.LossScaleOptimizer:
    return scaled(keras.optimizers.Adam(0.1), growth_interval=3, hysteresis=2, **settings)


def model_of(optimizer: Any) -> keras.Model:
    keras.utils.set_random_seed(6)
    norm = keras.layers.BatchNormalization(momentum=0.5)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2), norm])
    model.add(keras.layers.Dense(1))
    model.compile(optimizer, "mse")
    optimizer.protect(model)
    return model


@pytest.mark.parametrize("is_built", [True, False])
def test_a_checkpoint_keeps_everything(tmp_path: Path, is_built: bool) -> None:
    weight, other_weight = variable(1.0, 2.0), variable(0.0, 0.0)
    optimizer, other = ours(), ours()
    for grad in (1.0, INF, 1.0, 1.0, 1.0, INF):
        optimizer.apply([optimizer.scale_loss(constant(grad, 1.0))], [weight])
    where = tf.train.Checkpoint(o=optimizer, w=weight.value).save(str(tmp_path / "c"))
    if is_built:
        other.build([other_weight])
    status = tf.train.Checkpoint(o=other, w=other_weight.value).restore(where)
    if not is_built:
        other.build([other_weight])  # restored as soon as there are variables
    else:
        status.assert_consumed()
    assert other.loss_scale_state() == amp.LossScaleState(2.0**16, 4, 2, 1, 6, 1)
    assert bits(*other.variables, other_weight) == bits(*optimizer.variables, weight)


def test_a_restored_run_goes_on_as_the_other_would_have(tmp_path: Path) -> None:
    weight, other_weight = variable(1.0), variable(5.0)
    optimizer, other = ours(), ours()
    for grad in (1.0, 1.0, INF):
        optimizer.apply([constant(grad)], [weight])
    other.build([other_weight])
    where = tf.train.Checkpoint(o=optimizer, w=weight.value).save(str(tmp_path / "c"))
    tf.train.Checkpoint(o=other, w=other_weight.value).restore(where).assert_consumed()
    for grad in (INF, 3.0, INF, 4.0, 5.0, 6.0):
        for one, target in ((optimizer, weight), (other, other_weight)):
            one.apply([constant(grad)], [target])
    assert bits(*other.variables, other_weight) == bits(*optimizer.variables, weight)


class Crash(keras.callbacks.Callback):
    """Stands in for a machine that goes away after some batches of an epoch."""

    def __init__(self, epoch: int, batch: int) -> None:
        super().__init__()
        self.where, self.epoch = (epoch, batch), -1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == self.where:
            raise KeyboardInterrupt


BATCHES = (GOOD, BAD, GOOD * 2, BAD, BAD, GOOD)


def backup(path: Path, save_freq: Any) -> keras.callbacks.Callback:
    return keras.callbacks.BackupAndRestore(str(path / "backup"), save_freq=save_freq)


@pytest.mark.parametrize("save_freq", ["epoch", 1])
def test_a_run_that_crashed_goes_on_with_its_scale_and_counters(
    tmp_path: Path, save_freq: Any
) -> None:
    model = model_of(ours())
    with pytest.raises(KeyboardInterrupt):
        fit(model, *BATCHES, epochs=2, callbacks=[backup(tmp_path, save_freq), Crash(1, 2)])
    at_crash = model.optimizer.loss_scale_state()
    assert (at_crash.applied_steps, at_crash.skipped_steps) == (5, 4)

    again = model_of(ours())
    seen = []
    look = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: seen.append(again.optimizer.loss_scale_state())
    )
    fit(again, *BATCHES, epochs=2, callbacks=[backup(tmp_path, save_freq), look])
    # Back to the end of the epoch, of 3 applied and 3 skipped steps, or of a batch.
    (state,) = seen
    assert state.applied_steps >= 3 and state.skipped_steps >= 3
    assert again.optimizer.loss_scale_state().applied_steps >= 6
    assert int(again.optimizer.iterations.numpy()) == (
        again.optimizer.loss_scale_state().applied_steps
    )


def test_a_run_that_crashed_after_an_epoch_ends_as_if_it_had_not(tmp_path: Path) -> None:
    whole = model_of(ours())
    fit(whole, *BATCHES, epochs=3)
    crashed = model_of(ours())
    with pytest.raises(KeyboardInterrupt):
        fit(crashed, *BATCHES, epochs=3, callbacks=[backup(tmp_path, "epoch"), Crash(1, 3)])
    again = model_of(ours())
    fit(again, *BATCHES, epochs=3, callbacks=[backup(tmp_path, "epoch")])
    assert bits(again, *again.optimizer.variables) == bits(whole, *whole.optimizer.variables)


def test_a_bad_first_batch_after_a_crash_does_not_undo_what_was_restored(tmp_path: Path) -> None:
    batches, seen = (BAD, GOOD, GOOD * 2), []

    def run() -> None:
        model = model_of(ours())
        # The monitor protects once the backup has been restored.
        watch = amp.AmpMonitor(verbose=0)
        with pytest.raises(KeyboardInterrupt):
            fit(
                model, *batches, epochs=2, callbacks=[watch, backup(tmp_path, "epoch"), Crash(1, 0)]
            )
        seen.append(bits(model))

    run(), run()
    assert seen[0] == seen[1]
