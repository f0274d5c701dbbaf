"""Comparing precisions as a whole: what is called worse, equal and undecided."""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.comparison.training import models
from tests.comparison.training.given import seed_all
from tf_amp_kit.errors import InputsError, ModelError, PrecisionError

DATA = (models.X, models.Y)
CLASSES = (models.X, models.CLASSES)
VALIDATION = (models.X[:64], models.CLASSES[:64])


def compare(builder: Any, data: Any, validation: Any = None, **options: Any) -> Any:
    """Compare without what takes time here and is tested elsewhere."""
    defaults = {"precisions": ("bf16",), "steps": 60, "time_steps": False, "verbose": 0}
    return amp.compare_precisions(builder, data, validation, **defaults | options)


def outcome(report: Any, name: str) -> str:
    """Return what a precision was judged to be."""
    return str(report.result(name).verdict.outcome)


def test_half_precision_that_learns_the_same_is_equal() -> None:
    report = compare(models.classifier, CLASSES, VALIDATION, precisions=("bf16", "fp16"), steps=200)

    assert [outcome(report, name) for name in ("bfloat16", "float16")] == ["equal", "equal"]


def test_tiny_gradients_without_loss_scaling_are_worse() -> None:
    report = compare(models.tiny_gradients, DATA, precisions=("fp16",), pin=False)

    assert outcome(report, "float16") == "worse"
    assert report.result("float16").verdict.share > 0.9
    assert report.recommendation.name == "float32"


def test_tiny_gradients_with_loss_scaling_are_equal() -> None:
    report = compare(models.tiny_gradients_scaled, DATA, precisions=("fp16",), steps=100, pin=False)

    assert outcome(report, "float16") == "equal"


def test_a_half_softmax_that_saturates_is_worse() -> None:
    report = compare(models.saturating_head, models.ones, pin=False)

    assert outcome(report, "bfloat16") == "worse"


def test_a_softmax_that_is_pinned_is_equal() -> None:
    report = compare(models.saturating_head, models.ones)

    assert report.result("bfloat16").num_pins == 1
    assert outcome(report, "bfloat16") == "equal"


def test_float32_with_other_seeds_is_equal() -> None:
    report = compare(models.classifier, CLASSES, VALIDATION, precisions=("fp32", "fp32"), seeds=2)

    assert outcome(report, "float32 again") == "equal"
    assert {run.seed for run in report.runs_of("float32 again")} == {3, 4}


def test_too_few_steps_decide_nothing() -> None:
    report = compare(models.linear, DATA, steps=5)

    assert outcome(report, "bfloat16") == "undecided"
    assert "5 steps are too few" in report.result("bfloat16").verdict.reasons[0]


def test_a_model_that_learns_nothing_decides_nothing() -> None:
    report = compare(models.idle, DATA)

    assert outcome(report, "bfloat16") == "undecided"


def test_the_same_call_gives_the_same_curves() -> None:
    options = {"precisions": ("bf16", "fp16"), "steps": 25}
    first, second = (compare(models.classifier, CLASSES, VALIDATION, **options) for _ in range(2))

    assert [run.losses for run in first.runs] == [run.losses for run in second.runs]
    assert [run.evaluations for run in first.runs] == [run.evaluations for run in second.runs]
    assert {run.repeats_exactly for run in first.runs if run.seed == 0} == {True}


def test_float32_is_trained_as_a_plain_loop_trains_it() -> None:
    report = compare(models.classifier, batches_of_classes(), steps=20)

    keras.utils.set_random_seed(0)
    model = models.classifier()
    steps = batches_of_classes().repeat().take(20)
    losses = []
    for x, y in steps:
        model.reset_metrics()  # as later Keras does
        losses.append(model.train_on_batch(x, y, return_dict=True)["loss"])
    assert report.runs_of("float32")[0].losses == tuple(map(float, losses))


def batches_of_classes() -> tf.data.Dataset:
    """Data in their order."""
    return tf.data.Dataset.from_tensor_slices(CLASSES).batch(32)


def test_a_nan_in_float32_is_refused() -> None:
    with pytest.raises(InputsError, match="in float32 already, at step"):
        compare(models.diverging, DATA)


def test_other_weights_each_time_are_refused() -> None:
    with pytest.raises(ModelError, match="The builder gives other weights each time"):
        compare(models.of_another_size_each_time, DATA)


@pytest.mark.parametrize("data", [models.others_each_time, models.others_each_time()])
def test_other_batches_the_second_time_are_refused(data: Any) -> None:
    with pytest.raises(InputsError, match="The data are not the same the second time: batch 1"):
        compare(models.linear, data)


