"""The vectors of client messages, control messages and whole conversations."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from utterwire_protocol import (
    CancelReceived,
    CloseReceived,
    Connection,
    EndpointOptions,
    FrameKind,
    HelloReceived,
    KeepaliveReceived,
    LocalProtocolError,
    MessageRejected,
    ProtocolViolation,
    Role,
    SynthesizeReceived,
)
from utterwire_schemas import octets, vectors

Options = Callable[..., EndpointOptions]
MESSAGES = vectors("client-messages")
CONTROL = vectors("control-messages")
CONVERSATIONS = vectors("conversations")

TYPES = {
    SynthesizeReceived: "synthesize",
    CloseReceived: "close",
    KeepaliveReceived: "keepalive",
    CancelReceived: "cancel",
    HelloReceived: "hello",
}


def complaints(
    judge: Callable[[dict[str, Any]], None], found: list[dict[str, Any]]
) -> dict[str, str]:
    """What ``judge`` asserts in vain, by the id of the vector.

    One test for a whole set: a thousand tests of their own take longer to collect than to run.
    """
    wrong = {}
    for vector in found:
        try:
            judge(vector)
        except AssertionError as error:
            wrong[vector["id"]] = str(error)
    return wrong


@pytest.mark.parametrize("kind", [FrameKind.BINARY, FrameKind.TEXT], ids=["binary", "text"])
def test_client_messages(endpoint_with: Any, kind: FrameKind) -> None:
    def judge(vector: dict[str, Any]) -> None:
        judge_message(endpoint_with, vector, kind)

    assert complaints(judge, MESSAGES) == {}


def judge_message(endpoint_with: Any, vector: dict[str, Any], kind: FrameKind) -> None:
    needs = vector.get("needs", {})
    profiles = {"interrupt", "negotiate", "timing"} | set(needs.get("claims", ()))
    endpoint = endpoint_with(
        profiles=frozenset(profiles - set(needs.get("lacks", ()))), limits=needs.get("limits", {})
    )
    event = endpoint.core.receive(octets(vector["message"]), 0.0, kind=kind)[0]
    if isinstance(event, MessageRejected):
        assert vector["verdict"] in ("reject", "either")
        assert event.code in vector["codes"]
        if vector["verdict"] == "reject":
            assert event.request_id == vector.get("request_id")
    else:
        assert vector["verdict"] in ("accept", "either")
        assert TYPES[type(event)] == vector["type"]
        if isinstance(event, SynthesizeReceived):
            assert event.utterance.request_id == vector.get("request_id")
            if "characters" in vector:
                assert len(event.utterance.text) == vector["characters"]
    if not isinstance(event, CloseReceived):
        assert isinstance(endpoint.read({"text": "Hello."})[0], SynthesizeReceived)


def test_control_messages() -> None:
    """A client reads whatever there is, and says nothing against what is valid."""
    assert complaints(judge_control, CONTROL) == {}


def judge_control(vector: dict[str, Any]) -> None:
    core = Connection(Role.CLIENT, now=0.0)
    core.hello(0.0)
    for _ in range(8):
        core.synthesize("Good morning.", 0.0)
    message = octets(vector["message"])
    for kind in FrameKind:
        events = core.receive(message, 0.0, kind=kind)
        assert events
        if vector["valid"] and kind is FrameKind.TEXT:
            told = {each.requirement for each in events if isinstance(each, ProtocolViolation)}
            # By itself it is valid; whether this is its place is another matter.
            assert not told & {"control.schema", "control.strict-json", "start.fields"}


def played(vector: dict[str, Any]) -> list[Any] | None:
    """What the client core makes of the conversation; None where it would not have sent all that
    the client of the conversation sent."""
    core = Connection(Role.CLIENT, now=0.0)
    events: list[Any] = []
    for step in vector["steps"]:
        if step["from"] == "client":
            if "json" in step and not send(core, step["json"]):
                return None
            if "text" in step or "octets" in step:
                return None
        elif "audio_bytes" in step:
            events += core.receive(b"\0" * step["audio_bytes"], 0.0)
        elif "json" in step:
            text = json.dumps(step["json"])
            events += core.receive(text if step.get("frame") != "binary" else text.encode(), 0.0)
        elif "text" in step:
            events += core.receive(step["text"], 0.0)
        elif "octets" in step:
            events += core.receive(octets(step["octets"]), 0.0)
    return events


def send(core: Connection, message: Any) -> bool:
    """Send it, if the core does."""
    try:
        match message:
            case {"type": "hello", "protocol_versions": versions}:
                core.hello(0.0, tuple(versions))
            case {"type": "cancel", "request_id": str(name)}:
                core.cancel(0.0, name)
            case {"type": "cancel"} if "request_id" not in message:
                core.cancel(0.0)
            case {"type": "keepalive"}:
                core.keepalive(0.0)
            case {"type": "close"}:
                core.close(0.0)
            case {"text": str(text)} if message.get("type", "synthesize") == "synthesize":
                names = ("voice", "speed", "sample_rate", "format", "request_id", "marks")
                core.synthesize(text, 0.0, **{name: message.get(name) for name in names})
            case _:
                return False
    except (LocalProtocolError, TypeError):
        return False
    return True


LEGAL = [
    each
    for each in CONVERSATIONS
    if each["verdict"] == "legal" and each.get("role", "endpoint") == "endpoint"
]


def test_most_conversations_are_played() -> None:
    assert sum(played(each) is not None for each in LEGAL) > len(LEGAL) / 2


def test_a_legal_conversation_gives_a_client_nothing_to_complain_of() -> None:
    def judge(vector: dict[str, Any]) -> None:
        told = [each for each in played(vector) or () if isinstance(each, ProtocolViolation)]
        assert told == []

    assert complaints(judge, LEGAL) == {}


def test_no_illegal_conversation_makes_a_client_fail() -> None:
    illegal = [each for each in CONVERSATIONS if each["verdict"] == "illegal"]
    assert sum(played(each) is not None for each in illegal) > len(illegal) / 2


# What a message can come to, as far as it is no choice of the endpoint's.
JUDGED = [
    each
    for each in LEGAL
    if each["requirement"] != "reject.odd-json-survives"
    # Who has no room as a whole fails what the core accepted.
    and not any(step.get("json", {}).get("code") == "overloaded" for step in each["steps"])
    and not any({"t", "signal", "close", "lost"} & step.keys() for step in each["steps"])
]


def outcome(message: Any) -> tuple[int, str] | None:
    """What a control message says has become of the client message of that ``seq``."""
    if not isinstance(message, dict) or "seq" not in message:
        return None
    if message.get("rejected"):
        return message["seq"], "rejected"
    if message["type"] in ("error", "synthesis_complete", "cancelled", "cancel_done", "session"):
        return message["seq"], message["type"]
    return None


def outcomes(endpoint: Any, steps: list[dict[str, Any]], late: int, delay: int) -> dict[int, str]:
    """Play the client's steps, that of index ``late`` read so many steps of the endpoint after it
    stands, and let the core speak where the endpoint of the conversation does."""
    core = endpoint.core
    found: dict[int, str] = {}
    unread: list[tuple[int, dict[str, Any]]] = []

    def read(until: int) -> None:
        found.update(filter(None, map(outcome, endpoint.take())))
        while unread and unread[0][0] <= until:
            step = unread.pop(0)[1]
            if "octets" in step:
                core.receive(octets(step["octets"]), 0.0)
            else:
                text = step["text"] if "text" in step else json.dumps(step["json"])
                core.receive(text.encode() if step.get("frame") == "binary" else text, 0.0)
        found.update(filter(None, map(outcome, endpoint.take())))

    place = 0
    for index, step in enumerate(steps):
        if step["from"] == "client":
            unread.append((place + (delay if index == late else 0), step))
            read(place)
            continue
        place += 1
        message = step.get("json") or json.loads(step.get("text", "{}"))
        seq = message.get("seq", 0)
        if core.utterance(seq) is not None:
            if message["type"] == "synthesis_start":
                core.start(seq, 0.0)
            elif message["type"] == "synthesis_complete":
                core.complete(seq, 0.0)
            elif message["type"] == "error":
                core.fail(seq, message["code"], "m", 0.0)
        read(place)
    read(place + delay)
    return found


def test_an_endpoint_answers_as_in_a_legal_conversation(endpoint_with: Any) -> None:
    def judge(vector: dict[str, Any]) -> None:
        judge_conversation(endpoint_with, vector)

    assert complaints(judge, JUDGED) == {}


def judge_conversation(endpoint_with: Any, vector: dict[str, Any]) -> None:
    expected = dict(
        filter(None, (outcome(s.get("json")) for s in vector["steps"] if s["from"] == "endpoint"))
    )
    found = []
    messages = [index for index, s in enumerate(vector["steps"]) if s["from"] == "client"]
    for late, delay in [(0, 0), *itertools.product(messages, (1, 2, 3))]:
        endpoint = endpoint_with(
            profiles=frozenset(vector["profiles"]), limits=vector.get("limits", {})
        )
        # Read this late, the conversation may not have gone as it did.
        with contextlib.suppress(LocalProtocolError):
            found.append(outcomes(endpoint, vector["steps"], late, delay))
    # What the conversation leaves open (it was cut off) is not compared.
    assert expected in [{seq: each.get(seq) for seq in expected} for each in found]
