"""After a search the model, its optimizer, its metrics and TensorFlow are as they were."""

from __future__ import annotations

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from tf_amp_kit import _keras

from .small import ONES, chain, dense, fault, report_on


@pytest.fixture(params=["clean", "bad"])
def model(request):
    """With statistics, seeds, an added loss and metrics, all of them built."""
    keras.config.set_dtype_policy("mixed_float16")
    exponent = 12.0 if request.param == "bad" else 1.0

    class Grows(layers.Layer):
        def call(self, x):
            self.add_loss(ops.sum(ops.cast(x, "float32")) * 0)
            return ops.exp(x * 0 + exponent)

    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(4, kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.GaussianNoise(0.1),
            Grows(),
            dense(),
        ]
    )
    model.compile("rmsprop", "mse", metrics=["mae", keras.metrics.RootMeanSquaredError()])
    model.optimizer.build(model.trainable_variables)
    model.compute_metrics(ONES, ONES, model(ONES, training=True), None)
    return model


def bits(variables):
    return [np.asarray(one, one.dtype).tobytes() for one in variables]


def searched(model):
    report_on(model, loss_scale=None)
    return model


def test_weights_statistics_and_seeds_keep_every_bit(model):
    before = bits(model.variables)
    assert bits(searched(model).variables) == before


def test_the_optimizer_keeps_every_bit(model):
    before = bits(model.optimizer.variables)
    assert bits(searched(model).optimizer.variables) == before


def test_metrics_keep_every_bit(model):
    before = bits(model.metrics_variables)
    assert bits(searched(model).metrics_variables) == before


def test_the_compiled_objects_are_the_same(model):
    def compiled():
        return model.optimizer, *model.metrics, model.loss, model.train_function

    before = compiled()
    searched(model)
    assert all(one is other for one, other in zip(compiled(), before, strict=True))


def test_added_losses_are_the_same_number(model):
    before = len(model.losses)
    assert len(searched(model).losses) == before


def test_the_attributes_of_layers_are_the_same(model):
    def attributes():
        return [sorted(vars(layer)) for layer in model.layers]

    before = attributes()
    searched(model)
    assert attributes() == before


def test_policies_are_the_same(model):
    before = [layer.dtype_policy for layer in model.layers]
    searched(model)
    assert [layer.dtype_policy for layer in model.layers] == before
    assert keras.config.dtype_policy().name == "mixed_float16"


def test_patched_attributes_are_tensorflows_own_again(model):
    def patched():
        from tensorflow.python.eager import execute, record
        from tensorflow.python.framework import ops as framework

        registry = type(framework.gradient_registry)
        return (
            execute.record_gradient,
            record.record_operation,
            registry.lookup,
            keras.layers.Layer.__call__,
            keras.Operation.__call__,
            type(tf.function(lambda: 0)).__call__,
        )

    before = patched()
    searched(model)
    assert all(one is other for one, other in zip(patched(), before, strict=True))


def test_training_goes_on_as_without_a_search(model):
    copies = []
    for is_searched in (False, True):
        keras.utils.set_random_seed(3)
        copy = keras.models.clone_model(model)
        copy.compile("sgd", "mse", run_eagerly=True)
        if is_searched:
            searched(copy)
        copy.train_on_batch(ONES, ONES)
        copies.append(bits(copy.trainable_variables))
    assert copies[0] == copies[1]


def test_a_metric_of_the_users_own_is_left_as_it_is():
    metric = keras.metrics.F1Score()
    model = chain(dense(activation="sigmoid"), loss="binary_crossentropy", metrics=[metric])
    searched(model)
    assert metric.variables == []


def test_a_metric_of_the_users_own_that_was_updated_keeps_its_count():
    metric = keras.metrics.MeanAbsoluteError()
    metric.update_state([0.0], [3.0])
    searched(chain(dense(), metrics=[metric]))
    assert float(metric.result()) == 3.0


def test_an_optimizer_that_is_not_built_stays_so():
    model = chain(dense())
    assert not searched(model).optimizer.built


def test_a_loss_of_the_users_own_is_the_same_object():
    loss = keras.losses.MeanSquaredError()
    model = chain(dense(), loss=loss)
    assert searched(model).loss is loss


def test_a_given_loss_leaves_the_compiled_one():
    model = chain(dense())
    report_on(model, loss="mae")
    assert model.loss == "mse"


def test_a_search_that_fails_leaves_everything():
    def wild(x):
        raise ZeroDivisionError

    layer = fault(wild)
    inputs = keras.Input((4,))
    layer.function = lambda x: x
    model = keras.Model(inputs, dense()(layer(inputs)))
    model.compile("sgd", "mse")
    layer.function = wild
    before = bits(model.variables), tf.config.optimizer.get_experimental_options()
    with pytest.raises(ZeroDivisionError):
        report_on(model)
    assert (bits(model.variables), tf.config.optimizer.get_experimental_options()) == before


def test_a_report_keeps_no_graph_alive(monkeypatch):
    graphs = []
    trace = _keras.trace_to_graph

    def tracing(*args, **kwargs):
        graph = trace(*args, **kwargs)
        graphs.append(weakref.ref(graph))
        return graph

    monkeypatch.setattr(_keras, "trace_to_graph", tracing)
    report = report_on(chain(fault(lambda x: ops.exp(x * 100)), dense()))
    gc.collect()
    assert (report.origin.operation, [one() for one in graphs]) == ("Exp", [None] * len(graphs))


@pytest.mark.slow
def test_memory_does_not_grow_from_call_to_call():
    model = chain(fault(lambda x: ops.exp(x * 100)), dense())

    def num_objects():
        gc.collect()
        return len(gc.get_objects())

    report_on(model)
    before = num_objects()
    for _ in range(20):
        report_on(model)
    # A graph that stayed would bring thousands of them, each time.
    assert num_objects() - before < 2000
