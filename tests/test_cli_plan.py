"""`tf-amp-kit plan`: what it plans, what it prints and saves, how it exits."""

import json
import os
import re
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import keras
import pytest

import tf_amp_kit
from tests.comparison.plans import HEAD, pins_of, plan_of
from tf_amp_kit import PrecisionPlan, amp_scope, cli, current_amp, load_model, pin_float32
from tf_amp_kit.comparison.planning.tolerances import METRICS

NETWORK = """
import keras
import numpy as np
import tensorflow as tf
from keras import ops

class Magnitude(keras.layers.Layer):
    def call(self, inputs):
        return ops.sqrt(ops.square(inputs))

def build_uncompiled():
    print("building in", keras.config.dtype_policy().name)
    head = keras.layers.Dense(1, kernel_initializer="ones", name="head")
    return keras.Sequential([keras.Input((2,)), Magnitude(name="size"), head], name="net")

def build():
    model = build_uncompiled()
    model.compile("sgd", "mse", auto_scale_loss=False)
    return model

def build_wide():
    keras.utils.set_random_seed(0)
    layers = [Magnitude(name="size"), keras.layers.Dense(3, name="head")]
    return keras.Sequential([keras.Input((2,)), *layers], name="net")

def build_deep():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(2, name=f"layer_{i}") for i in range(22)]
    return keras.Sequential([keras.Input((2,)), *layers], name="deep")

def build_nothing():
    return 3

def fail():
    raise KeyError("no such block")

def small():
    return np.full((128, 2), 3, "float32"), np.ones((128, 1), "float32")

def large():
    return np.full((128, 2), 300, "float32"), np.ones((128, 1), "float32")

def spread():
    return np.random.default_rng(0).normal(size=(128, 2)) * 300, np.ones((128, 1))

def inputs_alone():
    return small()[0]

def train_and_validation():
    return small(), tuple(part[:40] for part in small())

def datasets():
    return tuple(tf.data.Dataset.from_tensors(data) for data in train_and_validation())

def no_validation():
    return tf.data.Dataset.from_tensors(small()), None

def fits_and_overflows():
    return small(), large()

def misfit():
    return small(), (np.zeros((4, 3), "float32"), np.ones((4, 1), "float32"))

def no_targets_to_check_on():
    return small(), small()[:1]

def wrong_shape():
    return np.zeros((4, 3), "float32"), np.ones((4, 1), "float32")
"""

# Timing is most of a small plan's time.
QUICK = "--no-timing"