def test_a_model_that_half_precision_makes_raise_is_worse() -> None:
    def build() -> keras.Model:
        if keras.config.dtype_policy().compute_dtype == "float16":
            raise ValueError("no float16 here")
        return models.linear()

    report = compare(build, DATA, precisions=("bf16", "fp16"))

    assert outcome(report, "float16") == "worse"
    assert "no float16 here" in report.result("float16").verdict.reasons[0]
    assert outcome(report, "bfloat16") == "equal"


def test_levels_and_plans_are_compared_too(tmp_path: Path) -> None:
    plan = amp.plan_precision(
        models.linear(), DATA, precision="fp16", tolerance=1e-9, time_steps=False, verbose=0
    )
    plan.save(tmp_path / "mine.json")

    report = compare(
        models.linear,
        DATA,
        precisions=("bf16:O2", "bf16:O3", tmp_path / "mine.json", "fp16"),
        steps=20,
    )

    assert [one.name for one in report.results] == [
        "float32", "bfloat16 O2", "bfloat16 O3", "float16 mine", "float16",
    ]  # fmt: skip


def test_gradients_and_drift_are_compared_along_the_way() -> None:
    report = compare(models.linear, DATA, gradient_steps=(0, 10), steps=20)

    assert [one.step for one in report.result("bfloat16").gradients] == [0, 10]
    assert [one.step for one in report.runs_of("bfloat16")[0].drift] == [10, 20]
    assert 0 < report.runs_of("bfloat16")[0].drift[-1].of_the_way < 0.1


@pytest.mark.slow
def test_a_run_may_have_its_own_process() -> None:
    own = compare(models.linear, models.batches, steps=20, isolate=True)
    here = compare(models.linear, models.batches, steps=20)

    assert [run.losses for run in own.runs] == [run.losses for run in here.runs]
    assert all(run.peak_bytes > run.base_bytes > 0 for run in own.runs)
    assert own.result("bfloat16").memory.measured_bytes > 0


def test_an_interrupted_comparison_tells_what_it_has_and_goes_on(tmp_path: Path) -> None:
    timer = threading.Timer(0.0, os.kill, (os.getpid(), signal.SIGINT))

    def build() -> keras.Model:
        if keras.config.dtype_policy().name == "mixed_bfloat16":
            builds.append(None)
            if len(builds) == 2:  # the first one is the rehearsal
                timer.start()
        return models.linear()

    builds: list[None] = []
    options = {"steps": 20, "resume": tmp_path / "runs"}
    partial = compare(build, DATA, **options)
    whole = compare(models.linear, DATA, **options)

    assert [(run.name, run.failure) for run in partial.runs] == [
        ("float32", ""), ("bfloat16", "interrupted"),
    ]  # fmt: skip
    assert outcome(partial, "bfloat16") == "undecided"
    assert [run.losses for run in whole.runs] == [
        run.losses for run in compare(models.linear, DATA, steps=20).runs
    ]


def test_a_folder_of_another_comparison_is_refused(tmp_path: Path) -> None:
    compare(models.linear, DATA, steps=5, resume=tmp_path)

    with pytest.raises(InputsError, match=re.escape("Expected num_steps=6")):
        compare(models.linear, DATA, steps=6, resume=tmp_path)


def test_nothing_is_left_behind() -> None:
    seed_all(7)
    expected = np.random.rand(), keras.random.normal((2,)).numpy().tolist()
    seed_all(7)

    compare(models.classifier, CLASSES, steps=5)

    assert (np.random.rand(), keras.random.normal((2,)).numpy().tolist()) == expected
    assert keras.config.dtype_policy().name == "float32"
    assert amp.current_amp() is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 5, "epochs": 1}, "Expected `steps` or `epochs`"),
        ({"steps": 0}, "Expected a whole number of steps from 1 up. Received: steps=0"),
        ({"seeds": 0}, "Received: seeds=0"),
        ({"seeds": [1, 1]}, "Received: seeds=[1, 1]"),
        ({"gradient_steps": [70]}, "Expected whole numbers of steps from 0 to 60"),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputsError, match=re.escape(message)):
        compare(models.linear, DATA, **options)


def test_a_tolerance_is_a_share() -> None:
    with pytest.raises(PrecisionError, match="Expected a number from 0 to 1"):
        compare(models.linear, DATA, tolerance=2)


def test_data_without_end_need_a_number_of_steps() -> None:
    with pytest.raises(InputsError, match="Say how many `steps` to train"):
        compare(models.linear, models.batches().repeat(), steps=None)


def test_a_builder_that_stays_in_float32_is_refused() -> None:
    def build() -> keras.Model:
        layer = keras.layers.Dense(1, dtype="float32")
        model = keras.Sequential([keras.Input((4,)), layer])
        model.compile("sgd", "mse")
        return model

    with pytest.raises(ModelError, match="No layer with weights computes in bfloat16"):
        compare(build, DATA)
