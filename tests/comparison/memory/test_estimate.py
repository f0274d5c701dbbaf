from __future__ import annotations

import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.comparison.memory.models import (
    ROWS,
    Block,
    OwnStep,
    Subclassed,
    chain,
    deep,
    fixed,
    gelus,
    recurrent,
    two_inputs,
)
from tf_amp_kit.errors import InputsError, ModelError, OptimizerError, PrecisionError

NUM_WEIGHTS = 10 * 20 + 20 + 20 * 5 + 5


def estimate(model, batch_size=8, **options):
    return amp.estimate_memory(model, batch_size, verbose=0, **options)


def kept(found, path):
    return sum(one.activations_bytes for one in found.layers if one.path == path)


def test_weights_and_gradients_of_a_chain_are_four_bytes_each() -> None:
    found = estimate(chain())
    assert found.weights_bytes == found.gradients_bytes == 4 * NUM_WEIGHTS


def test_a_chain_keeps_what_the_relu_gave() -> None:
    found = estimate(chain(), 8)
    assert (kept(found, "body"), kept(found, "head")) == (8 * 20 * 4, 0)


def test_a_squared_error_keeps_the_difference() -> None:
    few_numbers = 32
    assert 0 <= kept(estimate(chain(), 8), "@loss") - 8 * 5 * 4 <= few_numbers


def test_a_batch_is_inputs_and_targets() -> None:
    assert estimate(chain(), 8).inputs_bytes == 8 * (10 + 5) * 4


def test_layers_have_their_own_weights() -> None:
    weights = {one.path: one.weights_bytes for one in estimate(chain()).layers}
    assert (weights["body"], weights["head"]) == (4 * 220, 4 * 105)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_keeps_float32_masters_and_adds_half_copies(policy) -> None:
    found = estimate(chain(policy))
    assert found.weights_bytes == found.master_weights_bytes == 4 * NUM_WEIGHTS
    assert found.gradients_bytes == 4 * NUM_WEIGHTS
    assert found.half_weights_bytes == 2 * NUM_WEIGHTS


def test_mixed_precision_halves_what_is_kept_and_keeps_the_inputs_cast() -> None:
    assert kept(estimate(chain("mixed_bfloat16"), 8), "body") == 8 * 20 * 2 + 8 * 10 * 2


def test_float32_has_no_masters() -> None:
    found = estimate(chain())
    assert (found.master_weights_bytes, found.half_weights_bytes) == (0, 0)


def test_a_precision_is_looked_at_without_changing_the_model() -> None:
    model = chain()
    assert estimate(model, precision="bf16").to_dict() == (
        estimate(chain("mixed_bfloat16")).to_dict() | {"model_name": "chain"}
    )
    assert model.get_layer("body").compute_dtype == "float32"


def test_float32_of_a_half_model_is_what_the_float32_model_takes() -> None:
    half, full = estimate(chain("mixed_bfloat16"), precision="fp32"), estimate(chain())
    assert half.activations_bytes == full.activations_bytes
    assert (half.precision, half.master_weights_bytes) == ("float32", 0)


def test_an_optimizer_can_be_tried() -> None:
    slots = [estimate(chain(), optimizer=one).optimizer_bytes for one in ("sgd", "adam")]
    assert slots[1] - slots[0] == 2 * 4 * NUM_WEIGHTS


def test_accumulated_gradients_take_one_more_slot() -> None:
    plain, summed = (estimate(chain(), accumulation_steps=steps) for steps in (1, 4))
    assert summed.optimizer_bytes - plain.optimizer_bytes == 4 * NUM_WEIGHTS


def test_replicas_share_a_batch() -> None:
    shared, alone = estimate(chain(), 16, num_replicas=2), estimate(chain(), 8)
    assert shared.activations_bytes == alone.activations_bytes
    assert shared.live_bytes == alone.live_bytes
    assert "16 samples on 2 replicas, on each of them" in str(shared).replace("\n    ", " ")


def test_an_odd_batch_is_rounded_up_for_a_replica() -> None:
    assert estimate(chain(), 9, num_replicas=2).inputs_bytes == 5 * 15 * 4


def test_the_peak_has_all_that_stays_in_it() -> None:
    found = estimate(chain(optimizer="adam"))
    stays = found.weights_bytes + found.optimizer_bytes + found.inputs_bytes
    assert found.peak_bytes >= found.live_bytes > stays + found.activations_bytes


