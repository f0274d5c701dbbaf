"""Audits with findings of every kind, made by hand."""

from tf_amp_kit.inspection.findings import CODES, finding
from tf_amp_kit.inspection.report import AuditReport
from tf_amp_kit.reporting.places import Places
from tf_amp_kit.tracing.source import Source

ROOT = "/src/project"
BUILDER = Source("/src/project/models/net.py", 40, "def build():")
PLACES = Places(ROOT, BUILDER)

INSIDE = Source("/src/project/models/net.py", 7, "return x * y")
OUTSIDE = Source("/usr/lib/layers.py", 9, "return x + y")


def found(code="AMP101", path="scale", source=INSIDE, message="returns float32", **more):
    return finding(code, path, "Scale", message, "cast it", source=source, **more)


def audit(*findings, remarks=()):
    return AuditReport("net", "bfloat16", findings, (), remarks)


def audit_of_every_kind():
    """Every code; lines inside, outside, unread and absent; names that need escapes."""
    return audit(
        *(found(code, f"layer_{code}") for code in CODES),
        found(source=OUTSIDE),
        found(source=None),
        found(source=Source("<string>", 1, "")),
        found(source=Source("/src/project/a b/größe,100%:x.py", 3, "")),
        found(path=""),
        found(path="@output/0", message="leaves {0} as {name} [1](2)\r\nin float16"),
        found(affects=("a", "b", "c", "d")),
        remarks=("Nothing was run.", "A {remark}."),
    )
