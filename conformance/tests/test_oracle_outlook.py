"""What the oracle says of single messages: whose rule is broken, and what is legal next."""

from __future__ import annotations

import json
from typing import Any

import pytest
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.client_message import Claims, read_client_message
from utterwire_conformance.oracle import Oracle, Outlook, blame
from utterwire_schemas import octets, vectors

CLAIMS = Claims(
    profiles=frozenset({"core", "interrupt", "negotiate", "timing"}),
    voices=frozenset(),
    formats=frozenset({"pcm_s16le"}),
    sample_rates=frozenset({24_000}),
    min_speed=0.5,
    max_speed=2.0,
    max_text_chars=4096,
    max_request_id_chars=128,
)
# With several faults any of them may be blamed; and what an answer must carry is another rule.
REJECTED = [
    vector
    for vector in vectors("client-messages")
    if vector["verdict"] == "reject"
    and not vector["id"].startswith("faults-")
    and vector["requirement"] != "reject.one-error"
]


@pytest.mark.parametrize("vector", REJECTED, ids=lambda vector: vector["id"])
def test_the_rule_that_asks_for_a_rejection_is_named(vector: dict[str, Any]) -> None:
    needs = vector.get("needs", {})
    profiles = CLAIMS.profiles - frozenset(needs.get("lacks", ()))
    limits: dict[str, Any] = {
        name: needs.get("limits", {}).get(name, getattr(CLAIMS, name))
        for name in ("max_text_chars", "max_request_id_chars", "min_speed", "max_speed")
    }
    claims = Claims(
        profiles=profiles,
        voices=CLAIMS.voices,
        formats=CLAIMS.formats,
        sample_rates=CLAIMS.sample_rates,
        **limits,
    )
    data = octets(vector["message"])
    meaning = read_client_message(data, claims)
    assert blame.of_acceptance(data, meaning, claims) == vector["requirement"]


@pytest.mark.parametrize(
    ("message", "code", "requirement"),
    [
        ({"text": "a"}, "invalid_request", "accept.defaults"),
        ({"text": "a"}, None, "accept.defaults"),
        ({"text": "a", "request_id": "é"}, "invalid_request", "accept.request-id-floor"),
        ({"text": "a", "request_id": "a"}, "duplicate_request_id", "request-id.reusable"),
        ({"text": "a", "speed": 2}, "invalid_request", "accept.speed-range"),
        ({"text": "a", "speed": 2}, "invalid_speed", "accept.speed-range"),
        ({"text": "a" * 4096}, "invalid_request", "accept.text-floor"),
        ({"text": "..."}, "empty_text", "audio.unspeakable"),
        ({"text": "a"}, "queue_full", "accept.waiting-floor"),
        ({"text": "a", "type": None}, "unknown_type", "message.type-absent"),
        ({"text": "a", "voice": None}, "invalid_voice", "message.null-is-absent"),
        ({"text": "a", "model": 1}, "invalid_request", "message.reserved-fields-ignored"),
        ({"text": "a", "x": 1}, "invalid_request", "message.unknown-fields-ignored"),
        ({"text": "a", "marks": 1}, "invalid_request", "message.unclaimed-marks"),
        ({"text": "a", "sample_rate": 24e3}, "invalid_request", "message.integral-floats"),
        ({"text": "a", "request_timestamp": 1}, "invalid_request", "message.request-timestamp"),
        ({"type": "keepalive"}, "unknown_type", "message.keepalive"),
        ({"type": "close"}, "unknown_type", "close.session-closed"),
        ({"type": "cancel"}, "invalid_request", "cancel.unknown-id"),
        ({"type": "hello", "protocol_versions": [1]}, "invalid_request", "hello.session"),
    ],
)
def test_the_rule_that_forbids_a_rejection_is_named(
    message: Any, code: str | None, requirement: str
) -> None:
    claims = Claims(profiles=frozenset({"core", "interrupt", "negotiate"}))
    meaning = read_client_message(json.dumps(message).encode(), claims)
    assert blame.of_rejection(meaning, code, is_text=True, frames=1) == requirement


def test_how_a_message_came_is_blamed_first() -> None:
    meaning = read_client_message(b'{"text":"a"}')
    assert blame.of_rejection(meaning, None, is_text=False, frames=1) == "message.frame-kinds-alike"
    assert (
        blame.of_rejection(meaning, None, is_text=True, frames=2)
        == "message.fragmentation-invisible"
    )


ANY_TIME = {"overloaded", "going_away"}


def outlook(*messages: Any, profiles: tuple[str, ...] = ()) -> Outlook:
    """The outlook of the last of some messages that were sent one after the other."""
    oracle = Oracle(EndpointClaims(profiles=frozenset({"core", *profiles}), max_waiting=8))
    for message in messages:
        oracle.sent(message if isinstance(message, bytes) else json.dumps(message).encode())
    return oracle.outlook(len(messages))


@pytest.mark.parametrize(
    ("messages", "profiles", "accept", "codes", "silence"),
    [
        ([{"text": "a"}], (), True, ANY_TIME, False),
        ([{"text": ""}], (), False, {"empty_text", *ANY_TIME}, False),
        ([{"text": "a", "voice": "v"}], (), True, {"invalid_voice", *ANY_TIME}, False),
        ([b"{"], (), False, {"invalid_json"}, False),
        ([{"type": "keepalive"}], (), False, set(), True),
        ([{"type": "close"}], (), False, set(), True),
        ([{"type": "cancel"}], (), False, {"unknown_type"}, False),
        ([{"type": "cancel"}], ("interrupt",), True, set(), False),
        ([{"type": "hello", "protocol_versions": [1]}], ("negotiate",), True, set(), False),
        (
            [{"text": "a"}, {"type": "hello", "protocol_versions": [1]}],
            ("negotiate",),
            False,
            {"invalid_request"},
            False,
        ),
        (
            [{"text": "a", "request_id": "x"}, {"text": "b", "request_id": "x"}],
            (),
            True,
            {"duplicate_request_id", *ANY_TIME},
            False,
        ),
        ([{"text": "a"}] * 9, (), True, ANY_TIME, False),
        ([{"text": "a"}] * 10, (), True, {"queue_full", *ANY_TIME}, False),
        ([{"type": "close"}, {"text": "a"}], (), False, set(), True),
        ([{"type": "close"}, {"type": "cancel"}], ("interrupt",), True, set(), False),
    ],
)
def test_what_is_legal_next(
    messages: list[Any], profiles: tuple[str, ...], accept: bool, codes: set[str], silence: bool
) -> None:
    assert outlook(*messages, profiles=profiles) == Outlook(accept, frozenset(codes), silence)


def test_what_was_answered_needs_no_answer() -> None:
    oracle = Oracle()
    oracle.sent(b"{")
    error = {"code": "invalid_json", "message": "No.", "retryable": False, "rejected": True}
    oracle.received(json.dumps({"type": "error", "seq": 1, **error}).encode(), "text")
    assert oracle.outlook(1) == Outlook(False, frozenset(), True)
    assert oracle.finish(quiet=True) == ()


def test_after_shutdown_nothing_is_accepted() -> None:
    oracle = Oracle()
    oracle.shutdown_told()
    oracle.sent(b'{"text":"a"}')
    assert oracle.outlook(1) == Outlook(False, frozenset(ANY_TIME), False)


def test_an_outlook_is_of_a_message_that_was_sent() -> None:
    with pytest.raises(KeyError):
        Oracle().outlook(1)
