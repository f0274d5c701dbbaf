"""What AmpMonitor logs, prints, warns of, and how often it reads."""

import csv
import importlib
import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.inspection.monitored import BAD, SCALE, Gan, batches, fit, identity, scaled
from tf_amp_kit.errors import LossScaleWarning, OptimizerError
from tf_amp_kit.inspection.monitor import AmpMonitor
from tf_amp_kit.precision.loss_scaling.optimizer import LossScaleOptimizer

LOGGED = ("loss_scale", "skipped_steps", "skip_rate")


def logged(history, prefix=""):
    return {name: history[f"{prefix}{name}"] for name in LOGGED}


def quiet(**arguments):
    return AmpMonitor(**{"verbose": 0, "max_skip_rate": None, **arguments})


def test_history_has_the_scale_at_the_end_and_the_skips_of_each_epoch():
    # One bad step of four in each epoch halves the scale once in each.
    history = fit(identity(), [1, BAD, 2, 3], quiet(), epochs=2)
    assert logged(history) == {
        "loss_scale": [SCALE / 2, SCALE / 4],
        "skipped_steps": [1, 1],
        "skip_rate": [0.25, 0.25],
    }


@pytest.mark.parametrize("position", ["first", "last"])
def test_a_csv_file_has_the_columns_wherever_the_logger_stands(position, tmp_path):
    callbacks = [quiet(), keras.callbacks.CSVLogger(tmp_path / "log.csv")]
    fit(identity(), [1, BAD], *(callbacks if position == "last" else callbacks[::-1]), epochs=2)
    with open(tmp_path / "log.csv") as file:
        rows = [[float(row[name]) for name in LOGGED] for row in csv.DictReader(file)]
    assert rows == [[SCALE / 2, 1, 0.5], [SCALE / 4, 1, 0.5]]


def test_tensorboard_files_have_the_scalars(tmp_path, monkeypatch):
    # TensorBoard need not be installed: this is all that its `scalar` adds.
    def scalar(name, data, step=None, description=None):
        return tf.summary.write(name, tf.cast(data, tf.float32), step=step)

    monkeypatch.setattr(importlib.import_module("tensorflow.summary"), "scalar", scalar)
    fit(identity(), [1, BAD], keras.callbacks.TensorBoard(tmp_path), quiet(), epochs=2)
    (path,) = (tmp_path / "train").glob("*tfevents*")
    found = {
        (event.step, value.tag): float(tf.make_ndarray(value.tensor))
        for record in tf.data.TFRecordDataset(str(path))
        for event in [tf.compat.v1.Event.FromString(record.numpy())]
        for value in event.summary.value
        if value.tag.removeprefix("epoch_") in LOGGED
    }
    assert found == {
        (0, "epoch_loss_scale"): SCALE / 2,
        (0, "epoch_skipped_steps"): 1.0,
        (0, "epoch_skip_rate"): 0.5,
        (1, "epoch_loss_scale"): SCALE / 4,
        (1, "epoch_skipped_steps"): 1.0,
        (1, "epoch_skip_rate"): 0.5,
    }


def test_an_early_stop_can_watch_the_skip_rate():
    stop = keras.callbacks.EarlyStopping("skip_rate", mode="min", patience=1)
    history = fit(identity(), [1, BAD], stop, quiet(), epochs=5)
    assert history["skip_rate"] == [0.5, 0.5]


def test_no_callback_is_lost_or_called_twice_when_the_monitor_moves_to_the_front():
    calls = []
    others = [
        keras.callbacks.LambdaCallback(on_train_begin=lambda logs, name=name: calls.append(name))
        for name in "abc"
    ]
    fit(identity(), [1], others[0], others[1], quiet(), others[2])
    assert calls == ["a", "b", "c"]


def test_an_optimizer_that_does_not_scale_logs_a_scale_of_1_and_no_skips():
    history = fit(identity(keras.optimizers.SGD(0.0)), [1, 2], quiet(), epochs=2)
    assert logged(history) == {
        "loss_scale": [1.0, 1.0],
        "skipped_steps": [0, 0],
        "skip_rate": [0.0, 0.0],
    }


def test_a_fixed_factor_is_logged_as_the_scale():
    history = fit(identity(keras.optimizers.SGD(0.0, loss_scale_factor=8.0)), [1], quiet())
    assert logged(history) == {"loss_scale": [8.0], "skipped_steps": [0], "skip_rate": [0.0]}


