"""`float32_op` as a decorator and as a context, in layers and outside of them."""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp

HALVES = ("float16", "bfloat16")
by_half = pytest.mark.parametrize("dtype", HALVES)


def name(tensor: Any) -> str:
    return str(keras.backend.standardize_dtype(tensor.dtype))


class Decorated(keras.layers.Layer):
    """Computes in a decorated method; notes the dtypes inside."""

    kind = "compute"

    def build(self, input_shape: Any) -> None:
        self.kernel = self.add_weight(shape=(input_shape[-1], 1), initializer="ones")

    def call(self, inputs: Any) -> Any:
        return amp.float32_op(output=self.kind)(self.scores)(inputs)

    def scores(self, inputs: Any) -> Any:
        self.inside = {name(inputs), name(self.kernel)}
        return keras.ops.matmul(inputs * inputs, self.kernel) / 1000


class Method(Decorated):
    """The same, where the class decorates."""

    @amp.float32_op
    def scores(self, inputs: Any) -> Any:
        return super().scores(inputs)

    def call(self, inputs: Any) -> Any:
        return self.scores(inputs)


class Context(Decorated):
    """The same in a `with` block."""

    def call(self, inputs: Any) -> Any:
        with amp.float32_op(output=self.kind) as stretch:
            return stretch.back(self.scores(stretch.up(inputs)))


def eager(layer: Any, x: Any) -> Any:
    return layer(x)


def in_graph(layer: Any, x: Any) -> Any:
    return tf.function(eager)(layer, x)


def in_jit(layer: Any, x: Any) -> Any:
    return tf.function(eager, jit_compile=True)(layer, x)


def in_functional(layer: Any, x: Any) -> Any:
    inputs = keras.Input(x.shape[1:], dtype=x.dtype.name)
    return keras.Model(inputs, layer(inputs))(x)


by_layer = pytest.mark.parametrize("make", [Decorated, Method, Context])


@pytest.mark.parametrize("call", [eager, in_graph, in_jit, in_functional])
@by_layer
@by_half
def test_a_stretch_computes_in_float32_and_comes_back(
    make: Callable[..., Any], call: Callable[..., Any], dtype: str
) -> None:
    layer = make(dtype=f"mixed_{dtype}")
    # 300 squared is beyond float16.
    found = call(layer, tf.constant([[300.0, 400.0]], dtype))
    assert layer.inside == {"float32"}
    assert name(found) == dtype
    assert float(found[0, 0]) == 250


@pytest.mark.parametrize("make", [Decorated, Context])
@by_half
def test_results_stay_float32_where_asked_for(make: Callable[..., Any], dtype: str) -> None:
    layer = make(dtype=f"mixed_{dtype}")
    layer.kind = "float32"
    assert name(layer(tf.constant([[300.0]], dtype))) == "float32"


@by_layer
def test_in_a_float32_layer_results_stay_float32(make: Callable[..., Any]) -> None:
    assert name(make(dtype="float32")(tf.constant([[300.0]], "float16"))) == "float32"


@by_layer
def test_variables_stored_in_half_are_read_as_float32(make: Callable[..., Any]) -> None:
    layer = make(dtype="float16")
    found = layer(tf.constant([[300.0]], "float16"))
    assert layer.inside == {"float32"}
    assert name(found) == "float16"


@by_half
def test_outside_of_layers_results_come_back_to_the_dtype_of_the_half_input(dtype: str) -> None:
    squares = amp.float32_op(lambda x, y: x * x * y)
    assert name(squares(tf.constant(2.0), tf.constant(3.0, dtype))) == dtype


def test_without_a_half_input_nothing_changes() -> None:
    squares = amp.float32_op(lambda x: {"x": x, "n": 1})
    assert name(squares(tf.constant(2.0))["x"]) == "float32"
    assert name(squares(tf.constant(2.0, "float64"))["x"]) == "float64"


def test_nested_structures_go_up_and_come_back() -> None:
    seen = {}

    @amp.float32_op
    def function(parts: Any, *, scale: Any) -> Any:
        seen.update(x=name(parts["x"][0]), ids=name(parts["ids"]), scale=name(scale))
        return [parts["x"][0] * scale, parts["ids"]], None

    half = tf.constant([2.0], "bfloat16")
    (x, ids), nothing = function({"x": (half,), "ids": tf.constant([7])}, scale=half)
    assert seen == {"x": "float32", "ids": "int32", "scale": "float32"}
    assert (name(x), name(ids), nothing) == ("bfloat16", "int32", None)


def test_a_function_keeps_its_name() -> None:
    @amp.float32_op
    def scores(x: Any) -> Any:
        """Scores."""
        return x

    assert (scores.__name__, scores.__doc__) == ("scores", "Scores.")


def test_symbolic_tensors_go_up_and_come_back() -> None:
    x = keras.Input((3,), dtype="float16")
    y = amp.float32_op(lambda x: keras.ops.sum(x * x, axis=-1) / 1000)(x)
    assert y.dtype == "float16"
    assert keras.Model(x, y)(tf.constant([[300.0, 400.0, 0.0]], "float16")).numpy() == [250]


def test_gradients_are_float32_inside() -> None:
    def steep(x: Any) -> Any:
        # Inside, gradients are up to 1e10; around it, of the order of 1.
        return 1e-5 / (x * x + 1e-10) * 1e-5

    def gradient(function: Callable[[Any], Any]) -> float:
        x = tf.constant(1e-5, "float16")
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        return float(tape.gradient(value, x))

    # -2 x 1e-10 / (x^2 + 1e-10)^2, at the number of float16 that is next to 1e-5.
    x = float(np.float16(1e-5))
    expected = -2e-10 * x / (x * x + 1e-10) ** 2
    assert gradient(amp.float32_op(steep)) == pytest.approx(expected, rel=1e-3)
    assert not np.isclose(gradient(steep), expected, rtol=0.1)


