"""Each rule on plain facts, so that no device is needed.

Sources of the expected verdicts: NVIDIA's table of compute capabilities,
ROCm's precision support, oneDNN's guide on data types, and time measured on a
CPU with avx512_bf16.
"""

import pytest

from tf_amp_kit.hardware.facts import CpuFacts, GpuFacts
from tf_amp_kit.hardware.rules import judge_cpu, judge_gpu, judge_tpu


def x86(*features, accepts=True, **facts):
    facts = {"features_are_complete": True, "onednn_is_enabled": True} | facts
    answers = {"bfloat16": accepts, "float16": accepts}
    return CpuFacts("x86", features=frozenset(features), onednn_accepts=answers, **facts)


@pytest.mark.parametrize(
    ("capability", "float16", "bfloat16"),
    [
        ((6, 1), False, False),  # GTX 1080
        ((7, 0), True, False),  # V100
        ((7, 5), True, False),  # T4
        ((8, 0), True, True),  # A100
        ((8, 9), True, True),  # RTX 4090
        ((12, 0), True, True),  # RTX 5090: as text, "12.0" would sort before "8.0"
    ],
)
def test_nvidia_gpus_are_judged_by_their_compute_capability(capability, float16, bfloat16):
    gpu = GpuFacts("nvidia", compute_capability=capability)
    verdicts = [judge_gpu(gpu, precision).is_fast for precision in ("float16", "bfloat16")]
    assert verdicts == [float16, bfloat16]


def test_the_reason_for_a_slow_gpu_names_what_would_be_needed():
    verdict = judge_gpu(GpuFacts("nvidia", "Tesla T4", (7, 5)), "bfloat16")
    assert verdict.reason == "compute capability 7.5: tensor cores for it start at 8.0"


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("gpu", "fast"),
    [
        (GpuFacts("amd", "AMD Instinct MI250X"), True),
        (GpuFacts("amd", "AMD Instinct MI300X"), True),
        (GpuFacts("amd", "AMD Instinct MI50"), None),
        (GpuFacts("amd", "Radeon RX 7900 XTX"), None),
        (GpuFacts("amd"), None),
        (GpuFacts("apple", "METAL"), None),
        (GpuFacts("nvidia"), None),
        (GpuFacts(), None),
    ],
)
def test_a_gpu_that_does_not_say_what_it_is_stays_unknown(gpu, fast, precision):
    assert judge_gpu(gpu, precision).is_fast is fast


def test_a_tpu_is_known_for_bfloat16_only():
    assert [judge_tpu(name).is_fast for name in ("bfloat16", "float16")] == [True, None]


@pytest.mark.parametrize("feature", ["avx512_bf16", "amx_bf16"])
def test_an_x86_cpu_with_instructions_for_bfloat16_is_fast(feature):
    verdict = judge_cpu(x86("avx512f", feature), "bfloat16")
    assert (verdict.is_fast, verdict.reason) == (True, f"oneDNN computes it with {feature}")


def test_onednns_yes_to_bfloat16_alone_is_emulation_and_slow():
    verdict = judge_cpu(x86("avx512f", "avx512bw", "avx512_vnni"), "bfloat16")
    assert verdict.is_fast is False
    assert verdict.reason == "the CPU has no amx_bf16 or avx512_bf16, so it is emulated"


def test_an_x86_cpu_with_avx512_bf16_only_is_slow_in_float16():
    verdict = judge_cpu(x86("avx512f", "avx512_bf16", accepts=False), "float16")
    assert verdict.is_fast is False
    assert verdict.reason == (
        "oneDNN does not take it on this CPU, and TensorFlow's own kernels convert it to float32"
    )


def test_amx_fp16_is_fast_in_float16():
    assert judge_cpu(x86("avx512_fp16", "amx_fp16"), "float16").is_fast is True


def test_avx512_fp16_alone_leaves_float16_unknown():
    verdict = judge_cpu(x86("avx512f", "avx512_fp16", "amx_bf16"), "float16")
    assert verdict.is_fast is None
    assert verdict.reason == "avx512_fp16 may gain or lose: oneDNN may compute in float32"


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_conversion_instructions_alone_leave_it_unknown(precision):
    assert judge_cpu(x86("avx2", "avx_ne_convert"), precision).is_fast is None


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_without_onednn_no_instruction_helps(precision):
    cpu = x86("avx512_bf16", "amx_bf16", "amx_fp16", onednn_is_enabled=False)
    verdict = judge_cpu(cpu, precision)
    assert verdict.is_fast is False
    assert verdict.reason == "oneDNN is off, and TensorFlow's own kernels convert it to float32"


def test_a_tensorflow_that_does_not_answer_for_onednn_leaves_it_unknown():
    verdict = judge_cpu(x86("avx512_bf16", accepts=None, onednn_is_enabled=None), "bfloat16")
    assert verdict.is_fast is None
    assert verdict.reason == (
        "the CPU has avx512_bf16, but TensorFlow does not say if it uses oneDNN"
    )


def test_a_limit_on_onednn_leaves_it_unknown():
    verdict = judge_cpu(x86("avx512_bf16", onednn_limit="AVX2"), "bfloat16")
    assert verdict.is_fast is None
    assert verdict.reason == "ONEDNN_MAX_CPU_ISA=AVX2 limits what oneDNN may use"


def test_a_feature_list_with_gaps_proves_no_absence():
    cpu = x86("avx2", "avx512f", features_are_complete=False)
    assert judge_cpu(cpu, "bfloat16").is_fast is None


def test_onednns_no_decides_even_without_a_feature_list():
    cpu = x86(accepts=False, features_are_complete=False)
    assert judge_cpu(cpu, "float16").is_fast is False


@pytest.mark.parametrize(
    ("features", "complete", "fast"),
    [
        ({"asimd", "bf16", "asimdhp"}, True, None),
        ({"asimd"}, True, False),
        (set(), False, None),
    ],
)
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_an_arm_cpu_is_slow_without_the_instructions_and_else_unknown(
    features, complete, fast, precision
):
    # On ARM, TensorFlow's question to oneDNN is about x86 and always answers no.
    answers = {"float16": False, "bfloat16": False}
    cpu = CpuFacts(
        "arm",
        features=frozenset(features),
        features_are_complete=complete,
        onednn_is_enabled=True,
        onednn_accepts=answers,
    )
    assert judge_cpu(cpu, precision).is_fast is fast


def test_an_architecture_without_a_rule_is_unknown():
    verdict = judge_cpu(CpuFacts("riscv64"), "bfloat16")
    assert (verdict.is_fast, verdict.reason) == (None, "nothing is known about riscv64 CPUs")
