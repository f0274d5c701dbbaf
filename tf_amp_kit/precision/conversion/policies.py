"""What each policy becomes when a model changes its precision.

| change | a half layer | a float32 layer | other dtypes |
|---|---|---|---|
| a half model to a half | the new policy | stays: it is pinned | stay |
| a float32 model to a half | the new policy | the new policy | stay |
| any model to float32 | float32 | stays | stay |

A half model has a half policy itself, or most of its layers have.

Policies live in the configs of layers: as a policy, as a map from paths to
policies, or as a plain string. What is no layer keeps its dtypes: inputs,
constants, and operations between layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import keras

from tf_amp_kit import _keras
from tf_amp_kit.errors import ConversionError
from tf_amp_kit.formats import is_half, parse_precision
from tf_amp_kit.precision.pinning.policy_map import SublayerPins
from tf_amp_kit.tracing.paths import LayerPaths

__all__ = ["PolicyChange", "change_for", "is_policy", "keeps_its_dtypes", "without_pins"]

_FLOAT32: Final = "float32"
_MIXED: Final = "mixed_"

_POLICY_CLASSES: Final = frozenset({"DTypePolicy", "FloatDTypePolicy", "Policy"})
_POLICY_MAP: Final = "DTypePolicyMap"
_SUBLAYER_PINS: Final = SublayerPins.__name__

# Inputs say what the data is, and tensors and operations are code: none is a layer.
_KEEPING_CLASSES: Final = ("InputLayer", "__")
_OPERATIONS: Final = ("keras.src.ops", "keras.ops")


@dataclass(frozen=True)
class PolicyChange:
    """From one precision to another.

    Args:
        policy: The name of the policy that layers get.
        moves_float32: Whether float32 layers get it too; else only half ones do.
    """

    policy: str
    moves_float32: bool

    @property
    def compute_dtype(self) -> str:
        """The dtype that changed layers compute in."""
        return self.policy.removeprefix(_MIXED)

    @property
    def is_to_half(self) -> bool:
        """Whether the new precision is a half one."""
        return is_half(self.compute_dtype)

    def of(self, name: str) -> str:
        """Returns what a policy becomes, by name.

        Example:

        >>> change = PolicyChange("mixed_bfloat16", moves_float32=False)
        >>> change.of("mixed_float16"), change.of("float32"), change.of("int64")
        ('mixed_bfloat16', 'float32', 'int64')
        """
        if is_half(name.removeprefix(_MIXED)):
            return self.policy
        return self.policy if name == _FLOAT32 and self.moves_float32 else name

    def compute_dtype_of(self, dtype: str) -> str:
        """Returns what a layer computes in afterwards, by what it computes in now."""
        return self.of(dtype).removeprefix(_MIXED)

    def applied_to(self, value: Any, key: str = "") -> Any:
        """Rewrites the policies in a config, however deep they are.

        Args:
            value: A config as Keras serializes it, or a part of one. It is left
                as it is.
            key: The key that the part hangs on.

        Returns:
            A new config.
        """
        if isinstance(value, str) and ("dtype" in key or "policy" in key):
            return self._of_string(value, key)
        if isinstance(value, list | tuple):
            return type(value)(self.applied_to(one) for one in value)
        if not isinstance(value, dict) or keeps_its_dtypes(value):
            return value
        if is_policy(value):
            return self._of_policy(value)
        changed = {name: self.applied_to(one, name) for name, one in value.items()}
        if value.get("class_name") == "Lambda":
            # They are arguments of the user's own function.
            changed["config"]["arguments"] = value["config"].get("arguments")
        if "layers" in value:
            self._follow_first_layer(value["layers"], changed["layers"])
        return changed

    def _of_string(self, value: str, key: str) -> str:
        if key == "dtype" or value.startswith(_MIXED):
            return self.of(value)
        # Some other dtype of the layer's, to accumulate in, say.
        return self.compute_dtype if is_half(value) else value

    def _of_policy(self, node: dict[str, Any]) -> dict[str, Any]:
        node = without_pins(node)
        config = dict(node["config"])
        # Equal policies may be one object, and a map's entry change differently.
        rest = {name: one for name, one in node.items() if name != "shared_object_id"}
        if node["class_name"] != _POLICY_MAP:
            name = config.get("name")
            return {**rest, "config": {**config, "name": name and self.of(name)}}
        if not self.is_to_half:
            return {**rest, "class_name": "DTypePolicy", "config": {"name": self.policy}}
        # An entry was chosen for its path: float32 stays.
        entries = PolicyChange(self.policy, moves_float32=False).applied_to(config["policy_map"])
        default = self.applied_to(config["default_policy"], "policy")
        if isinstance(default, str):
            default = self.of(default)
        return {**rest, "config": {"default_policy": default, "policy_map": entries}}

    def _follow_first_layer(self, before: list[Any], after: list[Any]) -> None:
        """Moves the input that a Sequential model made itself, from its first layer's dtype."""
        if len(before) < 2 or "inbound_nodes" in before[0]:
            return
        own = before[0]["config"].get("dtype")
        if before[0].get("class_name") == "InputLayer" and is_half(str(own)):
            config = {**before[0]["config"], "dtype": self.compute_dtype}
            after[0] = {**before[0], "config": config}


