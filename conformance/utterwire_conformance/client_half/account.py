"""What a transcript tells of a client: what it was asked to say, and what became of it.

A pure view; whether that was legal is for the judges.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Final, Self

from utterwire_conformance.check import Account
from utterwire_conformance.dialogue import Dialogue, Utterance
from utterwire_conformance.exchange import Exchange

from .contract import ContractError, Ending, Start, Warned, read_event
from .event_stream import spoken
from .script import SCRIPTS

__all__ = ["Attempt", "ClientAccount", "Line"]

_SESSIONS: Final = ("core", "interrupt", "negotiate")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request for a line, and what the scripted endpoint did about it; `t` is its time."""

    t: float
    utterance: Utterance | None = None
    dialogue: Dialogue | None = None
    exchange: Exchange | None = None
    spoken: bytes = b""

    @property
    def audio(self) -> bytes:
        """All audio of it that was sent."""
        if self.exchange is None:
            return self.spoken
        if self.exchange.status != 200:
            return b""
        if self.exchange.headers.get("content-type") == "text/event-stream":
            return spoken(self.exchange.body)[0]
        return self.exchange.body

    @property
    def complete(self) -> bool:
        """Whether it was spoken to its end."""
        if self.utterance is not None:
            return self.utterance.complete is not None
        assert self.exchange is not None
        if self.exchange.status != 200 or self.exchange.clean is not True:
            return False
        if self.exchange.headers.get("content-type") == "text/event-stream":
            return spoken(self.exchange.body)[1]
        return True


@dataclass(slots=True)
class Line:
    """One line of stdin; `number` counts from 1.

    `heard` is what the client wrote to stdout for it, None where it told of no end.
    """

    number: int
    text: str
    attempts: list[Attempt] = field(default_factory=list)
    start: Start | None = None
    ending: Ending | None = None
    heard: bytes | None = None

    @property
    def kind(self) -> str | None:
        """How the client says that it came out."""
        return self.ending.kind if self.ending is not None else None

    @property
    def last(self) -> Attempt | None:
        """The last request for it."""
        return self.attempts[-1] if self.attempts else None

    def fault(self) -> str | None:
        """Why this is not a line that was spoken whole; None where it was."""
        if self.last is None:
            return "was never asked for"
        if not self.last.complete:
            return "was not spoken to its end by the endpoint"
        if self.ending is None:
            return "has no event that tells of its end"
        if self.ending.kind != "complete":
            code = f" ({self.ending.code})" if self.ending.code else ""
            return f"was told to be `{self.ending.kind}`{code}"
        return self.audio_fault()

    def audio_fault(self) -> str | None:
        """How what was heard differs from what was sent by the last request; None if it does not.

        Of a request that was tried again, what had been heard before may stand in front.
        """
        sent, heard = self.last.audio if self.last is not None else b"", self.heard or b""
        if heard == sent or (len(self.attempts) > 1 and heard.endswith(sent)):
            return None
        if len(heard) != len(sent):
            return f"came out as {len(heard)} bytes of audio; {len(sent)} were sent"
        place = next(i for i, (a, b) in enumerate(zip(heard, sent, strict=True)) if a != b)
        return f"has other audio than was sent, from byte {place} on"


