"""`tf-amp-kit memory`: what it hands over, what it prints, how it exits."""

import json
import os
import re
import subprocess
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

import keras
import pytest

import tf_amp_kit
from tf_amp_kit import cli, current_amp

NETWORK = """
import keras
import numpy as np

def build():
    print("building in", keras.config.dtype_policy().name)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="head")], name="net")
    model.compile("sgd", "mse")
    return model

def fail():
    raise KeyError("no such block")

def points():
    return np.zeros((64, 2), "float32"), np.zeros((64, 1), "float32")

def train_and_validation():
    return points(), tuple(part[:16] for part in points())
"""

NAME = "network_to_weigh:build"
MIB = 2**20


@pytest.fixture(autouse=True)
def network(tmp_path, monkeypatch):
    """Puts a module of builders and data, `network_to_weigh`, into the current directory."""
    tmp_path.joinpath("network_to_weigh.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("network_to_weigh", None)


@dataclass(frozen=True)
class Estimate:
    """A net that takes 10 MiB, and 2 MiB per sample, of which 1 is activations."""

    batch_size: int

    @property
    def peak_bytes(self):
        return (10 + 2 * self.batch_size) * MIB

    @property
    def activations_bytes(self):
        return self.batch_size * MIB

    def to_dict(self):
        return asdict(self)

    def text(self, max_rows=None):
        return "every layer" if max_rows is None else str(self)


@pytest.fixture
def calls(monkeypatch):
    """Puts a library in place that takes notes."""
    calls = []

    def estimate_memory(model, batch_size, *, verbose, **options):
        calls.append(("estimate", model, batch_size, options))
        return Estimate(batch_size)

    def largest_batch_size(model, memory_bytes, **options):
        calls.append(("largest", model, memory_bytes, options))
        return max(0, (memory_bytes // MIB - 10) // 2)

    monkeypatch.setattr(tf_amp_kit, "estimate_memory", estimate_memory, raising=False)
    monkeypatch.setattr(tf_amp_kit, "largest_batch_size", largest_batch_size, raising=False)
    return calls


def memory(*options, model=NAME):
    return cli.main(["memory", model, *options])


def test_a_batch_of_32_is_estimated(calls, capsys):
    assert memory() == 0
    [(_, model, batch_size, options)] = calls
    assert (model.name, batch_size, options) == ("net", 32, {})
    assert capsys.readouterr().out == "building in float32\nEstimate(batch_size=32)\n"


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ([], "float32"),
        (["--amp", "bf16"], "mixed_bfloat16"),
        (["--amp", "fp16"], "mixed_float16"),
    ],
)
@pytest.mark.usefixtures("calls")
def test_a_builder_runs_under_the_precision_asked_for(options, policy, capsys):
    assert memory(*options) == 0
    assert capsys.readouterr().out.startswith(f"building in {policy}\n")
    assert current_amp() is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [([], {}), (["--amp", "bf16"], {"precision": "bfloat16"})],
)
def test_the_model_of_a_file_is_estimated_in_the_precision_asked_for(options, expected, calls):
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save("net.keras")
    assert memory(*options, model="net.keras") == 0
    assert calls[0][3] == expected


def test_an_optimizer_is_handed_over(calls):
    memory("--optimizer", "adam")
    assert calls[0][3] == {"optimizer": "adam"}


@pytest.mark.parametrize("data", ["points", "train_and_validation"])
def test_training_data_are_handed_over(data, calls):
    memory(f"network_to_weigh:{data}")
    inputs, targets = calls[0][3]["data"]
    assert (inputs.shape, targets.shape) == ((64, 2), (64, 1))


def test_batch_sizes_are_compared_in_a_table(calls, capsys):
    assert memory("--batch-size", "4, 16,1024") == 0
    assert [call[2] for call in calls] == [4, 16, 1024]
    assert capsys.readouterr().out == (
        "building in float32\n"
        "Batch size      Peak  Activations\n"
        "---------------------------------\n"
        "         4  18.0 MiB     4.00 MiB\n"
        "        16  42.0 MiB     16.0 MiB\n"
        "      1024  2.01 GiB     1.00 GiB\n"
    )


def test_the_largest_batch_that_fits_is_found_and_estimated(calls, capsys):
    assert memory("--memory", "64MiB", "--optimizer", "adam") == 0
    assert [call[2:] for call in calls] == [
        (64 * MIB, {"optimizer": "adam"}),
        (27, {"optimizer": "adam"}),
    ]
    assert capsys.readouterr().out == (
        "building in float32\n"
        "Largest batch size that fits into 64.0 MiB: 27.\n\n"
        "Estimate(batch_size=27)\n"
    )


