"""The precisions that are compared, as a user names them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan
from tf_amp_kit.errors import PrecisionError
from tf_amp_kit.precision.pinning.pins import Pins
from tf_amp_kit.precision.request import AUTO, DEFAULT_LEVEL, LEVELS, parse_request
from tf_amp_kit.precision.state import AmpState

__all__ = ["FLOAT32", "Candidate", "parse_candidates"]

FLOAT32: Final = "float32"

_WAYS: Final = (
    "Expected names such as 'fp32', 'bf16' or 'fp16', with a level behind a colon ('bf16:O2'), a "
    "level alone ('O2'), an AmpState, a precision plan or the path of its file."
)


@dataclass(frozen=True)
class Candidate:
    """One of the precisions that are compared.

    Attributes:
        name: How the report calls it.
        state: What is switched on while its model is built.
        is_control: Whether it is float32 once more, with other seeds.
    """

    name: str
    state: AmpState
    is_control: bool = False

    @property
    def is_reference(self) -> bool:
        """Whether the others are compared with it."""
        return self.name == FLOAT32

    @property
    def is_float32(self) -> bool:
        """Whether it computes in float32."""
        return self.state.precision == FLOAT32


def parse_candidates(precisions: Any) -> tuple[Candidate, ...]:
    """Turns what a user wrote into candidates, float32 first.

    Args:
        precisions: A sequence of names with or without a level, states, plans or paths of
            plans. float32 is added if it is missing; named a second time it is a control,
            which runs with other seeds.

    Raises:
        PrecisionError: If one of them is unknown, or named twice; or if there is none.
        PlanError: If a file holds no plan.
        EnvironmentUnfit: If Keras is set up in a way that cannot work.

    Example:

    >>> [one.name for one in parse_candidates(["bf16", "fp16:O2"])]
    ['float32', 'bfloat16', 'float16 O2']
    """
    if isinstance(precisions, str) or not isinstance(precisions, Sequence) or not precisions:
        raise PrecisionError(
            f"Expected a list of precisions. {_WAYS} Received: precisions={precisions!r}."
        )
    named = [_parsed(one) for one in precisions]
    others = [one for one in named if not one.is_float32]
    controls = len(named) - len(others) - 1
    return (
        Candidate(FLOAT32, AmpState(FLOAT32, "O0")),
        *_controls(controls),
        *_with_own_names(others),
    )


def _controls(count: int) -> Iterator[Candidate]:
    for number in range(count):
        name = f"{FLOAT32} again" if not number else f"{FLOAT32} again {number + 1}"
        yield Candidate(name, AmpState(FLOAT32, "O0"), is_control=True)


def _with_own_names(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    states: list[AmpState] = []
    names: set[str] = set()
    for one in candidates:
        if one.state in states:
            raise PrecisionError(
                f"A precision is named twice. Received: {one.name!r}, which is there already. "
                "float32 alone may be repeated, as a control with other seeds."
            )
        states.append(one.state)
        numbered = (f"{one.name} {number}" for number in range(2, len(candidates) + 2))
        name = next(name for name in (one.name, *numbered) if name not in names)
        names.add(name)
        yield replace(one, name=name)


def _parsed(precision: Any) -> Candidate:
    if isinstance(precision, AmpState):
        return _of_state(replace(precision, pins=Pins.parse(precision.pins)))
    if isinstance(precision, PrecisionPlan):
        return _of_plan(precision, "plan")
    if isinstance(precision, os.PathLike) or (
        isinstance(precision, str) and precision.endswith(".json")
    ):
        return _of_plan(PrecisionPlan.load(precision), Path(precision).stem)
    if not isinstance(precision, str):
        raise PrecisionError(f"Unknown precision. {_WAYS} Received: {precision!r}.")
    name, _, level = precision.partition(":")
    if name.upper() in LEVELS and not level:
        name, level = (FLOAT32 if name.upper() == "O0" else AUTO), name
    return _of_state(parse_request(name, level.upper() or DEFAULT_LEVEL))


def _of_state(state: AmpState) -> Candidate:
    is_plain = state.level in ("O0", DEFAULT_LEVEL)
    words = [state.precision, "" if is_plain else state.level, "pins" if state.pins else ""]
    return Candidate(" ".join(word for word in words if word), state)


def _of_plan(plan: PrecisionPlan, word: str) -> Candidate:
    state = AmpState(plan.precision, DEFAULT_LEVEL, pins=plan.pins)
    return Candidate(f"{plan.precision} {word}", state)
