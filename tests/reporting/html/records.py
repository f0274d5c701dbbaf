"""Records of every kind, small and made by hand where that is possible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np

import tf_amp_kit as amp
from tests.comparison.plans import plan_of
from tests.comparison.training.reports import report_of
from tf_amp_kit.inspection.findings import finding
from tf_amp_kit.inspection.report import AuditReport, LayerRow
from tf_amp_kit.tracing.source import Source

ATTACK = "<script>alert(1)</script>"
QUOTES = '" onmouseover="alert(2)'


def audit(num_layers: int = 3, *, name: str = "net") -> AuditReport:
    """Rows `block_0/dense` and so on, of which the second has a finding with hostile text."""
    rows = tuple(
        LayerRow(f"block_{i}/dense", "Dense", "mixed_bfloat16", ("bfloat16",), ("bfloat16",))
        for i in range(num_layers)
    )
    found = finding(
        *("AMP101", "block_1/dense", QUOTES, f"returns float32 {ATTACK}", "cast it"),
        source=Source("net.py", 7, f"return x  # {ATTACK}"),
    )
    return AuditReport(name, "bfloat16", (found,), rows, (f"A remark {ATTACK}.",))


def clean_audit() -> AuditReport:
    return AuditReport("net", "bfloat16", (), audit().rows)


def measured() -> list[Any]:
    """Numerics, gradients, the first NaN and memory of a tiny model."""
    layers = [keras.layers.Dense(3, name="body"), keras.layers.Dense(1, name="head")]
    model = keras.Sequential([keras.Input((4,)), *layers], name="tiny")
    model.compile("adam", "mse")
    x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
    return [
        amp.measure_numerics(model, x, y, precision="fp16", verbose=0),
        amp.compare_gradients(model, x, y, precision="fp16", verbose=0),
        amp.find_nonfinite(model, x, y, verbose=0),
        amp.estimate_memory(model, 8, verbose=0),
    ]


def every_kind() -> list[Any]:
    return [audit(), *measured(), plan_of(), report_of(), amp.detect_hardware()]


def written(records: Any, folder: Path) -> str:
    path = folder / "report.html"
    amp.write_report(records, path)
    return path.read_text(encoding="utf-8")
