"""The study keeps what its table and figures need, as JSON that anything reads."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.benchmarks.study import curve, digest, kept, plain, table
from tests.benchmarks.study_nets import STUDIES

PAIR = (np.zeros((4, 2), "float32"), np.ones(4, "int64"))


def test_a_curve_is_the_means_of_ten_steps() -> None:
    losses = [float(step) for step in range(25)]

    # 0 to 9, 10 to 19, and the five that are left.
    assert curve(losses) == [4.5, 14.5, 22.0]


def test_a_curve_leaves_out_steps_that_were_skipped() -> None:
    assert curve([math.nan, 1.0, 3.0]) == [2.0]
    assert math.isnan(curve([math.nan] * 10)[0])


def test_a_digest_tells_other_data() -> None:
    other = (PAIR[0] + 1, PAIR[1])

    assert digest(PAIR, PAIR) == digest(PAIR, PAIR)
    assert digest(PAIR, other) != digest(PAIR, PAIR)
    assert len(digest(PAIR)) == 12


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_none_in_the_file(value: float) -> None:
    assert plain({"a": (value, 1.5)}) == {"a": [None, 1.5]}


def test_the_table_tells_each_precision_of_each_net() -> None:
    net = kept(STUDIES["CNN"], PAIR, PAIR, _report())

    text = table({"CNN": json.loads(json.dumps(net, allow_nan=False))})

    # Learned: 2.0. Worse by 0.01 of it, with a bound of 0.04.
    assert text.splitlines()[2:] == [
        "| CNN | float32 | 0.3000 | 0.9000 accuracy | - | - | - | 5.0 ms | - | 300 MB | 12 MB |",
        "| CNN | float16 | 0.3200 | 0.8900 accuracy | +1.00% | 4.00% | equal "
        "| 10.0 ms | - | - | - |",
    ]


def _report() -> Any:
    """Return what a report has, as far as the study reads it."""
    quick, slow = ({"seconds": {"median": seconds}} for seconds in (0.005, 0.01))
    results = (
        _result("float32", None, (0.3, math.nan, math.nan), 0.9, quick, (300e6, 12e6)),
        _result("float16", {"outcome": "equal"}, (0.32, 0.01, 0.08), 0.89, slow, (None, None)),
    )
    run = SimpleNamespace(
        name="float32",
        seed=0,
        skipped_steps=0,
        loss_scale=1.0,
        seconds=2.0,
        failure="",
        losses=[2.3, 0.3],
        evaluations=[SimpleNamespace(step=2, values={"loss": 0.3})],
    )
    names = ("machine", "num_steps", "batch_size", "seeds", "tolerance", "recommendation", "notes")
    return SimpleNamespace(results=results, runs=(run,), **dict.fromkeys(names))


def _result(
    name: str,
    verdict: Any,
    loss: tuple[float, float, float],
    accuracy: float,
    speed: Any,
    memory: tuple[float | None, float | None],
) -> Any:
    value, share, bound = loss
    differences = [
        {"measure": "val_loss", "value": value, "share": share, "bound": bound, "learned": 2.0},
        {"measure": "val_accuracy", "value": accuracy},
    ]
    return SimpleNamespace(
        name=name,
        level="O1",
        num_pins=1,
        verdict=verdict,
        differences=differences,
        speed=speed,
        jit_speed=None,
        memory=dict(zip(("measured_bytes", "estimated_bytes"), memory, strict=True)),
    )
