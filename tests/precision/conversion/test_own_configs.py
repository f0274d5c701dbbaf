"""Files of models that write the arguments of their class, and no policy."""

from __future__ import annotations

import keras

import tf_amp_kit as amp


@keras.saving.register_keras_serializable("tests_own_configs")
class Net(keras.Model):
    def __init__(self, units, **kwargs):
        inputs = keras.Input((3,))
        super().__init__(inputs, keras.layers.Dense(units, name="dense")(inputs), **kwargs)
        self.units = units

    def get_config(self):
        return {"units": self.units, "name": self.name}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def test_they_are_opened_under_the_policy_of_the_moment_as_keras_does(tmp_path):
    path = tmp_path / "net.keras"
    with amp.amp_scope("bf16"):
        Net(2).save(path)
        assert amp.load_model(path).get_layer("dense").compute_dtype == "bfloat16"
    assert amp.load_model(path).get_layer("dense").compute_dtype == "float32"
