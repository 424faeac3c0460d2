"""The contract of clients: commands, events, and processes that do not keep it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from utterwire_conformance.client_half.contract import (
    Client,
    ContractError,
    Ending,
    Start,
    Warned,
    read_event,
)
from utterwire_conformance.client_half.subject import MOST_AUDIO_BYTES, launch

# --- commands ----------------------------------------------------------------------------------


def test_placeholders_are_filled_in_and_other_braces_are_left() -> None:
    client = Client.of("mine", "say --to '{url}' -p{profile} {url}{url} '{other} {}' {events}")
    words = client.filled({"url": "ws://h", "profile": "core", "events": "a b/events"})
    assert words == ["say", "--to", "ws://h", "-pcore", "ws://hws://h", "{other} {}", "a b/events"]
    assert client.names_events
    assert not client.takes_deadline
    assert Client.of("mine", "say {url} {deadline_s}").takes_deadline


@pytest.mark.parametrize(
    ("command", "more", "reason"),
    [
        ("say", {}, r"has no \{url\}"),
        ("", {}, r"has no \{url\}"),
        ("say 'x {url}", {}, "cannot be read: No closing quotation"),
        ("say {url}", {"profiles": frozenset({"load"})}, "profile load"),
        ("say {url}", {"profiles": frozenset()}, "no profile"),
        ("say {url}", {"deadline_s": 0.0}, "1 to 600 seconds"),
        ("say {url}", {"deadline_s": float("nan")}, "1 to 600 seconds"),
    ],
)
def test_what_is_no_client(command: str, more: dict[str, Any], reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        Client.of("mine", command, **more)


def test_what_a_report_tells_of_it() -> None:
    client = Client.of(
        "mine", "say {url} --token s3cret", profiles=frozenset({"http"}), deadline_s=3
    )
    assert client.configuration() == {"name": "mine", "deadline_s": 3}
    assert "deadline_s" not in Client.of("mine", "say {url}").configuration()
    assert client.claims.profiles == {"core", "http"}
    assert (client.secrets, client.public_url) == ((), None)


# --- events ------------------------------------------------------------------------------------

EVENTS = {
    '{"event": "start", "utterance": 2, "sample_rate": 16000, "format": "mp3", "x": 1}': Start(
        2, 16_000, "mp3"
    ),
    '  {"event": "complete", "utterance": 1, "audio_bytes": 0}\n': Ending("complete", 1, 0),
    '{"event": "failed", "utterance": 1, "audio_bytes": 4, "code": "internal"}': Ending(
        "failed", 1, 4, "internal"
    ),
    '{"event": "failed", "utterance": 1, "audio_bytes": 4, "processed": false}': Ending(
        "failed", 1, 4, None, False
    ),
    '{"event": "failed", "utterance": 1, "audio_bytes": 4, "code": 7, "processed": 0}': Ending(
        "failed", 1, 4
    ),
    '{"event": "cancelled", "utterance": 1, "audio_bytes": 4}': Ending("cancelled", 1, 4),
    '{"event": "warning", "message": "odd"}': Warned("odd"),
    '{"event": "warning"}': Warned(""),
    '{"event": "chunk", "utterance": "x"}': None,
    '{"level": "info"}': None,
    '{"event": ["start"]}': None,
    "{not json": None,
    "INFO connected": None,
    '["start"]': None,
    "": None,
    "[" * 100_000: None,
}


@pytest.mark.parametrize(("line", "event"), EVENTS.items(), ids=range(len(EVENTS)))
def test_events(line: str, event: object) -> None:
    assert read_event(line) == event


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "start", "utterance": 1, "sample_rate": 24000}',
        '{"event": "start", "utterance": 1, "format": "mp3"}',
        '{"event": "start", "utterance": 0, "sample_rate": 1, "format": "mp3"}',
        '{"event": "complete", "utterance": 1}',
        '{"event": "complete", "audio_bytes": 1}',
        '{"event": "complete", "utterance": true, "audio_bytes": 1}',
        '{"event": "failed", "utterance": 1, "audio_bytes": -1}',
        '{"event": "cancelled", "utterance": "1", "audio_bytes": 1}',
    ],
)
def test_events_that_break_the_contract(line: str) -> None:
    with pytest.raises(ContractError, match="the event `"):
        read_event(line)


# --- processes ---------------------------------------------------------------------------------


def client(code: str, *words: str) -> Client:
    return Client("test", (sys.executable, "-c", code, "{url}", *words))


VALUES = {"url": "ws://h", "profile": "core", "deadline_s": "1"}


async def test_lines_in_audio_and_events_out() -> None:
    code = """
import sys
for number, line in enumerate(sys.stdin, 1):
    sys.stdout.buffer.write(line.encode()); sys.stdout.flush()
