"""What AmpMonitor finds out when too many steps in a row are skipped, and what it leaves alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.inspection.monitored import BAD, SCALE, Gan, OwnStep, batches, fit, identity, scaled
from tf_amp_kit.callers import running_methods_of
from tf_amp_kit.errors import InputsError, LossScaleWarning, OptimizerError
from tf_amp_kit.inspection import skips
from tf_amp_kit.inspection.monitor import AmpMonitor
from tf_amp_kit.inspection.skips import SkipWatch
from tf_amp_kit.precision.loss_scaling.optimizer import LossScaleOptimizer

WAYS_TO_RUN = {
    "graph": {},
    "eager": {"run_eagerly": True},
    "jit": {"jit_compile": True},
    "several steps": {"steps_per_execution": 3},
    "several steps in jit": {"steps_per_execution": 3, "jit_compile": True},
    "several eager steps": {"steps_per_execution": 3, "run_eagerly": True},
}

# Their squares are infinite in float32, and unlike NaN they can be told apart.
A, B, C, D = 1e30, 2e30, 3e30, 4e30


class Finder:
    """Stands in for find_nonfinite, and remembers what it was asked."""

    def __init__(self):
        self.calls, self.weights, self.error = [], [], None

    def __call__(self, model, batch, loss_scale):
        self.calls.append((tf.nest.map_structure(np.asarray, batch), loss_scale))
        self.weights.append([weight.numpy() for weight in model.trainable_variables])
        if self.error:
            raise self.error
        return "the report"

    @property
    def inputs(self):
        return [float(batch[0].squeeze()) for batch, _ in self.calls]

    @property
    def loss_scales(self):
        return [loss_scale for _, loss_scale in self.calls]


@pytest.fixture
def finder(monkeypatch):
    finder = Finder()
    monkeypatch.setattr(SkipWatch, "find", staticmethod(finder))
    return finder


@pytest.fixture(params=WAYS_TO_RUN)
def way(request):
    return WAYS_TO_RUN[request.param]


def watching(skips=2, **arguments):
    settings = {"verbose": 0, "max_skip_rate": None, "on_nonfinite": "report", **arguments}
    return AmpMonitor(consecutive_skips=skips, **settings)


def test_the_batch_is_the_one_that_was_skipped_once_too_often(finder, way):
    fit(identity(**way), [1, 2, A, B, C, D, 3], watching())
    assert finder.inputs == [np.float32(C)]


@pytest.mark.parametrize("position", range(6))
def test_it_is_found_wherever_in_an_execution_the_row_stands(finder, position):
    values = [1] * 6
    values[position:position] = [A, B, C]
    fit(identity(steps_per_execution=3), values, watching())
    assert finder.inputs == [np.float32(C)]


@pytest.mark.parametrize("skips", range(6))
def test_it_is_the_first_one_above_the_bound_whatever_the_bound(finder, skips):
    values = [1, 1, *(A * number for number in range(1, 9))]
    fit(identity(steps_per_execution=3), values, watching(skips))
    assert finder.inputs == [np.float32(A * (skips + 1))]


def test_the_loss_scale_is_the_one_that_the_skipped_step_used(finder):
    # Each skip halves it, also the one that it is reported for.
    fit(identity(), [1, A, B, C, D], watching())
    assert finder.loss_scales == [SCALE / 4]


def test_the_loss_scale_at_its_minimum_is_not_guessed_from_the_next_one(finder):
    fit(identity(scaled(initial_scale=4.0, min_scale=3.0)), [1, A], watching(0))
    assert finder.loss_scales == [4.0]


def test_the_weights_are_those_that_the_skipped_step_had(finder, way):
    # w -> w - 0.25 * 2 * w halves the weight, and leaves the bias to be what it is.
    def model():
        dense = keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)
        model = keras.Sequential([keras.Input((1,)), dense])
        model.compile(scaled(0.25), "mse", **way)
        return model

    fit(model(), [1, 1, A, B, C, 1, 1], watching())
    assert finder.weights == [[np.float32([[0.25]])]]


def test_rows_that_stay_within_the_bound_are_no_matter(finder):
    fit(identity(), [A, B, 1, A, B, 1, 1, A, B], watching())
    assert finder.calls == []


def test_a_row_may_go_on_into_the_next_epoch(finder):
    fit(identity(steps_per_execution=3), [A, 1, 1, 1, B], watching(1), epochs=2)
    assert finder.inputs == [np.float32(A)]


def test_it_looks_once_per_fit_and_again_in_the_next(finder):
    model, monitor = identity(), watching(0)
    fit(model, [1, A, 1, B, 1], monitor, epochs=2)
    fit(model, [1, C, 1], monitor)
    assert finder.inputs == [np.float32(A), np.float32(C)]


def test_skips_of_an_earlier_fit_are_not_counted(finder):
    model = identity()
    fit(model, [A, B, C])
    fit(model, [A, B, 1], watching())
    assert finder.calls == []


def test_the_report_and_the_batch_are_kept(finder):
    monitor = watching(0)
    fit(identity(), [1, A], monitor)
    assert monitor.nonfinite_report == "the report"
    assert monitor.nonfinite_batch[0].numpy() == [[np.float32(A)]]


def test_a_new_fit_forgets_the_report_and_the_batch(finder):
    model, monitor = identity(), watching(0)
    fit(model, [A], monitor)
    fit(model, [1], monitor)
    assert (monitor.nonfinite_report, monitor.nonfinite_batch) == (None, None)


def test_before_any_fit_there_is_no_report():
    assert AmpMonitor().nonfinite_report is None


def test_the_report_is_printed_below_where_it_happened(finder, capsys):
    fit(identity(), [1, A, B, C], watching(verbose=1))
    assert capsys.readouterr().out == (
        "Epoch 1, step 4: 3 skipped steps in a row, the last one at loss scale 8192. "
        "With its batch:\n"
        "the report\n"
        "Epoch 1, end: loss_scale 32768 -> 4096, 3 of 4 steps skipped\n"
    )


def test_the_step_is_counted_inside_of_an_execution_too(finder, capsys):
    fit(identity(steps_per_execution=3), [1, 1, 1, 1, A], watching(0, verbose=1))
    assert "Epoch 1, step 5: 1 skipped step, the last one" in capsys.readouterr().out


def test_the_report_starts_anew_below_a_progress_bar(finder, capsys):
    fit(identity(), [1, A], watching(0, verbose=1), verbose=1)
    assert "\nEpoch 1, step 2: 1 skipped step" in capsys.readouterr().out


def test_verbose_0_keeps_the_report_to_itself(finder, capsys):
    fit(identity(), [1, A], watching(0))
    assert capsys.readouterr().out == ""


def test_a_function_gets_the_report_instead(finder, capsys):
    reports = []
    fit(identity(), [1, A], watching(0, on_nonfinite=reports.append, every=None))
    assert (reports, capsys.readouterr().out) == (["the report"], "")


@pytest.mark.parametrize(
    "error",
    [InputsError("of no use"), tf.errors.ResourceExhaustedError(None, None, "of no use")],
    ids=["ours", "out of memory"],
)
def test_what_cannot_be_found_is_warned_of_once_and_training_goes_on(finder, error):
    finder.error = error
    monitor = watching(0)
    with pytest.warns(LossScaleWarning, match="of no use") as caught:
        history = fit(identity(), [1, A, B, 1], monitor, epochs=2)
    assert (len(caught), history["skipped_steps"]) == (1, [2, 2])


def test_a_batch_of_which_nothing_was_found_is_kept_all_the_same(finder):
    finder.error = InputsError("of no use")
    monitor = watching(0)
    with pytest.warns(LossScaleWarning):
        fit(identity(), [A], monitor)
    assert monitor.nonfinite_batch[0].numpy() == [[np.float32(A)]]


def trained(way, *callbacks):
    """All that a fit leaves behind, of a model with every kind of state."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(5, activation="tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1),
        ]
    )
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.01, momentum=0.9))
    model.compile(optimizer, "mse", metrics=["mae"], **way)
    optimizer.protect(model)
    x = np.random.default_rng(1).normal(size=(20, 3)).astype("float32")
    x[4:12] = 1e30
    monitor = AmpMonitor(verbose=0, max_skip_rate=None)
    history = model.fit(
        x, x[:, :1], batch_size=2, verbose=0, epochs=2, callbacks=callbacks or [monitor]
    ).history
    seeds = [v for layer in model.layers for v in getattr(layer, "variables", [])]
    variables = [*model.variables, *optimizer.variables, *seeds]
    return (
        [variable.numpy().tobytes() for variable in variables],
        {name: np.array(values).tobytes() for name, values in history.items()},
        tf.random.uniform((2,)).numpy().tolist(),
        np.random.uniform(),
        optimizer.loss_scale_state(),
    )


