"""The endpoint's side: order, ends, cancels, deadlines, move by move."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from utterwire_protocol import (
    TRANSITIONS,
    UTTERANCE_TRANSITIONS,
    CancelReceived,
    CloseReceived,
    Connection,
    EndpointOptions,
    FrameKind,
    HelloReceived,
    KeepaliveReceived,
    LocalProtocolError,
    MessageIgnored,
    MessageRejected,
    Role,
    SessionEnded,
    SessionInput,
    SessionState,
    Synthesize,
    SynthesizeReceived,
    UtteranceEnded,
    UtteranceInput,
    UtteranceState,
    Verdict,
    Word,
)


def types(chunks: list[Any]) -> list[Any]:
    """Each control message as (type, seq), each audio chunk as its length."""
    return [
        len(each) if isinstance(each, bytes) else (each["type"], each.get("seq")) for each in chunks
    ]


def ask(text: str = "Hello.", **fields: Any) -> dict[str, Any]:
    return {"text": text, **fields}


# One utterance


def test_an_utterance_from_request_to_completion(endpoint: Any) -> None:
    assert endpoint.core.end_reason is None
    (event,) = endpoint.read(ask(request_id="x", speed=1.5, voice="w"))
    assert isinstance(event, SynthesizeReceived)
    assert event.seq == 1
    assert (event.utterance.speed, event.utterance.voice) == (1.5, "w")
    assert (event.utterance.sample_rate, event.utterance.format) == (24_000, "pcm_s16le")
    assert event.utterance == endpoint.core.next_waiting() == endpoint.core.utterance(1)
    assert endpoint.core.running() is None
    endpoint.now = 1.0
    endpoint.core.start(1, 1.0)
    assert endpoint.core.next_waiting() is None
    assert endpoint.core.running().state is UtteranceState.RUNNING
    endpoint.core.audio(1, b"\0" * 4800, 1.0)
    assert endpoint.core.pending() == 2
    assert types(endpoint.take()) == [("synthesis_start", 1), 4800]
    endpoint.now = 1.25
    endpoint.core.complete(1, 1.25)
    assert endpoint.core.utterance(1).state is UtteranceState.FINISHING
    assert endpoint.core.utterance(1).audio_bytes == 4800
    assert endpoint.take() == [
        {
            "type": "synthesis_complete",
            "seq": 1,
            "request_id": "x",
            "total_duration_s": 0.1,
            "elapsed_s": 0.25,
            "audio_bytes": 4800,
            "characters": 6,
        }
    ]
    assert endpoint.core.utterance(1) is None
    assert endpoint.core.state is SessionState.OPEN
    assert endpoint.core.pending() == endpoint.core.pending_bytes() == 0


def test_audio_is_cut_and_each_chunk_is_binary(endpoint_with: Any) -> None:
    endpoint = endpoint_with(chunk_bytes=6)
    endpoint.read(ask())
    endpoint.core.start(1, 0.0)
    endpoint.core.audio(1, b"abc", 0.0)
    endpoint.core.audio(1, b"defghij", 0.0)
    assert endpoint.take()[1:] == [b"ab", b"cdefgh", b"ij"]


def test_half_a_sample_at_the_end_is_the_callers_fault(endpoint: Any) -> None:
    endpoint.read(ask())
    endpoint.core.start(1, 0.0)
    endpoint.core.audio(1, b"abc", 0.0)
    with pytest.raises(LocalProtocolError, match="ends in 1 bytes of a sample"):
        endpoint.core.complete(1, 0.0)
    endpoint.core.fail(1, "synthesis_failed", "The engine failed.", 0.0)
    assert types(endpoint.take()) == [("synthesis_start", 1), 2, ("error", 1)]


@pytest.mark.parametrize(
    ("format", "given", "told"),
    [
        ("pcm_s16le", None, 0.001),
        ("pcm_s16le", 99.0, 0.001),
        ("mulaw", None, 0.006),
        ("alaw", 99.0, 0.006),
        ("mp3", 0.7, 0.7),
        ("wav", 0.0, 0.0),
    ],
)
def test_duration(endpoint_with: Any, format: str, given: float | None, told: float) -> None:
    endpoint = endpoint_with(
        formats=("pcm_s16le", "mulaw", "alaw", "mp3", "wav"),
        format_sample_rates={"mulaw": (8000,), "alaw": (8000,)},
    )
    endpoint.read(ask(format=format))
    endpoint.core.start(1, 0.0)
    endpoint.core.audio(1, b"\xff" * 48, 0.0)
    endpoint.core.complete(1, 0.0, given)
    assert endpoint.take()[-1]["total_duration_s"] == told


@pytest.mark.parametrize("duration", [None, -1.0, float("nan"), float("inf")])
def test_a_duration_that_must_be_told(endpoint_with: Any, duration: float | None) -> None:
    endpoint = endpoint_with(formats=("pcm_s16le", "mp3"))
    endpoint.read(ask(format="mp3"))
    endpoint.core.start(1, 0.0)
    with pytest.raises(LocalProtocolError, match="total_duration_s must be told for mp3"):
        endpoint.core.complete(1, 0.0, duration)
    assert endpoint.core.running() is not None


def test_elapsed_runs_from_handing_over_the_start(endpoint: Any) -> None:
    endpoint.read(ask())
    endpoint.core.start(1, 1.0)
    # Not handed over at all: no time has passed.
    endpoint.core.complete(1, 9.0)
    endpoint.now = 10.0
    assert endpoint.take()[-1]["elapsed_s"] == 0.0
    endpoint.read(ask())
    endpoint.core.start(2, 11.0)
    endpoint.core.next_chunk(15.0)
    endpoint.core.complete(2, 17.0)
    assert endpoint.take()[-1]["elapsed_s"] == 2.0


def test_time_never_goes_back(endpoint: Any) -> None:
    endpoint.read(ask())
    endpoint.core.start(1, 5.0)
    endpoint.core.next_chunk()
    endpoint.core.complete(1, 3.0)
    assert json.loads(endpoint.core.next_chunk().data)["elapsed_s"] == 0.0


def test_failing(endpoint: Any) -> None:
    endpoint.read(ask(request_id="x"))
    endpoint.core.start(1, 0.0)
    endpoint.core.audio(1, b"ab", 0.0)
    with pytest.raises(LocalProtocolError, match="is for rejections alone"):
        endpoint.core.fail(1, "queue_full", "m", 0.0)
    endpoint.core.fail(1, "synthesis_failed", "The engine failed.", 0.0)
    assert endpoint.core.utterance(1).state is UtteranceState.FINISHING
    *_, audio, error = endpoint.take()
    assert audio == b"ab"
    assert error == {
        "type": "error",
        "seq": 1,
        "request_id": "x",
        "code": "synthesis_failed",
        "message": "The engine failed.",
        "retryable": True,
    }
    assert endpoint.core.utterance(1) is None


def test_a_waiting_utterance_fails_in_its_place(endpoint: Any) -> None:
    for _ in range(3):
        endpoint.read(ask())
    endpoint.core.fail(2, "overloaded", "No room.", 0.0)
    assert endpoint.take() == []
    assert endpoint.core.next_waiting().seq == 1
    endpoint.speak(1)
    endpoint.speak(3)
    assert types(endpoint.take()) == [
        ("synthesis_start", 1),
        16,
        ("synthesis_complete", 1),
        ("error", 2),
        ("synthesis_start", 3),
        16,
        ("synthesis_complete", 3),
    ]


def test_marks(endpoint_with: Any) -> None:
    endpoint = endpoint_with(profiles=frozenset({"timing"}))
    endpoint.read(ask("a b", marks=["word"]))
    endpoint.read(ask("a b"))
    words = [Word("a", 0.0, 0.1, 0, 1), Word("b", 0.1, 0.2, 2, 3)]
    with pytest.raises(LocalProtocolError, match="is waiting: marks is not possible"):
        endpoint.core.marks(1, words, 0.0)
    endpoint.core.start(1, 0.0)
    with pytest.raises(LocalProtocolError, match="is not 'x'"):
        endpoint.core.marks(1, [Word("x", 0.0, 0.1, 0, 1)], 0.0)
    endpoint.core.marks(1, words, 0.0)
    endpoint.core.complete(1, 0.0)
    assert types(endpoint.take()) == [
        ("synthesis_start", 1),
        ("marks", 1),
        ("synthesis_complete", 1),
    ]
    endpoint.core.start(2, 0.0)
    with pytest.raises(LocalProtocolError, match="utterance 2 did not ask for marks"):
        endpoint.core.marks(2, words, 0.0)


@pytest.mark.parametrize("call", ["start", "audio", "marks", "complete", "fail"])
def test_calls_about_an_utterance_that_is_not_there(endpoint: Any, call: str) -> None:
    core: Connection = endpoint.core
    with pytest.raises(LocalProtocolError, match="no unended utterance 1"):
        {
            "start": lambda: core.start(1, 0.0),
            "audio": lambda: core.audio(1, b"ab", 0.0),
            "marks": lambda: core.marks(1, [], 0.0),
            "complete": lambda: core.complete(1, 0.0),
            "fail": lambda: core.fail(1, "internal", "m", 0.0),
        }[call]()


@pytest.mark.parametrize(
    ("fails", "state"), [(False, UtteranceState.COMPLETED), (True, UtteranceState.FAILED)]
)
def test_the_state_after_handing_over(endpoint: Any, fails: bool, state: UtteranceState) -> None:
    endpoint.read(ask())
    endpoint.core.start(1, 0.0)
    speech = endpoint.core._half._unended[1]
    if fails:
        endpoint.core.fail(1, "internal", "m", 0.0)
    else:
        endpoint.core.complete(1, 0.0)
    endpoint.take()
    assert speech.utterance.state is state


def test_each_chunk_names_the_message_it_belongs_to(endpoint_with: Any) -> None:
    endpoint = endpoint_with(profiles=frozenset({"interrupt", "negotiate", "timing"}))
    core = endpoint.core

    def seqs() -> list[int | None]:
        taken = []
        while (chunk := core.next_chunk()) is not None:
            taken.append(chunk.seq)
        return taken

    endpoint.read({"type": "hello", "protocol_versions": [1]})
    endpoint.read("[]")
    endpoint.read(ask("a", marks=["word"]))
    core.start(3, 0.0)
    core.marks(3, [Word("a", 0.0, 0.1, 0, 1)], 0.0)
    core.audio(3, b"ab", 0.0)
    core.complete(3, 0.0)
    assert seqs() == [1, 2, 3, 3, 3, 3]
    endpoint.read(ask())
    endpoint.read({"type": "cancel"})
    assert seqs() == [4, 5]
    endpoint.read(ask())
    endpoint.read(ask())
    core.fail(6, "internal", "m", 0.0)
    assert seqs() == [6]
    endpoint.read({"type": "close"})
    core.end("policy", 0.0)
    assert seqs() == [7, 8]
    other = endpoint_with()
    other.read(ask())
    other.core.end("policy", 0.0)
    assert other.core.next_chunk().seq == 1
    assert other.core.next_chunk().seq is None


# Order


def test_utterances_are_started_in_order(endpoint: Any) -> None:
    endpoint.read(ask())
    endpoint.read(ask())
    with pytest.raises(LocalProtocolError, match="utterance 2 is not the next in order"):
        endpoint.core.start(2, 0.0)
    endpoint.core.start(1, 0.0)
    with pytest.raises(LocalProtocolError, match="utterance 2 is not the next in order"):
        endpoint.core.start(2, 0.0)
    with pytest.raises(LocalProtocolError, match="is running: synthesis_start is not possible"):
        endpoint.core.start(1, 0.0)
    endpoint.core.complete(1, 0.0)
    # The terminal message of the first is still queued.
    endpoint.core.start(2, 0.0)
    assert endpoint.core.running().seq == 2
    assert endpoint.core.utterance(1).state is UtteranceState.FINISHING
    with pytest.raises(LocalProtocolError, match="utterance 1 is not the next in order"):
        endpoint.core.start(1, 0.0)


def test_rejections_take_their_place_in_order(endpoint: Any) -> None:
    endpoint.read("[]")
    endpoint.read(ask())
    endpoint.read(ask(voice="x", request_id="b"))
    endpoint.read(ask())
    endpoint.read("")
    assert types(endpoint.take()) == [("error", 1)]
    assert endpoint.core.pending_bytes() > 0
    endpoint.speak(2)
    endpoint.speak(4)
    assert types(endpoint.take()) == [
        ("synthesis_start", 2),
        16,
        ("synthesis_complete", 2),
        ("error", 3),
        ("synthesis_start", 4),
        16,
        ("synthesis_complete", 4),
        ("error", 5),
    ]
    assert endpoint.core.pending_bytes() == 0


def test_a_rejection_says_what_and_why(endpoint: Any) -> None:
    (event,) = endpoint.read(ask(voice="nobody", request_id="b"))
    assert event == MessageRejected(
        1, "invalid_voice", 'There is no voice "nobody".', "b", "reject.invalid-voice"
    )
    assert endpoint.take() == [
        {
            "type": "error",
            "seq": 1,
            "request_id": "b",
            "code": "invalid_voice",
            "message": 'There is no voice "nobody".',
            "retryable": False,
            "rejected": True,
        }
    ]


def test_past_256_rejections_further_ones_go_at_once(endpoint: Any) -> None:
    endpoint.read(ask())
    for _ in range(258):
        endpoint.read("[]")
    assert types(endpoint.take()) == [("error", 258), ("error", 259)]
    endpoint.speak(1)
    # The first of those that waited makes room for one more.
    assert types(endpoint.take(4))[-1] == ("error", 2)
    endpoint.read(ask())
    endpoint.read("[]")
    endpoint.read("[]")
    assert types(endpoint.take(1)) == [("error", 262)]
    assert types(endpoint.take()) == [("error", seq) for seq in range(3, 258)]
    endpoint.speak(260)
    assert types(endpoint.take())[-1] == ("error", 261)


@pytest.mark.parametrize("first", [ask(), ask(request_id="x")])
def test_ids_are_unique_among_what_is_unended(endpoint: Any, first: dict[str, Any]) -> None:
    endpoint.read(first)
    (event,) = endpoint.read(ask(request_id="x"))
    if "request_id" not in first:
        assert isinstance(event, SynthesizeReceived)
        return
    assert (event.code, event.request_id) == ("duplicate_request_id", "x")
    endpoint.core.start(1, 0.0)
    endpoint.core.complete(1, 0.0)
    # Its terminal message has not been handed over.
    assert isinstance(endpoint.read(ask(request_id="x"))[0], MessageRejected)
    endpoint.take()
    assert isinstance(endpoint.read(ask(request_id="x"))[0], SynthesizeReceived)


def test_a_rejected_message_reserves_no_id(endpoint: Any) -> None:
    endpoint.read(ask(voice="x", request_id="a"))
    assert isinstance(endpoint.read(ask(request_id="a"))[0], SynthesizeReceived)


class Room:
    """An endpoint with room for texts of at most five characters."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def room_in_s(self, request: Synthesize) -> float | None:
        self.asked.append(request.text)
        return 2.5 if len(request.text) > 5 else None

    def turn_in_s(self) -> float | None:
        return 0.5


