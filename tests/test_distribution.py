"""The wheel and the sdist: what is in them, and what they do once installed somewhere else."""

from __future__ import annotations

import configparser
import email.parser
import json
import os
import re
import subprocess
import sys
import tarfile
import urllib.request
import wave
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "utterwire_schemas": "schemas",
    "utterwire_protocol": "protocol",
    "utterwire_server": "reference_server",
    "utterwire_client": "reference_client",
    "utterwire_player": "reference_client",
    "utterwire_conformance": "conformance",
}
SPEC = "utterwire_conformance/data"
SCRIPTS = {
    "utterwire": "utterwire_client.cli:main",
    "utterwire-conformance": "utterwire_conformance.cli:main",
    "utterwire-deploy": "utterwire_server.deploy.cli:main",
    "utterwire-router": "utterwire_conformance.router.cli:main",
    "utterwire-server": "utterwire_server.cli:main",
}
EXTRAS = {
    "server",
    "client",
    "conformance",
    "encoders",
    "decoders",
    "kokoro",
    "torch",
    "aws",
    "deploy",
    "agents",
    "browser",
    "all",
    "dev",
}


def run(command: list[str], cwd: Path, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a command as a stranger would: elsewhere, with nothing of this checkout in reach."""
    hidden = ("PYTHON", "COV", "PYTEST", "TOX", "VIRTUAL_ENV", "UTTERWIRE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    environment["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def must(command: list[str], cwd: Path) -> str:
    """Standard output of a command that has to succeed."""
    done = run(command, cwd)
    assert done.returncode == 0, f"{command} exited {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


class Environment:
    """A new virtual environment outside the checkout, with the wheel and some extras in it."""

    def __init__(self, folder: Path, wheel: Path, extras: str) -> None:
        self.folder = folder
        self.elsewhere = folder.parent / f"{folder.name}-elsewhere"
        self.elsewhere.mkdir()
        must([sys.executable, "-m", "virtualenv", "--quiet", str(folder)], folder.parent)
        requirement = f"utterwire{extras} @ {wheel.as_uri()}"
        must([str(self.bin / "python"), "-m", "pip", "install", "-q", requirement], self.elsewhere)

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run an installed script by its path: the environment is not activated."""
        return run([str(self.bin / script), *arguments], self.elsewhere)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with an sdist and the wheel built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    must([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("base") / "env", wheel, "")


@pytest.fixture(scope="module")
def speaking(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("speaking") / "env", wheel, "[server,client]")


@pytest.fixture(scope="module")
def server_port(speaking: Environment) -> Iterator[int]:
    """Port of an installed server; its own log line says when it listens, and where."""
    command = [str(speaking.bin / "utterwire-server"), "--port", "0"]
    with subprocess.Popen(
        command, cwd=speaking.elsewhere, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            lines = []
            for line in server.stderr:
                lines.append(line)
                event = json.loads(line)
                if event.get("event") == "listening":
                    break
            else:
                pytest.fail(f"the server ended before it listened: {lines}")
            yield event["port"]
        finally:
            server.terminate()
            server.communicate()
        assert server.returncode == 0


@pytest.fixture(scope="module")
def judging(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What someone who runs the suite on the reference server installs."""
    folder = tmp_path_factory.mktemp("judging") / "env"
    return Environment(folder, wheel, "[server,conformance]")


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def test_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    names = {name for name in names_in(wheel) if ".dist-info/" not in name}
    expected = {f"{SPEC}/{path.name}" for path in (ROOT / "spec").iterdir()}
    for package, container in PACKAGES.items():
        for path in (ROOT / container / package).rglob("*"):
            left_by_tools = any(part.startswith((".", "__pycache__")) for part in path.parts)
            if path.is_file() and not left_by_tools:
                expected.add(path.relative_to(ROOT / container).as_posix())
    assert names == expected


@pytest.mark.parametrize("package", PACKAGES)
def test_wheel_is_typed(wheel: Path, package: str) -> None:
    assert f"{package}/py.typed" in names_in(wheel)


def test_wheel_holds_no_tests(wheel: Path) -> None:
    parts = {part for name in names_in(wheel) for part in name.split("/")}
    assert not parts & {"tests", "conftest.py", "__pycache__"}


def test_wheel_holds_schemas_and_vectors(wheel: Path) -> None:
    names = names_in(wheel)
    json_files = [name for name in names if name.startswith("utterwire_schemas/")]
    assert any(name.endswith(".json") and "vectors" in name for name in json_files)
    assert any(name.endswith(".json") and "vectors" not in name for name in json_files)


def test_wheel_holds_the_specification_as_it_stands(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for path in (ROOT / "spec").iterdir():
            assert archive.read(f"{SPEC}/{path.name}") == path.read_bytes(), path.name


def test_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = email.parser.Parser().parsestr(archive.read(name).decode())
    assert metadata["Name"] == "utterwire"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra", [])) >= EXTRAS
    requires = metadata.get_all("Requires-Dist", [])
    everything = [line for line in requires if line.endswith(("extra == 'all'", 'extra == "all"'))]
    assert everything
    assert not [line for line in everything if "torch" in line]


def test_entry_points_are_the_console_scripts_alone(wheel: Path) -> None:
    """A ``pytest11`` entry point would add the suite's options to everybody's pytest."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith("/entry_points.txt")]
        points = configparser.ConfigParser()
        points.read_string(archive.read(name).decode())
    assert points.sections() == ["console_scripts"]
    assert dict(points["console_scripts"]) == SCRIPTS


def test_wheel_built_straight_from_the_checkout_is_the_same(wheel: Path, tmp_path: Path) -> None:
    must([sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)], tmp_path)
    (other,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(other) as two:
        assert sorted(one.namelist()) == sorted(two.namelist())
        for name in one.namelist():
            assert one.read(name) == two.read(name), name


def test_sdist_holds_what_is_needed_to_work_on_it(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {"/".join(member.name.split("/")[1:]) for member in archive.getmembers()}
    needed = {"LICENSE", "README.md", "bootstrap.py", "pyproject.toml", "tox.ini"}
    assert needed <= names
    assert {"spec/requirements.yaml", "conformance/conftest.py"} <= names
    assert not [name for name in names if name.startswith((".git/", ".tox/", "evidence/"))]


def test_base_install_imports_schemas_and_core_only(base: Environment) -> None:
    done = base.run("python", "-c", "import utterwire_schemas, utterwire_protocol")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("script", "arguments", "extra"),
    [
        ("utterwire-server", [], "server"),
        ("utterwire-server", ["serve"], "server"),
        ("utterwire", ["say", "Hello.", "--url", "ws://127.0.0.1:9/"], "client"),
        ("utterwire-conformance", ["--endpoint", "reference"], "conformance"),
    ],
)
def test_missing_extra_is_one_line(
    base: Environment, script: str, arguments: list[str], extra: str
) -> None:
    done = base.run(script, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert f"utterwire[{extra}]" in line


def test_a_format_that_is_not_installed_is_one_line(speaking: Environment) -> None:
    done = speaking.run("utterwire-server", "--formats", "wav,mp3")
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert "format mp3 cannot be offered: av is not installed" in line
    assert "utterwire[encoders]" in line


def test_commands_of_the_readme_speak(speaking: Environment, server_port: int) -> None:
    url = f"ws://127.0.0.1:{server_port}"
    done = speaking.run("utterwire", "say", "Hello.", "--url", url, "-o", "hello.wav")
    assert done.returncode == 0, done.stderr
    with wave.open(str(speaking.elsewhere / "hello.wav")) as audio:
        frames = audio.getnframes()
        assert (audio.getframerate(), audio.getsampwidth(), audio.getnchannels()) == (24000, 2, 1)
        assert len(audio.readframes(frames)) == 2 * frames > 0
    request = urllib.request.Request(
        f"http://127.0.0.1:{server_port}/invocations", data=b'{"text": "Hello."}', method="POST"
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        assert len(response.read()) == 2 * frames


def test_code_of_the_readme_runs(speaking: Environment, server_port: int) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert code.count("ws://127.0.0.1:8080") == 1
    code = code.replace("ws://127.0.0.1:8080", f"ws://127.0.0.1:{server_port}")
    done = speaking.run("python", "-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines
    assert all(re.fullmatch(r"[1-9][0-9]* bytes of PCM", line) for line in lines)


def test_installed_suite_judges_the_installed_server(judging: Environment) -> None:
    """`utterwire-conformance` and the server it launches both come from the wheel."""
    where = judging.run(
        "python", "-c", "import utterwire_conformance as c, utterwire_server as s; "
        "print(c.__file__); print(s.__file__)"
    )  # fmt: skip
    assert [Path(line).is_relative_to(judging.folder) for line in where.stdout.split()] == [
        True,
        True,
    ]
    done = judging.run("utterwire-conformance", "--endpoint", "reference", "--fuzz-examples", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


def test_installed_suite_cannot_judge_a_dead_port(judging: Environment) -> None:
    done = judging.run(
        "utterwire-conformance",
        "--endpoint-url",
        "ws://127.0.0.1:9/invocations-bidirectional-stream",
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_endpoint_file_of_the_readme_is_read(judging: Environment) -> None:
    """Only the variable that it names is missing here."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (toml,) = re.findall(r"```toml\n(.*?)```", readme, re.DOTALL)
    (judging.elsewhere / "endpoints.toml").write_text(toml, encoding="utf-8")
    done = judging.run("utterwire-conformance", "--endpoint", "mine", "--no-fuzz")
    assert done.returncode == 2
    assert "TTS_TOKEN is not set" in done.stdout + done.stderr
