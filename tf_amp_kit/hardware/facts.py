"""What the system and TensorFlow say about a CPU or a GPU.

Facts only: what they mean for speed is for `rules` to say. TensorFlow's
devices are listed, not initialised, and nothing is timed.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from tf_amp_kit import _keras
from tf_amp_kit.formats import HALF_PRECISIONS

__all__ = ["CpuFacts", "GpuFacts", "parse_cpuinfo", "probe_cpu", "probe_gpu"]

_PROC_CPUINFO: Final = Path("/proc/cpuinfo")

_ARCHITECTURES: Final = {
    "x86_64": "x86",
    "amd64": "x86",
    "i686": "x86",
    "aarch64": "arm",
    "arm64": "arm",
}

# What oneDNN reads as "no limit".
_NO_LIMIT: Final = ("", "ALL", "DEFAULT")


@dataclass(frozen=True)
class CpuFacts:
    """What is known about a CPU and the libraries that compute on it.

    Attributes:
        architecture: `"x86"`, `"arm"` or the name that the system gives.
        model: What the vendor calls it, None if unknown.
        features: Instruction sets, in the spelling of Linux.
        features_are_complete: Whether a set that is not listed is missing.
        onednn_is_enabled: Whether TensorFlow uses oneDNN, None if unknown.
        onednn_accepts: By precision, whether oneDNN takes it on this CPU.
        onednn_limit: The value of `ONEDNN_MAX_CPU_ISA`, None if it limits nothing.
    """

    architecture: str
    model: str | None = None
    features: frozenset[str] = frozenset()
    features_are_complete: bool = False
    onednn_is_enabled: bool | None = None
    onednn_accepts: Mapping[str, bool | None] = field(default_factory=dict)
    onednn_limit: str | None = None


@dataclass(frozen=True)
class GpuFacts:
    """What is known about a GPU.

    Attributes:
        vendor: `"nvidia"`, `"amd"`, `"apple"`, or None if unknown.
        model: The name that the driver gives, None if unknown.
        compute_capability: NVIDIA's (major, minor), None if unknown.
    """

    vendor: str | None = None
    model: str | None = None
    compute_capability: tuple[int, int] | None = None


def probe_gpu(device: Any) -> GpuFacts:
    """Gathers what TensorFlow says about one GPU.

    Args:
        device: A `tf.config.PhysicalDevice` of type GPU.

    Returns:
        A `GpuFacts`.
    """
    import tensorflow as tf

    details = tf.config.experimental.get_device_details(device)
    capability = details.get("compute_capability")
    vendor = None
    if platform.system() == "Darwin":
        vendor = "apple"
    elif tf.test.is_built_with_rocm():
        vendor = "amd"
    elif tf.test.is_built_with_cuda():
        vendor = "nvidia"
    return GpuFacts(vendor, details.get("device_name"), capability)


def probe_cpu(*, thorough: bool = False) -> CpuFacts:
    """Gathers what the system and TensorFlow say about the CPU.

    Args:
        thorough: Ask py-cpuinfo where there is no /proc/cpuinfo.

    Returns:
        A `CpuFacts`.

    Example:

    >>> probe_cpu().architecture == ""
    False
    """
    machine = platform.machine().lower()
    listed = _PROC_CPUINFO.is_file()
    model, features = None, frozenset[str]()
    if listed:
        with _PROC_CPUINFO.open(encoding="utf-8") as lines:
            model, features = parse_cpuinfo(lines)
    elif thorough:
        model, features = _ask_py_cpuinfo()
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    return CpuFacts(
        architecture=_ARCHITECTURES.get(machine, machine),
        model=model,
        features=features,
        # By itself, py-cpuinfo decodes no bfloat16, float16 or AMX bit.
        features_are_complete=listed and bool(features),
        onednn_is_enabled=_keras.onednn_is_enabled(),
        onednn_accepts={name: _keras.onednn_accepts(name) for name in HALF_PRECISIONS},
        onednn_limit=None if limit.upper() in _NO_LIMIT else limit,
    )


def parse_cpuinfo(lines: Iterable[str]) -> tuple[str | None, frozenset[str]]:
    """Reads the first processor that /proc/cpuinfo lists.

    Args:
        lines: The lines of the file. Only those of the first processor are
            taken: on hundreds of cores the kernel is slow to write them all.

    Returns:
        The model's name, None if it is not given, and the instruction sets.

    Example:

    >>> model, features = parse_cpuinfo(["model name : EPYC", "flags : fma avx512_bf16"])
    >>> model, sorted(features)
    ('EPYC', ['avx512_bf16', 'fma'])
    """
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            fields[name.strip()] = value.strip()
        elif fields:
            break
    features = fields.get("flags", fields.get("Features", ""))
    return fields.get("model name"), frozenset(features.split())


@cache
def _ask_py_cpuinfo() -> tuple[str | None, frozenset[str]]:
    import cpuinfo

    info = cpuinfo.get_cpu_info()
    return info.get("brand_raw"), frozenset(info.get("flags", ()))
