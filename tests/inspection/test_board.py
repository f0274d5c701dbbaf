"""Event files, read back: what TensorBoard is given."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tf_amp_kit.errors import OptimizerError

Events = dict[str, list[tuple[int, str, np.ndarray]]]


def read_back(folder: Path) -> Events:
    """Reads step, plugin and value of every event, by tag."""
    found: Events = defaultdict(list)
    for file in sorted(folder.glob("events*")):
        for record in tf.data.TFRecordDataset(str(file)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                plugin = value.metadata.plugin_data.plugin_name
                found[value.tag].append((event.step, plugin, tf.make_ndarray(value.tensor)))
    return found


def scaled_model() -> keras.Model:
    """The loss of weight 1 is x squared: 1e30 overflows float32 in the square."""
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", name="out")
    model = keras.Sequential([keras.Input((1,)), dense], name="net")
    optimizer = amp.LossScaleOptimizer(keras.optimizers.SGD(0.0), initial_scale=8.0)
    model.compile(optimizer, "mse")
    return model


def trained(folder: Path, model: keras.Model, *, epochs: int = 1, **options: Any) -> Events:
    x = np.float32([[2.0], [1e30], [2.0], [2.0]])
    monitor = amp.AmpMonitor(verbose=0, log_dir=folder, **options)
    model.fit(
        *(x, np.zeros((4, 1))),
        batch_size=1,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[monitor],
    )
    return read_back(folder)


def values(events: Events, tag: str) -> list[tuple[int, float]]:
    return [(step, float(value)) for step, _, value in events[tag]]


def test_the_scale_is_written_over_the_steps(tmp_path: Path) -> None:
    events = trained(tmp_path, scaled_model(), epochs=2, log_numerics=False)
    # Read at the first batch and the end of each epoch; a skip in each halves it.
    expected = [(0, 8.0), (4, 4.0), (4, 4.0), (8, 2.0)]
    assert values(events, "amp/loss_scale") == expected


def test_skips_are_written_as_they_come(tmp_path: Path) -> None:
    events = trained(tmp_path, scaled_model(), every=1, log_numerics=False)
    skips = values(events, "amp/skipped_steps")
    assert skips == [(0, 0), (1, 0), (2, 1), (3, 0), (4, 0)]


def test_scalars_are_scalars_to_tensorboard(tmp_path: Path) -> None:
    events = trained(tmp_path, scaled_model(), log_numerics=False)
    assert {plugin for _, plugin, _ in events["amp/loss_scale"]} == {"scalars"}


def test_each_layer_has_a_histogram_of_its_powers_of_two(tmp_path: Path) -> None:
    # The first batch of the epoch, 2, comes out of the layer as 2: one element from 2^1 to 2^2.
    events = trained(tmp_path, scaled_model())
    ((step, plugin, buckets),) = events["amp/exponents/output/out"]
    assert (step, plugin, buckets.tolist()) == (4, "histograms", [[1.0, 2.0, 1.0]])


def test_each_epoch_tells_what_overflows_and_underflows(tmp_path: Path) -> None:
    model = scaled_model()
    model.set_weights([np.float32([[1e-9]])])  # less than half of float16's smallest number
    events = trained(tmp_path, model, epochs=2)
    assert values(events, "amp/underflow/weight/out/kernel") == [(4, 1.0), (8, 1.0)]
    assert values(events, "amp/overflow/weight/out/kernel") == [(4, 0.0), (8, 0.0)]


def test_weights_train_as_they_do_without(tmp_path: Path) -> None:
    def weights(**options: Any) -> np.ndarray:
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile(amp.LossScaleOptimizer(keras.optimizers.Adam(0.1)), "mse")
        x = np.random.default_rng(0).normal(size=(12, 3))
        monitor = amp.AmpMonitor(verbose=0, **options)
        model.fit(x, x[:, :2], batch_size=4, epochs=2, verbose=0, callbacks=[monitor])
        return model.get_weights()[0]

    assert np.array_equal(weights(), weights(log_dir=tmp_path))


def test_it_feeds_beside_the_search_for_the_origin_of_nan(tmp_path: Path) -> None:
    model = scaled_model()
    found: list[Any] = []
    events = trained(tmp_path, model, on_nonfinite=found.append, consecutive_skips=0)
    assert len(found) == 1
    assert "amp/exponents/output/out" in events
    assert model.optimizer.loss_scale_state().skipped_steps == 1


def test_several_steps_in_one_execution_are_counted(tmp_path: Path) -> None:
    model = scaled_model()
    model.compile(model.optimizer, "mse", steps_per_execution=2)
    events = trained(tmp_path, model)
    assert values(events, "amp/loss_scale") == [(0, 8.0), (4, 4.0)]
    assert "amp/exponents/output/out" in events


def test_two_monitors_write_beside_each_other(tmp_path: Path) -> None:
    model = scaled_model()
    monitors = [amp.AmpMonitor(verbose=0, log_dir=tmp_path, prefix=one) for one in ("a_", "b_")]
    model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0, callbacks=monitors)
    events = read_back(tmp_path)
    assert {"a_amp/loss_scale", "b_amp/loss_scale"} <= set(events)


def test_a_precision_without_loss_scaling_has_a_scale_of_one(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    monitor = amp.AmpMonitor(verbose=0, log_dir=tmp_path)
    model.fit(np.ones((4, 1)), np.ones((4, 1)), batch_size=1, verbose=0, callbacks=[monitor])
    assert values(read_back(tmp_path), "amp/loss_scale") == [(0, 1.0), (4, 1.0)]


@pytest.mark.parametrize("odd", [7, __file__])
def test_no_folder_is_refused(odd: Any) -> None:
    message = f"Expected a folder, or None. Received: log_dir={odd!r}."
    with pytest.raises(OptimizerError, match=re.escape(message)):
        amp.AmpMonitor(log_dir=odd)
