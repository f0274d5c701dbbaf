"""`tf-amp-kit numerics`: what it looks at, what it prints, how it exits."""

import json
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path

import keras
import numpy as np
import pytest

import tf_amp_kit
from tf_amp_kit import cli, current_amp, progress

NETWORK = """
import keras
import numpy as np
import tensorflow as tf
from keras import ops

class Growth(keras.layers.Layer):
    def call(self, inputs):
        return ops.exp(inputs)

def build(optimizer="sgd"):
    print("building")
    head = keras.layers.Dense(1, kernel_initializer="ones", name="head", dtype="float32")
    model = keras.Sequential([keras.Input((2,)), Growth(name="growth"), head], name="net")
    model.compile(optimizer, "mse", auto_scale_loss=False)
    return model

def build_deep():
    layers = [keras.layers.Dense(2, name=f"layer_{i}") for i in range(11)]
    model = keras.Sequential([keras.Input((2,)), *layers], name="deep")
    model.compile("sgd", "mse")
    return model

def build_uncompiled():
    return keras.Sequential([keras.Input((2,))], name="raw")

def build_nothing():
    return 3

def fail():
    raise KeyError("no such block")

def build_with(width):
    return width

def large():
    print("loading")
    return np.full((4, 2), 12, "float32"), np.ones((4, 1), "float32")

def small():
    return np.zeros((70, 2), "float32"), np.ones((70, 1), "float32")

def late():
    x, y = small()
    x[69] = 12
    return x, y

def train_and_large():
    return small(), large()

def datasets():
    return tuple(tf.data.Dataset.from_tensors(data) for data in train_and_large())

def no_validation():
    return tf.data.Dataset.from_tensors(small()), None

def weighted():
    return *small(), np.zeros(70, "float32")

def dataset_and_targets():
    return tf.data.Dataset.from_tensors(small()), np.ones((70, 1))

def wrong_shape():
    return np.zeros((4, 3), "float32"), np.ones((4, 1), "float32")

def nothing():
    pass

class Pieces(keras.utils.PyDataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return small()

def pieces():
    return Pieces()
"""


