"""Raw inputs and ids that half precision damages."""

import keras
import numpy as np
import pytest
from keras import layers

from tf_amp_kit.inspection.audit import audit_layer_dtypes

INCOMES = np.linspace(20_000, 200_000, 64, dtype="float32").reshape(-1, 1)
YEARS = np.arange(2010, 2026, dtype="float32").reshape(-1, 1)


def scaling_model(dtype=None):
    scale = layers.Normalization(mean=[0.0], variance=[1.0], dtype=dtype, name="scale")
    return keras.Sequential([keras.Input((1,)), scale, layers.Dense(1, dtype="float32")])


def found(model, code, **kwargs):
    report = audit_layer_dtypes(model, verbose=0, **kwargs)
    return [(one.path, one.message) for one in report.findings if one.code == code]


def test_incomes_beyond_the_largest_float16_are_named_with_their_count():
    keras.config.set_dtype_policy("mixed_float16")
    num_infinite = int((INCOMES >= 65520).sum())
    ((path, message),) = found(scaling_model(), "AMP206", sample=INCOMES)
    assert path == "scale"
    assert f"{num_infinite} of 64 values become infinite" in message


def test_years_merge_in_bfloat16():
    # The step between bfloat16 numbers is 8 from 1024 to 2048, and 16 above.
    keras.config.set_dtype_policy("mixed_bfloat16")
    ((path, message),) = found(scaling_model(), "AMP206", sample=YEARS)
    assert path == "scale"
    assert "16 distinct values become 3" in message


def test_years_are_exact_in_float16():
    keras.config.set_dtype_policy("mixed_float16")
    assert found(scaling_model(), "AMP206", sample=YEARS) == []


@pytest.mark.parametrize("sample", [INCOMES, YEARS])
def test_a_float32_first_layer_takes_raw_inputs(sample, half):
    assert found(scaling_model("float32"), "AMP206", sample=sample) == []


def test_pixels_and_standard_values_are_no_finding(half):
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (64, 1)).astype("float32")
    normal = generator.normal(size=(64, 1)).astype("float32")
    for sample in (pixels, normal):
        assert found(scaling_model(), "AMP206", sample=sample) == []


def test_the_damaged_feature_is_named_among_several(half):
    inputs = {"age": keras.Input((1,), name="age"), "year": keras.Input((1,), name="year")}
    hidden = layers.Concatenate()([layers.Dense(2)(inputs["age"]), layers.Dense(2)(inputs["year"])])
    model = keras.Model(inputs, layers.Dense(1, dtype="float32")(hidden))
    sample = {"age": np.full((16, 1), 40.0, "float32"), "year": YEARS * 1e3}
    ((path, message),) = found(model, "AMP206", sample=sample)
    assert path == "dense_1"
    assert "'year'" in message


def embedding_model(size, *, dtype="float32"):
    return keras.Sequential(
        [
            keras.Input((5,), dtype=dtype),
            layers.Reshape((5,)),
            layers.Embedding(size, 4, name="table"),
            layers.Flatten(),
            layers.Dense(1, dtype="float32"),
        ]
    )


def test_float_ids_through_a_half_layer_merge(half):
    ((path, message),) = found(embedding_model(5000), "AMP207")
    assert path == "table"
    assert {"float16": "above 2048", "bfloat16": "above 256"}[half] in message


def test_a_table_that_the_exact_integers_cover_is_fine(half):
    assert found(embedding_model(257), "AMP207") == []


def test_integer_ids_are_fine(half):
    assert found(embedding_model(5000, dtype="int32"), "AMP207") == []


def test_float_ids_that_come_straight_to_the_embedding_are_fine(half):
    model = keras.Sequential(
        [keras.Input((5,)), layers.Embedding(5000, 4), layers.Dense(1, dtype="float32")]
    )
    assert found(model, "AMP207") == []


def test_a_table_of_one_id_too_many_is_not_fine():
    # bfloat16 holds the integers up to 256, which are 257 ids.
    keras.config.set_dtype_policy("mixed_bfloat16")
    assert [path for path, _ in found(embedding_model(258), "AMP207")] == ["table"]


def test_values_that_merge_in_pairs_are_damaged():
    # From 256 to 512 the step between bfloat16 numbers is 2, and ties go to multiples of 4.
    keras.config.set_dtype_policy("mixed_bfloat16")
    pairs = np.array([[256], [257], [260], [261]], "float32")
    ((_, message),) = found(scaling_model(), "AMP206", sample=pairs)
    assert "4 distinct values become 2" in message


def test_values_that_merge_by_little_of_their_spread_are_fine():
    keras.config.set_dtype_policy("mixed_bfloat16")
    pairs = np.array([[256], [257], [260], [261], [8192], [8193]], "float32")
    assert found(scaling_model(), "AMP206", sample=pairs) == []


class Holds(layers.Layer):
    """Clips from above at a number of its own."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def call(self, inputs):
        return keras.ops.minimum(inputs, self.number)


@pytest.mark.parametrize(
    ("policy", "number", "advice"),
    [
        # Half of 65504, with the sign of what was meant.
        ("mixed_float16", 1e9, "`32752` for float16"),
        ("mixed_float16", -1e9, "`-32752` for float16"),
        # Below 1 the steps are 2**-11 in float16 and 2**-8 in bfloat16.
        ("mixed_float16", 1 - 1e-6, "below 1 is 0.99951171875:"),
        ("mixed_bfloat16", 0.999, "below 1 is 0.99609375:"),
        # The smallest normal float16 is 2**-14.
        ("mixed_float16", 1e-8, "at least 6.1e-05,"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_the_number_to_use_instead_of_a_lost_constant_is_told(policy, number, advice):
    keras.config.set_dtype_policy(policy)
    model = keras.Sequential([keras.Input((4,)), Holds(number), layers.Dense(1, dtype="float32")])
    findings = audit_layer_dtypes(model, verbose=0).findings
    (fix,) = [one.fix for one in findings if one.code in ("AMP204", "AMP205")]
    assert advice in fix
