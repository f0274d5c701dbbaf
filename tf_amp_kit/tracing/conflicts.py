"""Reading an error that half precision caused: which dtypes met, and where."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.formats import is_float, is_half
from tf_amp_kit.tracing.source import (
    Frame,
    Source,
    frames_below_call,
    frames_of,
    is_user_code,
    source_of,
)

#: What TensorFlow and Keras raise for dtypes that do not go together.
POSSIBLE_ERRORS: Final = (TypeError, ValueError, NotImplementedError, tf.errors.OpError)

# These are about the machine, or about what stops a program, and may name dtypes by the way.
_OTHER_ERRORS: Final = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.OutOfRangeError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnavailableError,
)

_DTYPE_NAMES: Final = {
    "half": "float16",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "float32": "float32",
    "double": "float64",
    "float64": "float64",
    "complex64": "complex64",
    "complex128": "complex128",
}
_DTYPE_PATTERN: Final = re.compile(
    rf"\b(?:DT_)?({'|'.join(sorted(_DTYPE_NAMES, key=len, reverse=True))})\b", re.IGNORECASE
)
_MISSING_KERNEL_PATTERN: Final = re.compile(
    r"Could not find device for node|No OpKernel was registered|"
    r"not in (?:the )?list of allowed values|No registered '\w+' OpKernel"
)
_ABOUT_DTYPES_PATTERN: Final = re.compile(
    rf"dtype|\btypes?\b|{_DTYPE_PATTERN.pattern}", re.IGNORECASE
)
# By a name that is nothing else; "half" may be one of a file.
_HALF_PATTERN: Final = re.compile(r"\b(?:DT_HALF|float16|bfloat16)\b", re.IGNORECASE)
# What an operation would take is not what it got.
_ALLOWED_PATTERN: Final = re.compile(
    r"requires [\w. ]+ inputs|(?:one of|in) \[[^\]]*\]|list of allowed values:.*"
)
_OPERATION_PATTERN: Final = re.compile(
    r"\{\{node [^}]+\}\} = (\w+)\[|"
    r"\{\{node (\w+)\}\}|'(\w+)' Op\b|cannot compute (\w+) |Op '(\w+)'|\[Op:(\w+)\]"
)
# What TensorFlow calls the same operation where oneDNN has it for the processor.
_ONEDNN_PATTERN: Final = re.compile(r"^_Mkl(?:Native)?")


@dataclass(frozen=True)
class Clash:
    """What one error says about dtypes.

    Attributes:
        dtypes: The float dtypes that met, in the order found.
        origins: For each of them where it came from, in words.
        message: The error's own message, in one line.
        source: The line of user code that raised.
        operation: TensorFlow's operation type, or empty.
        is_missing_kernel: Whether an operation does not exist for the dtype.
        is_about_dtypes: Whether the message speaks of dtypes at all.
        blames_half: Whether half precision may be the reason: two dtypes met, one of half
            precision is named, or an operation does not exist for it.
    """

    dtypes: tuple[str, ...]
    origins: tuple[str, ...]
    message: str
    source: Source | None
    operation: str
    is_missing_kernel: bool
    is_about_dtypes: bool
    blames_half: bool


class MissingKernel(Exception):  # noqa: N818 - a signal, never an error for users
    """Stops a build that cannot go on in float32 either."""

    def __init__(self, layer: Any, clash: Clash) -> None:
        super().__init__(clash.message)
        self.layer, self.clash = layer, clash


class KernelNotFound(NotImplementedError):  # noqa: N818 - a signal, never an error for users
    """Stands for what TensorFlow would raise once an operation ran."""

    # Keras makes exceptions anew with a message alone.
    @classmethod
    def of(cls, op_type: str, dtype: str, device_type: str) -> KernelNotFound:
        """Makes one for an operation and the dtype that it has no kernel for."""
        return cls(
            f"No OpKernel was registered to support Op '{op_type}' for {dtype} on {device_type}"
        )


def describe(error: BaseException) -> Clash:
    """Reads the dtypes, the operation and the line out of an error.

    Args:
        error: What a layer call raised, with its traceback.

    Returns:
        A `Clash`; its fields are empty where the error does not tell.
    """
    error = _with_dtypes(error)
    message = _message(error)
    operands = _clashing_operands(error)
    dtypes = tuple(operands) or tuple(
        dict.fromkeys(
            _DTYPE_NAMES[name.lower()]
            for name in _DTYPE_PATTERN.findall(_ALLOWED_PATTERN.sub("", message))
        )
    )
    operation = next(
        (name for groups in _OPERATION_PATTERN.findall(message) for name in groups if name), ""
    )
    operation = _ONEDNN_PATTERN.sub("", operation)
    is_missing_kernel = _MISSING_KERNEL_PATTERN.search(message) is not None
    is_about_dtypes = _ABOUT_DTYPES_PATTERN.search(message) is not None
    met_half = is_about_dtypes and len(dtypes) > 1 and any(map(is_half, dtypes))
    names_half = met_half or _HALF_PATTERN.search(message) is not None
    return Clash(
        dtypes=dtypes,
        origins=tuple(_origin(dtype, value) for dtype, value in operands.items()),
        message=message,
        source=source_of(_frames(error)),
        operation=operation,
        is_missing_kernel=is_missing_kernel,
        is_about_dtypes=is_about_dtypes,
        blames_half=(is_missing_kernel or names_half) and not isinstance(error, _OTHER_ERRORS),
    )


def _with_dtypes(error: BaseException) -> BaseException:
    """Looks behind an error that hides the one about dtypes."""
    telling = (
        one for one in chain_of(error) if len(set(_DTYPE_PATTERN.findall(_message(one)))) >= 2
    )
    return next(telling, error)


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """Yields an error, and those that it was raised from or during the handling of.

    Those behind a `raise ... from None` too: Keras raises errors so, with a text of its own.
    """
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


def _message(error: BaseException) -> str:
    converted = _keras.autograph_error(error)
    text = str(error) if converted is None else converted[0]
    # Keras puts an explanation of its own before it, and the arguments behind it: both
    # speak of dtypes, whatever the error is about.
    text = text.rpartition("Error encountered:")[2].partition("Arguments received by")[0]
    return " ".join(text.split())


def _frames(error: BaseException) -> tuple[Frame, ...]:
    converted = _keras.autograph_error(error)
    if converted is None:
        return frames_of(traceback.extract_tb(error.__traceback__))
    return tuple(Frame(*frame) for frame in converted[1])


def _clashing_operands(error: BaseException) -> dict[str, Any]:
    """Finds two tensors of different float dtypes in the frames that failed."""
    # Autograph raises some errors anew, with the frames left in the first one.
    first = error.__context__ if _keras.autograph_error(error) else None
    tracebacks = [error.__traceback__, first.__traceback__ if first else None]
    return next((found for one in tracebacks if (found := _operands_below(one))), {})


def _operands_below(frames: Any) -> dict[str, Any]:
    for frame, _ in reversed(list(traceback.walk_tb(frames))):
        found: dict[str, Any] = {}
        for value in _tensors_in(list(frame.f_locals.values())):
            found.setdefault(_dtype_name(value), value)
        if len(found) >= 2:
            return found
        if is_user_code(frame.f_code.co_filename):
            break
    return {}


def _tensors_in(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple) and len(value) < 100:
            yield from _tensors_in([item for item in value if not isinstance(item, list | tuple)])
        elif hasattr(value, "shape") and is_float(_dtype_name(value)):
            yield value


def _dtype_name(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    name = getattr(dtype, "name", dtype)
    return name.removesuffix("_ref") if isinstance(name, str) else ""


def _origin(dtype: str, value: Any) -> str:
    operation = getattr(value, "op", None) if tf.is_symbolic_tensor(value) else None
    frames: Sequence[Frame] = frames_of(operation.traceback) if operation is not None else ()
    source = source_of(frames_below_call(frames))
    kind = "constant" if operation is not None and operation.type == "Const" else "tensor"
    if operation is None:
        kind = "variable" if hasattr(value, "assign") else "tensor"
    return f"{dtype} {kind}" + (f" of {source} `{source.text}`" if source else "")
