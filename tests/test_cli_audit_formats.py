"""`tf-amp-kit audit` for other programs, and under a project's settings."""

import json
import re
import shlex
import sys
from pathlib import Path

import jsonschema
import keras
import pytest

from tf_amp_kit import cli
from tf_amp_kit.cli import audit as module
from tf_amp_kit.errors import FindingsError, SettingsWarning

SCHEMA = Path(__file__).parent / "reporting" / "schemas" / "sarif-2.1.0-rtm.5.json"

# Line 8 widens; `build_model` begins in line 11.
NETWORK = """\
import functools
import keras
import numpy as np
from keras import ops

class Scale(keras.layers.Layer):
    def call(self, inputs):
        return ops.multiply(inputs, np.float32(2))


def build_model():
    print("::error::building")
    layers = [keras.layers.Dense(4), Scale(), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((4,)), *layers], name="net")

def build_clean():
    head = keras.layers.Dense(1, dtype="float32")
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), head])

build_wrapped = functools.wraps(build_model)(lambda: build_model())

def build_conflict():
    inputs = keras.Input((4,))
    return keras.Model(inputs, Clash()(inputs))

class Clash(keras.layers.Layer):
    def call(self, inputs):
        import tensorflow as tf
        return tf.add(inputs, tf.constant(1.0))
"""

FORMATS = ["text", "json", "github", "sarif"]


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch):
    """Returns a repository whose folder `models`, the current one, has a module of builders."""
    tmp_path.joinpath(".git").mkdir()
    models = tmp_path / "models"
    models.mkdir()
    models.joinpath("network.py").write_text(NETWORK)
    monkeypatch.chdir(models)
    monkeypatch.syspath_prepend(models)
    monkeypatch.setattr("tf_amp_kit.hardware.slow_reason", lambda dtype: None)
    yield tmp_path
    sys.modules.pop("network", None)


@pytest.fixture
def settle(repository):
    """Writes settings into the repository's pyproject.toml."""

    def write(text):
        repository.joinpath("pyproject.toml").write_text(f"[tool.tf_amp_kit]\n{text}\n")

    return write


def audit(capsys, *options, builder="build_model"):
    """Returns the exit code and what was printed."""
    code = cli.main(["audit", f"network:{builder}", "--amp", "bf16", *options])
    return code, capsys.readouterr()


def told(form, text):
    """Reads codes and severities from any format."""
    if form == "json":
        return [(one["code"], one["severity"]) for one in json.loads(text)["findings"]]
    if form == "sarif":
        (run,) = json.loads(text)["runs"]
        return [(one["ruleId"], one["level"]) for one in run["results"]]
    if form == "text":
        return re.findall(r"^(AMP\d+) (\w+):", text, re.MULTILINE)
    found = re.findall(r"^::(\w+) .*title=(AMP\d+)", text, re.MULTILINE)
    return [(code, level.replace("notice", "note")) for level, code in found]


def test_annotations_point_into_the_repository(capsys):
    code, printed = audit(capsys, "--format", "github")
    first, *others = printed.out.splitlines()
    assert code == 1
    assert first.startswith("::warning file=models/network.py,line=8,title=AMP101%3A float ")
    # The head in half precision and the missing pins have no line of their own.
    assert [line[:50] for line in others[:2]] == [
        "::warning file=models/network.py,line=11,title=AMP"
    ] * 2
    assert others[2] == "Audit of 'net', expected to compute in bfloat16: 3 warnings"


def test_sarif_is_valid_and_points_into_the_repository(capsys):
    code, printed = audit(capsys, "--format", "sarif")
    log = json.loads(printed.out)
    jsonschema.Draft4Validator(json.loads(SCHEMA.read_text())).validate(log)
    places = [one["locations"][0]["physicalLocation"] for one in log["runs"][0]["results"]]
    assert code == 1
    assert {place["artifactLocation"]["uri"] for place in places} == {"models/network.py"}
    assert places[0]["region"] == {
        "startLine": 8,
        "snippet": {"text": "return ops.multiply(inputs, np.float32(2))"},
    }
    assert [place["region"]["startLine"] for place in places[1:]] == [11, 11]


def test_a_wrapped_builder_is_shown_where_it_is_written(capsys):
    printed = audit(capsys, "--format", "github", builder="build_wrapped")[1]
    assert "file=models/network.py,line=11,title=AMP108" in printed.out


@pytest.mark.parametrize("form", FORMATS)
def test_a_conflict_while_building_is_an_error_in_every_format(form, capsys):
    code, printed = audit(capsys, "--format", form, builder="build_conflict")
    assert (code, told(form, printed.out)[0]) == (1, ("AMP107", "error"))


def test_outside_of_a_repository_the_current_directory_is_the_root(repository, capsys):
    repository.joinpath(".git").rmdir()
    assert "::warning file=network.py,line=8," in audit(capsys, "--format", "github")[1].out


