"""From what a command line names to a model, or to a function that builds one.

A `.keras` file is opened in safe mode, so that it cannot run code of its own. A
builder, `package.module:builder`, is imported and not called: who looks at the
model calls it, because what fails while building is worth a finding. Data are what
a function, `package.module:data`, returns.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import keras
import tensorflow as tf

from tf_amp_kit.errors import LoadError, ModelError
from tf_amp_kit.precision.conversion.loading import load_model

__all__ = ["built_model", "current_directory_importable", "load_data", "load_source"]

_FORMS: Final = "Expected a .keras file or package.module:builder."
_DATA_FORM: Final = "Expected package.module:data."
_DATA: Final = "`(x, y)`, `(x, y, sample_weight)`, a dataset, or `(train, validation)` of these"
_BUILDER_WAY: Final = (
    "If you trust the file, name a function that {what} and returns "
    "keras.saving.load_model({path!r}{argument}): package.module:builder."
)


def load_source(name: str) -> keras.Model | Callable[[], Any]:
    """Opens a `.keras` file, or imports a builder.

    Args:
        name: A path that ends in `.keras`, or `package.module:builder`.

    Returns:
        The model of a file; or the builder, which was not called.

    Raises:
        LoadError: If there is no such file, module or builder, or if the file
            is damaged, holds unknown classes or wants to run code.
        Exception: Whatever the imported module raises by itself.

    Example:

    >>> load_source("keras.applications:MobileNetV3Small").__name__
    'MobileNetV3Small'
    """
    if name.endswith(".keras"):
        return _load_file(Path(name))
    if ":" not in name:
        what = "not a .keras file" if os.path.exists(name) else "neither a file nor a builder"
        raise LoadError(f"This is {what}. {_FORMS} Received: {name!r}.")
    return _import_function(name, "builder", "a model", _FORMS)


def built_model(source: keras.Model | Callable[[], Any], *, needs_loss: bool = True) -> keras.Model:
    """Calls a builder, and sees to it that there is a model.

    Args:
        source: What `load_source` returned.
        needs_loss: Whether it has to be compiled.

    Returns:
        The model.

    Raises:
        LoadError: If the builder returns something else.
        ModelError: If the model is not compiled, and has to be.
        Exception: Whatever the builder raises by itself.

    Example:

    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> built_model(lambda: model, needs_loss=False) is model
    True
    """
    is_file = isinstance(source, keras.Model)
    model = source if isinstance(source, keras.Model) else source()
    origin = "the file" if is_file else f"{getattr(source, '__name__', source)}()"
    if not isinstance(model, keras.Model):
        raise LoadError(
            "The builder does not return a model. Expected a keras.Model. "
            f"Received: {origin} returned {type(model).__name__}."
        )
    if needs_loss and not model.compiled:
        way = "Save it compiled, or name a builder that compiles it: package.module:builder."
        raise ModelError(
            "The model has no loss. Expected a compiled model. "
            f"Received: {type(model).__name__} named {model.name!r} of {origin}. "
            f"{way if is_file else 'Call its compile() in the builder.'}"
        )
    return model


def load_data(name: str) -> tuple[Any, Any]:
    """Imports a function and calls it for data.

    Args:
        name: `package.module:data`, a function without arguments. It returns
            `(x, y)` or `(x, y, sample_weight)`, a `tf.data.Dataset` or a Keras
            `PyDataset`; or a tuple of two of these, for training and validation. So
            where inputs and targets both are several, they are lists or
            dictionaries: two tuples would be taken for the latter.

    Returns:
        The training data, and the validation data or None.

    Raises:
        LoadError: If there is no such module or function, or if it returns nothing, or
            a dataset beside something else.
        Exception: Whatever the module or the function raises by itself.

    Example:

    >>> load_data("keras.datasets.mnist:load")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tf_amp_kit.errors.LoadError: The module 'keras.datasets.mnist' has no load. ...
    """
    if ":" not in name:
        raise LoadError(f"This names no function. {_DATA_FORM} Received: {name!r}.")
    function = _import_function(name, "function for data", _DATA, _DATA_FORM)
    data = function()
    if data is None:
        raise LoadError(
            f"The function returns no data. Expected {_DATA}. Received: {name!r} returned None."
        )
    return _train_and_validation(data, name)


def _train_and_validation(data: Any, name: str) -> tuple[Any, Any]:
    datasets = tf.data.Dataset | keras.utils.PyDataset
    if not isinstance(data, tuple):
        return data, None
    if len(data) == 2:
        train, validation = data
        is_whole = isinstance(train, tuple | datasets) and isinstance(validation, tuple | datasets)
        if is_whole or (isinstance(train, datasets) and validation is None):
            return train, validation
    if any(isinstance(part, datasets) for part in data):
        kinds = ", ".join(type(part).__name__ for part in data)
        raise LoadError(
            "The function returns a dataset beside something else: a dataset holds its targets "
            f"itself. Expected {_DATA}. Received: {name!r} returned ({kinds})."
        )
    return data, None


@contextlib.contextmanager
def current_directory_importable() -> Iterator[None]:
    """Lets modules of the current directory be imported, as `python -m` does."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        # By value, because the imported module may have changed the list too.
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _load_file(path: Path) -> keras.Model:
    if not path.is_file():
        raise LoadError(f"There is no such file. {_FORMS} Received: {str(path)!r}.")
    if not zipfile.is_zipfile(path):
        raise LoadError(
            "The file is damaged or not completely copied: a .keras file is a zip archive, and "
            f"this one has no table of contents. Received: {str(path)!r}. Save or copy it again."
        )
    try:
        model = load_model(path)
    except (AttributeError, LookupError, OSError, TypeError, ValueError, zipfile.BadZipFile) as e:
        raise LoadError(_why_not_loaded(path, str(e))) from e
    if not isinstance(model, keras.Model):
        raise LoadError(
            "The file does not hold a model. Expected a keras.Model. "
            f"Received: {str(path)!r} with a {type(model).__name__}."
        )
    return model


