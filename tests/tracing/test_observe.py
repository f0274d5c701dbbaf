"""Watching layers leaves nothing behind, and other threads alone."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit.tracing.observe import observing, unobserved
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.recorder import Recorder

L = keras.layers
X = np.ones((2, 3), "float32")


def patched_places() -> list[Any]:
    """What observing may replace: the classes' own entries, not bound copies."""
    function = type(tf.function(lambda: None))
    return [
        L.Layer.__dict__["__call__"],
        L.Layer.__dict__["add_loss"],
        L.Layer.__dict__["compute_dtype"],
        keras.Operation.__dict__["__call__"],
        function.__dict__["__call__"],
        keras.config.is_traceback_filtering_enabled(),
        tf.debugging.is_traceback_filtering_enabled(),
    ]


ORIGINAL = patched_places()


@pytest.fixture(autouse=True)
def _everything_is_restored() -> Iterator[None]:
    yield
    assert patched_places() == ORIGINAL


def recorder(model: Any = None) -> Recorder:
    return Recorder(LayerPaths(model) if model is not None else None)


def dense() -> Any:
    layer = L.Dense(2, name="watched")
    layer.build((None, 3))
    return layer


def names(record: Recorder) -> list[str]:
    return [call.layer.name for call in record.calls]


def test_a_call_inside_is_recorded() -> None:
    layer = dense()
    with observing(recorder()) as record:
        layer(X)
    assert names(record) == ["watched"]


def test_a_call_afterwards_is_not_recorded() -> None:
    layer = dense()
    with observing(recorder()) as record:
        pass
    layer(X)
    assert names(record) == []


def test_the_result_is_the_same_as_unobserved() -> None:
    layer = dense()
    expected = layer(X).numpy()
    with observing(recorder()):
        seen = layer(X).numpy()
    np.testing.assert_array_equal(seen, expected)


def test_the_classes_are_replaced_only_inside() -> None:
    with observing(recorder()):
        inside = patched_places()
    assert inside[0] is not ORIGINAL[0]
    assert patched_places() == ORIGINAL


def test_an_exception_of_the_user_comes_out_unchanged() -> None:
    class Fails(L.Layer):
        def call(self, inputs: Any) -> Any:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), observing(recorder()):
        Fails()(X)
    assert patched_places() == ORIGINAL


def test_an_interrupt_restores_the_classes() -> None:
    with pytest.raises(KeyboardInterrupt), observing(recorder()):
        raise KeyboardInterrupt
    assert patched_places() == ORIGINAL


def test_a_call_that_raised_is_closed() -> None:
    class Fails(L.Layer):
        def call(self, inputs: Any) -> Any:
            raise KeyError("mine")

    with observing(recorder()) as record:
        with contextlib.suppress(KeyError):
            Fails()(X)
        assert record.current == -1


def test_the_innermost_of_nested_observers_takes_the_record() -> None:
    layer = dense()
    with observing(recorder()) as outer:
        with observing(recorder()) as inner:
            layer(X)
        layer(X)
    assert (names(outer), names(inner)) == (["watched"], ["watched"])


def test_sublayers_are_recorded_below_their_owner() -> None:
    model = keras.Sequential([keras.Input((3,)), L.Dense(2), L.ReLU()])
    with observing(recorder(model)) as record:
        model(X)
    found = [(call.path, call.parent, call.depth) for call in record.calls]
    assert found == [("", -1, 1), ("dense", 0, 2), ("re_lu", 0, 2)]


def test_a_function_that_was_traced_before_shows_its_layers() -> None:
    layer = dense()
    function = tf.function(lambda x: layer(x))
    function(tf.constant(X))
    with observing(recorder()) as record:
        function(tf.constant(X))
    assert names(record) == ["watched"]


def test_a_function_gives_the_same_values_as_unobserved() -> None:
    @tf.function
    def collatz(n: Any) -> Any:
        steps = 0
        while n != 1:  # only autograph can turn this into a loop of the graph
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps

    with observing(recorder()):
        assert int(collatz(tf.constant(6))) == 8  # 6 3 10 5 16 8 4 2 1


def in_thread(work: Callable[[], Any]) -> Any:
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    thread.join()
    return result[0]


