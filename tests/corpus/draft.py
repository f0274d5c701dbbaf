"""Prints what eager runs prove of architectures, to write `expected/` by.

    python -m tests.corpus.draft NAME ...

The package is not asked: what else an audit has to find comes from reading the code of
the architecture.
"""

from __future__ import annotations

import json
import sys

from tests.corpus.registry import architectures
from tests.corpus.trial import POLICIES, Trial


def main(names: list[str]) -> int:
    """Prints one JSON object per architecture and policy."""
    found = architectures()
    for name in names or found:
        for policy in POLICIES:
            trial = Trial(found[name], policy)
            seen = trial.evidence.findings if trial.evidence else f"raises: {trial.error}"
            print(json.dumps({"name": name, "policy": policy, "seen": seen}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