@pytest.fixture(autouse=True)
def network(tmp_path, monkeypatch):
    """Puts a module of builders and data, `network_to_plan`, into the current directory."""
    tmp_path.joinpath("network_to_plan.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("network_to_plan", None)


def plan(capsys, builder, data, *options):
    """Returns the exit code and what was printed."""
    names = (f"network_to_plan:{name}" for name in (builder, data))
    code = cli.main(["plan", *names, QUICK, *options])
    return code, capsys.readouterr()


def strict(text):
    """Reads JSON, and refuses the NaN and Infinity that Python's would take."""

    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def record(capsys, builder, data, *options):
    return strict(plan(capsys, builder, data, "--json", *options)[1].out)


def pinned(plan_record):
    return [unit["path"] for unit in plan_record["units"] if unit["is_pinned"]]


def test_a_model_that_may_run_in_half_exits_with_zero(capsys):
    code, printed = plan(capsys, "build", "small")
    # 3, its square 9 and the sum 6 are numbers of float16: nothing is rounded.
    verdict = "All of 'net' may run in float16: output error 0, tolerance 0.002; held out 0.\n"
    assert (code, printed.out.partition("\n\n")[0]) == (0, f"building in float32\n{verdict}"[:-1])


def test_a_tolerance_that_is_met_with_pins_exits_with_zero(capsys):
    code, printed = plan(capsys, "build", "large")
    assert code == 0
    # The square, 90000, is beyond float16's 65504; 300 and 600 are float16 numbers.
    assert "1 of 2 layers of 'net' stays in float32, the rest in float16: output error not" in (
        printed.out
    )
    row = r"^size +Magnitude +non-finite +not finite +not finite +not finite +300$"
    assert re.search(row, printed.out, re.MULTILINE)


def test_a_tolerance_that_is_not_met_exits_with_one(capsys):
    code, printed = plan(capsys, "build", "large", "--max-validations", "1")
    assert code == 1
    assert "The tolerance is not met. All of 'net' runs in float16" in printed.out


def test_validation_data_count_for_the_exit_code(capsys):
    code, printed = plan(capsys, "build", "fits_and_overflows", "--max-validations", "1")
    assert code == 1
    assert "The tolerance is not met on the held-out batches." in printed.out


@pytest.mark.parametrize(
    ("options", "policy", "precision"),
    [
        ([], "float32", "float16"),
        (["--amp", "fp32"], "float32", "float16"),
        (["--amp", "fp16"], "mixed_float16", "float16"),
        (["--amp", "bf16"], "mixed_bfloat16", "bfloat16"),
    ],
)
def test_a_builder_runs_under_the_precision_that_is_planned_for(options, policy, precision, capsys):
    _, printed = plan(capsys, "build", "small", "--json", *options)
    assert printed.err == f"building in {policy}\n"
    assert strict(printed.out)["precision"] == precision


def test_nothing_stays_switched_on(capsys):
    path = list(sys.path)
    plan(capsys, "build", "small", "--amp", "bf16")
    assert (current_amp(), keras.config.dtype_policy().name) == (None, "float32")
    assert sys.path == path


@pytest.mark.parametrize("metric", METRICS)
def test_the_metric_can_be_chosen(metric, capsys):
    assert record(capsys, "build", "small", "--metric", metric)["metric"] == metric


@pytest.mark.parametrize("data", ["small", "inputs_alone"])
def test_the_outputs_of_a_model_that_is_not_compiled_are_enough(data, capsys):
    code, printed = plan(capsys, "build_uncompiled", data, "--json")
    assert (code, strict(printed.out)["half"]["loss"]) == (0, None)


@pytest.mark.parametrize("metric", ["loss", "gradient"])
def test_a_metric_of_the_loss_needs_a_compiled_model(metric, capsys):
    code, printed = plan(capsys, "build_uncompiled", "small", "--metric", metric)
    assert (code, printed.err) == (
        2,
        "tf-amp-kit: error: The model has no loss. Expected a compiled model. Received: "
        "Sequential named 'net' of build_uncompiled(). Call its compile() in the builder.\n",
    )


def test_the_tolerance_can_be_chosen(capsys):
    found = record(capsys, "build", "spread", "--amp", "bf16", "--tolerance", "0.25")
    assert (found["tolerance"], pinned(found)) == (0.25, [])


# Batches of 32 samples: 64 samples are searched on, and the next 64 held out.
@pytest.mark.parametrize(
    ("data", "searched", "held_out"),
    [
        ("small", 2, 2),
        # One batch of 128, and none after it.
        ("no_validation", 1, 0),
        # 40 samples of validation data.
        ("train_and_validation", 2, 2),
        # One batch each, of 128 and of 40 samples.
        ("datasets", 1, 1),
    ],
)
def test_a_plan_is_checked_on_validation_data_where_there_are_any(data, searched, held_out, capsys):
    found = record(capsys, "build", data)
    assert (found["num_batches"], found["num_held_out_batches"]) == (searched, held_out)


def test_validation_data_replace_the_next_batches(capsys):
    found = record(capsys, "build", "fits_and_overflows")
    # Only the validation data overflow float16.
    assert (found["half"]["output"], found["half_held_out"]["output"]) == (0, None)


def test_the_size_of_batches_can_be_chosen(capsys):
    found = record(capsys, "build", "small", "--batch-size", "16")
    assert (found["num_batches"], found["num_samples"]) == (4, 64)


def test_the_number_of_probes_can_be_chosen(capsys):
    few, usual = (
        record(capsys, "build", "large", *options)["num_passes"]
        for options in (["--probes", "1"], [])
    )
    # 3 probes more for each of 2 batches.
    assert usual - few == 2 * 3


def test_the_seed_chooses_the_random_numbers(capsys):
    # Four probes are orthogonal: of three outputs they sum up all there is, whatever the signs.
    options = [[], ["--seed", "0"], ["--seed", "1"]]
    usual, same, other = (
        [
            unit["score"]
            for unit in record(capsys, "build_wide", "spread", "--probes", "1", *one)["units"]
        ]
        for one in options
    )
    assert usual == same
    assert usual != other


def test_steps_are_timed_unless_that_is_left_out(capsys):
    names = ["network_to_plan:build", "network_to_plan:small"]
    assert cli.main(["plan", *names]) == 0
    timed = capsys.readouterr().out
    assert "Milliseconds of a forward and backward pass" in timed
    assert "Milliseconds" not in plan(capsys, "build", "small")[1].out


def test_only_pinned_layers_are_shown_and_all_on_demand(capsys):
    shown, everything = (
        re.findall(r"^(size|head) .*(non-finite|error)", text, re.MULTILINE)
        for text in (plan(capsys, "build", "large", *options)[1].out for options in ([], ["--all"]))
    )
    assert shown == [("size", "non-finite")]
    assert everything == [("size", "non-finite"), ("head", "error")]


# float16 cannot do that: what has to be pinned is answered without a search.
TOO_EXACT = ["--tolerance", "1e-9"]


def test_twenty_pinned_layers_are_shown(capsys):
    shown = plan(capsys, "build_deep", "spread", *TOO_EXACT)[1].out
    assert "... and 2 more pinned layers: --all shows all.\n" in shown
    assert len(re.findall("^layer_", shown, re.MULTILINE)) == 20


def test_json_is_all_that_standard_output_holds(capsys):
    code, printed = plan(capsys, "build", "large", "--json")
    found = strict(printed.out)
    assert (code, found["meets_tolerance"], pinned(found)) == (0, True, ["size"])
    assert printed.err == "building in float32\n"


def test_a_plan_is_saved(capsys):
    found = record(capsys, "build", "large", "--save-to", "plans/net.json")
    assert PrecisionPlan.load("plans/net.json").to_dict() == found


@pytest.fixture
def saved(tmp_path):
    """The path of a file with a float32 model that is not compiled."""
    head = keras.layers.Dense(1, name="head")
    keras.Sequential([keras.Input((2,)), head], name="net").save(tmp_path / "net.keras")
    return str(tmp_path / "net.keras")


def test_the_model_of_a_file_is_planned_in_the_precision_asked_for(saved, capsys):
    options = ["--amp", "bf16", "--json", QUICK]
    assert cli.main(["plan", saved, "network_to_plan:spread", *options]) == 0
    assert strict(capsys.readouterr().out)["precision"] == "bfloat16"


def test_a_saved_plan_pins_where_pins_are_taken(saved):
    options = [*TOO_EXACT, "--save-to", "plan.json", QUICK]
    assert cli.main(["plan", saved, "network_to_plan:spread", *options]) == 0
    assert load_model(saved, "fp16", pins="plan.json").layers[0].compute_dtype == "float32"
    with amp_scope("fp16", pins="plan.json"):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="head")])
        assert pin_float32(model).paths == ("head",)


