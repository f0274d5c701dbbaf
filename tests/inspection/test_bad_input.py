"""Bad input gives one clear error; a user's own exception stays the user's."""

import traceback
import zipfile

import keras
import numpy as np
import pytest
from keras import layers

from tf_amp_kit import errors
from tf_amp_kit.inspection.audit import audit_layer_dtypes

from . import places
from .faults import HiddenCast, Multiply

# Keras 3.15 saves through an argument that NumPy 2 has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


class Unbuilt(keras.Model):
    """Takes its shapes from the first call."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def call(self, inputs):
        return self.dense(inputs)


def test_an_unbuilt_model_asks_for_inputs(half):
    with pytest.raises(errors.AmpError, match="inputs="):
        audit_layer_dtypes(Unbuilt(), verbose=0)


def test_an_unbuilt_sequential_asks_for_inputs(half):
    with pytest.raises(errors.AmpError, match="inputs="):
        audit_layer_dtypes(keras.Sequential([layers.Dense(3)]), verbose=0)


def test_an_unbuilt_model_is_audited_with_inputs(half):
    report = audit_layer_dtypes(Unbuilt(), inputs=np.zeros((2, 4), "float32"), verbose=0)
    assert [row.path for row in report.rows if row.path] == ["dense"]


@pytest.mark.parametrize("shape", [(2, 5), (2, 8, 8, 8), (8,)])
def test_inputs_of_a_wrong_shape_are_refused(shape, half):
    model = places.in_functional(layers.ReLU)
    with pytest.raises(errors.InputsError, match="8"):
        audit_layer_dtypes(model, inputs=np.zeros(shape, "float32"), verbose=0)


def test_too_many_inputs_are_refused(half):
    model = places.in_functional(layers.ReLU)
    with pytest.raises(errors.InputsError):
        audit_layer_dtypes(model, inputs=[np.zeros((2, 8), "float32")] * 3, verbose=0)


@pytest.mark.parametrize("subject", [3, "model", None, np.zeros(3), [layers.Dense(3)], {}])
def test_what_is_no_model_is_refused(subject):
    with pytest.raises(errors.ModelError, match=r"(?i)received"):
        audit_layer_dtypes(subject, verbose=0)


def test_a_builder_that_returns_no_model_is_refused(half):
    with pytest.raises(errors.AmpError, match=r"(?i)received"):
        audit_layer_dtypes(lambda: 3, verbose=0)


def failing_builder():
    raise ValueError("no such block: 7")


def test_a_builders_own_exception_keeps_its_message_and_traceback(half):
    with pytest.raises(ValueError, match=r"^no such block: 7$") as raised:
        audit_layer_dtypes(failing_builder, verbose=0)
    assert type(raised.value) is ValueError
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert names[-1] == "failing_builder"


class Failing(layers.Layer):
    """Fails for a reason that has nothing to do with dtypes."""

    def call(self, inputs):
        raise KeyError("missing table")


def test_an_exception_inside_a_layer_is_no_dtype_conflict(half):
    with pytest.raises(KeyError, match="missing table") as raised:
        audit_layer_dtypes(lambda: places.in_functional(Failing), verbose=0)
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert "call" in names


def test_a_shape_mistake_in_a_builder_is_the_users(half):
    def build():
        inputs = keras.Input((8,))
        return keras.Model(inputs, layers.Add()([layers.Dense(3)(inputs), layers.Dense(4)(inputs)]))

    with pytest.raises(ValueError, match="shape"):
        audit_layer_dtypes(build, verbose=0)


def test_an_unknown_precision_is_refused():
    with pytest.raises(errors.PrecisionError, match="bf17"):
        audit_layer_dtypes(places.in_functional(layers.ReLU), precision="bf17", verbose=0)


def test_nothing_stays_patched_after_an_error(half):
    plain = keras.layers.Layer.__call__
    with pytest.raises(ValueError, match="no such block"):
        audit_layer_dtypes(failing_builder, verbose=0)
    assert keras.layers.Layer.__call__ is plain
    assert keras.config.dtype_policy().name == f"mixed_{half}"


def test_an_audit_changes_neither_weights_nor_seeds(half):
    model = places.in_functional(Multiply)
    before = model.get_weights()
    # Without it, older versions of Keras go on with the generator they have.
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    expected = np.random.rand(), keras.random.uniform((2,)).numpy().tolist()
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    audit_layer_dtypes(model, verbose=0)
    assert (np.random.rand(), keras.random.uniform((2,)).numpy().tolist()) == expected
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


def run_audit(arguments, capsys):
    """Return the exit code and the lines on standard error of the command line."""
    cli = pytest.importorskip("tf_amp_kit.cli")
    code = cli.main(["audit", *map(str, arguments)])
    return code, capsys.readouterr().err.strip().splitlines()


def assert_refused(arguments, capsys, words):
    code, lines = run_audit(arguments, capsys)
    assert code == 2
    assert len(lines) == 1
    assert words in lines[0]


def test_the_command_refuses_a_damaged_file(tmp_path, capsys):
    path = tmp_path / "damaged.keras"
    path.write_bytes(b"PK\x03\x04 this is no archive")
    assert_refused([path], capsys, "damaged.keras")


def test_the_command_refuses_a_truncated_file(tmp_path, capsys):
    path = tmp_path / "cut.keras"
    places.in_functional(layers.ReLU).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert_refused([path], capsys, "cut.keras")


def test_the_command_refuses_a_missing_file(tmp_path, capsys):
    assert_refused([tmp_path / "absent.keras"], capsys, "absent.keras")


def test_the_command_refuses_unknown_classes(tmp_path, capsys):
    path = tmp_path / "custom.keras"
    places.in_functional(HiddenCast).save(path)
    # A stranger's file: the class that it names cannot be imported.
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["config.json"] = members["config.json"].replace(b"HiddenCast", b"NobodysCast")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert_refused([path], capsys, "NobodysCast")


def test_the_command_loads_files_in_safe_mode(tmp_path, capsys):
    path = tmp_path / "lambda.keras"
    inputs = keras.Input((8,))
    keras.Model(inputs, layers.Lambda(lambda x: x * 2)(inputs)).save(path)
    assert_refused([path], capsys, "lambda.keras")


@pytest.mark.parametrize("name", ["no_such_module_here:build", "json:no_such_name", "json"])
def test_the_command_refuses_builders_that_are_not_there(name, capsys):
    assert_refused([name], capsys, name.split(":")[0])


def test_the_command_exits_with_one_on_findings_and_none_on_a_clean_file(tmp_path, capsys):
    half_head, float32_head = tmp_path / "half.keras", tmp_path / "float32.keras"
    keras.config.set_dtype_policy("mixed_bfloat16")
    inputs = keras.Input((8,))
    hidden = layers.Dense(8)(inputs)
    keras.Model(inputs, layers.Dense(3)(hidden)).save(half_head)
    keras.Model(inputs, places.head()(hidden)).save(float32_head)
    ignored = ["--amp", "bf16", "--ignore", "AMP108"]
    assert run_audit([half_head, *ignored], capsys)[0] == 1
    assert run_audit([float32_head, *ignored], capsys)[0] == 0