@pytest.mark.parametrize("name", ["graph", "several steps", "several steps in jit"])
def test_nothing_that_training_leaves_behind_is_different_by_a_bit(finder, name):
    expected = trained(WAYS_TO_RUN[name])
    assert trained(WAYS_TO_RUN[name], watching(1)) == expected
    assert len(finder.calls) == 1


class Traced(keras.Model):
    """Counts how often its train step runs in Python."""

    def __init__(self):
        super().__init__()
        self.dense, self.count = keras.layers.Dense(1, kernel_initializer="ones"), 0

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        self.count += 1
        return super().train_step(data)


@pytest.mark.parametrize("way", [{}, {"jit_compile": True}, {"steps_per_execution": 3}])
def test_feeding_by_hand_from_the_first_step_on_traces_what_keras_does(finder, way):
    def traces(monitor):
        model = Traced()
        model.compile(scaled(), "mse", **way)
        model(batches(1))
        # The last batch is smaller than the others, which are 2.
        fit(model, [1, 1, 1, 1, 1, 1, 1], monitor, batch_size=2)
        return model.count

    assert traces(watching(0)) == traces(AmpMonitor(verbose=0, max_skip_rate=None))


def plain_function(model, **arguments):
    """A train function as Keras made it, for a model that has run."""
    fit(model, [1], AmpMonitor(verbose=0, max_skip_rate=None), **arguments)
    return model.train_function


