"""`tf-amp-kit compare`: what it hands over, what it prints and saves, how it exits."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import pytest

import tf_amp_kit
from tests.comparison.training.reports import small_report
from tf_amp_kit import cli
from tf_amp_kit.cli.imported import ImportedBuilder, ImportedData
from tf_amp_kit.comparison.training.record.parts import (
    PrecisionResult,
    Recommendation,
    Verdict,
)
from tf_amp_kit.comparison.training.record.report import INTERRUPTION, ComparisonReport
from tf_amp_kit.errors import PrecisionError

NETWORK = """
import keras
import numpy as np
import tensorflow as tf

def build():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="head")], name="net")
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model

def build_talkative():
    print("building in", keras.config.dtype_policy().name, flush=True)
    return build()

class Energy(keras.layers.Layer):
    def call(self, inputs):
        return keras.ops.square(inputs) * 1e-5

def build_overflowing():
    layers = [keras.layers.Rescaling(300.0), Energy(), keras.layers.Dense(1, name="head")]
    model = keras.Sequential([keras.Input((2,)), *layers], name="net")
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model

def fail():
    raise KeyError("no such block")

def points():
    print("drawing points")
    inputs = np.random.default_rng(0).normal(size=(64, 2)).astype("float32")
    return inputs, inputs.sum(axis=1, keepdims=True)

def train_and_validation():
    return points(), tuple(part[:16] for part in points())

def dataset_alone():
    return tf.data.Dataset.from_tensor_slices(points()).batch(16), None

def nothing():
    return None
