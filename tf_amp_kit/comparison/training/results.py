"""From what was found out to the report: differences, verdicts, recommendation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import keras
import tensorflow as tf

from tf_amp_kit import hardware
from tf_amp_kit.comparison.training.candidates import FLOAT32, Candidate
from tf_amp_kit.comparison.training.judging import differences_between, judge, measure_of
from tf_amp_kit.comparison.training.recommending import recommend
from tf_amp_kit.comparison.training.record.parts import MemoryUse, PrecisionResult, TrainingRun
from tf_amp_kit.comparison.training.record.report import ComparisonReport
from tf_amp_kit.comparison.training.setup import Findings, Setup

__all__ = ["report_of"]


def report_of(setup: Setup, found: Findings, seconds: float) -> ComparisonReport:
    """Judges what was found out, and freezes it.

    Args:
        setup: What is compared.
        found: What was found out.
        seconds: How long that took.
    """
    reference = _finished(found, FLOAT32)
    results = tuple(_result(setup, found, one, reference) for one in setup.candidates)
    return ComparisonReport(
        model_name=found.model_name,
        machine=_machine(),
        batch_size=found.batch_size,
        num_steps=setup.schedule.num_steps,
        seeds=setup.seeds,
        tolerance=setup.tolerance,
        measure=measure_of(reference),
        results=results,
        runs=tuple(found.runs),
        recommendation=recommend(results, found.odd_layers),
        seconds=seconds,
        notes=tuple(found.notes),
    )


def _finished(found: Findings, name: str) -> list[TrainingRun]:
    return [run for run in found.runs if run.name == name and not run.failure]


def _result(
    setup: Setup, found: Findings, candidate: Candidate, reference: Sequence[TrainingRun]
) -> PrecisionResult:
    name = candidate.name
    own = _finished(found, name)
    differences = differences_between(reference, own, found.directions)
    verdict = judge(
        [run for run in found.runs if run.name == name],
        differences,
        num_steps=setup.schedule.num_steps,
        tolerance=setup.tolerance,
    )
    memory = found.memory.get(name, MemoryUse())
    return PrecisionResult(
        name=name,
        precision=candidate.state.precision,
        level=candidate.state.level,
        num_pins=found.num_pins.get(name, 0),
        verdict=None if candidate.is_reference else verdict,
        differences=differences,
        gradients=found.gradients.get(name, ()),
        speed=found.speeds.get((name, False)),
        jit_speed=found.speeds.get((name, True)),
        memory=replace(memory, measured_bytes=_rise_of(own)),
    )


def _rise_of(runs: Sequence[TrainingRun]) -> int | None:
    """Returns the largest rise of the resident set, if the runs had processes of their own."""
    rises = [
        run.peak_bytes - run.base_bytes
        for run in runs
        if run.peak_bytes is not None and run.base_bytes is not None
    ]
    return max(rises, default=None)


def _machine() -> str:
    device = hardware.detect_hardware().default_device
    named = "no device" if device is None else f"{device.name} {device.model or ''}".strip()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{named}, {cores} CPU cores, TensorFlow {tf.__version__}, Keras {keras.__version__}"
