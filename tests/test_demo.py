"""The demo's parts; the whole of it runs in the test of the README."""

import sys

import keras
import pytest

from tf_amp_kit import cli, current_amp, demo


@pytest.fixture
def trained(monkeypatch):
    """Replaces training by given scores: float32 first."""

    def give(*scores):
        remaining = list(scores)
        monkeypatch.setattr(demo, "_train", lambda digits, precision: remaining.pop(0))

    give(97.0, 97.0)
    return give


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.usefixtures("trained")
def test_the_audit_names_the_line_of_the_planted_layer(precision, capsys):
    assert cli.main(["demo", "--amp", precision]) == 0
    printed = capsys.readouterr().out
    assert "demo.py:" in printed
    assert "return ops.divide(ops.subtract(images, self.mean), self.deviation)" in printed


@pytest.mark.usefixtures("trained")
def test_nothing_stays_switched_on(capsys):
    demo.run_demo("bf16")
    assert (current_amp(), keras.config.dtype_policy().name) == (None, "float32")


@pytest.mark.usefixtures("trained")
def test_it_fails_if_the_audit_finds_nothing(monkeypatch, capsys):
    monkeypatch.setattr(demo, "Standardize", demo.RepairedStandardize)
    assert cli.main(["demo"]) == 1
    assert "[NO] the audit found the layer and its line" in capsys.readouterr().out


@pytest.mark.usefixtures("trained")
def test_it_fails_if_the_repair_is_none(monkeypatch, capsys):
    monkeypatch.setattr(demo.RepairedStandardize, "call", demo.Standardize.call)
    assert cli.main(["demo"]) == 1
    assert "[NO] the repaired model is clean" in capsys.readouterr().out


@pytest.mark.parametrize("half_score", [95.9, 98.1])
def test_it_fails_if_the_scores_differ(half_score, trained, capsys):
    trained(97.0, half_score)
    assert cli.main(["demo"]) == 1
    assert "[NO] the score is within the margin" in capsys.readouterr().out


def test_both_precisions_start_from_the_same_weights(monkeypatch):
    digits = demo._load_digits()
    first = []
    monkeypatch.setattr(
        keras.Model, "fit", lambda model, *_, **__: first.append(model.get_weights())
    )
    for policy in ("float32", "mixed_bfloat16"):
        keras.config.set_dtype_policy(policy)
        demo._train(digits, policy)
    assert all((a == b).all() for a, b in zip(*first, strict=True))


def test_float32_is_refused(capsys):
    assert cli.main(["demo", "--amp", "fp32"]) == 2
    assert "Expected 'bf16' or 'fp16'. Received: 'fp32'" in capsys.readouterr().err


def test_a_missing_dataset_names_the_way_out(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert cli.main(["demo"]) == 2
    assert 'pip install "tf_amp_kit[demo]"' in capsys.readouterr().err
