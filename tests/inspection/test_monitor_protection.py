"""What AmpMonitor keeps safe, and when it ends a run."""

import csv
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.inspection.monitored import (
    BAD,
    Gan,
    OwnStep,
    Unbuilt,
    batches,
    fit,
    identity,
    scaled,
    with_nan_loss,
)
from tf_amp_kit.errors import LossScaleWarning, TrainingStuckError
from tf_amp_kit.inspection.monitor import AmpMonitor

WAYS_TO_RUN = {
    "graph": {},
    "eager": {"run_eagerly": True},
    "jit": {"jit_compile": True},
    "several steps": {"steps_per_execution": 3},
    "several steps in jit": {"steps_per_execution": 3, "jit_compile": True},
}


@pytest.fixture(params=WAYS_TO_RUN)
def way(request):
    return WAYS_TO_RUN[request.param]


def quiet(**arguments):
    return AmpMonitor(**{"verbose": 0, "max_skip_rate": None, **arguments})


def moments(model):
    layer = next(one for one in model.layers if isinstance(one, keras.layers.BatchNormalization))
    return float(layer.moving_mean[0]), float(layer.moving_variance[0])


def test_the_logged_loss_is_the_mean_over_the_applied_steps(way):
    model, seen, expected = identity(**way), [], []
    for bad in (0, 2, 4):
        values = [1.0, 2.0, 3.0, 4.0, 5.0]
        values[bad] = BAD
        seen += fit(model, values, quiet(), epochs=2)["loss"]
        good = np.float32([value**2 for value in values if value == value])
        expected += [np.mean(good)] * 2
    np.testing.assert_allclose(seen, expected, rtol=1e-6)


def test_a_clean_epoch_has_the_loss_that_it_has_without_a_monitor():
    assert fit(identity(), [1, 2, 4], quiet())["loss"] == fit(identity(), [1, 2, 4])["loss"]


def test_the_applied_mean_weighs_batches_by_their_samples():
    # Batches of 2, of which the second is bad, and a last one of 1.
    history = fit(identity(), [1, 3, BAD, 1, 7], quiet(), batch_size=2)
    np.testing.assert_allclose(history["loss"], [(1 + 9 + 49) / 3], rtol=1e-6)


def test_an_epoch_without_an_applied_step_has_a_loss_of_nan_and_not_of_0(way):
    history = fit(identity(**way), [BAD, BAD], quiet(), epochs=2)
    assert all(map(math.isnan, history["loss"]))


def test_validation_leaves_the_training_loss_alone():
    x = batches(10)
    history = fit(identity(), [1, BAD, 3], quiet(), validation_data=(x, 0 * x), epochs=2)
    assert history["loss"] == [5.0, 5.0]
    assert history["val_loss"] == [100.0, 100.0]


def test_moving_statistics_are_those_of_the_good_batches_alone(way):
    def run(values):
        model = identity(layers=[keras.layers.BatchNormalization(momentum=0.5)], **way)
        fit(model, values, quiet(), batch_size=2)
        return moments(model)

    np.testing.assert_allclose(run([1, 3, BAD, 1, 5, 9]), run([1, 3, 5, 9]), rtol=1e-6)


def test_a_train_function_that_was_traced_before_learns_of_the_copies():
    model = identity(layers=[keras.layers.BatchNormalization()])
    with pytest.warns(LossScaleWarning, match="moving statistics"):
        fit(model, [1, 3], batch_size=2)
    fit(model, [1, BAD, 1, 3], quiet(), batch_size=2)
    assert all(map(math.isfinite, moments(model)))


def test_a_second_fit_traces_nothing_anew():
    model, monitor = identity(), quiet()
    fit(model, [1, 2], monitor)
    function = model.train_function
    fit(model, [1, 2], monitor)
    fit(model, [1, 2], quiet())
    assert model.train_function is function


