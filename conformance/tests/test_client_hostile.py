"""Whatever a client does, its judging ends, in bounded memory, and says why it cannot judge it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from utterwire_conformance.check import CHECKS
from utterwire_conformance.client_half.contract import Client
from utterwire_conformance.client_half.peer import (
    MOST_BYTES,
    MOST_FRAMES,
    MOST_MESSAGE_BYTES,
    MOST_MESSAGES,
    Allowance,
    Flood,
)
from utterwire_conformance.client_half.run import client_checks, run_client
from utterwire_conformance.verdict import Verdict

HOSTILE = Path(__file__).parent / "peers" / "clients" / "hostile_client.py"
LASTING = {"never-reads", "reconnects", "logs", "chatter", "stays", "deaf", "stopped"}


def running(mark: str) -> list[bytes]:
    """The commands of the processes with this word in them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in words.split(b"\0") and state != b"Z":
            found.append(words)
    return found


@pytest.mark.parametrize(
    ("how", "profile", "reason"),
    [
        ("never-reads", "core", f"more than {MOST_MESSAGES} messages"),
        ("pings", "core", f"more than {MOST_FRAMES} frames"),
        ("crumbs", "core", f"more than {MOST_FRAMES} frames"),
        ("long-message", "core", f"a message of more than {MOST_MESSAGE_BYTES} bytes"),
        ("huge-frame", "core", "a frame of 1099511627776 bytes"),
        ("large-frame", "core", f"more than {MOST_BYTES} bytes"),
        ("garbage", "core", "sent no HTTP request"),
        ("headers", "core", "sent no HTTP request"),
        ("body", "http", f"a body of more than {MOST_MESSAGE_BYTES} bytes"),
        ("reconnects", "core", "the client connected and sent no HTTP request"),
        ("logs", "core", "bytes to stderr"),
        ("chatter", "core", "lines of events"),
        ("event-file", "core", "events"),
        ("event-pipe", "core", "never connected; it ended with status 0"),
        ("event-folder", "core", "never connected; it ended with status 0"),
        ("stays", "core", "sent no HTTP request"),
        ("deaf", "core", "still running after"),
        ("stopped", "core", "still running after"),
    ],
)
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_it_is_told_why_it_cannot_be_judged(
    how: str, profile: str, reason: str, tmp_path: Path
) -> None:
    events = "{events}" if how.startswith("event") else "-"
    # Without what a site adds it starts in a fraction of the time.
    command = f"{sys.executable} -I -S {HOSTILE} {how} {{url}} {events} {tmp_path}"
    # The others end as soon as they have done what they do, however long that takes here.
    waits = 2.0 if how in LASTING else 30.0
    client = Client.of("hostile", command, profiles=frozenset({profile}), deadline_s=waits)
    names = client_checks({profile})[:1]
    results = await run_client(client, names, limit_s=waits + 6.0)
    assert running(str(tmp_path)) == []
    assert results.unreachable is not None
    assert reason in results.unreachable
    assert {j.verdict for j in results.judgements.values()} == {Verdict.HARNESS_ERROR}
    for transcript in results.transcripts.values():
        assert sum(len(entry.data) for entry in transcript.entries) <= 2 * MOST_BYTES
        assert len(transcript.entries) <= 3 * MOST_FRAMES
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert set(names) <= set(CHECKS)


def test_an_allowance_is_that_of_all_connections() -> None:
    allowance = Allowance(octets=10, frames=2)
    allowance.take(octets=10, frames=1)
    allowance.take(frames=1)
    with pytest.raises(Flood, match="bytes"):
        allowance.take(octets=1)
    with pytest.raises(Flood, match="frames"):
        Allowance(frames=0).take(frames=1)
    with pytest.raises(Flood, match="messages"):
        Allowance(messages=0).take(messages=1)