def test_after_fit_the_train_function_is_what_it_was(finder, way):
    model = identity(**way)
    function = plain_function(model)
    fit(model, [1, A, B, C, 1], watching())
    assert model.train_function is function


def test_a_later_fit_without_it_finds_nothing(finder):
    model = identity()
    fit(model, [1, 1], watching(0))
    fit(model, [A, B, C])
    assert finder.calls == []


class Raises(keras.callbacks.Callback):
    """Raises where it is told to, in the third batch."""

    def __init__(self, hook, error):
        super().__init__()
        setattr(self, hook, lambda batch, logs=None: self.run(batch, error))

    def run(self, batch, error):
        if batch == 2:
            raise error


@pytest.mark.parametrize("hook", ["on_train_batch_begin", "on_train_batch_end"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_in_another_callback_leaves_nothing_behind(finder, hook, error):
    model = identity()
    function = plain_function(model)
    with pytest.raises(error):
        fit(model, [1, 1, 1, 1], watching(0), Raises(hook, error))
    assert model.train_function is function


def test_an_exception_in_the_step_leaves_nothing_behind(finder):
    model = identity(scaled(max_consecutive_skips=2))
    function = plain_function(model)
    with pytest.raises(tf.errors.InvalidArgumentError):
        fit(model, [1, A, B, 1], watching(1))
    assert model.train_function is function


@pytest.mark.parametrize("eager", [True, False])
def test_a_run_that_ends_stuck_with_that_step_is_explained_first(finder, eager):
    model = identity(scaled(max_consecutive_skips=2), run_eagerly=eager)
    with pytest.raises((tf.errors.InvalidArgumentError, FloatingPointError), match="in a row"):
        fit(model, [1, A, B, 1], watching(1))
    assert finder.inputs == [np.float32(B)]


def test_an_interrupt_in_the_step_leaves_nothing_behind_and_finds_nothing(finder):
    class Interrupted(Traced):
        def train_step(self, data):
            if self.count == 2:
                raise KeyboardInterrupt
            return super().train_step(data)

    model = Interrupted()
    model.compile(scaled(), "mse", run_eagerly=True)
    with pytest.raises(KeyboardInterrupt):
        fit(model, [1, 1, A], watching(0))
    assert (model.train_function.__qualname__, finder.calls) == (
        "TensorFlowTrainer._make_function.<locals>.function",
        [],
    )


def test_a_stop_in_the_middle_leaves_nothing_behind(finder):
    model = identity()
    function = plain_function(model)

    def stop(batch, logs):
        model.stop_training = batch == 1

    fit(model, [1] * 9, watching(0), keras.callbacks.LambdaCallback(on_train_batch_begin=stop))
    assert model.train_function is function


def test_no_train_step_is_replaced(finder):
    model, seen = identity(), []
    look = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: seen.append("train_step" in vars(model))
    )
    fit(model, [1, A, B], watching(0), look)
    assert seen == [False] * 3


@pytest.fixture
def reads(monkeypatch):
    """Grows by one with every reading of the host values."""
    seen = []
    read = LossScaleOptimizer.loss_scale_state
    monkeypatch.setattr(
        LossScaleOptimizer, "loss_scale_state", lambda self: seen.append(1) or read(self)
    )
    return seen


def test_a_healthy_run_is_read_once_in_as_many_steps_as_may_be_skipped(reads, finder):
    # Two readings are there without it. These are before batches 0, 10, 20, 30 and 40.
    fit(identity(), range(50), watching(10))
    assert len(reads) == 2 + 5


def test_a_healthy_run_keeps_the_train_function_of_keras(monkeypatch, finder):
    fed = []
    monkeypatch.setattr(skips, "feed_by_hand", lambda *arguments: fed.append(arguments))
    fit(identity(steps_per_execution=3), range(50), watching(10))
    assert fed == []


def test_after_the_report_nothing_more_is_read(reads, finder):
    # Two readings are there without it. These are before batches 0 and 1, and after 1.
    fit(identity(), [A, B, *range(50)], watching(1))
    assert len(reads) == 2 + 3


def callbacks_in_fit(monitor):
    seen = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            running = next(running_methods_of(keras.callbacks.CallbackList))
            seen.append([type(one).__name__ for one in running.callbacks])

    fit(identity(), [1], monitor, Look())
    return seen[0]


def test_without_it_there_is_no_further_callback():
    assert callbacks_in_fit(AmpMonitor(verbose=0)) == ["AmpMonitor", "Look", "History"]


def test_with_it_the_watch_stands_last(finder):
    assert callbacks_in_fit(watching()) == ["AmpMonitor", "Look", "History", "SkipWatch"]


def test_keras_still_hands_logs_to_callbacks_in_the_background():
    for name in ("on_train_batch_end", "on_batch_end"):
        assert getattr(SkipWatch, name) is getattr(keras.callbacks.Callback, name)


def test_a_train_step_of_the_users_is_watched_too(finder):
    model = OwnStep()
    model.compile(scaled())
    # Its loss is the mean of x, whose gradient times 2**15 is infinite.
    fit(model, [1, 1e36, 2e36, 3e36], watching())
    assert finder.inputs == [np.float32(3e36)]


def test_two_monitors_watch_two_optimizers(finder):
    model = Gan()
    model.compile()
    monitors = [watching(1, optimizer=one, prefix=one.name) for one in (model.first, model.second)]
    # The first optimizer sees only clean samples.
    fit(model, [1, BAD, BAD, 1], *monitors)
    assert [one.nonfinite_report for one in monitors] == [None, "the report"]


def test_several_optimizer_steps_per_batch_are_found_while_they_last(finder):
    class Twice(OwnStep):
        def train_step(self, data):
            super().train_step(data)
            return super().train_step(data)

    model = Twice()
    model.compile(scaled())
    fit(model, [1, 1, *(1e36 * number for number in range(1, 9))], watching(3))
    # More than three in a row from its second batch on, and looked at every third batch.
    assert len(finder.inputs) == 1
    assert finder.inputs[0] >= np.float32(2e36)


def network(*names, **compiled):
    """Adds up its inputs."""
    inputs = {name: keras.Input((1,), name=name) for name in names}
    total = keras.layers.Add()(list(inputs.values()))
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(total))
    model.compile(scaled(), "mse", **compiled)
    return model


