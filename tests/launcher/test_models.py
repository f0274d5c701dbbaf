"""What scripts are given, as users write them: each runs as it is, in this process."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import keras
import pytest

from tests.launcher.running import RUN, Ran, run_apart, run_here
from tf_amp_kit import current_amp
from tf_amp_kit.cli import main
from tf_amp_kit.precision.policy import forget_warnings


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    compile_before, fit_before = keras.Model.compile, keras.Model.fit
    yield
    forget_warnings()
    assert (keras.Model.compile, keras.Model.fit) == (compile_before, fit_before)
    assert (current_amp(), keras.config.dtype_policy().name) == (None, "float32")
    found = []
    thread = threading.Thread(target=lambda: found.append(keras.config.dtype_policy().name))
    thread.start()
    thread.join()
    assert found == ["float32"]


@pytest.fixture(autouse=True)
def fast_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out what is said of a machine that is slow in half precision."""
    monkeypatch.setattr("tf_amp_kit.hardware.Hardware.slow_reason", lambda *_: None)


def row_of(ran: Ran, model: str) -> list[str]:
    """Returns the words of a model's row in the summary."""
    return next(line.split() for line in ran.summary.splitlines() if line.startswith(model))


def test_the_precision_outlasts_clear_session(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capfd, "--amp", "bf16", script="tuner.py", arguments=("3", "5"))
    assert ran.lines == ["3 bfloat16 mixed_bfloat16", "5 bfloat16 mixed_bfloat16"]


def test_every_model_is_told_of(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capfd, "--amp", "bf16", script="tuner.py", arguments=("3", "5"))
    assert ran.summary == (
        "Ran in bfloat16, level O1\n"
        "\n"
        "Layers with weights, by model:\n"
        "\n"
        "Model    In bfloat16  Pinned\n"
        "-----------------------------\n"
        "trial_3  1 of 2       dense_1\n"
        "trial_5  1 of 2       dense_1\n"
    )


def test_many_models_are_counted(capfd: pytest.CaptureFixture[str]) -> None:
    widths = tuple(map(str, range(1, 13)))
    ran = run_here(capfd, "--amp", "bf16", script="tuner.py", arguments=widths)
    assert ("trial_10 " in ran.summary, "trial_11" in ran.summary) == (True, False)
    assert ran.summary.endswith("... and 2 more models.\n")


def test_quiet_leaves_the_summary_out(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capfd, "--amp", "bf16", "--quiet", script="tuner.py", arguments=("3",))
    assert ran.summary == ""


def test_float32_changes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capfd, "--amp", "fp32", script="tuner.py", arguments=("3",))
    assert ran.lines == ["3 float32 float32"]
    assert ("Pinned" in ran.summary, "left as it is" in ran.summary) == (False, False)


def test_a_thread_that_is_not_waited_for_trains_in_half(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capfd, "--amp", "bf16", script="threads.py")
    assert ran.lines == ["main ends", "thread bfloat16"]
    assert "in_thread  1 of 2       dense_1" in ran.summary


# Two weights of 0, SGD(0.25), a gradient of -2 for each: 0.5 if nothing divides it.
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_own_train_steps_learn_what_they_do_without(
    capfd: pytest.CaptureFixture[str], precision: str
) -> None:
    ran = run_here(capfd, "--amp", precision, script="steps.py")
    names = ("scaling", "forgetting", "handing", "helped")
    assert ran.lines == [f"{name} 0.5 0.5" for name in names]


def test_a_train_step_that_scales_no_loss_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    summary = run_here(capfd, "--amp", "fp16", script="steps.py").summary
    assert "'forgetting': its train_step scales no loss" in summary
    assert summary.count("scales no loss") == 1
    assert all(f"'{name}'" not in summary for name in ("scaling", "handing", "helped"))


def test_a_gan_trains_with_its_two_optimizers(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capfd, "--amp", "fp16", script="gan.py")
    assert ran.lines == ["float16 ['fooled', 'right']", "True"]
    assert "'gan': its train_step scales no loss" in ran.summary


def test_the_policy_of_a_script_wins(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capfd, "--amp", "bf16", script="own.py")
    assert ran.lines == ["float16 keras"]
    assert "set its own policy, 'mixed_float16', which was left alone" in ran.summary


def test_what_a_script_brings_itself_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capfd, "--amp", "fp16", script="monitored.py")
    assert ran.lines == ["['loss', 'my_loss_scale', 'my_skip_rate', 'my_skipped_steps'] 64.0"]


def test_a_model_compiled_again_is_wrapped_once(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capfd, "--amp", "fp16", script="again.py")
    assert ran.lines == ["LossScaleOptimizer SGD loss"]
    # Two fits of two batches.
    assert row_of(ran, "twice")[-3:] == ["4", "0", "32768"]


