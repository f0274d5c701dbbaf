"""Files and builders that a command line names."""

import re
import sys
import types
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit.errors import LoadError, ModelError
from tf_amp_kit.model_source import built_model, load_data, load_source

# Keras 3.15 saves through an argument that NumPy 2 has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture
def saved(tmp_path):
    """The path of a model's file."""
    path = tmp_path / "net.keras"
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="head")]).save(path)
    return path


def rewrite(path, change):
    """Changes the members of an archive, a dictionary of bytes, in place."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def assert_refused(name, *words):
    with pytest.raises(LoadError, match=re.escape(words[0])) as raised:
        load_source(str(name))
    assert all(word in str(raised.value) for word in words)


def test_a_file_gives_its_model(saved):
    assert [layer.name for layer in load_source(str(saved)).layers] == ["head"]


def test_a_builder_is_not_called():
    assert load_source("keras.applications:ResNet50") is keras.applications.ResNet50


@pytest.mark.parametrize(
    "change",
    [
        lambda members: members.pop("config.json"),
        lambda members: members.pop("model.weights.h5"),
        lambda members: members.update({"config.json": b'{"module":'}),
        lambda members: members.update({"config.json": b"{}"}),
        lambda members: members.update({"config.json": b"[1]"}),
        lambda members: members.update({"model.weights.h5": members["model.weights.h5"][:99]}),
        lambda members: members.update(
            {"config.json": members["config.json"].replace(b'"units": 2', b'"units": 3')}
        ),
    ],
)
def test_a_damaged_archive_is_refused_by_its_name(change, saved):
    rewrite(saved, change)
    assert_refused(saved, "The file cannot be opened", "net.keras")


def test_an_empty_file_is_refused(tmp_path):
    tmp_path.joinpath("empty.keras").touch()
    assert_refused(tmp_path / "empty.keras", "is damaged or not completely copied", "empty.keras")


def test_a_folder_is_no_file(tmp_path):
    tmp_path.joinpath("folder.keras").mkdir()
    assert_refused(tmp_path / "folder.keras", "There is no such file", "folder.keras")


def test_another_format_is_refused(tmp_path):
    tmp_path.joinpath("net.h5").touch()
    assert_refused(tmp_path / "net.h5", "not a .keras file", "net.h5")


def test_an_unknown_class_is_named_with_the_way_out(saved):
    def hide_module(members):
        config = members["config.json"]
        members["config.json"] = config.replace(b'"keras.layers"', b'"somewhere"')

    rewrite(saved, hide_module)
    assert_refused(saved, "The file holds 'InputLayer'", "name a function that imports its code")


def test_code_in_a_file_is_not_run(tmp_path):
    path = tmp_path / "lambda.keras"
    keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x * 2)]).save(path)
    assert_refused(path, "holds Python code", "safe_mode=False")


@pytest.mark.parametrize("name", ["model", "json", ":build", "a-b:build", "..up:build"])
def test_what_is_neither_file_nor_builder_names_both_forms(name):
    assert_refused(name, "Expected a .keras file or package.module:builder", name)


TRAIN, VALIDATION = (np.zeros((4, 2)), np.zeros(4)), (np.ones((2, 2)), np.ones(2))
WEIGHTED = (*TRAIN, np.ones(4))
DATASET, OTHER_DATASET = (tf.data.Dataset.from_tensors(data) for data in (TRAIN, VALIDATION))


@pytest.mark.parametrize(
    ("returned", "train", "validation"),
    [
        (TRAIN, TRAIN, None),
        (TRAIN[0], TRAIN[0], None),
        (WEIGHTED, WEIGHTED, None),
        (DATASET, DATASET, None),
        ((TRAIN, VALIDATION), TRAIN, VALIDATION),
        ((WEIGHTED, VALIDATION), WEIGHTED, VALIDATION),
        ((DATASET, OTHER_DATASET), DATASET, OTHER_DATASET),
        ((DATASET, VALIDATION), DATASET, VALIDATION),
        ((TRAIN, OTHER_DATASET), TRAIN, OTHER_DATASET),
        ((DATASET, None), DATASET, None),
    ],
)
def test_data_are_told_apart_for_training_and_validation(returned, train, validation, monkeypatch):
    module = types.ModuleType("data_to_load")
    module.data = lambda: returned
    monkeypatch.setitem(sys.modules, "data_to_load", module)
    found = load_data("data_to_load:data")
    assert found[0] is train
    assert found[1] is validation


def test_a_model_that_is_not_compiled_is_refused_where_it_needs_a_loss():
    with pytest.raises(ModelError, match="Expected a compiled model"):
        built_model(lambda: keras.Sequential([keras.Input((4,))]), needs_loss=True)


def test_a_model_that_needs_no_loss_need_not_be_compiled():
    model = keras.Sequential([keras.Input((4,))])
    assert built_model(lambda: model, needs_loss=False) is model
