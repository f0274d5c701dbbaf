"""Scripts in processes of their own: the same as Python alone would do with them."""

from __future__ import annotations

import pytest

from tests.launcher.running import RUN, run_apart


def test_an_error_is_shown_as_python_shows_it() -> None:
    own, plain = run_apart(*RUN, "fails.py"), run_apart("fails.py")
    assert (own.returncode, own.stdout) == (plain.returncode, plain.stdout) == (1, "before\n")
    # It ends before it imports Keras, which is told where all went well.
    assert own.stderr == plain.stderr


def test_an_error_of_keras_is_shown_without_frames_of_the_launcher() -> None:
    own, plain = run_apart(*RUN, "fails_in_fit.py"), run_apart("fails_in_fit.py")
    assert own.returncode == 1
    assert own.stderr == plain.stderr


def test_standard_input_is_the_scripts() -> None:
    assert run_apart(*RUN, "reads.py", stdin="1\n20\n").stdout == "2\n40\n"


def test_a_script_without_keras_is_told_that_there_was_nothing_to_do() -> None:
    assert "never imported Keras" in run_apart(*RUN, "reads.py").stderr


def test_workers_start_as_under_python() -> None:
    ran = run_apart(*RUN, "workers.py", "spawn", "fork")
    assert ran.stdout.splitlines() == [
        "mixed_bfloat16",
        "spawn ['float32']",
        "fork [2]",
    ]
    assert ran.stderr == ""


def test_a_module_runs_as_python_runs_it() -> None:
    ran = run_apart(*RUN, "-m", "module", "--lr", "3")
    assert ran.stdout.splitlines() == ["['--lr', '3'] True mixed_bfloat16", "True"]


def test_tensorflow_may_come_before_keras() -> None:
    # TensorFlow looks for Keras, and imports it only when it is asked for.
    assert run_apart(*RUN, "tensorflow_first.py").stdout == "mixed_bfloat16\n"


def test_a_script_is_the_main_module() -> None:
    ran = run_apart(*RUN, "module.py", "-m", "x")
    assert ran.stdout.splitlines() == ["['-m', 'x'] False mixed_bfloat16", "True"]


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        ("bf16", "mixed_bfloat16"),
        ("fp16:O3", "float16"),
        ("bf16::raise", "mixed_bfloat16"),
        ("", "float32"),
    ],
)
def test_the_environment_switches_it_on(value: str, policy: str) -> None:
    code = "import tf_amp_kit, keras; print(keras.config.dtype_policy().name)"
    ran = run_apart("-c", code, environment={"TF_AMP_KIT": value})
    assert ran.stdout.strip() == policy


def test_the_environment_tells_what_it_did() -> None:
    code = (
        "import tf_amp_kit, keras; m = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2),"
        "keras.layers.Dense(1)], name='net'); m.compile('sgd', 'mse')"
    )
    ran = run_apart("-c", code, environment={"TF_AMP_KIT": "bf16"})
    assert "net    1 of 2       dense_1" in ran.stderr


def test_an_unknown_precision_in_the_environment_is_an_error() -> None:
    ran = run_apart("-c", "import tf_amp_kit", environment={"TF_AMP_KIT": "bf17"})
    assert ran.returncode == 1
    assert "variable TF_AMP_KIT asks for what there is not" in ran.stderr
    assert "Received: name='bf17'" in ran.stderr


def test_a_script_that_makes_errors_of_warnings_runs() -> None:
    # float16 is slow on most CPUs, which is worth a word in the summary.
    words = ("-W", "error", "-m", "tf_amp_kit", "run", "--amp", "fp16", "module.py")
    ran = run_apart(*words)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0] == "[] False mixed_float16"
