"""The report of `find_nonfinite` moves with the fault, and the earliest of two is told."""

from __future__ import annotations

import pytest

import tf_amp_kit as amp

from .clean import CLEAN
from .planted import BY_NAME, Planted
from .slots import Slots
from .told import told, told_of, truth

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")


def _moves(model: str, name: str, *places: str, precision: str = "float16") -> list[Planted]:
    return [Planted(model, BY_NAME[name], place, precision) for place in places]


MOVED = [
    # From layer to layer.
    *_moves("MLP", "Exploder", "first", "dropout", "third"),
    *_moves("U-Net", "BadLog", "wide", "joined", precision="bfloat16"),
    *_moves("transformer with fully masked rows", "DivideByVanished", "ids", "attention"),
    # From operation to operation, at one place.
    *_moves("CNN with norms and pooling", "Overflow", "norm"),
    *_moves("CNN with norms and pooling", "SquareSum", "norm"),
    *_moves("CNN with norms and pooling", "CastOverflow", "norm"),
    # In the backward pass.
    *_moves("MLP", "SqrtAtZero", "first", "third"),
    *_moves("time-distributed layers", "BadCustomGradient", "each", "norm", precision="bfloat16"),
    # From cell to cell.
    *_moves("RNN with a custom cell", "FaultInCell", "first", "second"),
    # Into functions, loops and branches.
    *_moves("nested tf.functions", "FaultInTfFunction", "first", "graph_again"),
    *_moves("loops", "FaultInWhile", "loop", "scan"),
    *_moves("branches", "FaultInCond", "branch", "mapped"),
    # Out of the layers.
    *_moves("regularized", "FaultyRegularizer", ""),
    *_moves("regularized", "FaultyActivityRegularizer", ""),
    *_moves("subclassed, with its own loss", "FaultyLoss", ""),
    *_moves("dicts and weights", "FaultyMetric", ""),
]


# Each of them takes seconds: one of three, and the others when asked for.
SOME = [
    pytest.param(planted, id=str(planted), marks=() if number % 3 == 0 else pytest.mark.slow)
    for number, planted in enumerate(MOVED)
]


@pytest.mark.parametrize("planted", SOME)
def test_the_report_moves_with_the_fault(planted):
    assert told(planted) == truth(planted)


# The first of each pair runs before the second.
@pytest.mark.parametrize(
    ("early", "late"),
    [
        ("Exploder", "FaultyLoss"),
        ("Exploder", "FaultyMetric"),
        ("FaultyLoss", "SqrtAtZero"),
        ("FaultyLoss", "FaultyRegularizer"),
        ("FaultyActivityRegularizer", "FaultyLoss"),
    ],
)
def test_of_two_faults_the_earlier_one_is_told(early, late):
    first, second = [
        Planted("MLP", BY_NAME[name], "second" if BY_NAME[name].slot == "layer" else "")
        for name in (early, late)
    ]
    with amp.amp_scope("float16"):
        built = CLEAN["MLP"](Slots(**{**second.filling, **first.filling}))
        assert told_of(built, "float16") == truth(first)
