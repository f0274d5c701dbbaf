"""TensorFlow's graph optimizer is switched off for one thread, and for no longer than asked."""

from __future__ import annotations

import threading

import tensorflow as tf
from tensorflow.python.eager import context

from tf_amp_kit._keras import graph_optimizer_off


def is_off():
    """Whether functions that this thread calls now are left as they are."""
    options = context.context().function_call_options
    config = tf.compat.v1.ConfigProto.FromString(options.config_proto_serialized)
    return config.graph_options.rewrite_options.disable_meta_optimizer


def test_it_is_off_inside_and_on_again_behind():
    states = [is_off()]
    with graph_optimizer_off():
        states.append(is_off())
    assert [*states, is_off()] == [False, True, False]


def test_the_options_of_the_process_stay_as_they_are():
    before = tf.config.optimizer.get_experimental_options()
    with graph_optimizer_off():
        assert tf.config.optimizer.get_experimental_options() == before


def test_other_threads_keep_it_on():
    seen = []
    with graph_optimizer_off():
        thread = threading.Thread(target=lambda: seen.append(is_off()))
        thread.start()
        thread.join()
    assert seen == [False]


def test_a_thread_that_called_functions_before_is_switched_too():
    function = tf.function(lambda x: x + 1)
    seen = []

    def look():
        function(tf.constant(1.0))  # TensorFlow keeps a thread's options from its first call on
        with graph_optimizer_off():
            seen.append(is_off())

    with graph_optimizer_off():
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen == [True]


def test_functions_run_the_same():
    function = tf.function(lambda x: x * 2 + 1)
    with graph_optimizer_off():
        assert function(tf.constant(3.0)).numpy() == 7.0