def test_another_thread_is_not_recorded() -> None:
    layer = dense()
    with observing(recorder()) as record:
        in_thread(lambda: layer(X))
    assert names(record) == []


def test_another_thread_still_calls_functions_as_graphs() -> None:
    is_graph: list[bool] = []

    @tf.function
    def function(x: Any) -> Any:
        is_graph.append(tf.inside_function())
        return x

    with observing(recorder()):
        in_thread(lambda: function(tf.constant(1.0)))
        function(tf.constant(1.0))
    assert is_graph == [True, False]


def test_another_thread_keeps_its_short_tracebacks() -> None:
    with observing(recorder()):
        filters = in_thread(
            lambda: (
                keras.config.is_traceback_filtering_enabled(),
                tf.debugging.is_traceback_filtering_enabled(),
            )
        )
    assert filters == (True, True)


def test_another_thread_computes_in_its_own_precision() -> None:
    class Clash(L.Layer):
        def call(self, inputs: Any) -> Any:
            seen.append(in_thread(lambda: other.compute_dtype))
            return inputs * tf.ones((3,))

    keras.config.set_dtype_policy("mixed_float16")
    seen: list[str] = []
    other = dense()
    with observing(recorder()):
        Clash()(X)
    # The second time it runs in float32, and the other thread does not.
    assert seen == ["float16", "float16"]


