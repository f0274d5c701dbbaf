"""What each kind of device runs fast in half precision, and why.

Pure rules: plain facts about a device in, a `Verdict` out. Nothing here touches
a device, so every kind can be tested without owning one. A rule answers None
where the facts do not decide it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tf_amp_kit.hardware.facts import CpuFacts, GpuFacts

__all__ = ["Verdict", "judge_cpu", "judge_gpu", "judge_tpu"]

# Instructions that multiply the format itself. oneDNN's guide on data types
# names avx512_fp16 as float16's minimum but warns that it "may up-convert the
# data to f32", which "may perform slower" than float32: hence not in this list.
_X86_NATIVE: Final = {
    "bfloat16": frozenset({"amx_bf16", "avx512_bf16"}),
    "float16": frozenset({"amx_fp16"}),
}
# Instructions that help in some way, and leave the gain open.
_X86_PARTIAL: Final = {
    "bfloat16": frozenset({"avx_ne_convert"}),
    "float16": frozenset({"avx512_fp16", "avx_ne_convert"}),
}
_ARM_NATIVE: Final = {
    "bfloat16": frozenset({"bf16", "svebf16"}),
    "float16": frozenset({"asimdhp"}),
}

_OWN_KERNELS: Final = "and TensorFlow's own kernels convert it to float32"

# First compute capability with tensor cores for the format: Volta, Ampere.
# Source: NVIDIA's CUDA C++ Programming Guide, "Compute Capabilities".
_TENSOR_CORES_SINCE: Final = {"float16": (7, 0), "bfloat16": (8, 0)}

_INSTINCT: Final = re.compile(r"\bMI(\d{3})")


@dataclass(frozen=True)
class Verdict:
    """Whether a device is fast in one precision.

    Attributes:
        is_fast: True, False, or None where it cannot be known.
        reason: Why, in words.
    """

    is_fast: bool | None
    reason: str


def judge_cpu(facts: CpuFacts, precision: str) -> Verdict:
    """Judges one half precision on a CPU.

    On x86 two things must come together: TensorFlow hands the operation to
    oneDNN, and the CPU has instructions for the format. Without the first,
    einsum and the gradients of convolutions took 4 to 19 times as long as in
    float32; without the second, matmul and convolution in bfloat16 took 2.4
    times as long (both measured on one CPU with avx512_bf16, by switching off
    oneDNN and by hiding the instructions from it).

    Args:
        facts: A `CpuFacts`.
        precision: `"float16"` or `"bfloat16"`.

    Returns:
        A `Verdict`.

    Example:

    >>> judge_cpu(CpuFacts("arm", features_are_complete=True), "bfloat16")
    Verdict(is_fast=False, reason='the CPU has no bf16 or svebf16')
    """
    if facts.architecture == "x86":
        return _judge_x86(facts, precision)
    if facts.architecture == "arm":
        return _judge_arm(facts, precision)
    return Verdict(None, f"nothing is known about {facts.architecture} CPUs")


def _judge_x86(facts: CpuFacts, precision: str) -> Verdict:
    native = facts.features & _X86_NATIVE[precision]
    partial = facts.features & _X86_PARTIAL[precision]
    accepts = facts.onednn_accepts.get(precision)
    if facts.onednn_is_enabled is False:
        return Verdict(False, f"oneDNN is off, {_OWN_KERNELS}")
    if accepts is False:
        return Verdict(False, f"oneDNN does not take it on this CPU, {_OWN_KERNELS}")
    if facts.onednn_limit is not None:
        return Verdict(None, f"ONEDNN_MAX_CPU_ISA={facts.onednn_limit} limits what oneDNN may use")
    if native and accepts:
        return Verdict(True, f"oneDNN computes it with {_listed(native)}")
    if native:
        return Verdict(
            None, f"the CPU has {_listed(native)}, but TensorFlow does not say if it uses oneDNN"
        )
    if partial:
        return Verdict(None, f"{_listed(partial)} may gain or lose: oneDNN may compute in float32")
    if not facts.features_are_complete:
        return Verdict(None, "this system does not list the CPU's instructions for it")
    return Verdict(
        False, f"the CPU has no {_listed(_X86_NATIVE[precision], 'or')}, so it is emulated"
    )


def _judge_arm(facts: CpuFacts, precision: str) -> Verdict:
    # oneDNN's answer is left out: TensorFlow asks it for x86 instructions only.
    native = facts.features & _ARM_NATIVE[precision]
    if native:
        return Verdict(
            None, f"the CPU has {_listed(native)}, but TensorFlow does not say if it uses them"
        )
    if not facts.features_are_complete:
        return Verdict(None, "this system does not list the CPU's instructions for it")
    return Verdict(False, f"the CPU has no {_listed(_ARM_NATIVE[precision], 'or')}")


def judge_gpu(facts: GpuFacts, precision: str) -> Verdict:
    """Judges one half precision on a GPU.

    NVIDIA: tensor cores multiply float16 from compute capability 7.0 on, and
    bfloat16 from 8.0 on (CUDA C++ Programming Guide). AMD: every Instinct from
    MI100 on has matrix cores for both (ROCm, "Data types and precision
    support"); other AMD GPUs and Apple's do not tell TensorFlow what they are.

    Args:
        facts: A `GpuFacts`.
        precision: `"float16"` or `"bfloat16"`.

    Returns:
        A `Verdict`.

    Example:

    >>> judge_gpu(GpuFacts("nvidia", "Tesla T4", (7, 5)), "bfloat16")
    Verdict(is_fast=False, reason='compute capability 7.5: tensor cores for it start at 8.0')
    """
    if facts.compute_capability is not None:
        return _judge_tensor_cores(facts.compute_capability, precision)
    instinct = _INSTINCT.search(facts.model or "")
    if facts.vendor == "amd" and instinct:
        return Verdict(True, f"AMD Instinct {instinct.group()} has matrix cores for it")
    if facts.vendor == "nvidia":
        return Verdict(None, "TensorFlow does not name the compute capability")
    if facts.vendor == "amd":
        return Verdict(None, "ROCm does not name the architecture to TensorFlow")
    if facts.vendor == "apple":
        return Verdict(None, "Apple's Metal plugin does not say what it computes in half")
    return Verdict(None, "TensorFlow does not say what this GPU is")


def _judge_tensor_cores(capability: tuple[int, int], precision: str) -> Verdict:
    since = _TENSOR_CORES_SINCE[precision]
    has = f"compute capability {capability[0]}.{capability[1]}"
    if capability >= since:
        return Verdict(True, f"{has}: tensor cores multiply it")
    return Verdict(False, f"{has}: tensor cores for it start at {since[0]}.{since[1]}")


def judge_tpu(precision: str) -> Verdict:
    """Judges one half precision on a TPU, whose matrix unit multiplies bfloat16.

    Source: Google Cloud, "The bfloat16 numerical format". It says nothing of
    float16.

    Example:

    >>> judge_tpu("bfloat16").is_fast
    True
    """
    if precision == "bfloat16":
        return Verdict(True, "a TPU's matrix unit multiplies bfloat16")
    return Verdict(None, "TPUs are documented for bfloat16 only")


def _listed(features: frozenset[str], conjunction: str = "and") -> str:
    return f" {conjunction} ".join(sorted(features))
