"""The catalogue of faults, and each fault by itself without a socket."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import Any

import pytest
from utterwire_conformance.codecs import ogg
from utterwire_conformance.faults import FAULTS, Fault
from utterwire_conformance.faults.catalogue import Catalogue
from utterwire_conformance.proxy import (
    Action,
    CloseSession,
    CutSession,
    ExchangeTamper,
    Head,
    Pause,
    Request,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
    ToEndpoint,
)
from utterwire_conformance.requirements import requirements
from utterwire_conformance.wire import Frame, Opcode, close_payload
from utterwire_schemas import octets, vectors

ROWS = {row.id: row for row in requirements()}
MASK = b"\1\2\3\4"


def test_every_fault_breaks_known_requirements() -> None:
    for fault in FAULTS.values():
        for name in fault.breaks:
            row = ROWS[name]
            assert (row.role, row.excluded) == ("endpoint", None), fault.name


def test_every_judged_requirement_has_a_fault() -> None:
    broken = {name for fault in FAULTS.values() for name in fault.breaks}
    judged = {
        row.id
        for row in ROWS.values()
        if row.role == "endpoint" and row.checks and not row.excluded
    }
    assert judged <= broken


def test_requirements_name_their_faults() -> None:
    named = {row.id: set(row.faults) for row in ROWS.values() if row.faults}
    breaking: dict[str, set[str]] = {}
    for fault in FAULTS.values():
        for name in fault.breaks:
            breaking.setdefault(name, set()).add(fault.name)
    assert named == breaking


def test_explanations_are_sentences_of_their_own() -> None:
    explanations = [fault.explanation for fault in FAULTS.values()]
    assert len(set(explanations)) == len(explanations)
    assert all(text[0].isupper() or text[0] == "`" for text in explanations)


@pytest.mark.parametrize(
    ("name", "explanation", "breaks", "words"),
    [
        ("Bad_Name", "It is bad.", ("x.y",), "kebab-case"),
        ("bad", "no sentence", ("x.y",), "sentence"),
        ("bad", "It is bad.", (), "breaks no requirement"),
    ],
)
def test_a_fault_explains_itself(
    name: str, explanation: str, breaks: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Fault(name, explanation, breaks)


def test_names_are_given_once() -> None:
    catalogue = Catalogue()
    catalogue.add("a", "It is a.", "x.y")
    with pytest.raises(ValueError, match="two faults a"):
        catalogue.add("a", "It is another.", "x.y")
    assert [fault.name for fault in catalogue] == ["a"]


# --- Sessions ------------------------------------------------------------------------------------

LONG_ID = "r" * 128
EXTRA: list[bytes] = [
    json.dumps(message).encode()
    for message in (
        {"type": None, "text": "Hello.", "voice": None, "language": "xx", "x": 1},
        {"text": "Hello.", "request_timestamp": 5, "marks": ["word"], "sample_rate": 24000.0},
        {"text": "Hello.", "speed": 2.0, "request_id": LONG_ID},
        {"text": "Hello.", "speed": 0.5, "request_id": "é"},
        {"text": "x" * 4096},
        {"text": "x" * 70_000},
        {"text": "\ud800"},
        {"text": 5, "voice": 5, "speed": True, "sample_rate": 7, "format": "x"},
        {"text": "Hello.", "sample_rate": True},
        {"text": "Hello.", "speed": 9},
        {"text": "Hello.", "format": "wav"},
        {"text": "Hello.", "request_id": 7},
        {"text": "Hello.", "stream": "no"},
        {"text": "\x1f"},
        {"text": "..."},
        {"voice": "v"},
        {"type": "Synthesize ", "text": "Hello."},
        {"text": "Hello.", "request_id": " a "},
        {"text": "Hello.", "marks": ["phoneme"]},
        {"text": "Hello.", "marks": 7},
        {"text": "Hello.", "marks": []},
        {"type": "append"},
        {"type": "other"},
        {"type": 7},
        {"type": "cancel", "request_id": 7},
        {"text": '<!DOCTYPE a [<!ENTITY b "c">]><a>{{ b }}</a> /etc/passwd'},
    )
] + ['{"text":"éééééééééé"}'.encode(), b"", b"[]", b"{", b"\xff", b'{"text":"a","text":"b"}']
EXTRA.append(b'{"text":"Hello."}'.ljust(65_536))


def play(fault: Fault, steps: Iterable[dict[str, Any]]) -> tuple[list[Action], bool]:
    """What a fault does to a session; whether that is anything but to pass things on."""
    tap = Tap()
    shared = Shared(shutting_down=True)
    tamper = fault.session(shared, tap)
    done: list[Action] = []
    touched = tamper.upgrade("/x") != "/x" or tamper.handshake(Head(101)) != Head(101)

    def take(actions: Iterable[Action], frames: Iterable[Frame]) -> None:
        nonlocal touched
        actions = list(actions)
        passed = [a.frame for a in actions if isinstance(a, ToClient | ToEndpoint)]
        touched = touched or passed != list(frames) or len(passed) != len(actions)
        done.extend(actions)

    def send(data: bytes, opcode: int) -> None:
        parts = [Frame(opcode, data, mask=MASK)]
        if len(data) > 20:
            first, middle, last = data[:1], data[1:20], data[20:]
            parts = [
                Frame(opcode, first, fin=False, mask=MASK),
                *(Frame(0, middle[i : i + 1], fin=False, mask=MASK) for i in range(len(middle))),
                Frame(0, last, mask=MASK),
            ]
        take(tamper.client_message(tap.client_message(data, tuple(parts))), parts)

    def receive(data: bytes, opcode: int) -> None:
        chunk = tap.chunk(Frame(opcode, data))
        take(tamper.chunk(chunk), [chunk.frame])
        tap.after(chunk)

    for step in steps:
        is_client = step["from"] == "client"
        if "close" in step:
            frame = Frame(Opcode.CLOSE, close_payload(step["close"]))
            hook = tamper.client_frame if is_client else tamper.endpoint_frame
            take(hook(frame), [frame])
        elif "lost" in step:
            gone = tamper.client_gone(clean=False) if is_client else tamper.endpoint_gone()
            touched = touched or not gone
        elif "signal" not in step:
            data, opcode = _data(step)
            (send if is_client else receive)(data, opcode)
    tap.in_message = True
    for frame in (Frame(Opcode.PING, b"p", mask=MASK), Frame(0x3, b"x", rsv=1)):
        hook = tamper.client_frame if frame.opcode == Opcode.PING else tamper.client_breach
        take(hook(frame), [frame])
    bad_text = (Frame(Opcode.TEXT, b"\xff", mask=MASK),)
    take(tamper.client_bad_text(bad_text), bad_text)
    pong = Frame(Opcode.PONG, b"p")
    take(tamper.endpoint_frame(pong), [pong])
    other = fault.session(shared, Tap())
    touched = touched or other.upgrade("/x") != "/x"
    remains = shared.notes or shared.written or shared.kept or shared.lingers
    return done, touched or not tamper.endpoint_gone() or bool(remains)


def _data(step: dict[str, Any]) -> tuple[bytes, int]:
    if "json" in step:
        return json.dumps(step["json"]).encode(), Opcode.TEXT
    if "text" in step:
        return step["text"].encode(), Opcode.TEXT
    if "octets" in step:
        return octets(step["octets"]), Opcode.BINARY
    return bytes(step["audio_bytes"]), Opcode.BINARY


CONVERSATIONS: list[list[dict[str, Any]]] = [
    vector["steps"] for vector in vectors("conversations") if vector["verdict"] == "legal"
]


def _spoken(data: bytes, seq: int, **fields: Any) -> list[dict[str, Any]]:
    """A request in a binary frame and its utterance, then its rejection."""
    request = [{"from": "client", "octets": [{"hex": data.hex()}]}]
    about = {"seq": seq, **fields}
    start = {"sample_rate": 24000, "format": "pcm_s16le", "voice": "v", **about}
    end = {"total_duration_s": 0.01, "elapsed_s": 0.1, "audio_bytes": 480, "characters": 6, **about}
    error = {"code": "invalid_request", "message": "No.", "retryable": False, "rejected": True}
    endpoint: list[dict[str, Any]] = [
        {"json": {"type": "synthesis_start", **start}},
        {"octets": [{"hex": "0102", "times": 240}]},
        *([{"audio_bytes": 65_536}] * 2 if len(data) > 1000 else []),
        {"json": {"type": "synthesis_complete", **end}},
        {"json": {"type": "error", **error, **about}},
    ]
    return request + [{"from": "endpoint", **step} for step in endpoint]


CONVERSATIONS += [_spoken(data, 1) for data in EXTRA]
CONVERSATIONS += [_spoken(b'{"text":"","request_id":"\\u00e9"}', 1, request_id="é")]
CONVERSATIONS += [[step for data in EXTRA for step in _spoken(data, EXTRA.index(data) + 1)]]
# More wait than a short queue holds.
CONVERSATIONS += [[step for n in range(1, 9) for step in _spoken(EXTRA[1], n)[:1]]]
# A message without a type while another is spoken.
CONVERSATIONS += [[*_spoken(EXTRA[2], 1)[:3], *_spoken(b'{"text":"Hello."}', 2)[:1]]]
# A rejection that overtakes, since too many wait.
CONVERSATIONS += [
    [
        *_spoken(b'{"text":"Hello."}', 1)[:3],
        {"from": "endpoint", "json": {"type": "error", "seq": 258, "rejected": True}},
        {"from": "endpoint", "json": {"type": "error", "seq": 257, "rejected": True}},
    ]
]
# More chunks than a short text has.
CONVERSATIONS += [
    [*_spoken(b'{"text":"Hello."}', 1)[:2], *[{"from": "endpoint", "audio_bytes": 96}] * 100]
]
CONVERSATIONS += [_spoken(b'{"type":"hello","protocol_versions":[2,1]}', 1)]
CONVERSATIONS += [
    [
        {"from": "client", "json": {"text": "Hello.", "request_id": "a"}},
        {"from": "client", "json": {"type": "cancel", "request_id": "A "}},
    ]
]
# What is long, or encoded, is cancelled while it is spoken.
CONVERSATIONS += [
    [
        *_spoken(b'{"text":"Hello."}', 1)[:4],
        *_spoken(json.dumps({"text": "x" * 1_500, "request_id": "a", **asked}).encode(), 2)[:3],
        {"from": "client", "json": {"type": "cancel", "request_id": "a"}},
    ]
    for asked in ({}, {"format": "mp3"})
]
# Two ids that look alike.
CONVERSATIONS += [
    [
        {"from": "client", "json": {"text": "Hello.", "request_id": "\u00e9"}},
        {"from": "client", "json": {"text": "Hello.", "request_id": "e\u0301"}},
    ]
]


def _page(number: int, flags: int, body: bytes) -> bytes:
    head = struct.pack("<4sBBqIII", b"OggS", 0, flags, 960 * number, 7, number, 0)
    lengths = bytes([1, len(body)])
    whole = head + lengths + body
    return whole[:22] + struct.pack("<I", ogg.checksum(whole)) + whole[26:]


OPUS_HEAD = b"OpusHead" + struct.pack("<BBHIhB", 1, 1, 312, 16_000, 0, 0)
CODED: dict[str, list[bytes]] = {
    # 64 kbit/s at 24,000 Hz, mono; the audio is nothing that anybody decodes here.
    "mp3": [b"\xff\xf3\x84\xc4" + bytes(188)] * 8,
    "aac": [b"\xff\xf1\x58\x40\x02\x9f\xfc" + bytes(13)] * 8,
    "opus": [
        _page(0, 2, OPUS_HEAD),
        _page(1, 0, b"OpusTags" + bytes(8)),
        *(_page(number, 0, b"\x08" * 30) for number in range(2, 9)),
        _page(9, 4, b"\x08" * 30),
    ],
    "wav": [b"RIFF" + bytes(40) + b"{ab}" * 100],
    "mulaw": [b"{ab}" * 100],
    "alaw": [b"{ab}" * 100],
    "pcm_s16le": [bytes(480)],
}


def _in_format(name: str, chunks: list[bytes], text: str = "Hello.") -> list[dict[str, Any]]:
    request = {"text": text, "format": name, "sample_rate": 16_000}
    start = {"sample_rate": 16_000, "format": name, "voice": "v", "seq": 1}
    size = sum(map(len, chunks))
    end = {"total_duration_s": 0.1, "elapsed_s": 0.1, "audio_bytes": size, "characters": 6}
    return [
        {"from": "client", "json": request},
        {"from": "endpoint", "json": {"type": "synthesis_start", **start}},
        *({"from": "endpoint", "octets": [{"hex": chunk.hex()}]} for chunk in chunks),
        {"from": "endpoint", "json": {"type": "synthesis_complete", "seq": 1, **end}},
    ]


CONVERSATIONS += [_in_format(name, chunks) for name, chunks in CODED.items()]
CONVERSATIONS += [_in_format("wav", [], "...")]
# Another utterance in the same session, and streams that are cut where no frame ends.
CONVERSATIONS += [
    [
        {**step, "json": {**step["json"], "seq": seq}}
        if "json" in step and step["from"] == "endpoint"
        else step
        for seq in (1, 2)
        for step in _in_format("opus", CODED["opus"])
    ],
    *(_in_format(name, [b"".join(CODED[name])[:-3]]) for name in ("mp3", "aac", "opus")),
    *(_in_format(name, [b"x" * 20]) for name in ("mp3", "aac", "opus")),
]
SESSION_FAULTS = [fault for fault in FAULTS.values() if fault.session is not SessionTamper]


@pytest.mark.parametrize("fault", SESSION_FAULTS, ids=lambda fault: fault.name)
def test_a_session_fault_shows(fault: Fault) -> None:
    for steps in CONVERSATIONS:
        done, touched = play(fault, steps)
        for action in done:
            assert isinstance(action, ToClient | ToEndpoint | Pause | CloseSession | CutSession)
            if isinstance(action, ToClient):
                assert action.frame.mask is None
        if touched:
            return
    pytest.fail("in no conversation does it do anything")


def test_without_a_fault_nothing_is_touched() -> None:
    honest = Fault("honest", "Nothing is wrong.", ("x.y",))
    assert not any(play(honest, steps)[1] for steps in CONVERSATIONS)


# --- HTTP ----------------------------------------------------------------------------------------

JSON = (("Content-Type", "application/json"),)
AUDIO = Head(
    200,
    (
        ("Content-Type", "audio/pcm;rate=24000;channels=1"),
        ("Utterwire-Sample-Rate", "24000"),
        ("Utterwire-Format", "pcm_s16le"),
        ("Utterwire-Voice", "v"),
        ("Utterwire-Request-Id", "a"),
        ("Utterwire-Duration-S", "0.01"),
        ("Utterwire-Audio-Bytes", "480"),
        ("Utterwire-Characters", "6"),
    ),
)
ENCODED = AUDIO.having("Content-Type", "audio/mpeg")
REFUSED = Head(400, (*JSON, ("Content-Length", "2")))
BUSY = Head(503, (*JSON, ("Retry-After", "1")))
EXCHANGES: list[tuple[Request, Head, bool]] = [
    (Request("POST", "/invocations", headers, body), head, clean)
    for body in [
        *EXTRA,
        b'{"text":"Hello."}',
        b'{"text":"Hello.","stream":false}',
        b'{"text":"Hello.","stream":7}',
        b'{"type":"close"}',
        b'{"text":"Hello.","speed":NaN}',
    ]
    for headers, head, clean in (
        (JSON, AUDIO, True),
        ((), AUDIO, False),
        (JSON, ENCODED, True),
        (JSON, REFUSED, True),
        (JSON, BUSY, True),
    )
] + [
    (Request("GET", "/ping", ()), Head(200), True),
    (Request("POST", "/ping", ()), Head(200), True),
    (Request("GET", "/invocations", ()), Head(405, (("Allow", "POST"),)), True),
]
BODY = b'{"type":"error","code":"invalid_voice","message":"No.","rejected":true}'
EVENTS = Head(200, (("Content-Type", "text/event-stream"),))
ACCEPTS = (
    *("text/event-stream", "Text/Event-Stream", "audio/pcm, text/event-stream", "*/*", "text/*"),
    *("text/event-stream;q=0", "text/event-streams"),
)
EXCHANGES += [
    (Request("POST", "/invocations", (*JSON, ("Accept", accept)), body), head, True)
    for accept in ACCEPTS
    for body in (
        *(b'{"text":"Hello."}', b'{"text":"Hello.","stream":"no"}', b"{", b"[]"),
        json.dumps({"text": "x" * 600}).encode(),
    )
    for head in (EVENTS, REFUSED)
]
STREAM = "".join(
    f"event: {name}\ndata: {json.dumps({'request_id': 'é'} | fields, ensure_ascii=False)}\n\n"
    for name, fields in (
        ("audio_stream_start", {"format": "pcm_s16le", "voice": "v", "sample_rate": 24000}),
        ("audio_chunk", {"seq": 0, "data": "+/8AAA=="}),
        ("audio_chunk", {"seq": 1, "data": "AQA="}),
        ("audio_chunk", {"seq": 2, "data": "AQA="}),
        ("audio_stream_end", {"total_chunks": 3, "duration_s": 0.1}),
        ("error", {"code": "internal", "message": "No."}),
        ("other", {}),
    )
).encode()


def exchange(tamper: ExchangeTamper, request: Request, head: Head, clean: bool) -> bool:
    """Whether a fault does anything but pass an exchange on."""
    tamper.request_sent, tamper.turn = request, 2
    passed = tamper.request(request)
    if isinstance(passed, tuple):
        return True
    body = STREAM if head is EVENTS else BODY
    parts = [*tamper.body(body[:10]), *tamper.body(body[10:])]
    changed = passed != request or tamper.head(passed, head) != head
    changed = changed or bool(tamper.passed_after(request))
    again = [*tamper.body(body[:10]), *tamper.body(body[10:])]
    rest, still_clean = tamper.end(clean=clean)
    changed = changed or any(isinstance(part, float) for part in (*parts, *again))
    sent = b"".join(part for part in (*parts, *again) if isinstance(part, bytes)) + rest
    return changed or sent != body * 2 or still_clean is not clean


EXCHANGE_FAULTS = [fault for fault in FAULTS.values() if fault.exchange is not ExchangeTamper]


@pytest.mark.parametrize("fault", EXCHANGE_FAULTS, ids=lambda fault: fault.name)
def test_an_http_fault_shows(fault: Fault) -> None:
    notes = {"speaking": 1, "broken": True, "speakers": {1, 2}}
    shared = Shared(shutting_down=True, notes=notes)
    assert any(
        exchange(fault.exchange(shared), request, head, clean) for request, head, clean in EXCHANGES
    )


def test_without_a_fault_no_exchange_is_touched() -> None:
    assert not any(
        exchange(ExchangeTamper(Shared()), request, head, clean)
        for request, head, clean in EXCHANGES
    )


def test_error_bodies_that_are_not_json_are_left_alone() -> None:
    tamper = FAULTS["http-errors-without-code"].exchange(Shared())
    request = Request("POST", "/invocations?x", JSON, b"{")
    assert tamper.head(request, REFUSED).get("content-length") is None
    assert list(tamper.body(b"<html>")) == []
    assert tamper.end(clean=True) == (b"<html>", True)
