"""How pins get into configurations, and so into files: found out by a rebuild.

Keras writes a configuration for each layer that a Functional or Sequential model
holds. A pinned layer among them writes its own policy. For layers that such an
owner makes in its constructor or in `build`, the ways are tried in this order:

1. The owner writes the policies of its layers itself, as wrappers do.
2. The owner passes its own policy on: it gets a `DTypePolicyMap`.
3. An owner of Keras has to be pinned whole.
4. The owner's policy carries the pins as `SublayerPins`, which need this package.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import keras

from tf_amp_kit import _keras
from tf_amp_kit.precision.layer_policies import policy_scope
from tf_amp_kit.precision.live_objects import LiveObjects, configs_stay_here
from tf_amp_kit.precision.pinning.policy_map import SublayerPins, pins_are_carried
from tf_amp_kit.precision.pinning.registry import pinned_paths
from tf_amp_kit.tracing.paths import LayerPaths, is_below
from tf_amp_kit.tracing.reading import is_custom
from tf_amp_kit.tracing.state import undisturbed
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["NOWHERE", "PACKAGE", "PLAIN", "WHOLE", "Verdict", "drop", "keep", "owner_of"]

#: Where a pin is kept: any Keras reads it, only this package does, nobody does.
PLAIN: Final = "plain Keras"
PACKAGE: Final = "needs tf_amp_kit"
NOWHERE: Final = "not kept"
#: The owner is a composite of Keras, which has to be pinned whole.
WHOLE: Final = "as a whole"

# The path of an owner below itself.
_ITSELF: Final = ""

# The policies of owners before theirs had to tell of pins below them.
_bases: Final[WeakKeyDictionary[Any, Any]] = WeakKeyDictionary()


class Verdict(NamedTuple):
    """Where the configuration of an owner keeps its pins.

    Attributes:
        where: `PLAIN`, `PACKAGE`, `NOWHERE` or `WHOLE`.
        why: What keeps it from keeping them, if it does not.
    """

    where: str
    why: str = ""


def owner_of(paths: LayerPaths, path: str) -> str:
    """Returns the path of the layer whose configuration a layer is part of.

    Args:
        paths: The paths of the model.
        path: The path of a layer in it.

    Returns:
        The path itself if a graph model holds the layer.
    """
    around = [above for above, _ in paths if is_below(path, above)]
    return next(above for above in (*around, path) if not _keras.writes_its_layers(paths[above]))


def drop(owner: Any) -> None:
    """Takes back what `keep` did to the policy of an owner."""
    if owner in _bases:
        _keras.replace_policy(owner, _bases.pop(owner))


def keep(owner: Any, made_under: Any) -> Verdict:
    """Gives the pins of a layer, and of what it holds, a place in its configuration.

    Args:
        owner: A layer or model that is no graph model; nothing is kept there yet.
        made_under: The global policy that it is made under again, when loaded.

    Returns:
        Where they are kept now.
    """
    pinned = list(pinned_paths(LayerPaths(owner)))
    if not pinned or _survive(owner, pinned, made_under):
        return Verdict(PLAIN)
    base = owner.dtype_policy
    _bases[owner] = base
    if not isinstance(owner, keras.Model):
        _keras.replace_policy(owner, _policy_map(owner, base, pinned))
        if _survive(owner, pinned, made_under):
            return Verdict(PLAIN)
    if not is_custom(owner) and _ITSELF not in pinned:
        drop(owner)
        return Verdict(WHOLE)
    carrying = SublayerPins(_default(base), dict(base) if _is_map(base) else None, pinned)
    _keras.replace_policy(owner, carrying)
    twin, why = _rebuilt(owner, made_under)
    if isinstance(getattr(twin, "dtype_policy", None), SublayerPins):
        return Verdict(PACKAGE)
    drop(owner)
    return Verdict(NOWHERE, why or "its configuration holds no dtype policy")


def _policy_map(owner: Any, base: Any, pinned: Sequence[str]) -> Any:
    policies = keras.dtype_policies.DTypePolicyMap(
        _default(base), dict(base) if _is_map(base) else None
    )
    # One key for all: a path that matches two of them is an error of Keras's.
    segments = sorted(filter(None, (_segments_below(owner, path) for path in pinned)))
    if segments:
        name, names = re.escape(owner.name), "|".join(map(re.escape, segments))
        # Anchored, because older Keras searches. What is around the owner changes.
        key = f"^(.*/)?{name}/({names})(/.*)?$"
        policies[key] = keras.dtype_policies.DTypePolicy("float32")
    return policies


def _segments_below(owner: Any, path: str) -> str:
    """Returns what Keras's path of a layer says below its owner's, or nothing."""
    own, above = LayerPaths(owner)[path].path or "", owner.path or owner.name
    return own.removeprefix(f"{above}/") if own.startswith(f"{above}/") else ""


def _is_map(policy: Any) -> bool:
    return isinstance(policy, keras.dtype_policies.DTypePolicyMap)


def _default(policy: Any) -> Any:
    return policy.default_policy if _is_map(policy) else policy


def _survive(owner: Any, pinned: Sequence[str], made_under: Any) -> bool:
    """Tells whether a rebuilt twin computes everywhere in the dtypes of the original."""
    twin, fault = _rebuilt(owner, made_under)
    if fault:
        return False
    found, wanted = _dtypes(twin), _dtypes(owner)
    # A model's twin is not built, so that what its layers make later is missing.
    return set(pinned) <= set(found) and found.items() <= wanted.items()


def _dtypes(owner: Any) -> dict[str, str]:
    # The policy of a graph model does nothing, and is in no configuration.
    layers = LayerPaths(owner)
    return {path: one.compute_dtype for path, one in layers if not _keras.is_functional(one)}


def _rebuilt(owner: Any, made_under: Any) -> tuple[Any, str]:
    """Makes a layer anew from its configuration, as loading does, and tells what failed.

    A twin that cannot be built any more is returned with the fault.
    """
    twin: Any = None
    paths = LayerPaths(owner)
    live = LiveObjects(paths)
    with (
        undisturbed(paths),
        _keras.names_of_another_process(),
        pins_are_carried(),
        _keras.unsafe_deserialization(),
        policy_scope(made_under),
        configs_stay_here(),
        _keras.random_state_restored(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # of a twin that nobody will use
        try:
            config = live.without_lambdas(owner.get_config())
            with keras.saving.custom_object_scope(live.by_name):
                twin = type(owner).from_config(config)
                build_config = owner.get_build_config()
                # Some layers make others only then. Alone, weights tell nothing.
                if build_config and len(dict(paths)) > 1 and not isinstance(owner, keras.Model):
                    twin.build_from_config(build_config)
            # A class without a `get_config` of its own may be unable to say it again.
            twin.get_config()
        except USER_CODE_ERRORS as error:
            return twin, f"it cannot be made from it again ({type(error).__name__})"
        return twin, ""
