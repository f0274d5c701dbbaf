"""A clean Keras state for each test, and slow tests only when asked for."""

import keras
import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes seconds per test; run with `-m slow`")


def pytest_collection_modifyitems(config, items):
    if config.getoption("markexpr"):
        return
    skip = pytest.mark.skip(reason="slow; run with `-m slow` or `-m 'slow or not slow'`")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def clean_keras():
    """Restore the global dtype policy, whatever the test sets."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32")
    yield
    keras.config.set_dtype_policy(before)


@pytest.fixture(params=["float16", "bfloat16"])
def half(request):
    """One of the two half formats; the global policy is its mixed policy."""
    keras.config.set_dtype_policy(f"mixed_{request.param}")
    return request.param
