"""Shorthands for measuring small models, and what is expected of a tensor."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tests.inspection.numerics import reference
from tf_amp_kit.inspection.numerics.measure import measure_numerics
from tf_amp_kit.inspection.numerics.report import NumericsReport, TensorNumerics


def summed(_: Any, y_pred: Any) -> Any:
    """A loss whose gradient is one everywhere."""
    return tf.reduce_sum(y_pred)


def measure(model: Any, *data: Any, **options: Any) -> NumericsReport:
    defaults = {"loss": summed, "precision": "float16", "verbose": 0}
    return measure_numerics(model, *data, **{**defaults, **options})


def tensor(report: NumericsReport, kind: str, path: str, position: int = 0) -> TensorNumerics:
    (found,) = [one for one in report.of_kind(kind) if (one.path, one.position) == (path, position)]
    return found


def names(report: NumericsReport, kind: str) -> list[str]:
    return [one.name for one in report.of_kind(kind)]


def facts(one: TensorNumerics) -> dict[str, Any]:
    """What `reference.exact_facts` tells of the values that were counted."""
    record = one.statistics.to_dict()
    return {name: record[name] for name in reference.exact_facts(np.zeros(1, np.float32))}


def expected(*values: Any) -> dict[str, Any]:
    return reference.exact_facts(np.concatenate([_flat(one) for one in values]))


def counts(one: TensorNumerics) -> tuple[int, int, int]:
    """How many overflow, become zero, become subnormal."""
    judgement = one.judgement
    return judgement.num_overflow, judgement.num_underflow, judgement.num_subnormal


def sequential(shape: Any, *layers: Any, dtype: str | None = None) -> keras.Sequential:
    return keras.Sequential([keras.Input(shape, dtype=dtype), *layers])


def _flat(values: Any) -> NDArray[np.float32]:
    return np.asarray(values, np.float32).ravel()
