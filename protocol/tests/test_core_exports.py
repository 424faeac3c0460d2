from __future__ import annotations

import importlib
import pkgutil

import pytest
import utterwire_protocol

NAMES = [
    "ERROR_CODES",
    "MAX_CHUNK_BYTES",
    "PROTOCOL_VERSION",
    "SESSION_END_REASONS",
    "TRANSITIONS",
    "UTTERANCE_TRANSITIONS",
    "WHITE_SPACE",
    "Admission",
    "Audio",
    "AudioChunk",
    "Cancel",
    "CancelDone",
    "CancelReceived",
    "Cancelled",
    "Chunk",
    "ClientMessage",
    "Close",
    "CloseReceived",
    "Connection",
    "Control",
    "Cutter",
    "EndpointOptions",
    "ErrorCode",
    "ErrorReceived",
    "Event",
    "FrameKind",
    "Hello",
    "HelloReceived",
    "Keepalive",
    "KeepaliveReceived",
    "Limits",
    "LocalProtocolError",
    "MarksReceived",
    "MessageIgnored",
    "MessageRejected",
    "Move",
    "ProtocolError",
    "ProtocolViolation",
    "Rejection",
    "RemoteProtocolError",
    "Request",
    "Role",
    "SessionClosed",
    "SessionEnded",
    "SessionInput",
    "SessionReceived",
    "SessionState",
    "SynthesisComplete",
    "SynthesisStart",
    "Synthesize",
    "SynthesizeReceived",
    "UnknownControl",
    "Utterance",
    "UtteranceEnded",
    "UtteranceInput",
    "UtteranceState",
    "Verdict",
    "Word",
    "classify",
    "encode_cancel_done",
    "encode_cancelled",
    "encode_error",
    "encode_marks",
    "encode_message",
    "encode_session",
    "encode_session_closed",
    "encode_synthesis_complete",
    "encode_synthesis_start",
    "is_blank",
    "is_sendable_audio",
    "parse_message",
    "parse_request",
    "validate_synthesize",
]


def test_the_exported_names() -> None:
    assert sorted(utterwire_protocol.__all__) == sorted(NAMES)
    for name in NAMES:
        assert getattr(utterwire_protocol, name) is not None


MODULES = [each.name for each in pkgutil.iter_modules(utterwire_protocol.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_each_module_says_what_it_exports(name: str) -> None:
    module = importlib.import_module(f"utterwire_protocol.{name}")
    assert module.__doc__
    for each in module.__all__:
        member = getattr(module, each)
        if isinstance(member, type) or callable(member):
            assert member.__doc__, each