print('{"event": "warning"}', file=open(sys.argv[2], "w")); print("a word", file=sys.stderr)
sys.exit(3)
"""
    subject = await launch(client(code, "{events}"), VALUES)
    await subject.say("Zażółć")
    assert await subject.heard(4, 60.0)
    await subject.say("two")
    await subject.end_input()
    outcome = await subject.finish(60.0)
    assert (outcome.status, outcome.killed) == (3, None)
    assert outcome.audio == "Zażółć\ntwo\n".encode()
    assert outcome.events.strip() == '{"event": "warning"}'
    assert outcome.last_words == "a word"
    assert await subject.finish(1.0) is outcome
    assert not await subject.heard(10_000, 60.0)


async def test_events_on_stderr_and_a_file_that_was_never_written() -> None:
    subject = await launch(client("import sys; print('{}', file=sys.stderr)"), VALUES)
    assert (await subject.finish(60.0)).events == "{}\n"
    subject = await launch(client("", "{events}"), VALUES)
    assert (await subject.finish(60.0)).events == ""


async def test_one_that_hangs_is_ended() -> None:
    subject = await launch(client("import time; time.sleep(600)"), VALUES)
    assert not await subject.heard(1, 0.01)
    outcome = await subject.finish(0.2)
    assert (outcome.status, outcome.killed) == (None, "it was still running after 0.2 s")


async def test_one_that_ignores_signals_and_closed_pipes_is_ended() -> None:
    code = """
import signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
    signal.signal(number, signal.SIG_IGN)
sys.stdout.buffer.write(b"x"); sys.stdout.flush()
time.sleep(600)
"""
    subject = await launch(client(code), VALUES)
    assert await subject.heard(1, 60.0)
    outcome = await subject.kill("enough")
    assert (outcome.status, outcome.killed, outcome.audio) == (None, "enough", b"x")


async def test_one_that_floods_is_ended() -> None:
    code = "import sys\nwhile True: sys.stdout.buffer.write(b'x' * 65536)"
    subject = await launch(client(code), VALUES)
    outcome = await subject.finish(60.0)
    assert outcome.killed == f"it wrote more than {MOST_AUDIO_BYTES} bytes to stdout"
    assert len(outcome.audio) == MOST_AUDIO_BYTES


async def test_a_long_log_is_no_fault() -> None:
    code = "import sys\nsys.stderr.write('{}\\n' + 'x' * 3_000_000)"
    subject = await launch(client(code), VALUES)
    outcome = await subject.finish(60.0)
    assert outcome.status == 0
    assert outcome.events.startswith("{}\n")
    assert len(outcome.events) <= 1024 * 1024


def alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    # A process that has ended and that nobody has asked about is no process any more.
    return "\nState:\tZ" not in status


@pytest.mark.parametrize("how", ["exits", "hangs"])
async def test_nothing_that_it_started_is_left(how: str, tmp_path: Path) -> None:
    """A child holds the pipes open, as a daemon would."""
    code = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
sys.stdout.buffer.write(b"ready"); sys.stdout.flush()
time.sleep(600 if {how!r} == "hangs" else 0)
"""
    subject = await launch(client(code), VALUES)
    assert await subject.heard(5, 60.0)
    outcome = await subject.finish(60.0 if how == "exits" else 0.1)
    assert (outcome.killed is None) is (how == "exits")
    pid = int((tmp_path / "pid").read_text("utf-8"))
    async with asyncio.timeout(60):
        while alive(pid):  # noqa: ASYNC110 - there is nothing to be told by
            await asyncio.sleep(0.01)


async def test_one_that_leaves_its_group_cannot_hold_up_the_suite(tmp_path: Path) -> None:
    code = f"""
import os, sys, time
if child := os.fork():
    open({str(tmp_path / "pid")!r}, "w").write(str(child))
else:
    os.setsid()
    time.sleep(600)
    os._exit(0)
"""
    subject = await launch(client(code), VALUES)
    # The child holds the pipes open until long after this.
    async with asyncio.timeout(120):
        outcome = await subject.finish(60.0)
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text("utf-8")), signal.SIGKILL)
    assert outcome.status == 0


async def test_one_that_reads_nothing_does_not_hold_up_the_suite() -> None:
    subject = await launch(client("import time; time.sleep(600)"), VALUES)
    saying = asyncio.create_task(subject.say("x" * 1_000_000))
    await asyncio.wait({saying}, timeout=0.1)
    outcome = await subject.kill("enough")
    assert outcome.killed == "enough"
    async with asyncio.timeout(60):
        await saying
    await subject.say("more")
    await subject.end_input()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("/no/such/client {url}", "cannot run /no/such/client: No such file"),
        ("/etc/passwd {url}", "cannot run /etc/passwd: Permission denied"),
        ("x\0y {url}", "cannot run x.y: embedded null byte"),
    ],
)
async def test_a_command_that_cannot_be_run(command: str, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        await launch(Client.of("test", command), VALUES)