@pytest.fixture(autouse=True)
def network(tmp_path, monkeypatch):
    """Puts a module of builders and data, `network_to_measure`, into the current directory."""
    tmp_path.joinpath("network_to_measure.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("network_to_measure", None)


def numerics(capsys, builder, data, *options):
    """Returns the exit code and what was printed."""
    names = (f"network_to_measure:{name}" for name in (builder, data))
    code = cli.main(["numerics", *names, *options])
    return code, capsys.readouterr()


def strict(text):
    """Reads JSON, and refuses the NaN and Infinity that Python's would take."""

    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def report(capsys, builder, data, *options):
    return strict(numerics(capsys, builder, data, "--json", *options)[1].out)


def test_what_overflows_is_shown_and_exits_with_one(capsys):
    code, printed = numerics(capsys, "build", "large", "--amp", "fp16")
    assert code == 1
    # exp(12) = 162754.79 is beyond float16's 65504: log2(65504 / 162754.79) = -1.313.
    row = r"^growth +output +1\.628e\+05 +100\.0 % +0 % +0 % +2\^-1\.3$"
    assert re.search(row, printed.out, re.MULTILINE)


def test_what_fits_exits_with_zero(capsys):
    code, printed = numerics(capsys, "build", "large", "--amp", "bf16")
    assert code == 0
    assert "0 of 8 tensors overflow" in printed.out


def test_nan_in_float32_exits_with_one(tmp_path, capsys):
    with tmp_path.joinpath("network_to_measure.py").open("a") as module:
        module.write("def bad():\n    return np.full((4, 2), np.nan), np.ones((4, 1))\n")
    assert numerics(capsys, "build", "bad", "--amp", "bf16")[0] == 1


@pytest.mark.parametrize(("amp", "precision"), [("bf16", "bfloat16"), ("fp16", "float16")])
def test_numbers_are_judged_by_the_precision_asked_for(amp, precision, capsys):
    assert report(capsys, "build", "small", "--amp", amp)["precision"] == precision


@pytest.mark.parametrize(("amp", "precision"), [("bf16", "bfloat16"), ("fp16", "float16")])
def test_a_builder_runs_under_the_precision_asked_for(amp, precision, capsys):
    found = report(capsys, "build", "small", "--amp", amp, "--find-nonfinite")
    assert found["precision"] == precision


def test_the_option_wins_over_what_the_builders_module_sets(tmp_path, capsys):
    with tmp_path.joinpath("network_to_measure.py").open("a") as module:
        module.write("keras.config.set_dtype_policy('mixed_float16')\n")
    found = report(capsys, "build", "small", "--amp", "bf16", "--find-nonfinite")
    assert found["precision"] == "bfloat16"


def test_the_option_wins_over_what_the_data_set(tmp_path, capsys):
    with tmp_path.joinpath("network_to_measure.py").open("a") as module:
        module.write(
            "import tf_amp_kit\ndef switching():\n    tf_amp_kit.enable_amp('fp16')\n"
            "    return small()\n"
        )
    assert report(capsys, "build", "switching", "--amp", "bf16")["precision"] == "bfloat16"


def test_nothing_stays_switched_on(capsys):
    path = list(sys.path)
    numerics(capsys, "build", "small", "--amp", "bf16")
    assert (current_amp(), keras.config.dtype_policy().name) == (None, "float32")
    assert sys.path == path


@pytest.mark.parametrize(
    ("data", "num_samples"),
    [
        ("small", 32),
        ("weighted", 32),
        ("pieces", 70),
        ("train_and_large", 32),
        ("datasets", 70),
        ("no_validation", 70),
    ],
)
def test_training_data_are_taken_in_every_form(data, num_samples, capsys):
    measured = report(capsys, "build", data, "--amp", "fp16")
    inputs = measured["tensors"][0]
    assert (measured["num_samples"], inputs["num_zeros"]) == (num_samples, 2 * num_samples)


def test_sample_weights_count(capsys):
    measured = report(capsys, "build", "weighted")
    gradients = [one["largest"] for one in measured["tensors"] if "gradient" in one["kind"]]
    assert gradients and not any(gradients)


@pytest.mark.parametrize(
    ("options", "batches", "samples"),
    [
        ([], 1, 32),
        (["--batches", "3"], 3, 70),
        (["--batch-size", "5"], 1, 5),
        (["--batches", "2", "--batch-size", "5"], 2, 10),
    ],
)
def test_the_number_of_batches_and_their_size_can_be_chosen(options, batches, samples, capsys):
    measured = report(capsys, "build", "small", *options)
    assert (measured["num_batches"], measured["num_samples"]) == (batches, samples)


@pytest.mark.parametrize("way", [[], ["--gradients"], ["--find-nonfinite"]])
def test_the_loss_scale_can_be_chosen(way, capsys):
    measured = report(capsys, "build", "small", "--amp", "fp16", "--loss-scale", "8", *way)
    assert measured["loss_scale"] == 8


@pytest.mark.parametrize("way", [[], ["--gradients"], ["--find-nonfinite"]])
def test_without_a_loss_scale_the_optimizers_counts(way, tmp_path, capsys):
    with tmp_path.joinpath("network_to_measure.py").open("a") as module:
        module.write(
            "def build_scaled():\n"
            "    sgd = keras.optimizers.SGD()\n"
            "    return build(keras.optimizers.LossScaleOptimizer(sgd, initial_scale=64))\n"
        )
    assert report(capsys, "build_scaled", "small", "--amp", "fp16", *way)["loss_scale"] == 64


# 1 input, 11 outputs with their gradients, 22 weights with their gradients.
NUM_TENSORS = 1 + 2 * 11 + 2 * 22


def test_the_ten_worst_tensors_are_shown(capsys):
    out = numerics(capsys, "build_deep", "small")[1].out
    assert f"... and {NUM_TENSORS - 10} more tensors: --all shows all.\n" in out
    assert len(re.findall(r"^(?:layer_|@input)", out, re.MULTILINE)) == 10


def test_all_tensors_are_shown_on_demand_and_the_summary_too(capsys):
    out = numerics(capsys, "build_deep", "small", "--all")[1].out
    assert len(re.findall(r"^(?:layer_|@input)", out, re.MULTILINE)) == NUM_TENSORS
    assert f"0 of {NUM_TENSORS} tensors overflow" in out


def test_gradients_that_agree_exit_with_zero(capsys):
    code, printed = numerics(capsys, "build", "small", "--gradients", "--amp", "bf16")
    assert code == 0
    title = "Gradients of 'net': bfloat16 at loss scale 1 against float32, one batch of 32 samples"
    assert printed.out.startswith(f"building\n{title}\n")


def test_gradients_that_overflow_exit_with_one(capsys):
    code, printed = numerics(capsys, "build", "large", "--gradients", "--amp", "fp16", "--json")
    compared = strict(printed.out)
    assert code == 1
    infinite = {one["path"]: one["half"]["num_infinite"] for one in compared["pairs"]}
    assert infinite == {"head/kernel": 2, "head/bias": 1}


def test_the_ten_worst_gradients_are_shown_and_all_on_demand(capsys):
    shown = numerics(capsys, "build_deep", "small", "--gradients")[1].out
    everything = numerics(capsys, "build_deep", "small", "--gradients", "--all")[1].out
    assert "... and 12 more weights: --all shows all.\n" in shown
    counts = [len(re.findall("^layer_", text, re.MULTILINE)) for text in (shown, everything)]
    assert counts == [10, 22]


def test_gradients_are_of_as_many_samples_as_asked_for(capsys):
    assert report(capsys, "build", "small", "--gradients", "--batch-size", "5")["num_samples"] == 5


def test_the_first_inf_is_found_and_exits_with_one(capsys):
    code, printed = numerics(capsys, "build", "late", "--find-nonfinite", "--amp", "fp16")
    assert code == 1
    headline = "The first Inf: Exp in growth (Growth), forward pass, of batch 3 (float16, loss"
    assert headline in printed.out
    assert "return ops.exp(inputs)" in printed.out


def test_clean_batches_exit_with_zero(capsys):
    code, printed = numerics(capsys, "build", "late", "--find-nonfinite", "--amp", "bf16")
    assert (code, printed.out) == (
        0,
        "building\nNo NaN and no Inf in 3 batches (bfloat16, loss scale 1).\n",
    )


@pytest.mark.parametrize(("batches", "code"), [("2", 0), ("3", 1)])
def test_so_many_batches_are_searched_as_asked_for(batches, code, capsys):
    # The third batch of 32 has the Inf.
    options = ["--find-nonfinite", "--amp", "fp16", "--batches", batches]
    assert numerics(capsys, "build", "late", *options)[0] == code


def test_endless_data_are_searched_up_to_the_number_of_batches(tmp_path, capsys):
    with tmp_path.joinpath("network_to_measure.py").open("a") as module:
        module.write("def endless(): return tf.data.Dataset.from_tensors(small()).repeat()\n")
    _, printed = numerics(capsys, "build", "endless", "--find-nonfinite", "--batches", "4")
    assert "No NaN and no Inf in 4 batches" in printed.out


def test_the_bad_batch_is_saved(tmp_path, capsys):
    options = ["--find-nonfinite", "--amp", "fp16", "--batch-size", "30"]
    found = report(capsys, "build", "late", *options, "--save-to", "bad/batch.npz")
    saved = np.load(tmp_path / "bad" / "batch.npz")
    assert found["saved_to"] == "bad/batch.npz"
    assert saved["x/0"].tolist() == [[0, 0]] * 9 + [[12, 12]]


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_progress_goes_to_a_terminal_on_standard_error(json_option, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "_DELAY_SECONDS", 0.0)
    _, printed = numerics(capsys, "build", "late", "--find-nonfinite", *json_option)
    assert "Importing the model" in printed.err
    assert "Importing" not in printed.out
    assert "No NaN" not in printed.err


def test_quiet_keeps_progress_from_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "_DELAY_SECONDS", 0.0)
    _, printed = numerics(capsys, "build", "late", "--find-nonfinite", "--quiet")
    assert printed.err == ""