def test_memory_for_not_even_one_sample_exits_with_one(calls, capsys):
    assert memory("--memory", "11MiB") == 1
    assert calls[1][2] == 1
    assert "Not even a batch of 1 fits into 11.0 MiB.\n" in capsys.readouterr().out


@pytest.mark.parametrize(("batch_size", "code"), [("27", 0), ("28", 1), ("1,28,4", 1)])
@pytest.mark.usefixtures("calls")
def test_a_batch_that_does_not_fit_exits_with_one(batch_size, code):
    assert memory("--memory", "64MiB", "--batch-size", batch_size) == code


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("1000000000", 10**9),
        ("64000000B", 64 * 10**6),
        ("16G", 16 * 10**9),
        ("16GB", 16 * 10**9),
        ("16gb", 16 * 10**9),
        ("8GiB", 8 * 2**30),
        ("8 GiB", 8 * 2**30),
        ("8Gi", 8 * 2**30),
        ("0.5TiB", 2**39),
        ("1.1MB", 1_100_000),
    ],
)
def test_a_size_is_read_in_powers_of_1000_or_1024(text, num_bytes, calls):
    memory("--memory", text)
    assert calls[0][2] == num_bytes


@pytest.mark.usefixtures("calls")
def test_all_layers_are_shown_on_demand(capsys):
    memory("--layers")
    assert capsys.readouterr().out == "building in float32\nevery layer\n"


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"estimates": [{"batch_size": 32}], "memory_bytes": None, "largest_batch_size": None}),
        (
            ["--memory", "64MiB", "--batch-size", "4,16"],
            {
                "estimates": [{"batch_size": 4}, {"batch_size": 16}],
                "memory_bytes": 64 * MIB,
                "largest_batch_size": 27,
            },
        ),
    ],
)
def test_json_is_all_that_standard_output_holds(options, expected, capsys):
    assert memory("--json", *options) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == expected
    assert printed.err == "building in float32\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch-size", "0"], "argument --batch-size: expected a whole number from 1 up, not"),
        (["--batch-size", "4,"], "argument --batch-size: expected a whole number from 1 up, not"),
        (["--memory", "much"], "argument --memory: expected 8GiB, 16GB or bytes, not 'much'"),
        (["--memory", "-1"], "argument --memory: expected"),
        (["--memory", "8iB"], "argument --memory: expected 8GiB, 16GB or bytes, not '8iB'"),
        (["--memory", "0GB"], "argument --memory: expected some memory, not '0GB'"),
        (["--amp", "fp8"], "Received: name='fp8'"),
        (["network_to_weigh:absent"], "The module 'network_to_weigh' has no absent."),
    ],
)
def test_bad_options_are_one_line_and_return_two(options, message, calls, capsys):
    assert memory(*options) == 2
    printed = capsys.readouterr()
    assert (printed.out.replace("building in float32\n", ""), calls) == ("", [])
    assert len(printed.err.splitlines()) == 1
    assert message in printed.err


@pytest.mark.usefixtures("calls")
def test_an_exception_of_the_users_own_keeps_its_traceback():
    with pytest.raises(KeyError, match="no such block") as raised:
        memory(model="network_to_weigh:fail")
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "fail"


def test_the_help_names_every_option_and_the_exit_codes(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert memory("--help") == 0
    out = capsys.readouterr().out
    assert re.findall("^  (--[a-z-]+)", out, re.MULTILINE) == [
        "--amp",
        "--optimizer",
        "--batch-size",
        "--memory",
        "--layers",
        "--json",
        "--quiet",
    ]
    assert (
        "Exits 0 if there is an estimate, 1 if it is above --memory for a batch size that was "
        "asked for, or for one sample if none was, 2 if there is no model to look at."
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


def test_help_imports_no_tensorflow(tmp_path):
    done = run(tmp_path, "memory", "--help", interpreter=["-X", "importtime"])
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert (done.returncode, "tf_amp_kit.cli.memory" in imported) == (0, True)
    assert imported.isdisjoint({"tensorflow", "keras", "numpy"})


def test_the_command_is_listed(capsys):
    assert cli.main(["--help"]) == 0
    assert "memory    how much memory training takes, and the largest batch that fits\n" in (
        capsys.readouterr().out
    )


def test_a_real_model_is_estimated_with_all_its_layers(capsys):
    assert memory("--layers", "--memory", "1MiB", "--batch-size", "2") == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].startswith("Largest batch size that fits into 1.00 MiB: ")
    assert "kept for the backward pass" in out
