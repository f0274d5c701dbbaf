"""The names that `import tf_amp_kit` promises."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

import tf_amp_kit as amp


def test_the_promised_names_are_all_there() -> None:
    assert set(amp.__all__) >= {
        "AuditReport",
        "ComparisonReport",
        "Finding",
        "GradientComparison",
        "NonFiniteReport",
        "NumericsReport",
        "compare_gradients",
        "compare_precisions",
        "find_nonfinite",
        "measure_numerics",
        "plan_precision",
        "plot_costs",
        "plot_curves",
        "plot_exponents",
        "plot_gradient_histograms",
        "plot_gradients",
        "plot_layers",
        "plot_plan",
        "PlanError",
        "PrecisionPlan",
        "ReportError",
        "apply_plan",
        "LossScaleOptimizer",
        "LossScaleState",
        "MemoryEstimate",
        "estimate_memory",
        "largest_batch_size",
        "amp_scope",
        "audit_layer_dtypes",
        "convert_model",
        "current_amp",
        "detect_hardware",
        "disable_amp",
        "enable_amp",
        "float32_op",
        "is_supported",
        "layers",
        "load_model",
        "make_loss_scale_optimizer",
        "pin_float32",
        "Pin",
        "Pins",
        "safe_epsilon",
        "safe_mask_value",
        "to_float32",
    }


@pytest.mark.parametrize("name", amp.__all__)
def test_a_public_name_resolves_to_what_bears_it(name: str) -> None:
    # A module's own name has its home before it.
    assert getattr(amp, name).__name__.rpartition(".")[2] == name


@pytest.mark.parametrize("name", amp.__all__)
def test_a_public_name_has_a_docstring_with_an_example(name: str) -> None:
    docstring = inspect.getdoc(getattr(amp, name)) or ""
    assert re.search(r"^Example:\n\n>>> ", docstring, re.MULTILINE)


@pytest.mark.parametrize("name", amp.__all__)
def test_a_public_name_is_listed_by_dir(name: str) -> None:
    assert name in dir(amp)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tf_amp_kit' has no attribute 'enable_pma'"):
        amp.enable_pma  # noqa: B018


def test_importing_the_package_before_keras_registers_what_files_need() -> None:
    code = (
        "import tf_amp_kit, keras\n"
        "for name in ('LossScaleOptimizer', 'Float32', 'LogSoftmax', 'Sum'):\n"
        "    print(keras.saving.get_registered_object(f'tf_amp_kit>{name}').__name__)"
    )
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["LossScaleOptimizer", "Float32", "LogSoftmax", "Sum"]


def test_the_command_line_prints_its_help_without_tensorflow() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "tf_amp_kit", "--help"]
    seen = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "tf_amp_kit.cli" in seen and "tensorflow" not in seen
