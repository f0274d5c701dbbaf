"""What a trace records: tensors, operations, layer calls, and the whole of them.

The records hold facts and nothing that computes; every rule is a function of
them. Tensors are numbered through the whole trace, bodies of loops and branches
included, so that a value can be followed across layers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tf_amp_kit.formats import is_half, width
from tf_amp_kit.tracing.raw import Raw
from tf_amp_kit.tracing.source import Frame, Source

#: Operations that give a value on as it is, or only change its shape.
PASSING_TYPES: Final = frozenset(
    {
        "EnsureShape",
        "ExpandDims",
        "Identity",
        "IdentityN",
        "PreventGradient",
        "Reshape",
        "Snapshot",
        "Squeeze",
        "StopGradient",
    }
)


#: The name scope of code that runs in float32 on purpose.
MEANT_WIDE_SCOPE: Final = "float32_op"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of the trace.

    Attributes:
        dtype: The dtype's name, `"bfloat16"` for example.
        shape: The static shape, None for unknown dimensions or an unknown rank.
    """

    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def is_wide(self) -> bool:
        """Whether this is a float wider than 16 bits."""
        return width(self.dtype) > 16


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the trace.

    Attributes:
        index: The position in the order of creation, over all bodies.
        type: TensorFlow's operation type, `"MatMul"` for example.
        call: The index of the innermost layer call that ran it, -1 for none.
        inputs: Numbers of the tensors that it reads.
        outputs: Numbers of the tensors that it makes.
        bodies: For loops, branches and function calls: what each output may
            come from inside, as tensor numbers.
        body_spans: The indices of the operations of each body, with those of bodies
            inside of it.
        raw: Where its traceback and attributes are read from.
    """

    index: int
    type: str
    call: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    raw: Raw = field(repr=False, compare=False)
    bodies: tuple[tuple[int, ...], ...] = ()
    body_spans: tuple[range, ...] = ()

    @property
    def is_passing(self) -> bool:
        """Whether it only hands its first input on."""
        return self.type in PASSING_TYPES

    def inner_values(self, position: int) -> list[int]:
        """Returns what one output may come from inside the bodies, as tensor numbers."""
        return [body[position] for body in self.bodies if position < len(body)]

    def get_frames(self) -> Sequence[Frame]:
        """Returns the traceback of the creation, outermost first."""
        return self.raw.frames()

    def get_attribute(self, name: str) -> Any:
        """Returns an attribute by name, or None."""
        return self.raw.attribute(name)

    @property
    def is_meant_wide(self) -> bool:
        """Whether its code says that it runs in float32; unknown in an eager run."""
        return MEANT_WIDE_SCOPE in re.split(r"[/_\d]*/", self.raw.name())

    def constant(self) -> NDArray[Any] | None:
        """Returns the value of a constant operation, else None."""
        value = self.get_attribute("value") if self.type == "Const" else None
        if value is None:
            return None
        return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer, or of an operation between layers.

    Attributes:
        index: The position in the order of entering.
        parent: The index of the call around it, -1 for the model's own.
        depth: How many observed calls were open, this one included.
        path: The layer's path; for operations `<owner>/@operation`.
        layer_class: The class name.
        kind: `"layer"`, `"model"` or `"operation"`.
        is_custom: Whether the class is defined outside Keras.
        policy: The name of the dtype policy; empty for operations.
        compute_dtype: The policy's compute dtype; the owner's for operations.
        inputs: Tensor numbers of the arguments as they came in.
        outputs: Tensor numbers of what was returned.
        is_conflicted: Whether it ran in float32 only because half precision
            raised, and the rest of the model was to be seen.
        written_at: For operations between layers: the line that made them, if
            the build was observed.
    """

    index: int
    parent: int
    depth: int
    path: str
    layer_class: str
    kind: str
    is_custom: bool
    policy: str
    compute_dtype: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    is_conflicted: bool = False
    written_at: Source | None = None

    @property
    def is_half(self) -> bool:
        """Whether the layer was told to compute in half precision."""
        return is_half(self.compute_dtype)


@dataclass(frozen=True)
class LayerFacts:
    """What a layer is before any call.

    Attributes:
        path: The layer's path.
        parent: The path of the layer that holds it; None for the model.
        layer_class: The class name.
        is_model: Whether it is a `keras.Model`.
        policy: The dtype policy's name.
        compute_dtype: The policy's compute dtype.
        own_weight_dtypes: Dtypes of the float weights that it owns itself.
        trainable_half_weights: Names of its own trainable half weights.
        half_regularized_weights: Those of them with a regularizer.
        optimizers: Optimizers that hang on it.
    """

    path: str
    parent: str | None
    layer_class: str
    is_model: bool
    policy: str
    compute_dtype: str
    own_weight_dtypes: tuple[str, ...]
    trainable_half_weights: tuple[str, ...]
    half_regularized_weights: tuple[str, ...] = ()
    optimizers: tuple[OptimizerFacts, ...] = ()


@dataclass(frozen=True)
class OptimizerFacts:
    """An optimizer that hangs on a layer or model.

    Attributes:
        path: `@optimizer` below its owner, or the attribute's name.
        optimizer_class: The class name.
        scales: Whether it scales the loss, dynamically or by a constant.
        half_slots: Names of its half-precision variables.
    """

    path: str
    optimizer_class: str
    scales: bool
    half_slots: tuple[str, ...]


@dataclass(frozen=True)
class Conflict:
    """Dtypes that do not go together, so that a call raised.

    Attributes:
        path: The innermost layer that half precision made fail.
        layer_class: Its class name.
        dtypes: The float dtypes that met.
        origins: Where each of them came from, in words.
        message: The error's own message, first line.
        source: The line of user code that raised.
        is_missing_kernel: Whether no kernel exists, rather than a mismatch.
        operation: The operation type, where the message names it.
        is_model: Whether it is a model, whose `dtype` does not reach its layers.
    """

    path: str
    layer_class: str
    dtypes: tuple[str, ...]
    origins: tuple[str, ...]
    message: str
    source: Source | None
    is_missing_kernel: bool = False
    operation: str = ""
    is_model: bool = False


@dataclass(frozen=True)
class AddedLoss:
    """A loss that a layer added while it was called.

    Attributes:
        call: The index of the layer call.
        tensor: The loss's tensor number.
        dtype: The loss's dtype.
        from_regularizer: Whether an `activity_regularizer` made it.
        source: The line that added it.
    """

    call: int
    tensor: int
    dtype: str
    from_regularizer: bool
    source: Source | None


@dataclass(frozen=True)
class Constant:
    """A half-precision constant that is not what the code says.

    Attributes:
        operation: The index of the constant operation.
        value: What the half-precision graph holds.
        intended: What the code says, from its line or from a float32 trace.
    """

    operation: int
    value: float
    intended: float
