import json
import subprocess
import sys
import warnings

import pytest

from tf_amp_kit import cli
from tf_amp_kit.errors import PrecisionError, SlowPrecisionWarning
from tf_amp_kit.hardware import Device, Hardware
from tf_amp_kit.hardware.rules import Verdict

ONE_CPU = Hardware((Device("CPU:0", "cpu", "EPYC", Verdict(False, "slow"), Verdict(True, "ok")),))


@pytest.fixture
def one_cpu(monkeypatch):
    monkeypatch.setattr("tf_amp_kit.hardware.detect_hardware", lambda *, thorough: ONE_CPU)


@pytest.fixture
def add_command(monkeypatch):
    """Puts one more subcommand, `try`, on the command line."""

    def add(run):
        def add_try(commands):
            commands.add_parser("try").set_defaults(run=run)

        monkeypatch.setattr(cli, "_COMMANDS", (*cli._COMMANDS, add_try))

    return add


@pytest.mark.usefixtures("one_cpu")
def test_hardware_prints_the_table(capsys):
    assert cli.main(["hardware"]) == 0
    assert capsys.readouterr().out == f"{ONE_CPU}\n"


@pytest.mark.usefixtures("one_cpu")
def test_hardware_prints_json_on_demand(capsys):
    assert cli.main(["hardware", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ONE_CPU.to_dict()


@pytest.mark.parametrize("argv", [["--help"], ["hardware", "--help"]])
def test_help_is_no_error(argv, capsys):
    assert cli.main(argv) == 0
    assert capsys.readouterr().out.startswith("usage: tf-amp-kit")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "tf-amp-kit: error: the following arguments are required: COMMAND"),
        (["hardware", "--xml"], "tf-amp-kit: error: unrecognized arguments: --xml"),
    ],
)
def test_wrong_usage_returns_two_and_says_what_is_wrong(argv, message, capsys):
    assert cli.main(argv) == 2
    assert capsys.readouterr().err.splitlines()[-1] == message


@pytest.mark.parametrize("code", [0, 1])
def test_the_code_of_a_subcommand_is_returned(add_command, code):
    add_command(lambda arguments: code)
    assert cli.main(["try"]) == code


def test_an_error_of_the_package_is_one_line_and_returns_two(add_command, capsys):
    def fail(arguments):
        raise PrecisionError("Unknown precision.")

    add_command(fail)
    assert cli.main(["try"]) == 2
    assert capsys.readouterr().err == "tf-amp-kit: error: Unknown precision.\n"


def test_an_error_of_the_user_keeps_its_traceback(add_command):
    add_command(lambda arguments: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["try"])


def test_the_entry_point_exits_with_the_code(monkeypatch, add_command):
    add_command(lambda arguments: 1)
    monkeypatch.setattr(sys, "argv", ["tf-amp-kit", "try"])
    with pytest.raises(SystemExit) as exit_info:
        cli.console_main()
    assert exit_info.value.code == 1


def test_warnings_of_the_package_show_no_code(monkeypatch, add_command, capsys):
    def warn(arguments):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("float16 is slow.", SlowPrecisionWarning, stacklevel=1)
        return 0

    add_command(warn)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setattr(warnings, "showwarning", print_warning)
    monkeypatch.setattr(sys, "argv", ["tf-amp-kit", "try"])
    with pytest.raises(SystemExit):
        cli.console_main()
    assert capsys.readouterr().err == "tf-amp-kit: warning: float16 is slow.\n"


def print_warning(message, category, filename, lineno, file=None, line=None):
    """Does what Python does outside of a test run, which records warnings."""
    sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def test_the_package_runs_as_a_module():
    run = subprocess.run(
        [sys.executable, "-m", "tf_amp_kit", "hardware", "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(run.stdout)["devices"][0]["name"] == "CPU:0"