def test_a_float32_file_goes_on_as_it_was(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run_here(capfd, "--amp", "fp16", script="files.py")
    # Four steps before the file, and four after it.
    assert ran.lines == ["Adam 8"]
    assert "left as it is: its layers have policies of their own, in float32." in ran.summary


def test_a_loop_of_ones_own_is_told_that_it_scales_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    ran = run_here(capfd, "--amp", "fp16", script="loop.py")
    assert ran.lines == ["float16"]
    assert "No model was compiled: nothing is pinned, and no loss is scaled." in ran.summary


def test_a_loop_without_fit_is_counted(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capfd, "--amp", "fp16", script="batches.py", arguments=("3",))
    assert row_of(ran, "by_batch")[-3:] == ["3", "0", "32768"]


def test_a_report_is_where_the_user_was(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_here(capfd, "--report", "new/report.html", script="batches.py", arguments=("1",))
    monkeypatch.chdir(tmp_path)
    assert (tmp_path / "new" / "report.html").is_file()


def test_without_jinja2_a_report_is_refused_at_once(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ran = run_here(capfd, "--report", "report.html", script="batches.py", arguments=("1",))
    assert (ran.code, '--report needs jinja2: pip install "tf_amp_kit[html]"' in ran.summary) == (
        2,
        True,
    )


def test_the_level_is_what_was_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capfd, "--amp", "fp16", "--level", "O2", script="again.py")
    assert ran.summary.startswith("Ran in float16, level O2\n")


def test_an_audit_names_findings(capfd: pytest.CaptureFixture[str]) -> None:
    summary = run_here(
        capfd, "--amp", "bf16", "--audit", script="tuner.py", arguments=("3",)
    ).summary
    header = summary.splitlines()[4]
    assert header.split() == ["Model", "In", "bfloat16", "Pinned", "Findings"]


def test_the_settings_of_the_project_hold_for_the_audit(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "wide.py"
    script.write_text(
        "import keras\nfrom keras import ops\n"
        "class Wide(keras.layers.Layer):\n"
        "    def call(self, x): return ops.cast(x, 'float32')\n"
        "model = keras.Sequential([keras.Input((4,)), Wide(), keras.layers.Dense(3),"
        " keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
    )
    cells = []
    for text in ("", '[tool.tf_amp_kit]\nignore = ["AMP101", "AMP106", "AMP402"]\n'):
        tmp_path.joinpath("pyproject.toml").write_text(text)
        ran = run_here(capfd, "--amp", "bf16", "--audit", script=str(script))
        cells.append(ran.summary.splitlines()[6].split("dense_1")[1].strip())
    assert ("AMP101" in cells[0], cells[1]) == (True, "none")


def test_a_script_that_fails_is_not_called_fine(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script, report = tmp_path / "fails.py", tmp_path / "report.html"
    script.write_text("import keras\nraise SystemExit(3)\n")
    ran = run_here(capfd, "--amp", "fp32", "--report", str(report), script=str(script))
    assert (ran.code, "ended with exit code 3" in ran.summary) == (3, True)
    assert "The model is fine" not in report.read_text()


def test_a_generator_loses_no_batch_to_the_building(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capfd, "--amp", "bf16", script="generator.py")
    assert ran.lines == ["[0, 1, 2]", "bfloat16"]
    assert "of_generator  1 of 2       head" in ran.summary


def test_an_unbuilt_model_of_two_replicas_trains() -> None:
    assert run_apart(*RUN, "replicas.py").stdout == "bfloat16\n"


def test_a_report_shows_the_run_and_the_audits(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    options = ("--amp", "bf16", "--audit", "--report", str(file))
    ran = run_here(capfd, *options, script="tuner.py", arguments=("3", "5"))
    assert ran.summary.endswith(f"Report: {file}\n")
    titles = re.findall(r'<h2 id="title-\d+">(.*)</h2>', file.read_text())
    assert titles == ["Run", "Audit of &#39;trial_3&#39;", "Audit of &#39;trial_5&#39;"]


@pytest.mark.parametrize("way", ["fit", "loop"])
def test_layers_that_fail_in_half_run_in_float32(
    capfd: pytest.CaptureFixture[str], way: str
) -> None:
    ran = run_here(capfd, "--amp", "fp16", script="conflicts.py", arguments=(way,))
    assert ran.lines == ["{'times_ones': 'float32', 'noisy': 'float32'}"]
    assert (
        "Pinned, because they fail in half precision: times_ones (TimesOnes, float32 and float16 "
        "meet in Mul), noisy (Noisy, float32 and float16 meet in AddV2)."
    ) in " ".join(ran.summary.split())


def test_layers_that_fail_in_half_may_raise(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capfd, "--amp", "bf16", "--on-conflict", "raise", script="conflicts.py")
    assert ran.code == 1


def test_the_exit_code_is_the_scripts(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    codes = []
    for number, end in enumerate(("", "raise SystemExit(7)", "raise SystemExit('text')", "1 / 0")):
        script = tmp_path / f"{number}.py"
        script.write_text(f"import keras\n{end}\n")
        codes.append(run_here(capfd, script=str(script)).code)
    assert codes == [0, 7, 1, 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--amp", "bf17", "a.py"], "Received: name='bf17'"),
        (["no_such_file.py"], "there is no file 'no_such_file.py'; a module comes after -m"),
        ([], "the following arguments are required"),
    ],
)
def test_what_cannot_run_is_usage(
    capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["run", *words]) == 2
    assert message in capfd.readouterr().err


def test_a_level_that_does_not_fit_is_usage(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capfd, "--amp", "bf16", "--level", "O0", script="tuner.py", arguments=("3",))
    assert (ran.code, ran.lines) == (2, [])
    assert "Level 'O0' is float32 everywhere." in ran.summary