def test_an_endpoint_without_room_is_overloaded() -> None:
    room = Room()
    core = Connection(
        Role.ENDPOINT, now=0.0, endpoint=EndpointOptions(voices=("v",)), admission=room
    )
    for message in (ask("Hi."), ask("Hello.", request_id="x"), ask("Ho.", request_id="x"), "[]"):
        core.receive(json.dumps(message), 0.0)
    for _ in range(20):
        core.receive(json.dumps(ask("Ha.")), 0.0)
    # What is invalid, or finds the queue of its session full, is not asked for.
    assert room.asked == ["Hi.", "Hello.", "Ho."] + ["Ha."] * 15
    errors = []
    while (chunk := core.next_chunk()) is not None:
        errors.append(json.loads(chunk.data))
    assert [(m["seq"], m["code"], m.get("retry_after_s")) for m in errors] == [
        (seq, "queue_full", 0.5) for seq in range(20, 25)
    ]
    # It takes its place in the order: only a full queue overtakes.
    core.start(1, 0.0)
    core.complete(1, 0.0)
    while (chunk := core.next_chunk()) is not None:
        errors.append(json.loads(chunk.data))
    told = errors[-1]
    assert (told["seq"], told["code"], told["rejected"]) == (2, "overloaded", True)
    assert (told["request_id"], told["retry_after_s"]) == ("x", 2.5)


