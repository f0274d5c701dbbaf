"""Mixed precision you can trust, for Keras 3 on TensorFlow.

Example:

>>> import keras
>>> import tf_amp_kit as amp
>>> with amp.amp_scope("bf16"):
...     keras.layers.Dense(2).dtype_policy.name
'mixed_bfloat16'
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tf_amp_kit import errors as errors

if TYPE_CHECKING:
    from tf_amp_kit.comparison.memory.estimate import estimate_memory, largest_batch_size
    from tf_amp_kit.comparison.memory.record import MemoryEstimate
    from tf_amp_kit.comparison.planning.find import plan_precision
    from tf_amp_kit.comparison.planning.record.apply import apply_plan
    from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan
    from tf_amp_kit.comparison.training.compare import compare_precisions
    from tf_amp_kit.comparison.training.record.report import ComparisonReport
    from tf_amp_kit.errors import PlanError, ReportError
    from tf_amp_kit.hardware import detect_hardware
    from tf_amp_kit.inspection.audit import AuditReport, Finding, audit_layer_dtypes
    from tf_amp_kit.inspection.monitor import AmpMonitor
    from tf_amp_kit.inspection.nonfinite.find import find_nonfinite
    from tf_amp_kit.inspection.nonfinite.report import NonFiniteReport
    from tf_amp_kit.inspection.numerics.gradients import compare_gradients
    from tf_amp_kit.inspection.numerics.measure import measure_numerics
    from tf_amp_kit.inspection.numerics.pairs import GradientComparison
    from tf_amp_kit.inspection.numerics.report import NumericsReport
    from tf_amp_kit.precision import layers as layers
    from tf_amp_kit.precision.conversion.convert import convert_model, to_float32
    from tf_amp_kit.precision.conversion.loading import load_model
    from tf_amp_kit.precision.layers.constants import safe_epsilon, safe_mask_value
    from tf_amp_kit.precision.layers.operations import float32_op
    from tf_amp_kit.precision.loss_scaling.factory import make_loss_scale_optimizer
    from tf_amp_kit.precision.loss_scaling.optimizer import LossScaleOptimizer
    from tf_amp_kit.precision.loss_scaling.shadows import Protection
    from tf_amp_kit.precision.loss_scaling.state import LossScaleState
    from tf_amp_kit.precision.pinning.pin import pin_float32
    from tf_amp_kit.precision.pinning.pins import Pin, Pins
    from tf_amp_kit.precision.policy import (
        amp_scope,
        current_amp,
        disable_amp,
        enable_amp,
        is_supported,
    )
    from tf_amp_kit.precision.state import AmpState
    from tf_amp_kit.reporting.comparison_plots import (
        plot_costs,
        plot_curves,
        plot_gradient_histograms,
    )
    from tf_amp_kit.reporting.html import write_report
    from tf_amp_kit.reporting.plots import (
        plot_exponents,
        plot_gradients,
        plot_layers,
        plot_plan,
    )

__version__ = "0.1.0"

__all__ = [
    "AmpMonitor",
    "AmpState",
    "AuditReport",
    "ComparisonReport",
    "Finding",
    "GradientComparison",
    "LossScaleOptimizer",
    "LossScaleState",
    "MemoryEstimate",
    "NonFiniteReport",
    "NumericsReport",
    "Pin",
    "Pins",
    "PlanError",
    "PrecisionPlan",
    "Protection",
    "ReportError",
    "amp_scope",
    "apply_plan",
    "audit_layer_dtypes",
    "compare_gradients",
    "compare_precisions",
    "convert_model",
    "current_amp",
    "detect_hardware",
    "disable_amp",
    "enable_amp",
    "estimate_memory",
    "find_nonfinite",
    "float32_op",
    "is_supported",
    "largest_batch_size",
    "layers",
    "load_model",
    "make_loss_scale_optimizer",
    "measure_numerics",
    "pin_float32",
    "plan_precision",
    "plot_costs",
    "plot_curves",
    "plot_exponents",
    "plot_gradient_histograms",
    "plot_gradients",
    "plot_layers",
    "plot_plan",
    "safe_epsilon",
    "safe_mask_value",
    "to_float32",
    "write_report",
]

# Where the public names are at home; loaded on first use.
_HOMES: Final = {
    "AmpMonitor": "tf_amp_kit.inspection.monitor",
    "AmpState": "tf_amp_kit.precision.state",
    "AuditReport": "tf_amp_kit.inspection.audit",
    "ComparisonReport": "tf_amp_kit.comparison.training.record.report",
    "Finding": "tf_amp_kit.inspection.audit",
    "GradientComparison": "tf_amp_kit.inspection.numerics.pairs",
    "LossScaleOptimizer": "tf_amp_kit.precision.loss_scaling.optimizer",
    "LossScaleState": "tf_amp_kit.precision.loss_scaling.state",
    "MemoryEstimate": "tf_amp_kit.comparison.memory.record",
    "NonFiniteReport": "tf_amp_kit.inspection.nonfinite.report",
    "NumericsReport": "tf_amp_kit.inspection.numerics.report",
    "Pin": "tf_amp_kit.precision.pinning.pins",
    "Pins": "tf_amp_kit.precision.pinning.pins",
    "PlanError": "tf_amp_kit.errors",
    "PrecisionPlan": "tf_amp_kit.comparison.planning.record.plan",
    "Protection": "tf_amp_kit.precision.loss_scaling.shadows",
    "ReportError": "tf_amp_kit.errors",
    "amp_scope": "tf_amp_kit.precision.policy",
    "apply_plan": "tf_amp_kit.comparison.planning.record.apply",
    "audit_layer_dtypes": "tf_amp_kit.inspection.audit",
    "compare_gradients": "tf_amp_kit.inspection.numerics.gradients",
    "compare_precisions": "tf_amp_kit.comparison.training.compare",
    "convert_model": "tf_amp_kit.precision.conversion.convert",
    "current_amp": "tf_amp_kit.precision.policy",
    "detect_hardware": "tf_amp_kit.hardware",
    "disable_amp": "tf_amp_kit.precision.policy",
    "enable_amp": "tf_amp_kit.precision.policy",
    "estimate_memory": "tf_amp_kit.comparison.memory.estimate",
    "find_nonfinite": "tf_amp_kit.inspection.nonfinite.find",
    "float32_op": "tf_amp_kit.precision.layers.operations",
    "is_supported": "tf_amp_kit.precision.policy",
    "largest_batch_size": "tf_amp_kit.comparison.memory.estimate",
    "load_model": "tf_amp_kit.precision.conversion.loading",
    "make_loss_scale_optimizer": "tf_amp_kit.precision.loss_scaling.factory",
    "measure_numerics": "tf_amp_kit.inspection.numerics.measure",
    "pin_float32": "tf_amp_kit.precision.pinning.pin",
    "plan_precision": "tf_amp_kit.comparison.planning.find",
    "plot_costs": "tf_amp_kit.reporting.comparison_plots",
    "plot_curves": "tf_amp_kit.reporting.comparison_plots",
    "plot_exponents": "tf_amp_kit.reporting.plots",
    "plot_gradient_histograms": "tf_amp_kit.reporting.comparison_plots",
    "plot_gradients": "tf_amp_kit.reporting.plots",
    "plot_layers": "tf_amp_kit.reporting.plots",
    "plot_plan": "tf_amp_kit.reporting.plots",
    "safe_epsilon": "tf_amp_kit.precision.layers.constants",
    "safe_mask_value": "tf_amp_kit.precision.layers.constants",
    "to_float32": "tf_amp_kit.precision.conversion.convert",
    "write_report": "tf_amp_kit.reporting.html",
}

# Public names that are modules.
_MODULES: Final = {"layers": "tf_amp_kit.precision.layers"}

# Modules with classes that files name. Keras finds those only if they are registered.
_NAMED_IN_FILES: Final = (
    "tf_amp_kit.precision.layers",
    "tf_amp_kit.precision.loss_scaling.optimizer",
    "tf_amp_kit.precision.pinning.policy_map",
)


def register_for_files() -> None:
    """Imports Keras and registers what a saved model or optimizer may name.

    Importing the package does so, except for its own command line, which prints
    its help without TensorFlow and imports it without what it logs.

    Example:

    >>> import keras
    >>> register_for_files()
    >>> keras.saving.get_registered_object("tf_amp_kit>LossScaleOptimizer").__name__
    'LossScaleOptimizer'
    """
    for module in _NAMED_IN_FILES:
        import_module(module)


def _is_own_command_line() -> bool:
    program = sys.argv[0] if sys.argv else ""
    if program == "-m":  # as long as Python looks for the module to run
        return any(
            option.startswith("-") and option.endswith("m") and module == __name__
            for option, module in pairwise(sys.orig_argv)
        )
    return Path(program).stem == "tf-amp-kit"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = import_module(_MODULES[name])
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if not _is_own_command_line():
    register_for_files()
    if "TF_AMP_KIT" in os.environ:
        import_module("tf_amp_kit.launcher.environment").start_if_asked()