def test_two_threads_observe_at_once_and_each_sees_its_own() -> None:
    layers = {name: L.Dense(2, name=name) for name in ("first", "second")}
    barrier = threading.Barrier(2)
    records: dict[str, list[str]] = {}

    def work(name: str) -> None:
        with observing(recorder()) as record:
            barrier.wait()
            for _ in range(20):
                layers[name](X)
            barrier.wait()
        records[name] = names(record)

    threads = [threading.Thread(target=work, args=(name,)) for name in layers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert records == {"first": ["first"] * 20, "second": ["second"] * 20}


def test_the_first_thread_out_leaves_the_other_one_observing() -> None:
    layer = dense()
    entered, left = threading.Event(), threading.Event()
    seen: list[str] = []

    def work() -> None:
        with observing(recorder()) as record:
            entered.set()
            left.wait()
            layer(X)
        seen.extend(names(record))

    thread = threading.Thread(target=work)
    with observing(recorder()):
        thread.start()
        entered.wait()
    left.set()
    thread.join()
    assert seen == ["watched"]


def test_another_task_of_the_same_thread_is_not_recorded() -> None:
    layer = dense()

    async def watch(ready: asyncio.Event, done: asyncio.Event) -> list[str]:
        with observing(recorder()) as record:
            ready.set()
            await done.wait()
        return names(record)

    async def call(ready: asyncio.Event, done: asyncio.Event) -> None:
        await ready.wait()
        layer(X)
        done.set()

    async def both() -> list[str]:
        ready, done = asyncio.Event(), asyncio.Event()
        seen, _ = await asyncio.gather(watch(ready, done), call(ready, done))
        return seen

    assert asyncio.run(both()) == []


def test_a_generator_that_is_closed_early_restores_the_classes() -> None:
    def watching() -> Iterator[Recorder]:
        with observing(recorder()) as record:
            yield record

    generator = watching()
    next(generator)
    generator.close()
    assert patched_places() == ORIGINAL


def test_a_generator_that_another_thread_closes_restores_the_classes() -> None:
    def watching() -> Iterator[Recorder]:
        with observing(recorder()) as record:
            yield record

    generator = watching()
    in_thread(lambda: next(generator))
    generator.close()
    assert patched_places() == ORIGINAL


def test_a_thrown_exception_leaves_a_generator_with_the_classes_restored() -> None:
    @contextlib.contextmanager
    def watching() -> Iterator[Recorder]:
        with observing(recorder()) as record:
            yield record

    with pytest.raises(ZeroDivisionError), watching():
        raise ZeroDivisionError
    assert patched_places() == ORIGINAL


def test_a_subclass_with_its_own_call_operator_is_recorded_once() -> None:
    class Own(L.Dense):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return super().__call__(*args, **kwargs)

    layer = Own(2, name="own")
    with observing(recorder()) as record:
        layer(X)
    assert names(record) == ["own"]


def test_a_class_method_patched_by_the_user_meanwhile_is_not_lost() -> None:
    # The user's own replacement on a subclass is none of our business.
    class Mine(L.Dense):
        pass

    with observing(recorder()):
        Mine.__call__ = lambda self, x: "mine"  # type: ignore[method-assign]
    assert Mine(2)(X) == "mine"


def test_a_patch_that_somebody_else_installs_meanwhile_stays() -> None:
    plain = keras.layers.Layer.__call__
    try:
        with observing(Recorder(None)):
            watched = keras.layers.Layer.__call__

            def foreign(layer: Any, *args: Any, **kwargs: Any) -> Any:
                return watched(layer, *args, **kwargs)

            keras.layers.Layer.__call__ = foreign
        assert keras.layers.Layer.__call__ is foreign
        assert keras.layers.ReLU()(np.ones(2, "float32")).shape == (2,)
    finally:
        keras.layers.Layer.__call__ = plain


def test_what_is_done_unobserved_is_not_recorded() -> None:
    layer, other = dense(), L.ReLU(name="other")
    with observing(recorder()) as record:
        with unobserved():
            layer(X)
        other(X)
    assert names(record) == ["other"]


def test_a_call_within_a_call_can_be_left_out() -> None:
    inner = dense()

    class Outer(L.Layer):
        def call(self, inputs: Any) -> Any:
            with unobserved():
                hidden = inner(inputs)
            return inner(hidden[:, :1] * X[:, :3])

    with observing(recorder()) as record:
        Outer(name="outer")(X)
    assert names(record) == ["outer", "watched"]


def test_losses_that_are_added_unobserved_are_not_recorded() -> None:
    class Adds(L.Layer):
        def call(self, inputs: Any) -> Any:
            self.add_loss(keras.ops.sum(inputs))
            return inputs

    layer = Adds()
    with observing(recorder()) as record:
        with unobserved():
            layer(X)
        assert record.losses == []
        layer(X)
    assert len(record.losses) == 1


def test_after_an_error_unobserved_the_record_goes_on() -> None:
    layer = dense()
    with observing(recorder()) as record:
        with contextlib.suppress(KeyError), unobserved():
            raise KeyError
        layer(X)
    assert names(record) == ["watched"]


def test_without_an_observer_unobserved_does_nothing() -> None:
    with unobserved():
        assert dense()(X).shape == (2, 2)


def in_body(run: Callable[[Any, Any], Any]) -> dict[str, list[bool]]:
    """Tells of each call of a layer's whether it was in a body."""

    class Outer(L.Layer):
        def __init__(self) -> None:
            super().__init__(name="outer")
            self.inner = L.Rescaling(2.0, name="inner")

        def call(self, inputs: Any) -> Any:
            return run(self.inner, inputs)

    layer, graph = Outer(), tf.Graph()
    layer.built = True
    with graph.as_default(), observing(recorder(layer)) as record:
        layer(tf.constant(X))
    found: dict[str, list[bool]] = {}
    for call in record.calls:
        found.setdefault(call.layer.name, []).append(call.is_in_body)
    return found


def test_calls_in_the_open_are_in_no_body() -> None:
    found = in_body(lambda inner, x: inner(inner(x)))
    assert found == {"outer": [False], "inner": [False, False]}


def test_a_call_in_a_loop_is_in_a_body_and_the_next_one_is_not() -> None:
    def run(inner: Any, x: Any) -> Any:
        (y,) = tf.while_loop(lambda _: True, lambda y: (inner(y),), (x,), maximum_iterations=3)
        return inner(y)

    assert in_body(run) == {"outer": [False], "inner": [True, False]}


def test_calls_in_branches_are_in_bodies() -> None:
    def run(inner: Any, x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: inner(x), lambda: inner(-x))

    assert in_body(run) == {"outer": [False], "inner": [True, True]}


def test_without_a_graph_nothing_is_in_a_body() -> None:
    layer = dense()
    with observing(recorder()) as record:
        layer(layer(X) @ np.ones((2, 3), "float32"))
    assert [call.is_in_body for call in record.calls] == [False, False]
