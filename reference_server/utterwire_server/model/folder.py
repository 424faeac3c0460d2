"""Where the files of Kokoro-82M lie, and what can be done with those that are there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "ENGINE_FILES",
    "MANIFEST",
    "MODEL_DIR_VARIABLE",
    "ModelError",
    "ModelFolder",
    "find_model_folder",
]

MODEL_DIR_VARIABLE: Final = "UTTERWIRE_MODEL_DIR"
MANIFEST: Final = "manifest.json"

#: What each engine reads, besides the voices.
ENGINE_FILES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "kokoro-onnx": (
            "config.json",
            "kokoro.onnx",
            "kokoro-front.onnx",
            "kokoro-generator.onnx",
        ),
        "kokoro-torch": ("config.json", "kokoro.pth"),
    }
)

# SageMaker AI unpacks a model's archive here, read-only.
_CONTAINER_DIR = Path("/opt/ml/model")
_STYLE_SHAPE = (510, 256)


class ModelError(ValueError):
    """Model files are missing, damaged or not what is expected. The message is one line."""


class ModelFolder:
    """A folder of model files.

    :raises ModelError: if it is no folder, may not be read, or has no ``config.json``.
    """

    def __init__(self, path: Path) -> None:
        try:
            if not path.is_dir():
                raise ModelError(
                    f"{path} is no folder; make one with: utterwire-server model fetch"
                )
            if not (path / "config.json").is_file():
                raise ModelError(f"{path} is no model folder: there is no config.json in it")
            # Before Python 3.13 a listing passes over what may not be read.
            os.listdir(path / "voices" if (path / "voices").is_dir() else path)
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
        self.path = path

    def __repr__(self) -> str:
        return f"ModelFolder({str(self.path)!r})"

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """Kokoro's own ``config.json``.

        :raises ModelError: if it is not a JSON object.
        """
        path = self.path / "config.json"
        try:
            config = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ModelError(f"{path} cannot be read: {error}") from error
        if not isinstance(config, dict):
            raise ModelError(f"{path} is not a JSON object")
        return MappingProxyType(config)

    @cached_property
    def vocabulary(self) -> Mapping[str, int]:
        """The token of each phoneme.

        :raises ModelError: if the configuration has none.
        """
        found = self.config.get("vocab")
        if (
            not isinstance(found, dict)
            or not found
            or not all(type(token) is int and len(phoneme) == 1 for phoneme, token in found.items())
        ):
            raise ModelError(f"{self.path / 'config.json'} has no vocab of phonemes and tokens")
        return MappingProxyType(found)

    @property
    def voices(self) -> tuple[str, ...]:
        """The names of the voices that are there, sorted."""
        return tuple(sorted(path.stem for path in (self.path / "voices").glob("*.bin")))

    def styles(self, voice: str) -> npt.NDArray[np.float32]:
        """A voice: row ``n - 1`` is its style for ``n`` phonemes; float32 of shape ``(510, 256)``.

        :raises ModelError: if there is no such voice, or its file is damaged.
        """
        if voice not in self.voices:
            raise ModelError(f"there is no voice {voice!r} in {self.path}")
        path = self.path / "voices" / f"{voice}.bin"
        try:
            values = np.fromfile(path, "<f4")
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}") from error
        if values.size != _STYLE_SHAPE[0] * _STYLE_SHAPE[1] or not np.isfinite(values).all():
            raise ModelError(f"{path} is damaged: it is not {_STYLE_SHAPE} numbers")
        return values.astype(np.float32).reshape(_STYLE_SHAPE)

    def missing(self, engine: str) -> tuple[str, ...]:
        """The files that `engine` needs and that are not there; KeyError for an unknown engine."""
        missing = [name for name in ENGINE_FILES[engine] if not (self.path / name).is_file()]
        if not self.voices:
            missing.append("voices/*.bin")
        return tuple(missing)

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines whose files are all there."""
        return tuple(engine for engine in ENGINE_FILES if not self.missing(engine))

    def file(self, name: str) -> Path:
        """The path of a file that has to be there.

        :raises ModelError: if it is not.
        """
        path = self.path / name
        if not path.is_file():
            raise ModelError(f"{path} is missing; fetch the folder again, or another one")
        return path


def find_model_folder(
    flag: str | None, environment: Mapping[str, str], *, container: Path = _CONTAINER_DIR
) -> ModelFolder | None:
    """The model folder of `--model-dir`, else of the environment, else of a container's model.

    None if none is named and the container's is not there, or is not a model folder.

    :raises ModelError: if the one that is named is no model folder.
    """
    named = flag or environment.get(MODEL_DIR_VARIABLE)
    if named:
        try:
            path = Path(named).expanduser()
        except RuntimeError:
            raise ModelError(f"{named} is no folder: there is no such user") from None
        return ModelFolder(path)
    try:
        return ModelFolder(container)
    except ModelError:
        return None