def test_dictionaries_and_sample_weights_are_kept_as_they_are(finder, way):
    x = {"a": batches(1, 2, 3), "b": batches(4, A, 6)}
    y, weights = batches(7, 8, 9), np.float32([0.5, 0.25, 0.125])
    network("a", "b", **way).fit(
        x,
        y,
        sample_weight=weights,
        batch_size=1,
        shuffle=False,
        verbose=0,
        callbacks=[watching(0)],
    )
    expected = ({"a": [[2.0]], "b": [[np.float32(A)]]}, [[8.0]], [0.25])
    ((batch, _),) = finder.calls
    assert tf.nest.map_structure(np.ndarray.tolist, batch) == expected


def test_a_batch_of_inputs_alone_is_a_tuple_too(finder):
    model = OwnStep()
    model.train_step = lambda data: OwnStep.train_step(model, (data, None))
    model.compile(scaled())
    dataset = tf.data.Dataset.from_tensor_slices(batches(1, 1e36)).batch(1)
    model.fit(dataset, shuffle=False, verbose=0, callbacks=[watching(0)])
    ((batch, _),) = finder.calls
    assert (type(batch), finder.inputs) == (tuple, [np.float32(1e36)])


def test_none_in_a_generators_batches_is_none(monkeypatch):
    class Sum(OwnStep):
        def train_step(self, data):
            x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
            if y is not None:
                raise ValueError("no targets were given")
            return super().train_step((x, y))

    def generate():
        for value in (1, 1e36):
            yield batches(value), None

    monkeypatch.setattr(SkipWatch, "find", staticmethod(lambda *arguments: None))
    model, monitor = Sum(), watching(0)
    model.compile(scaled())
    try:
        model.fit(generate(), shuffle=False, verbose=0, steps_per_epoch=2)
    except AttributeError:
        pytest.skip("this Keras takes no None in a generator's batches")
    model.fit(generate(), shuffle=False, verbose=0, steps_per_epoch=2, callbacks=[monitor])
    x, y = monitor.nonfinite_batch
    assert (x.numpy().item(), y) == (np.float32(1e36), None)


