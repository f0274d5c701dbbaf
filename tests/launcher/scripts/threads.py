"""Trains a model in a thread of its own, which the main program does not wait for."""

import threading

import keras
import numpy as np

x = np.ones((8, 4), "float32")
can_end = threading.Event()


def work():
    can_end.wait(60)
    model = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)], name="in_thread")
    model.compile("sgd", "mse")
    model.fit(x, x[:, :1], verbose=0)
    print("thread", model.layers[0].compute_dtype)


threading.Thread(target=work).start()
print("main ends")
can_end.set()
