"""`scripts/build_image.py`: what of it needs neither root nor an image."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "scripts"))

import build_image  # noqa: E402


# Slow enough that it still speaks when it is told, however late that is on a busy machine.
@pytest.mark.parametrize(("timeout", "rtf", "lost"), [("20", "0.1", False), ("0", "1", True)])
def test_what_is_lost_when_a_server_is_told_to_stop(timeout: str, rtf: str, lost: bool) -> None:
    port = build_image.free_port()
    command = [
        *(sys.executable, "-m", "utterwire_server", "serve", "--engine", "tone"),
        *("--rtf", rtf, "--port", str(port), "--shutdown-timeout", timeout),
    ]
    with build_image.running(command, port) as (process, ready_s):
        assert ready_s > 0
        told = build_image.drained(process, port)
    assert told["nothing_lost"] is not lost
    assert told["exit_status"] == 0
    if not lost:
        assert told["session_closed"] == "going_away"
        assert len(told["audio_bytes_told"]) == len(build_image.SPOKEN)


@pytest.mark.parametrize("after", ["nothing", "the start", "audio"])
def test_a_server_that_breaks_off_has_lost_something(after: str) -> None:
    def speak(session: ServerConnection) -> None:
        if after != "nothing":
            session.recv()
            session.send('{"type": "synthesis_start"}')
        if after == "audio":
            session.send(b"\0\0")
            session.recv()
        session.socket.shutdown(socket.SHUT_RDWR)

    with (
        serve(speak, "127.0.0.1", 0, compression=None) as server,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process,
    ):
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            told = build_image.drained(process, server.socket.getsockname()[1])
        finally:
            process.kill()
            server.shutdown()
            thread.join()
    assert told["nothing_lost"] is False
    assert told["session_closed"] == "nothing: ConnectionClosedError"
    assert told["exit_status"] == -15


def test_a_container_that_ends_at_once_is_one_line() -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    with (
        pytest.raises(build_image.NotTried, match="ended at once, with status 3"),
        build_image.running(command, build_image.free_port()),
    ):
        pass


def test_the_image_says_how_it_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = {
        "inspect": """{"FromImageID": "abc", "OCIv1": {"config": {
            "Entrypoint": ["/server"], "Cmd": ["serve"], "Env": ["PATH=/bin", "A=b=c"],
            "Labels": {"x": "true"}}}}""",
        "images": '[{"size": "1.5 GB"}]',
    }
    monkeypatch.setattr(build_image.Store, "buildah", lambda self, command, *_: told[command])
    made = build_image.Configuration.of(build_image.Store(tmp_path), "x")
    assert (made.entrypoint, made.command, made.directory) == (("/server",), ("serve",), "/")
    assert made.environment == {"PATH": "/bin", "A": "b=c"}
    assert made.size == 1_500_000_000


def test_pip_in_the_build_uses_the_index_of_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example/simple")
    assert "index-url = https://packages.example/simple" in build_image.pip_settings()


@pytest.mark.parametrize(
    ("program", "words"),
    [("no-such-python", "no Python 3.12 outside of /usr"), (sys.executable, "no Python 3.12")],
)
def test_only_a_python_3_12_is_taken(
    program: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, "/opt/python False\n", "")

    monkeypatch.setattr(subprocess, "run", answer)
    with pytest.raises(build_image.NotTried, match=words):
        build_image.find_python(program)


def test_a_python_is_copied_without_its_packages(tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    for name in ("bin/python3.12", "lib/python3.12/os.py", "lib/python3.12/test/test_os.py"):
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).write_text(name, encoding="utf-8")
    (prefix / "lib/python3.12/site-packages/mine").mkdir(parents=True)
    (prefix / "lib/libpython3.12.so.1.0").write_text("shared", encoding="utf-8")
    to = tmp_path / "to"
    (to / "lib").mkdir(parents=True)
    build_image.copy_python(prefix, to)
    there = {path.relative_to(to).as_posix() for path in to.rglob("*") if path.is_file()}
    assert there == {
        "bin/python",
        "bin/python3",
        "bin/python3.12",
        "lib/libpython3.12.so.1.0",
        "lib/python3.12/os.py",
    }
    assert list((to / "lib/python3.12/site-packages").iterdir()) == []


def test_process_1_is_found() -> None:
    command = ["sh", "-c", "sleep 60 & echo; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        child = build_image.first_process(parent.pid)
        assert child is not None
        subprocess.run(["kill", str(child)], check=True)
        parent.wait(60)
