"""The judges of sessions, on transcripts made by hand: what is legal passes, what is not fails."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, Self

import pytest
from utterwire_conformance.check import CHECKS, Account
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.judges import second_opinion
from utterwire_conformance.judging import chosen_checks, judge_accounts
from utterwire_conformance.transcript import Case, Entry, Transcript
from utterwire_conformance.verdict import Judgement, Verdict
from utterwire_conformance.wire import close_payload

TONE = struct.pack("<h", 9000) * 2400


class Script:
    """A session written line by line; each line is 10 ms after the one before."""

    def __init__(self, scenario: str = "order", claims: EndpointClaims | None = None) -> None:
        self.transcript = Transcript(scenario, claims=claims or EndpointClaims())
        self.now = 0.0
        self.number = 0
        self.sent = 0
        self.bytes = 0
        self.text = ""

    def line(self, direction: Any, kind: Any, **fields: Any) -> Self:
        self.now += 0.01
        self.transcript.add(Entry(self.now, direction, kind, self.number, **fields))
        return self

    def open(self, status: int = 101, extensions: str = "") -> Self:
        self.number += 1
        self.sent = 0
        headers = (("sec-websocket-extensions", extensions),) if extensions else ()
        self.line("out", "open", target="/invocations-bidirectional-stream", method="GET")
        return self.line("in", "open", status=status, headers=headers)

    def wait(self, seconds: float) -> Self:
        self.now += seconds
        return self

    def note(self, text: str) -> Self:
        return self.line("note", "note", text=text)

    def say(self, message: Any, kind: str = "text", case: Case | None = None) -> Self:
        if case is not None:
            self.note(case.to_note())
        self.sent += 1
        if isinstance(message, dict):
            self.text = str(message.get("text", ""))
            message = json.dumps(message).encode()
        return self.line("out", kind, data=message)

    def hear(self, frame: str = "text", /, **fields: Any) -> Self:
        return self.line("in", frame, data=json.dumps(fields).encode())

    def start(self, seq: int | None = 1, **fields: Any) -> Self:
        self.bytes = 0
        body: dict[str, Any] = {"sample_rate": 24000, "format": "pcm_s16le", "voice": "v"}
        body |= fields
        return self.hear(type="synthesis_start", **_seq(seq), **body)

    def pcm(self, data: bytes = TONE, kind: str = "binary", **fields: Any) -> Self:
        self.bytes += len(data)
        return self.line("in", kind, data=data, **fields)

    def complete(self, seq: int | None = 1, **fields: Any) -> Self:
        body: dict[str, Any] = {
            "total_duration_s": self.bytes / 48000,
            "elapsed_s": 0.01,
            "audio_bytes": self.bytes,
            "characters": len(self.text),
        }
        return self.hear(type="synthesis_complete", **_seq(seq), **(body | fields))

    def speech(self, seq: int | None = 1, data: bytes = TONE, **fields: Any) -> Self:
        return self.start(seq, **fields).pcm(data).complete(seq, **fields)

    def error(self, seq: int | None, code: str, **fields: Any) -> Self:
        body: dict[str, Any] = {"code": code, "message": "no", "retryable": False}
        body |= {"rejected": True} | fields
        body = {name: value for name, value in body.items() if value is not None}
        return self.hear(type="error", **_seq(seq), **body)

    def farewell(self, reason: str = "client_close", **fields: Any) -> Self:
        return self.hear(type="session_closed", reason=reason, **fields)

    def hang_up(self, code: int | None = 1000) -> Self:
        return self.line("in", "close", code=code, data=close_payload(code)).line("in", "eof")

    def goodbye(self) -> Self:
        """The client closes and the endpoint answers."""
        self.line("out", "close", code=1000, data=close_payload(1000))
        return self.hang_up()

    def judge(self, check: str) -> Judgement:
        row = CHECKS[check]
        evidence = [Account.of(self.transcript)]
        return row.judge(evidence)


def _seq(seq: int | None) -> dict[str, Any]:
    return {} if seq is None else {"seq": seq}


HI = {"text": "Hello."}
LIMITS = EndpointClaims(max_waiting=8, idle_s=4, shutdown_s=3, max_message_bytes=70_000)


def case(check: str, expect: Any = "accept", *codes: str, name: str = "a case") -> Case:
    return Case(name, check, expect, codes)


def talk() -> Script:
    """A session in which all goes well."""
    script = Script().open().say(HI | {"request_id": "a"})
    script.speech(1, request_id="a")
    script.say(b"[]").error(2, "not_an_object")
    script.say(HI).speech(3)
    return script.goodbye()


GENERAL = [check.id for check in chosen_checks() if check.general]


@pytest.mark.parametrize(
    "check",
    [
        "order.start_first",
        "order.nothing_after_terminal",
        "order.one_terminal",
        "order.fifo",
        "order.no_mixing",
        "order.complete_had_start",
        "session.stays_open",
        "reject.one_error",
        "reject.session_survives",
        "reject.in_order",
        "reject.no_harm",
        "seq.counts_messages",
        "request_id.echoed",
        "error.registered_code",
        "error.retryable",
        "error.message",
        "control.schema",
        "control.strict_json",
        "control.size",
        "control.text_frame",
        "audio.binary_frame",
        "chunk.unfragmented",
        "audio.whole_samples",
        "audio.chunk_size",
        "audio.never_json",
        "audio.no_leading_brace",
        "audio.no_header",
        "audio.default_format",
        "start.fields",
        "complete.audio_bytes",
        "complete.duration",
        "complete.elapsed",
        "complete.characters",
        "ws.path",
        "ws.close_echo",
    ],
)
def test_a_good_session_passes(check: str) -> None:
    judgement = talk().judge(check)
    assert judgement.verdict is Verdict.PASS, judgement
    account = [Account.of(talk().transcript)]
    assert second_opinion(CHECKS[check].requirement, "", account) is None


KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ANSWER = {
    "upgrade": "WebSocket",
    "connection": "keep-alive, Upgrade",
    "sec-websocket-accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"sec-websocket-accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOp="}, "Accept"),
        ({"sec-websocket-accept": ""}, "Accept"),
        ({"upgrade": "h2c"}, "Upgrade: websocket"),
        ({"connection": "close"}, "Connection: Upgrade"),
        ({"sec-websocket-protocol": "chat"}, "not offered"),
        ({"sec-websocket-extensions": "x"}, "not offered"),
    ],
)
def test_a_handshake_that_clients_give_up(changes: dict[str, str], said: str | None) -> None:
    script = Script("probe")
    script.number += 1
    script.line("out", "open", headers=(("Sec-WebSocket-Key", KEY),))
    script.line("in", "open", status=101, headers=tuple((ANSWER | changes).items()))
    judgement = script.judge("ws.path")
    if said is None:
        assert judgement.verdict is Verdict.PASS
    else:
        assert judgement.verdict is Verdict.FAIL
        assert said in judgement.reason


BAD: list[tuple[str, str, Callable[[], Script]]] = [
    (
        "order.start_first",
        "audio before the start",
        lambda: Script().open().say(HI).pcm().start().complete(),
    ),
    (
        "order.nothing_after_terminal",
        "audio after the end",
        lambda: Script().open().say(HI).start().pcm().complete().pcm(),
    ),
    (
        "order.nothing_after_terminal",
        "less audio than told, then more, while another waits",
        lambda: Script().open().say(HI).say(HI).start().complete(audio_bytes=4800).pcm(),
    ),
    (
        "order.nothing_after_terminal",
        "a start after the end",
        lambda: Script().open().say(HI).speech().start(),
    ),
    ("order.one_terminal", "two ends", lambda: Script().open().say(HI).speech().complete()),
    (
        "order.one_terminal",
        "hangs up in the middle",
        lambda: Script().open().say(HI).start().pcm().hang_up(),
    ),
    (
        "order.one_terminal",
        "never ends",
        lambda: Script().open().say(HI).start().pcm().note("in vain: 1"),
    ),
    ("order.one_terminal", "never begins", lambda: Script().open().say(HI).note("in vain: 1")),
    (
        "order.one_terminal",
        "the next is begun",
        lambda: Script().open().say(HI).say(HI).start(1).pcm().start(2).pcm().complete(2),
    ),
    (
        "order.fifo",
        "the second first",
        lambda: Script().open().say(HI).say(HI).speech(2).speech(1),
    ),
    (
        "order.no_mixing",
        "a start in between",
        lambda: Script().open().say(HI).say(HI).start(1).start(2).complete(1).complete(2),
    ),
    ("order.complete_had_start", "no start", lambda: Script().open().say(HI).complete()),
    (
        "order.complete_had_start",
        "two starts",
        lambda: Script().open().say(HI).start().start().complete(),
    ),
    ("session.stays_open", "hangs up", lambda: Script().open().say(HI).speech().hang_up()),
    (
        "session.stays_open",
        "says farewell unasked",
        lambda: Script().open().say(HI).speech().farewell("policy", last_seq=1),
    ),
    (
        "session.stays_open",
        "is silent",
        lambda: Script().open().say(HI).speech().say(HI).note("in vain: 2"),
    ),
    (
        "reject.one_error",
        "twice",
        lambda: Script().open().say(b"[]").error(1, "not_an_object").error(1, "not_an_object"),
    ),
    (
        "reject.one_error",
        "rejected and spoken",
        lambda: Script().open().say(HI).error(1, "internal").speech(1),
    ),
    ("reject.one_error", "no seq", lambda: Script().open().say(b"[]").error(None, "not_an_object")),
    (
        "reject.one_error",
        "no id",
        lambda: Script().open().say({"text": 7, "request_id": "x"}).error(1, "invalid_request"),
    ),
    (
        "reject.one_error",
        "not marked",
        lambda: Script().open().say(b"[]").error(1, "not_an_object", rejected=None),
    ),
    (
        "reject.one_error",
        "passed over",
        lambda: Script().open().say(b"[]").say(HI).speech(2),
    ),
    ("reject.session_survives", "drops", lambda: Script().open().say(b"x").hang_up(1011)),
    (
        "reject.session_survives",
        "closes after",
        lambda: Script().open().say(b"x").error(1, "invalid_json").hang_up(),
    ),
    (
        "reject.session_survives",
        "is silent after",
        lambda: Script().open().say(b"x").error(1, "invalid_json").say(HI).note("in vain: 2"),
    ),
    (
        "reject.in_order",
        "too early",
        lambda: Script().open().say(HI).say(b"x").error(2, "invalid_json").speech(1),
    ),
    (
        "reject.in_order",
        "too late",
        lambda: Script().open().say(b"x").say(HI).speech(2).error(1, "invalid_json"),
    ),
    (
        "reject.no_harm",
        "fails beside",
        lambda: (
            Script()
            .open()
            .say(HI)
            .say(b"x")
            .start(1)
            .error(1, "internal", rejected=None, retryable=True)
            .error(2, "invalid_json")
        ),
    ),
    ("seq.counts_messages", "none", lambda: Script().open().say(HI).speech(None)),
    ("seq.counts_messages", "not yet sent", lambda: Script().open().say(HI).speech(2)),
    (
        "seq.counts_messages",
        "another id",
        lambda: (
            Script()
            .open()
            .say(HI | {"request_id": "a"})
            .say(HI | {"request_id": "b"})
            .speech(2, request_id="a")
        ),
    ),
    (
        "seq.counts_messages",
        "another end",
        lambda: Script().open().say(HI).say(HI).start(1).pcm().complete(2),
    ),
    (
        "seq.counts_messages",
        "a keepalive",
        lambda: Script().open().say({"type": "keepalive"}).say(HI).speech(1),
    ),
    (
        "request_id.echoed",
        "changed",
        lambda: Script().open().say(HI | {"request_id": "A"}).speech(1, request_id="a"),
    ),
    ("request_id.echoed", "invented", lambda: Script().open().say(HI).speech(1, request_id="a")),
    ("error.registered_code", "own", lambda: Script().open().say(b"x").error(1, "bad_json")),
    (
        "error.retryable",
        "wrong",
        lambda: Script().open().say(b"x").error(1, "invalid_json", retryable=True),
    ),
    (
        "error.message",
        "empty",
        lambda: Script().open().say(b"x").error(1, "invalid_json", message=""),
    ),
    (
        "control.schema",
        "a field is missing",
        lambda: Script().open().say(HI).hear(type="synthesis_start", seq=1),
    ),
    ("control.schema", "unknown type", lambda: Script().open().hear(type="hi")),
    (
        "control.strict_json",
        "a name twice",
        lambda: Script().open().line("in", "text", data=b'{"type": "x_a", "a": 1, "a": 1}'),
    ),
    (
        "control.strict_json",
        "space before",
        lambda: Script().open().line("in", "text", data=b' {"type": "x_a"}'),
    ),
    (
        "control.size",
        "too long",
        lambda: Script().open().hear(type="x_a", long="x" * 70_000),
    ),
    (
        "control.text_frame",
        "binary",
        lambda: Script().open().hear("binary", type="session_closed", reason="idle", last_seq=0),
    ),
    (
        "audio.binary_frame",
        "text",
        lambda: Script().open().say(HI).start().pcm(b"AAAA", "text"),
    ),
    (
        "chunk.unfragmented",
        "two frames",
        lambda: Script().open().say(HI).start().pcm(TONE, fin=False).pcm(TONE, "cont"),
    ),
    ("audio.whole_samples", "odd", lambda: Script().open().say(HI).speech(1, b"abc")),
    ("audio.chunk_size", "empty", lambda: Script().open().say(HI).speech(1, b"")),
    ("audio.chunk_size", "huge", lambda: Script().open().say(HI).speech(1, bytes(65_538))),
    ("audio.never_json", "braces", lambda: Script().open().say(HI).speech(1, b"{0000} \n\r\t")),
    (
        "audio.never_json",
        "a spelt message",
        lambda: Script().open().say(HI).start().pcm(b'{"type": "synthesis_complete"}').complete(),
    ),
    (
        "audio.no_leading_brace",
        "brace",
        lambda: Script().open().say(HI).speech(1, b"{\x00\x00\x00"),
    ),
    ("audio.no_header", "wav", lambda: Script().open().say(HI).speech(1, b"RIFF" + TONE)),
    (
        "audio.default_format",
        "another rate",
        lambda: Script().open().say(HI).start(sample_rate=16000),
    ),
    (
        "start.fields",
        "another voice than asked for",
        lambda: Script().open().say(HI | {"voice": "w"}).start(),
    ),
    (
        "start.fields",
        "the default changes",
        lambda: Script().open().say(HI).speech(1).say(HI).start(2, voice="w"),
    ),
    (
        "complete.audio_bytes",
        "one too many",
        lambda: Script().open().say(HI).start().pcm().complete(audio_bytes=4801),
    ),
    (
        "complete.duration",
        "wrong",
        lambda: Script().open().say(HI).start().pcm().complete(total_duration_s=0.2),
    ),
    (
        "complete.elapsed",
        "too long",
        lambda: Script().open().say(HI).start().pcm().complete(elapsed_s=9.0),
    ),
    (
        "complete.elapsed",
        "a boolean",
        lambda: Script().open().say(HI).start().pcm().complete(elapsed_s=False),
    ),
    (
        "complete.characters",
        "bytes",
        lambda: Script().open().say({"text": "Grüße"}).start().pcm().complete(characters=7),
    ),
    ("ws.path", "404", lambda: Script("probe").open(404)),
    ("ws.path", "500", lambda: Script("probe").open(500)),
    (
        "ws.close_echo",
        "no answer",
        lambda: (
            Script()
            .open()
            .line("out", "close", code=1000, data=close_payload(1000))
            .line("in", "eof")
        ),
    ),
    ("ws.no_compression", "agreed", lambda: Script("compression").open(101, "permessage-deflate")),
    ("ws.no_compression", "refused", lambda: Script("compression").open(400)),
    (
        "ws.ping",
        "another payload",
        lambda: Script().open().line("out", "ping", data=b"a").line("in", "pong", data=b"b"),
    ),
    (
        "ws.ping",
        "a pong only for the next message's ping",
        lambda: (
            Script()
            .open()
            .line("out", "ping", data=b"a")
            .say(HI)
            .speech(1)
            .line("out", "ping", data=b"b")
            .line("in", "pong", data=b"b")
        ),
    ),
    (
        "ws.invalid_utf8_text",
        "answered",
        lambda: Script().open().note("abuse").say(b"\xff").error(1, "invalid_utf8"),
    ),
    (
        "ws.protocol_error",
        "1000",
        lambda: Script().open().note("abuse").note("breach: no mask").hang_up(1000),
    ),
    (
        "ws.message_too_big",
        "spoken",
        lambda: Script().open().note("too big: begins").say(HI).speech(),
    ),
    (
        "ws.message_too_big",
        "told, and closed with 1011",
        lambda: (
            Script()
            .open()
            .note("too big: begins")
            .farewell("message_too_big", last_seq=0)
            .hang_up(1011)
        ),
    ),
    (
        "close.drains",
        "not spoken",
        lambda: Script().open().say(HI).say({"type": "close"}).farewell(seq=2, last_seq=2),
    ),
    (
        "close.session_closed",
        "never",
        lambda: Script().open().say({"type": "close"}).note("no session_closed: waited in vain"),
    ),
    (
        "close.session_closed",
        "wrong seq",
        lambda: Script().open().say({"type": "close"}).farewell(seq=2, last_seq=1),
    ),
    (
        "close.session_closed",
        "before an error that is due",
        lambda: (
            Script()
            .open()
            .say(b"x")
            .say({"type": "close"})
            .farewell(seq=2, last_seq=2)
            .error(1, "invalid_json")
        ),
    ),
    (
        "close.ignores_later",
        "answers",
        lambda: (
            Script()
            .open()
            .say({"type": "close"})
            .say(b"x")
            .error(2, "invalid_json")
            .farewell(seq=1, last_seq=1)
        ),
    ),
    (
        "reject.unclaimed_types",
        "carried out",
        lambda: (
            Script()
            .open()
            .say(
                {"type": "cancel"},
                case=case("reject.unclaimed_types", "reject", "unknown_type"),
            )
            .hear(type="cancel_done", seq=1, count=0)
        ),
    ),
    (
        "close.last_word",
        "more",
        lambda: Script().open().say({"type": "close"}).farewell(seq=1, last_seq=1).pcm(),
    ),
    (
        "close.endpoint_waits",
        "at once",
        lambda: Script().open().say({"type": "close"}).farewell(seq=1, last_seq=1).hang_up(),
    ),
    (
        "close.endpoint_gives_up",
        "never",
        lambda: (
            Script()
            .open()
            .say({"type": "close"})
            .farewell(seq=1, last_seq=1)
            .note("waited for the endpoint's close: 7.0")
        ),
    ),
    (
        "close.endpoint_gives_up",
        "late",
        lambda: (
            Script().open().say({"type": "close"}).farewell(seq=1, last_seq=1).wait(6.0).hang_up()
        ),
    ),
    (
        "close.code",
        "1011",
        lambda: (
            Script()
            .open()
            .say({"type": "close"})
            .farewell(seq=1, last_seq=1)
            .wait(3.0)
            .hang_up(1011)
        ),
    ),
    (
        "close.code",
        "no close frame",
        lambda: (
            Script()
            .open()
            .say({"type": "close"})
            .farewell(seq=1, last_seq=1)
            .wait(3.0)
            .line("in", "eof")
        ),
    ),
    (
        "idle.session_closed",
        "hangs up",
        lambda: Script("idle").open().note("idle limit: 4").wait(4.0).hang_up(),
    ),
    (
        "idle.session_closed",
        "early",
        lambda: Script("idle").open().note("idle limit: 4").wait(1.0).farewell("idle", last_seq=0),
    ),
    (
        "idle.reset_by_messages",
        "messages do not count",
        lambda: (
            Script("idle-reset")
            .open()
            .note("idle limit: 4")
            .say({"type": "keepalive"})
            .farewell("idle", last_seq=0)
        ),
    ),
    (
        "session_closed.last_seq",
        "a seq",
        lambda: Script().open().farewell("idle", seq=1, last_seq=0),
    ),
    (
        "session_closed.last_seq",
        "too low",
        lambda: Script().open().say(HI).speech().farewell("idle", last_seq=0),
    ),
    (
        "message.keepalive",
        "answered",
        lambda: Script().open().say({"type": "keepalive"}).hear(type="alive", seq=1),
    ),
    (
        "message.keepalive",
        "not counted",
        lambda: (
            Script()
            .open()
            .say({"type": "keepalive"})
            .say(HI | {"request_id": "a"})
            .speech(1, request_id="a")
        ),
    ),
    (
        "message.keepalive",
        "hangs up",
        lambda: Script().open().say({"type": "keepalive"}).say(HI).hang_up(),
    ),
    (
        "accept.defaults",
        "rejected",
        lambda: Script().open().say(HI, case=case("accept.defaults")).error(1, "invalid_voice"),
    ),
    (
        "accept.defaults",
        "hangs up",
        lambda: Script().open().say(HI, case=case("accept.defaults")).hang_up(),
    ),
    (
        "accept.defaults",
        "passed over",
        lambda: Script().open().say(HI, case=case("accept.defaults")).say(HI).speech(2),
    ),
    (
        "reject.invalid_json",
        "another code",
        lambda: (
            Script()
            .open()
            .say(b"x", case=case("reject.invalid_json", "reject", "invalid_json"))
            .error(1, "internal")
        ),
    ),
    (
        "reject.invalid_json",
        "accepted",
        lambda: (
            Script()
            .open()
            .say(b"x", case=case("reject.invalid_json", "reject", "invalid_json"))
            .speech(1)
        ),
    ),
    (
        "reject.invalid_json",
        "hangs up",
        lambda: (
            Script()
            .open()
            .say(b"x", case=case("reject.invalid_json", "reject", "invalid_json"))
            .hang_up()
        ),
    ),
    (
        "reject.odd_json_survives",
        "closes after the rejection",
        lambda: (
            Script()
            .open()
            .say(b"x", case=case("reject.odd_json_survives", "either", "invalid_json"))
            .error(1, "invalid_json")
            .hang_up()
        ),
    ),
    (
        "audio.unspeakable",
        "has audio",
        lambda: Script().open().say({"text": "..."}, case=case("audio.unspeakable")).speech(),
    ),
    (
        "audio.unspeakable",
        "is refused",
        lambda: (
            Script()
            .open()
            .say({"text": "..."}, case=case("audio.unspeakable"))
            .error(1, "empty_text")
        ),
    ),
    (
        "read.pong_while_busy",
        "only afterwards",
        lambda: (
            Script()
            .open()
            .say(HI)
            .start()
            .pcm()
            .line("out", "ping", data=b"while busy")
            .complete()
            .line("in", "pong", data=b"while busy")
        ),
    ),
    (
        "read.always",
        "the flood is not taken",
        lambda: Script("flood").open().say(HI).start().pcm().say({"type": "keepalive"}).complete(),
    ),
    (
        "read.always",
        "queue_full waits its turn",
        lambda: (
            Script("queue-full")
            .open()
            .say(HI)
            .say(HI)
            .speech(1)
            .error(2, "queue_full", retryable=True)
        ),
    ),
    (
        "queue.full",
        "another code",
        lambda: _queue("reject").error(2, "internal", retryable=True),
    ),
    ("queue.full", "within the limit", lambda: _queue("accept").error(2, "queue_full")),
    ("queue.full", "past the limit", lambda: _queue("reject").speech(1).speech(2)),
    ("queue.full", "not served", lambda: _queue("either").speech(1).note("in vain: 2")),
    (
        "queue.full",
        "not freed",
        lambda: (
            _queue("reject")
            .error(2, "queue_full")
            .speech(1)
            .say(HI | {"request_id": "after"})
            .error(3, "queue_full", request_id="after")
        ),
    ),
    (
        "disconnect.isolated",
        "the next is refused",
        lambda: (
            Script("disconnect")
            .open()
            .say(HI | {"request_id": "after"})
            .error(1, "internal", request_id="after")
        ),
    ),
    (
        "disconnect.isolated",
        "the next is not served",
        lambda: Script("disconnect").open().say(HI | {"request_id": "beside"}).note("in vain: 1"),
    ),
    (
        "disconnect.isolated",
        "nobody gets in",
        lambda: Script("disconnect").open().note("refused after a disconnect: HTTP 503"),
    ),
    ("reject.duplicate_request_id", "accepted", lambda: _duplicate_accepted()),
    (
        "request_id.reusable",
        "an id that was cancelled is kept",
        lambda: _cancelled().error(3, "duplicate_request_id", request_id="a"),
    ),
    ("audio.speaks_text", "silence", lambda: _spoken(one=bytes(4800))),
    ("audio.speaks_text", "the same for another text", lambda: _spoken(other=TONE)),
    ("audio.speaks_text", "both no longer than one", lambda: _spoken(both=TONE[2:])),
    ("audio.speaks_text", "silence behind", lambda: _spoken(both=TONE + bytes(9600))),
    ("audio.speaks_text", "a beep a letter", lambda: _spoken(two=TONE, eight=TONE)),
    ("accept.defaults_kept", "as fast as before", lambda: _spoken(after=TONE[:2400])),
    ("audio.speed", "no faster", lambda: _spoken(fast=TONE * 2)),
    ("audio.streamed", "all at the end", lambda: _streamed(0.9)),
    (
        "message.frame_kinds_alike",
        "binary is not read",
        lambda: _kinds().say(HI, "binary", _kind("valid, binary")).note("in vain: 3"),
    ),
    (
        "message.frame_kinds_alike",
        "binary sounds different",
        lambda: _kinds().say(HI, "binary", _kind("valid, binary")).speech(3, TONE * 2),
    ),
    (
        "message.frame_kinds_alike",
        "binary rejections differ",
        lambda: (
            _kinds()
            .say(b"x", "text", _kind("not JSON, text", "reject", "invalid_json"))
            .error(3, "invalid_json")
            .say(b"x", "binary", _kind("not JSON, binary", "reject", "invalid_json"))
            .error(4, "internal")
        ),
    ),
    (
        "message.frame_kinds_alike",
        "a binary close is not read",
        lambda: _kinds().say({"type": "close"}, "binary").note("no session_closed: in vain"),
    ),
    (
        "message.fragmentation_invisible",
        "fragments are rejected",
        lambda: _whole().say(HI, "text", _cut("in two, text")).error(3, "invalid_json"),
    ),
    (
        "message.fragmentation_invisible",
        "fragments sound different",
        lambda: _whole().say(HI, "text", _cut("in two, text")).speech(3, TONE * 2),
    ),
]


def _duplicate_accepted() -> Script:
    script = Script().open().say(HI | {"request_id": "x"}).start(1, request_id="x")
    script.say(
        HI | {"request_id": "x"},
        case=case("reject.duplicate_request_id", "reject", "duplicate_request_id"),
    )
    script.pcm().complete(1, request_id="x", elapsed_s=0.04)
    return script.speech(2, request_id="x")


def _cancelled(ended: bool = True) -> Script:
    """An utterance is cancelled, and its id used again."""
    script = Script("cancel-named").open().say(HI | {"request_id": "a"}).start(1, request_id="a")
    script.say({"type": "cancel", "request_id": "a"})
    if ended:
        script.hear(type="cancelled", seq=1, request_id="a", audio_bytes=0)
    return script.say(HI | {"request_id": "a"})


def _queue(expect: str) -> Script:
    codes = () if expect == "accept" else ("queue_full",)
    return Script("queue-full").open().say(HI).say(HI, case=case("queue.full", expect, *codes))


def _spoken(
    one: bytes = TONE,
    other: bytes = TONE[:-4] + b"\x01\x02\x03\x04",
    both: bytes = TONE * 2,
    slow: bytes = TONE * 2,
    fast: bytes = TONE[:2400],
    after: bytes = TONE,
    two: bytes = TONE + b"\x02\x10",
    eight: bytes = TONE + b"\x08\x10",
) -> Script:
    script = Script("spoken-texts").open()
    parts = {
        "one text": one,
        "the same again": one,
        "another text": other,
        "both texts": both,
        "slow": slow,
        "fast": fast,
        "as before": after,
        "ends in 2": two,
        "ends in 8": eight,
    }
    for number, (name, audio) in enumerate(parts.items(), 1):
        script.say(HI, case=case("audio.speaks_text", name=name)).speech(number, audio)
    return script.goodbye()


def _streamed(share: float) -> Script:
    script = Script("streamed").open().say(HI, case=case("audio.streamed"))
    script.start().wait(10 * share)
    for _ in range(100):
        script.pcm(TONE).wait(10 * (1 - share) / 100)
    return script.pcm(bytes(60_000)).complete()


def _kind(name: str, expect: Any = "accept", *codes: str) -> Case:
    return case("message.frame_kinds_alike", expect, *codes, name=name)


def _kinds() -> Script:
    script = Script("frame-kinds").open()
    script.say(HI, case=_kind("valid, text")).speech(1)
    return script.say(HI, case=_kind("valid, text again")).speech(2)


def _cut(name: str) -> Case:
    return case("message.fragmentation_invisible", name=name)


def _whole() -> Script:
    script = Script("fragments").open()
    script.say(HI, case=_cut("whole, text")).speech(1)
    return script.say(HI, case=_cut("whole again, text")).speech(2)


@pytest.mark.parametrize(("check", "what", "script"), BAD, ids=[f"{b[0]}: {b[1]}" for b in BAD])
def test_what_is_not_legal_fails(check: str, what: str, script: Callable[[], Script]) -> None:
    judgement = script().judge(check)
    assert judgement.verdict is Verdict.FAIL, judgement
    assert judgement.reason.endswith((".", ")")), judgement
    assert judgement.legal
    assert judgement.advice
    assert judgement.scenarios


GOOD: list[tuple[str, str, Callable[[], Script]]] = [
    (
        "request_id.reusable",
        "after a cancel",
        lambda: _cancelled().speech(3, request_id="a"),
    ),
    ("audio.speaks_text", "", _spoken),
    ("accept.defaults_kept", "", _spoken),
    ("audio.speed", "", _spoken),
    ("audio.streamed", "", lambda: _streamed(0.05)),
    (
        "audio.streamed",
        "too fast to tell",
        lambda: (
            Script()
            .open()
            .say(HI, case=case("audio.streamed"))
            .start()
            .pcm(bytes(60_000))
            .pcm(bytes(60_000))
            .pcm(bytes(60_000))
            .pcm(bytes(60_000))
            .pcm(bytes(60_000))
            .pcm(bytes(60_000))
            .pcm(bytes(60_000))
            .pcm(bytes(60_000))
            .complete()
        ),
    ),
    (
        "audio.unspeakable",
        "",
        lambda: (
            Script().open().say({"text": "..."}, case=case("audio.unspeakable")).start().complete()
        ),
    ),
    ("ws.no_compression", "", lambda: Script("compression").open()),
    (
        "ws.ping",
        "a later pong will do",
        lambda: (
            Script()
            .open()
            .line("out", "ping", data=b"a")
            .line("out", "ping", data=b"b")
            .line("in", "pong", data=b"b")
        ),
    ),
    ("ws.invalid_utf8_text", "", lambda: Script().open().note("abuse").say(b"\xff").hang_up(1007)),
    (
        "ws.protocol_error",
        "",
        lambda: Script().open().note("abuse").note("breach: x").hang_up(1002),
    ),
    ("ws.message_too_big", "", lambda: Script().open().note("too big: begins").hang_up(1009)),
    (
        "ws.message_too_big",
        "told",
        lambda: Script().open().note("too big: begins").farewell("message_too_big", last_seq=0),
    ),
    (
        "close.drains",
        "",
        lambda: Script().open().say(HI).say({"type": "close"}).speech().farewell(seq=2, last_seq=2),
    ),
    (
        "close.session_closed",
        "",
        lambda: Script().open().say({"type": "close"}).farewell(seq=1, last_seq=1),
    ),
    (
        "close.ignores_later",
        "",
        lambda: Script().open().say({"type": "close"}).say(b"x").farewell(seq=1, last_seq=1),
    ),
    (
        "close.last_word",
        "",
        lambda: Script().open().say({"type": "close"}).farewell(seq=1, last_seq=1),
    ),
    (
        "close.endpoint_waits",
        "",
        lambda: (
            Script().open().say({"type": "close"}).farewell(seq=1, last_seq=1).wait(2.0).hang_up()
        ),
    ),
    (
        "close.endpoint_waits",
        "for ever",
        lambda: (
            Script()
            .open()
            .say({"type": "close"})
            .farewell(seq=1, last_seq=1)
            .note("waited for the endpoint's close: 7")
        ),
    ),
    (
        "close.endpoint_gives_up",
        "",
        lambda: (
            Script().open().say({"type": "close"}).farewell(seq=1, last_seq=1).wait(4.0).hang_up()
        ),
    ),
    (
        "close.code",
        "on shutdown",
        lambda: (
            Script()
            .open()
            .note("shutdown: begins")
            .farewell("going_away", last_seq=0)
            .wait(3.0)
            .hang_up(1001)
        ),
    ),
    (
        "close.code",
        "after a message too big",
        lambda: Script().open().farewell("message_too_big", last_seq=0).hang_up(1009),
    ),
    (
        "idle.session_closed",
        "",
        lambda: Script("idle").open().note("idle limit: 4").wait(4.0).farewell("idle", last_seq=0),
    ),
    (
        "idle.reset_by_messages",
        "",
        lambda: Script().open().note("idle limit: 4").say(HI).speech(),
    ),
    (
        "session_closed.last_seq",
        "",
        lambda: Script().open().say(HI).speech().farewell("idle", last_seq=1),
    ),
    (
        "message.keepalive",
        "",
        lambda: Script().open().say({"type": "keepalive"}).say(HI).speech(2),
    ),
    (
        "read.pong_while_busy",
        "",
        lambda: (
            Script()
            .open()
            .say(HI)
            .start()
            .pcm()
            .line("out", "ping", data=b"while busy")
            .line("in", "pong", data=b"while busy")
            .complete()
        ),
    ),
    (
        "read.always",
        "",
        lambda: (
            Script("flood")
            .open()
            .say(HI)
            .start()
            .pcm()
            .say({"type": "keepalive"})
            .line("out", "ping", data=b"after the flood")
            .line("in", "pong", data=b"after the flood")
            .complete()
        ),
    ),
    (
        "read.always",
        "queue_full at once",
        lambda: (
            Script("queue-full").open().say(HI).say(HI).start(1).error(2, "queue_full").complete(1)
        ),
    ),
    ("queue.full", "", lambda: _queue("reject").error(2, "queue_full").speech(1)),
    (
        "disconnect.isolated",
        "",
        lambda: Script().open().say(HI | {"request_id": "after"}).speech(1, request_id="after"),
    ),
    ("reject.odd_json_survives", "spoken", lambda: _odd().speech()),
    ("reject.odd_json_survives", "rejected", lambda: _odd().error(1, "invalid_json")),
    (
        "message.frame_kinds_alike",
        "",
        lambda: _kinds().say(HI, "binary", _kind("valid, binary")).speech(3),
    ),
    (
        "message.frame_kinds_alike",
        "a session with another default voice",
        lambda: (
            _kinds().open().say(HI, "binary", _kind("valid, binary")).speech(1, TONE * 2, voice="w")
        ),
    ),
    (
        "message.frame_kinds_alike",
        "a pause before what waited",
        lambda: (
            _kinds()
            .say(HI, "binary", _kind("valid, binary, while an utterance runs"))
            .speech(3, bytes(960) + TONE)
        ),
    ),
    (
        "message.fragmentation_invisible",
        "",
        lambda: _whole().say(HI, case=_cut("in two, text")).speech(3),
    ),
]


def _odd() -> Script:
    return Script().open().say(HI, case=case("reject.odd_json_survives", "either", "invalid_json"))


@pytest.mark.parametrize(("check", "what", "script"), GOOD, ids=[f"{g[0]} {g[1]}" for g in GOOD])
def test_what_is_legal_passes(check: str, what: str, script: Callable[[], Script]) -> None:
    judgement = script().judge(check)
    assert judgement.verdict is Verdict.PASS, judgement


TWICE = HI | {"request_id": "x"}
DUPLICATE = case("reject.duplicate_request_id", "reject", "duplicate_request_id")

UNSEEN: list[tuple[str, str, Callable[[], Script]]] = [
    (
        "ws.message_too_big",
        "the budget was spent",
        lambda: Script("too-big").open().note("too big: begins").line("out", "eof"),
    ),
    (
        "ws.invalid_utf8_text",
        "the budget was spent",
        lambda: Script("invalid-utf8-text").open().note("abuse").line("out", "eof"),
    ),
    (
        "request_id.reusable",
        "the cancel was not seen to be done",
        lambda: _cancelled(ended=False).error(3, "duplicate_request_id", request_id="a"),
    ),
    ("ws.path", "no room", lambda: Script("probe").open(503)),
    ("ws.no_compression", "no room", lambda: Script("compression").open(429)),
    ("accept.defaults_kept", "no faster", lambda: _spoken(fast=TONE)),
    ("accept.defaults_kept", "nothing spoken", lambda: Script("spoken-texts").open()),
    (
        "reject.duplicate_request_id",
        "the first had ended",
        lambda: (
            Script()
            .open()
            .say(TWICE)
            .speech(1, request_id="x")
            .say(TWICE, case=DUPLICATE)
            .speech(2, request_id="x")
        ),
    ),
    ("accept.defaults", "another rule is broken", lambda: Script().open().say(HI).hang_up()),
    (
        "accept.defaults",
        "no room",
        lambda: (
            Script()
            .open()
            .say(HI, case=case("accept.defaults"))
            .error(1, "overloaded", retryable=True)
        ),
    ),
    (
        "reject.invalid_json",
        "no room",
        lambda: (
            Script()
            .open()
            .say(b"x", case=case("reject.invalid_json", "reject", "invalid_json"))
            .error(1, "going_away", retryable=True)
        ),
    ),
    (
        "reject.invalid_json",
        "hung up after an utterance",
        lambda: (
            Script()
            .open()
            .say(HI)
            .speech(1)
            .say(b"x", case=case("reject.invalid_json", "reject", "invalid_json"))
            .hang_up()
        ),
    ),
    (
        "close.drains",
        "hung up before",
        lambda: Script().open().say(HI).say(HI).speech(1).say({"type": "close"}).hang_up(),
    ),
    (
        "close.session_closed",
        "hung up before",
        lambda: Script().open().say(HI).say(HI).speech(1).say({"type": "close"}).hang_up(),
    ),
    (
        "read.pong_while_busy",
        "ended before",
        lambda: (
            Script()
            .open()
            .say(HI)
            .speech()
            .line("out", "ping", data=b"while busy")
            .line("in", "pong", data=b"while busy")
        ),
    ),
    ("queue.full", "never full", lambda: _queue("either").speech(1).speech(2)),
    ("queue.full", "no room", lambda: _queue("reject").error(2, "overloaded")),
    ("audio.streamed", "too short", lambda: _short()),
    ("order.fifo", "one utterance", lambda: Script().open().say(HI).speech()),
    ("close.code", "the client closed", lambda: talk()),
    ("shutdown.drains", "none", lambda: talk()),
    ("shutdown.going_away", "none", lambda: talk()),
    ("shutdown.session_closed", "none", lambda: talk()),
]


def _short() -> Script:
    return Script().open().say(HI, case=case("audio.streamed")).speech()


@pytest.mark.parametrize(
    ("check", "what", "script"), UNSEEN, ids=[f"{u[0]}: {u[1]}" for u in UNSEEN]
)
def test_what_was_not_seen_is_not_judged(
    check: str, what: str, script: Callable[[], Script]
) -> None:
    judgement = script().judge(check)
    assert judgement.verdict is Verdict.NOT_EXERCISED, judgement
    assert judgement.reason


def _shutdown() -> Script:
    """A shutdown as it should be, seen by the three sessions of the scenario."""
    script = Script("shutdown", LIMITS).open().say(HI | {"request_id": "running"})
    script.start(1, request_id="running").pcm()
    script.say(HI | {"request_id": "waiting"}).note("shutdown: begins")
    script.say(HI | {"request_id": "late"}).complete(1, request_id="running")
    script.speech(2, request_id="waiting")
    script.error(3, "going_away", request_id="late", retryable=True)
    script.farewell("going_away", last_seq=3)
    script.open().say(HI | {"request_id": "stuck"}).start(1, request_id="stuck").pcm()
    script.note("shutdown: begins").note("deadline: over")
    script.error(1, "going_away", rejected=None, request_id="stuck", retryable=True)
    script.farewell("going_away", last_seq=1)
    script.open().say(HI | {"request_id": "done"}).speech(1, request_id="done")
    return script.note("shutdown: begins").farewell("going_away", last_seq=1)


@pytest.mark.parametrize(
    "check", ["shutdown.drains", "shutdown.going_away", "shutdown.session_closed"]
)
def test_a_good_shutdown(check: str) -> None:
    assert _shutdown().judge(check).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("check", "find", "put"),
    [
        ("shutdown.drains", '"synthesis_complete", "seq": 2', '"x_nothing", "seq": 2'),
        (
            "shutdown.drains",
            '"error", "seq": 1, "code": "going_away"',
            '"error", "seq": 1, "code": "internal"',
        ),
        ("shutdown.going_away", '"error", "seq": 3', '"x_nothing", "seq": 3'),
        ("shutdown.session_closed", '"session_closed"', '"x_nothing"'),
    ],
)
def test_a_bad_shutdown(check: str, find: str, put: str) -> None:
    script = _shutdown()
    lines = [
        line.replace(json.dumps(find)[1:-1], json.dumps(put)[1:-1])
        for line in script.transcript.to_lines()
    ]
    bad = Transcript.from_lines(lines)
    assert bad.entries != script.transcript.entries
    judgement = CHECKS[check].judge([Account.of(bad)])
    assert judgement.verdict is Verdict.FAIL


def test_giving_up_at_the_deadline() -> None:
    script = Script("shutdown", LIMITS).open().say(HI | {"request_id": "running"}).start(1)
    script.note("shutdown: begins").wait(LIMITS.shutdown_s or 0.0)
    script.error(1, "going_away", rejected=None, retryable=True, request_id="running")
    assert script.judge("shutdown.drains").verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(3.0, Verdict.NOT_EXERCISED), (0.2, Verdict.FAIL)]
)
def test_what_did_not_come_through_is_not_held_against_the_endpoint(
    seconds: float, verdict: Verdict
) -> None:
    for name, check in (("stuck", "shutdown.drains"), ("running", "shutdown.session_closed")):
        script = Script("shutdown", LIMITS).open().say(HI | {"request_id": name}).start(1).pcm()
        script.note("shutdown: begins").wait(3.0).note("deadline: over").wait(seconds)
        script.note("ended in a frame: yes").line("in", "eof", reason="end of stream")
        assert script.judge(check).verdict is verdict


def test_what_idled_before_the_shutdown_is_no_part_of_it() -> None:
    script = Script("shutdown", LIMITS).open().say(HI | {"request_id": "done"})
    script.speech(1, request_id="done").farewell("idle", last_seq=1).note("shutdown: begins")
    assert script.judge("shutdown.session_closed").verdict is Verdict.NOT_EXERCISED


def test_something_on_the_way_that_takes_all() -> None:
    script = Script("idle-reset").open().note("idle limit: 2").say(HI).start(1).wait(2.6)
    script.note("held for: 2.6").complete(1, elapsed_s=0.01).say(HI)
    assert script.farewell("idle", last_seq=1).judge("idle.reset_by_messages").verdict is (
        Verdict.NOT_EXERCISED
    )


def test_a_queue_that_was_not_held_up() -> None:
    script = Script("queue-full").open().say(HI).start(1)
    full = case("queue.full", "reject", "queue_full", name="one too many")
    script.say(HI, case=full).pcm().complete(1, elapsed_s=0.0).speech(2)
    assert script.judge("queue.full").verdict is Verdict.NOT_EXERCISED


def test_giving_up_too_early() -> None:
    script = Script("shutdown", LIMITS).open().say(HI | {"request_id": "running"}).start(1)
    script.note("shutdown: begins")
    script.error(1, "going_away", rejected=None, retryable=True, request_id="running")
    assert script.judge("shutdown.drains").verdict is Verdict.FAIL


def test_the_oracle_is_asked() -> None:
    script = Script().open().say(HI).start().pcm().complete(audio_bytes=1)
    account = [Account.of(script.transcript)]
    opinion = second_opinion("complete.audio-bytes", "a rule", account)
    assert opinion is not None
    assert opinion.verdict is Verdict.FAIL
    assert second_opinion("order.fifo", "a rule", account) is None


def test_a_transcript_judges_the_same_when_it_is_read_again() -> None:
    script = Script().open().say(HI, case=case("accept.defaults")).error(1, "invalid_voice")
    again = Transcript.from_lines(script.transcript.to_lines())
    row = CHECKS["accept.defaults"]
    assert row.judge([Account.of(again)]) == row.judge([Account.of(script.transcript)])


# --- What no judge may hold against an endpoint --------------------------------------------------


def judged(script: Script, check: str) -> Judgement:
    """The judgement as a run comes to it: only of what can be told."""
    return judge_accounts([CHECKS[check]], [Account.of(script.transcript)])[check]


def test_where_seq_is_wrong_only_seq_is_judged() -> None:
    script = Script().open().say(HI | {"request_id": "a"}).say(b"[]").say(HI)
    script.speech(3, request_id="a").error(3, "not_an_object").speech(3).goodbye()
    assert judged(script, "seq.counts_messages").verdict is Verdict.FAIL
    for check in ("reject.one_error", "order.one_terminal", "request_id.echoed", "order.fifo"):
        judgement = judged(script, check)
        assert judgement.verdict is Verdict.NOT_EXERCISED, check
        assert "seq.counts-messages" in judgement.reason
    assert judged(script, "control.schema").verdict is Verdict.PASS


def test_a_session_that_counts_rightly_is_judged_beside_one_that_does_not() -> None:
    script = Script().open().say(HI).speech(7).goodbye()
    script.open().say(HI).speech(1, request_id="nobody's").goodbye()
    assert judged(script, "request_id.echoed").verdict is Verdict.FAIL


def test_numbers_are_what_they_are_however_they_are_written() -> None:
    script = Script().open().say(HI)
    script.start(1.0).pcm().complete(1.0, audio_bytes=4800.0)  # type: ignore[arg-type]
    for check in ("seq.counts_messages", "complete.audio_bytes", "control.schema"):
        assert script.judge(check).verdict is Verdict.PASS, check


def test_private_messages_answer_nothing() -> None:
    script = Script("keepalive").open().say({"type": "keepalive"}).hear(type="x_note", seq=1)
    script.say(HI | {"request_id": "a"}).speech(2, request_id="a")
    assert script.judge("message.keepalive").verdict is Verdict.PASS
    script = Script("close-drains").open().say({"type": "close"}).say(HI | {"request_id": "b"})
    script.hear(type="x_note", seq=2).farewell(seq=1, last_seq=1).goodbye()
    assert script.judge("close.ignores_later").verdict is Verdict.PASS
    script = Script("idle").open().say(HI).speech(1).hear(type="x_note", seq=99)
    assert script.farewell("idle", last_seq=1).judge("session_closed.last_seq").verdict is (
        Verdict.PASS
    )


def test_past_the_bound_rejections_may_overtake_though_not_all_have_come() -> None:
    script = Script().open().say(HI)
    for _ in range(258):
        script.say(b"[]")
    script.start(1).error(258, "not_an_object").error(259, "not_an_object")
    assert script.judge("reject.in_order").verdict is not Verdict.FAIL
    assert script.judge("reject.one_error").verdict is not Verdict.FAIL


def test_a_close_frame_that_is_not_answered_is_judged_where_the_answer_was_waited_for() -> None:
    def closes(scenario: str) -> Script:
        script = Script(scenario).open().say(HI).speech(1)
        return script.line("out", "close", code=1000, data=close_payload(1000))

    assert closes("order").judge("ws.close_echo").verdict is Verdict.NOT_EXERCISED
    assert closes("close-frames").judge("ws.close_echo").verdict is Verdict.FAIL
    assert closes("order").line("in", "eof").judge("ws.close_echo").verdict is Verdict.FAIL


def test_a_rejection_with_the_seq_of_a_valid_message_is_wrong_in_its_seq() -> None:
    script = Script().open().say(HI).speech(1).say(b"[]").error(1, "not_an_object")
    assert judged(script, "seq.counts_messages").verdict is Verdict.FAIL
    assert judged(script, "reject.one_error").verdict is Verdict.NOT_EXERCISED
    # With a code that is nobody's, or the first answer to its message, it is what it says.
    script = Script().open().say(HI).speech(1).say(b"[]").error(1, "invalid_voice")
    assert judged(script, "seq.counts_messages").verdict is Verdict.PASS
    script = Script().open().say(HI).say(b"[]").error(1, "not_an_object")
    assert judged(script, "seq.counts_messages").verdict is Verdict.PASS


def test_a_session_that_answers_no_hello_is_wrong_in_its_seq() -> None:
    script = Script().open().say({"type": "hello", "protocol_versions": [1]})
    script.hear(type="session", seq=0)
    assert judged(script, "seq.counts_messages").verdict is Verdict.FAIL


def test_an_endpoint_that_was_told_to_shut_down_may_end_its_sessions() -> None:
    script = Script().open().say(HI).speech(1).note("shutdown: begins").hang_up(1012)
    assert judged(script, "session.stays_open").verdict is not Verdict.FAIL
    assert judged(script, "reject.session_survives").verdict is not Verdict.FAIL


STOOD_STILL: list[tuple[str, Callable[[], Script]]] = [
    (
        "close.endpoint_waits",
        lambda: Script().open().say({"type": "close"}).farewell(seq=1, last_seq=1).hang_up(),
    ),
    (
        "close.endpoint_gives_up",
        lambda: (
            Script("endpoint-closes")
            .open()
            .say({"type": "close"})
            .farewell(seq=1, last_seq=1)
            .wait(6.0)
            .hang_up()
        ),
    ),
    (
        "idle.session_closed",
        lambda: Script("idle").open().note("idle limit: 4").wait(1.0).farewell("idle", last_seq=0),
    ),
    (
        "idle.reset_by_messages",
        lambda: (
            Script("idle-reset")
            .open()
            .note("idle limit: 4")
            .say({"type": "keepalive"})
            .farewell("idle", last_seq=0)
        ),
    ),
]


@pytest.mark.parametrize(("check", "script"), STOOD_STILL, ids=[row[0] for row in STOOD_STILL])
def test_times_across_a_standstill_of_the_suite_tell_nothing(
    check: str, script: Callable[[], Script]
) -> None:
    red = {Verdict.FAIL, Verdict.WEAK}
    assert judged(script(), check).verdict in red
    # Long over, or to come: then they tell what they always do.
    assert judged(script().note("stood still: -9.000 -8.000"), check).verdict in red
    assert judged(script().note("stood still: 90.000 91.000"), check).verdict in red
    still = judged(script().note("stood still: -9.000 90.000"), check)
    assert still.verdict is Verdict.NOT_EXERCISED, still


@pytest.mark.parametrize("more", [{"seq": 0}, {"seq": 1, "code": "internal"}])
def test_a_flood_of_one_message_is_held_against_its_schema_once(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    from utterwire_conformance.judges import control

    asked: list[str] = []
    validator: Any = control.__dict__["validator"]

    def counting(name: str) -> Any:
        asked.append(name)
        return validator(name)

    monkeypatch.setattr(control, "validator", counting)
    script = Script().open()
    for _ in range(100):
        script.hear(type="error", **more)
    assert judged(script, "control.schema").verdict is Verdict.FAIL
    assert len(asked) == 1
    asked.clear()
    script = Script().open()
    for _ in range(100):
        script.hear(type="later", seq=1)
    judged(script, "control.schema")
    assert len(asked) <= 1


def _beside_rejections(alone: bytes, *, voice: str = "v", waits: bool = False) -> Judgement:
    """`TONE` is heard beside a rejection; alone the same text was heard otherwise, twice."""
    twin = Script("spoken-texts").open()
    for number, name in enumerate(("one text", "the same again"), 1):
        twin.say(HI, case=case("audio.speaks_text", name=name)).speech(number, alone)
    beside = Script().open()
    if waits:
        beside.say({"text": "Before."}).say(HI).say(b"[]").speech(1).speech(2, voice=voice)
        beside.error(3, "not_an_object")
    else:
        beside.say(HI).say(b"[]").speech(1, voice=voice).error(2, "not_an_object")
    accounts = [Account.of(script.transcript) for script in (twin, beside)]
    return CHECKS["reject.no_harm"].judge(accounts)


def test_beside_a_rejection_the_same_is_heard_as_alone() -> None:
    assert _beside_rejections(TONE).verdict is Verdict.PASS
    assert _beside_rejections(TONE * 2).verdict is Verdict.FAIL


def test_another_default_voice_or_a_pause_of_who_waited_is_no_harm() -> None:
    assert _beside_rejections(TONE * 2, voice="w").verdict is Verdict.PASS
    assert _beside_rejections(TONE * 2, waits=True).verdict is Verdict.PASS


@pytest.mark.parametrize("still", [True, False])
def test_a_message_may_cross_the_idle_end_where_all_stood_still(still: bool) -> None:
    script = Script("reject-odd-json").open().say(b"x", case=case(_ODD, "reject", "invalid_json"))
    before = script.now
    script.wait(4.0)
    if still:
        script.note(f"stood still: {before:.3f} {script.now:.3f}")
    script.farewell("idle", last_seq=0)
    verdict = script.judge(_ODD).verdict
    assert verdict is (Verdict.NOT_EXERCISED if still else Verdict.FAIL)


_ODD = "reject.odd_json_survives"