@pytest.mark.parametrize("started", [False, True])
def test_the_queue_is_full_past_eight_behind_the_first(endpoint: Any, started: bool) -> None:
    endpoint.read(ask())
    if started:
        endpoint.core.start(1, 0.0)
        endpoint.take()
    for _ in range(8):
        assert isinstance(endpoint.read(ask())[0], SynthesizeReceived)
    endpoint.read("[]")
    (event,) = endpoint.read(ask(request_id="late"))
    assert (event.code, event.request_id) == ("queue_full", "late")
    # It overtakes the rejection, and everything else.
    assert types(endpoint.take()) == [("error", 11)]
    # A duplicate is told before a full queue is.
    endpoint.core.fail(1, "internal", "m", 0.0)
    endpoint.take()
    assert isinstance(endpoint.read(ask())[0], SynthesizeReceived)


# Cancelling


def test_cancel_of_the_running_utterance(endpoint: Any) -> None:
    endpoint.read(ask(request_id="x"))
    endpoint.core.start(1, 0.0)
    endpoint.core.audio(1, b"\0" * 8192 * 3, 0.0)
    assert types(endpoint.take(2)) == [("synthesis_start", 1), 8192]
    assert endpoint.read({"type": "cancel", "request_id": "x"}) == (CancelReceived(2, (1,)),)
    assert endpoint.core.utterance(1) is None
    assert endpoint.take() == [
        {"type": "cancelled", "seq": 1, "request_id": "x", "audio_bytes": 8192},
        {"type": "cancel_done", "seq": 2, "request_id": "x", "count": 1},
    ]
    assert endpoint.core.pending_bytes() == 0
    with pytest.raises(LocalProtocolError, match="no unended utterance 1"):
        endpoint.core.audio(1, b"ab", 0.0)


