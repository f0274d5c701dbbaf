"""Asks worker processes, spawned and forked, under which policy they build."""

import multiprocessing
import sys


def policy_of(_):
    import keras

    return keras.layers.Dense(1).dtype_policy.name


def doubled(value):
    return 2 * value


if __name__ == "__main__":
    import keras

    print(keras.layers.Dense(1).dtype_policy.name)
    for method in sys.argv[1:]:
        function = doubled if method == "fork" else policy_of
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, pool.map(function, [1]))
