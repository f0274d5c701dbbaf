"""Runs the cases under MirroredStrategy: four logical CPUs, of which each takes some."""

from __future__ import annotations

import tensorflow as tf

from tests.distributed import (
    cases,
    mirrored_inspection,
    mirrored_models,
    mirrored_optimizers,
    mirrored_steps,
)

NUM_DEVICES = 4

if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * NUM_DEVICES,
    )
    cases.main(
        mirrored_steps.CASES
        | mirrored_optimizers.CASES
        | mirrored_models.CASES
        | mirrored_inspection.CASES
    )
