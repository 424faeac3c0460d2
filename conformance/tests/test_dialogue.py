"""What belongs to what in a session, also where the endpoint says it wrongly or not at all."""

from __future__ import annotations

import json
from typing import Any

from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.dialogue import Dialogue
from utterwire_conformance.transcript import Entry

PCM = b"\x01\x02" * 100


def read(*lines: tuple[Any, ...]) -> Dialogue:
    """A session from (direction, kind, message) lines; objects are sent as JSON."""
    dialogue = Dialogue(EndpointClaims())
    for number, (direction, kind, *rest) in enumerate(lines):
        body = rest[0] if rest else b""
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        options: dict[str, Any] = rest[1] if len(rest) > 1 else {}
        dialogue.feed(Entry(number / 100, direction, kind, 1, data=data, **options))
    return dialogue


def say(**message: Any) -> tuple[Any, ...]:
    return ("out", "text", {"text": "Hello."} | message)


def hear(kind: str, **message: Any) -> tuple[Any, ...]:
    return ("in", "text", {"type": kind} | message)


AUDIO = ("in", "binary", PCM)


def test_by_seq() -> None:
    dialogue = read(say(), say(), hear("synthesis_start", seq=2), AUDIO)
    assert dialogue.running is not None
    assert dialogue.running.seq == 2
    assert dialogue.utterances[2].pcm == PCM
    assert not dialogue.utterances[1].answered


def test_without_seq_by_id_then_by_order() -> None:
    dialogue = read(
        say(request_id="a"),
        say(request_id="b"),
        hear("synthesis_start", request_id="b"),
        hear("synthesis_complete"),
        hear("synthesis_start"),
        AUDIO,
        hear("synthesis_complete"),
    )
    assert [len(u.starts) for u in dialogue.utterances.values()] == [1, 1]
    assert dialogue.utterances[1].pcm == PCM
    assert all(u.complete is not None for u in dialogue.utterances.values())


def test_the_id_of_another_message_wins_over_a_wrong_count() -> None:
    dialogue = read(
        say(request_id="a"), say(request_id="b"), hear("synthesis_start", seq=1, request_id="b")
    )
    assert dialogue.utterances[2].starts
    # The error for a duplicate has the id of both.
    dialogue = read(
        say(request_id="a"),
        say(request_id="a"),
        hear("error", seq=2, request_id="a", rejected=True),
    )
    assert dialogue.utterances[2].rejections


def test_an_endpoint_that_sends_neither_start_nor_seq() -> None:
    dialogue = read(say(), say(), AUDIO, hear("synthesis_complete"), AUDIO, AUDIO)
    first, second = dialogue.utterances.values()
    assert first.pcm == PCM
    assert first.complete is not None
    assert len(second.unstarted_audio) == 2
    assert second.answered
    assert len(dialogue.orphans) == 3


def test_audio_after_the_end() -> None:
    start, end = hear("synthesis_start", seq=1), hear("synthesis_complete", seq=1, audio_bytes=200)
    dialogue = read(say(), start, end, AUDIO)
    assert dialogue.utterances[1].late_audio
    # Another waits, but less has come than was told.
    dialogue = read(say(), say(), start, end, AUDIO)
    assert dialogue.utterances[1].late_audio
    dialogue = read(say(), say(), start, AUDIO, end, AUDIO)
    assert not dialogue.utterances[1].late_audio


def test_nothing_sent_nothing_due() -> None:
    dialogue = read(AUDIO, hear("error", code="internal"), ("in", "pong", b"x"))
    assert dialogue.orphans
    assert dialogue.chunks[1].seq is None
    assert dialogue.pongs