def test_what_others_changed_before_the_first_batch_survives_a_skip():
    layer = keras.layers.BatchNormalization(momentum=0.5)

    class Load(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            layer.moving_mean.assign([7.0])

    fit(identity(layers=[layer]), [BAD], Load(), quiet(), epochs=2)
    assert float(layer.moving_mean[0]) == 7.0


def test_a_model_that_is_built_in_its_first_batch_is_protected_from_the_second():
    model = unbuilt()
    history = fit(model, [1, BAD, 2, BAD], quiet())
    assert float(model.counting.total) == 3.0
    assert history["loss"] == [2.5]


def unbuilt():
    model = Unbuilt()
    model.compile(scaled(), "mse")
    return model


def test_what_a_skip_spoilt_while_the_model_was_built_is_told():
    told = "1 of 1 steps were skipped while the model was being built, and left NaN or Inf in 1 var"
    with pytest.warns(LossScaleWarning, match=told):
        history = fit(unbuilt(), [BAD, 1, 2], quiet())
    # The loss itself was there before the first batch, and protected.
    assert history["loss"] == [2.5]


def test_a_skip_that_spoilt_nothing_while_the_model_was_built_is_no_matter():
    # The scaled gradients overflow, 2**24 * 1e38 each, and the forward pass does not.
    model = Unbuilt()
    model.compile(scaled(initial_scale=2.0**24), lambda y, prediction: prediction * 1e38)
    fit(model, [1, 0], quiet(every=1))
    assert model.optimizer.loss_scale_state().skipped_steps == 2


def test_two_optimizers_of_one_model_give_back_what_the_other_left():
    model = Gan()
    model.compile()
    monitors = [quiet(optimizer=one, prefix=one.name) for one in (model.first, model.second)]
    # Both count the 1. Of the bad sample the first one counts 0, the second one NaN.
    fit(model, [1, BAD], *monitors)
    assert float(model.counting.total) == 2.0


def stuck(**arguments):
    return identity(scaled(max_consecutive_skips=4), jit_compile=True, **arguments)


def test_a_stuck_run_under_jit_ends_at_the_next_reading():
    seen = []
    count = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: seen.append(batch)
    )
    with pytest.raises(TrainingStuckError, match="6 steps in a row were skipped"):
        fit(stuck(), [BAD] * 20, count, quiet(every=3))
    # The reading before batch 3 saw three skips, the one before batch 6 six.
    assert seen == [0, 1, 2, 3, 4, 5]


def test_a_stuck_run_under_jit_ends_with_the_epoch_and_after_its_row_is_written(tmp_path):
    log = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    with pytest.raises(TrainingStuckError):
        fit(stuck(), [BAD] * 5, log, quiet(), epochs=3)
    log.csv_file.close()
    with open(tmp_path / "log.csv") as file:
        assert [row["skipped_steps"] for row in csv.DictReader(file)] == ["5"]


def test_a_stuck_run_under_jit_does_not_end_as_if_it_had_worked():
    with pytest.raises(TrainingStuckError):
        fit(stuck(), [BAD] * 5, quiet())


def test_a_stuck_run_may_be_tried_again_with_better_data():
    model, monitor = stuck(), quiet(every=1)
    with pytest.raises(TrainingStuckError):
        fit(model, [BAD] * 5, monitor)
    assert fit(model, [1, 2], monitor)["skipped_steps"] == [0]


def test_skips_that_end_in_time_are_not_stuck():
    assert fit(stuck(), [BAD] * 3 + [1], quiet(every=1))["skipped_steps"] == [3]


def stopped_after(model, x, y, *, epochs=2, **arguments):
    """Epochs that were run with stop_on_nan, and what was warned of."""
    history = model.fit(
        x,
        y,
        batch_size=1,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[quiet(stop_on_nan=True, **arguments)],
    )
    return len(history.epoch)


def test_a_skipped_steps_nan_does_not_stop_training():
    x = batches(1, BAD, 2)
    assert stopped_after(identity(), x, 0 * batches(1, 1, 2)) == 2


