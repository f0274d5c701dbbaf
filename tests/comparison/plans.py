"""Precision plans made by hand: their records take any numbers."""

from __future__ import annotations

import math
from typing import Any

from tf_amp_kit.comparison.planning.record.parts import (
    BatchDifference,
    CurvePoint,
    Errors,
    UnitEffect,
)
from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan
from tf_amp_kit.comparison.timing import Quartiles, StepTimes
from tf_amp_kit.precision.pinning.pins import Pin, Pins

SOFTMAX = UnitEffect("block/softmax", "Softmax", math.inf, 70000.0, "non-finite", True, math.inf)
HEAD = UnitEffect("head", "Dense", 0.25, 12.5, "error", True, 0.25, 0.125)
BODY = UnitEffect("block/body", "Dense", 0.0005, 3.0, "error", False)
TIMES = StepTimes(
    "forward and backward pass",
    20,
    Quartiles(0.010, 0.012, 0.014),
    Quartiles(0.005, 0.00625, 0.0075),
    Quartiles(1.5, 2.0, 2.5),
)


def pins_of(*units: UnitEffect, model_name: str = "net") -> Pins:
    pins = (Pin(unit.path, unit.layer_class, unit.reason, in_files="") for unit in units)
    return Pins(model_name, tuple(pins))


def plan_of(**changes: Any) -> PrecisionPlan:
    """A plan with two pins among three layers that meets its tolerance, and with every field."""
    fields: dict[str, Any] = {
        "model_name": "net",
        "precision": "float16",
        "metric": "output",
        "tolerance": 0.002,
        "units": (SOFTMAX, HEAD, BODY),
        "pins": pins_of(SOFTMAX, HEAD),
        "half": Errors(math.inf, math.inf, math.inf, math.nan),
        "planned": Errors(0.0012, 0.003, 0.01, 0.99995),
        "half_held_out": Errors(0.75, 0.5, 0.25, 0.5),
        "planned_held_out": Errors(0.0013, 0.004, 0.02, 0.9999),
        "between_batches": BatchDifference(0.3, 1.65, -0.25),
        "curve": (
            CurvePoint(0, math.inf, math.inf),
            CurvePoint(1, 0.25, 0.3),
            CurvePoint(2, 0.001, 0.0012),
            CurvePoint(3, 0.0),
        ),
        "num_batches": 4,
        "num_held_out_batches": 1,
        "num_samples": 128,
        "num_validations": 3,
        "num_passes": 40,
        "seconds": 2.25,
        "step_times": TIMES,
        "notes": ("Something was seen.",),
    }
    return PrecisionPlan(**{**fields, **changes})


def clean_plan(**changes: Any) -> PrecisionPlan:
    """A plan without pins, of a model without a loss, checked on one batch."""
    errors = Errors(0.0004)
    fields: dict[str, Any] = {
        "units": (),
        "pins": pins_of(),
        "half": errors,
        "planned": errors,
        "half_held_out": None,
        "planned_held_out": None,
        "between_batches": None,
        "curve": (),
        "num_batches": 1,
        "num_held_out_batches": 0,
        "num_samples": 32,
        "num_validations": 1,
        "num_passes": 2,
        "seconds": 0.5,
        "step_times": None,
        "notes": (),
    }
    return plan_of(**{**fields, **changes})
