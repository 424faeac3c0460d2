"""The judges of load, of SageMaker and of trust in texts, on transcripts made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Self

import pytest
from utterwire_conformance.check import CHECKS, Account
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.scenarios.security import CODE_LIKE
from utterwire_conformance.transcript import Case, Entry, Transcript
from utterwire_conformance.verdict import Judgement, Verdict

PASS, FAIL, UNSEEN = Verdict.PASS, Verdict.FAIL, Verdict.NOT_EXERCISED
SECOND = bytes(48_000)
LONG = SECOND * 90


class Story:
    """Several sessions, line by line; each line is 10 ms after the one before."""

    def __init__(self, scenario: str) -> None:
        self.transcript = Transcript(scenario, claims=EndpointClaims(slow_reader_s=6))
        self.now = 0.0
        self.sent: dict[int, int] = {}

    def line(self, session: int, direction: Any, kind: Any, **fields: Any) -> Self:
        self.now += 0.01
        if session and session not in self.sent:
            self.sent[session] = 0
            self.transcript.add(Entry(self.now, "out", "open", session, method="GET", target="/"))
            self.transcript.add(Entry(self.now, "in", "open", session, status=101))
        self.transcript.add(Entry(self.now, direction, kind, session, **fields))
        return self

    def wait(self, seconds: float) -> Self:
        self.now += seconds
        return self

    def note(self, text: str, session: int = 0) -> Self:
        return self.line(session, "note", "note", text=text)

    def ask(self, session: int, text: str = "Hello.", case: str | Case = "", **fields: Any) -> Self:
        if case:
            plain = "security.text_is_plain"
            told = Case(case, plain, "accept") if isinstance(case, str) else case
            self.note(told.to_note(), session)
        body = json.dumps({"text": text, **fields}).encode()
        self.line(session, "out", "text", data=body)
        self.sent[session] += 1
        return self

    def hear(self, session: int, kind: str, **fields: Any) -> Self:
        body = {"type": kind, "seq": self.sent.get(session, 0), **fields}
        return self.line(session, "in", "text", data=json.dumps(body).encode())

    def start(self, session: int, **fields: Any) -> Self:
        about = {"sample_rate": 24000, "format": "pcm_s16le", "voice": "v"}
        return self.hear(session, "synthesis_start", **about, **fields)

    def audio(self, session: int, data: bytes = SECOND) -> Self:
        return self.line(session, "in", "binary", data=data)

    def done(self, session: int, **fields: Any) -> Self:
        about = {"total_duration_s": 1, "elapsed_s": 0.01, "audio_bytes": 48_000, "characters": 6}
        return self.hear(session, "synthesis_complete", **(about | fields))

    def speech(
        self, session: int, text: str = "Hello.", *, took: float = 0.0, **fields: Any
    ) -> Self:
        case = fields.pop("case", "")
        self.ask(session, text, case, **fields)
        self.start(session).audio(session).wait(took)
        return self.done(session, characters=len(text))

    def error(self, session: int, code: str, **fields: Any) -> Self:
        about = {"code": code, "message": "no", "retryable": False, "rejected": True}
        return self.hear(session, "error", **(about | fields))

    def close(self, session: int) -> Self:
        return self.line(session, "in", "close", code=1000).line(session, "in", "eof")

    def leave(self, session: int) -> Self:
        """The client closes and the endpoint answers."""
        return self.line(session, "out", "close", code=1000).close(session)

    def judge(self, check: str | None = None) -> Judgement:
        if check is None:
            (check,) = (n for n, c in CHECKS.items() if self.transcript.scenario in c.scenarios)
        return CHECKS[check].judge([Account.of(self.transcript)])


# --- security -----------------------------------------------------------------------------------


def plain() -> Story:
    return Story("plain-texts").speech(1, "Plain words.", case="a plain text")


def test_every_kind_of_code_is_a_text_of_its_own() -> None:
    assert len(set(CODE_LIKE.values())) == len(CODE_LIKE)
    # What is evaluated must last longer than what is spelled out.
    assert all(len(text) < 80 for text in CODE_LIKE.values())


@pytest.mark.parametrize(
    ("story", "verdict", "words"),
    [
        (plain().speech(1, "$(x)", case="a command"), PASS, ""),
        (plain().ask(1, "$(x)", case="a command").error(1, "invalid_request"), FAIL, "answered"),
        (plain().ask(1, "$(x)", "a command").start(1).done(1, characters=9), FAIL, "9 characters"),
        (
            plain().ask(1, "$(x)", "a command").start(1).audio(1, LONG).done(1, characters=4),
            FAIL,
            "lasts 90 s",
        ),
        (plain().ask(1, "$(x)", "a command").start(1).close(1), FAIL, "ended over"),
        (plain().ask(1, "$(x)", "a command").start(1).note("in vain: 2", 1), FAIL, "not spoken"),
        (plain().ask(1, "$(x)", "a command"), PASS, ""),
        (
            Story("plain-texts").ask(1, "x", "a plain text").error(1, "overloaded"),
            UNSEEN,
            "refused",
        ),
    ],
)
def test_text_is_plain(story: Story, verdict: Verdict, words: str) -> None:
    found = story.judge()
    assert found.verdict is verdict, found
    assert words in found.reason


@pytest.mark.parametrize(
    ("message", "asked", "verdict"),
    [
        ("The speed is out of range.", {}, PASS),
        ("There is no voice '/etc/passwd'.", {"voice": "/etc/passwd"}, PASS),
        ("There is no voice 'C:\\Users\\me'.", {"voice": "C:\\Users\\me"}, PASS),
        ("Read https://example.com/docs/errors.", {}, PASS),
        ("Use audio/pcm or 24000/48000 Hz.", {}, PASS),
        ("cannot open /opt/models/x.bin", {}, FAIL),
        ("cannot open C:\\Users\\tts\\x.bin", {}, FAIL),
        ("Traceback (most recent call last): ...", {}, FAIL),
        ("ValueError at engine.py:12", {}, FAIL),
        ("at Engine.speak(Engine.java:31)", {}, FAIL),
        ("bad <Engine object at 0x7f12ab34cd>", {}, FAIL),
        ("thread 'main' panicked at src", {}, FAIL),
    ],
)
def test_no_internals(message: str, asked: dict[str, Any], verdict: Verdict) -> None:
    story = Story("order").ask(1, **asked).error(1, "invalid_request", message=message)
    assert CHECKS["security.no_internals"].judge([Account.of(story.transcript)]).verdict is verdict
    transcript = Transcript("order")
    body = json.dumps({"text": "Hello.", **asked}).encode()
    request = Entry(0, "out", "http-request", 1, method="POST", target="/invocations", data=body)
    transcript.add(request)
    transcript.add(Entry(0, "in", "http-response", 1, status=400))
    answer = json.dumps({"type": "error", "message": message}).encode()
    transcript.add(Entry(0, "in", "http-body", 1, data=answer))
    assert CHECKS["security.no_internals"].judge([Account.of(transcript)]).verdict is verdict


@pytest.mark.parametrize(
    ("note", "verdict"),
    [("log: holds the text spoken", FAIL), ("log: does not hold the text spoken", PASS)],
)
def test_text_not_logged(note: str, verdict: Verdict) -> None:
    assert Story("private-text").speech(1).note(note).judge().verdict is verdict


# --- slow readers -------------------------------------------------------------------------------

AGAIN = "the others read again: yes"


def stalled() -> Story:
    story = Story("stalled-readers").ask(1, request_id="stalled-0").start(1).audio(1)
    return story.ask(2, request_id="beside")


@pytest.mark.parametrize(
    ("story", "verdict"),
    [
        (stalled().start(2).audio(2).done(2).note(AGAIN, 2), PASS),
        (stalled().note(AGAIN, 2).start(2).audio(2).done(2), FAIL),
        (stalled().note(AGAIN, 2).note("in vain: 1", 2), FAIL),
        (stalled().error(2, "overloaded").note(AGAIN, 2), UNSEEN),
        (stalled().start(2).audio(2).done(2).note(AGAIN, 2).done(1), UNSEEN),
        (stalled().start(2), UNSEEN),
    ],
)
def test_stalled_reader(story: Story, verdict: Verdict) -> None:
    assert story.judge().verdict is verdict


def stalls(seconds: float) -> Story:
    story = Story("slow-reader").note("stall limit: 6", 1).ask(1).start(1).audio(1)
    return story.wait(seconds).note(f"stalled for: {seconds}", 1)


def farewell(story: Story, reason: str) -> Story:
    return story.hear(1, "session_closed", reason=reason, last_seq=1)


@pytest.mark.parametrize(
    ("story", "verdict", "words"),
    [
        (farewell(stalls(6.5), "slow_reader"), PASS, ""),
        (farewell(stalls(6.5), "policy"), FAIL, "not told why"),
        (stalls(6.5).close(1), FAIL, "not told why"),
        (stalls(6.5).line(1, "in", "eof"), UNSEEN, "last words"),
        (stalls(6.5).audio(1).done(1, elapsed_s=6.5), FAIL, "served on"),
        (farewell(stalls(6.5).done(1, elapsed_s=6.5).wait(4), "idle"), FAIL, "served on"),
        (stalls(6.5).audio(1).done(1), UNSEEN, "on the way"),
        (farewell(stalls(3), "slow_reader"), FAIL, "though the limit is 6 s"),
        (stalls(3).audio(1).done(1), UNSEEN, "no reader"),
        (Story("slow-reader").note("stall limit: 6", 1).ask(1), UNSEEN, "no reader"),
    ],
)
def test_slow_reader(story: Story, verdict: Verdict, words: str) -> None:
    found = story.judge()
    assert found.verdict is verdict, found
    assert words in found.reason


def test_a_reader_given_up_is_no_session_hung_up() -> None:
    (dialogue,) = Account.of(farewell(stalls(6.5), "slow_reader").transcript).dialogues
    assert dialogue.dismissed is None
    (other,) = Account.of(farewell(stalls(6.5), "policy").transcript).dialogues
    assert other.dismissed is not None


@pytest.mark.parametrize("check", ["order.one_terminal", "sagemaker.client_closes"])
@pytest.mark.parametrize(
    ("story", "verdict"),
    [
        # What it said last may have been on its way to who did not read.
        (stalls(6.5).line(1, "in", "eof"), UNSEEN),
        (stalls(3).line(1, "in", "eof"), FAIL),
        (stalls(6.5).close(1), FAIL),
    ],
)
def test_who_stalled_too_long_may_miss_the_last_words(
    story: Story, verdict: Verdict, check: str
) -> None:
    assert story.judge(check).verdict is verdict


# --- fairness and bounds ------------------------------------------------------------------------


def beside(*, first: float, end: float) -> Story:
    """A short text beside a long one: when its audio came, and when the long one ended."""
    story = Story("fair").speech(1, request_id="alone")
    story.ask(2, "x" * 100, request_id="long").start(2).audio(2)
    began = story.now
    story.ask(1, request_id="beside")

    def at(seconds: float) -> None:
        story.now = began + seconds

    def long() -> None:
        at(end)
        story.done(2)

    if first < end:
        at(first)
        story.start(1).audio(1).done(1)
        long()
    else:
        long()
        at(first)
        story.start(1).audio(1).done(1)
    return story


@pytest.mark.parametrize(
    ("first", "end", "verdict"),
    [(0.1, 2.0, PASS), (1.2, 2.0, PASS), (1.99, 2.0, FAIL), (2.2, 2.0, FAIL), (0.12, 0.1, UNSEEN)],
)
def test_fair(first: float, end: float, verdict: Verdict) -> None:
    assert beside(first=first, end=end).judge().verdict is verdict


def test_a_short_text_that_is_refused_shows_nothing() -> None:
    story = Story("fair").speech(1, request_id="alone").ask(2, request_id="long").start(2)
    story.ask(1, request_id="beside").error(1, "overloaded").wait(2).audio(2).done(2)
    assert story.judge().verdict is UNSEEN
    story = Story("fair").speech(1, request_id="alone").ask(2, request_id="long").start(2)
    story.ask(1, request_id="beside").wait(2).done(2).note("in vain: 2", 1)
    assert story.judge().verdict is FAIL
    assert Story("fair").speech(1, request_id="alone").judge().verdict is UNSEEN


def rejections(*, early: int, pong: str = "before", count: int = 300) -> Story:
    story = Story("rejection-bound").ask(1).start(1).audio(1)
    for _ in range(count):
        story.line(1, "out", "text", data=b"x")
    story.line(1, "out", "ping", data=b"after them all")
    if pong == "before":
        story.line(1, "in", "pong", data=b"after them all")
    late = range(2, count + 2 - early)
    for seq in range(count + 2 - early, count + 2):
        story.error(1, "invalid_json", seq=seq)
    story.wait(1).done(1, seq=1, elapsed_s=10)
    for seq in late:
        story.error(1, "invalid_json", seq=seq)
    return story


@pytest.mark.parametrize(
    ("story", "verdict"),
    [
        (rejections(early=44), PASS),
        (rejections(early=43), FAIL),
        (rejections(early=0), FAIL),
        (rejections(early=0, pong="never"), UNSEEN),
        (rejections(early=0, count=200), UNSEEN),
    ],
)
def test_rejections_bounded(story: Story, verdict: Verdict) -> None:
    assert story.judge().verdict is verdict


# --- what bad input costs -----------------------------------------------------------------------

ALL_SENT = "bad input: 280 connections, broken_handshake"


def bad(after: Callable[[Story], Any], *, apart: str = "yes", before: bool = True) -> Story:
    story = Story("bad-input").note(f"apart: {apart}")
    if before:
        story.speech(1, request_id="before-0").speech(2, request_id="before-1")
    story.note(ALL_SENT).speech(3, request_id="after-0")
    after(story)
    return story


@pytest.mark.parametrize(
    ("story", "verdict"),
    [
        (bad(lambda s: s.speech(4, request_id="after-1")), PASS),
        (bad(lambda s: s.note("after: no session: HTTP 503")), FAIL),
        (bad(lambda s: s.note("after: no session: HTTP 503"), apart="no"), UNSEEN),
        (bad(lambda s: s.ask(4, request_id="after-1").error(4, "overloaded")), FAIL),
        (bad(lambda s: s.ask(4, request_id="after-1").error(4, "overloaded"), apart="no"), UNSEEN),
        (bad(lambda s: s.ask(4, request_id="after-1"), apart="no"), FAIL),
        (bad(lambda s: s, before=False), UNSEEN),
        (Story("bad-input").speech(1, request_id="before-0"), UNSEEN),
    ],
)
def test_bad_input(story: Story, verdict: Verdict) -> None:
    found = story.judge()
    assert found.verdict is verdict, found


# --- who leaves ---------------------------------------------------------------------------------


def left(*times: float, apart: str = "yes") -> Story:
    """Texts of 0.2 s before; then, by turns, how long one took after and how long one later."""
    story = Story("disconnects").note(f"apart: {apart}")
    for number in range(5):
        story.speech(1, request_id=f"before-{number}", took=0.2)
    story.note("vanished: 24 sessions")
    for number, took in enumerate(times):
        name = ("after-0", "later-0", "after-1", "later-1")[number]
        story.speech(number + 2, request_id=name, took=took)
    return story


@pytest.mark.parametrize(
    ("story", "verdict"),
    [
        (left(0.3), PASS),
        (left(4.0, 0.2, 0.3), PASS),
        (left(4.0, 0.2, 4.0, 0.2), FAIL),
        (left(4.0, 0.2, 4.0, 4.0), UNSEEN),
        (left(4.0, 0.2), UNSEEN),
        (left().ask(9, request_id="after-0"), FAIL),
        (left().ask(9, request_id="after-0").error(9, "overloaded"), FAIL),
        (left(apart="no").ask(9, request_id="after-0").error(9, "overloaded"), UNSEEN),
        (left().note("after-0: no session: HTTP 503"), FAIL),
        (left(apart="no").note("after-0: no session: HTTP 503"), UNSEEN),
        (Story("disconnects").speech(1, request_id="before-0"), UNSEEN),
    ],
)
def test_disconnects(story: Story, verdict: Verdict) -> None:
    found = story.judge()
    assert found.verdict is verdict, found


# --- memory -------------------------------------------------------------------------------------


def held(*levels: int, unread: int | None = None, size: int = 8_000_000) -> Story:
    story = Story("memory").note("memory at first: 1").note(f"memory warm: {levels[0]}")
    for number, level in enumerate(levels[1:], 1):
        story.note(f"memory after round {number} of {size} bytes: {level}")
    if unread is not None:
        story.note(f"memory while nobody reads: {unread}")
    return story


MB = 1_000_000


@pytest.mark.parametrize(
    ("story", "verdict"),
    [
        (held(30 * MB, 31 * MB, 31 * MB, 31 * MB, unread=35 * MB), PASS),
        (held(*(n * 9 * MB for n in range(4, 10)), unread=99 * MB), FAIL),
        # What grows for a while and then stays is a cache, or an allocator.
        (held(30 * MB, 38 * MB, 46 * MB, 46 * MB, unread=46 * MB), PASS),
        (held(30 * MB, 38 * MB, 46 * MB, 54 * MB, 54 * MB, 54 * MB, unread=54 * MB), PASS),
        (held(30 * MB, 30 * MB, 30 * MB, 30 * MB, unread=130 * MB), FAIL),
        (held(30 * MB, 30 * MB, 30 * MB, 30 * MB), UNSEEN),
        (held(30 * MB, 30 * MB, unread=30 * MB, size=0), UNSEEN),
        (Story("memory"), UNSEEN),
    ],
)
def test_memory(story: Story, verdict: Verdict) -> None:
    found = story.judge()
    assert found.verdict is verdict, found


# --- SageMaker: under load ----------------------------------------------------------------------


def told(took: float, own: float = 0.0, busy: str = "yes") -> str:
    return json.dumps({"took": took, "own": own, "rtt": 0.001, "busy": busy})


def accepted(*notes: str) -> Story:
    story = Story("sagemaker-busy")
    for session, note in enumerate(notes, 1):
        story.note(f"accepted: {note}", session)
    return story


@pytest.mark.parametrize(
    ("story", "verdict"),
    [
        (accepted(*[told(0.02)] * 6), PASS),
        (accepted(*[told(0.4)] * 6), FAIL),
        (accepted(*[told(0.4)] * 4, *[told(0.02)] * 2), FAIL),
        # The machine may halt, and the suite be late itself.
        (accepted(*[told(0.4)] * 3, *[told(0.02)] * 3), PASS),
        (accepted(*[told(0.4, own=0.3)] * 6), PASS),
        (accepted(*[told(0.4)] * 2), UNSEEN),
        (accepted(*[told(0.4, busy="no")] * 6), UNSEEN),
        (accepted("no JSON", "no JSON", "no JSON"), UNSEEN),
    ],
)
def test_sagemaker_accept(story: Story, verdict: Verdict) -> None:
    assert story.judge("sagemaker.accept").verdict is verdict


def pinged(*answers: tuple[int | None, str]) -> Story:
    story = Story("sagemaker-busy")
    add = story.transcript.add
    for session, (status, note) in enumerate(answers, 1):
        add(Entry(0, "out", "http-request", session, method="GET", target="/ping"))
        if status is not None:
            add(Entry(0, "in", "http-response", session, status=status))
        add(Entry(0, "note", "note", session, text=f"answered: {note}"))
    return story


@pytest.mark.parametrize(
    ("story", "verdict"),
    [
        (pinged(*[(200, told(0.02))] * 4), PASS),
        (pinged(*[(200, told(2.5))] * 4), FAIL),
        (pinged(*[(200, told(2.5))] * 2, *[(200, told(0.1))] * 2), PASS),
        (pinged((200, told(0.02)), (503, told(0.02))), FAIL),
        (pinged((200, told(0.02)), (None, told(0.02))), FAIL),
        (pinged(*[(None, told(5.0))] * 4), FAIL),
        (pinged((503, told(0.02, busy="no"))), UNSEEN),
        (pinged(), UNSEEN),
    ],
)
def test_sagemaker_ping(story: Story, verdict: Verdict) -> None:
    assert story.judge("sagemaker.ping_fast").verdict is verdict


def ponged(pong: float | None, *, end: float | None, busy: str = "yes") -> Story:
    story = Story("sagemaker-busy").ask(2).start(2)
    story.note(f"busy when pinged: {busy}", 1).line(1, "out", "ping", data=b"x")
    began = story.now
    late = {"pong": pong, "end": end, "given up": 5.0}
    for what, at in sorted((p for p in late.items() if p[1] is not None), key=lambda p: p[1] or 0):
        story.now = began + (at or 0)
        if what == "pong":
            story.line(1, "in", "pong", data=b"x")
        elif what == "end":
            story.done(2)
        else:
            story.note("pong: waited for", 1)
    return story


@pytest.mark.parametrize(
    ("story", "verdict"),
    [
        (ponged(0.1, end=2.0), PASS),
        (ponged(0.1, end=None), PASS),
        (ponged(2.0, end=2.0), FAIL),
        (ponged(None, end=2.0), FAIL),
        (ponged(None, end=None), FAIL),
        (ponged(5.5, end=None), FAIL),
        (ponged(0.15, end=0.1), UNSEEN),
        (ponged(None, end=2.0, busy="no"), UNSEEN),
        (Story("sagemaker-busy").ask(2).start(2), UNSEEN),
    ],
)
def test_sagemaker_pong(story: Story, verdict: Verdict) -> None:
    assert story.judge("sagemaker.pong").verdict is verdict


# --- SageMaker: parts and closing ---------------------------------------------------------------

UNTYPED = Case("valid", "sagemaker.untyped_part", "accept")
UNKNOWN = Case("unknown", "sagemaker.untyped_part", "reject", ("unknown_type",))
CUT = Case("cut", "sagemaker.partial_parts", "accept")
TWIN = Case("text", "sagemaker.twin", "accept")


@pytest.mark.parametrize(
    ("story", "verdict"),
    [
        (Story("sagemaker-parts").speech(1, case=UNTYPED), PASS),
        (Story("sagemaker-parts").ask(1, case=UNKNOWN).error(1, "unknown_type"), PASS),
        (Story("sagemaker-parts").ask(1, case=UNTYPED).error(1, "invalid_json"), FAIL),
        (Story("sagemaker-parts").ask(1, case=UNKNOWN).error(1, "invalid_json"), FAIL),
        (
            Story("sagemaker-parts")
            .ask(1, case=TWIN)
            .error(1, "invalid_voice")
            .ask(1, case=UNTYPED)
            .error(1, "invalid_voice"),
            UNSEEN,
        ),
        (Story("sagemaker-parts"), UNSEEN),
    ],
)
def test_sagemaker_parts(story: Story, verdict: Verdict) -> None:
    assert story.judge("sagemaker.untyped_part").verdict is verdict
    assert story.judge("sagemaker.partial_parts").verdict is UNSEEN


def test_parts_that_are_cut_are_judged_by_themselves() -> None:
    story = Story("sagemaker-parts").ask(1, case=CUT).error(1, "invalid_json")
    assert story.judge("sagemaker.partial_parts").verdict is FAIL
    assert story.judge("sagemaker.untyped_part").verdict is UNSEEN
    story = Story("sagemaker-parts").line(1, "out", "binary", data=b'{"type": "close"}')
    story.note("no session_closed: waited in vain", 1)
    assert story.judge("sagemaker.partial_parts").verdict is FAIL


def closed(reason: str = "client_close") -> Story:
    story = Story("sagemaker-parts").line(1, "out", "text", data=b'{"type": "close"}')
    return story.hear(1, "session_closed", reason=reason, last_seq=1)


@pytest.mark.parametrize(
    ("story", "verdict"),
    [
        (Story("sagemaker-parts").speech(1).leave(1), PASS),
        (Story("sagemaker-parts").speech(1), PASS),
        (closed().wait(3).close(1), PASS),
        (closed().wait(1).close(1), FAIL),
        (closed().wait(1).line(1, "in", "eof"), FAIL),
        (Story("sagemaker-parts").speech(1).close(1), FAIL),
        (Story("sagemaker-parts").speech(1).line(1, "in", "eof"), FAIL),
        (Story("sagemaker-parts").note("abuse", 1).close(1), UNSEEN),
        (Story("sagemaker-parts").note("too big: begins", 1).close(1), UNSEEN),
        (closed("slow_reader").close(1), UNSEEN),
        (Story("sagemaker-parts").line(1, "out", "eof").close(1), UNSEEN),
    ],
)
def test_sagemaker_closing(story: Story, verdict: Verdict) -> None:
    found = story.judge("sagemaker.client_closes")
    assert found.verdict is verdict, found


@pytest.mark.parametrize(
    ("headers", "status", "verdict"),
    [
        ({"utterwire-sample-rate": "24000", "utterwire-request-id": "%C3%A9%201"}, 200, PASS),
        ({"utterwire-sample-rate": "24000", "utterwire-request-id": "%c3%a9%201"}, 200, PASS),
        ({"utterwire-sample-rate": "24000"}, 200, FAIL),
        ({"utterwire-request-id": "%C3%A9%201"}, 200, FAIL),
        ({}, 404, UNSEEN),
    ],
)
def test_sagemaker_headers(headers: dict[str, str], status: int, verdict: Verdict) -> None:
    story = Story("sagemaker-invocation")
    body = json.dumps({"text": "Hello.", "request_id": "é 1"}).encode()
    add = story.transcript.add
    add(Entry(0, "out", "http-request", 1, method="POST", target="/invocations", data=body))
    add(Entry(0, "in", "http-response", 1, status=status, headers=tuple(headers.items())))
    assert story.judge().verdict is verdict


def stopped(exited: str, *, drained: bool = True) -> Story:
    story = Story("sagemaker-sigterm").ask(1, request_id="speaking").start(1)
    story.note("shutdown: begins", 1)
    if drained:
        story.done(1).hear(1, "session_closed", reason="going_away", last_seq=1)
    return story.close(1).note(f"exited: {exited}")


@pytest.mark.parametrize(
    ("story", "verdict"),
    [
        (stopped("3.51 s after SIGTERM, with status 0"), PASS),
        (stopped("0.10 s after SIGTERM, with status -15", drained=False), FAIL),
        (stopped("30.20 s after SIGTERM, with status 0"), FAIL),
        (stopped("no"), FAIL),
        (Story("sagemaker-sigterm").ask(1), UNSEEN),
    ],
)
def test_sagemaker_sigterm(story: Story, verdict: Verdict) -> None:
    assert story.judge("sagemaker.sigterm").verdict is verdict
