"""Every test starts from a fresh Keras, and from nothing asked for."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator

import keras
import numpy as np
import pytest

from tf_amp_kit.precision import policy, state

SEED = 20

# Runs in the background ignore Ctrl-C, and so would the processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _fresh_global_state() -> Iterator[None]:
    python_state, numpy_state = random.getstate(), np.random.get_state()
    keras.utils.set_random_seed(SEED)
    try:
        yield
    finally:
        state.forget()
        policy.forget_warnings()
        # Collecting garbage after each test would cost more than most tests do.
        keras.utils.clear_session(free_memory=False)
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")
        random.setstate(python_state)
        np.random.set_state(numpy_state)