def save_older(*paths):
    """Saves a plan that pins these paths as `old.json`."""
    units = [unit for unit in plan_of().units if unit.path in paths]
    plan_of(pins=pins_of(*units)).save("old.json")


def test_other_pins_than_in_an_older_plan_exit_with_one(capsys):
    save_older("head")
    code, printed = plan(capsys, "build", "large", "--diff", "old.json")
    assert code == 1
    assert (
        "First plan: old.json. Second plan: this one.\n"
        "Pinned only by the first plan: 'head'.\n"
        "Pinned only by the second plan: 'size'.\n"
    ) in printed.out
    assert "Against float32" not in printed.out


def test_the_pins_of_an_older_plan_exit_with_zero(capsys):
    plan(capsys, "build", "large", "--save-to", "old.json")
    code, printed = plan(capsys, "build", "large", "--amp", "fp16", "--diff", "old.json")
    assert code == 0
    assert "\nPinned by both: 'size'.\nNothing differs.\n" in printed.out


def test_pins_that_are_not_needed_any_more_exit_with_one(capsys):
    save_older("head")
    code, printed = plan(capsys, "build", "small", "--diff", "old.json", "--json")
    difference = strict(printed.out)
    assert (code, difference["only_first"], difference["only_second"]) == (1, ["head"], [])


