"""What `unscale` found, kept for the `apply_unscaled` that follows."""

from __future__ import annotations

import threading
from typing import Any

import tensorflow as tf

from tf_amp_kit.errors import OptimizerError

__all__ = ["PendingVerdict"]


class PendingVerdict(threading.local):
    """A bool scalar per thread, since replicas run in threads of their own.

    Clipping by value makes a finite gradient of an infinite one; what was seen
    before it must therefore outlive it.
    """

    _verdict: Any = None

    def add(self, verdict: Any) -> None:
        """Keeps a verdict, together with those that were not taken yet."""
        earlier = self._verdict
        if earlier is not None and _is_of_here(earlier):
            verdict = tf.logical_and(earlier, verdict)
        self._verdict = verdict

    def drop(self) -> None:
        """Forgets what is kept."""
        self._verdict = None

    def take(self) -> Any:
        """Gives what is kept, True for nothing, and forgets it.

        Raises:
            OptimizerError: If the verdict is of another graph than this one.
        """
        verdict, self._verdict = self._verdict, None
        if verdict is None:
            return tf.constant(True)
        if not _is_of_here(verdict):
            raise OptimizerError(
                "What unscale() saw in the gradients cannot be used here. Expected unscale() and "
                "apply_unscaled() in one and the same function. Received: calls in two of them."
            )
        return verdict


def _is_of_here(tensor: Any) -> bool:
    if tf.is_symbolic_tensor(tensor):
        return tensor.graph is tf.compat.v1.get_default_graph()
    return bool(tf.executing_eagerly())