def test_a_file_stands_for_the_lines_that_it_lacks(repository, capsys):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, dtype="mixed_bfloat16")])
    model.save("net.keras")
    assert cli.main(["audit", "net.keras", "--amp", "bf16", "--format", "github"]) == 1
    assert "::warning file=models/net.keras,line=1,title=AMP201" in capsys.readouterr().out


@pytest.mark.parametrize("form", FORMATS[1:])
def test_what_the_builder_prints_goes_to_standard_error(form, capsys):
    _, printed = audit(capsys, "--format", form)
    assert "building" not in printed.out
    assert printed.err == "::error::building\n"


def test_text_is_the_default_and_keeps_what_the_builder_prints(capsys):
    _, printed = audit(capsys)
    assert printed.out.startswith("::error::building\nAudit of 'net'")
    assert audit(capsys, "--format", "text")[1].out == printed.out


def test_json_is_short_for_its_format(capsys):
    assert audit(capsys, "--json")[1].out == audit(capsys, "--format", "json")[1].out


def test_two_formats_are_refused(capsys):
    code, printed = audit(capsys, "--json", "--format", "sarif")
    assert (code, printed.out) == (2, "")
    assert "not allowed with argument --json" in printed.err


@pytest.mark.parametrize("form", FORMATS)
def test_a_clean_model_exits_with_zero_in_every_format(form, capsys):
    code, printed = audit(capsys, "--format", form, "--ignore", "AMP108", builder="build_clean")
    assert (code, told(form, printed.out)) == (0, [])


@pytest.mark.parametrize("form", FORMATS)
def test_settings_count_in_every_format(form, settle, capsys):
    settle('ignore = ["AMP108"]\nfail_on = "error"\nseverities = {AMP101 = "error"}')
    code, printed = audit(capsys, "--format", form)
    assert code == 1
    assert told(form, printed.out) == [("AMP101", "error"), ("AMP201", "warning")]
    assert "Left out as asked: 1 AMP108." in printed.out


@pytest.mark.parametrize(
    ("severities", "code"), [('{AMP101 = "warning"}', 0), ('{AMP101 = "error"}', 1)]
)
def test_the_exit_code_goes_by_the_changed_severity(severities, code, settle, capsys):
    settle(f'fail_on = "error"\nseverities = {severities}')
    assert audit(capsys)[0] == code


def test_codes_are_ignored_in_some_layers(settle, capsys):
    settle('per_layer_ignore = {scale = ["AMP101"], "@output/.*" = ["AMP101"]}')
    assert [code for code, _ in told("json", audit(capsys, "--json")[1].out)] == [
        "AMP108",
        "AMP201",
    ]


def test_options_add_to_what_is_ignored(settle, capsys):
    settle('ignore = ["AMP108"]')
    printed = audit(capsys, "--json", "--ignore", "AMP201")[1]
    assert told("json", printed.out) == [("AMP101", "warning")]


def test_an_option_wins_over_what_fails(settle, capsys):
    settle('fail_on = "error"')
    assert audit(capsys)[0] == 0
    assert audit(capsys, "--fail-on", "warning")[0] == 1


def test_settings_of_setup_cfg_count(repository, capsys):
    repository.joinpath("setup.cfg").write_text("[tf_amp_kit]\nfail_on = error\n")
    assert audit(capsys)[0] == 0


def test_of_both_files_pyproject_counts(repository, settle, capsys):
    settle('fail_on = "error"')
    repository.joinpath("setup.cfg").write_text("[tf_amp_kit]\nfail_on = note\n")
    with pytest.warns(SettingsWarning, match="setup.cfg is not read"):
        assert audit(capsys)[0] == 0


def test_wrong_settings_are_one_line_and_nothing_is_built(repository, settle, capsys):
    settle('ignore = ["AMP999"]')
    code, printed = audit(capsys)
    assert (code, printed.out) == (2, "")
    (line,) = printed.err.splitlines()
    assert line.startswith(
        f"tf-amp-kit: error: {repository / 'pyproject.toml'}, [tool.tf_amp_kit]:"
    )
    assert "in `ignore`" in line and "Received: 'AMP999'." in line


def blocks(language):
    """Returns the code blocks of the module's docstring."""
    return re.findall(rf"```{language}\n(.*?)```", module.__doc__, re.DOTALL)


def test_the_documented_jobs_print_what_they_promise(capsys):
    commands = re.findall(r"- run: tf-amp-kit (.*)", "".join(blocks("yaml")))
    printed = []
    for command in commands:
        words = shlex.split(command)
        # The shell, not the program, writes the file.
        argv = words[: words.index(">")] if ">" in words else words
        assert cli.main(argv) == 1
        printed.append(capsys.readouterr().out)
    assert printed[0].startswith("::warning file=")
    assert json.loads(printed[1])["version"] == "2.1.0"
    assert len(printed) == 2


@pytest.mark.parametrize("index", [0, 1])
def test_the_documented_tests_fail_until_the_model_is_clean(index, settle):
    names = {}
    exec(blocks("python")[index], names)
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    with pytest.raises((AssertionError, FindingsError)):
        test()
    settle('ignore = ["AMP101", "AMP108", "AMP201"]')
    test()