def test_cancel_of_all(endpoint: Any) -> None:
    for _ in range(3):
        endpoint.read(ask())
    endpoint.read("[]")
    endpoint.speak(1)
    endpoint.core.start(2, 0.0)
    endpoint.core.audio(2, b"abcd", 0.0)
    # All of 1 but its terminal message is handed over.
    assert types(endpoint.take(2)) == [("synthesis_start", 1), 16]
    assert endpoint.read({"type": "cancel"}) == (CancelReceived(5, (1, 2, 3)),)
    taken = endpoint.take()
    assert types(taken) == [
        ("cancelled", 1),
        ("cancelled", 2),
        ("cancelled", 3),
        ("cancel_done", 5),
        ("error", 4),
    ]
    assert [each["audio_bytes"] for each in taken[:3]] == [16, 0, 0]
    assert "request_id" not in taken[3]
    assert endpoint.core.pending_bytes() == 0


def test_cancel_of_a_waiting_utterance_leaves_the_others(endpoint: Any) -> None:
    for name in "abc":
        endpoint.read(ask(request_id=name))
    endpoint.core.start(1, 0.0)
    assert endpoint.read({"type": "cancel", "request_id": "b"}) == (CancelReceived(4, (2,)),)
    assert types(endpoint.take()) == [
        ("cancelled", 2),
        ("cancel_done", 4),
        ("synthesis_start", 1),
    ]
    endpoint.core.complete(1, 0.0)
    endpoint.speak(3)
    assert types(endpoint.take())[1] == ("synthesis_start", 3)


@pytest.mark.parametrize("name", [None, "nobody", "ended"])
def test_cancel_of_nothing(endpoint: Any, name: str | None) -> None:
    endpoint.read(ask(request_id="ended"))
    endpoint.speak(1)
    endpoint.take()
    message = {"type": "cancel"} if name is None else {"type": "cancel", "request_id": name}
    assert endpoint.read(message) == (CancelReceived(2, ()),)
    (done,) = endpoint.take()
    assert (done["seq"], done["count"], done.get("request_id")) == (2, 0, name)


def test_a_refused_cancel_goes_at_once_and_stops_nothing(endpoint: Any) -> None:
    endpoint.read(ask())
    (event,) = endpoint.read({"type": "cancel", "request_id": None})
    assert isinstance(event, MessageRejected)
    assert types(endpoint.take()) == [("error", 2)]
    assert endpoint.core.utterance(1) is not None


def test_cancelling_again_and_again_keeps_nothing(endpoint: Any) -> None:
    endpoint.read(ask())
    endpoint.core.start(1, 0.0)
    for _ in range(2000):
        endpoint.read(ask(request_id="x"))
        endpoint.read({"type": "cancel", "request_id": "x"})
        endpoint.take()
    # Only the running one stands in line.
    assert len(endpoint.core._half._line) == 1
    assert endpoint.core.pending_bytes() == 0


def test_an_utterance_that_failed_but_was_not_told_is_cancelled(endpoint: Any) -> None:
    for name in "ab":
        endpoint.read(ask(request_id=name))
    endpoint.core.fail(2, "overloaded", "m", 0.0)
    endpoint.read({"type": "cancel", "request_id": "b"})
    assert types(endpoint.take()) == [("cancelled", 2), ("cancel_done", 3)]
    endpoint.speak(1)
    assert types(endpoint.take())[-1] == ("synthesis_complete", 1)


# Hello


def test_hello(endpoint: Any) -> None:
    assert endpoint.read({"type": "hello", "protocol_versions": [1, 2]}) == (
        HelloReceived(1, (1, 2)),
    )
    assert types(endpoint.take()) == [("session", 1)]


