"""A session as a conversation: the messages sent, the chunks that came back, the utterances.

A pure view of recorded frames. It decides only what belongs to what; whether that was legal is
for the judges. It is fed line by line, so that the driver can watch a session while it runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from .claims import EndpointClaims
from .classification import Breach, Reading, classify
from .client_message import Meaning, read_client_message
from .strict_json import JsonValue
from .transcript import Case, Entry, Transcript

__all__ = [
    "MOST_REJECTIONS",
    "STOOD_STILL",
    "Chunk",
    "Closing",
    "Dialogue",
    "Sent",
    "Utterance",
    "dialogues",
]

MOST_REJECTIONS: Final = 256
"""So many rejections wait for their places; what is past that goes out at once."""

STOOD_STILL: Final = "stood still: "
"""How the remark begins that the suite stood still; two moments follow."""

# So long after a standstill things are still read that came in its time.
_CATCHING_UP_S: Final = 0.25
_TERMINALS: Final = frozenset({"synthesis_complete", "cancelled"})
_ABOUT_UTTERANCE: Final = frozenset(
    {"synthesis_start", "synthesis_complete", "cancelled", "error", "marks"}
)
_OBEYS: Final = {"cancel_done": "cancel", "session": "hello"}


@dataclass(slots=True)
class Sent:
    """One client message, whole. `seq` counts from 1; `t` is when its last frame was sent."""

    seq: int
    data: bytes
    kind: str
    t: float
    index: int
    meaning: Meaning
    case: Case | None = None
    after_close: bool = False
    frames: int = 1

    @property
    def awaits_answer(self) -> bool:
        """Whether the endpoint owes this message a start or an error."""
        if self.after_close:
            return False
        return self.meaning.type not in ("keepalive", "close") or self.meaning.verdict != "accept"


@dataclass(slots=True)
class Chunk:
    """One message from the endpoint, whole. `frames` is the number of frames it came in.

    `seq` is the client message it is about: by its id if that is another's, else as it says itself
    (`said_seq`), else by order. `index` is its place in the transcript of the session and
    `ended_at` that of its last frame, `number` its place among the chunks.
    """

    index: int
    number: int
    t: float
    kind: str
    data: bytes
    frames: int
    reading: Reading
    seq: int | None = None
    ended_at: int = 0

    @property
    def is_control(self) -> bool:
        """Whether it is a control message with fields that can be read."""
        return self.reading.verdict != "audio" and self.reading.fields is not None

    @property
    def is_audio(self) -> bool:
        """Whether a receiver takes it for audio."""
        return self.reading.verdict == "audio"

    @property
    def type(self) -> str | None:
        """The `type` of a control message."""
        return self.reading.type if self.is_control else None

    @property
    def fields(self) -> Mapping[str, JsonValue]:
        """The fields of a control message, else nothing."""
        return self.reading.fields or {}

    @property
    def is_private(self) -> bool:
        """Whether it is an endpoint's own message, part of no utterance whatever it carries."""
        return (self.type or "").startswith("x_")

    @property
    def said_seq(self) -> int | None:
        """The `seq` it carries, if that is an integer."""
        seq = self.fields.get("seq")
        return seq if isinstance(seq, int) and not isinstance(seq, bool) else None

    @property
    def code(self) -> str | None:
        """The `code` of an `error`."""
        code = self.fields.get("code")
        return code if isinstance(code, str) else None

    @property
    def rejects(self) -> bool:
        """Whether it is an `error` that rejects a message."""
        return self.type == "error" and self.fields.get("rejected") is True

    @property
    def is_terminal(self) -> bool:
        """Whether it ends an utterance."""
        return self.type in _TERMINALS or (self.type == "error" and not self.rejects)