def change_for(model: keras.Model, precision: Any, paths: LayerPaths) -> PolicyChange:
    """Decides what a precision means for a model.

    Args:
        model: The model.
        precision: Any spelling of a precision.
        paths: The model's layers.

    Raises:
        PrecisionError: If `precision` is unknown.
        ConversionError: If a layer is quantized.
    """
    dtype = parse_precision(precision, argument="precision")
    for path, layer in paths:
        if layer.dtype_policy.quantization_mode is not None:
            raise ConversionError(
                "A quantized model cannot change its float precision: its weights are integers. "
                f"Received: the layer {path or model.name!r} with the policy "
                f"{layer.dtype_policy.name!r}. Convert the model before `model.quantize()`."
            )
    policy = f"{_MIXED}{dtype}" if is_half(dtype) else dtype
    return PolicyChange(policy, moves_float32=not _is_half_model(model, paths))


def is_policy(node: Any) -> bool:
    """Tells whether a part of a config is a dtype policy, or a map of them."""
    return (
        isinstance(node, dict)
        and node.get("class_name") in {*_POLICY_CLASSES, _POLICY_MAP, _SUBLAYER_PINS}
        and isinstance(node.get("config"), dict)
    )


def without_pins(node: dict[str, Any]) -> dict[str, Any]:
    """Returns the config of a policy without the pins that it carries.

    Whoever makes layers from it has to set them.
    """
    if node["class_name"] != _SUBLAYER_PINS:
        return node
    config = node["config"]
    default = config["default_policy"]
    if config["policy_map"]:
        entries = {"default_policy": default, "policy_map": config["policy_map"]}
        return {"module": "keras", "class_name": _POLICY_MAP, "config": entries}
    if isinstance(default, dict):
        return default
    return {"module": "keras", "class_name": "DTypePolicy", "config": {"name": default}}


def keeps_its_dtypes(node: dict[str, Any]) -> bool:
    """Tells whether a part of a config is no layer's, so that its dtypes mean what they say."""
    is_operation = str(node.get("module")).startswith(_OPERATIONS)
    return is_operation or str(node.get("class_name")).startswith(_KEEPING_CLASSES)


def _is_half_model(model: keras.Model, paths: LayerPaths) -> bool:
    """Tells whether float32 layers of a model are exceptions in it."""
    if is_half(model.compute_dtype):
        return True
    # Keras gives a loaded model whatever policy is the global one at that time.
    dtypes = [layer.compute_dtype for _, layer in paths if not _keras.is_functional(layer)]
    return sum(map(is_half, dtypes)) > dtypes.count(_FLOAT32)