def test_a_large_batch_peaks_while_activations_are_there() -> None:
    assert estimate(chain(), 10_000).peak_phase in ("forward", "backward")


def test_one_sample_of_a_large_layer_peaks_at_the_update() -> None:
    model = keras.Sequential([keras.Input((1000,)), keras.layers.Dense(1000)])
    model.compile("adam", "mse")
    assert estimate(model, 1).peak_phase == "update"


def test_loss_scaling_has_all_gradients_there_before_the_update() -> None:
    model = deep()
    scaled = estimate(
        model, 1, optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    )
    # Eight gradients instead of the one that is used and one or two that wait.
    assert scaled.live_bytes - estimate(model, 1).live_bytes > 5 * 256 * 256 * 4


def test_recomputed_layers_keep_their_input_only() -> None:
    found = {}
    for is_recomputed in (False, True):
        inputs = keras.Input((32,))
        block = Block(is_recomputed=is_recomputed)
        model = keras.Model(inputs, Block(is_recomputed=is_recomputed)(block(inputs)))
        model.compile("sgd", "mse")
        found[is_recomputed] = estimate(model, 64)
    # Eight outputs are kept, or one between the blocks and the last one.
    assert found[False].activations_bytes >= 8 * 64 * 32 * 4
    assert found[True].activations_bytes <= 3 * 64 * 32 * 4
    assert found[True].live_bytes < found[False].live_bytes


def test_layers_of_a_remat_scope_keep_less_than_others() -> None:
    recomputed, plain = (estimate(gelus(mode), 1000) for mode in ("full", None))
    # One of the eight outputs is enough to see it.
    assert plain.activations_bytes - recomputed.activations_bytes > 1000 * 32 * 4
    assert recomputed.live_bytes < plain.live_bytes


def test_a_remat_scope_that_fit_refuses_is_refused_alike() -> None:
    with keras.RematScope(mode="full"):
        dense = keras.layers.Dense(3)
    model = keras.Sequential([keras.Input((7,)), dense])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="supports keywords arguments only when eager"):
        model.fit(*ROWS, verbose=0)
    with pytest.raises(ValueError, match="supports keywords arguments only when eager"):
        estimate(model)


def test_a_recurrent_layer_keeps_something_of_each_step() -> None:
    short, long = (kept(estimate(recurrent(steps), 4), "lstm/cell") for steps in (5, 10))
    # Three gates, the candidate, and tanh of the state, of 16 numbers each.
    assert short == 5 * (5 * 4 * 16 * 4)
    assert long == 2 * short


def test_several_inputs_and_outputs_are_counted() -> None:
    # 4 + 3 numbers in; 2 numbers and one class number as targets.
    assert estimate(two_inputs(), 8).inputs_bytes == 8 * (7 + 2 + 1) * 4


def test_an_unbuilt_model_is_built_from_data() -> None:
    model = Subclassed()
    model.compile("sgd", "mse")
    assert estimate(model, data=ROWS).weights_bytes == (7 * 3 + 3) * 4


def test_arrays_datasets_and_specs_are_the_same_data() -> None:
    model = Subclassed()
    model.compile("sgd", "mse")
    specs = tuple(tf.TensorSpec(one.shape, "float32") for one in ROWS)
    dataset = tf.data.Dataset.from_tensor_slices(ROWS).batch(2)
    found = [estimate(model, data=one) for one in (ROWS, dataset, specs)]
    assert found[0] == found[1] == found[2]


def test_the_model_and_its_optimizer_stay_as_they_are() -> None:
    model = chain(optimizer="adam")
    before = [value.copy() for value in model.get_weights()]
    estimate(model)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))
    assert not model.optimizer.built


def test_a_model_without_loss_takes_one_as_argument() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    assert estimate(model, loss="mse", optimizer="adam").weights_bytes == 16


def test_the_text_tells_what_mixed_precision_saves() -> None:
    text = " ".join(str(estimate(chain("mixed_bfloat16"))).split())
    assert "float32 masters of half layers" in text
    assert "the float32 master weights, their gradients and the optimizer's slots stay" in text


def test_the_record_is_json() -> None:
    found = estimate(chain())
    read = json.loads(found.to_json())
    assert read["peak_bytes"] == found.peak_bytes
    assert {one["path"] for one in read["layers"]} >= {"body", "head"}


def test_verbose_prints_the_estimate(capsys) -> None:
    found = amp.estimate_memory(chain(), 8)
    assert capsys.readouterr().out == f"{found}\n"


