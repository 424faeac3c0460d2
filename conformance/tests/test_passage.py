"""What passed an honest proxy, and which faults would have changed it."""

from __future__ import annotations

import json

from utterwire_conformance.faults import FAULTS
from utterwire_conformance.faults.passage import Passage
from utterwire_conformance.proxy import Head, Request, Shared, Tap, control_frame
from utterwire_conformance.wire import Frame, Opcode

NAMES = {
    name: FAULTS[name]
    for name in (
        "start-twice",
        "samples-split",
        "pongs-empty",
        "null-fields-refused",
        "audio-after-session-closed",
        "path-moved",
        "http-errors-as-500",
        "shutdown-closes-with-1012",
    )
}


def spoken(passage: Passage, shared: Shared, **fields: object) -> None:
    """One utterance through the tamper that a passage makes."""
    tap = Tap()
    tamper = passage.session(shared, tap)
    tamper.upgrade("/invocations-bidirectional-stream")
    tamper.handshake(Head(101))
    data = json.dumps({"text": "One.", **fields}).encode()
    frame = Frame(Opcode.TEXT, data, mask=b"\0\0\0\0")
    list(tamper.client_message(tap.client_message(data, (frame,))))
    for answer in (
        control_frame({"type": "synthesis_start", "seq": 1, "format": "pcm_s16le"}),
        Frame(Opcode.BINARY, bytes(96)),
        control_frame({"type": "synthesis_complete", "seq": 1, "audio_bytes": 96}),
    ):
        chunk = tap.chunk(answer)
        list(tamper.chunk(chunk))
        tap.after(chunk)


def test_only_those_that_change_something_are_named() -> None:
    passage = Passage()
    spoken(passage, Shared())
    assert passage.changed_by(NAMES) == {"start-twice", "samples-split", "path-moved"}


def test_what_the_client_sent_and_pongs_count_too() -> None:
    passage, shared = Passage(), Shared()
    spoken(passage, shared, voice=None)
    tamper = passage.session(shared, Tap())
    list(tamper.endpoint_frame(Frame(Opcode.PONG, b"x")))
    changed = passage.changed_by(NAMES)
    assert {"null-fields-refused", "pongs-empty"} <= changed
    assert "shutdown-closes-with-1012" not in changed


def test_a_shutdown_is_known_as_it_was() -> None:
    passage = Passage()
    spoken(passage, Shared(shutting_down=True))
    assert "shutdown-closes-with-1012" in passage.changed_by(NAMES)


def test_exchanges_are_kept_as_well() -> None:
    passage = Passage()
    tamper = passage.exchange(Shared())
    request = Request("POST", "/invocations", (), b'{"text":""}')
    tamper.request(request)
    tamper.head(request, Head(400, (("Content-Type", "application/json"),)))
    list(tamper.body(b'{"type":"error"}'))
    tamper.end(clean=True)
    assert passage.changed_by(NAMES) == {"http-errors-as-500"}


def test_nothing_passed_and_nothing_is_changed() -> None:
    assert Passage().changed_by(NAMES) == set()
