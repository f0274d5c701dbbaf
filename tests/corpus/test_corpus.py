"""Models that other people wrote: audited, pinned, trained, saved and loaded.

    pytest -m corpus -n 2 --dist load                       all of it, most of an hour
    pytest -m "corpus and not slow" -n 2 --dist load        what CI runs

What an audit has to find stands in `expected/`, written from the packages' code and
from eager runs. Beside that, each audit is held against an eager run of its own.
"""

from __future__ import annotations

from pathlib import Path

import keras
import pytest

import tf_amp_kit as amp
from tests.corpus.architecture import Architecture
from tests.corpus.core import CORE
from tests.corpus.evidence import EAGER_CODES
from tests.corpus.registry import architectures, expected_of
from tests.corpus.trial import POLICIES, Trial, policies

pytestmark = [
    pytest.mark.corpus,
    # Packages warn about themselves, and Keras about them.
    pytest.mark.filterwarnings("ignore"),
]

ALL = architectures()

#: Nothing half is left of these: their one layer computes with results of all that it holds.
WHOLLY_FLOAT32 = frozenset(
    {
        "bayesflow/ConsistencyModel",
        "bayesflow/CouplingFlow",
        "bayesflow/DiffusionModel",
        "bayesflow/FlowMatching-density",
    }
)


#: Their code names layers by a count of the process: pins of one build do not fit the next.
COUNTS_ITS_LAYERS = frozenset({"medicai/SegFormer-2d"})


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in CORE else pytest.mark.slow) for name in ALL],
)
def test_an_architecture_is_seen_and_trained(name: str, policy: str, tmp_path: Path) -> None:
    trial = Trial(ALL[name], policy)
    assert trial.findings == expected_of(name, policy)
    if trial.evidence is not None and not trial.raises_in_graphs:
        seen = {code: paths for code, paths in trial.findings.items() if code in EAGER_CODES}
        assert seen == trial.evidence.findings
        assert len(trial.half_outputs) == trial.evidence.num_half_outputs

    _, num_gradients = trial.train_step()
    assert num_gradients > 0
    assert (trial.half_share() > 0) == (name not in WHOLLY_FLOAT32)

    if policy == POLICIES[0]:  # nothing that follows depends on which half it is
        pins = amp.pin_float32(trial.model, inputs=trial.batch)
        computed = policies(trial.model)
        assert {computed.get(path, "float32") for path in pins.paths} <= {"float32"}
        loaded = trial.saved_and_loaded(tmp_path)
        if name in COUNTS_ITS_LAYERS:
            assert loaded is None
        elif loaded is None or policies(loaded) != computed:
            assert not keras_keeps(ALL[name], policy, tmp_path)


def keras_keeps(architecture: Architecture, policy: str, folder: Path) -> bool:
    """Tells whether Keras alone saves and loads the architecture with its policies.

    Some cannot be saved, or not loaded again, and some write a dtype that is not theirs.
    """
    keras.config.set_dtype_policy(policy)
    path = folder / "plain.keras"
    try:
        model = architecture.build()
        model.save(path)
        loaded = keras.saving.load_model(path, compile=False, safe_mode=False)
    except Exception:
        return False
    return policies(loaded) == policies(model)
