"""What an audit says: a code, a place, a reason and a way out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tf_amp_kit.tracing.source import Source

__all__ = ["CODES", "SEVERITIES", "Finding", "at_least", "finding", "gravest_first"]

#: From the gravest on. A note is worth knowing and asks for nothing.
SEVERITIES: Final = ("error", "warning", "note")

#: The severity and the subject of every code.
CODES: Final = {
    "AMP101": ("warning", "float output wider than the compute dtype"),
    "AMP102": ("error", "float64 output"),
    "AMP103": ("warning", "matrix products in float32 inside a half layer"),
    "AMP104": ("warning", "not the precision that was asked for"),
    "AMP105": ("warning", "an operation outside any layer widens"),
    "AMP106": ("note", "casts up and down again without use"),
    "AMP107": ("error", "dtypes that conflict"),
    "AMP108": ("warning", "the level's pins were not applied"),
    "AMP201": ("warning", "model output in half precision"),
    "AMP202": ("warning", "sigmoid or softmax head in half precision"),
    "AMP203": ("note", "a sensitive operation in half precision"),
    "AMP204": ("warning", "a constant that overflows"),
    "AMP205": ("warning", "a constant that vanishes or rounds away"),
    "AMP206": ("warning", "raw inputs that the first cast damages"),
    "AMP207": ("warning", "ids that reach an Embedding through half precision"),
    "AMP301": ("error", "float16 without loss scaling"),
    "AMP302": ("warning", "no float32 master weights"),
    "AMP303": ("error", "a half-precision loss that makes `fit` raise"),
    "AMP401": ("error", "an operation without a kernel"),
    "AMP402": ("note", "no fast path on this machine"),
    "AMP403": ("note", "matrix dimensions that are no multiple of 8"),
}


@dataclass(frozen=True)
class Finding:
    """One thing that an audit found.

    Attributes:
        code: `"AMP101"` and so on; see `CODES`.
        severity: `"error"`, `"warning"` or `"note"`.
        path: The layer's path, joinable with rows and other reports. Empty for
            the model itself.
        layer_class: The class name of the layer.
        message: What happens.
        source: The line of code behind it, or None where there is none.
        fix: What to do about it, to paste where that is possible.
        affects: Paths of other layers that the same mistake touches.

    Example:

    >>> finding("AMP201", "@output/0", "Dense", "returns float16", "use float32").severity
    'warning'
    """

    code: str
    severity: str
    path: str
    layer_class: str
    message: str
    source: Source | None
    fix: str
    affects: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = self.path or "(model)"
        line = f" ({self.source})" if self.source else ""
        return f"{self.code} {self.severity} {place}: {self.message}{line}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dictionary for JSON."""
        return {
            "code": self.code,
            "severity": self.severity,
            "path": self.path,
            "layer_class": self.layer_class,
            "message": self.message,
            "source": self.source.to_dict() if self.source else None,
            "fix": self.fix,
            "affects": list(self.affects),
        }


def finding(
    code: str,
    path: str,
    layer_class: str,
    message: str,
    fix: str,
    *,
    source: Source | None = None,
    affects: tuple[str, ...] = (),
) -> Finding:
    """Makes a finding, with the severity that belongs to its code."""
    return Finding(code, CODES[code][0], path, layer_class, message, source, fix, affects)


def at_least(severity: str) -> tuple[str, ...]:
    """Returns a severity and the graver ones.

    Example:

    >>> at_least("warning")
    ('error', 'warning')
    """
    return SEVERITIES[: SEVERITIES.index(severity) + 1]


def gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sorts findings by severity; those of one severity keep their order.

    Example:

    >>> note = finding("AMP106", "a", "Dense", "casts", "do not")
    >>> error = finding("AMP102", "b", "Dense", "returns float64", "cast it")
    >>> [one.path for one in gravest_first([note, error])]
    ['b', 'a']
    """
    return tuple(sorted(findings, key=lambda one: SEVERITIES.index(one.severity)))
