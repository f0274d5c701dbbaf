"""What `unscale` found, kept for the `apply_unscaled` that follows."""

from __future__ import annotations

import threading
from typing import Any

import tensorflow as tf

__all__ = ["LastVerdict"]


class LastVerdict(threading.local):
    """A bool scalar per thread, since replicas run in threads of their own.

    Clipping by value makes a finite gradient of an infinite one; what was seen
    before it must therefore outlive it.
    """

    _verdict: Any = None

    def remember(self, verdict: Any) -> None:
        """Keeps a verdict until it is taken or forgotten."""
        self._verdict = verdict

    def forget(self) -> None:
        """Drops what is kept."""
        self._verdict = None

    def take(self) -> Any:
        """Gives the verdict and drops it; True where there is none to be used.

        A tensor of another graph than the present one cannot be used.
        """
        verdict, self._verdict = self._verdict, None
        if verdict is None or not _is_usable(verdict):
            return tf.constant(True)
        return verdict


def _is_usable(tensor: Any) -> bool:
    if tf.is_symbolic_tensor(tensor):
        return tensor.graph is tf.compat.v1.get_default_graph()
    return bool(tf.executing_eagerly())