def test_keras_own_optimizer_logs_its_scale_and_claims_no_skips():
    model = identity(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.0)))
    with pytest.warns(LossScaleWarning, match="make_loss_scale_optimizer") as caught:
        history = fit(model, [1, BAD], quiet(), epochs=2)
    assert history["loss_scale"] == [SCALE / 2, SCALE / 4]
    assert all(map(math.isnan, history["skipped_steps"] + history["skip_rate"]))
    assert len(caught) == 1


def test_the_wrapper_is_watched_where_compile_wrapped_what_was_passed():
    keras.config.set_dtype_policy("mixed_float16")
    inner = keras.optimizers.SGD(0.0)
    model = identity(inner)
    with pytest.warns(LossScaleWarning, match="does not count"):
        # A gradient of 2 * 0.25 * 32768 fits into float16.
        history = fit(model, [0.25], quiet(optimizer=inner))
    assert history["loss_scale"] == [SCALE]


def test_two_monitors_watch_two_optimizers():
    model = Gan()
    model.compile()
    history = fit(
        model,
        [1, BAD, 1, BAD],
        quiet(optimizer=model.first, prefix="first_"),
        quiet(optimizer=model.second, prefix="second_"),
    )
    assert logged(history, "first_") == {
        "loss_scale": [SCALE],
        "skipped_steps": [0],
        "skip_rate": [0.0],
    }
    assert logged(history, "second_") == {
        "loss_scale": [SCALE / 4],
        "skipped_steps": [2],
        "skip_rate": [0.5],
    }


def test_a_second_fit_counts_from_its_own_start():
    model, monitor = identity(), quiet()
    fit(model, [BAD, BAD, 1], monitor)
    assert fit(model, [BAD, 1], monitor)["skipped_steps"] == [1]