"""

NAMES = ["network_to_compare:build", "network_to_compare:points"]


@pytest.fixture(autouse=True)
def network(tmp_path, monkeypatch):
    """Puts a module of builders and data, `network_to_compare`, into the current directory."""
    tmp_path.joinpath("network_to_compare.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("network_to_compare", None)


def report_of(*outcomes):
    """A report with this verdict on each of the precisions beside float32."""
    verdicts = [None, *(Verdict(outcome, (), 0.0) for outcome in outcomes)]
    names = ["float32", "bfloat16", "float16"]
    return ComparisonReport(
        model_name="net",
        machine="1 CPU",
        batch_size=32,
        num_steps=10,
        seeds=(0,),
        tolerance=0.01,
        measure="loss",
        results=tuple(
            PrecisionResult(name, name, "O1", 0, verdict, ())
            for name, verdict in zip(names, verdicts, strict=False)
        ),
        runs=(),
        recommendation=Recommendation("float32", None, None, ()),
        seconds=1.0,
    )


@pytest.fixture
def calls(monkeypatch):
    """Puts a library in place that takes notes; `calls.report` is what it returns."""

    class Calls(list):
        report = report_of("equal", "equal")

    calls = Calls()

    def compare_precisions(build_fn, train_data, validation_data=None, **options):
        print("comparing")
        calls.append(((build_fn, train_data, validation_data), options))
        return calls.report

    path = "tf_amp_kit.comparison.training.compare.compare_precisions"
    monkeypatch.setattr(path, compare_precisions)
    return calls


def compare(*arguments):
    return cli.main(["compare", *(arguments or NAMES)])


def options_of(calls, *options):
    """What the library is called with."""
    assert compare(*NAMES, *options) == 0
    handed = dict(calls[-1][1])
    assert handed.pop("verbose") == 2
    return handed


SWITCHES = {"pin": True, "time_steps": True, "jit": True, "isolate": False}


def test_without_options_the_library_has_its_own_defaults(calls):
    assert options_of(calls) == SWITCHES


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--steps", "30"], {"steps": 30}),
        (["--epochs", "2"], {"epochs": 2}),
        (["--seeds", "3"], {"seeds": 3}),
        (["--tolerance", "0.05"], {"tolerance": 0.05}),
        (["--batch-size", "16"], {"batch_size": 16}),
        (["--no-pins"], {"pin": False}),
        (["--no-timing"], {"time_steps": False}),
        (["--no-jit"], {"jit": False}),
        (["--isolate"], {"isolate": True}),
        (["--resume", "new/runs"], {"resume": "new/runs"}),
        (["--precisions", "fp16"], {"precisions": ["fp16"]}),
        (["--precisions", "fp32", "bf16:O2"], {"precisions": ["fp32", "bf16:O2"]}),
        (["--precisions", "fp32,bf16:O2"], {"precisions": ["fp32", "bf16:O2"]}),
        (["--precisions", "fp32, bf16 fp16"], {"precisions": ["fp32", "bf16", "fp16"]}),
        (["--precisions", "bf16", "--precisions", "fp16"], {"precisions": ["bf16", "fp16"]}),
    ],
)
def test_an_option_is_handed_over(options, expected, calls):
    assert options_of(calls, *options) == {**SWITCHES, **expected}


def test_a_plan_is_handed_over_by_its_file(tmp_path, calls):
    tmp_path.joinpath("plan.json").touch()
    assert options_of(calls, "--precisions", "fp32,plan.json")["precisions"] == [
        "fp32",
        "plan.json",
    ]


def test_the_builder_is_handed_over_uncalled_and_the_data_loaded(calls):
    compare()
    build_fn, (inputs, targets), validation = calls[0][0]
    assert build_fn is sys.modules["network_to_compare"].build
    assert (inputs.shape, targets.shape, validation) == ((64, 2), (64, 1), None)


def test_validation_data_are_handed_over(calls):
    compare(NAMES[0], "network_to_compare:train_and_validation")
    _, train, validation = calls[0][0]
    assert [len(train[0]), len(validation[0])] == [64, 16]


def test_another_process_is_handed_names(calls):
    compare(NAMES[0], "network_to_compare:train_and_validation", "--isolate")
    build_fn, train, validation = pickle.loads(pickle.dumps(calls[0][0]))
    assert (type(build_fn), type(train)) == (ImportedBuilder, ImportedData)
    sys.modules.pop("network_to_compare")
    sys.path.insert(0, os.getcwd())
    try:
        assert build_fn().name == "net"
        assert [len(part()[0]) for part in (train, validation)] == [64, 16]
    finally:
        sys.path.remove(os.getcwd())


@pytest.mark.parametrize("data", ["points", "dataset_alone"])
def test_another_process_is_handed_no_validation_data_where_there_are_none(data, calls):
    compare(NAMES[0], f"network_to_compare:{data}", "--isolate")
    assert calls[0][0][2] is None


@pytest.mark.parametrize(
    ("outcomes", "options", "code"),
    [
        (["equal", "equal"], [], 0),
        (["better", "equal"], [], 0),
        (["equal", "worse"], [], 1),
        (["worse", "undecided"], [], 1),
        (["undecided", "equal"], [], 0),
        (["undecided", "equal"], ["--strict"], 1),
        (["equal", "worse"], ["--strict"], 1),
        (["better", "equal"], ["--strict"], 0),
        ([], ["--strict"], 0),
    ],
)
def test_the_exit_code_is_what_the_verdicts_come_to(outcomes, options, code, calls):
    calls.report = report_of(*outcomes)
    assert compare(*NAMES, *options) == code


@pytest.mark.parametrize("outcome", ["equal", "worse"])
def test_an_interrupted_comparison_shows_and_saves_what_there_is_and_exits_with_130(
    outcome, calls, capsys
):
    calls.report = replace(report_of(outcome), notes=(INTERRUPTION,))
    assert compare(*NAMES, "--save-to", "report.json") == 130
    assert f"Note: {INTERRUPTION}" in capsys.readouterr().out
    assert ComparisonReport.load("report.json") == calls.report


def test_an_interruption_before_any_result_is_one_line_and_exits_with_130(monkeypatch, capsys):
    def interrupt(*sources, **options):
        raise KeyboardInterrupt

    path = "tf_amp_kit.comparison.training.compare.compare_precisions"
    monkeypatch.setattr(path, interrupt)
    assert compare() == 130
    expected = "tf-amp-kit: interrupted before any run was finished\n"
    assert capsys.readouterr().err == expected


def test_the_report_is_printed_and_the_progress_kept_apart(calls, capsys):
    compare()
    printed = capsys.readouterr()
    # What the user's own code prints stays where it printed it.
    assert printed.out == f"drawing points\n{calls.report}\n"
    assert printed.err == "comparing\n"


def test_json_is_all_that_standard_output_holds(calls, capsys):
    compare(*NAMES, "--json")
    printed = capsys.readouterr()
    assert json.loads(printed.out) == calls.report.to_dict()
    assert printed.err == "drawing points\ncomparing\n"


def test_a_report_is_saved(calls):
    assert compare(*NAMES, "--save-to", "new/report.json") == 0
    assert ComparisonReport.load("new/report.json") == calls.report


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([NAMES[0]], "the following arguments are required: data"),
        (
            ["net.keras", NAMES[1]],
            "argument builder: a file's model cannot be built anew with other seeds and in other "
            "precisions: expected package.module:builder, not 'net.keras'",
        ),
        (["network_to_compare", NAMES[1]], "This is neither a file nor a builder."),
        (["network_to_compare:absent", NAMES[1]], "The module 'network_to_compare' has no absent."),
        ([NAMES[0], "network_to_compare:absent"], "has no absent."),
        ([NAMES[0], "network_to_compare:nothing"], "The function returns no data."),
        ([*NAMES, "--steps", "0"], "argument --steps: expected a whole number from 1 up, not '0'"),
        ([*NAMES, "--epochs", "x"], "argument --epochs: expected a whole number from 1 up, not"),
        (
            [*NAMES, "--steps", "9", "--epochs", "1"],
            "argument --epochs: not allowed with argument --steps",
        ),
        ([*NAMES, "--seeds", "0"], "argument --seeds: expected a whole number from 1 up, not '0'"),
        ([*NAMES, "--tolerance", "x"], "argument --tolerance: invalid float value: 'x'"),
        ([*NAMES, "--precisions"], "argument --precisions: expected at least one argument"),
        ([*NAMES, "--precisions", ","], "argument --precisions: ',' names no precision"),
        (
            [*NAMES, "--precisions", "fp32,plan.json"],
            "argument --precisions: there is no file 'plan.json'",
        ),
        ([*NAMES, "--figure", "a.txt"], "expected a .png, .pdf or .svg file, not 'a.txt'"),
        ([*NAMES, "--save-to", "."], "argument --save-to: '.' cannot be written"),
        (
            [*NAMES, "--resume", "network_to_compare.py"],
            "argument --resume: nothing can be written into 'network_to_compare.py'",
        ),
    ],
)
def test_bad_usage_is_one_line_and_returns_two(arguments, message, calls, capsys):
    assert compare(*arguments) == 2
    printed = capsys.readouterr()
    assert (printed.out.replace("drawing points\n", ""), calls) == ("", [])
    assert len(printed.err.splitlines()) == 1
    assert message in printed.err


def test_what_the_library_refuses_is_one_line_and_returns_two(monkeypatch, capsys):
    def refuse(*sources, **options):
        raise PrecisionError("Unknown precision. Received: 'fp8'.")

    path = "tf_amp_kit.comparison.training.compare.compare_precisions"
    monkeypatch.setattr(path, refuse)
    assert compare(*NAMES, "--precisions", "fp8") == 2
    expected = "tf-amp-kit: error: Unknown precision. Received: 'fp8'.\n"
    assert capsys.readouterr().err == expected


@pytest.mark.usefixtures("calls")
def test_an_exception_of_the_users_own_keeps_its_traceback():
    with pytest.raises(KeyError, match="no such block") as raised:
        compare(NAMES[0], "network_to_compare:fail")
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "fail"


@pytest.mark.usefixtures("calls")
def test_without_matplotlib_nothing_is_begun(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert compare(*NAMES, "--figure", "a.png") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert 'Install it: pip install "tf_amp_kit[plots]".' in printed.err


def test_a_report_is_drawn_into_a_file(calls, tmp_path):
    calls.report = small_report()
    assert compare(*NAMES, "--figure", "new/curves.png") in (0, 1)
    assert tmp_path.joinpath("new/curves.png").read_bytes().startswith(b"\x89PNG")


# A comparison that is small and not timed.
SMALL = ["--precisions", "bf16", "--steps", "40", "--no-timing"]


def test_a_model_that_trains_as_well_in_half_exits_with_zero(capsys):
    assert compare("network_to_compare:build_talkative", NAMES[1], *SMALL, "--json") == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    verdicts = {one["name"]: one["verdict"] for one in report["results"]}
    assert (verdicts["float32"], verdicts["bfloat16"]["outcome"]) == (None, "equal")
    assert (report["num_steps"], report["measure"], report["seeds"]) == (40, "loss", [0])
    assert {"building in float32", "building in mixed_bfloat16"} <= {*printed.err.split("\n")}
    assert "bfloat16, seed 0: 40 of 40 steps" in printed.err


TRAINING = ["--precisions", "--steps", "--epochs", "--seeds", "--tolerance", "--batch-size"]
SWITCHED = ["--no-pins", "--no-timing", "--no-jit", "--isolate"]
RESULTS = ["--resume", "--save-to", "--figure", "--strict", "--json", "--quiet"]


def test_the_help_names_every_option_and_the_exit_codes(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert compare("--help") == 0
    out = capsys.readouterr().out
    listed = re.findall("^  (--[a-z-]+)", out, re.MULTILINE)
    assert listed == [*TRAINING, *SWITCHED, *RESULTS]
    assert (
        "Exits 0 if no precision trains worse than float32, 1 if one does (with --strict also if "
        "that is undecided), 2 if there are no builder and data to compare with. Ctrl-C ends the "
        "training, shows and saves what the finished runs say, and exits 130;"
    ) in " ".join(out.split())


def command(folder, *options, interpreter=()):
    return {
        "args": [sys.executable, *interpreter, "-m", "tf_amp_kit", *options],
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "cwd": folder,
        # The package that is tested, wherever the tests were started.
        "env": {**os.environ, "PYTHONPATH": str(Path(tf_amp_kit.__file__).parents[1])},
    }


def run(folder, *options, **changes):
    return subprocess.run(**command(folder, *options, **changes), timeout=300)


def test_a_model_that_overflows_in_half_exits_with_one(capsys):
    # A sample of 2 becomes 600, and its square 360000, beyond float16's 65504.
    options = ["--precisions", "fp16", "--steps", "40", "--no-timing", "--no-pins"]
    assert compare("network_to_compare:build_overflowing", NAMES[1], *options) == 1
    assert re.search("^float16.*: worse", capsys.readouterr().out, re.MULTILINE)


def test_after_ctrl_c_the_same_folder_goes_on(tmp_path, capsys):
    arguments = ["compare", *NAMES, *SMALL, "--json", "--resume", "runs"]
    with subprocess.Popen(**command(tmp_path, *arguments)) as process:
        seen = []
        for line in process.stderr:
            seen.append(line)
            if line.startswith("float32, seed 0: 40 of 40 steps"):
                process.send_signal(signal.SIGINT)
                break
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 130, seen
    report = json.loads(out)
    assert INTERRUPTION in report["notes"]
    assert [(run["name"], run["seed"]) for run in report["runs"]][:1] == [("float32", 0)]
    assert cli.main(arguments) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["runs"][0] == report["runs"][0]
    assert len(done["runs"]) == 4


def test_a_process_prints_nothing_but_json(tmp_path):
    done = run(
        tmp_path, "compare", "network_to_compare:build_talkative", NAMES[1], *SMALL, "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][1]["verdict"]["outcome"] == "equal"


@pytest.mark.slow
def test_processes_of_their_own_print_nothing_but_json(tmp_path):
    names = ["network_to_compare:build_talkative", "network_to_compare:train_and_validation"]
    done = run(tmp_path, "compare", *names, *SMALL, "--isolate", "--json", "--save-to", "a.json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["measure"] == "val_loss"
    assert all(one["peak_bytes"] > one["base_bytes"] > 0 for one in report["runs"])
    assert "building in mixed_bfloat16" in done.stderr
    assert ComparisonReport.load(tmp_path / "a.json").to_dict() == report


def test_help_imports_no_tensorflow(tmp_path):
    done = run(tmp_path, "compare", "--help", interpreter=["-X", "importtime"])
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert (done.returncode, "tf_amp_kit.cli.compare" in imported) == (0, True)
    assert imported.isdisjoint({"tensorflow", "keras", "numpy"})


def test_the_command_is_listed(capsys):
    assert cli.main(["--help"]) == 0
    assert "compare   whether half precision trains as well as float32" in capsys.readouterr().out