def test_who_ended_the_session() -> None:
    ours = ("out", "close", b"\x03\xe8", {"code": 1000})
    theirs = ("in", "close", b"\x03\xe8", {"code": 1000})
    eof, note = ("in", "eof"), ("note", "note", b"", {"text": "abuse"})
    assert read(theirs, ours).hung_up
    assert read(eof).hung_up
    assert not read(ours, theirs, eof).hung_up
    assert not read(note, theirs).hung_up
    assert not read(("out", "eof"), eof).hung_up
    assert not read(("out", "text", {"type": "close"}), hear("session_closed"), theirs).hung_up
    assert read(hear("session_closed", reason="policy"), theirs).hung_up
    assert not read(hear("session_closed", reason="idle"), theirs).hung_up


def test_fragments_and_notes() -> None:
    dialogue = read(
        ("out", "binary", b'{"text": ', {"fin": False}),
        ("out", "ping", b"p"),
        ("out", "cont", b'"Hello."}'),
        ("in", "binary", PCM, {"fin": False}),
        ("in", "cont", PCM),
        ("note", "note", b"", {"text": "in vain: 1"}),
        ("note", "note", b"", {"text": "a fact: 7"}),
        ("note", "note", b"", {"text": "nothing"}),
    )
    assert dialogue.sent[0].meaning.text == "Hello."
    assert (dialogue.sent[0].frames, dialogue.chunks[0].frames) == (2, 2)
    assert dialogue.chunks[0].data == PCM * 2
    assert dialogue.in_vain == {1}
    assert dialogue.facts["a fact"] == "7"


def test_passed_over() -> None:
    later = read(say(), say(), hear("synthesis_start", seq=2))
    assert later.passed_over(later.utterances[1])
    assert not later.passed_over(later.utterances[2])
    waited = read(say(), ("note", "note", b"", {"text": "in vain: 1"}))
    assert waited.passed_over(waited.utterances[1])


def test_a_lone_continuation_is_no_message() -> None:
    dialogue = read(("out", "cont", b"x"), ("in", "cont", b"x"))
    assert not dialogue.sent
    assert not dialogue.chunks


def test_the_first_session_closed_counts() -> None:
    said = [{"type": "session_closed", "reason": r, "last_seq": 0} for r in ("idle", "policy")]
    closed = read(*(("in", "text", message) for message in said)).session_closed
    assert closed is not None
    assert closed.fields["reason"] == "idle"


CLAIMS = EndpointClaims(profiles=frozenset({"core", "interrupt", "negotiate"}))


def test_what_obeys_belongs_to_its_message() -> None:
    dialogue = Dialogue(CLAIMS)
    for number, (direction, message) in enumerate(
        [
            ("out", {"type": "hello", "protocol_versions": [1]}),
            ("in", {"type": "session", "seq": 1}),
            ("out", {"text": "Hello.", "request_id": "a"}),
            ("out", {"type": "cancel", "request_id": "a"}),
            ("in", {"type": "cancel_done", "seq": 2, "count": 0}),
            ("in", {"type": "cancelled", "seq": 2, "request_id": "a", "audio_bytes": 0}),
            ("in", {"type": "cancel_done", "seq": 3, "count": 1, "request_id": "a"}),
            ("in", {"type": "cancel_done", "seq": 9, "count": 1}),
        ]
    ):
        data = json.dumps(message).encode()
        dialogue.feed(Entry(number / 100, direction, "text", 1, data=data))  # type: ignore[arg-type]
    first, second, third = dialogue.utterances.values()
    assert [chunk.type for chunk in first.obeyed] == ["session"]
    # A `cancel_done` with the number of a request belongs to nobody.
    assert [chunk.type for chunk in second.chunks] == ["cancelled"]
    assert [chunk.type for chunk in third.chunks] == ["cancel_done"]
    assert all(u.answered and u.ended for u in dialogue.utterances.values())
    assert dialogue.first_owed is None


def test_a_cancel_that_was_waited_for_is_no_request() -> None:
    note = ("note", "note", b"", {"text": "unanswered: 1,2"})
    dialogue = read(("out", "text", {"type": "cancel"}), ("out", "text", {"type": "hello"}), note)
    assert dialogue.unanswered == {1, 2}
    assert not dialogue.in_vain
    assert all(dialogue.passed_over(u) for u in dialogue.utterances.values())
