import sys
import types
from pathlib import Path

import pytest

from tf_amp_kit import _keras
from tf_amp_kit.hardware import facts as device_facts
from tf_amp_kit.hardware.facts import parse_cpuinfo, probe_cpu, probe_gpu

X86 = """processor\t: 0
model name\t: AMD EPYC
flags\t\t: fpu avx512f avx512_bf16

processor\t: 1
model name\t: other
flags\t\t: fpu
"""

ARM = """processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd asimdhp bf16
"""

TENSORFLOW_MODULES = [
    "tensorflow.python.util._pywrap_utils",
    "tensorflow.python.util._pywrap_util_port",
]


@pytest.fixture
def no_cpuinfo(monkeypatch, tmp_path):
    """A system without /proc/cpuinfo, whose py-cpuinfo answers at once."""
    device_facts._ask_py_cpuinfo.cache_clear()
    answer = {"brand_raw": "Apple M2", "flags": ["avx2"]}
    monkeypatch.setitem(
        sys.modules, "cpuinfo", types.SimpleNamespace(get_cpu_info=lambda: dict(answer))
    )
    monkeypatch.setattr(device_facts, "_PROC_CPUINFO", tmp_path / "missing")
    yield
    device_facts._ask_py_cpuinfo.cache_clear()


@pytest.fixture
def write_cpuinfo(monkeypatch, tmp_path):
    def write(text):
        (tmp_path / "cpuinfo").write_text(text, encoding="utf-8")
        monkeypatch.setattr(device_facts, "_PROC_CPUINFO", tmp_path / "cpuinfo")

    return write


def test_the_first_processor_of_an_x86_system_is_read():
    assert parse_cpuinfo(X86.splitlines()) == (
        "AMD EPYC",
        frozenset({"fpu", "avx512f", "avx512_bf16"}),
    )


def test_an_arm_system_lists_features_and_no_model():
    assert parse_cpuinfo(ARM.splitlines()) == (None, frozenset({"fp", "asimd", "asimdhp", "bf16"}))


def test_an_empty_cpuinfo_gives_no_features():
    assert parse_cpuinfo([]) == (None, frozenset())


def test_only_the_first_processor_is_read_from_the_file():
    lines = iter(X86.splitlines())
    parse_cpuinfo(lines)
    assert next(lines).startswith("processor\t: 1")


def test_features_that_the_kernel_lists_are_complete(write_cpuinfo):
    write_cpuinfo(X86)
    facts = probe_cpu()
    assert (facts.model, facts.features_are_complete) == ("AMD EPYC", True)


def test_a_second_probe_sees_a_changed_system(write_cpuinfo):
    write_cpuinfo(X86)
    probe_cpu()
    write_cpuinfo(ARM)
    assert "bf16" in probe_cpu().features


def test_a_cpuinfo_without_features_is_not_complete(write_cpuinfo):
    write_cpuinfo("processor : 0\n")
    assert probe_cpu().features_are_complete is False


@pytest.mark.usefixtures("no_cpuinfo")
def test_py_cpuinfo_is_asked_only_on_demand():
    facts = probe_cpu()
    assert (facts.model, facts.features, facts.features_are_complete) == (None, frozenset(), False)


@pytest.mark.usefixtures("no_cpuinfo")
def test_what_py_cpuinfo_lists_is_not_complete():
    facts = probe_cpu(thorough=True)
    assert (facts.model, facts.features_are_complete) == ("Apple M2", False)
    assert facts.features == {"avx2"}


@pytest.mark.parametrize(
    ("machine", "architecture"),
    [("x86_64", "x86"), ("AMD64", "x86"), ("aarch64", "arm"), ("arm64", "arm"), ("s390x", "s390x")],
)
def test_the_systems_names_of_an_architecture_are_one(monkeypatch, machine, architecture):
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert probe_cpu().architecture == architecture


@pytest.mark.parametrize(
    ("value", "limit"), [("AVX2", "AVX2"), ("ALL", None), ("default", None), ("", None)]
)
def test_a_limit_on_onednn_is_read_from_the_environment(monkeypatch, value, limit):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", value)
    assert probe_cpu().onednn_limit == limit


def test_onednn_takes_float32_wherever_it_can_be_asked():
    assert _keras.onednn_accepts("float32") in (True, None)


@pytest.mark.parametrize("module", [None, types.SimpleNamespace()])
def test_a_tensorflow_without_the_private_names_gives_no_answer(monkeypatch, module):
    # None in sys.modules makes the import fail.
    for name in TENSORFLOW_MODULES:
        monkeypatch.setitem(sys.modules, name, module)
    assert (_keras.onednn_accepts("bfloat16"), _keras.onednn_is_enabled()) == (None, None)


@pytest.mark.parametrize(
    ("system", "rocm", "cuda", "vendor"),
    [
        ("Linux", False, True, "nvidia"),
        ("Linux", True, False, "amd"),
        ("Darwin", False, False, "apple"),
        ("Linux", False, False, None),
    ],
)
def test_the_vendor_of_a_gpu_is_what_tensorflow_was_built_for(
    monkeypatch, system, rocm, cuda, vendor
):
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("tensorflow.test.is_built_with_rocm", lambda: rocm)
    monkeypatch.setattr("tensorflow.test.is_built_with_cuda", lambda: cuda)
    monkeypatch.setattr("tensorflow.config.experimental.get_device_details", lambda device: {})
    assert probe_gpu("any").vendor == vendor


def test_a_gpus_details_are_taken_from_tensorflow(monkeypatch):
    details = {"device_name": "NVIDIA A100", "compute_capability": (8, 0)}
    monkeypatch.setattr("tensorflow.config.experimental.get_device_details", lambda device: details)
    facts = probe_gpu("any")
    assert (facts.model, facts.compute_capability) == ("NVIDIA A100", (8, 0))


@pytest.mark.skipif(not Path("/proc/cpuinfo").is_file(), reason="only Linux lists CPU features")
def test_the_features_of_this_machine_are_read():
    assert probe_cpu().features
