import numpy as np
import pytest

from tf_amp_kit.hardware import memory
from tf_amp_kit.hardware.memory import free_memory_bytes, peak_resident_bytes, resident_bytes

MEBIBYTE = 2**20


@pytest.fixture
def system(monkeypatch, tmp_path):
    """A Linux whose files a test writes; none of them exists at first."""
    names = ("meminfo", "status", "statm", "max", "current")
    files = {name: tmp_path / name for name in names}
    monkeypatch.setattr(memory, "_MEMINFO", files["meminfo"])
    monkeypatch.setattr(memory, "_STATUS", files["status"])
    monkeypatch.setattr(memory, "_STATM", files["statm"])
    monkeypatch.setattr(memory, "_LIMITS", ((files["max"], files["current"]),))
    return files


def test_free_memory_is_what_linux_calls_available(system):
    system["meminfo"].write_text("MemFree:  10 kB\nMemAvailable:   2000 kB\n")
    assert free_memory_bytes() == 2000 * 1024


def test_a_container_has_no_more_than_its_limit_leaves(system):
    system["meminfo"].write_text("MemAvailable:   2000 kB\n")
    system["max"].write_text("1000000\n")
    system["current"].write_text("400000\n")
    assert free_memory_bytes() == 600_000


def test_a_container_over_its_limit_has_nothing_left(system):
    system["meminfo"].write_text("MemAvailable:   2000 kB\n")
    system["max"].write_text("1000\n")
    system["current"].write_text("1500\n")
    assert free_memory_bytes() == 0


def test_a_container_without_limit_has_what_the_machine_has(system):
    system["meminfo"].write_text("MemAvailable:   2000 kB\n")
    system["max"].write_text("max\n")
    system["current"].write_text("400000\n")
    assert free_memory_bytes() == 2000 * 1024


def test_free_memory_is_unknown_where_there_is_no_meminfo(system):
    assert free_memory_bytes() is None


def test_resident_memory_is_unknown_where_there_is_no_statm(system):
    assert resident_bytes() is None


def test_the_peak_is_the_kernel_s_high_water_mark(system):
    system["status"].write_text("VmPeak:  9 kB\nVmHWM:\t  300 kB\nVmRSS:\t 200 kB\n")
    assert peak_resident_bytes() == 300 * 1024


def test_the_peak_comes_from_getrusage_where_there_is_no_status(system):
    assert peak_resident_bytes() > MEBIBYTE


def test_resident_memory_grows_by_what_is_written():
    before = resident_bytes()
    held = np.ones(64 * MEBIBYTE, "uint8")
    grown = resident_bytes() - before
    assert 0.9 * held.nbytes <= grown <= 1.2 * held.nbytes


def test_the_peak_stays_after_the_memory_is_given_back():
    held = np.ones(64 * MEBIBYTE, "uint8")
    high = resident_bytes()
    del held
    assert peak_resident_bytes() >= high - MEBIBYTE
