"""What people reported of half precision, before and after the pins."""

import keras
import numpy as np
import pytest
from keras import layers

import tf_amp_kit as amp
from tests.precision.pinning import models


def mixed(half):
    keras.config.set_dtype_policy(f"mixed_{half}")


def codes(model, **kwargs):
    return {one.code for one in amp.audit_layer_dtypes(model, verbose=0, **kwargs).findings}


def test_sums_of_predictions_overflow_no_more():
    mixed("float16")
    model = models.chain(units=1, activation=None)
    model.get_layer("head").set_weights([np.zeros((4, 1)), np.full(1, 300.0)])
    x = np.ones((4096, 4), "float32")
    with np.errstate(over="ignore"):
        assert np.sum(model.predict(x, verbose=0)) == np.inf
    amp.pin_float32(model)
    assert np.sum(model.predict(x, verbose=0)) == 300.0 * 4096


HEADS = {
    "a dense layer": lambda: [layers.Dense(1, activation="sigmoid")],
    "a sigmoid after it": lambda: [layers.Dense(1), layers.Activation("sigmoid")],
    "a dense layer in a nested model": lambda: [
        keras.Sequential([keras.Input((4,)), layers.Dense(1, activation="sigmoid")])
    ],
    "a dense layer in TimeDistributed": lambda: [
        layers.Reshape((1, 4)),
        layers.TimeDistributed(layers.Dense(1, activation="sigmoid")),
        layers.Flatten(),
    ],
}


@pytest.mark.parametrize("case", HEADS)
def test_a_confidently_wrong_sigmoid_learns_as_in_float32(case, half):
    def bias_after_training(policy, pin):
        keras.config.set_dtype_policy(policy)
        model = keras.Sequential([keras.Input((4,)), *HEADS[case]()])
        kernel, bias = (variable for variable in model.weights)
        kernel.assign(np.zeros(kernel.shape))
        bias.assign(np.full(1, 10.0))
        model.compile(keras.optimizers.SGD(1.0), "binary_crossentropy")
        if pin:
            amp.pin_float32(model)
        model.fit(np.ones((8, 4)), np.zeros((8, 1)), epochs=2, verbose=0)
        return float(bias.numpy()[0])

    wide = bias_after_training("float32", pin=False)
    assert wide < 9.0
    assert bias_after_training(f"mixed_{half}", pin=False) == 10.0
    assert bias_after_training(f"mixed_{half}", pin=True) == pytest.approx(wide, rel=1e-6)


def test_an_audit_flags_that_head_until_it_is_pinned(half):
    mixed(half)
    model = models.chain(units=1, activation="sigmoid")
    assert {"AMP201", "AMP202"} <= codes(model)
    amp.pin_float32(model)
    assert not {"AMP201", "AMP202"} & codes(model)


INCOMES = np.linspace(2e4, 2e5, 64, dtype="float32").reshape(-1, 1)
YEARS = np.arange(2010, 2026, dtype="float32").reshape(-1, 1)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(("half", "values"), [("float16", INCOMES), ("bfloat16", YEARS)])
def test_raw_inputs_are_normalized_as_in_float32(half, values, given):
    mixed(half)
    if given:
        normalization = layers.Normalization(mean=values.mean(), variance=values.var())
    else:
        normalization = layers.Normalization()
        normalization.adapt(values)
    model = keras.Sequential([keras.Input((1,)), normalization, layers.Dense(1)])
    features = keras.Model(model.inputs[0], normalization.output)
    expected = (values - values.mean()) / values.std()
    before = features.predict(values, verbose=0).astype("float32")
    assert not np.isfinite(before).all() or len(np.unique(before)) < len(values)

    pins = amp.pin_float32(model)
    pinned = keras.Model(model.inputs[0], normalization.output).predict(values, verbose=0)
    np.testing.assert_allclose(pinned, expected, rtol=1e-5, atol=1e-6)
    pins.undo()
    undone = keras.Model(model.inputs[0], normalization.output).predict(values, verbose=0)
    np.testing.assert_array_equal(undone.astype("float32"), before)


def test_a_model_that_rounds_its_inputs_takes_them_in_float32_while_it_is_pinned(tmp_path):
    mixed("bfloat16")
    years = YEARS + 40  # eleven bits
    model = keras.Sequential([layers.Rescaling(1 / 4096), layers.Dense(1)])
    model(years)
    assert model.inputs[0].dtype == "bfloat16"
    assert len(np.unique(model.predict(years, verbose=0))) < 16
    pins = amp.pin_float32(model)
    assert len(np.unique(model.predict(years, verbose=0))) == 16
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert len(np.unique(loaded.predict(years, verbose=0))) == 16
    pins.undo()
    assert model.inputs[0].dtype == "bfloat16"


def test_masks_of_keras_are_left_alone(half):
    mixed(half)
    inputs, mask = keras.Input((6, 8)), keras.Input((6, 6), dtype="bool")
    hidden = layers.MultiHeadAttention(2, 4)(inputs, inputs, attention_mask=mask)
    model = keras.Model([inputs, mask], layers.Dense(3, dtype="float32")(hidden))
    assert amp.pin_float32(model).paths == ()
    assert "AMP204" not in codes(model)
    x, nothing = np.ones((2, 6, 8), "float32"), np.zeros((2, 6, 6), bool)
    assert np.isfinite(model.predict([x, nothing], verbose=0)).all()


def nested_pins():
    inner = keras.Sequential(
        [keras.Input((8,)), layers.Dense(8, name="up"), layers.UnitNormalization(name="unit")],
        name="inner",
    )
    sequences = keras.Sequential(
        [
            keras.Input((5, 8)),
            layers.TimeDistributed(inner, name="each"),
            layers.Bidirectional(layers.GRU(3, return_sequences=True), name="both"),
            layers.TimeDistributed(layers.Dense(2, activation="softmax"), name="head"),
        ]
    )
    return sequences, {"each", "head"}


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_pins_reach_into_wrappers_and_nested_models(half):
    mixed(half)
    model, expected = nested_pins()
    assert set(amp.pin_float32(model).paths) == expected
    x = np.full((2, 5, 8), 300.0, "float32")  # its squares overflow float16
    assert np.isfinite(model.predict(x, verbose=0)).all()
    assert not {code for code in codes(model) if code.startswith("AMP2")}


# The quick one has what most others have: scaled inputs and a head of several layers.
QUICK = ("MobileNetV3Small",)
SLOW = (
    "DenseNet121",
    "ResNet50",
    "EfficientNetB0",
    "ConvNeXtTiny",
    "InceptionV3",
    "NASNetMobile",
    "Xception",
)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)]
)
def test_pinned_applications_have_no_finding_about_numerics(name, half):
    with amp.amp_scope(half):
        model = getattr(keras.applications, name)(weights=None, input_shape=(96, 96, 3))
        amp.pin_float32(model)
        found = codes(model, training=True)
    assert not {code for code in found if code.startswith("AMP2") or code == "AMP108"}
