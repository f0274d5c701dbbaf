"""The soak, for some of its steps."""

from __future__ import annotations

import re

import pytest

from tests.distributed import soak

pytestmark = pytest.mark.slow


def test_two_workers_agree_with_plain_keras_on_the_good_steps(
    capsys: pytest.CaptureFixture[str],
):
    soak.main(["--steps", "2000"])
    assert re.search(
        r"scale from 1 to 65536, 4 checks on each of 2 workers: all equal\n$",
        capsys.readouterr().out,
    )
