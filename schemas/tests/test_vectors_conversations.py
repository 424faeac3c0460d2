"""The conversation vectors against a judge that knows only the prose.

It is small because it judges what the vectors show, not what a wire can carry. Where it sees that a
message was accepted, rejected or coded wrongly, it says ``validation`` and leaves the requirement
to the vector.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from utterwire_schemas import ERROR_CODES, octets, validator, vectors

VECTORS = vectors("conversations")
VALIDATION = (
    *("reject.", "accept.", "message.", "hello.", "queue.", "request-id.", "shutdown."),
    *("cancel.null-id", "cancel.unknown-id"),
)
#: What may be said of any request that is valid in itself.
ALWAYS = {"overloaded", "internal"}


@dataclass
class Asked:
    """A client message, and what came of it."""

    seq: int
    judged: Any
    sent: float | None
    before_close: bool
    after_shutdown: bool
    #: Ids whose utterances had not ended, as far as the client knew when it sent this.
    ids_pending: set[str]
    started: dict[str, Any] | None = None
    bytes: int = 0
    ended: bool = False
    rejected: bool = False
    answered: bool = False
    #: How many cancels had been answered when it ended.
    cancels_answered: int = 0
    words: list[dict[str, Any]] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        return self.ended or self.rejected


class Judge:
    """Walks a conversation and gathers the requirements that the endpoint breaks."""

    def __init__(self, vector: dict[str, Any], rules: Any) -> None:
        self.rules = rules
        self.claims = set(vector["profiles"])
        self.limits = {**rules.floors, **vector.get("limits", {})}
        self.stated = vector.get("limits", {})
        self.vector = vector
        self.found: set[str] = set()
        self.asked: list[Asked] = []
        self.active: Asked | None = None
        self.close: Asked | None = None
        self.closed: dict[str, Any] | None = None
        self.closed_at: float | None = None
        self.client_closed = False
        self.endpoint_closed = False
        self.shutdown = False
        self.too_big = False
        self.voice: str | None = None
        #: Cancelled utterances that no `cancel_done` has counted yet.
        self.loose: list[Asked] = []
        self.refused_full = False
        self.last_rejected = False
        self.active_at: float | None = 0.0
        self.now: float | None = None
        # Whether a message becomes an utterance or is rejected, and how, is told by its answer.
        answers = [step.get("json") for step in vector["steps"] if step["from"] == "endpoint"]
        self.rejected_later = {
            answer["seq"]
            for answer in answers
            if isinstance(answer, dict) and answer.get("rejected") and "seq" in answer
        }
        self.cancelled_later = {
            answer.get("seq")
            for answer in answers
            if isinstance(answer, dict) and answer.get("type") == "cancelled"
        }

    def breaks(self, *requirements: str, when: bool = True) -> None:
        if when:
            self.found.update(requirements)

    def run(self) -> set[str]:
        for step in self.vector["steps"]:
            self.now = step.get("t")
            if step.get("signal"):
                self.shutdown = True
            elif step["from"] == "client":
                self.client(step)
            else:
                self.endpoint(step)
        self.end()
        return self.found

    # The client's side.

    def client(self, step: dict[str, Any]) -> None:
        if "close" in step or "lost" in step:
            if self.closed_at is not None and self.now is not None:
                self.breaks("close.endpoint-gives-up", when=self.now - self.closed_at > 6)
            elif self.stated.get("idle_timeout_s") and self.now and self.active_at is not None:
                late = self.now - self.active_at > 1.1 * self.limits["idle_timeout_s"] + 1
                self.breaks("idle.session-closed", when=late)
            self.client_closed = "close" in step
            self.endpoint_closed |= "lost" in step
            return
        raw = (
            json.dumps(step["json"]).encode()
            if "json" in step
            else step["text"].encode()
            if "text" in step
            else octets(step["octets"])
        )
        if len(raw) > self.limits.get("max_message_bytes", 65536):
            # It ends the session, and is not counted.
            self.too_big = True
            return
        judged = self.rules.judge_message(raw, self.claims, self.limits, ["v", "w"])
        if judged.type == "hello" and self.asked:
            judged.acceptable, judged.codes = False, {"invalid_request"}
            name = judged.fields.get("request_id")
            judged.request_id = name if self.rules.is_id(name, self.limits) else None
        pending = {a.judged.request_id for a in self.asked if not a.settled}
        asked = Asked(
            seq=len(self.asked) + 1,
            judged=judged,
            sent=self.now,
            before_close=self.close is None,
            after_shutdown=self.shutdown,
            ids_pending={name for name in pending if name is not None},
        )
        self.asked.append(asked)
        if judged.type == "close" and judged.acceptable and self.close is None:
            self.close = asked
        self.active_at = self.now

    # What is due.

    def ignored(self, asked: Asked) -> bool:
        cancels = asked.judged.type == "cancel" and asked.judged.acceptable
        return not asked.before_close and not cancels

    def has_place(self, asked: Asked) -> bool:
        """Whether the answer to a message has a place in the order of messages."""
        if self.ignored(asked) or asked.judged.type in ("close", "keepalive"):
            return False
        return asked.judged.type not in ("cancel", "hello")

    def check_place(self, asked: Asked) -> None:
        self.breaks("cancel.overtakes", when=bool(self.loose))
        for earlier in self.asked[: asked.seq - 1]:
            if not self.has_place(earlier) or earlier.settled:
                continue
            if earlier.seq in self.cancelled_later and earlier is not self.active:
                continue
            rejection = (
                asked.seq in self.rejected_later
                or earlier.seq in self.rejected_later
                or not earlier.judged.acceptable
            )
            self.breaks("reject.in-order" if rejection else "order.fifo")
            self.breaks("order.no-mixing", when=earlier is self.active and not asked.rejected)

    def message(self, value: dict[str, Any]) -> Asked | None:
        seq = value.get("seq")
        if not isinstance(seq, int | float) or seq not in range(1, len(self.asked) + 1):
            self.breaks("seq.counts-messages")
            return None
        return self.asked[int(seq) - 1]

    def utterance(self, value: dict[str, Any]) -> Asked | None:
        asked = self.message(value)
        if asked is None:
            return None
        if self.ignored(asked):
            self.breaks("close.ignores-later")
        elif asked.judged.type not in ("synthesize", None):
            self.breaks("seq.counts-messages")
            return None
        elif not asked.judged.acceptable:
            self.breaks("validation")
        if asked.ended:
            self.breaks("order.one-terminal", "order.nothing-after-terminal")
            return None
        if value.get("request_id") != asked.judged.request_id:
            self.breaks("request-id.echoed")
        if asked.after_shutdown:
            self.breaks("shutdown.going-away")
        return asked

    # The endpoint's side.

    def endpoint(self, step: dict[str, Any]) -> None:
        if "close" in step or "lost" in step:
            self.endpoint_closes(step)
            return
        if step.get("fragments"):
            self.breaks("chunk.unfragmented")
        if self.closed is not None:
            self.breaks("close.last-word")
        if "audio_bytes" in step:
            self.audio(b"\0" * step["audio_bytes"])
        elif "octets" in step:
            self.audio(octets(step["octets"]))
        elif "text" in step:
            _, sendable = self.rules.classify(step["text"].encode(), "text")
            if sendable:
                self.control(json.loads(step["text"]))
            else:
                self.breaks("control.strict-json")
        else:
            self.breaks("control.text-frame", when=step.get("frame") == "binary")
            self.control(step["json"])

    def audio(self, chunk: bytes) -> None:
        self.breaks("audio.chunk-size", when=not 1 <= len(chunk) <= 65536)
        self.breaks("audio.whole-samples", when=len(chunk) % 2 == 1)
        self.breaks("audio.no-leading-brace", when=chunk[:1] == b"{")
        self.breaks("audio.never-json", when=self.rules.unsendable(chunk) == "brace")
        if self.active is None:
            self.breaks("order.start-first")
            ended = any(asked.ended for asked in self.asked)
            self.breaks("order.nothing-after-terminal", when=ended)
        else:
            self.active.bytes += len(chunk)
        self.active_at = self.now

    def control(self, value: dict[str, Any]) -> None:
        if not validator("control-message").is_valid(value):
            self.breaks("control.schema")
        handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "synthesis_start": self.start,
            "synthesis_complete": self.complete,
            "error": self.error,
            "cancelled": self.cancelled,
            "cancel_done": self.cancel_done,
            "marks": self.marks,
            "session": self.session,
            "session_closed": self.session_closed,
        }
        handler = handlers.get(value["type"])
        self.last_rejected = value.get("rejected", False)
        if handler is not None:
            handler(value)
        self.active_at = self.now

    def start(self, value: dict[str, Any]) -> None:
        asked = self.utterance(value)
        if asked is None:
            return
        self.check_place(asked)
        self.breaks("order.complete-had-start", when=asked.started is not None)
        waits = any(
            not other.settled for other in self.asked[: asked.seq - 1] if self.has_place(other)
        )
        self.breaks("cancel.waiting", when=waits and asked.seq in self.cancelled_later)
        name = asked.judged.request_id
        twins = [a for a in self.asked[: asked.seq - 1] if name and a.judged.request_id == name]
        for twin in twins:
            # A later cancel was answered before the twin ended: both were read by then.
            proof = any(c.answered for c in self.asked[asked.seq :] if c.judged.type == "cancel")
            early = twin.cancels_answered
            self.breaks("reject.duplicate-request-id", when=proof and early > 0)
        fields = asked.judged.fields
        right = value.get("sample_rate") == 24000 and value.get("format") == "pcm_s16le"
        self.breaks("start.fields", "audio.default-format", when=not right)
        voice = fields.get("voice") or self.voice
        self.breaks("start.fields", when=voice is not None and value.get("voice") != voice)
        if not fields.get("voice"):
            self.voice = value.get("voice")
        asked.started = value
        self.active = asked

    def finish(self, asked: Asked) -> None:
        asked.ended = asked.answered = True
        asked.cancels_answered = sum(
            other.answered for other in self.asked if other.judged.type == "cancel"
        )
        running = [other for other in self.asked if other.started and not other.ended]
        self.active = running[-1] if running else None

    def complete(self, value: dict[str, Any]) -> None:
        asked = self.utterance(value)
        if asked is None:
            return
        self.breaks("order.complete-had-start", when=asked.started is None)
        text = asked.judged.fields.get("text", "")
        sent = value.get("audio_bytes")
        self.breaks("complete.audio-bytes", when=sent != asked.bytes)
        duration = value.get("total_duration_s", 0) - asked.bytes / (
            2 * (asked.started or {"sample_rate": 24000})["sample_rate"]
        )
        self.breaks("complete.duration", when=abs(duration) > 0.001)
        known = asked.judged.acceptable
        wrong = known and value.get("characters") != len(text)
        self.breaks("complete.characters", when=wrong)
        if asked.sent is not None and self.now is not None:
            late = value["elapsed_s"] > self.now - asked.sent + 0.001
            self.breaks("complete.elapsed", when=late)
        speakable = any(character.isalnum() for character in text)
        self.breaks("audio.unspeakable", when=known and asked.bytes > 0 and not speakable)
        if "timing" in self.claims and asked.judged.fields.get("marks"):
            told = {k for word in asked.words for k in range(word["char_start"], word["char_end"])}
            needed = {k for k, character in enumerate(text) if character.isalnum()}
            self.breaks("timing.sent-when-asked", when=not needed <= told)
            over = any(w["end_s"] > value["total_duration_s"] + 0.001 for w in asked.words)
            self.breaks("timing.ordered", when=over)
        self.finish(asked)

    def marks(self, value: dict[str, Any]) -> None:
        asked = self.utterance(value)
        if asked is None:
            return
        if "timing" not in self.claims:
            self.breaks("message.unclaimed-marks")
            return
        self.breaks("timing.before-audio", when=asked.started is None)
        self.breaks("timing.sent-when-asked", when=not asked.judged.fields.get("marks"))
        for word in value["words"]:
            text = asked.judged.fields["text"]
            piece = text[word["char_start"] : word["char_end"]]
            self.breaks("timing.offsets", when=piece != word["text"])
            self.breaks("timing.ordered", when=word["end_s"] <= word["start_s"])
            late = word["start_s"] < asked.bytes / 48000
            self.breaks("timing.before-audio", when=late)
            if asked.words:
                last = asked.words[-1]
                overlap = last["end_s"] > word["start_s"] or last["char_end"] > word["char_start"]
                self.breaks("timing.ordered", when=overlap)
            asked.words.append(word)

    def error(self, value: dict[str, Any]) -> None:
        code = str(value.get("code"))
        if code not in ERROR_CODES:
            self.breaks("error.registered-code")
        elif value.get("retryable") != ERROR_CODES[code].retryable:
            self.breaks("error.retryable")
        if value.get("rejected"):
            self.rejection(value)
            return
        asked = self.message(value)
        if asked is not None and not asked.judged.acceptable:
            self.breaks("reject.one-error")
            return
        asked = self.utterance(value)
        if asked is not None:
            self.check_place(asked)
            early = code == "going_away" and self.close is not None and not self.shutdown
            self.breaks("close.drains", when=early)
            self.finish(asked)

    def rejection(self, value: dict[str, Any]) -> None:
        asked = self.message(value)
        if asked is None:
            return
        if self.ignored(asked):
            self.breaks("close.ignores-later")
            return
        self.breaks("reject.one-error", when=asked.settled)
        self.breaks("order.one-terminal", when=asked.started is not None)
        code = value.get("code")
        kind = asked.judged.type
        allowed = set(asked.judged.codes) | {"internal"}
        if kind == "synthesize":
            allowed |= ALWAYS | ({"going_away"} if asked.after_shutdown else set())
            if asked.judged.request_id in asked.ids_pending:
                allowed.add("duplicate_request_id")
            unended = sum(
                not other.settled and other.seq not in self.rejected_later
                for other in self.asked[: asked.seq - 1]
                if other.judged.type == "synthesize"
            )
            if unended > self.limits["max_waiting"]:
                allowed.add("queue_full")
        self.breaks("validation", when=code not in allowed)
        if kind == "cancel" and asked.judged.acceptable:
            self.breaks("cancel.done")
        self.breaks("reject.one-error", when=value.get("request_id") != asked.judged.request_id)
        asked.rejected = asked.answered = True
        self.refused_full |= code == "queue_full"
        if code != "queue_full" and self.has_place(asked):
            self.check_place(asked)

    def cancelled(self, value: dict[str, Any]) -> None:
        asked = self.utterance(value)
        if asked is None:
            return
        if "interrupt" not in self.claims:
            self.breaks("order.one-terminal")
            self.finish(asked)
            return
        self.breaks("cancel.audio-bytes", when=value.get("audio_bytes") != asked.bytes)
        cancels = [other for other in self.asked[asked.seq :] if other.judged.type == "cancel"]
        causes = [
            other
            for other in cancels
            if other.judged.acceptable
            and other.judged.request_id in (None, asked.judged.request_id)
        ]
        if not causes:
            null = any("request_id" in other.judged.fields for other in cancels)
            named = any(other.judged.acceptable for other in cancels)
            self.breaks("cancel.only-named" if named else "cancel.null-id", when=null)
            self.breaks("order.one-terminal", when=not cancels)
        elif self.now is not None and all(
            cause.sent is not None and self.now - cause.sent > 0.5 for cause in causes
        ):
            self.breaks("cancel.prompt")
        if cancels:
            self.loose.append(asked)
        self.finish(asked)

    def cancel_done(self, value: dict[str, Any]) -> None:
        asked = self.message(value)
        if asked is None:
            return
        if "interrupt" not in self.claims:
            self.breaks("validation")
            return
        if not asked.judged.acceptable:
            named = asked.judged.fields.get("request_id") is not None
            self.breaks("cancel.invalid-id" if named else "cancel.null-id")
            return
        self.breaks("cancel.done", when=asked.answered or value["count"] != len(self.loose))
        self.breaks("request-id.echoed", when=value.get("request_id") != asked.judged.request_id)
        self.loose.clear()
        for other in self.asked[: asked.seq - 1]:
            if other.judged.type != "synthesize" or other.settled or not other.before_close:
                continue
            if not other.judged.acceptable or other.seq in self.rejected_later:
                continue
            if asked.judged.request_id is None:
                self.breaks("cancel.all")
            elif asked.judged.request_id == other.judged.request_id:
                self.breaks("cancel.running" if other is self.active else "cancel.waiting")
        if asked.sent is not None and self.now is not None:
            self.breaks("cancel.overtakes", when=self.now - asked.sent > 5)
        asked.answered = True

    def session(self, value: dict[str, Any]) -> None:
        asked = self.message(value)
        if asked is None:
            return
        self.breaks("seq.counts-messages", when=asked.judged.type != "hello")
        self.breaks("validation", when=not asked.judged.acceptable or asked.seq != 1)
        self.breaks("hello.session", when=any(other.answered for other in self.asked[1:]))
        self.breaks("session.matches-claims", when=set(value["profiles"]) != self.claims)
        short = value["limits"]["max_waiting"] < self.rules.floors["max_waiting"]
        self.breaks("session.limits", when=short)
        asked.answered = True

    def session_closed(self, value: dict[str, Any]) -> None:
        if self.closed is not None:
            return
        self.closed, self.closed_at = value, self.now
        reason = value["reason"]
        if reason == "client_close" and self.close is None:
            self.breaks("session.stays-open", "close.session-closed", "seq.counts-messages")
            return
        if self.close is not None and not self.shutdown and reason != "client_close":
            self.breaks("close.session-closed")
        if reason == "client_close":
            assert self.close is not None
            right = value.get("seq") == value.get("last_seq") == self.close.seq
            self.breaks("close.session-closed", when=not right)
            self.breaks("seq.counts-messages", when=value.get("seq") != self.close.seq)
        else:
            answered = [asked.seq for asked in self.asked if asked.answered]
            self.breaks(
                "session-closed.last-seq", when=value["last_seq"] != max(answered, default=0)
            )
        if reason == "idle" and self.stated and self.now is not None:
            last = self.active_at if self.active_at is not None else 0.0
            self.breaks(
                "idle.reset-by-messages", when=self.now - last < self.limits["idle_timeout_s"]
            )
        for asked in self.asked:
            late = asked.sent is not None and self.now is not None and self.now - asked.sent > 5
            if asked.seq > value["last_seq"] and not (late and asked.judged.type == "cancel"):
                continue
            if self.ignored(asked) or asked.judged.type in ("close", "keepalive"):
                continue
            if asked.judged.type == "cancel" and asked.judged.acceptable:
                if not asked.answered:
                    self.breaks("cancel.done", "cancel.after-close")
            elif asked.settled or asked.answered:
                continue
            elif reason == "client_close" and asked.judged.acceptable:
                self.breaks("close.drains", "close.session-closed", "order.one-terminal")
            elif reason == "client_close":
                self.breaks("close.session-closed", "reject.one-error")
            elif self.shutdown:
                self.breaks("shutdown.drains", "order.one-terminal")
            else:
                self.breaks("order.one-terminal")

    def endpoint_closes(self, step: dict[str, Any]) -> None:
        self.endpoint_closed = True
        if self.client_closed:
            self.breaks("ws.close-echo", when="lost" in step)
            return
        if self.closed is not None:
            allowed = {1000} | ({1001} if self.shutdown else set())
            big = self.too_big or self.closed["reason"] == "message_too_big"
            allowed |= {1009} if big else set()
            self.breaks("close.code", when=step.get("close") not in allowed)
            if self.closed_at is not None and self.now is not None:
                self.breaks("close.endpoint-waits", when=self.now - self.closed_at < 2)
            return
        if self.too_big and step.get("close") == 1009:
            return
        unacceptable = bool(self.asked) and not self.asked[-1].judged.acceptable
        if unacceptable or self.last_rejected:
            self.breaks("reject.session-survives")
        elif "lost" in step:
            return
        elif self.close is not None:
            self.breaks("close.session-closed", "close.endpoint-waits")
        elif self.shutdown:
            self.breaks("shutdown.session-closed")
            unended = any(not asked.settled for asked in self.asked)
            self.breaks("shutdown.drains", when=unended)
        else:
            self.breaks("session.stays-open")
            idle = self.stated.get("idle_timeout_s")
            if idle and self.now is not None and self.active_at is not None:
                self.breaks("idle.session-closed", when=self.now - self.active_at > idle)

    def end(self) -> None:
        self.breaks("cancel.done", when=bool(self.loose))
        if self.client_closed and not self.endpoint_closed:
            self.breaks("ws.close-echo")
        if self.vector["ends"] != "quiet":
            return
        for asked in self.asked:
            if asked.answered or self.ignored(asked):
                continue
            kind, acceptable = asked.judged.type, asked.judged.acceptable
            if not acceptable:
                self.breaks("reject.one-error")
            elif kind == "synthesize":
                self.breaks("order.one-terminal")
                if any(o.judged.type == "cancel" and o.answered for o in self.asked[: asked.seq]):
                    self.breaks("cancel.session-goes-on")
                # Another was refused for want of the room that this one had.
                if self.refused_full:
                    self.breaks("queue.full")
            elif kind == "cancel":
                self.breaks("cancel.done")
            elif kind == "hello":
                self.breaks("hello.session")
            elif kind == "close" and self.closed is None:
                self.breaks("close.session-closed")


def judge_client(vector: dict[str, Any], rules: Any) -> set[str]:
    """The requirements that the client breaks."""
    found: set[str] = set()
    count, closing, closed, gone = 0, False, False, False
    names: dict[int, str] = {}
    for step in vector["steps"]:
        if step["from"] == "endpoint":
            value = step.get("json", {})
            if value.get("type") in ("synthesis_complete", "error", "cancelled"):
                names.pop(value["seq"], None)
            closed |= value.get("type") == "session_closed"
            if "close" in step and closed and not gone:
                found.add("client.keeps-sending-side")
        elif "close" in step:
            gone = True
            if closing and not closed:
                found.add("client.keeps-sending-side")
        else:
            count += 1
            text = json.dumps(step["json"]) if "json" in step else step["text"]
            reading = rules.read_json(text)
            value = {} if reading.failed else dict(reading.value)
            odd = reading.failed or reading.duplicates
            if odd or not validator("client-message").is_valid(json.loads(text)):
                found.add("client.valid-messages")
            kind = value.get("type", "synthesize")
            if closing and kind != "cancel":
                found.add("client.no-message-after-close")
            if kind == "hello" and count > 1:
                found.add("client.first-hello")
            if kind == "synthesize" and value.get("request_id") is not None:
                if value["request_id"] in names.values():
                    found.add("client.unique-ids")
                names[count] = value["request_id"]
            closing |= kind == "close"
    return found


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_verdict(vector: dict[str, Any], rules: Any) -> None:
    if vector.get("role") == "client":
        found = judge_client(vector, rules)
    else:
        found = Judge(vector, rules).run()
    breaks = set(vector.get("breaks", []))
    if "validation" in found:
        found.remove("validation")
        meant = {requirement for requirement in breaks if requirement.startswith(VALIDATION)}
        assert meant
        found |= meant
    if vector["verdict"] == "legal":
        assert found == set()
    else:
        assert found & breaks
        assert found <= breaks


def test_form() -> None:
    for vector in VECTORS:
        steps = vector["steps"]
        times = [step["t"] for step in steps if "t" in step]
        assert times == sorted(times), vector["id"]
        last = [step for step in steps if {"close", "lost"} & step.keys()]
        assert (vector["ends"] == "closed") == bool(last), vector["id"]
        if last:
            assert last[-1] is steps[-1], vector["id"]
        claimed = set(vector["profiles"])
        for profile, kinds in (("interrupt", ("cancel",)), ("negotiate", ("hello",))):
            told = {vector["requirement"].split(".")[0]} & set(kinds)
            assert not told or profile in claimed, vector["id"]


def test_both_verdicts_for_what_matters() -> None:
    """Each requirement that has an illegal conversation is kept by some legal one, and so on."""
    legal = [vector for vector in VECTORS if vector["verdict"] == "legal"]
    illegal = [vector for vector in VECTORS if vector["verdict"] == "illegal"]
    assert len(legal) >= 40
    assert len(illegal) >= 40
    areas = {vector["requirement"].split(".")[0] for vector in VECTORS}
    assert areas >= {
        *("order", "reject", "queue", "seq", "request-id", "close", "cancel", "hello"),
        *("idle", "shutdown", "session", "complete", "audio", "timing", "client"),
    }
