"""What this machine runs fast in half precision, and which one "auto" picks.

`facts` gathers what is known of a device, `rules` judges it, and
the records here put the verdicts together. Nothing is timed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from tf_amp_kit import tables
from tf_amp_kit.formats import HALF_PRECISIONS, parse_precision
from tf_amp_kit.hardware.facts import probe_cpu, probe_gpu
from tf_amp_kit.hardware.rules import Verdict, judge_cpu, judge_gpu, judge_tpu

__all__ = ["COLUMNS", "Device", "Hardware", "detect_hardware", "is_fast", "slow_reason"]

COLUMNS: Final = ("Device", "Model", "Precision", "Fast", "Why")
_WORDS: Final = {True: "yes", False: "no", None: "unknown"}


@dataclass(frozen=True)
class Device:
    """One device that TensorFlow can see.

    Attributes:
        name: TensorFlow's name, `"GPU:0"` for example.
        kind: `"cpu"`, `"gpu"`, `"tpu"`, or another type in lower case.
        model: What the vendor calls it, None if unknown.
        float16: The `Verdict` on float16: `is_fast` and `reason`.
        bfloat16: The `Verdict` on bfloat16.

    Example:

    >>> cpu = Device("CPU:0", "cpu", None, Verdict(False, "emulated"), Verdict(True, "native"))
    >>> cpu.verdict("bfloat16").reason
    'native'
    """

    name: str
    kind: str
    model: str | None
    float16: Verdict
    bfloat16: Verdict

    def verdict(self, precision: str) -> Verdict:
        """Returns the verdict on `"float16"`, `"bfloat16"` or `"float32"`."""
        if precision == "float32":
            return Verdict(True, "float32 is what the others are measured against")
        return self.bfloat16 if precision == "bfloat16" else self.float16


@dataclass(frozen=True)
class Hardware:
    """The devices of this machine, and the precision that suits them.

    Printing it gives a table; a notebook shows that as HTML.

    Attributes:
        devices: One `Device` each, in TensorFlow's order; may be empty.

    Example:

    >>> cpu = Device("CPU:0", "cpu", "EPYC", Verdict(False, "emulated"), Verdict(True, "native"))
    >>> print(Hardware((cpu,)))
    auto: bfloat16 (CPU:0 runs it fast, and it needs no loss scaling)
    <BLANKLINE>
    Device  Model  Precision  Fast  Why
    ----------------------------------------
    CPU:0   EPYC   float16    no    emulated
                   bfloat16   yes   native
    """

    devices: tuple[Device, ...]

    @property
    def default_device(self) -> Device | None:
        """The device that TensorFlow computes on by default: first GPU, else CPU."""
        by_kind = {device.kind: device for device in reversed(self.devices)}
        return by_kind.get("gpu", by_kind.get("cpu"))

    @property
    def auto_precision(self) -> str:
        """The precision that `"auto"` stands for on the default device."""
        return _choose(self.default_device)[0]

    @property
    def auto_reason(self) -> str:
        """Why `"auto"` picks that precision."""
        return _choose(self.default_device)[1]

    def is_fast(self, precision: str) -> bool | None:
        """Tells whether the default device is fast in a precision.

        Args:
            precision: Any spelling that `parse_precision` accepts.

        Returns:
            True, False, or None where it cannot be known. float32 is True.

        Raises:
            PrecisionError: If the precision is unknown.
        """
        return self._verdict(precision).is_fast

    def slow_reason(self, precision: str) -> str | None:
        """Says why the default device is slow in a precision, None if it is not."""
        verdict = self._verdict(precision)
        device = self.default_device
        if device is None or verdict.is_fast is not False:
            return None
        return f"{device.name}: {verdict.reason}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the record as a dictionary that `json.dumps` accepts."""
        return {
            "devices": [asdict(device) for device in self.devices],
            "auto_precision": self.auto_precision,
            "auto_reason": self.auto_reason,
        }

    def __str__(self) -> str:
        return tables.render_table(COLUMNS, self.rows(), title=self._title())

    def _repr_html_(self) -> str:
        return tables.html_table(COLUMNS, self.rows(), title=self._title())

    def _title(self) -> str:
        return f"auto: {self.auto_precision} ({self.auto_reason})"

    def rows(self) -> list[tuple[str, ...]]:
        """Returns the rows of the table, as text."""
        rows: list[tuple[str, ...]] = []
        for device in self.devices:
            names = (device.name, device.model or "unknown")
            for precision in HALF_PRECISIONS:
                verdict = device.verdict(precision)
                rows.append((*names, precision, _WORDS[verdict.is_fast], verdict.reason))
                names = ("", "")
        return rows

    def _verdict(self, precision: str) -> Verdict:
        parsed = parse_precision(precision, argument="precision")
        if self.default_device is None:
            return Verdict(None, "TensorFlow sees neither a GPU nor a CPU")
        return self.default_device.verdict(parsed)


