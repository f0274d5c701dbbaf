import pytest


@pytest.fixture(params=["float16", "bfloat16"])
def half(request):
    return request.param
