"""`scripts/launched_server.py`: the reference server beside what measures it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from launched_server import LaunchedServer
from served_speech import speak


def test_it_is_ready_and_ends(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "server.log"
    with LaunchedServer(["--engine", "tone"], log=log) as server:
        assert asyncio.run(speak(server.url, "Hello.")).samples.size
    events = [json.loads(line)["event"] for line in log.read_text("utf-8").splitlines()]
    assert events[-1] == "stopped"


def test_one_that_does_not_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match=r"ended at once: .*no engine 'nobody'"),
        LaunchedServer(["--engine", "nobody"], log=tmp_path / "log"),
    ):
        pass


@pytest.mark.parametrize("said", ["", "not JSON\n[1]\n", '{"event": "listen'])
def test_one_that_never_gets_ready_is_given_up(tmp_path: Path, said: str) -> None:
    # An "interpreter" that takes any arguments, and is no server.
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\nimport sys, time\n"
        f"sys.stderr.write({said!r})\nsys.stderr.flush()\ntime.sleep(600)\n",
        encoding="utf-8",
    )
    python.chmod(0o755)
    with (
        pytest.raises(RuntimeError, match="not ready after 1 s"),
        LaunchedServer([], log=tmp_path / "log", python=str(python), ready_s=1.0),
    ):
        pass