def detect_hardware(*, thorough: bool = False) -> Hardware:
    """Finds out what this machine runs fast in float16 and bfloat16.

    Ask it before choosing a precision, or to see why a choice is slow. NVIDIA
    GPUs are judged by their compute capability (7.0 for float16, 8.0 for
    bfloat16), CPUs by their instructions and oneDNN's answer, see
    `rules`. Nothing is initialised, so memory growth can still be set
    afterwards. The verdicts are about matmuls and convolutions outside of
    `jit_compile`, where on CPUs the gain is gone.

    Args:
        thorough: Where there is no /proc/cpuinfo, ask py-cpuinfo. That takes
            a second or two and starts a process, so the main module of a script
            needs its `if __name__ == "__main__":`. It mostly adds the CPU's name.

    Returns:
        A `Hardware`.

    Example:

    >>> hardware = detect_hardware()
    >>> hardware.auto_precision in ("bfloat16", "float16", "float32")
    True
    """
    import tensorflow as tf

    return Hardware(
        tuple(_describe(device, thorough) for device in tf.config.get_visible_devices())
    )


def is_fast(precision: str) -> bool | None:
    """Tells whether the device that TensorFlow computes on is fast in a precision.

    Args:
        precision: Any spelling that `parse_precision` accepts.

    Returns:
        True, False, or None where it cannot be known.

    Raises:
        PrecisionError: If the precision is unknown.

    Example:

    >>> is_fast("fp32")
    True
    """
    return detect_hardware().is_fast(precision)


def slow_reason(precision: str) -> str | None:
    """Says why that device is slow in a precision, for a warning.

    Args:
        precision: Any spelling that `parse_precision` accepts.

    Returns:
        Device and reason, or None if it is fast or if nothing is known.

    Raises:
        PrecisionError: If the precision is unknown.

    Example:

    >>> slow_reason("float32") is None
    True
    """
    return detect_hardware().slow_reason(precision)


def _choose(device: Device | None) -> tuple[str, str]:
    if device is None:
        return "float32", "TensorFlow sees neither a GPU nor a CPU"
    if device.bfloat16.is_fast:
        return "bfloat16", f"{device.name} runs it fast, and it needs no loss scaling"
    if device.float16.is_fast:
        return "float16", f"{device.name} runs it fast, which is not known of bfloat16"
    reasons = "; ".join(f"{name}: {device.verdict(name).reason}" for name in HALF_PRECISIONS)
    return "float32", f"no half precision is known to be fast on {device.name}. {reasons}"


def _describe(device: Any, thorough: bool) -> Device:
    """Probes one `tf.config.PhysicalDevice`."""
    kind = device.device_type.lower()
    model = None
    if kind == "cpu":
        cpu_facts = probe_cpu(thorough=thorough)
        model = cpu_facts.model
        verdicts = {name: judge_cpu(cpu_facts, name) for name in HALF_PRECISIONS}
    elif kind == "gpu":
        gpu_facts = probe_gpu(device)
        model = gpu_facts.model
        verdicts = {name: judge_gpu(gpu_facts, name) for name in HALF_PRECISIONS}
    elif kind == "tpu":
        verdicts = {name: judge_tpu(name) for name in HALF_PRECISIONS}
    else:
        unknown = Verdict(None, f"nothing is known about devices of type {device.device_type}")
        verdicts = dict.fromkeys(HALF_PRECISIONS, unknown)
    name = device.name.removeprefix("/physical_device:")
    return Device(name=name, kind=kind, model=model, **verdicts)
