"""Estimated next to measured memory of a train step, on some nets.

    python -m tests.benchmarks.bench_memory [--nets NAME ...]

Each number is from a process of its own. What is measured there: a tiny model is trained
first, so that TensorFlow's threads and code are loaded. Then the net is built and trained
by `train_on_batch` on one, two and three samples, which makes weights and slots and traces
the step for any batch size. The resident set now is R. Then come a few steps on the whole
batch, and the most that the kernel saw the process hold since then is P. Measured is

    P - R + weights + slots

with the bytes of the weights and slots as their shapes tell, because their pages are in R
together with graphs and Python's objects, which no batch size changes. The arrays are in
R, the tensors that a step makes of them are not. Steps on
few samples leave something in the pools of the allocator, which the large steps use again:
so much the measured number is too small. The allocator is glibc's as a user has it, with
what it does not give back.

Where the update of the weights takes most, steps on few samples take as much as others. So
of these nets the step is only traced before R is taken, and what TensorFlow needs to make a
graph ready to run is in the measured number, which is some 10 MB too large.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import tf_amp_kit as amp
from tf_amp_kit.hardware.memory import resident_bytes

POLICIES = ("float32", "mixed_bfloat16")
# What a process holds still grows in the first few steps.
NUM_STEPS = 10
MEBIBYTE = 2**20


def cnn() -> keras.Model:
    layers = keras.layers
    x = inputs = keras.Input((64, 64, 3))
    for filters in (32, 64, 128):
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = layers.BatchNormalization()(x)
            x = layers.ReLU()(x)
        x = layers.MaxPooling2D()(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10, activation="softmax", dtype="float32")(x))


def transformer() -> keras.Model:
    layers = keras.layers
    tokens = keras.Input((128,), dtype="int32")
    x = layers.Embedding(5000, 256)(tokens)
    for _ in range(4):
        y = layers.LayerNormalization()(x)
        x = x + layers.Dropout(0.1)(layers.MultiHeadAttention(8, 32)(y, y))
        y = layers.Dense(1024, activation="gelu")(layers.LayerNormalization()(x))
        x = x + layers.Dropout(0.1)(layers.Dense(256)(y))
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(tokens, layers.Dense(10, activation="softmax", dtype="float32")(x))


def mobilenet() -> keras.Model:
    return keras.applications.MobileNetV2((96, 96, 3), weights=None, classes=10)


#: Builder and batch sizes.
NETS: dict[str, tuple[Callable[[], keras.Model], tuple[int, int]]] = {
    "cnn": (cnn, (32, 128)),
    "transformer": (transformer, (16, 64)),
    "mobilenet": (mobilenet, (32, 128)),
}


def squares() -> keras.Model:
    layers = [keras.layers.Dense(1536, "relu", use_bias=False) for _ in range(6)]
    head = keras.layers.Dense(10, activation="softmax", dtype="float32")
    return keras.Sequential([keras.Input((1536,)), *layers, head])


def embedding() -> keras.Model:
    layers = [keras.layers.Embedding(50_000, 64), keras.layers.GlobalAveragePooling1D()]
    head = keras.layers.Dense(10, activation="softmax", dtype="float32")
    return keras.Sequential([keras.Input((64,), dtype="int32"), *layers, head])


#: Nets whose peak is the update: builder, optimizer and policy, for a batch of 32.
UPDATES: dict[str, tuple[Callable[[], keras.Model], str, str]] = {
    "sgd": (squares, "sgd", "float32"),
    "adam": (squares, "adam", "float32"),
    "muon": (squares, "muon", "float32"),
    "scaled": (squares, "adam", "mixed_float16"),
    "embedding": (embedding, "adam", "float32"),
}
UPDATE_BATCH = 32


def build(net: str, policy: str) -> keras.Model:
    keras.config.set_dtype_policy(policy)
    make, optimizer = UPDATES[net][:2] if net in UPDATES else (NETS[net][0], "adam")
    model = make()
    model.compile(optimizer, "sparse_categorical_crossentropy")
    return model


def cases(net: str) -> list[tuple[str, int]]:
    """Lists the policies and batch sizes that a net is looked at with."""
    if net in UPDATES:
        return [(UPDATES[net][2], UPDATE_BATCH)]
    return [(policy, size) for size in NETS[net][1] for policy in POLICIES]


def batch_for(model: keras.Model, size: int) -> tuple[Any, Any]:
    shape, dtype = model.inputs[0].shape[1:], model.inputs[0].dtype
    x = np.ones((size, *shape), "int32" if "int" in dtype else "float32")
    return x, np.zeros(size, "int32")


def measure(net: str, policy: str, size: int) -> int:
    tiny = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    tiny.compile("adam", "mse")
    tiny.train_on_batch(np.ones((256, 4)), np.ones((256, 4)))
    model = build(net, policy)
    x, y = batch_for(model, size)
    step = model.train_on_batch
    if net in UPDATES:
        step = traced_step(model, x, y)
    else:
        for few in (1, 2, 3):
            step(x[:few], y[:few])
    known = sum(one.numpy().nbytes for one in [*model.variables, *model.optimizer.variables])
    before = resident_bytes()
    Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark back
    for _ in range(NUM_STEPS):
        step(x, y)
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    return peak - before + known


def traced_step(model: keras.Model, x: Any, y: Any) -> Callable[[Any, Any], Any]:
    """Makes the variables and the graph of a step, which does not run yet."""
    model.optimizer.build(model.trainable_variables)
    specs = [tf.TensorSpec(one.shape, one.dtype) for one in (x, y)]
    step = tf.function(lambda x, y: model.train_step((x, y))).get_concrete_function(*specs)
    return lambda x, y: step(tf.constant(x), tf.constant(y))


def estimate(net: str, policy: str, size: int) -> int:
    return amp.estimate_memory(build(net, policy), size, verbose=0).peak_bytes


def in_new_process(kind: str, net: str, policy: str, size: int) -> int:
    """Runs one measurement or estimate in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_memory", "--one"]
    command += [kind, net, policy, str(size)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return int(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Estimated next to measured memory.")
    parser.add_argument("--nets", nargs="+", choices=[*NETS, *UPDATES], default=[*NETS, *UPDATES])
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        kind, net, policy, size = options.one
        print(json.dumps({"measure": measure, "estimate": estimate}[kind](net, policy, int(size))))
        return
    print("net          policy          batch  estimated MiB  measured MiB  ratio")
    ratios = []
    for net in options.nets:
        for policy, size in cases(net):
            estimated = in_new_process("estimate", net, policy, size)
            measured = in_new_process("measure", net, policy, size)
            ratios.append(estimated / measured)
            print(
                f"{net:12} {policy:14} {size:6} {estimated / MEBIBYTE:14.0f} "
                f"{measured / MEBIBYTE:13.0f} {ratios[-1]:6.2f}",
                flush=True,
            )
    print(f"worst: {max(ratios, key=lambda ratio: abs(ratio - 1)):.2f} (goal: 0.85 to 1.15)")


if __name__ == "__main__":
    main()