def test_weights_get_their_gradients_through_a_stretch() -> None:
    layer = Context(dtype="mixed_float16")
    x = tf.constant([[300.0, 400.0]], "float16")
    layer(x)
    with tf.GradientTape() as tape:
        value = tf.cast(layer(x), "float32")
    gradient = tape.gradient(value, layer.kernel.value)
    np.testing.assert_allclose(gradient, [[90], [160]])
    assert name(gradient) == "float32"


def test_a_layer_called_inside_computes_as_its_own_policy_says() -> None:
    inner = Decorated(dtype="mixed_float16")
    with amp.float32_op() as stretch:
        result = inner(stretch.up(tf.constant([[3.0]], "float16")))
    assert name(result) == "float16"


def test_after_a_stretch_weights_read_as_before() -> None:
    class Layer(Decorated):
        def call(self, inputs: Any) -> Any:
            with pytest.raises(ZeroDivisionError), amp.float32_op():
                raise ZeroDivisionError
            self.after = name(self.kernel)
            return inputs

    layer = Layer(dtype="mixed_float16")
    layer(tf.ones((1, 2), "float16"))
    assert layer.after == "float16"


def test_stretches_nest_and_recur() -> None:
    @amp.float32_op
    def factorial(n: Any, x: Any) -> Any:
        return x if n == 0 else n * factorial(n - 1, x)

    found = factorial(9, tf.constant(0.1, "float16"))
    assert name(found) == "float16"
    assert float(found) == pytest.approx(362880 * 0.1, rel=1e-3)


def test_a_decorated_function_serves_several_threads() -> None:
    meeting = threading.Barrier(2, timeout=20)
    found = {}

    @amp.float32_op
    def function(x: Any) -> Any:
        meeting.wait()
        return x

    def work(dtype: str) -> None:
        found[dtype] = name(function(tf.constant(1.0, dtype)))

    threads = [threading.Thread(target=work, args=(dtype,)) for dtype in HALVES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"float16": "float16", "bfloat16": "bfloat16"}


def test_what_is_no_function_is_refused() -> None:
    message = (
        "Only functions can be decorated. Expected a function. Received: function='float32'. "
        "For a layer use Float32(layer)."
    )
    with pytest.raises(amp.errors.LayerError, match=re.escape(message)):
        amp.float32_op("float32")


def test_an_unknown_output_is_refused() -> None:
    with pytest.raises(amp.errors.LayerError, match=re.escape("Received: output='half'.")):
        amp.float32_op(output="half")


def generator(x: Any) -> Any:
    yield x


async def coroutine(x: Any) -> Any:
    return x


async def async_generator(x: Any) -> Any:
    yield x


@pytest.mark.parametrize("function", [generator, coroutine, async_generator])
def test_what_runs_after_the_stretch_is_refused(function: Any) -> None:
    message = (
        "A generator or coroutine runs when the stretch is over. Expected a function that "
        f"returns its results. Received: function={function!r}. "
        "Decorate what it calls, or return a list."
    )
    with pytest.raises(amp.errors.LayerError, match=re.escape(message)):
        amp.float32_op(function)


def test_a_layer_is_refused() -> None:
    layer = keras.layers.Dense(2, dtype="mixed_float16", name="head")
    message = f"Expected a function. Received: function={layer!r}. For a layer use Float32(layer)."
    with pytest.raises(amp.errors.LayerError, match=re.escape(message)):
        amp.float32_op(layer)


def assert_nothing_is_left_open() -> None:
    """Outside of layers, results have the dtype of their inputs, unless a scope is left."""
    twice = amp.float32_op(lambda x: x * 2)
    assert name(twice(tf.ones(2, "float16"))) == "float16"


def test_a_context_may_be_entered_again_inside_itself() -> None:
    context = amp.float32_op()
    with context as outer:
        first = outer.up(tf.ones(2, "float16"))
        with context as inner:
            assert name(inner.back(inner.up(tf.ones(2, "bfloat16")))) == "float32"
        assert name(outer.back(first)) == "float16"
    assert_nothing_is_left_open()


def test_a_context_serves_several_threads() -> None:
    meeting = threading.Barrier(2, timeout=20)
    context = amp.float32_op()
    found = {}

    def work(dtype: str) -> None:
        meeting.wait()
        with context as stretch:
            wide = stretch.up(tf.constant(1.0, dtype))
            meeting.wait()
            found[dtype] = name(stretch.back(wide))
            if dtype == "float16":
                meeting.wait()
        if dtype == "bfloat16":
            assert_nothing_is_left_open()
            meeting.wait()
        assert_nothing_is_left_open()
        found[f"{dtype} ends"] = True

    threads = [threading.Thread(target=work, args=(dtype,)) for dtype in HALVES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ends = {"float16 ends": True, "bfloat16 ends": True}
    assert found == {"float16": "float16", "bfloat16": "bfloat16", **ends}


def test_a_context_can_be_copied_with_what_it_hangs_on() -> None:
    with copy.deepcopy(amp.float32_op()) as stretch:
        assert name(stretch.up(tf.ones(2, "float16"))) == "float32"


@pytest.mark.parametrize("method", ["up", "back"])
def test_a_stretch_ends_with_its_block(method: str) -> None:
    with amp.float32_op() as stretch:
        pass
    message = (
        "A stretch of float32 ends with its block. Expected `up` and `back` inside of "
        "`with float32_op() as stretch:`. Received: a call after it."
    )
    with pytest.raises(amp.errors.LayerError, match=re.escape(message)):
        getattr(stretch, method)(tf.ones(2, "float16"))
