"""Taking part where any model is compiled, and where it begins to train."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras

from tf_amp_kit._keras.patching import ClassPatch

# Takes Keras's own method, bound to a model, the model, and the arguments by name.
Around = Callable[[Callable[..., Any], Any, dict[str, Any]], Any]


@contextlib.contextmanager
def training_accompanied(compile_with: Around, fit_with: Around) -> Iterator[None]:
    """Calls functions instead of `compile` and `fit` of every model, for a `with` block.

    Replaces the methods of the classes that define them, which have no public name:
    `Trainer`, and `TensorFlowTrainer` for `fit`. Methods of subclasses get there by
    `super()`.

    Args:
        compile_with: Called instead of `compile`; it has to call what it is given.
        fit_with: Likewise for `fit`.
    """
    with contextlib.ExitStack() as stack:
        for name, around in (("compile", compile_with), ("fit", fit_with)):
            owner = next(one for one in keras.Model.__mro__ if name in vars(one))
            patch = ClassPatch(owner, name, functools.partial(_accompanied, around))
            stack.enter_context(patch.installed())
        yield


def train_function_patch(make: Callable[[Any], Any]) -> ClassPatch:
    """Returns a patch of the method that makes the function for train steps.

    It is `TensorFlowTrainer.make_train_function`, which `fit` and `train_on_batch` call when
    the model is built; that class has no public name.

    Args:
        make: Takes the original and returns the replacement.
    """
    name = "make_train_function"
    return ClassPatch(next(one for one in keras.Model.__mro__ if name in vars(one)), name, make)


def _accompanied(around: Around, original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def method(model: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(model, *args, **kwargs).arguments
        except TypeError:
            return original(model, *args, **kwargs)  # which says what is wrong
        _, *named = given.items()
        return around(functools.partial(original, model), model, dict(named))

    return method
