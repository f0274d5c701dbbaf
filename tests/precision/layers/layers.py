"""Layers that tell what they were given, and layers that are hard to wrap."""

from __future__ import annotations

from typing import Any

import keras


class Seen(keras.layers.Layer):
    """A dense layer that notes the dtypes of its input, weight and result."""

    def __init__(self, units: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.dtypes: set[str] = set()

    def build(self, input_shape: Any) -> None:
        self.kernel = self.add_weight(shape=(input_shape[-1], self.units), name="kernel")

    def call(self, inputs: Any) -> Any:
        outputs = keras.ops.matmul(inputs, self.kernel)
        for tensor in (inputs, self.kernel, outputs):
            self.dtypes.add(keras.backend.standardize_dtype(tensor.dtype))
        return outputs

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units}


class MadeInInit(keras.layers.Layer):
    """Its sublayer takes the global policy, when the layer is made."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inner = Seen()

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self.inner.compute_output_shape(input_shape)


class MadeInBuild(keras.layers.Layer):
    """Its sublayer takes the global policy, when the layer is built."""

    def build(self, input_shape: Any) -> None:
        self.inner = Seen()
        self.inner.build(input_shape)

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self.inner.compute_output_shape(input_shape)


class HalfInBuild(keras.layers.Layer):
    """Its sublayer asks for half precision, when the layer is built."""

    def build(self, input_shape: Any) -> None:
        self.inner = Seen(dtype="mixed_float16")
        self.inner.build(input_shape)

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs)


class Uncast(keras.layers.Layer):
    """Opts out of Keras's casts, as LayerNormalization does."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.inner = Seen()

    def build(self, input_shape: Any) -> None:
        self.inner.build(input_shape)

    def call(self, inputs: Any) -> Any:
        self.inner.dtypes.add(keras.backend.standardize_dtype(inputs.dtype))
        return self.inner(inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self.inner.compute_output_shape(input_shape)


class Branches(keras.Model):
    """Takes a dictionary, and returns one with floats and integers."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inner = Seen()

    def build(self, input_shape: Any) -> None:
        self.inner.build(input_shape["x"])

    def call(self, inputs: Any) -> Any:
        y = self.inner(inputs["x"])
        return {"y": y, "best": keras.ops.argmax(y, axis=-1), "ids": inputs["ids"] + 1}


class WithLoss(keras.layers.Layer):
    """Adds a loss as large as its inputs."""

    def call(self, inputs: Any) -> Any:
        self.add_loss(keras.ops.sum(inputs))
        return inputs


class Lies(keras.layers.Layer):
    """Returns integers, where Keras believes in floats."""

    def call(self, inputs: Any) -> Any:
        return keras.ops.argmax(inputs, axis=-1)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape[:-1]