def test_without_a_terminal_there_is_no_progress(capsys):
    _, printed = numerics(capsys, "build", "late", "--find-nonfinite")
    assert printed.err == ""


@pytest.mark.parametrize(
    ("way", "key"),
    [([], "tensors"), (["--gradients"], "pairs"), (["--find-nonfinite"], "origin")],
)
def test_json_is_all_that_standard_output_holds(way, key, capsys):
    _, printed = numerics(capsys, "build", "large", "--amp", "fp16", "--json", *way)
    assert key in strict(printed.out)
    assert printed.err == "building\nloading\n"


@pytest.fixture
def saved(tmp_path):
    """The path of a compiled float32 model's file."""
    head = keras.layers.Dense(1, name="head")
    model = keras.Sequential([keras.Input((2,)), head], name="net")
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    return str(tmp_path / "model.keras")


@pytest.fixture
def for_saved(tmp_path):
    """The name of a function that gives data for it, which overflow float16."""
    tmp_path.joinpath("network_to_measure.py").write_text(
        "import numpy as np\ndef data(): return np.full((4, 2), 7e4), np.ones((4, 1))\n"
    )
    return "network_to_measure:data"


def test_a_file_is_measured(saved, for_saved, capsys):
    assert cli.main(["numerics", saved, for_saved, "--amp", "bf16", "--json"]) == 0
    measured = strict(capsys.readouterr().out)
    assert (measured["precision"], measured["tensors"][0]["largest"]) == ("bfloat16", 7e4)


