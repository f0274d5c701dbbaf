"""What the package is put through with one architecture under one policy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import tf_amp_kit as amp
from tests.corpus.architecture import Architecture
from tests.corpus.evidence import Evidence, evidence_of
from tests.eager import EagerRun, seen_eagerly
from tf_amp_kit.errors import ConflictWarning
from tf_amp_kit.tracing.paths import LayerPaths

__all__ = ["CHECKED_CODES", "POLICIES", "Trial"]

POLICIES = ("mixed_bfloat16", "mixed_float16")

#: The codes that depend on the model alone: not on what was asked for, nor on the
#: machine. Notes, which ask for nothing, are left out, and half outputs are counted.
CHECKED_CODES = (
    *("AMP101", "AMP102", "AMP103", "AMP105", "AMP107", "AMP202", "AMP204", "AMP205"),
    *("AMP207", "AMP303", "AMP401"),
)


class Trial:
    """One architecture under one policy; what is asked for is done once.

    Args:
        architecture: The architecture.
        policy: The name of a mixed policy.
    """

    def __init__(self, architecture: Architecture, policy: str) -> None:
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(0)
        keras.config.set_dtype_policy(policy)
        self.architecture, self.policy = architecture, policy
        self.batch = tf.nest.map_structure(tf.convert_to_tensor, architecture.batch())
        self.error: Exception | None = None

    @cached_property
    def plain_model(self) -> Any:
        """The model as Keras makes it; None if it cannot."""
        try:
            return self.architecture.build()
        except Exception as error:
            self.error = error
            return None

    @cached_property
    def runs(self) -> tuple[EagerRun, ...]:
        """Eager runs of that model, without training first; none if there is no model."""
        if self.plain_model is None:
            return ()
        runs = []
        for training in (False, True):
            with seen_eagerly() as run:
                try:
                    self.plain_model(self.batch, training=training)
                except Exception as error:
                    self.error = self.error or error
            runs.append(run)
        return tuple(runs)

    @cached_property
    def evidence(self) -> Evidence | None:
        """What these show; None where half precision makes them fail."""
        if not self.runs or self.error:
            return None
        return evidence_of(self.plain_model, self.runs)

    @cached_property
    def raises_in_graphs(self) -> bool:
        """Whether a model that runs eagerly cannot be traced, as the audit said of it."""
        if "AMP107" not in self.findings or self.plain_model is None:
            return False
        try:
            tf.function(self.plain_model, autograph=False).get_concrete_function(
                self.batch, training=False
            )
        except Exception:
            return True
        return False

    @cached_property
    def report(self) -> amp.AuditReport:
        """The audit, of the model if it runs and of its builder else."""
        subject = self.plain_model if self.evidence else self.architecture.build
        return amp.audit_layer_dtypes(subject, inputs=self.batch, verbose=0)

    @cached_property
    def findings(self) -> dict[str, list[str]]:
        """Paths by code, of the codes that are checked."""
        found: dict[str, list[str]] = {}
        named = {(one.code, one.path) for one in self.report.findings}
        for code, path in sorted(named):
            if code in CHECKED_CODES:
                found.setdefault(code, []).append(path)
        return found

    @property
    def half_outputs(self) -> list[str]:
        """The outputs of the model that the audit tells to be half."""
        return [one.path for one in self.report.findings if one.code == "AMP201"]

    @cached_property
    def model(self) -> Any:
        """A model that has run: what fails in half precision is pinned."""
        if self.evidence:
            return self.plain_model
        with self.scope():
            model = self.architecture.build()
            model(self.batch)
        return model

    def scope(self) -> Any:
        """Returns the scope in which what fails in half precision is pinned."""
        warnings.simplefilter("ignore", ConflictWarning)
        return amp.amp_scope(self.policy, on_conflict="float32")

    def train_step(self) -> tuple[float, int]:
        """Trains one step, and returns the loss and how many weights have a gradient."""
        model, optimizer = self.model, amp.make_loss_scale_optimizer("sgd")

        @tf.function(autograph=False)  # as Keras trains
        def step(batch: Any) -> tuple[Any, list[Any]]:
            with tf.GradientTape() as tape:
                loss = tf.add_n([_mean(one) for one in _floats(model(batch, training=True))])
                scaled = loss if self.policy == "mixed_bfloat16" else optimizer.scale_loss(loss)
            weights = model.trainable_variables
            return loss, tape.gradient(scaled, weights)

        with self.scope():
            loss, gradients = step(self.batch)
        pairs = zip(gradients, model.trainable_variables, strict=True)
        optimizer.apply_gradients([pair for pair in pairs if pair[0] is not None])
        return float(loss), sum(one is not None for one in gradients)

    def half_share(self) -> float:
        """Returns the share of the layers with weights that compute in half precision."""
        owners = [one for _, one in LayerPaths(self.model) if one._trainable_variables]
        half = [one for one in owners if one.compute_dtype in ("float16", "bfloat16")]
        return len(half) / len(owners)

    def saved_and_loaded(self, folder: Path) -> Any:
        """Saves the model with its pins, and loads it; None where that fails."""
        path = folder / "model.keras"
        pins = amp.Pins.on(self.model).detached()
        try:
            self.model.save(path)
            return amp.load_model(path, pins=pins, compile=False, safe_mode=False)
        except Exception:
            return None


def policies(model: Any) -> dict[str, str]:
    """Returns the compute dtype of each layer with weights by path."""
    return {path: one.compute_dtype for path, one in LayerPaths(model) if one._trainable_variables}


def _floats(outputs: Any) -> Iterator[Any]:
    for value in tf.nest.flatten(outputs):
        if tf.is_tensor(value) and value.dtype.is_floating:
            yield value


def _mean(value: Any) -> Any:
    return tf.reduce_mean(tf.cast(value, tf.float32))