@pytest.mark.parametrize(
    ("before", "versions", "code"),
    [
        ([], [2], "unsupported_version"),
        ([], [], "invalid_request"),
        (["[]"], [1], "invalid_request"),
        ([{"type": "keepalive"}], [1], "invalid_request"),
        ([{"type": "keepalive"}], [2], "invalid_request"),
        ([{"type": "keepalive"}], [], "invalid_request"),
        ([ask()], [1], "invalid_request"),
        ([{"type": "hello", "protocol_versions": [2]}], [1], "invalid_request"),
    ],
    ids=str,
)
def test_hello_that_is_refused(
    endpoint: Any, before: list[Any], versions: list[int], code: str
) -> None:
    for message in before:
        endpoint.read(message)
        endpoint.take()
    (event,) = endpoint.read({"type": "hello", "protocol_versions": versions, "request_id": "x"})
    assert isinstance(event, MessageRejected)
    assert event.code == code
    # At once, also past a request that waits.
    (error,) = endpoint.take()
    assert (error["seq"], error["code"]) == (len(before) + 1, code)
    assert error["request_id"] == event.request_id == "x"
    assert isinstance(endpoint.read(ask())[0], SynthesizeReceived)


# Ending


def test_close_drains(endpoint: Any) -> None:
    endpoint.read(ask())
    endpoint.read("[]")
    assert endpoint.read({"type": "close"}) == (CloseReceived(3),)
    assert endpoint.core.state is SessionState.CLOSING
    for late in (ask(), "[]", {"type": "close"}, {"type": "keepalive"}, b"\xff"):
        (event,) = endpoint.read(late)
        assert isinstance(event, MessageIgnored)
    (event,) = endpoint.read({"type": "cancel", "request_id": None})
    assert event == MessageIgnored(9)
    endpoint.speak(1)
    assert endpoint.core.poll_events() == ()
    assert types(endpoint.take(4)) == [
        ("synthesis_start", 1),
        16,
        ("synthesis_complete", 1),
        ("error", 2),
    ]
    assert endpoint.core.poll_events() == (SessionEnded("client_close"),)
    assert endpoint.take() == [
        {"type": "session_closed", "seq": 3, "reason": "client_close", "last_seq": 3}
    ]
    assert endpoint.core.end_reason == "client_close"
    assert endpoint.read(ask()) == (MessageIgnored(10),)
    assert endpoint.take() == []


def test_close_of_an_idle_session(endpoint: Any) -> None:
    assert endpoint.read({"type": "close"}) == (
        CloseReceived(1),
        SessionEnded("client_close"),
    )
    assert types(endpoint.take()) == [("session_closed", 1)]


def test_cancel_after_close(endpoint: Any) -> None:
    endpoint.read(ask())
    endpoint.read({"type": "close"})
    events = endpoint.read({"type": "cancel"})
    assert events == (CancelReceived(3, (1,)), SessionEnded("client_close"))
    taken = endpoint.take()
    assert types(taken) == [("cancelled", 1), ("cancel_done", 3), ("session_closed", 2)]
    assert taken[-1]["last_seq"] == 2


def test_shutdown_of_an_idle_session(endpoint: Any) -> None:
    endpoint.read("[]")
    endpoint.read({"type": "keepalive"})
    assert endpoint.core.shutdown(0.0, retry_after_s=5.0) == (SessionEnded("going_away"),)
    assert endpoint.take()[1:] == [
        {
            "type": "session_closed",
            "reason": "going_away",
            "last_seq": 1,
            "retry_after_s": 5.0,
        }
    ]
    assert endpoint.core.shutdown(1.0) == ()
    assert endpoint.core.next_deadline() is None


def test_shutdown_finishes_what_it_can(endpoint: Any) -> None:
    endpoint.read(ask())
    assert endpoint.core.shutdown(1.0) == ()
    assert endpoint.core.state is SessionState.GOING_AWAY
    assert endpoint.core.next_deadline() == 21.0
    # A second one changes nothing.
    assert endpoint.core.shutdown(5.0, retry_after_s=9.0) == ()
    assert endpoint.core.next_deadline() == 21.0
    assert endpoint.read(ask(request_id="late")) == (
        MessageRejected(
            2, "going_away", "The endpoint is shutting down.", "late", "shutdown.going-away"
        ),
    )
    (event,) = endpoint.read(ask(voice="x"))
    assert event.code == "invalid_voice"
    assert endpoint.read({"type": "keepalive"}) == (KeepaliveReceived(4),)
    (event,) = endpoint.read({"type": "hello", "protocol_versions": [1]})
    assert event.code == "invalid_request"
    endpoint.speak(1)
    taken = endpoint.take()
    assert types(taken) == [
        ("error", 5),
        ("synthesis_start", 1),
        16,
        ("synthesis_complete", 1),
        ("error", 2),
        ("error", 3),
        ("session_closed", None),
    ]
    assert taken[-1] == {"type": "session_closed", "reason": "going_away", "last_seq": 5}