@pytest.mark.parametrize("kind", ["ragged", "sparse"])
def test_ragged_and_sparse_batches_are_kept_as_they_are(monkeypatch, kind):
    rows = tf.ragged.constant([[1.0], [2.0, 3.0], [A, 4.0], [5.0]])
    x = rows if kind == "ragged" else tf.sparse.from_dense(rows.to_tensor())
    seen = []
    monkeypatch.setattr(SkipWatch, "find", staticmethod(lambda *arguments: seen.append(arguments)))

    class Total(OwnStep):
        def train_step(self, data):
            x = data[0]
            dense = x.to_tensor() if kind == "ragged" else tf.sparse.to_dense(x)
            total = tf.reduce_sum(dense, axis=1, keepdims=True) * 1e6
            return super().train_step((total, None))

    model = Total()
    model.compile(scaled())
    dataset = tf.data.Dataset.from_tensor_slices((x, tf.range(4))).batch(2)
    model.fit(dataset, shuffle=False, verbose=0, callbacks=[watching(0)])
    ((_, (inputs, targets), _),) = seen
    dense = inputs.to_tensor() if kind == "ragged" else tf.sparse.to_dense(inputs)
    assert type(inputs) is type(x)
    assert (dense.numpy().tolist(), targets.numpy().tolist()) == (
        [[np.float32(A), 4.0], [5.0, 0.0]],
        [2, 3],
    )


@pytest.mark.parametrize("num_steps", [1, 3, 7])
@pytest.mark.parametrize("fourth", [1, A])
@pytest.mark.filterwarnings("ignore:.*ran out of data")
def test_data_of_unknown_length_end_as_ever(finder, num_steps, fourth):
    def steps(*callbacks):
        def generate():
            for value in (1, 1, 1, fourth, 1, 1):
                yield batches(value), batches(0)

        spec = tf.TensorSpec((None, 1), tf.float32)
        dataset = tf.data.Dataset.from_generator(generate, output_signature=(spec, spec))
        model = identity(steps_per_execution=num_steps)
        history = model.fit(dataset, shuffle=False, epochs=2, verbose=0, callbacks=list(callbacks))
        return history.history["loss"], model.optimizer.loss_scale_state()

    expected = steps(AmpMonitor(verbose=0, max_skip_rate=None))
    assert steps(watching(0)) == expected
    assert expected[1].applied_steps == (12 if fourth == 1 else 10)


