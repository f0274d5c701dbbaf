"""Private names of Keras that a layer around another layer needs."""

from __future__ import annotations

from typing import Any

import keras

from tf_amp_kit.formats import is_half


def dropout_cell_class() -> type:
    """Returns the class whose instances `RNN` prepares dropout masks of.

    Uses `keras.src.layers.rnn.dropout_rnn_cell.DropoutRNNCell`: the masks must
    be made once per sequence and dropped after it, only `RNN` knows when, it
    looks for this class, and the class has no public name.
    """
    from keras.src.layers.rnn.dropout_rnn_cell import DropoutRNNCell

    return DropoutRNNCell  # type: ignore[no-any-return]


def cast_with_mask(tensor: Any, dtype: str) -> Any:
    """Casts a tensor to a dtype, and gives the result the mask of the tensor.

    Uses `keras.src.backend.common.masking`: Keras hands masks from layer to
    layer as an attribute of the tensor, which a cast drops.
    """
    from keras.src.backend.common.masking import get_keras_mask, set_keras_mask

    cast = keras.ops.cast(tensor, dtype)
    mask = get_keras_mask(tensor)
    if mask is not None and cast is not tensor:
        set_keras_mask(cast, mask)
    return cast


def take_float32_inputs(model: Any) -> None:
    """Makes a graph model that rounds its inputs to half take float32 ones.

    Uses `_dtype` of `KerasTensor` and `InputLayer`, and `_keras_history`: models
    cast what they are given to the dtype of their symbolic inputs, the public
    dtype cannot be set, and a Sequential model takes it from its first layer.
    """
    for tensor in keras.tree.flatten(model.inputs):
        if is_half(tensor.dtype):
            tensor._dtype = "float32"
            source = tensor._keras_history.operation
            if isinstance(source, keras.layers.InputLayer):
                source._dtype = "float32"