def test_the_shutdown_deadline_ends_the_rest_in_order(endpoint_with: Any) -> None:
    endpoint = endpoint_with(shutdown_s=2)
    for name in "abc":
        endpoint.read(ask(request_id=name))
    endpoint.read("[]")
    endpoint.core.shutdown(1.0)
    endpoint.core.start(1, 1.0)
    endpoint.core.audio(1, b"\0" * 8192 * 2, 1.0)
    endpoint.take(2)
    assert endpoint.core.tick(2.9) == ()
    assert endpoint.core.tick(3.0) == (
        UtteranceEnded(1, UtteranceState.FAILED, "a", 8192),
        UtteranceEnded(2, UtteranceState.FAILED, "b", 0),
        UtteranceEnded(3, UtteranceState.FAILED, "c", 0),
        SessionEnded("going_away"),
    )
    taken = endpoint.take()
    assert types(taken) == [
        ("error", 1),
        ("error", 2),
        ("error", 3),
        ("error", 4),
        ("session_closed", None),
    ]
    assert [each["code"] for each in taken[:3]] == ["going_away"] * 3
    assert [each["request_id"] for each in taken[:3]] == ["a", "b", "c"]
    assert taken[0]["message"] == "The session ended before this was spoken."
    assert [each.get("rejected") for each in taken[:4]] == [None, None, None, True]
    assert taken[-1]["last_seq"] == 4
    assert endpoint.core.pending_bytes() == 0
    assert endpoint.core.utterance(1) is None


def test_the_deadline_leaves_what_is_finished_but_for_the_last_message(endpoint: Any) -> None:
    endpoint.read(ask())
    endpoint.read(ask())
    endpoint.core.shutdown(0.0)
    endpoint.speak(1)
    endpoint.speak(2)
    # Of 1 only the terminal message is left, of 2 everything.
    endpoint.take(2)
    events = endpoint.core.tick(20.0)
    assert [event.seq for event in events[:-1]] == [2]
    assert endpoint.core.utterance(1).state is UtteranceState.FINISHING
    assert types(endpoint.take()) == [
        ("synthesis_complete", 1),
        ("error", 2),
        ("session_closed", None),
    ]
    assert endpoint.core.utterance(1) is None
    assert endpoint.core.pending_bytes() == 0
    assert endpoint.core.poll_events() == ()


def test_close_then_shutdown(endpoint: Any) -> None:
    endpoint.read(ask())
    endpoint.read({"type": "close"})
    assert endpoint.core.next_deadline() is None
    endpoint.core.shutdown(3.0, retry_after_s=1.0)
    assert endpoint.core.state is SessionState.CLOSING
    assert endpoint.read(ask()) == (MessageIgnored(3),)
    assert endpoint.core.next_deadline() == 23.0
    endpoint.core.shutdown(9.0)
    assert endpoint.core.next_deadline() == 23.0
    endpoint.core.tick(23.0)
    assert endpoint.take()[-1] == {
        "type": "session_closed",
        "seq": 2,
        "reason": "client_close",
        "last_seq": 2,
    }


def test_shutdown_then_close(endpoint: Any) -> None:
    endpoint.read(ask())
    endpoint.core.shutdown(3.0)
    assert endpoint.read({"type": "close"}) == (CloseReceived(2),)
    assert endpoint.core.state is SessionState.CLOSING
    assert endpoint.read(ask()) == (MessageIgnored(3),)
    endpoint.speak(1)
    assert endpoint.take()[-1] == {
        "type": "session_closed",
        "reason": "going_away",
        "last_seq": 1,
    }


@pytest.mark.parametrize("reason", ["slow_reader", "policy", "message_too_big"])
def test_ending_at_once(endpoint: Any, reason: str) -> None:
    endpoint.read(ask(request_id="a"))
    endpoint.read("[]")
    endpoint.read(ask())
    endpoint.core.start(1, 0.0)
    endpoint.core.audio(1, b"\0" * 100, 0.0)
    assert endpoint.core.end(reason, 1.0, 7) == (
        UtteranceEnded(1, UtteranceState.FAILED, "a", 0),
        UtteranceEnded(3, UtteranceState.FAILED),
        SessionEnded(reason),
    )
    taken = endpoint.take()
    assert types(taken) == [
        ("error", 1),
        ("error", 2),
        ("error", 3),
        ("session_closed", None),
    ]
    assert taken[-1] == {
        "type": "session_closed",
        "reason": reason,
        "last_seq": 3,
        "retry_after_s": 7,
    }
    assert endpoint.core.end(reason, 1.0) == ()
    assert endpoint.take() == []


def test_the_first_cause_gives_the_reason(endpoint_with: Any) -> None:
    endpoint = endpoint_with()
    endpoint.read(ask())
    endpoint.read({"type": "close"})
    endpoint.core.end("slow_reader", 0.0, 5.0)
    assert endpoint.take()[-1] == {
        "type": "session_closed",
        "seq": 2,
        "reason": "client_close",
        "last_seq": 2,
    }
    endpoint = endpoint_with()
    endpoint.read(ask())
    endpoint.core.shutdown(0.0, retry_after_s=3.0)
    endpoint.core.end("slow_reader", 0.0, 5.0)
    assert endpoint.take()[-1] == {
        "type": "session_closed",
        "reason": "going_away",
        "last_seq": 1,
        "retry_after_s": 3.0,
    }


@pytest.mark.parametrize("reason", ["", "idle ", "transport_lost"])
def test_reasons_that_are_none(endpoint: Any, reason: str) -> None:
    with pytest.raises(LocalProtocolError, match="does not end with the reason"):
        endpoint.core.end(reason, 0.0)
    assert endpoint.core.state is SessionState.FRESH


def test_an_error_takes_the_place_of_a_completion_whose_audio_is_dropped(endpoint: Any) -> None:
    endpoint.read(ask())
    endpoint.read("[]")
    endpoint.speak(1)
    endpoint.take(1)
    endpoint.core.end("slow_reader", 0.0)
    assert types(endpoint.take()) == [("error", 1), ("error", 2), ("session_closed", None)]
    assert endpoint.core.pending_bytes() == 0


