"""Which folder is the model's, and what is in it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from utterwire_server.model.folder import (
    ENGINE_FILES,
    ModelError,
    ModelFolder,
    find_model_folder,
)

VOCABULARY = {"a": 43, "b": 44}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    (path / "voices").mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"vocab": VOCABULARY}))
    for name in ("bm_two", "af_one"):
        np.full((510, 256), 0.5, "<f4").tofile(path / "voices" / f"{name}.bin")
    return path


def test_its_contents(folder: Path) -> None:
    found = ModelFolder(folder)
    assert found.vocabulary == VOCABULARY
    assert found.voices == ("af_one", "bm_two")
    styles = found.styles("af_one")
    assert styles.shape == (510, 256)
    assert styles.dtype == np.float32
    assert (styles == 0.5).all()
    assert str(folder) in repr(found)


@pytest.mark.parametrize("engine", ENGINE_FILES)
def test_an_engine_is_served_once_all_of_its_files_are_there(folder: Path, engine: str) -> None:
    for name in ENGINE_FILES[engine]:
        assert ModelFolder(folder).engines == () or name == "config.json"
        (folder / name).touch()
    assert ModelFolder(folder).engines == (engine,)
    for path in (folder / "voices").iterdir():
        path.unlink()
    assert ModelFolder(folder).missing(engine) == ("voices/*.bin",)
    assert ModelFolder(folder).engines == ()


def test_a_file_that_has_to_be_there(folder: Path) -> None:
    assert ModelFolder(folder).file("config.json") == folder / "config.json"
    with pytest.raises(ModelError, match=r"kokoro\.onnx is missing"):
        ModelFolder(folder).file("kokoro.onnx")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("", "cannot be read"),
        ("[]", "not a JSON object"),
        ("{}", "no vocab"),
        ('{"vocab": {}}', "no vocab"),
        ('{"vocab": {"a": "43"}}', "no vocab"),
        ('{"vocab": {"ab": 43}}', "no vocab"),
        ('{"vocab": {"a": true}}', "no vocab"),
        ("\xff", "cannot be read"),
    ],
)
def test_a_configuration_that_is_none(folder: Path, config: str, problem: str) -> None:
    (folder / "config.json").write_bytes(config.encode("latin-1"))
    with pytest.raises(ModelError, match=problem):
        _ = ModelFolder(folder).vocabulary


@pytest.mark.parametrize("content", [b"", bytes(510 * 256 * 4 - 1), b"\xff" * (510 * 256 * 4)])
def test_a_damaged_voice(folder: Path, content: bytes) -> None:
    (folder / "voices" / "af_one.bin").write_bytes(content)
    with pytest.raises(ModelError, match=r"af_one\.bin is damaged"):
        ModelFolder(folder).styles("af_one")


@pytest.mark.parametrize("name", ["af_none", "../config", "", "af_one.bin"])
def test_a_voice_that_is_not_there(folder: Path, name: str) -> None:
    with pytest.raises(ModelError, match="there is no voice"):
        ModelFolder(folder).styles(name)


def test_the_flag_wins_over_the_environment_and_that_over_the_container(
    folder: Path, tmp_path: Path
) -> None:
    none = tmp_path / "none"
    environment = {"UTTERWIRE_MODEL_DIR": str(folder)}
    found = find_model_folder(str(folder), {"UTTERWIRE_MODEL_DIR": str(none)}, container=none)
    assert found is not None
    assert found.path == folder
    for variables, container in ((environment, none), ({}, folder)):
        found = find_model_folder(None, variables, container=container)
        assert found is not None
        assert found.path == folder
    assert find_model_folder(None, {}, container=none) is None
    assert find_model_folder("", {"UTTERWIRE_MODEL_DIR": ""}, container=tmp_path) is None


@pytest.mark.parametrize(
    ("flag", "environment"), [("none", {}), (None, {"UTTERWIRE_MODEL_DIR": "none"})]
)
def test_a_folder_that_is_named_has_to_be_one(
    folder: Path, tmp_path: Path, flag: str | None, environment: dict[str, str]
) -> None:
    with pytest.raises(ModelError, match="is no folder; make one with"):
        find_model_folder(flag, environment, container=folder)
    with pytest.raises(ModelError, match=r"no config\.json in it"):
        find_model_folder(str(tmp_path), {}, container=folder)


def test_a_folder_that_may_not_be_read_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.listdir", forbidden)
    with pytest.raises(ModelError, match=r"/model cannot be read: Permission denied"):
        find_model_folder(str(folder), {})
    assert find_model_folder(None, {}, container=folder) is None
