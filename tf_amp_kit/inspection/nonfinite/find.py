"""Finding the first NaN or Inf of a train step."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from typing import Any

import keras

from tf_amp_kit.data import (
    DEFAULT_BATCH_SIZE,
    Batch,
    as_data,
    batch_specs,
    batches_of,
    check_num_batches,
    count_batches,
)
from tf_amp_kit.inspection.nonfinite.case import Case
from tf_amp_kit.inspection.nonfinite.report import NonFiniteOrigin, NonFiniteReport
from tf_amp_kit.inspection.nonfinite.saving import save_batch, writable
from tf_amp_kit.inspection.readings import checked_loss_scale
from tf_amp_kit.progress import working
from tf_amp_kit.tracing.model_check import check_keras_model

__all__ = ["NonFiniteOrigin", "NonFiniteReport", "find_nonfinite"]


def find_nonfinite(
    model: keras.Model,
    data: Any,
    y: Any = None,
    *,
    loss: Any = None,
    loss_scale: float | None = None,
    batches: int | None = None,
    batch_size: int | None = DEFAULT_BATCH_SIZE,
    save_to: str | os.PathLike[str] | None = None,
    verbose: int = 1,
) -> NonFiniteReport:
    """Finds the first NaN or Inf of a train step: the layer, the operation, the line, and why.

    Use it when a loss is NaN, when steps are skipped all the time, or to search a
    dataset for the batch that does it. Each batch runs through one train step
    (forward pass with `training=True`, loss, gradients, compiled metrics) in the
    precision that the model is in; weights, statistics, seeds and metrics are as
    before afterwards. All operations are looked at, those in recurrent cells, loops,
    branches and `tf.function`s too. NaN and Inf that reach nothing are nobody's
    business: an attention mask of -inf is not reported. The update of the weights is
    left out, and a `train_step` of the model's own is not called.

    Args:
        model: A Keras model, compiled unless `loss` is given.
        data: `(x, y[, sample_weight])` as arrays or tensors, a `tf.data.Dataset` or a
            Keras `PyDataset` of batches, or `x` alone. The search ends at the first
            bad batch.
        y: The targets, if `data` is `x`.
        loss: What `compile` takes as `loss`; None for the compiled one. A plain
            function is called as a loop of your own would, `loss(y, y_pred)`, on what
            the model returns, half precision or not.
        loss_scale: What to multiply the loss by. None means the scale that the
            optimizer is at, and 1 for an optimizer that does not scale.
        batches: How many batches to look at, if none is bad; None for all. Endless
            data need a number.
        batch_size: How many samples of arrays are a batch; None for all of them.
        save_to: Where to save the bad batch, as an `.npz` file with keys such as
            `x/0`, `y/0`, `sample_weight/0`.
        verbose: 1 prints the report, and on a terminal how far the search is; 0 is
            silent.

    Returns:
        A `NonFiniteReport`, whose `origin` is None if every batch was clean.

    Raises:
        ModelError: If it is not a Keras 3 model, or has no loss.
        InputsError: If the data cannot be read, or do not fit the model.
        TracingError: If the model's Python code needs values.
        OptimizerError: If the loss scale is not a positive finite number.

    Example:

    >>> import numpy as np
    >>> class Growth(keras.layers.Layer):
    ...     def call(self, inputs):
    ...         return keras.ops.exp(inputs)
    >>> policy = keras.config.dtype_policy()
    >>> keras.config.set_dtype_policy("mixed_float16")
    >>> model = keras.Sequential([keras.Input((2,)), Growth(name="growth")])
    >>> model.compile("sgd", "mse")
    >>> report = find_nonfinite(model, np.full((1, 2), 12.5), np.ones((1, 2)), verbose=0)
    >>> report.origin.path, report.origin.operation, report.in_float32
    ('growth', 'Exp', False)
    >>> report.origin.reason
    'Exp of 12.5 overflows float16 above 11.09.'
    >>> keras.config.set_dtype_policy(policy)
    """
    check_keras_model(model)
    data = as_data(data, y)
    scale = checked_loss_scale(model, loss_scale)
    save_to = None if save_to is None else writable(save_to)
    if batches is not None:
        check_num_batches(batches)
    case = Case(model, batch_specs(data), loss)
    with case.series():
        found = itertools.islice(batches_of(data, batch_size), batches)
        known = [one for one in (count_batches(data, batch_size), batches) if one is not None]
        expected = min(known, default=None)
        with working("Looking for NaN and Inf", is_shown=bool(verbose)) as say:
            report = _search(case, found, expected, scale, save_to, say)
    if verbose:
        print(report)
    return report


def _search(
    case: Case,
    batches: Iterable[Batch],
    expected: int | None,
    scale: float,
    save_to: Any,
    say: Callable[[str], None],
) -> NonFiniteReport:
    count, of_all = 0, "" if expected is None else f" of {expected}"
    for count, batch in enumerate(batches, start=1):
        say(f"Looking for NaN and Inf: batch {count}{of_all}")
        case = case.for_batch(batch)
        diagnosis = case.diagnose(batch, scale)
        if diagnosis is not None:
            saved_to = None if save_to is None else save_batch(batch, save_to)
            return case.report(diagnosis, batch, scale, count, saved_to)
    return case.clean_report(count, scale)
