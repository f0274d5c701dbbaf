"""Twenty small, different models that are finite wherever a result depends on it."""

from __future__ import annotations

from collections.abc import Callable

from . import clean_sequences as sequences
from . import clean_vectors as vectors
from .slots import Built, Slots

Builder = Callable[[Slots], Built]

CLEAN: dict[str, Builder] = {
    "MLP": vectors.mlp,
    "CNN with norms and pooling": sequences.cnn,
    "U-Net": sequences.unet,
    "masked LSTM": sequences.lstm,
    "bidirectional GRU": sequences.bidirectional,
    "RNN with a custom cell": sequences.custom_cell,
    "ConvLSTM": sequences.conv_lstm,
    "time-distributed layers": sequences.time_distributed,
    "transformer with fully masked rows": sequences.transformer,
    "masked softmax": vectors.masked_softmax,
    "log-sum-exp of infinities": vectors.log_sum_exp,
    "safe logarithm, root and length": vectors.safe_math,
    "norms of constant rows": vectors.norms,
    "subclassed, with its own loss": vectors.custom_compute_loss,
    "nested tf.functions": vectors.graph_functions,
    "loops": vectors.loops,
    "branches": vectors.branches,
    "gradient tricks": vectors.gradient_tricks,
    "regularized": vectors.regularized,
    "dicts and weights": vectors.many_inputs,
}


def clean_models() -> list[tuple[str, Callable[[], Built]]]:
    """Return the names and builders of the clean models."""
    return [(name, lambda build=build: build(Slots())) for name, build in CLEAN.items()]