@pytest.mark.parametrize(
    ("amp", "precision", "code"),
    [([], "float32", 0), (["--amp", "bf16"], "bfloat16", 0), (["--amp", "fp16"], "float16", 1)],
)
def test_what_is_not_finite_is_found_in_a_file_in_the_precision_asked_for(
    amp, precision, code, saved, for_saved, capsys
):
    assert cli.main(["numerics", saved, for_saved, "--find-nonfinite", "--json", *amp]) == code
    assert strict(capsys.readouterr().out)["precision"] == precision


def test_a_file_without_a_loss_names_the_ways_out(tmp_path, for_saved, capsys):
    layers = [keras.Input((2,)), keras.layers.Dense(1)]
    keras.Sequential(layers, name="raw").save(tmp_path / "raw.keras")
    assert cli.main(["numerics", "raw.keras", for_saved]) == 2
    assert capsys.readouterr().err == (
        "tf-amp-kit: error: The model has no loss. Expected a compiled model. Received: "
        "Sequential named 'raw' of the file. Save it compiled, or name a builder that compiles "
        "it: package.module:builder.\n"
    )


@pytest.mark.parametrize(
    ("options", "first_bytes"),
    [
        (["--figure", "a.png"], b"\x89PNG"),
        (["--figure", "new/a.pdf"], b"%PDF"),
        (["--layer-figure", "a.svg"], b"<?xml"),
        (["--gradients", "--figure", "a.png"], b"\x89PNG"),
    ],
)
def test_figures_are_drawn_into_files(options, first_bytes, tmp_path, capsys):
    numerics(capsys, "build", "small", *options)
    assert tmp_path.joinpath(options[-1]).read_bytes().startswith(first_bytes)


