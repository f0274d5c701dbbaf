"""Runs as a module, too."""

import pickle
import sys

import keras


class Mine:
    pass


if __name__ == "__main__":
    print(sys.argv[1:], __spec__ is not None, keras.layers.Dense(1).dtype_policy.name)
    print(type(pickle.loads(pickle.dumps(Mine()))) is Mine)
