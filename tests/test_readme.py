"""What the README shows is what happens."""

from __future__ import annotations

import doctest
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tf_amp_kit import cli, errors
from tf_amp_kit.hardware import Device, Hardware
from tf_amp_kit.hardware.facts import CpuFacts
from tf_amp_kit.hardware.rules import judge_cpu
from tf_amp_kit.inspection.findings import CODES

README = Path(__file__).parent.parent / "README.md"

# Losses and scores differ from machine to machine.
MEASURED = re.compile(r"[+-]?\d+\.\d+(?= |%|$)", re.MULTILINE)


def marked_blocks(kind: str) -> dict[str, str]:
    """Returns the code blocks below comments such as `<!-- file: name -->`."""
    pattern = rf"^<!-- {kind}: ([^\n]+) -->\n```\w+\n(.*?)^```$"
    return dict(re.findall(pattern, README.read_text(), re.MULTILINE | re.DOTALL))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Puts the README's files into a folder of their own, and goes there."""
    blocks = marked_blocks("file")
    for name, text in blocks.items():
        tmp_path.joinpath(name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in blocks:
        sys.modules.pop(Path(name).stem, None)


@pytest.fixture
def fast_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out what the audit says of a machine that is slow in half precision."""
    monkeypatch.setattr("tf_amp_kit.hardware.slow_reason", lambda dtype: None)


@pytest.mark.usefixtures("files")
def test_the_sessions_print_what_the_readme_shows() -> None:
    result = doctest.testfile(str(README), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def test_every_python_block_is_run() -> None:
    blocks = re.findall(r"^(.*)\n```python\n(.)", README.read_text(), re.MULTILINE)
    assert [start for before, start in blocks if not before.startswith("<!-- file:")] == [">"] * 3


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("demo", 0),
        ("audit network:build_model --amp bf16", 1),
        ("run --amp bf16 --audit train.py", 0),
    ],
)
@pytest.mark.usefixtures("files", "fast_machine")
def test_a_command_prints_what_the_readme_shows(
    command: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command.split()) == code
    # A launched script has standard output to itself.
    both = "".join(capsys.readouterr())
    shown, printed = (MEASURED.sub("#", text) for text in (marked_blocks("output")[command], both))
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(shown, printed, flags), printed


def test_the_line_about_hardware_is_what_such_a_machine_prints() -> None:
    facts = CpuFacts(
        "x86",
        features=frozenset({"avx512f", "avx512_bf16"}),
        onednn_is_enabled=True,
        onednn_accepts={"float16": False, "bfloat16": True},
    )
    verdicts = (judge_cpu(facts, precision) for precision in ("float16", "bfloat16"))
    hardware = Hardware((Device("CPU:0", "cpu", "AMD EPYC", *verdicts),))
    assert f'"{str(hardware).splitlines()[0]}"' in README.read_text()


@pytest.mark.usefixtures("files")
def test_the_example_test_fails_until_the_network_is_repaired(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import test_network

    with pytest.raises(errors.FindingsError, match="AMP101"):
        test_network.test_the_network_computes_in_half()

    source = files.joinpath("network.py").read_text()
    repaired = source.replace("np.float32(2)", "ops.cast(2, self.compute_dtype)")
    repaired = repaired.replace("Dense(1)", 'Dense(1, dtype="float32")')
    names: dict[str, object] = {}
    exec(compile(repaired, "network.py", "exec"), names)
    monkeypatch.setattr(test_network, "build_model", names["build_model"])
    test_network.test_the_network_computes_in_half()


def test_the_table_of_rules_has_every_code_severity_and_subject() -> None:
    rows = re.findall(r"\| (AMP\d+) \| (\w+) \| ([^|]+) (?=\|)", README.read_text())
    assert {code: (severity, subject) for code, severity, subject in rows} == CODES


def test_two_commands_do_all_the_setting_up() -> None:
    commands = re.findall(r"^<!-- command: (\w+) -->\n```bash\n.+\n```$", README.read_text(), re.M)
    assert commands == ["demo", "test"]


def test_the_readme_is_short_enough_to_read() -> None:
    assert len(README.read_text().splitlines()) <= 200


def skeleton(text: str) -> dict[str, list[str]]:
    """Returns what both languages share: code, the shape of tables, links and headings."""
    fenced = r"(?:^<!-- [^\n]+ -->\n)?^```\w+\n.*?^```$"
    prose = re.sub(fenced, "", text, flags=re.MULTILINE | re.DOTALL)
    return {
        "blocks": re.findall(fenced, text, re.MULTILINE | re.DOTALL),
        "spans": sorted(re.findall(r"`[^`\n]+`", prose)),
        "links": re.findall(r"\]\(([^)]+)\)", prose)[1:],  # the first leads to the other one
        "headings": re.findall(r"^#+ ", prose, re.MULTILINE),
        "cells": [str(line.count("|")) for line in prose.splitlines() if line.startswith("|")],
        "numbers": sorted(re.findall(r"\d+\.\d+|AMP\d+", prose)),
        "bullets": re.findall(r"^- ", prose, re.MULTILINE),
    }


@pytest.mark.parametrize("part", skeleton(""))
def test_the_chinese_readme_keeps_step(part: str) -> None:
    chinese = README.with_name("README.zh-CN.md").read_text(encoding="utf-8")
    assert skeleton(chinese)[part] == skeleton(README.read_text(encoding="utf-8"))[part]