@pytest.mark.parametrize(
    ("options", "title"),
    [
        (["--figure"], "Exponents of "),
        (["--layer-figure"], "Losses by layer of "),
        (["--gradients", "--figure"], "Gradients of "),
    ],
)
def test_a_figure_shows_what_the_option_says(options, title, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(__import__("matplotlib").rcParams, "svg.fonttype", "none")
    numerics(capsys, "build", "small", *options, "a.svg")
    assert title in tmp_path.joinpath("a.svg").read_text()


def test_without_matplotlib_nothing_is_begun(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, printed = numerics(capsys, "build", "small", "--figure", "a.png")
    assert (code, printed.out) == (2, "")
    assert 'Install it: pip install "tf_amp_kit[plots]".' in printed.err


DATA = "`(x, y)`, `(x, y, sample_weight)`, a dataset, or `(train, validation)` of these"


@pytest.mark.parametrize(
    ("builder", "data", "message"),
    [
        (
            "build_nothing",
            "small",
            "The builder does not return a model. Expected a keras.Model. Received: "
            "build_nothing() returned int.",
        ),
        (
            "build_uncompiled",
            "small",
            "The model has no loss. Expected a compiled model. Received: Sequential named 'raw' "
            "of build_uncompiled(). Call its compile() in the builder.",
        ),
        (
            "build_with",
            "small",
            "This is no builder. Expected a function that takes no arguments and returns a "
            "model. Received: 'network_to_measure:build_with', which takes (width).",
        ),
        (
            "build",
            "absent",
            "The module 'network_to_measure' has no absent. Expected package.module:data. "
            "Received: 'network_to_measure:absent'.",
        ),
        (
            "build",
            "Pieces",
            f"This is no function for data. Expected a function that takes no arguments and "
            f"returns {DATA}. Received: 'network_to_measure:Pieces', the class Pieces.",
        ),
        (
            "build",
            "nothing",
            f"The function returns no data. Expected {DATA}. Received: "
            "'network_to_measure:nothing' returned None.",
        ),
        (
            "build",
            "dataset_and_targets",
            "The function returns a dataset beside something else: a dataset holds its targets "
            f"itself. Expected {DATA}. Received: 'network_to_measure:dataset_and_targets' "
            "returned (_TensorDataset, ndarray).",
        ),
    ],
)
def test_what_gives_no_model_or_data_is_one_line_and_returns_two(builder, data, message, capsys):
    code, printed = numerics(capsys, builder, data)
    assert (code, printed.out.replace("building\n", "")) == (2, "")
    assert printed.err == f"tf-amp-kit: error: {message}\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("network.npz", "This names no function. Expected package.module:data. Received: "),
        ("no_module:data", "There is no module 'no_module' in "),
        ("a-b:data", "This is no module's name. Expected package.module:data. Received: "),
    ],
)
def test_what_names_no_data_names_the_form(data, message, capsys):
    assert cli.main(["numerics", "network_to_measure:build", data]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batches", "0"], "argument --batches: expected a whole number from 1 up, not '0'"),
        (["--batch-size", "1.5"], "argument --batch-size: expected a whole number from 1 up, not"),
        (["--loss-scale", "x"], "argument --loss-scale: invalid float value: 'x'"),
        (["--loss-scale", "-1"], "Expected a positive finite loss scale"),
        (["--loss-scale", "nan"], "Expected a positive finite loss scale"),
        (["--amp", "fp8"], "Received: name='fp8'"),
        (["--gradients", "--find-nonfinite"], "not allowed with argument --gradients"),
        (["--save-to", "x"], "--save-to needs --find-nonfinite, whose bad batch it saves"),
        (
            ["--gradients", "--batches", "2"],
            "--batches does not go with --gradients, which compares one batch",
        ),
        (["--find-nonfinite", "--all"], "--all does not go with --find-nonfinite"),
        (["--find-nonfinite", "--figure", "a.png"], "--figure does not go with --find-nonfinite"),
        (["--gradients", "--layer-figure", "a.png"], "--layer-figure does not go with --gradients"),
        (["--figure", "a.txt"], "expected a .png, .pdf or .svg file, not 'a.txt'"),
        (["--figure", "network_to_measure.py/a.png"], "'network_to_measure.py/a.png' cannot be"),
        (["--find-nonfinite", "--save-to", "."], "argument --save-to: '.' cannot be written"),
    ],
)
def test_bad_options_are_one_line_and_return_two(options, message, capsys):
    code, printed = numerics(capsys, "build", "small", *options)
    assert (code, printed.out.replace("building\n", "")) == (2, "")
    assert len(printed.err.splitlines()) == 1
    assert message in printed.err


def test_data_that_do_not_fit_return_two(capsys):
    code, printed = numerics(capsys, "build", "wrong_shape")
    assert code == 2
    assert "do not fit" in printed.err


@pytest.mark.parametrize(("builder", "data"), [("fail", "small"), ("build", "fail")])
def test_an_exception_of_the_users_own_keeps_its_traceback(builder, data, capsys):
    with pytest.raises(KeyError, match="no such block") as raised:
        numerics(capsys, builder, data)
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "fail"


def test_a_process_prints_nothing_but_json(tmp_path):
    names = ["network_to_measure:build", "network_to_measure:late"]
    options = ["--find-nonfinite", "--amp", "fp16", "--json"]
    run = subprocess.run(
        [sys.executable, "-m", "tf_amp_kit", "numerics", *names, *options],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        # The package that is tested, wherever the tests were started.
        env={**os.environ, "PYTHONPATH": str(Path(tf_amp_kit.__file__).parents[1])},
    )
    assert run.returncode == 1
    origin = strict(run.stdout)["origin"]
    assert (origin["path"], origin["operation"]) == ("growth", "Exp")
