"""`tf-amp-kit audit`: what it looks at, what it prints, how it exits."""

import json
import subprocess
import sys
import traceback

import keras
import pytest

import tf_amp_kit
from tests.precision.pinning.models import net
from tf_amp_kit import cli, current_amp

NETWORK = """
import keras
import numpy as np
from keras import ops

class Scale(keras.layers.Layer):
    def call(self, inputs):
        return ops.multiply(inputs, np.float32(2))

class Late(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2, dtype="float32")

    def call(self, inputs):
        return self.dense(inputs)

def build():
    print("building")
    head = keras.layers.Dense(1, dtype="float32")
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), Scale(), head])

def build_half_head():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])

def build_late():
    return Late()

def build_conflict():
    inputs = keras.Input((4,))
    wide = keras.layers.Dense(4, dtype="float32")(inputs)
    return keras.Model(inputs, ops.matmul(Clash()(wide), ops.transpose(wide)))

class Clash(keras.layers.Layer):
    def call(self, inputs):
        import tensorflow as tf
        return tf.add(inputs, tf.constant(1.0))

def build_nothing():
    return 3

def fail():
    raise KeyError("no such block")

def build_with(width):
    return width

number = 3
"""


@pytest.fixture(autouse=True)
def network(tmp_path, monkeypatch):
    """Puts a module of builders, `network_to_audit`, into the current directory."""
    tmp_path.joinpath("network_to_audit.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("network_to_audit", None)


def audit(capsys, builder, *options):
    """Returns the exit code and what was printed."""
    code = cli.main(["audit", f"network_to_audit:{builder}", *options])
    return code, capsys.readouterr()


def findings(capsys, builder, *options):
    return json.loads(audit(capsys, builder, "--json", *options)[1].out)["findings"]


def test_a_builder_of_the_current_directory_is_audited(capsys):
    code, printed = audit(capsys, "build", "--amp", "bf16")
    assert code == 1
    assert "AMP101 warning: scale (Scale) returns float32" in printed.out
    assert "return ops.multiply(inputs, np.float32(2))" in printed.out


@pytest.mark.parametrize(("amp", "precision"), [("bf16", "bfloat16"), ("fp16", "float16")])
def test_a_builder_runs_under_the_precision_asked_for(amp, precision, capsys):
    report = json.loads(audit(capsys, "build", "--amp", amp, "--json")[1].out)
    assert report["precision"] == precision
    assert report["rows"][0]["policy"] == f"mixed_{precision}"


def test_without_a_precision_what_the_module_sets_counts(tmp_path, capsys):
    with tmp_path.joinpath("network_to_audit.py").open("a") as module:
        module.write("keras.config.set_dtype_policy('mixed_float16')\n")
    assert findings(capsys, "build")[0]["code"] == "AMP101"


def test_the_option_wins_over_what_the_module_sets(tmp_path, capsys):
    with tmp_path.joinpath("network_to_audit.py").open("a") as module:
        module.write("import tf_amp_kit\ntf_amp_kit.enable_amp('fp16')\n")
    report = json.loads(audit(capsys, "build", "--amp", "bf16", "--json")[1].out)
    assert report["rows"][0]["policy"] == "mixed_bfloat16"


def test_nothing_stays_switched_on(capsys):
    path = list(sys.path)
    audit(capsys, "build", "--amp", "bf16")
    assert (current_amp(), keras.config.dtype_policy().name) == (None, "float32")
    assert sys.path == path


def test_float32_has_nothing_to_find(capsys):
    code, printed = audit(capsys, "build", "--amp", "fp32")
    assert code == 0
    assert "Nothing is half" in printed.out


def test_ignored_codes_are_left_out(capsys):
    assert audit(capsys, "build", "--amp", "bf16", "--ignore", "AMP101", "AMP203")[0] == 0


@pytest.mark.parametrize(("severity", "code"), [("error", 0), ("warning", 1), ("note", 1)])
def test_the_gravity_that_counts_can_be_chosen(severity, code, capsys):
    assert audit(capsys, "build", "--amp", "bf16", "--fail-on", severity)[0] == code


def test_a_conflict_while_building_is_a_finding(capsys):
    found = findings(capsys, "build_conflict", "--amp", "bf16")
    assert "AMP107" in {one["code"] for one in found}


def test_json_is_all_that_standard_output_holds(capsys):
    _, printed = audit(capsys, "build", "--amp", "bf16", "--json")
    assert json.loads(printed.out)["model_name"].startswith("sequential")
    assert printed.err == "building\n"


def test_a_subclassed_model_takes_its_input_shape_from_an_option(capsys):
    code, printed = audit(capsys, "build_late", "--input-shape", "4")
    assert code == 0
    assert "dense" in printed.out


def test_several_input_shapes_are_one_each():
    arguments = cli._build_parser().parse_args(
        ["audit", "m:f", "--input-shape", "28,None,1", "--input-shape", "16:int32"]
    )
    assert [(spec.shape.as_list(), spec.dtype.name) for spec in arguments.input_shape] == [
        ([None, 28, None, 1], "float32"),
        ([None, 16], "int32"),
    ]


@pytest.mark.parametrize(
    ("builder", "options", "words"),
    [
        ("build_nothing", [], "build_nothing() returned int"),
        ("build_with", [], "which takes (width)"),
        ("number", [], "a int"),
        ("Late", [], "the class Late"),
        ("absent", [], "has no absent"),
        ("", [], "has no name after the colon"),
        ("build_late", [], "--input-shape 28,28,1"),
        ("build", ["--amp", "bf17"], "Received: name='bf17'"),
        ("build", ["--ignore", "AMP999"], "unknown code 'AMP999'"),
        ("build", ["--fail-on", "all"], "invalid choice: 'all'"),
        ("build", ["--input-shape", "28x28"], "'28x28' is no shape"),
        ("build", ["--input-shape", "4:int33"], "'4:int33' is no shape"),
        ("build", ["--input-shape", "5"], "do not fit"),
    ],
)
def test_bad_usage_is_one_line_and_returns_two(builder, options, words, capsys):
    code, printed = audit(capsys, builder, *options)
    assert (code, printed.out.replace("building\n", "")) == (2, "")
    assert len(printed.err.splitlines()) == 1
    assert words in printed.err


def test_an_exception_of_the_builder_keeps_its_traceback(capsys):
    with pytest.raises(KeyError, match="no such block") as raised:
        audit(capsys, "fail")
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "fail"


def test_a_module_that_lacks_a_dependency_keeps_its_traceback(tmp_path, capsys):
    tmp_path.joinpath("network_to_audit.py").write_text("import no_such_dependency\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        audit(capsys, "build")


def test_a_missing_module_is_named(capsys):
    assert cli.main(["audit", "network_to_audit.inner:build"]) == 2
    assert "There is no module 'network_to_audit.inner'" in capsys.readouterr().err


def test_a_file_in_place_of_a_module_is_told_so(capsys):
    assert cli.main(["audit", "network_to_audit.py:build"]) == 2
    assert "Leave the .py out." in capsys.readouterr().err


def test_a_process_says_in_one_line_what_is_wrong(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "tf_amp_kit", "audit", "absent.keras"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert run.returncode == 2
    assert run.stderr == (
        "tf-amp-kit: error: There is no such file. Expected a .keras file or "
        "package.module:builder. Received: 'absent.keras'.\n"
    )


def test_a_file_is_opened_with_its_pins(tmp_path, capsys):
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = net()
    tf_amp_kit.pin_float32(model)
    with pytest.warns(tf_amp_kit.errors.PinWarning):
        model.save(tmp_path / "model.keras")
    keras.config.set_dtype_policy("float32")
    assert cli.main(["audit", str(tmp_path / "model.keras")]) == 0
    assert "float32 (pinned)" in capsys.readouterr().out
