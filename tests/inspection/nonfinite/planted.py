"""Faults to plant in the clean models, each with all that a report must say of it."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tf_amp_kit.tracing.paths import join
from tf_amp_kit.tracing.step_trace import LOSS_PATH

from . import faulty_layers as faulty
from . import faulty_rest as rest
from .clean import CLEAN
from .slots import Built, Slots, path_after

#: Where the metrics run, next to `@loss` and `@gradients`.
METRICS_PATH = "@metrics"
HALVES = ("float16", "bfloat16")
FLOAT16 = ("float16",)


@dataclass(frozen=True)
class Fault:
    """A fault without its place.

    Attributes:
        make: The class or function that holds the faulty line.
        operation: TensorFlow's type of the first operation that is not finite.
        slot: The field of `Slots` that it fills.
        direction: "forward" or "backward".
        halves: The half formats in which it fails.
        in_float32: Whether it fails in float32 as well.
        below: The path from what stands in the slot to the layer at fault.
        marker: The name at the faulty line, where that is not the maker's.
    """

    make: Callable[..., Any]
    operation: str
    slot: str = "layer"
    direction: str = "forward"
    halves: tuple[str, ...] = HALVES
    in_float32: bool = True
    below: str = ""
    marker: str = ""

    @property
    def name(self) -> str:
        return self.make.__name__

    @property
    def file(self) -> str:
        return inspect.getsourcefile(self.make) or ""

    @property
    def line(self) -> int:
        """The number of the line that carries the marker."""
        mark = f"# fault: {self.marker or self.name}"
        with open(self.file, encoding="utf-8") as source:
            lines = [n for n, text in enumerate(source, 1) if text.rstrip().endswith(mark)]
        (line,) = lines
        return line


def _only_float16(make: Callable[..., Any], operation: str, **kwargs: Any) -> Fault:
    return Fault(make, operation, halves=FLOAT16, in_float32=False, **kwargs)


FAULTS = (
    _only_float16(faulty.Exploder, "Exp"),
    _only_float16(faulty.Overflow, "Mul"),
    Fault(faulty.HugeProduct, "Mul"),
    _only_float16(faulty.SquareSum, "Sum"),
    Fault(faulty.BadLog, "Log"),
    Fault(faulty.ClippedLog, "Log", in_float32=False),
    _only_float16(faulty.DivideByVanished, "RealDiv"),
    _only_float16(faulty.BigMask, "Const"),
    _only_float16(faulty.CastOverflow, "Cast"),
    Fault(faulty.SqrtAtZero, "SqrtGrad", direction="backward"),
    # Forward, the infinite logarithm reaches nothing; d log = reciprocal does.
    Fault(faulty.SingleWhere, "Reciprocal", direction="backward"),
    Fault(faulty.BadCustomGradient, "RealDiv", direction="backward"),
    _only_float16(faulty.FaultInTfFunction, "Exp"),
    _only_float16(faulty.FaultInWhile, "Mul"),
    _only_float16(faulty.FaultInCond, "Exp"),
    Fault(faulty.FaultInMapFn, "Log"),
    _only_float16(faulty.FaultInAddLoss, "Sum"),
    Fault(faulty.FaultInAssign, "Log"),
    _only_float16(faulty.FaultInSublayer, "Exp", below="parts/1", marker="Exploder"),
    _only_float16(faulty.FaultInCell, "Exp", slot="cell"),
    Fault(rest.faulty_loss, "Log", slot="loss"),
    Fault(rest.FaultyLoss, "RealDiv", slot="loss"),
    Fault(rest.FaultyMetric, "Sqrt", slot="metric"),
    Fault(rest.FaultyRegularizer, "Log", slot="weight_regularizer"),
    Fault(rest.FaultyActivityRegularizer, "Reciprocal", slot="activity_regularizer"),
)
BY_NAME = {fault.name: fault for fault in FAULTS}


@dataclass(frozen=True)
class Planted:
    """A fault at its place in a clean model.

    Attributes:
        model: The clean model's name.
        fault: What is planted.
        place: Behind which layer; for a cell, in which one; else empty.
        precision: The half format that the model runs in.
    """

    model: str
    fault: Fault
    place: str = ""
    precision: str = "float16"

    @property
    def path(self) -> str:
        """The path that a report must name."""
        slot = self.fault.slot
        if slot == "layer":
            below = self.fault.below
            return join(path_after(self.place), below) if below else path_after(self.place)
        if slot == "cell":
            return join(self.place, "cell")
        if slot == "activity_regularizer":
            return "head"
        # The penalties of weights are computed together with the loss.
        return METRICS_PATH if slot == "metric" else LOSS_PATH

    @property
    def source(self) -> tuple[str, int]:
        """File and line that a report must name."""
        return self.fault.file, self.fault.line

    @property
    def filling(self) -> dict[str, Any]:
        """The fields of `Slots` that plant it."""
        make, slot = self.fault.make, self.fault.slot
        is_maker = slot in ("layer", "cell") or make is rest.faulty_loss
        place = {"place": self.place} if self.place else {}
        return {slot: make if is_maker else make(), **place}

    def build(self) -> Built:
        """Build the model with the fault in it, under the precision in force."""
        return CLEAN[self.model](Slots(**self.filling))

    def __str__(self) -> str:
        place = f" after {self.place}" if self.place else ""
        return f"{self.model}: {self.fault.name}{place} in {self.precision}"


def planted_alone(fault: Fault, precision: str = "") -> Planted:
    """Plant a fault in the middle of the simplest model that has its slot."""
    model = "RNN with a custom cell" if fault.slot == "cell" else "MLP"
    place = {"layer": "second", "cell": "second"}.get(fault.slot, "")
    return Planted(model, fault, place, precision or fault.halves[0])


def places_of(model: str, slot: str) -> list[str]:
    """Return where a fault of a kind can stand in a clean model, by building it."""
    if slot not in ("layer", "cell"):
        return [""]
    slots = Slots()
    CLEAN[model](slots)
    return slots.seen if slot == "layer" else slots.cells


def plant(seed: int, model: str) -> Planted:
    """Choose a fault, a place and a precision for one of the twenty models.

    The models of one seed get different faults. The one with cells of its own
    gets the fault of cells.
    """
    shuffled = random.Random(seed).sample(FAULTS, len(FAULTS))
    others = [fault for fault in shuffled if fault.slot != "cell"]
    number = [*CLEAN].index(model)
    fault = BY_NAME["FaultInCell"] if model == "RNN with a custom cell" else others[number]
    # Numbers and not Python's hash of a text, which every process draws anew.
    chance = random.Random(100 * seed + number)
    place = chance.choice(places_of(model, fault.slot))
    return Planted(model, fault, place, chance.choice(fault.halves))