@pytest.mark.parametrize("num_steps", [1, 3])
def test_steps_per_epoch_go_on_in_the_same_data(finder, num_steps):
    x = batches(1, 2, A, 3, B, 4)
    dataset = tf.data.Dataset.from_tensor_slices((x, 0 * batches(1, 2, 3, 4, 5, 6))).batch(1)
    model = identity(steps_per_execution=num_steps)
    monitor = watching(0)
    history = model.fit(
        dataset.repeat(), shuffle=False, steps_per_epoch=3, epochs=4, verbose=0, callbacks=[monitor]
    )
    assert history.history["skipped_steps"] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("optimizer", "fact"),
    [
        (keras.optimizers.SGD(0.0), "SGD never skips a step"),
        (
            keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.0)),
            "LossScaleOptimizer does not count the steps that it skips",
        ),
    ],
    ids=["plain", "of Keras"],
)
def test_an_optimizer_that_counts_no_skips_is_told_once(finder, optimizer, fact):
    model = identity(type(optimizer).from_config(optimizer.get_config()))
    with pytest.warns(LossScaleWarning) as caught:
        fit(model, [1, BAD, BAD], watching(0), epochs=2)
    told = [str(one.message) for one in caught if "on_nonfinite" in str(one.message)]
    assert len(told) == 1
    assert told[0].startswith(f"on_nonfinite will find nothing: {fact}. Expected an optimizer of")


def test_a_bound_that_training_never_comes_to_is_told(finder):
    with pytest.warns(LossScaleWarning, match=re.escape("Received: consecutive_skips=2.")):
        fit(identity(scaled(max_consecutive_skips=2)), [1], watching(2))


def test_the_default_bound_is_what_leads_from_the_first_scale_to_1(finder):
    values = [A * number for number in range(1, 18)]
    fit(identity(), values, AmpMonitor(verbose=0, max_skip_rate=None, on_nonfinite="report"))
    assert finder.loss_scales == [1.0]


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        ({"on_nonfinite": "print"}, "Received: on_nonfinite='print'."),
        ({"consecutive_skips": -1}, "Received: consecutive_skips=-1."),
        ({"consecutive_skips": True}, "Received: consecutive_skips=True."),
        ({"consecutive_skips": 1.5}, "Received: consecutive_skips=1.5."),
    ],
)
def test_an_argument_that_cannot_be_is_refused(arguments, received):
    with pytest.raises(OptimizerError, match=re.escape(received)):
        AmpMonitor(**arguments)


MIRRORED = """
import tensorflow as tf
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import keras, numpy as np
from tf_amp_kit.inspection.monitor import AmpMonitor
from tf_amp_kit.inspection.skips import SkipWatch
from tests.inspection.monitored import identity, scaled

seen = []
SkipWatch.find = staticmethod(lambda model, batch, scale: seen.append((batch, scale)))
x = np.arange(1, 21, dtype="float32").reshape(-1, 1)
x[[7, 11, 15]] = np.nan  # on the second replica alone

def run(options, **arguments):
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        norm = keras.layers.BatchNormalization(momentum=0.5, scale=False, center=False)
        model = identity(scaled(0.01), layers=[norm], **options)
    monitor = AmpMonitor(verbose=0, max_skip_rate=None, **arguments)
    history = model.fit(x, 0 * np.ones_like(x), batch_size=4, epochs=2, shuffle=False, verbose=0,
                        callbacks=[monitor]).history
    variables = [*model.variables, *model.optimizer.variables]
    copies = [copy.numpy().tobytes() for one in variables
              for copy in model.distribute_strategy.experimental_local_results(one.value)]
    return copies, repr(history), model.train_function.__name__

plain = run(OPTIONS)
watched = run(OPTIONS, on_nonfinite="report", consecutive_skips=2)
print("same", plain == watched)
for (x_seen, y_seen), scale in seen:
    print(x_seen.numpy().ravel().tolist(), y_seen.shape, scale)
"""


# Each in a process of its own: TensorFlow's collectives do not outlive a change of mode.
@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"run_eagerly": True}], ids=["graph", "eager"])
def test_replicas_give_their_batch_as_one_and_train_as_ever(options):
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", f"OPTIONS = {options}\n{MIRRORED}"],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.splitlines() == [
        "same True",
        "[13.0, 14.0, 15.0, nan] (4, 1) 8192.0",
    ]


def test_a_nan_in_the_data_is_reported(capsys):
    monitor = watching(verbose=1)
    fit(identity(), [1, BAD, BAD, BAD, 2], monitor)
    assert monitor.nonfinite_report.origin is not None
    assert str(monitor.nonfinite_report) in capsys.readouterr().out


def test_the_overflow_of_a_layer_is_reported_with_its_path():
    model = identity(layers=[keras.layers.Lambda(tf.exp, name="exponential")])
    monitor = watching(0)
    # exp(89) is above the largest float32, 3.4e38.
    fit(model, [1, 89], monitor)
    assert "exponential" in monitor.nonfinite_report.origin.path