def test_no_difference_is_json_of_no_difference(capsys):
    plan(capsys, "build", "small", "--save-to", "old.json")
    assert record(capsys, "build", "small", "--diff", "old.json") == {
        "only_first": [],
        "only_second": [],
        "in_both": [],
        "changes": [],
        "scores": [],
    }


def test_a_tolerance_that_is_not_met_exits_with_one_whatever_the_older_plan_pins(capsys):
    save_older()
    options = ["--max-validations", "1", "--diff", "old.json"]
    code, printed = plan(capsys, "build", "large", *options)
    assert code == 1
    assert "\nThe tolerance is not met. All of 'net' runs in float16" in printed.out
    assert "\nNeither plan pins anything.\n" in printed.out


def test_an_older_plan_may_be_replaced_by_the_one_that_is_compared_with_it(capsys):
    save_older("head")
    options = ["--diff", "old.json", "--save-to", "old.json"]
    _, printed = plan(capsys, "build", "large", *options)
    assert "Pinned only by the first plan: 'head'.\n" in printed.out
    assert PrecisionPlan.load("old.json").pins.paths == ("size",)


def test_ten_paths_of_a_difference_are_shown_and_all_on_demand(capsys):
    units = [replace(HEAD, path=f"layer_{i}") for i in range(12)]
    plan_of(pins=pins_of(*units)).save("old.json")
    options = ["--diff", "old.json"]
    shown = plan(capsys, "build", "small", *options)[1].out
    everything = plan(capsys, "build", "small", *options, "--all")[1].out
    assert [text.count("'layer_") for text in (shown, everything)] == [10, 12]


def test_a_file_that_holds_no_plan_is_refused_before_anything_is_begun(tmp_path, capsys):
    tmp_path.joinpath("old.json").write_text("{}")
    code, printed = plan(capsys, "build", "small", "--diff", "old.json")
    assert (code, printed.out) == (2, "")
    assert "The file holds no precision plan." in printed.err


@pytest.mark.parametrize(
    ("path", "first_bytes"), [("a.png", b"\x89PNG"), ("new/a.pdf", b"%PDF"), ("a.svg", b"<?xml")]
)
def test_a_plan_is_drawn_into_a_file(path, first_bytes, tmp_path, capsys):
    plan(capsys, "build", "large", "--figure", path)
    assert tmp_path.joinpath(path).read_bytes().startswith(first_bytes)


def test_without_matplotlib_nothing_is_begun(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, printed = plan(capsys, "build", "small", "--figure", "a.png")
    assert (code, printed.out) == (2, "")
    assert 'Install it: pip install "tf_amp_kit[plots]".' in printed.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--probes", "0"], "argument --probes: expected a whole number from 1 up, not '0'"),
        (["--max-validations", "0"], "argument --max-validations: expected a whole number from 1"),
        (["--batch-size", "1.5"], "argument --batch-size: expected a whole number from 1 up, not"),
        (["--seed", "-1"], "argument --seed: expected a whole number from 0 up, not '-1'"),
        (["--tolerance", "x"], "argument --tolerance: invalid float value: 'x'"),
        (["--tolerance", "0"], "Expected a relative error above 0, 0.001 for example. Received:"),
        (["--tolerance", "nan"], "Expected a relative error above 0, 0.001 for example. Received:"),
        (["--metric", "accuracy"], "argument --metric: invalid choice: 'accuracy'"),
        (["--amp", "fp8"], "Received: name='fp8'"),
        (["--figure", "a.txt"], "expected a .png, .pdf or .svg file, not 'a.txt'"),
        (["--save-to", "."], "argument --save-to: '.' cannot be written"),
        (["--save-to", "network_to_plan.py/a"], "'network_to_plan.py/a' cannot be written"),
        (["--diff", "old.json"], "argument --diff: there is no file 'old.json'"),
        (["--diff", "."], "argument --diff: there is no file '.'"),
    ],
)
def test_bad_options_are_one_line_and_return_two(options, message, capsys):
    code, printed = plan(capsys, "build", "small", *options)
    assert (code, printed.out.replace("building in float32\n", "")) == (2, "")
    assert len(printed.err.splitlines()) == 1
    assert message in printed.err