def test_float64_is_called_float64_whatever_is_asked_for() -> None:
    model = chain("float64")
    names = [estimate(model, precision=one).precision for one in (None, "fp32", "bf16")]
    assert names == ["float64"] * 3


def test_an_open_shape_is_named_with_what_is_assumed() -> None:
    model = keras.Sequential(
        [keras.Input((None, None, 3)), keras.layers.Conv2D(2, 3), keras.layers.Flatten()]
    )
    pooled = keras.Sequential([keras.Input((None, None, 3)), *model.layers[:1]])
    pooled.add(keras.layers.GlobalAveragePooling2D())
    pooled.compile("sgd", "mse")
    found = estimate(pooled)
    height = found.inputs_bytes  # inputs of 3 channels and targets of 2 numbers, 8 samples
    side = round((((height / 8 / 4) - 2) / 3) ** 0.5)
    assert f"(None, {side}, {side}, 3) is assumed: pass `data=`" in found.notes[0]
    assert not estimate(pooled, data=(np.ones((8, 9, 9, 3)), np.ones((8, 2)))).notes


def test_a_fixed_batch_takes_no_other() -> None:
    assert estimate(fixed(), 8).batch_size == 8
    message = "fixed to 8 samples on each replica. Expected batch_size=8. Received: batch_size=16."
    with pytest.raises(InputsError, match=re.escape(message)):
        estimate(fixed(), 16)


def test_a_model_compiled_without_loss_is_refused() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)], name="net")
    model.compile("sgd")
    with pytest.raises(ModelError, match=re.escape("Expected a loss in `compile()`, or `loss=`.")):
        estimate(model)


def test_a_train_step_of_its_own_needs_a_loss_to_be_named() -> None:
    model = OwnStep()
    model.compile("sgd")
    with pytest.raises(ModelError, match=re.escape("or `loss=`. Received: OwnStep")):
        estimate(model, data=ROWS)
    assert estimate(model, data=ROWS, loss="mse").weights_bytes == (7 * 3 + 3) * 4


@pytest.mark.parametrize("loss", ["msee", 3])
def test_an_unknown_loss_is_refused(loss) -> None:
    with pytest.raises(InputsError, match=re.escape(f"Received: loss={loss!r}.")):
        estimate(chain(), loss=loss)


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(OptimizerError, match="Received: optimizer='adma'"):
        estimate(chain(), optimizer="adma")


@pytest.mark.parametrize(
    ("loss", "shape"), [("mse", (8, 7)), ("sparse_categorical_crossentropy", (8, 5))]
)
def test_targets_that_do_not_fit_are_refused(loss, shape) -> None:
    data = np.ones((8, 10)), np.ones(shape)
    with pytest.raises(InputsError, match="Expected targets, and sample weights if any, that fit"):
        estimate(chain(), loss=loss, data=data)


@pytest.mark.parametrize("rows", [-1, 1.5, "3"])
def test_a_table_of_fewer_than_no_rows_is_refused(rows) -> None:
    with pytest.raises(InputsError, match=re.escape(f"Received: max_rows={rows!r}.")):
        estimate(chain()).table(rows)


@pytest.mark.parametrize("size", [2**31, 10**30])
def test_more_samples_than_kernels_count_are_refused(size) -> None:
    with pytest.raises(InputsError, match=re.escape(f"to 2147483647. Received: batch_size={size}")):
        estimate(chain(), size)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "8"])
def test_a_batch_size_that_counts_nothing_is_refused(size) -> None:
    with pytest.raises(InputsError, match=re.escape(f"Received: batch_size={size!r}.")):
        estimate(chain(), size)


@pytest.mark.parametrize("name", ["num_replicas", "accumulation_steps"])
def test_a_count_that_counts_nothing_is_refused(name) -> None:
    with pytest.raises(InputsError, match=re.escape(f"Received: {name}=0.")):
        estimate(chain(), **{name: 0})


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(PrecisionError, match="Received: precision='bf17'"):
        estimate(chain(), precision="bf17")


def test_a_model_without_optimizer_is_refused() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)], name="net")
    with pytest.raises(OptimizerError, match="named 'net', optimizer=None"):
        estimate(model, loss="mse")


def test_a_model_without_loss_is_refused() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)], name="net")
    with pytest.raises(ModelError, match="named 'net', loss=None"):
        estimate(model, optimizer="sgd")


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ModelError):
        estimate(keras.layers.Dense(1))