def test_a_failure_in_line_ends_early_too(endpoint: Any) -> None:
    endpoint.read(ask())
    endpoint.read(ask())
    endpoint.core.fail(2, "overloaded", "m", 0.0)
    endpoint.core.end("policy", 0.0)
    taken = endpoint.take()
    assert types(taken) == [("error", 1), ("error", 2), ("session_closed", None)]
    assert taken[1]["code"] == "going_away"
    assert endpoint.core.pending_bytes() == 0


def test_a_message_that_is_too_big(endpoint_with: Any) -> None:
    endpoint = endpoint_with(limits={"max_message_bytes": 65_536})
    padding = " " * (65_536 - len(json.dumps(ask())))
    assert isinstance(endpoint.read(json.dumps(ask()) + padding)[0], SynthesizeReceived)
    events = endpoint.read(json.dumps(ask()) + padding + " ")
    assert events[-1] == SessionEnded("message_too_big")
    closed = endpoint.take()[-1]
    assert (closed["reason"], closed["last_seq"]) == ("message_too_big", 1)
    # After the end it is a message like any other.
    assert endpoint.read(b" " * 65_537) == (MessageIgnored(2),)


def test_losing_the_transport(endpoint: Any) -> None:
    for name in "abc":
        endpoint.read(ask(request_id=name))
    endpoint.read("[]")
    endpoint.speak(1)
    endpoint.core.start(2, 0.0)
    endpoint.take(2)
    assert endpoint.core.transport_lost(1.0) == (
        UtteranceEnded(1, UtteranceState.CANCELLED, "a", 16),
        UtteranceEnded(2, UtteranceState.CANCELLED, "b", 0),
        UtteranceEnded(3, UtteranceState.CANCELLED, "c", 0),
        SessionEnded("transport_lost"),
    )
    assert endpoint.core.end_reason == "transport_lost"
    assert endpoint.core.pending() == endpoint.core.pending_bytes() == 0
    assert endpoint.core.next_chunk() is None
    assert endpoint.core.transport_lost(1.0) == ()
    assert endpoint.core.end("policy", 1.0) == ()


def test_losing_the_transport_after_the_end(endpoint: Any) -> None:
    endpoint.read(ask())
    endpoint.speak(1)
    endpoint.take(2)
    endpoint.core.end("slow_reader", 0.0)
    assert endpoint.core.transport_lost(0.0) == (
        UtteranceEnded(1, UtteranceState.CANCELLED, None, 16),
    )
    assert endpoint.core.end_reason == "slow_reader"
    assert endpoint.take() == []


# Idle


def test_the_idle_clock(endpoint_with: Any) -> None:
    endpoint = endpoint_with(limits={"idle_timeout_s": 10})
    core = endpoint.core
    assert core.next_deadline() == 10.0
    for now, message in ((5.0, {"type": "keepalive"}), (6.0, "[]"), (7.0, {"type": "cancel"})):
        endpoint.now = now
        endpoint.read(message)
        assert core.next_deadline() == now + 10
    assert core.tick(16.9) == ()
    endpoint.now = 17.0
    endpoint.read(ask())
    # It stands still while anything is unended.
    assert core.next_deadline() is None
    assert core.tick(100.0) == ()
    core.start(4, 100.0)
    core.complete(4, 101.0)
    assert core.next_deadline() is None
    endpoint.now = 102.0
    endpoint.take()
    assert core.next_deadline() == 112.0
    assert core.tick(111.9) == ()
    assert core.state is SessionState.OPEN


def test_an_idle_session_ends(endpoint_with: Any) -> None:
    endpoint = endpoint_with(limits={"idle_timeout_s": 10})
    endpoint.read(ask())
    endpoint.read({"type": "keepalive"})
    endpoint.now = 3.0
    endpoint.core.start(1, 3.0)
    endpoint.core.complete(1, 3.0)
    endpoint.now = 5.0
    endpoint.take()
    assert endpoint.core.next_deadline() == 15.0
    assert endpoint.core.tick(15.0) == (SessionEnded("idle"),)
    assert endpoint.take() == [{"type": "session_closed", "reason": "idle", "last_seq": 1}]
    assert endpoint.core.tick(99.0) == ()


def test_a_cancel_starts_the_idle_clock(endpoint_with: Any) -> None:
    endpoint = endpoint_with(limits={"idle_timeout_s": 10})
    endpoint.read(ask())
    endpoint.now = 4.0
    endpoint.read({"type": "cancel"})
    assert endpoint.core.next_deadline() == 14.0


# Every cell


MESSAGES: dict[SessionInput, Any] = {
    SessionInput.HELLO: {"type": "hello", "protocol_versions": [1]},
    SessionInput.SYNTHESIZE: ask(),
    SessionInput.CANCEL: {"type": "cancel", "request_id": "nobody"},
    SessionInput.KEEPALIVE: {"type": "keepalive"},
    SessionInput.CLOSE: {"type": "close"},
    SessionInput.INVALID: "[]",
}


def bring(endpoint: Any, state: SessionState) -> None:
    """Bring a session into a state; but for FRESH and CLOSED, one utterance is unended."""
    if state is SessionState.CLOSED:
        endpoint.core.end("policy", 0.0)
    elif state is not SessionState.FRESH:
        endpoint.read(ask())
        if state is SessionState.CLOSING:
            endpoint.read({"type": "close"})
        elif state is SessionState.GOING_AWAY:
            endpoint.core.shutdown(0.0)
    endpoint.take()
    assert endpoint.core.state is state


