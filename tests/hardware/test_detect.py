import json
import re
import subprocess
import sys
import types

import pytest

from tf_amp_kit import hardware
from tf_amp_kit.errors import PrecisionError
from tf_amp_kit.hardware import Device, Hardware, detect_hardware, is_fast, slow_reason
from tf_amp_kit.hardware.facts import CpuFacts, GpuFacts
from tf_amp_kit.hardware.rules import Verdict

FAST, SLOW, UNKNOWN = Verdict(True, "native"), Verdict(False, "emulated"), Verdict(None, "not told")

AVX512_BF16 = CpuFacts(
    "x86",
    model="AMD EPYC",
    features=frozenset({"avx512f", "avx512_bf16"}),
    features_are_complete=True,
    onednn_is_enabled=True,
    onednn_accepts={"float16": False, "bfloat16": True},
)
OLD_CPU = CpuFacts(
    "x86",
    features=frozenset({"avx2"}),
    features_are_complete=True,
    onednn_is_enabled=True,
    onednn_accepts={"float16": False, "bfloat16": False},
)
T4 = GpuFacts("nvidia", "Tesla T4", (7, 5))


@pytest.fixture
def machine(monkeypatch):
    """Gives this machine other devices: the names of TensorFlow, and their facts."""

    def build(*names, cpu=AVX512_BF16, gpu=T4):
        devices = [
            types.SimpleNamespace(
                name=f"/physical_device:{name}", device_type=name.partition(":")[0]
            )
            for name in names
        ]
        monkeypatch.setattr("tensorflow.config.get_visible_devices", lambda: devices)
        monkeypatch.setattr(hardware, "probe_cpu", lambda *, thorough: cpu)
        monkeypatch.setattr(hardware, "probe_gpu", lambda device: gpu)

    return build


def device(kind="cpu", float16=SLOW, bfloat16=FAST):
    return Device(f"{kind.upper()}:0", kind, "Model", float16, bfloat16)


@pytest.mark.parametrize(
    ("float16", "bfloat16", "auto"),
    [
        (FAST, FAST, "bfloat16"),
        (SLOW, FAST, "bfloat16"),
        (UNKNOWN, FAST, "bfloat16"),
        (FAST, SLOW, "float16"),
        (FAST, UNKNOWN, "float16"),
        (SLOW, SLOW, "float32"),
        (UNKNOWN, UNKNOWN, "float32"),
    ],
)
def test_auto_prefers_bfloat16_and_takes_only_what_is_known_to_be_fast(float16, bfloat16, auto):
    found = Hardware((device(float16=float16, bfloat16=bfloat16),))
    assert found.auto_precision == auto


def test_auto_says_why_it_stays_in_float32():
    found = Hardware((device(float16=SLOW, bfloat16=UNKNOWN),))
    assert found.auto_reason == (
        "no half precision is known to be fast on CPU:0. float16: emulated; bfloat16: not told"
    )


def test_the_first_gpu_is_the_default_device():
    other = Device("GPU:1", "gpu", None, FAST, FAST)
    found = Hardware((device("cpu"), device("gpu"), other))
    assert found.default_device.name == "GPU:0"


def test_without_a_gpu_the_cpu_is_the_default_device():
    assert Hardware((device("tpu"), device("cpu"))).default_device.name == "CPU:0"


def test_a_machine_without_devices_knows_nothing():
    found = Hardware(())
    assert (found.auto_precision, found.is_fast("bf16"), found.slow_reason("bf16")) == (
        "float32",
        None,
        None,
    )


def test_a_cpu_with_avx512_bf16_prints_as_a_table(machine):
    machine("CPU:0")
    assert str(detect_hardware()) == (
        "auto: bfloat16 (CPU:0 runs it fast, and it needs no loss scaling)\n"
        "\n"
        "Device  Model     Precision  Fast  Why\n"
        "-------------------------------------------------------------------------------------"
        "---------------\n"
        "CPU:0   AMD EPYC  float16    no    oneDNN does not take it on this CPU, and "
        "TensorFlow's own kernels\n"
        "                                   convert it to float32\n"
        "                  bfloat16   yes   oneDNN computes it with avx512_bf16"
    )