@pytest.mark.parametrize(
    ("builder", "data", "message"),
    [
        ("build_nothing", "small", "The builder does not return a model."),
        ("absent", "small", "The module 'network_to_plan' has no absent."),
        ("build", "absent", "The module 'network_to_plan' has no absent."),
        ("build", "wrong_shape", "do not fit"),
        ("build", "misfit", "do not fit the model. Expected shapes [(None, 2)]."),
        (
            "build",
            "no_targets_to_check_on",
            "The validation data have another form than the data. Expected x, y. Received: x.",
        ),
    ],
)
def test_what_gives_no_plan_is_one_line_and_returns_two(builder, data, message, capsys):
    code, printed = plan(capsys, builder, data)
    assert (code, len(printed.err.splitlines())) == (2, 1)
    assert message in printed.err


@pytest.mark.parametrize(("builder", "data"), [("fail", "small"), ("build", "fail")])
def test_an_exception_of_the_users_own_keeps_its_traceback(builder, data, capsys):
    with pytest.raises(KeyError, match="no such block") as raised:
        plan(capsys, builder, data)
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "fail"


SEARCH = ["--amp", "--tolerance", "--metric", "--probes", "--max-validations", "--seed"]
RESULTS = ["--save-to", "--diff", "--figure", "--all", "--json", "--quiet"]


def test_the_help_names_every_option_and_the_exit_codes(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert cli.main(["plan", "--help"]) == 0
    out = capsys.readouterr().out
    assert re.findall("^  (--[a-z-]+)", out, re.MULTILINE) == [
        *SEARCH,
        "--batch-size",
        "--no-timing",
        *RESULTS,
    ]
    assert (
        "Exits 0 if the tolerance is met, with all of the model in half precision or with the "
        "pins that were found, 1 if it is not met, or if --diff was given and the pins differ, 2 "
        "if there are no model and data to plan with."
    ) in " ".join(out.split())


def run(folder, *options, interpreter=()):
    return subprocess.run(
        [sys.executable, *interpreter, "-m", "tf_amp_kit", *options],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        # The package that is tested, wherever the tests were started.
        env={**os.environ, "PYTHONPATH": str(Path(tf_amp_kit.__file__).parents[1])},
    )


@pytest.mark.parametrize("options", [["--help"], ["plan", "--help"]])
def test_help_imports_no_tensorflow(options, tmp_path):
    done = run(tmp_path, *options, interpreter=["-X", "importtime"])
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert (done.returncode, "tf_amp_kit.cli.plan" in imported) == (0, True)
    assert imported.isdisjoint({"tensorflow", "keras", "numpy"})


def test_the_command_is_listed(capsys):
    assert cli.main(["--help"]) == 0
    assert "plan      which layers have to stay in float32\n" in capsys.readouterr().out


def test_a_process_prints_nothing_but_json(tmp_path):
    names = ["network_to_plan:build", "network_to_plan:large"]
    options = [QUICK, "--json", "--save-to", "plan.json"]
    done = run(tmp_path, "plan", *names, *options)
    assert done.returncode == 0
    assert pinned(strict(done.stdout)) == ["size"]
    assert PrecisionPlan.load(tmp_path / "plan.json").pins.paths == ("size",)
