"""Estimating what a train step takes in memory, without running it."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import keras

from tf_amp_kit.comparison.memory.parts import estimate_for
from tf_amp_kit.comparison.memory.record import MemoryEstimate
from tf_amp_kit.comparison.memory.request import MOST_SAMPLES, Request, checked_count
from tf_amp_kit.errors import InputsError
from tf_amp_kit.hardware.memory import free_memory_bytes
from tf_amp_kit.progress import working

__all__ = ["estimate_memory", "largest_batch_size"]


def estimate_memory(
    model: keras.Model,
    batch_size: int = 32,
    *,
    data: Any = None,
    precision: str | None = None,
    optimizer: Any = None,
    loss: Any = None,
    num_replicas: int | None = None,
    accumulation_steps: int | None = None,
    verbose: int = 1,
) -> MemoryEstimate:
    """Estimates what a train step takes in memory, without running the model.

    Use it before a large run, to see what the memory goes to and what half precision,
    another optimizer or another batch size would change. What it finds for one step
    includes weights and slots.

    Method. The step is traced into a graph with the batch's size: model, loss, gradients
    and the optimizer's own update of the weights. Then its operations run in a simulation,
    on as many threads as TensorFlow uses: each makes buffers of the sizes that the shapes
    tell, elementwise ones take over buffers that nobody reads any more, and a buffer goes
    when its last reader is over. TensorFlow's allocator is simulated too, with the gaps
    that it leaves. Loops keep what each iteration hands on, what is recomputed in the
    backward pass is not kept, and of the branches of an update, which skip a step or add
    up gradients, the one counts that does most.

    What it cannot see: XLA, and of TensorFlow's graph optimizer all but constant factors
    that it moves and transposes that it leaves to products; what kernels take for
    themselves; code, graphs and Python's objects, a few hundred MB for any model; data
    pipelines; what replicas need to add up gradients; what a `train_step` of your own
    does: the step that is traced is Keras's. It is coarse below some 100 MB, where all
    that weighs more than tensors, and where few large buffers dominate: which operations
    run side by side, and how buffers fall into the allocator's regions, differs from run
    to run. `python -m tests.benchmarks.bench_memory` puts it next to what processes
    really hold on a CPU: @@NUMBERS@@

    What `tf.recompute_grad` and `keras.RematScope` recompute is not kept. Around layers
    that are called with keywords, such as `training` of `Dense`, a RematScope raises in a
    graph, in `fit` as here.

    In Keras, mixed precision halves activations and leaves weights, gradients and slots
    float32: copies of the weights in half precision come on top.

    Args:
        model: A Keras model. It stays as it is; one that is not built is built.
        batch_size: How many samples a step has, over all replicas, up to 2**31 - 1; with
            accumulated gradients, of one of the steps that are added up.
        data: `(x, y[, sample_weight])` as arrays or specs, or a dataset: only shapes and
            dtypes count. None takes the model's own inputs, and targets like its outputs;
            what the inputs' shapes leave open is assumed, and the notes say so.
        precision: `"fp32"`, `"bf16"` or `"fp16"` for the model as `convert_model` would
            make it, which takes a copy; None for the model as it is. In float16 the
            loss is scaled, also where the model is not compiled.
        optimizer: What `compile` takes; None for the compiled one.
        loss: What `compile` takes; None for the compiled one.
        num_replicas: How many devices share the batch; None for those of the strategy that
            the model was made in. The estimate is for one of them.
        accumulation_steps: Over how many steps gradients are added up; None for the
            optimizer's own.
        verbose: 1 prints the estimate, 0 is silent.

    Returns:
        A `MemoryEstimate`.

    Raises:
        ModelError: If it is not a Keras 3 model, or has no loss.
        InputsError: If a count is no whole number from 1 up, if the model's batch is fixed
            to another size, if the loss is unknown, or if the data cannot be read or do
            not fit.
        PrecisionError: If the precision is unknown.
        OptimizerError: If there is no optimizer.
        ConversionError: If no copy of the model can be made in the precision.
        TracingError: If the model's Python code needs values.

    Example:

    >>> layers = [keras.layers.Dense(100, name="body"), keras.layers.Dense(1, name="head")]
    >>> model = keras.Sequential([keras.Input((10,)), *layers], name="net")
    >>> estimate = estimate_memory(model, 8, optimizer="adam", loss="mse", verbose=0)
    >>> estimate.weights_bytes == 4 * (10 * 100 + 100 + 100 * 1 + 1)
    True
    """
    size = checked_count(batch_size, "batch_size")
    request = Request.of(
        model,
        data,
        precision=precision,
        optimizer=optimizer,
        loss=loss,
        num_replicas=num_replicas,
        accumulation_steps=accumulation_steps,
    )
    with working("Estimating memory", is_shown=bool(verbose)):
        estimate = estimate_for(request, size)
    if verbose:
        print(estimate)
    return estimate


def largest_batch_size(
    model: keras.Model,
    memory_bytes: int | None = None,
    *,
    data: Any = None,
    precision: str | None = None,
    optimizer: Any = None,
    loss: Any = None,
    num_replicas: int | None = None,
    accumulation_steps: int | None = None,
) -> int:
    """Finds the largest batch whose train step fits into a memory, without running it.

    Use it to choose a batch size, or to see how much larger half precision lets it be.
    The size is tried by `estimate_memory`: the peak of what is returned fits, and that of
    one sample more for each replica does not. Some larger size may fit all the same:
    peaks grow with the batch, but now and then a little less or more than evenly, as
    buffers fall into the allocator's regions. That takes five to ten estimates, a few
    seconds for a small model. Leave a margin for what no estimate sees.

    Args:
        model: A Keras model. It stays as it is; one that is not built is built.
        memory_bytes: How much a process, or with several replicas each of them, may take;
            None for what this machine has free now, on a CPU.
        data: As in `estimate_memory`, like all that follows.
        precision: The precision to look at.
        optimizer: What `compile` takes.
        loss: What `compile` takes.
        num_replicas: How many devices share the batch.
        accumulation_steps: Over how many steps gradients are added up.

    Returns:
        Samples over all replicas; 0 if not even one for each of them fits. Of a model
        whose batch is fixed, by `Input(batch_size=8)` for example, that batch or 0. At
        most 2**31 - 1.

    Raises:
        InputsError: If `memory_bytes` is negative or no number, or unknown.
        AmpError: As in `estimate_memory`.

    Example:

    >>> model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(1)])
    >>> largest_batch_size(model, 100, optimizer="adam", loss="mse")
    0
    """
    limit = _limit(memory_bytes)
    request = Request.of(
        model,
        data,
        precision=precision,
        optimizer=optimizer,
        loss=loss,
        num_replicas=num_replicas,
        accumulation_steps=accumulation_steps,
    )
    replicas = request.num_replicas
    if request.fixed_size is not None:
        fits = estimate_for(request, request.fixed_size).peak_bytes <= limit
        return request.fixed_size if fits else 0
    return replicas * _last_that_fits(
        lambda size: estimate_for(request, size * replicas).peak_bytes,
        limit,
        MOST_SAMPLES // replicas,
    )


def _limit(memory_bytes: Any) -> int:
    if memory_bytes is None:
        import tensorflow as tf

        found = None if tf.config.get_visible_devices("GPU") else free_memory_bytes()
        if found is None:
            raise InputsError(
                "How much memory is free is only known of Linux's CPUs. Expected "
                "`memory_bytes=`. Received: memory_bytes=None."
            )
        return found
    is_number = isinstance(memory_bytes, Real) and not isinstance(memory_bytes, bool)
    if not is_number or not 0 <= memory_bytes < float("inf"):
        raise InputsError(
            f"Expected a number of bytes from 0 up. Received: memory_bytes={memory_bytes!r}."
        )
    return int(memory_bytes)


def _last_that_fits(peak_of: Callable[[int], int], limit: int, most: int = MOST_SAMPLES) -> int:
    """Finds a size that fits while the next one does not, from 0 up to the most.

    Peaks grow almost along a straight line, so the line through two of them tells where
    to look, and halving helps where it does not.
    """
    least = peak_of(1)
    if least > limit:
        return 0
    fits, fits_peak, fails = 1, least, None
    fails_peak = 0
    step = 32
    while fails is None:
        if fits == most:
            return most
        size = min(fits + step, most)
        peak = peak_of(size)
        if peak > limit:
            fails, fails_peak = size, peak
        else:
            slope = max((peak - fits_peak) // (size - fits), 1)
            fits, fits_peak = size, peak
            step = max((limit - peak) * 11 // (10 * slope), 2 * step)
    while fails - fits > 1:
        share = (limit - fits_peak) / max(fails_peak - fits_peak, 1)
        middle = fits + round(share * (fails - fits))
        size = min(max(middle, fits + 1), fails - 1)
        peak = peak_of(size)
        if peak <= limit:
            fits, fits_peak = size, peak
        else:
            fails, fails_peak = size, peak
    return fits