def test_a_gpu_without_bfloat16_makes_auto_float16(machine):
    machine("CPU:0", "GPU:0")
    found = detect_hardware()
    assert found.auto_precision == "float16"
    assert found.auto_reason == "GPU:0 runs it fast, which is not known of bfloat16"


def test_a_cpu_with_neither_half_keeps_float32(machine):
    machine("CPU:0", cpu=OLD_CPU)
    assert detect_hardware().auto_precision == "float32"


def test_a_device_of_another_type_is_unknown(machine):
    machine("XPU:0")
    found = detect_hardware().devices[0]
    assert found.bfloat16 == Verdict(None, "nothing is known about devices of type XPU")


def test_a_tpu_is_listed(machine):
    machine("TPU:0")
    assert detect_hardware().devices[0].bfloat16.is_fast is True


def test_every_line_of_the_table_fits_one_hundred_columns(machine):
    machine("CPU:0", "GPU:0", "GPU:1", "TPU:0", "XPU:0", gpu=GpuFacts("amd", "Radeon " * 20))
    assert max(map(len, str(detect_hardware()).splitlines())) <= 100


def test_the_dictionary_survives_json(machine):
    machine("GPU:0")
    assert json.loads(json.dumps(detect_hardware().to_dict())) == {
        "devices": [
            {
                "name": "GPU:0",
                "kind": "gpu",
                "model": "Tesla T4",
                "float16": {
                    "is_fast": True,
                    "reason": "compute capability 7.5: tensor cores multiply it",
                },
                "bfloat16": {
                    "is_fast": False,
                    "reason": "compute capability 7.5: tensor cores for it start at 8.0",
                },
            }
        ],
        "auto_precision": "float16",
        "auto_reason": "GPU:0 runs it fast, which is not known of bfloat16",
    }


def test_a_notebook_shows_the_same_rows(machine):
    machine("GPU:0", gpu=GpuFacts(model="<b>"))
    assert "<td>GPU:0</td><td>&lt;b&gt;</td><td>float16</td>" in detect_hardware()._repr_html_()


def test_a_slow_precision_comes_with_its_reason(machine):
    machine("CPU:0", "GPU:0")
    assert is_fast("bf16") is False
    assert slow_reason("bf16") == "GPU:0: compute capability 7.5: tensor cores for it start at 8.0"


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_a_fast_precision_has_no_reason_to_be_slow(machine, precision):
    machine("GPU:0")
    assert (is_fast(precision), slow_reason(precision)) == (True, None)


def test_an_unknown_precision_has_no_reason_to_be_slow(machine):
    machine("GPU:0", gpu=GpuFacts())
    assert (is_fast("bf16"), slow_reason("bf16")) == (None, None)


@pytest.mark.parametrize("ask", [is_fast, slow_reason])
def test_a_misspelt_precision_is_refused(ask):
    with pytest.raises(PrecisionError, match=re.escape("Received: precision='bf17'.")):
        ask("bf17")


def test_a_second_detection_sees_the_devices_of_then(machine):
    machine("CPU:0")
    detect_hardware()
    machine("CPU:0", "GPU:0")
    assert len(detect_hardware().devices) == 2


def test_detecting_leaves_tensorflow_open_to_configuration():
    script = (
        "import tensorflow as tf\n"
        "from tf_amp_kit.hardware import detect_hardware\n"
        "detect_hardware()\n"
        "cpu = tf.config.list_physical_devices('CPU')[0]\n"
        "halves = [tf.config.LogicalDeviceConfiguration()] * 2\n"
        "tf.config.set_logical_device_configuration(cpu, halves)\n"
        "print(len(tf.config.list_logical_devices('CPU')))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stdout == "2\n"