@dataclass(slots=True)
class Utterance:
    """What came back about one client message.

    `audio` came between its start and its end, `late_audio` after the end, and `unstarted_audio`
    while it was its turn and nothing had started. `obeyed` are the `cancel_done` of a `cancel` and
    the `session` of a `hello`.
    """

    sent: Sent
    starts: list[Chunk] = field(default_factory=list)
    audio: list[Chunk] = field(default_factory=list)
    late_audio: list[Chunk] = field(default_factory=list)
    unstarted_audio: list[Chunk] = field(default_factory=list)
    terminals: list[Chunk] = field(default_factory=list)
    rejections: list[Chunk] = field(default_factory=list)
    obeyed: list[Chunk] = field(default_factory=list)
    others: list[Chunk] = field(default_factory=list)

    @property
    def seq(self) -> int:
        """The ordinal of the message."""
        return self.sent.seq

    @property
    def start(self) -> Chunk | None:
        """The first `synthesis_start`."""
        return self.starts[0] if self.starts else None

    @property
    def terminal(self) -> Chunk | None:
        """The first terminal message."""
        return self.terminals[0] if self.terminals else None

    @property
    def rejection(self) -> Chunk | None:
        """The first `error` that rejects the message."""
        return self.rejections[0] if self.rejections else None

    @property
    def complete(self) -> Chunk | None:
        """The first `synthesis_complete`."""
        return next((c for c in self.terminals if c.type == "synthesis_complete"), None)

    @property
    def answered(self) -> bool:
        """Whether anything at all came back about it."""
        every = (self.starts, self.terminals, self.rejections, self.audio, self.unstarted_audio)
        return any(every) or bool(self.obeyed)

    @property
    def ended(self) -> bool:
        """Whether it was rejected, obeyed, or came to an end."""
        return bool(self.terminals or self.rejections or self.obeyed)

    @property
    def is_short(self) -> bool:
        """Whether less audio has come than its terminal message says."""
        said = self.terminal.fields.get("audio_bytes") if self.terminal is not None else None
        came = sum(len(chunk.data) for chunk in (*self.audio, *self.late_audio))
        return isinstance(said, int | float) and said > came

    @property
    def pcm(self) -> bytes:
        """Its audio, joined; also what came without a start."""
        return b"".join(chunk.data for chunk in (*self.unstarted_audio, *self.audio))

    @property
    def chunks(self) -> list[Chunk]:
        """All that came back about it, in order."""
        every = [*self.starts, *self.audio, *self.late_audio, *self.unstarted_audio]
        every += [*self.terminals, *self.obeyed]
        return sorted([*every, *self.rejections, *self.others], key=lambda chunk: chunk.number)


@dataclass(frozen=True, slots=True)
class Closing:
    """A close frame: when, and its code (None if it carried none)."""

    t: float
    index: int
    code: int | None


