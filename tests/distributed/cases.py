"""The other side of `processes`: cases that run, and leave what they saw behind."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_amp_kit as amp
from tf_amp_kit.errors import LossScaleWarning

SEED = 20


class Cases(dict[str, Callable[[], Any]]):
    """Functions by name; each returns what JSON can hold."""

    def case(self, name: str, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        """Adds the decorated function, called with these arguments, under a name."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            assert name not in self, f"two cases are called {name!r}"
            self[name] = partial(function, *args, **kwargs)
            return function

        return add


def main(cases: Cases) -> None:
    """Runs cases as `processes.run_module` asks for it, and ends the process.

    In a cluster the first error is the end: the other workers may not have
    come as far, and would wait in this case for what this one does in the next.
    """
    results, time_limit_seconds = Path(sys.argv[1]), float(sys.argv[2])
    faulthandler.dump_traceback_later(time_limit_seconds, exit=True)
    warnings.simplefilter("error", LossScaleWarning)
    is_in_cluster = "TF_CONFIG" in os.environ
    with results.open("w") as file:
        for name, function in cases.items():
            print(f"case {name}", flush=True)
            start = time.monotonic()
            result = _result(function)
            print(f"took {time.monotonic() - start:.1f} s", flush=True)
            file.write(json.dumps({"case": name, **result}) + "\n")
            file.flush()
            if is_in_cluster and "error" in result:
                print(result["error"], flush=True)
                os._exit(1)
    if is_in_cluster:
        _wait_for_the_others(results)
    # TensorFlow's own end may wait for workers that have ended already.
    sys.stdout.flush()
    os._exit(0)


def _wait_for_the_others(results: Path) -> None:
    """Returns once each worker is here: one that loses another ends in an error."""
    results.with_suffix(".done").touch()
    num_workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
    while len(list(results.parent.glob("*.done"))) < num_workers:
        time.sleep(0.05)


def _result(function: Callable[[], Any]) -> dict[str, Any]:
    keras.utils.set_random_seed(SEED)
    try:
        return {"value": function()}
    except Exception:
        return {"error": traceback.format_exc()}
    finally:
        keras.config.set_dtype_policy("float32")


def error_of(function: Callable[[], Any]) -> dict[str, str] | None:
    """Gives class and text of what a call raises, None if nothing."""
    try:
        function()
    except Exception as error:
        return {"class": type(error).__name__, "text": str(error)}
    return None


def numbers(variable: Any) -> Any:
    """Gives a variable's values as Python has them."""
    return np.asarray(variable.numpy()).tolist()


def on_each_replica(variable: Any) -> list[Any]:
    """Gives a variable's values on each replica of this process."""
    native = variable.value if isinstance(variable, keras.Variable) else variable
    strategy = tf.distribute.get_strategy()
    return [copy.numpy().tolist() for copy in strategy.experimental_local_results(native)]


def bits(variables: Iterable[Any]) -> list[list[str]]:
    """Gives the bytes of variables on each replica, to tell the slightest change."""
    return [
        [np.asarray(copy, variable.dtype).tobytes().hex() for copy in on_each_replica(variable)]
        for variable in variables
    ]


def state_of(optimizer: amp.LossScaleOptimizer) -> dict[str, Any]:
    """Gives what an optimizer counts, and the scale."""
    return {
        **optimizer.loss_scale_state().to_dict(),
        "step_counter": numbers(optimizer.step_counter),
        "iterations": numbers(optimizer.iterations),
    }
