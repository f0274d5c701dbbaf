"""Models that other people wrote: audited, pinned, trained, saved and loaded.

    pytest -m corpus -n 2 --dist load

What an audit has to find stands in `expected/`, written from the packages' code and
from eager runs. Beside that, each audit is held against an eager run of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import tf_amp_kit as amp
from tests.corpus.registry import architectures, expected_of
from tests.corpus.trial import POLICIES, Trial, policies

pytestmark = [
    pytest.mark.corpus,
    # Packages warn about themselves, and Keras about them.
    pytest.mark.filterwarnings("ignore"),
]

ALL = architectures()

#: Nothing half is left of these: their one layer computes with results of all that it holds.
WHOLLY_FLOAT32 = frozenset[str]()
#: Keras cannot save these, or not load them again, in float32 either.
NOT_SAVED = frozenset[str]()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ALL)
def test_an_architecture_is_seen_and_trained(name: str, policy: str, tmp_path: Path) -> None:
    trial = Trial(ALL[name], policy)
    assert trial.findings == expected_of(name, policy)
    if trial.evidence is not None:
        check_against_eager_run(trial)

    _, num_gradients = trial.train_step()
    assert num_gradients > 0
    assert (trial.half_share() > 0) == (name not in WHOLLY_FLOAT32)

    if policy == POLICIES[0]:  # nothing that follows depends on which half it is
        pins = amp.pin_float32(trial.model, inputs=trial.batch)
        computed = policies(trial.model)
        assert {computed.get(path, "float32") for path in pins.paths} <= {"float32"}
        if name not in NOT_SAVED:
            assert policies(trial.saved_and_loaded(tmp_path)) == computed


def check_against_eager_run(trial: Trial) -> None:
    evidence = trial.evidence
    assert evidence.owed <= trial.touched(), "missed"
    assert trial.named("AMP101", "AMP102") <= evidence.wide, "no reversion"
    assert trial.named("AMP103") <= evidence.products, "no float32 product"
    assert trial.named("AMP105") <= evidence.owed, "nothing widens"
    assert len(trial.named("AMP201")) == evidence.num_half_outputs
