"""What updates take, counted by hand in buffers of one kernel's size."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.comparison.memory.models import chain, deep
from tf_amp_kit.comparison.memory.state import BuiltOptimizer, WeightSpec

WIDTH = 256
KERNEL = 4 * WIDTH * WIDTH
# Activations of one sample, counters and constants.
FEW = KERNEL // 8


def beyond(model: keras.Model, **options: object) -> float:
    """Returns what is in use at the peak besides weights and slots, in kernels."""
    found = amp.estimate_memory(model, 1, verbose=0, **options)
    rest = found.live_bytes - found.weights_bytes - found.optimizer_bytes
    return rest / KERNEL


@pytest.mark.parametrize(
    ("optimizer", "num_buffers"),
    [
        # The product of gradient and rate takes the gradient's place.
        (keras.optimizers.SGD(), 1),
        # g - m takes the gradient's place; g * g and the root of v have another.
        (keras.optimizers.Adam(), 2),
    ],
    ids=["sgd", "adam"],
)
def test_a_step_of_one_kernel_takes_so_many_buffers(optimizer, num_buffers) -> None:
    found = beyond(deep(WIDTH, num_layers=1), optimizer=optimizer)
    assert num_buffers - 0.1 <= found <= num_buffers + FEW / KERNEL


def test_a_scaled_step_has_all_gradients_and_their_quotients() -> None:
    found = beyond(deep(WIDTH))
    scaled = beyond(
        deep(WIDTH), optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    )
    assert found < 3
    assert 8 <= scaled <= 9.5


def test_float16_is_a_step_with_loss_scaling_whoever_asks_for_it() -> None:
    compiled = deep(WIDTH)
    bare = keras.Sequential(
        [
            keras.Input((WIDTH,)),
            *[keras.layers.Dense(WIDTH, use_bias=False, dtype="mixed_float16") for _ in range(8)],
        ]
    )
    asked = amp.estimate_memory(compiled, 1, precision="fp16", verbose=0)
    given = amp.estimate_memory(bare, 1, optimizer="sgd", loss="mse", verbose=0)
    gradients = 8 * KERNEL
    for found in (asked, given):
        assert found.live_bytes - found.weights_bytes - found.optimizer_bytes >= gradients
    # The counter and the scale of the wrapper.
    plain = amp.estimate_memory(compiled, 1, verbose=0)
    assert asked.optimizer_bytes > plain.optimizer_bytes


def test_bfloat16_scales_no_loss() -> None:
    plain, half = (
        amp.estimate_memory(chain(), precision=one, verbose=0) for one in ("fp32", "bf16")
    )
    assert half.optimizer_bytes == plain.optimizer_bytes


def test_a_model_that_leaves_float16_leaves_its_loss_scaling() -> None:
    model = chain("mixed_float16", keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()))
    found = amp.estimate_memory(model, precision="fp32", verbose=0)
    plain = amp.estimate_memory(chain(), verbose=0)
    assert found.optimizer_bytes == plain.optimizer_bytes


def test_rows_of_an_embedding_become_dense_for_adam_but_not_for_sgd() -> None:
    rows = 20_000
    layers = [keras.layers.Embedding(rows, 16), keras.layers.GlobalAveragePooling1D()]
    model = keras.Sequential([keras.Input((4,), dtype="int32"), *layers])
    model.compile("sgd", "mse")
    table = 4 * rows * 16
    used = {}
    for name in ("sgd", "adam"):
        found = amp.estimate_memory(model, 1, optimizer=name, verbose=0)
        used[name] = (found.live_bytes - found.weights_bytes - found.optimizer_bytes) / table
    # Adam: the dense gradient in one buffer, that of its squares in another.
    assert used["sgd"] < 0.1
    assert 1.9 <= used["adam"] <= 2.2


@pytest.mark.skipif(not hasattr(keras.optimizers, "Muon"), reason="Keras has no Muon")
def test_muon_has_adams_second_slot_only_for_layers_that_it_leaves_out() -> None:
    names = [f"body{number}" for number in range(2)]
    layers = [keras.layers.Dense(WIDTH, use_bias=False, name=name) for name in names]
    model = keras.Sequential([keras.Input((WIDTH,)), *layers])
    model.compile("sgd", "mse")

    def kernels_in_slots(**options: object) -> int:
        optimizer = keras.optimizers.Muon(**options)
        found = amp.estimate_memory(model, 1, optimizer=optimizer, verbose=0)
        return found.optimizer_bytes // KERNEL  # without a few bytes for counters

    numbers = [kernels_in_slots(exclude_layers=one) for one in ([], ["body0"], ["body"])]
    assert numbers == [2, 3, 4]


def test_stand_ins_have_the_paths_that_optimizers_choose_by() -> None:
    spec = WeightSpec("kernel", (3, 4), variable_path="net/body/kernel")
    built = BuiltOptimizer.of("adam", [spec])
    assert built.weights["kernel"].path == "net/body/kernel"


class Eager(keras.optimizers.SGD):
    """Looks at values, which a graph does not have."""

    def update_step(self, gradient, variable, learning_rate):
        if float(tf.reduce_sum(gradient)) > 0:
            super().update_step(gradient, variable, learning_rate)


def test_an_optimizer_that_cannot_be_traced_is_guessed_and_the_notes_say_so() -> None:
    found = amp.estimate_memory(deep(WIDTH), 1, optimizer=Eager(), verbose=0)
    assert "the optimizer's code cannot be traced" in found.notes[-1]
    rest = found.live_bytes - found.weights_bytes - found.optimizer_bytes
    # A gradient and two buffers for its update, beside a gradient or two that wait.
    assert 3 * KERNEL <= rest <= 6 * KERNEL


def test_of_accumulated_steps_the_one_that_updates_counts() -> None:
    model = deep(WIDTH, num_layers=1)
    # Adam's two, where adding the gradient up takes one.
    summed = beyond(model, optimizer="adam", accumulation_steps=4)
    assert 1.9 <= summed <= 2 + FEW / KERNEL