class ClientAccount:
    """A script as the client played its part in it."""

    def __init__(self, account: Account) -> None:
        self.name = account.scenario
        self.account = account
        self.dialogues = [d for d in account.dialogues if d.asked is not None]
        self.exchanges = [e for e in account.exchanges if e.target.startswith("/invocations")]
        self.lines: list[Line] = []
        self.audio = b""
        self.status: int | None = None
        self.killed: str | None = None
        self.ended = False
        self.words = ""
        self.deadline_s: float | None = None
        self.lag_s = 0.0
        """How late the suite's own clock was at most, in seconds."""
        self.warnings: list[Warned] = []
        self.breach: str | None = None
        """How the client broke the contract, or None."""
        self._endings: list[Ending] = []
        self._cut: str | None = None
        self._read_notes()
        if self._cut is not None and any(line.ending is None for line in self.lines):
            # What is missing may stand in what nobody read.
            self.breach = self.breach or self._cut
        self._share_audio()
        self._find_attempts()

    @classmethod
    def of(cls, account: Account) -> Self:
        """Read an account."""
        return cls(account)

    @property
    def profile(self) -> str:
        """What the client was told to use."""
        return SCRIPTS[self.name].profile if self.name in SCRIPTS else "core"

    @property
    def by_session(self) -> bool:
        """Whether the client was to speak over a session, not over HTTP."""
        return self.profile in _SESSIONS

    def facts(self, name: str) -> list[str]:
        """The remarks of that name that the script made about any connection."""
        prefix = f"{name}: "
        return [
            (entry.text or "").removeprefix(prefix)
            for entry in self.account.transcript.entries
            if entry.kind == "note" and (entry.text or "").startswith(prefix)
        ]

    def line(self, text: str) -> Line | None:
        """The line of that text."""
        return next((line for line in self.lines if line.text == text), None)

    @property
    def way_out(self) -> str:
        """How the process ended, in words."""
        if self.killed is not None:
            return f"the suite ended it: {self.killed}"
        words = f"; its last words: {self.words}" if self.words and self.status else ""
        return f"it ended with status {self.status}{words}"

    @property
    def refusals(self) -> list[float]:
        """When handshakes were refused."""
        return [
            d.opened.t for d in self.dialogues if d.opened is not None and d.opened.status != 101
        ]

    def _read_notes(self) -> None:
        for entry in self.account.transcript.entries:
            if entry.kind != "note" or not (entry.text or "").startswith("client "):
                continue
            name, _, value = (entry.text or "").removeprefix("client ").partition(": ")
            if name == "event":
                self._read_event(value)
            elif name == "audio":
                self.audio = base64.b64decode(value)
            elif name == "words":
                self.words = value
            elif name == "lag":
                self.lag_s = float(value)
            elif name == "flood":
                self.breach = self.breach or value
            elif name == "cut":
                self._cut = value
            elif name in ("line", "exit", "deadline"):
                self._read_fact(name, json.loads(value))

    def _read_fact(self, name: str, value: Any) -> None:
        if name == "line":
            self.lines.append(Line(len(self.lines) + 1, value))
        elif name == "deadline":
            self.deadline_s = value
        else:
            self.status, self.killed, self.ended = value["status"], value["killed"], True

    def _read_event(self, text: str) -> None:
        try:
            event = read_event(text)
        except ContractError as error:
            self.breach = self.breach or str(error)
            return
        if isinstance(event, Warned):
            self.warnings.append(event)
            return
        if event is None:
            return
        if event.utterance > len(self.lines):
            self.breach = self.breach or (
                f"an event tells of utterance {event.utterance}, but there were"
                f" {len(self.lines)} lines"
            )
            return
        line = self.lines[event.utterance - 1]
        if isinstance(event, Start):
            line.start = event
        elif line.ending is not None:
            self.breach = self.breach or f"two events end utterance {event.utterance}"
        else:
            line.ending = event
            self._endings.append(event)

    def _share_audio(self) -> None:
        """Give each utterance its part of stdout, in the order in which they ended."""
        place = 0
        for ending in self._endings:
            end = place + ending.audio_bytes
            self.lines[ending.utterance - 1].heard = self.audio[place:end]
            place = end
        told_all = all(line.ending is not None for line in self.lines)
        if self.killed is None and self.ended and told_all and place != len(self.audio):
            self.breach = self.breach or (
                f"the events tell of {place} bytes of audio; {len(self.audio)} went to stdout"
            )

    def _find_attempts(self) -> None:
        by_text = {line.text: line for line in self.lines}
        for dialogue in self.dialogues:
            spoken_of = _audio_of(dialogue)
            for utterance in dialogue.utterances.values():
                meaning = utterance.sent.meaning
                line = by_text.get(meaning.text) if meaning.type == "synthesize" else None
                if line is not None:
                    line.attempts.append(
                        Attempt(
                            utterance.sent.t,
                            utterance,
                            dialogue,
                            spoken=spoken_of.get(utterance.seq, b""),
                        )
                    )
        for exchange in self.exchanges:
            text = exchange.request.get("text")
            line = by_text.get(text) if isinstance(text, str) else None
            if line is not None:
                line.attempts.append(Attempt(exchange.sent_t, exchange=exchange))
        for line in self.lines:
            line.attempts.sort(key=lambda attempt: attempt.t)


def _audio_of(dialogue: Dialogue) -> dict[int, bytes]:
    """The audio of each request, by its `seq`, as it was sent.

    It belongs to the utterance that has started, or else to the oldest that has not ended.
    """
    spoken_of: dict[int, bytearray] = {}
    ended: set[int] = set()
    running: int | None = None
    for chunk in dialogue.chunks:
        if chunk.is_audio:
            waiting = (
                u.seq
                for u in dialogue.utterances.values()
                if u.sent.meaning.type == "synthesize" and u.seq not in ended
            )
            owner = running if running is not None else next(waiting, None)
            if owner is not None:
                spoken_of.setdefault(owner, bytearray()).extend(chunk.data)
        elif chunk.seq is not None and chunk.type == "synthesis_start":
            running = chunk.seq
        elif chunk.seq is not None and (chunk.is_terminal or chunk.rejects):
            ended.add(chunk.seq)
            running = None if running == chunk.seq else running
    return {seq: bytes(data) for seq, data in spoken_of.items()}
