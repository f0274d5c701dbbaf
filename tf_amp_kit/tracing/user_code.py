"""What running code of a user's own may raise, on inputs that nobody checked."""

from __future__ import annotations

from typing import Final

import tensorflow as tf

__all__ = ["USER_CODE_ERRORS"]

#: Errors of code that is run to look at it. Others are no business of the code's:
#: an interrupt, or memory that is used up.
USER_CODE_ERRORS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
    tf.errors.OpError,
)
