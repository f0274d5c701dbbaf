"""Sections of where and how a model ran: hardware, and a launched script."""

from __future__ import annotations

from tf_amp_kit.hardware import COLUMNS, Hardware
from tf_amp_kit.reporting.html.views import NEUTRAL, Section, Table

__all__ = ["hardware"]


def hardware(record: Hardware) -> Section:
    """Shows what this machine runs fast, and why."""
    verdict = f"'auto' stands for {record.auto_precision} here: {record.auto_reason}."
    return Section("Hardware", NEUTRAL, verdict, tables=[Table("Devices", COLUMNS, record.rows())])
