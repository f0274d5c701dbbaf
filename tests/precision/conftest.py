"""A machine whose speed a test decides, in place of the one it runs on."""

from __future__ import annotations

import pytest

from tf_amp_kit import hardware


class Machine:
    """Stands in for what the hardware module finds; counts how often it is asked."""

    def __init__(self) -> None:
        self.fast: dict[str, bool | None] = {
            "float16": True,
            "bfloat16": True,
            "float32": True,
        }
        self.auto_precision = "bfloat16"
        self.auto_reason = "CPU:0 has no units for half"
        self.times_asked = 0

    def detect_hardware(self) -> Machine:
        self.times_asked += 1
        return self

    def is_fast(self, precision: str) -> bool | None:
        return self.fast[precision]

    def slow_reason(self, precision: str) -> str | None:
        return f"CPU:0 has no {precision} units" if self.fast[precision] is False else None


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(hardware, "detect_hardware", machine.detect_hardware)
    return machine