def test_an_epoch_of_skipped_steps_alone_does_not_stop_training():
    assert stopped_after(identity(), batches(BAD), batches(0)) == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_applied_steps_loss_that_is_not_finite_stops_training(bad):
    model = identity()
    model.compile(scaled(), with_nan_loss)
    with pytest.warns(LossScaleWarning, match="Training stops in epoch 1, at its end"):
        assert stopped_after(model, batches(1, 2), batches(0, bad)) == 1
    assert model.optimizer.loss_scale_state().applied_steps == 2


def test_an_applied_nan_is_told_from_a_skipped_one_in_the_same_epoch():
    model = identity()
    model.compile(scaled(), with_nan_loss)
    with pytest.warns(LossScaleWarning, match=re.escape("(1 steps were skipped besides)")):
        assert stopped_after(model, batches(1, BAD, 2), batches(0, 0, np.nan)) == 1


def test_a_nan_stops_training_within_the_epoch_and_says_where():
    model = identity()
    model.compile(scaled(), with_nan_loss)
    x, y = batches(*range(10)), batches(*[0] * 3, np.nan, *[0] * 6)
    with pytest.warns(LossScaleWarning, match="Training stops in epoch 1, before step 5"):
        stopped_after(model, x, y, every=2)
    # Seen before the fifth step, which Keras still runs.
    assert model.optimizer.loss_scale_state().applied_steps == 5


def test_a_nan_stops_training_where_nothing_is_ever_skipped():
    model = identity(keras.optimizers.SGD(0.0))
    with pytest.warns(LossScaleWarning, match="Training stops in epoch 1"):
        assert stopped_after(model, batches(BAD, 1), batches(0, 0)) == 1


def test_without_stop_on_nan_training_goes_on():
    assert len(fit(identity(keras.optimizers.SGD(0.0)), [BAD], quiet(), epochs=2)["loss"]) == 2


def test_a_users_own_step_stops_only_where_nothing_was_skipped():
    model = OwnStep()
    model.compile(scaled())
    x = batches(1, BAD)
    assert stopped_after(model, x, x) == 2
    model.dense.kernel.assign([[np.inf]])
    model.compile(keras.optimizers.SGD(0.0))
    with pytest.warns(LossScaleWarning, match="Training stops in epoch 1"):
        assert stopped_after(model, batches(1), batches(1)) == 1


def test_stop_on_nan_says_that_there_is_no_loss_to_look_at():
    model = Gan()
    model.compile()
    with pytest.warns(LossScaleWarning, match="Received: .'first_loss'") as caught:
        assert stopped_after(model, batches(1), batches(0), optimizer=model.first) == 2
    assert len(caught) == 1


MIRRORED = """
import tensorflow as tf
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import keras, numpy as np
from tf_amp_kit.inspection.monitor import AmpMonitor
from tests.inspection.monitored import identity, scaled
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = identity(scaled(), layers=[keras.layers.BatchNormalization(momentum=0.5, scale=False,
                                                                       center=False)])
    plain = identity(scaled())
x = np.arange(1, 17, dtype="float32").reshape(-1, 1)
x[7] = np.nan  # on the second replica alone
monitor = AmpMonitor(verbose=0, max_skip_rate=None, every=1, stop_on_nan=True)
for one in (plain, model):
    history = one.fit(x, 0 * np.ones_like(x), batch_size=4, epochs=2, shuffle=False, verbose=0,
                      callbacks=[monitor]).history
    if one is plain:
        print("loss", history["loss"])
    print("skipped", history["skipped_steps"])
print("finite", bool(np.isfinite(model.layers[0].moving_mean.numpy()).all()))
"""


def test_replicas_share_one_mean_over_the_applied_steps():
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", MIRRORED],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    # Squares of 1 to 4 and of 9 to 16: 30 and 1292 over 12 samples.
    loss, *rest = result.stdout.splitlines()
    np.testing.assert_allclose(eval(loss.removeprefix("loss ")), [1322 / 12] * 2, rtol=1e-6)
    assert rest == ["skipped [1, 1]", "skipped [1, 1]", "finite True"]