@pytest.mark.parametrize(
    ("state", "event"),
    list(itertools.product(SessionState, SessionInput)),
    ids=lambda value: value.name,
)
def test_every_cell_of_a_session(endpoint: Any, state: SessionState, event: SessionInput) -> None:
    move = TRANSITIONS[Role.ENDPOINT][state].get(event)
    bring(endpoint, state)
    core = endpoint.core
    if event in MESSAGES:
        assert move is not None
        (told, *_) = endpoint.read(MESSAGES[event])
        verdict = {MessageRejected: Verdict.REJECT, MessageIgnored: Verdict.IGNORE}.get(
            type(told), Verdict.ACT
        )
        assert verdict is move.verdict
        if move.code:
            assert told.code == move.code
        if event is SessionInput.CLOSE and state is SessionState.FRESH:
            # Nothing is unended, so that the drain is over at once.
            assert core.state is SessionState.CLOSED
        else:
            assert core.state is move.to
        return
    if event is SessionInput.SHUTDOWN:
        assert move is not None
        core.shutdown(0.0)
        drained = state is SessionState.FRESH
        assert core.state is (SessionState.CLOSED if drained else move.to)
    elif event is SessionInput.ENDED:
        assert move is not None
        events = core.end("policy", 0.0)
        assert core.state is move.to
        assert bool(events) is (move.verdict is Verdict.ACT)
    elif event is SessionInput.TRANSPORT_LOST:
        assert move is not None
        events = core.transport_lost(0.0)
        assert core.state is move.to
        assert bool(events) is (move.verdict is Verdict.ACT)
    elif event is SessionInput.DRAINED:
        if state not in (SessionState.FRESH, SessionState.CLOSED):
            endpoint.read({"type": "cancel"})
        assert core.state is (move.to if move else state)
    elif event is SessionInput.IDLE:
        if state is SessionState.OPEN:
            endpoint.read({"type": "cancel"})
        core.tick(300.0)
        # Whatever has a deadline of its own ends by it.
        by_deadline = state is SessionState.GOING_AWAY
        assert core.state is (move.to if move else SessionState.CLOSED if by_deadline else state)
        assert (core.end_reason == "idle") is (move is not None)
    elif event is SessionInput.DEADLINE:
        if state is SessionState.CLOSING:
            core.shutdown(0.0)
        core.tick(20.0)
        assert core.state is (move.to if move else state)
    else:
        # What a client reads never meets an endpoint.
        assert move is None


def lead(endpoint: Any, state: UtteranceState) -> None:
    """Lead utterance 1 into a state."""
    endpoint.read(ask(marks=["word"]))
    if state is UtteranceState.WAITING:
        return
    if state is UtteranceState.CANCELLED:
        endpoint.read({"type": "cancel"})
        return
    endpoint.core.start(1, 0.0)
    if state is UtteranceState.FAILED:
        endpoint.core.fail(1, "internal", "m", 0.0)
        endpoint.take()
    elif state is not UtteranceState.RUNNING:
        endpoint.core.complete(1, 0.0)
        if state is UtteranceState.COMPLETED:
            endpoint.take()


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (state, event)
        for state in UTTERANCE_TRANSITIONS[Role.ENDPOINT]
        for event in UtteranceInput
        if event not in (UtteranceInput.COMPLETE_SENT, UtteranceInput.ERROR_SENT)
    ],
    ids=lambda value: value.name,
)
def test_every_cell_of_an_utterance(
    endpoint_with: Any, state: UtteranceState, event: UtteranceInput
) -> None:
    endpoint = endpoint_with(profiles=frozenset({"interrupt", "timing"}))
    lead(endpoint, state)
    core = endpoint.core
    move = UTTERANCE_TRANSITIONS[Role.ENDPOINT][state].get(event)
    calls = {
        UtteranceInput.START: lambda: core.start(1, 0.0),
        UtteranceInput.AUDIO: lambda: core.audio(1, b"ab", 0.0),
        UtteranceInput.MARKS: lambda: core.marks(1, [], 0.0),
        UtteranceInput.COMPLETE: lambda: core.complete(1, 0.0),
        UtteranceInput.ERROR: lambda: core.fail(1, "internal", "m", 0.0),
    }
    before = core.pending(), core.pending_bytes(), core.utterance(1)
    if event in calls:
        if move is None:
            with pytest.raises(LocalProtocolError):
                calls[event]()
            assert before == (core.pending(), core.pending_bytes(), core.utterance(1))
        else:
            calls[event]()
            assert core.utterance(1).state is move
    elif event is UtteranceInput.CANCELLED:
        (told,) = endpoint.read({"type": "cancel"})
        assert told.stopped == (() if move is None else (1,))
    elif event is UtteranceInput.SESSION_ENDS:
        ended = [each.state for each in core.end("policy", 0.0)[:-1]]
        assert ended == ([] if move is None else [move])
    elif event is UtteranceInput.TRANSPORT_LOST:
        ended = [each.state for each in core.transport_lost(0.0)[:-1]]
        assert ended == ([] if move is None else [move])
    else:
        # An error that rejects meets no utterance of an endpoint.
        assert event is UtteranceInput.REJECTION
        assert move is None


def test_the_frame_kind_of_a_message_means_nothing(endpoint: Any) -> None:
    for kind in (None, *FrameKind):
        (event,) = endpoint.core.receive(b'{"text":"Hello."}', 0.0, kind=kind)
        assert isinstance(event, SynthesizeReceived)
    (event,) = endpoint.core.receive('{"text":"\udcff"}', 0.0)
    assert event.code == "invalid_utf8"
