"""What a model file says about the precision that it was made with."""

from __future__ import annotations

import json
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import h5py
import keras

from tf_amp_kit.errors import LoadError
from tf_amp_kit.precision.conversion.policies import is_policy, keeps_its_dtypes, without_pins

__all__ = ["SavedModel", "read_saved", "weights_file"]

_FORMS: Final = "Expected a .keras file, its unpacked folder, or an .h5 file of a whole model."
_CONFIG: Final = "config.json"
_WEIGHTS: Final = "model.weights.h5"
_MIXED_FLOAT16: Final = "mixed_float16"


@dataclass(frozen=True)
class SavedModel:
    """The config of a file, and what its optimizer was.

    Attributes:
        config: The model's config, as Keras wrote it.
        scales: Whether the saved optimizer scales the loss; None without one, and
            where loading it is the same whatever the policy.
        has_h5_slots: Whether an optimizer's state is in the form of `.h5` files.
    """

    config: dict[str, Any]
    scales: bool | None = None
    has_h5_slots: bool = False

    @property
    def compile_config(self) -> dict[str, Any]:
        """The compile arguments, empty for a model that is not compiled."""
        return self.config.get("compile_config") or {}

    @property
    def is_scaled_by_keras(self) -> bool:
        """Whether `compile` itself wrapped the optimizer, as it does under mixed_float16."""
        given = self.compile_config.get("optimizer")
        name = given.get("class_name", "") if isinstance(given, dict) else ""
        return bool(self.scales) and not name.endswith("LossScaleOptimizer")

    @property
    def policy(self) -> Any:
        """The policy that was the global one: as a name, or a config of a policy.

        No file tells it straight. It is what the model itself has, if that is in
        its config, else what most layers have; a half one, of two. An optimizer
        that Keras wrapped tells that it was mixed_float16. Where the file has none, as of
        a model that writes the arguments of its class alone, it is Keras's global one.
        """
        if self.is_scaled_by_keras:
            return _MIXED_FLOAT16
        own = self.config["config"].get("dtype")
        counts = Counter([_as_key(own)] if own else map(_as_key, _layer_policies(self.config)))
        if not counts:
            return keras.config.dtype_policy().name
        most = max(counts, key=lambda key: (counts[key], key.startswith('"mixed_')))
        return json.loads(most)


def read_saved(path: str | os.PathLike[str]) -> SavedModel:
    """Reads the config of a model file, without making the model.

    Args:
        path: A `.keras` file, the folder that one was unpacked to, or an `.h5`
            file with a whole model.

    Raises:
        LoadError: If there is no such file, or no model's config in it.
    """
    file = Path(path)
    if not file.exists():
        raise LoadError(f"There is no such file. {_FORMS} Received: {str(path)!r}.")
    try:
        if file.is_dir():
            return _from_parts((file / _CONFIG).read_text(), lambda: file / _WEIGHTS)
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                text = archive.read(_CONFIG).decode()
                return _from_parts(text, lambda: archive.open(_WEIGHTS))
        with h5py.File(file, "r") as h5:
            config = _parsed(h5.attrs["model_config"])
            return SavedModel(config, has_h5_slots="optimizer_weights" in h5)
    except (KeyError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise LoadError(
            f"There is no model in this file: {str(error) or type(error).__name__}. {_FORMS} "
            f"Received: {str(path)!r}. A file with weights alone is for model.load_weights(); a "
            "damaged one has to be saved or copied again."
        ) from error


def weights_file(path: str | os.PathLike[str]) -> str:
    """Returns what `model.load_weights` takes for a model file."""
    return str(Path(path) / _WEIGHTS if Path(path).is_dir() else path)


def _parsed(text: str) -> dict[str, Any]:
    config = json.loads(text)
    if not isinstance(config, dict):
        raise ValueError("its config is no object")
    parts = {"config": config.get("config"), "compile_config": config.get("compile_config") or {}}
    for name, part in parts.items():
        if not isinstance(part, dict):
            raise ValueError(f"its {name!r} is no object")
    return config


def _from_parts(text: str, open_weights: Callable[[], Any]) -> SavedModel:
    config = _parsed(text)
    if _MIXED_FLOAT16 not in text or not config.get("compile_config"):
        return SavedModel(config)
    with h5py.File(open_weights(), "r") as h5:
        optimizer = h5.get("optimizer")
        return SavedModel(config, None if optimizer is None else "inner_optimizer" in optimizer)


def _layer_policies(node: Any) -> Iterator[Any]:
    """Yields the policies in the configs of layers; a layer used twice counts twice."""
    if isinstance(node, list):
        for one in node:
            yield from _layer_policies(one)
    elif isinstance(node, dict) and not keeps_its_dtypes(node):
        for key, value in node.items():
            if key == "dtype" and (is_policy(value) or _is_policy_name(value)):
                yield value
            elif key != "compile_config":
                yield from _layer_policies(value)


def _is_policy_name(value: Any) -> bool:
    names = ("float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16")
    return value in names


def _as_key(policy: Any) -> str:
    """Writes equal policies equally; a plain one as its name."""
    if isinstance(policy, dict):
        policy = without_pins(policy)
    if isinstance(policy, dict) and policy["class_name"] != "DTypePolicyMap":
        policy = policy["config"].get("name") or keras.config.floatx()
    return json.dumps(_without_ids(policy), sort_keys=True)


def _without_ids(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    return {key: _without_ids(one) for key, one in node.items() if key != "shared_object_id"}
