"""Private names of Keras that a layer around another layer needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras


def dropout_cell_class() -> type:
    """Returns the class whose instances `RNN` prepares dropout masks of.

    Uses `keras.src.layers.rnn.dropout_rnn_cell.DropoutRNNCell`: the masks must
    be made once per sequence and dropped after it, only `RNN` knows when, it
    looks for this class, and the class has no public name.
    """
    from keras.src.layers.rnn.dropout_rnn_cell import DropoutRNNCell

    return DropoutRNNCell  # type: ignore[no-any-return]


def cast_with_mask(tensor: Any, dtype: str) -> Any:
    """Casts a tensor to a dtype, and gives the result the mask of the tensor."""
    return copy_mask(tensor, keras.ops.cast(tensor, dtype))


def mask_of(value: Any) -> Any:
    """Returns the mask that goes along with a tensor, or None.

    Uses `keras.src.backend.common.masking`, as `copy_mask` does.
    """
    from keras.src.backend.common.masking import get_keras_mask

    return get_keras_mask(value)


def set_mask(tensor: Any, mask: Any) -> None:
    """Gives a tensor a mask. Uses `keras.src.backend.common.masking`."""
    from keras.src.backend.common.masking import set_keras_mask

    set_keras_mask(tensor, mask)


def copy_mask(tensor: Any, target: Any) -> Any:
    """Gives a tensor that was made of another one the other's mask, and returns it.

    Uses `keras.src.backend.common.masking`: Keras hands masks from layer to
    layer as an attribute of the tensor, which no operation keeps.
    """
    mask = mask_of(tensor)
    if mask is not None and target is not tensor:
        set_mask(target, mask)
    return target


def set_input_dtypes(model: Any, dtypes: Sequence[str]) -> None:
    """Changes the dtypes that a graph model casts its inputs to.

    Uses `_dtype` of `KerasTensor` and `InputLayer`, and `_keras_history`: the
    public dtype cannot be set, and a Sequential model takes it from its first layer.

    Args:
        model: A Functional or Sequential model.
        dtypes: One per input.
    """
    for tensor, dtype in zip(model.inputs, dtypes, strict=True):
        tensor._dtype = dtype
        source = tensor._keras_history.operation
        if isinstance(source, keras.layers.InputLayer):
            source._dtype = dtype
