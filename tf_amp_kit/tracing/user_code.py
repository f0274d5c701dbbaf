"""What code that users wrote may raise when it is called out of its usual run."""

from __future__ import annotations

from typing import Final

import tensorflow as tf

__all__ = ["USER_CODE_ERRORS"]

#: What a model's own code raises where it is traced, rebuilt or asked for its
#: config, and was not written for that. Whoever catches these has another way
#: on, or names whose code it was: by themselves they are no fault of anybody.
#: Left out are those that no code of a layer means: of memory, of the system,
#: of imports and of names, and what stops a program.
USER_CODE_ERRORS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,  # NotImplementedError among them
    TypeError,
    ValueError,
    tf.errors.OpError,
)