def test_a_resumed_run_does_not_count_what_the_backup_brings_back(tmp_path):
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    values = [1, BAD, BAD, 2]
    backup = keras.callbacks.BackupAndRestore(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fit(identity(), values, backup, quiet(), Interrupt(), epochs=2)
    model = identity()
    history = fit(model, values, quiet(), backup, epochs=2)
    assert logged(history) == {
        "loss_scale": [SCALE / 16],
        "skipped_steps": [2],
        "skip_rate": [0.5],
    }
    assert model.optimizer.loss_scale_state().skipped_steps == 4


def test_validation_is_not_counted():
    x = batches(BAD, 1)
    history = fit(identity(), [1, 2], quiet(), validation_data=(x, x), epochs=2)
    assert history["skipped_steps"] == [0, 0]


@pytest.fixture
def reads(monkeypatch):
    """Grows by one with every reading of the host values."""
    seen = []
    read = LossScaleOptimizer.loss_scale_state
    monkeypatch.setattr(
        LossScaleOptimizer, "loss_scale_state", lambda self: seen.append(1) or read(self)
    )
    return seen


def test_an_epoch_is_read_at_its_first_batch_and_its_end(reads):
    fit(identity(), range(50), quiet(), epochs=3)
    assert len(reads) == 2 * 3


def test_a_long_epoch_is_read_every_100_batches(reads):
    # Before batches 0, 100 and 200, and at the end.
    fit(identity(), range(250), quiet())
    assert len(reads) == 4


def test_every_n_reads_every_n_batches(reads):
    # Before batches 0, 4 and 8, and at the end.
    fit(identity(), range(10), quiet(every=4))
    assert len(reads) == 4


def test_several_steps_per_execution_are_read_at_the_next_chance(reads):
    # Executions begin at 0, 3, 6 and 9: of these, 6 is 4 or more behind 0.
    fit(identity(steps_per_execution=3), range(10), quiet(every=4))
    assert len(reads) == 3


def test_keras_still_hands_logs_to_callbacks_in_the_background():
    # It does so unless a callback overrides one of these.
    for name in ("on_train_batch_end", "on_batch_end"):
        assert getattr(AmpMonitor, name) is getattr(keras.callbacks.Callback, name)


def test_a_line_is_printed_where_the_scale_moved(capsys):
    fit(identity(), [1, 2], AmpMonitor())
    assert capsys.readouterr().out == ""
    fit(identity(), [1, BAD], AmpMonitor())
    assert capsys.readouterr().out == (
        "Epoch 1, end: loss_scale 32768 -> 16384, 1 of 2 steps skipped\n"
    )


def test_a_scale_that_rises_is_printed_too(capsys):
    fit(identity(scaled(growth_interval=2)), [1, 2], AmpMonitor())
    assert "loss_scale 32768 -> 65536, 0 of 2 steps skipped" in capsys.readouterr().out


def test_every_n_prints_a_line_at_each_reading(capsys):
    fit(identity(), [1, BAD, 2, 3, 4], AmpMonitor(every=2), epochs=1)
    assert capsys.readouterr().out == (
        "Epoch 1, step 2: loss_scale 32768 -> 16384, 1 of 2 steps skipped\n"
        "Epoch 1, step 4: loss_scale 16384, 0 of 2 steps skipped\n"
        "Epoch 1, end: loss_scale 16384, 0 of 1 steps skipped\n"
    )


def test_every_1_prints_each_step(capsys):
    fit(identity(), [1, 2, 3], AmpMonitor(every=1))
    assert re.findall(r"step \d|end", capsys.readouterr().out) == ["step 1", "step 2", "end"]


def test_verbose_0_prints_nothing(capsys):
    fit(identity(), [1, BAD], AmpMonitor(every=1, verbose=0))
    assert capsys.readouterr().out == ""


def test_lines_start_anew_below_a_progress_bar(capsys):
    fit(identity(), [1, BAD], AmpMonitor(), verbose=1)
    assert "\nEpoch 1, end: loss_scale 32768 -> 16384" in capsys.readouterr().out


def test_a_skip_rate_that_stays_high_is_warned_of_once_at_the_users_line():
    with pytest.warns(LossScaleWarning) as caught:
        fit(identity(), [1, BAD, 2, 3], AmpMonitor(verbose=0), epochs=5)
    (warning,) = caught
    assert str(warning.message).startswith(
        "The skip rate stayed above 0.05 at 3 readings of loss_scale in a row: 3 of 12 steps "
        "were skipped (25.0 %), because a gradient was not finite."
    )
    assert warning.filename.endswith("monitored.py")


@pytest.mark.parametrize("max_skip_rate", [0.25, None])
def test_a_skip_rate_at_its_bound_is_fine(max_skip_rate):
    monitor = AmpMonitor(verbose=0, max_skip_rate=max_skip_rate)
    assert fit(identity(), [1, BAD, 2, 3], monitor, epochs=4)["skip_rate"] == [0.25] * 4


def test_a_scale_that_sits_at_its_minimum_is_warned_of_once():
    # Two skips lead from 4 to 1, in epochs 1 and 2: it sits there in 2, 3 and 4.
    model = identity(scaled(initial_scale=4.0))
    with pytest.warns(LossScaleWarning) as caught:
        fit(model, [1, BAD, 2], quiet(), epochs=6)
    (warning,) = caught
    assert str(warning.message).startswith(
        "loss_scale sat at its minimum of 1 at 3 readings in a row; 4 of 12 steps were skipped "
        "since training began."
    )


@pytest.mark.parametrize(
    "settings",
    [{"initial_scale": 1.0}, {"scaling": "static", "initial_scale": 1.0}],
)
def test_a_scale_that_began_at_its_minimum_is_fine_without_skips(settings):
    fit(identity(scaled(**settings)), [1, 2], quiet(), epochs=4)


def test_a_static_scale_has_no_minimum_to_sit_at():
    model = identity(scaled(scaling="static", initial_scale=1.0))
    fit(model, [1, BAD, 2], quiet(), epochs=4)


def test_a_schedule_without_a_config_is_watched_all_the_same():
    class Constant(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return tf.constant(0.0)

    assert fit(identity(scaled(Constant())), [1], quiet())["loss_scale"] == [SCALE]


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        ({"every": 0}, "Received: every=0."),
        ({"every": True}, "Received: every=True."),
        ({"every": 1.5}, "Received: every=1.5."),
        ({"max_skip_rate": 1.5}, "Received: max_skip_rate=1.5."),
        ({"max_skip_rate": "5%"}, "Received: max_skip_rate='5%'."),
        ({"optimizer": "adam"}, "Received: optimizer='adam'."),
    ],
)
def test_an_argument_that_cannot_be_is_refused(arguments, received):
    with pytest.raises(OptimizerError, match=re.escape(received)):
        AmpMonitor(**arguments)


def test_a_model_without_an_optimizer_is_refused_when_training_begins():
    model = Gan()
    model.compile(optimizer=None)
    with pytest.raises(OptimizerError, match=re.escape("AmpMonitor(optimizer=...)")):
        fit(model, [1], quiet())


def test_numpy_numbers_are_taken():
    monitor = quiet(every=np.int64(2), max_skip_rate=np.float32(0.5))
    assert fit(identity(), [1, 2, 3], monitor)["skipped_steps"] == [0]
