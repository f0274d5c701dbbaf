"""The settings of a project: where they are found, how they are written, what is refused."""

import doctest
import re

import pytest

from tf_amp_kit.cli import settings as module
from tf_amp_kit.cli.settings import read_settings
from tf_amp_kit.errors import SettingsError, SettingsWarning
from tf_amp_kit.inspection.strictness import Strictness

TOML = """
[project]
name = "net"

[tool.tf_amp_kit]
ignore = ["AMP402", "AMP403"]
fail_on = "error"
severities = {AMP203 = "warning"}
per_layer_ignore = {"(?:en|de)coder/.*" = ["AMP101", "AMP103"]}
"""

INI = """
[metadata]
name = net

[tf_amp_kit]
ignore = AMP402, AMP403
fail_on = error
severities = AMP203:warning
per_layer_ignore =
    (?:en|de)coder/.*: AMP101 AMP103
"""

BOTH_SAY = Strictness(
    ignore=["AMP402", "AMP403"],
    per_layer_ignore={"(?:en|de)coder/.*": ["AMP101", "AMP103"]},
    severities={"AMP203": "warning"},
    fail_on="error",
)


@pytest.fixture
def project(tmp_path):
    """Returns the folder of a repository, whose settings end the search."""
    tmp_path.joinpath(".git").mkdir()
    return tmp_path


@pytest.mark.parametrize(("name", "text"), [("pyproject.toml", TOML), ("setup.cfg", INI)])
def test_either_file_says_the_same(name, text, project):
    project.joinpath(name).write_text(text)
    assert read_settings(project) == BOTH_SAY


@pytest.mark.parametrize(
    "text",
    [
        "ignore = AMP402 AMP403\nseverities = AMP203 : warning,AMP101:note",
        "ignore =\n  AMP402\n  AMP403,\nseverities =\n  AMP203: warning\n  AMP101: note",
        "Ignore: AMP402,AMP403\nseverities: AMP203:warning AMP101:note",
    ],
)
def test_lists_of_setup_cfg_are_written_as_one_likes(text, project):
    project.joinpath("setup.cfg").write_text(f"[tf_amp_kit]\n{text}\n")
    assert read_settings(project) == Strictness(
        ignore=["AMP402", "AMP403"], severities={"AMP203": "warning", "AMP101": "note"}
    )


def test_without_a_section_the_defaults_count(project):
    project.joinpath("pyproject.toml").write_text("[tool.other]\ntf_amp_kit = 1\n")
    project.joinpath("setup.cfg").write_text("[metadata]\nname = tf_amp_kit\n")
    assert read_settings(project) == Strictness()


def test_the_nearest_folder_with_a_section_counts(project):
    inner = project / "models" / "vision"
    inner.mkdir(parents=True)
    project.joinpath("setup.cfg").write_text(INI)
    inner.joinpath("pyproject.toml").write_text("[project]\nname = 'vision'\n")
    assert read_settings(inner) == BOTH_SAY
    inner.joinpath("pyproject.toml").write_text("[tool.tf_amp_kit]\nfail_on = 'note'\n")
    assert read_settings(inner) == Strictness(fail_on="note")


def test_a_percent_sign_in_setup_cfg_is_one(project):
    project.joinpath("setup.cfg").write_text("[tf_amp_kit]\nper_layer_ignore = 5%.*: AMP101\n")
    assert read_settings(project) == Strictness(per_layer_ignore={"5%.*": ["AMP101"]})


@pytest.mark.parametrize("mark", ["a folder", "a file, as in a worktree"])
def test_the_search_ends_at_the_repository(mark, tmp_path):
    tmp_path.joinpath("setup.cfg").write_text(INI)
    repository = tmp_path / "repository"
    repository.mkdir()
    git = repository / ".git"
    git.mkdir() if mark == "a folder" else git.write_text("gitdir: elsewhere")
    assert read_settings(repository) == Strictness()


def test_the_search_begins_at_the_current_directory(project, monkeypatch):
    project.joinpath("setup.cfg").write_text(INI)
    monkeypatch.chdir(project)
    assert read_settings() == BOTH_SAY


def test_of_both_files_pyproject_counts_and_a_warning_says_so(project):
    project.joinpath("setup.cfg").write_text("[tf_amp_kit]\nfail_on = note\n")
    project.joinpath("pyproject.toml").write_text(TOML)
    words = re.escape(f"[tf_amp_kit] of {project / 'setup.cfg'} is not read: pyproject.toml")
    with pytest.warns(SettingsWarning, match=words):
        assert read_settings(project) == BOTH_SAY


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("pyproject.toml", "ignored = []", "Unknown key. Expected some of ['ignore', 'fail_on'"),
        ("setup.cfg", "ignored = AMP101", "Unknown key. Expected some of ['ignore', 'fail_on'"),
        ("pyproject.toml", "ignore = 'AMP203'", "`ignore` is no list."),
        ("pyproject.toml", "ignore = [203]", "Received: 203."),
        ("setup.cfg", "ignore = AMP999", "Unknown finding code in `ignore`."),
        ("pyproject.toml", "severities = ['AMP203:note']", "`severities` is no table."),
        ("setup.cfg", "severities = AMP203", "`severities` lacks a colon. Expected AMP203:warning"),
        ("setup.cfg", "severities = AMP203:fatal", "Received: 'fatal'."),
        ("pyproject.toml", "fail_on = 'all'", "Unknown severity in `fail_on`."),
        ("setup.cfg", "per_layer_ignore = head", "`per_layer_ignore` lacks a colon."),
        ("setup.cfg", "per_layer_ignore = (: AMP101", "is no regular expression"),
    ],
)
def test_an_error_names_the_file_and_the_key(name, text, words, project):
    section = "tool.tf_amp_kit" if name == "pyproject.toml" else "tf_amp_kit"
    project.joinpath(name).write_text(f"[{section}]\n{text}\n")
    with pytest.raises(SettingsError, match=re.escape(words)) as raised:
        read_settings(project)
    assert str(project / name) in str(raised.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("pyproject.toml", b"[tool.tf_amp_kit\n", "cannot be read"),
        ("setup.cfg", b"tf_amp_kit = 1\n", "cannot be read"),
        ("setup.cfg", b"[tf_amp_kit]\nignore = AMP203 \xff\n", "cannot be read"),
        ("pyproject.toml", b"tool.tf_amp_kit = 1\n", "`tool.tf_amp_kit` is no table"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name, content, words, project):
    project.joinpath(name).write_bytes(content)
    with pytest.raises(SettingsError, match=re.escape(words)) as raised:
        read_settings(project)
    assert str(project / name) in str(raised.value)


def test_a_broken_file_about_something_else_is_no_matter(project):
    project.joinpath("setup.cfg").write_text("what is this\n")
    assert read_settings(project) == Strictness()


@pytest.mark.parametrize(("language", "name"), [("toml", "pyproject.toml"), ("ini", "setup.cfg")])
def test_the_documented_settings_can_be_read(language, name, project):
    (block,) = re.findall(rf"```{language}\n(.*?)```", module.__doc__, re.DOTALL)
    project.joinpath(name).write_text(block)
    assert read_settings(project) == Strictness(
        ignore=["AMP402", "AMP403"],
        per_layer_ignore={"encoder/.*": ["AMP101"]},
        severities={"AMP203": "warning"},
        fail_on="error",
    )


def test_the_example_runs():
    assert doctest.testmod(module).failed == 0
