"""Values are checked when made, and do not change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from utterwire_protocol import (
    AudioChunk,
    CancelDone,
    Cancelled,
    CancelReceived,
    Chunk,
    Connection,
    EndpointOptions,
    ErrorReceived,
    FrameKind,
    KeepaliveReceived,
    LocalProtocolError,
    ProtocolError,
    ProtocolViolation,
    RemoteProtocolError,
    Role,
    SessionClosed,
    SessionReceived,
    SynthesisComplete,
    SynthesisStart,
    Synthesize,
    Utterance,
    UtteranceEnded,
    UtteranceInput,
    UtteranceState,
)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: KeepaliveReceived(0), "seq must be 1 or more, not 0"),
        (lambda: CancelReceived(-1, ()), "seq must be 1 or more, not -1"),
        (lambda: UtteranceEnded(0, UtteranceState.LOST), "seq must be 1 or more, not 0"),
        (
            lambda: UtteranceEnded(1, UtteranceState.LOST, None, -1),
            "audio_bytes must be 0 or more, not -1",
        ),
        (lambda: SynthesisStart(0, None, 1, "f", None), "seq must be 1 or more, not 0"),
        (lambda: SynthesisStart(1, None, 0, "f", None), "sample_rate must be 1 or more, not 0"),
        (lambda: AudioChunk(0, b"a"), "seq must be 1 or more, not 0"),
        (lambda: AudioChunk(1, b""), "audio must not be empty"),
        (lambda: SynthesisComplete(0, None, 0, 0, 0, 0, 0), "seq must be 1 or more, not 0"),
        (
            lambda: SynthesisComplete(1, None, -0.1, 0, 0, 0, 0),
            "total_duration_s must be 0 or more, not -0.1",
        ),
        (
            lambda: SynthesisComplete(1, None, 0, float("nan"), 0, 0, 0),
            "elapsed_s must be 0 or more, not nan",
        ),
        (
            lambda: SynthesisComplete(1, None, 0, 0, -1, 0, 0),
            "audio_bytes must be 0 or more, not -1",
        ),
        (
            lambda: SynthesisComplete(1, None, 0, 0, 0, -1, 0),
            "characters must be 0 or more, not -1",
        ),
        (
            lambda: SynthesisComplete(1, None, 0, 0, 0, 0, -1),
            "received_bytes must be 0 or more, not -1",
        ),
        (lambda: ErrorReceived(0, None, "c", "m", False, False), "seq must be 1 or more, not 0"),
        (
            lambda: ErrorReceived(1, None, "c", "m", True, False, -1),
            "retry_after_s must be 0 or more, not -1",
        ),
        (lambda: Cancelled(0, None, 0, 0), "seq must be 1 or more, not 0"),
        (lambda: Cancelled(1, None, -1, 0), "audio_bytes must be 0 or more, not -1"),
        (lambda: Cancelled(1, None, 0, -1), "received_bytes must be 0 or more, not -1"),
        (lambda: CancelDone(0, None, 0), "seq must be 1 or more, not 0"),
        (lambda: CancelDone(1, None, -1), "count must be 0 or more, not -1"),
        (
            lambda: SessionReceived(0, "s", frozenset(), {}, (), (), ()),
            "protocol_version must be 1 or more, not 0",
        ),
        (lambda: SessionClosed("idle", -1, None), "last_seq must be 0 or more, not -1"),
        (lambda: SessionClosed("idle", 0, -1.0), "retry_after_s must be 0 or more, not -1.0"),
        (
            lambda: ProtocolViolation("", "m"),
            "a violation names its requirement and says what happened",
        ),
        (
            lambda: ProtocolViolation("r", ""),
            "a violation names its requirement and says what happened",
        ),
        (lambda: Chunk(FrameKind.UNKNOWN, b"a"), "what is sent is text or binary"),
        (lambda: Chunk(FrameKind.TEXT, b""), "a chunk must not be empty"),
        (lambda: Utterance(0, None, "t", None, None, None, None), "seq must be 1 or more, not 0"),
        (
            lambda: Utterance(1, None, "t", None, None, None, None, audio_bytes=-1),
            "audio_bytes must be 0 or more",
        ),
    ],
    ids=range(30),
)
def test_values_that_cannot_be(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        make()
    assert str(caught.value) == told


def test_what_may_be_unknown() -> None:
    assert ErrorReceived(None, None, "c", "m", False, False).seq is None
    assert SynthesisComplete(1, None, None, None, None, None, 0).audio_bytes is None
    assert Cancelled(1, None, None, 0).audio_bytes is None
    assert CancelDone(1, None, None).count is None
    assert SessionClosed("idle", None, None).last_seq is None


def test_values_do_not_change() -> None:
    event = KeepaliveReceived(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.seq = 2  # type: ignore[misc]


def test_audio_and_text_are_not_shown() -> None:
    assert "secret" not in repr(AudioChunk(1, b"secret"))
    assert "secret" not in repr(Utterance(1, None, "secret", None, None, None, None))


def test_an_utterance_moves_by_its_table_alone() -> None:
    utterance = Utterance(1, None, "t", None, None, None, None)
    assert utterance.unended
    running = utterance.after(Role.ENDPOINT, UtteranceInput.START)
    assert running.state is UtteranceState.RUNNING
    assert running.after(Role.ENDPOINT, UtteranceInput.AUDIO) is running
    with pytest.raises(LocalProtocolError, match="utterance 1 is running: synthesis_start is not"):
        running.after(Role.ENDPOINT, UtteranceInput.START)
    ended = running.after(Role.ENDPOINT, UtteranceInput.CANCELLED)
    assert not ended.unended
    assert utterance.state is UtteranceState.WAITING
    assert utterance.with_audio(3).with_audio(4).audio_bytes == 7


def test_errors_say_whose_fault_it_is() -> None:
    assert issubclass(LocalProtocolError, ProtocolError)
    error = RemoteProtocolError("reject.invalid-json", "invalid_json", "m")
    assert isinstance(error, ProtocolError)
    assert not isinstance(error, LocalProtocolError)
    assert (error.requirement, error.code, error.message) == (
        "reject.invalid-json",
        "invalid_json",
        "m",
    )
    assert str(error) == "m"


class Room:
    def room_in_s(self, request: Synthesize) -> float | None:
        raise AssertionError

    def turn_in_s(self) -> float | None:
        raise AssertionError


def test_a_connection_needs_options_for_an_endpoint_and_has_none_for_a_client() -> None:
    options = EndpointOptions(voices=("v",))
    with pytest.raises(LocalProtocolError, match="an endpoint needs its options"):
        Connection(Role.ENDPOINT, now=0.0)
    with pytest.raises(LocalProtocolError, match="a client has no endpoint's options"):
        Connection(Role.CLIENT, now=0.0, admission=Room())
    with pytest.raises(LocalProtocolError, match="a client has no endpoint's options"):
        Connection(Role.CLIENT, now=0.0, endpoint=options)
    assert Connection(Role.CLIENT, now=0.0).role is Role.CLIENT


@pytest.mark.parametrize(
    "call",
    [
        lambda core: core.running(),
        lambda core: core.next_waiting(),
        lambda core: core.start(1, 0.0),
        lambda core: core.audio(1, b"ab", 0.0),
        lambda core: core.marks(1, [], 0.0),
        lambda core: core.complete(1, 0.0),
        lambda core: core.fail(1, "internal", "m", 0.0),
        lambda core: core.shutdown(0.0),
        lambda core: core.end("policy", 0.0),
    ],
    ids=range(9),
)
def test_what_only_an_endpoint_does(call: Callable[[Connection], object]) -> None:
    with pytest.raises(LocalProtocolError, match="only an endpoint does this"):
        call(Connection(Role.CLIENT, now=0.0))


@pytest.mark.parametrize(
    "call",
    [
        lambda core: core.hello(0.0),
        lambda core: core.synthesize("Hello.", 0.0),
        lambda core: core.cancel(0.0),
        lambda core: core.keepalive(0.0),
        lambda core: core.close(0.0),
    ],
    ids=range(5),
)
def test_what_only_a_client_does(call: Callable[[Connection], object]) -> None:
    core = Connection(Role.ENDPOINT, now=0.0, endpoint=EndpointOptions(voices=("v",)))
    with pytest.raises(LocalProtocolError, match="only a client does this"):
        call(core)