class Dialogue:
    """One session, read from the lines of a transcript."""

    def __init__(self, claims: EndpointClaims, scenario: str = "", session: int = 1) -> None:
        self.claims = claims
        self.scenario = scenario
        self.session = session
        self.entries: list[Entry] = []
        self.sent: list[Sent] = []
        self._close_sent: Sent | None = None
        self.chunks: list[Chunk] = []
        self.utterances: dict[int, Utterance] = {}
        self.orphans: list[Chunk] = []
        """Audio that came while no utterance was running."""
        self.interleaved: list[tuple[Chunk, Utterance]] = []
        """Starts that came while the utterance named had started and not ended."""
        self.pings: list[tuple[float, int, bytes]] = []
        self.pongs: list[tuple[float, int, bytes]] = []
        self.close_out: Closing | None = None
        self.close_in: Closing | None = None
        self.eof: Entry | None = None
        self.eof_index: int | None = None
        self.opened: Entry | None = None
        self.asked: Entry | None = None
        self.broken_frames: list[Entry] = []
        self.aborted = False
        """Whether the suite itself broke the connection off."""
        self.abused = False
        """Whether the suite sent what RFC 6455 forbids, so that the endpoint must hang up."""
        self.in_vain: set[int] = set()
        """Requests whose end the suite waited for until its patience was over."""
        self.unanswered: set[int] = set()
        """The same of messages of the types `cancel` and `hello`."""
        self.facts: dict[str, str] = {}
        """Other remarks of the scenario, `name: value`."""
        self.standstills: list[tuple[float, float]] = []
        """When the suite itself stood still, from and until, in seconds of the recording."""
        self.breaches: tuple[Breach, ...] | None = None
        """What the oracle found, once it was asked."""
        self.misnumbered: bool | None = None
        """Whether a `seq` is wrong, so that nobody can tell what belongs to what; once asked."""
        self._case: Case | None = None
        self._out: tuple[str, bytearray, int] | None = None
        self._in: tuple[str, bytearray, int, int] | None = None
        self._running: Utterance | None = None
        self._session_closed: Chunk | None = None
        self._last: Utterance | None = None

    @property
    def is_open(self) -> bool:
        """Whether the session was opened."""
        if self.opened is None:
            return False
        # SageMaker answers a call where an endpoint answers a handshake (sagemaker.md#opening).
        by_call = self.asked is not None and self.asked.method == "POST"
        return self.opened.status == (200 if by_call else 101)

    @property
    def rtt(self) -> float:
        """How long the handshake took, in seconds: at least a round trip; 0.0 if not seen."""
        if self.asked is None or self.opened is None:
            return 0.0
        return self.opened.t - self.asked.t

    def stood_still(self, since: float, until: float) -> bool:
        """Whether the suite stood still between two moments, so that neither tells much.

        What came meanwhile was read, and so has its time, only afterwards.
        """
        return any(
            start < until and since < end + _CATCHING_UP_S for start, end in self.standstills
        )

    def had_ended(self, utterance: Utterance | None, t: float) -> bool:
        """Whether, by its own account, it had ended when a message sent at `t` was read.

        An endpoint toward which nobody reads may still have been rid of all the audio: something
        on the way (a proxy) can take it.
        """
        if utterance is None or utterance.start is None or utterance.complete is None:
            return False
        elapsed = utterance.complete.fields.get("elapsed_s")
        spent = elapsed if isinstance(elapsed, int | float) else 0.0
        # The start took its way to the client, and the message took its own to the endpoint.
        return utterance.start.t + spent <= t + self.rtt

    @property
    def ended(self) -> bool:
        """Whether nothing more can come."""
        return self.eof is not None

    @property
    def dismissed(self) -> Chunk | None:
        """A `session_closed` that no `close` asked for and no limit put to the test explains."""
        farewell = self.session_closed
        if farewell is None or self.close_sent is not None or "shutdown" in self.facts:
            return None
        reason = farewell.fields.get("reason")
        if reason == "slow_reader" and "stall limit" in self.facts:
            return None
        return None if reason in ("idle", "message_too_big") else farewell

    @property
    def given_up(self) -> bool:
        """Whether it ended after nobody had read for longer than the endpoint bears, so that its
        last words may not have got through."""
        if "stalled for" not in self.facts or "stall limit" not in self.facts:
            return False
        stalled, limit = float(self.facts["stalled for"]), float(self.facts["stall limit"])
        wordless = self.session_closed is None and self.close_in is None
        return stalled >= limit and wordless and self.ended

    @property
    def hung_up(self) -> bool:
        """Whether the endpoint ended the session though nobody asked it to."""
        # Who is told to shut down ends its sessions; what it owes them then has rules of its own.
        if self.abused or self.aborted or self.given_up or "shutdown" in self.facts:
            return False
        if self.dismissed is not None:
            return True
        if self.session_closed is not None:
            return False
        theirs = self.close_in.index if self.close_in is not None else None
        if theirs is None and self.eof is not None:
            theirs = self.eof_index
        return theirs is not None and (self.close_out is None or self.close_out.index > theirs)

    def passed_over(self, utterance: Utterance) -> bool:
        """Whether the endpoint went on without answering this message."""
        if utterance.answered:
            return False
        later = not self.crowded and any(
            _in_order(u) for u in self.utterances.values() if u.seq > utterance.seq
        )
        farewell = self.session_closed
        # A session with an unanswered request is not idle, unless the request crossed the end: it
        # does so for long where neither side had a processor to run on.
        idle = farewell is not None and farewell.fields.get("reason") == "idle"
        forgotten = (
            farewell is not None
            and idle
            and farewell.t - utterance.sent.t > 1.0
            and not self.stood_still(utterance.sent.t, farewell.t)
        )
        return later or forgotten or utterance.seq in self.in_vain | self.unanswered

    @property
    def first_owed(self) -> Sent | None:
        """The first message that should have been answered and was not."""
        return next((u.sent for u in self.utterances.values() if self._owed(u)), None)

    @property
    def running(self) -> Utterance | None:
        """The utterance that has started and not ended."""
        return self._running

    @property
    def session_closed(self) -> Chunk | None:
        """The first `session_closed`."""
        return self._session_closed

    @property
    def close_sent(self) -> Sent | None:
        """The first valid `close` message."""
        return self._close_sent

    @property
    def controls(self) -> list[Chunk]:
        """The control messages."""
        return [chunk for chunk in self.chunks if chunk.is_control]

    @property
    def answers(self) -> list[Chunk]:
        """The control messages that can be about another: all but private ones."""
        return [chunk for chunk in self.controls if not chunk.is_private]

    @property
    def crowded(self) -> bool:
        """Whether more messages had to be rejected than an endpoint has to keep in their places."""
        return sum(s.meaning.verdict == "reject" for s in self.sent) > MOST_REJECTIONS

    def utterance(self, seq: int) -> Utterance | None:
        """What came back about message `seq`, or None if it was not sent."""
        return self.utterances.get(seq)

    def feed(self, entry: Entry) -> None:
        """Take the next line of this session."""
        index = len(self.entries)
        self.entries.append(entry)
        if entry.dir == "note":
            self._note(entry.text or "")
        elif entry.kind == "open":
            if entry.dir == "out":
                self.asked = entry
            else:
                self.opened = entry
        elif entry.kind == "eof":
            if entry.dir == "out":
                self.aborted = self.aborted or self.eof is None
            elif self.eof is None:
                self.eof, self.eof_index = entry, index
        elif entry.dir == "out":
            self._feed_out(entry, index)
        else:
            self._feed_in(entry, index)

    def _note(self, text: str) -> None:
        case = Case.from_note(text)
        if case is not None:
            self._case = case
        elif text == "abuse":
            self.abused = True
        elif text.startswith("in vain: "):
            self.in_vain |= _seqs(text) & self.utterances.keys()
        elif text.startswith("unanswered: "):
            self.unanswered |= _seqs(text) & self.utterances.keys()
        elif text.startswith(STOOD_STILL):
            since, _, until = text.removeprefix(STOOD_STILL).partition(" ")
            with contextlib.suppress(ValueError):
                self.standstills.append((float(since), float(until)))
        elif ": " in text:
            name, _, value = text.partition(": ")
            self.facts[name] = value

    def _feed_out(self, entry: Entry, index: int) -> None:
        if entry.kind in ("text", "binary"):
            self._out = (entry.kind, bytearray(entry.data), 1)
        elif entry.kind == "cont" and self._out is not None:
            kind, data, frames = self._out
            data.extend(entry.data)
            self._out = (kind, data, frames + 1)
        elif entry.kind == "ping":
            self.pings.append((entry.t, index, entry.data))
        elif entry.kind == "close" and self.close_out is None:
            self.close_out = Closing(entry.t, index, entry.code)
        if entry.kind in ("text", "binary", "cont") and entry.fin and self._out is not None:
            kind, data, frames = self._out
            self._out = None
            self._message(kind, bytes(data), entry.t, index, frames)

    def _message(self, kind: str, data: bytes, t: float, index: int, frames: int) -> None:
        sent = Sent(
            len(self.sent) + 1,
            data,
            kind,
            t,
            index,
            read_client_message(data, self.claims),
            self._case,
            self.close_sent is not None,
            frames,
        )
        self._case = None
        self.sent.append(sent)
        if self._close_sent is None and _is_close(sent):
            self._close_sent = sent
        self.utterances[sent.seq] = Utterance(sent)

    def _feed_in(self, entry: Entry, index: int) -> None:
        if entry.kind in ("text", "binary"):
            self._in = (entry.kind, bytearray(entry.data), 1, index)
        elif entry.kind == "cont" and self._in is not None:
            kind, data, frames, first = self._in
            data.extend(entry.data)
            self._in = (kind, data, frames + 1, first)
        elif entry.kind == "pong":
            self.pongs.append((entry.t, index, entry.data))
        elif entry.kind == "close" and self.close_in is None:
            self.close_in = Closing(entry.t, index, entry.code)
        elif entry.kind == "raw":
            self.broken_frames.append(entry)
        if entry.kind in ("text", "binary", "cont") and entry.fin and self._in is not None:
            kind, data, frames, first = self._in
            self._in = None
            self._chunk(kind, bytes(data), frames, entry.t, first, index)

    def _chunk(
        self, kind: str, data: bytes, frames: int, t: float, index: int, ended_at: int
    ) -> None:
        reading = classify(data, "text" if kind == "text" else "binary")
        chunk = Chunk(index, len(self.chunks), t, kind, data, frames, reading, None, ended_at)
        self.chunks.append(chunk)
        if chunk.type == "session_closed" and self._session_closed is None:
            self._session_closed = chunk
        if chunk.is_audio:
            self._audio(chunk)
        elif chunk.type in _ABOUT_UTTERANCE:
            utterance = self._attribute(chunk)
            if utterance is not None:
                chunk.seq = utterance.seq
                self._about(chunk, utterance)
        else:
            chunk.seq = chunk.said_seq
            self._obeys(chunk)

    def _obeys(self, chunk: Chunk) -> None:
        utterance = self.utterances.get(chunk.said_seq or 0)
        obeyed = _OBEYS.get(chunk.type or "")
        if utterance is not None and obeyed is not None and utterance.sent.meaning.type == obeyed:
            utterance.obeyed.append(chunk)

    def _audio(self, chunk: Chunk) -> None:
        if self._running is not None:
            chunk.seq = self._running.seq
            self._running.audio.append(chunk)
            return
        self.orphans.append(chunk)
        if self._last is not None and (not self._waits() or self._last.is_short):
            chunk.seq = self._last.seq
            self._last.late_audio.append(chunk)
            return
        due = self._due()
        if due is not None:
            due.unstarted_audio.append(chunk)

    def _due(self) -> Utterance | None:
        """Whose turn it is, where nothing is running: the first that has not ended."""
        return next(
            (u for u in self.utterances.values() if u.sent.awaits_answer and not u.ended), None
        )

    def _waits(self) -> bool:
        """Whether a message still has to be answered, so that stray audio may be its own."""
        return self._due() is not None

    @staticmethod
    def _owed(utterance: Utterance) -> bool:
        return utterance.sent.awaits_answer and not utterance.answered

    def _attribute(self, chunk: Chunk) -> Utterance | None:
        said = chunk.said_seq
        named = chunk.fields.get("request_id")
        if isinstance(named, str):
            same = [u for u in self.utterances.values() if u.sent.meaning.request_id == named]
            unended = [u for u in same if not u.ended]
            # An endpoint that counts wrongly still knows its ids; the wrong `seq` is judged apart.
            if same and not any(u.seq == said for u in same):
                return (unended or same)[0]
        if said is not None and said in self.utterances:
            return self.utterances[said]
        about_running = chunk.type in ("synthesis_complete", "marks") or chunk.is_terminal
        if about_running and self._running is not None:
            return self._running
        return self._due() or self._last

    def _about(self, chunk: Chunk, utterance: Utterance) -> None:
        if chunk.type == "synthesis_start":
            if self._running is not None and self._running is not utterance:
                self.interleaved.append((chunk, self._running))
            utterance.starts.append(chunk)
            if not utterance.terminals:
                self._running = utterance
        elif chunk.rejects:
            utterance.rejections.append(chunk)
        elif chunk.is_terminal:
            utterance.terminals.append(chunk)
            self._last = utterance
            if self._running is utterance:
                self._running = None
        else:
            utterance.others.append(chunk)

    @classmethod
    def read(cls, transcript: Transcript, session: int) -> Dialogue:
        """The conversation of one session of a transcript."""
        dialogue = cls(transcript.claims, transcript.scenario, session)
        for entry in transcript.session(session):
            dialogue.feed(entry)
        return dialogue


def _seqs(remark: str) -> set[int]:
    """The messages that a remark names; a file may hold anything."""
    words = remark.partition(": ")[2].split(",")
    return {int(word) for word in words if len(word) < 10 and word.isascii() and word.isdecimal()}


def _in_order(utterance: Utterance) -> bool:
    """Whether anything came about it that does not overtake: what does tells nothing of others."""
    in_order = [u for u in utterance.terminals if u.type != "cancelled"]
    if utterance.sent.meaning.type not in ("cancel", "hello"):
        in_order += [u for u in utterance.rejections if u.code != "queue_full"]
    return bool(in_order or utterance.starts or utterance.audio or utterance.unstarted_audio)


def _is_close(sent: Sent) -> bool:
    return sent.meaning.type == "close" and sent.meaning.verdict == "accept"


def dialogues(transcripts: Iterable[Transcript]) -> list[Dialogue]:
    """Every session of every transcript that was opened."""
    return [
        Dialogue.read(transcript, session)
        for transcript in transcripts
        for session in transcript.sessions()
        if not transcript.is_http(session)
    ]
