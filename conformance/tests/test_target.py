"""Launching an endpoint, waiting for it, and leaving nothing behind."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from utterwire_conformance.driver import fetch_status
from utterwire_conformance.endpoints import Endpoint, Timeouts
from utterwire_conformance.runner import Options, run_checks
from utterwire_conformance.stage import Pace
from utterwire_conformance.target import LaunchFailed, Target
from utterwire_conformance.verdict import Verdict

# For what comes in any case: a machine may halt for seconds.
_WITHIN_S = 60.0

SERVER = """
import http.server, sys, subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[2], "w").write(str(child.pid))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *rest):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def launched(code: str, *arguments: str, ready_s: float = _WITHIN_S) -> Endpoint:
    return Endpoint(
        "x",
        launch=(sys.executable, "-c", code, "{port}", *arguments),
        ready_url="http://127.0.0.1:{port}/ping",
        timeouts=Timeouts(ready_s=ready_s),
    )


async def test_it_is_ready_and_then_it_is_gone_with_all_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    async with Target(launched(SERVER, str(pid_file))) as target:
        assert target.main is not None
        assert target.main.ws_url.endswith("/invocations-bidirectional-stream")
        assert target.main.returncode is None
        second = await target.launch()
        assert second.http_url != target.main.http_url
        second.terminate()
        assert await second.wait(_WITHIN_S) is not None
        child = int(pid_file.read_text())
    async with asyncio.timeout(_WITHIN_S):
        while _runs(child):  # noqa: ASYNC110 - another process can only be polled
            await asyncio.sleep(0)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # One that has ended and that nobody has collected is gone as well.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        # Collected, maybe just now, between the two.
        return False


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; sys.exit('boom')", "boom"),
        ("import sys; sys.exit('address already in use')", "in use"),
    ],
)
async def test_it_does_not_get_ready(code: str, words: str) -> None:
    with pytest.raises(LaunchFailed, match=words):
        async with Target(launched(code)):
            pass


LOADING = """
import pathlib, sys, time
print("still loading", flush=True)
pathlib.Path(sys.argv[2]).touch()
time.sleep(600)
"""


async def test_it_takes_too_long_to_get_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"

    async def fetched(*where: Any, **how: Any) -> int | None:
        # Its last words are those that it has said by then.
        while not told.exists():  # noqa: ASYNC110 - another process can only be polled
            await asyncio.sleep(0.01)
        return await fetch_status(*where, **how)

    monkeypatch.setattr("utterwire_conformance.target.fetch_status", fetched)
    with pytest.raises(LaunchFailed, match=r"within 0\.1 s; its last words: still loading"):
        async with Target(launched(LOADING, str(told), ready_s=0.1)):
            pass


@pytest.mark.slow
async def test_a_process_that_will_not_stop_is_killed() -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVER.replace(
        "open(sys.argv[2]", "open('/dev/null'"
    )
    async with Target(launched(stubborn, "-")) as target:
        instance = target.main
        assert instance is not None
        assert await instance.wait(0.01) is None
    assert instance.returncode == -9


async def test_what_somebody_else_runs_is_left_alone() -> None:
    async with Target(Endpoint("x", url="ws://127.0.0.1:1/", http_url="http://h")) as target:
        instance = target.main
        assert instance is not None
        assert target.context is None
        instance.terminate()
        assert await instance.wait(0.01) is None
        assert instance.log_tail() == ""
        assert instance.returncode is None


DYING = SERVER.replace("self.send_response(200)", "self.send_response(200)").replace(
    "    def log_message",
    "    def do_POST(self):\n        import os\n        print('out of memory', flush=True)\n"
    "        os._exit(7)\n    def log_message",
)


async def test_an_endpoint_that_dies_in_the_middle_is_said_to_have_died(tmp_path: Path) -> None:
    results = await run_checks(
        Target(launched(DYING, str(tmp_path / "pid"))),
        ["http.streams"],
        Options(pace=Pace()),
    )
    judgement = results.judgements["http.streams"]
    assert judgement.verdict in (Verdict.FAIL, Verdict.HARNESS_ERROR)
    broken = [t.broken for t in results.transcripts.values() if t.broken]
    assert any("ended with status 7 in the middle of the run" in text for text in broken)
    assert any("out of memory" in text for text in broken)


async def test_a_check_nobody_has_heard_of() -> None:
    with pytest.raises(KeyError):
        await run_checks(Target(Endpoint("x", url="ws://h")), ["no.such"])


async def test_without_an_instance_of_its_own_shutdown_is_not_exercised() -> None:
    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(nothing, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        results = await run_checks(
            Target(
                Endpoint("x", url=f"ws://127.0.0.1:{port}/", http_url=f"http://127.0.0.1:{port}")
            ),
            ["shutdown.drains"],
            Options(pace=Pace(first=0.2, stall=0.2)),
        )
    judgement = results.judgements["shutdown.drains"]
    assert judgement.verdict is Verdict.NOT_EXERCISED
    assert "launched itself" in judgement.reason