def _why_not_loaded(path: Path, message: str) -> str:
    unknown = re.search(r"Could not locate (?:class|function) '([^']+)'", message)
    if unknown:
        way = _BUILDER_WAY.format(what="imports its code", path=str(path), argument="")
        return (
            f"The file holds {unknown[1]!r}, which is not registered here: opening a file imports "
            f"no code. Received: {str(path)!r}. {way}"
        )
    if "unsafe_deserialization" in message:
        way = _BUILDER_WAY.format(
            what="opens it unsafely", path=str(path), argument=", safe_mode=False"
        )
        return (
            "The file holds Python code (a Lambda layer, for example), and files are opened in "
            f"safe mode. Received: {str(path)!r}. {way}"
        )
    innermost = message.rpartition("Exception encountered: ")[2]
    reason = innermost.strip().partition("\n")[0][:300].rstrip(".")
    return f"The file cannot be opened: {reason}. Received: {str(path)!r}. Save or copy it again."


def _import_function(name: str, what: str, result: str, forms: str) -> Callable[[], Any]:
    """Imports a function without arguments; the other arguments are words for errors."""
    module_name, _, attribute = name.partition(":")
    module = _import_module(module_name, name, forms)
    function: Any = module
    for part in attribute.split("."):
        function = getattr(function, part, None)
        if function is None:
            raise LoadError(
                f"The module {module_name!r} has no {attribute or 'name after the colon'}. "
                f"{forms} Received: {name!r}."
            )
    if not inspect.isroutine(function) or not _takes_no_arguments(function):
        raise LoadError(
            f"This is no {what}. Expected a function that takes no arguments and returns "
            f"{result}. Received: {name!r}, {_described(function)}."
        )
    return function


def _import_module(module_name: str, name: str, forms: str) -> ModuleType:
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise LoadError(f"This is no module's name. {forms} Received: {name!r}.")
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Only the named module or its packages: what it imports itself is its own affair.
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            way_out = "" if not module_name.endswith(".py") else " Leave the .py out."
            raise LoadError(
                f"There is no module {error.name!r} in {os.getcwd()!r} or installed. "
                f"{forms} Received: {name!r}.{way_out}"
            ) from None
        raise


def _takes_no_arguments(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # some builtins do not tell
        return True
    return True


def _described(thing: Any) -> str:
    if isinstance(thing, type):
        return f"the class {thing.__name__}"
    if inspect.isroutine(thing):
        return f"which takes {inspect.signature(thing)}"
    return f"a {type(thing).__name__}"
