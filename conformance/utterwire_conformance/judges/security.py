"""Judges of `protocol.md#security-considerations`, as far as the wire and a log show them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from utterwire_conformance.check import Account, check, settle
from utterwire_conformance.dialogue import Dialogue, Utterance
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed

from . import quote

__all__ = ["no_internals", "text_is_plain", "text_not_logged"]

_BYTES_A_SECOND: Final = 48_000
# Symbols may be spelled out: "left curly bracket" is for one of them what eighteen letters are.
_SPELLED: Final = 20
_LEAST_S: Final = 30.0
_EXCUSES: Final = frozenset({"overloaded", "going_away", "queue_full"})


@check("security.text-is-plain", "plain-texts")
def text_is_plain(evidence: Sequence[Account]) -> Judgement:
    """What looks like code is spoken like any other text."""
    advice = "Hand `text` to the engine as it is; no template, shell, file or markup may see it."

    def find() -> Iterator[Judgement]:
        for account in evidence:
            cases = [
                (dialogue, utterance)
                for dialogue in account.dialogues
                for utterance in dialogue.utterances.values()
                if utterance.sent.case is not None
                and utterance.sent.case.check == "security.text_is_plain"
            ]
            pace = next((_pace(u) for _, u in cases if _name(u) == "a plain text"), 0.0)
            for dialogue, utterance in cases:
                yield from one(utterance, pace, dialogue)

    def one(utterance: Utterance, pace: float, dialogue: Dialogue) -> Iterator[Judgement]:
        name, text = _name(utterance), utterance.sent.meaning.text
        complete, error = utterance.complete, utterance.rejection or utterance.terminal
        reason = None
        if error is not None and error.code in _EXCUSES:
            yield not_exercised(f"The endpoint refused a text with `{error.code}`.")
            return
        if complete is not None:
            heard = len(utterance.pcm) / _BYTES_A_SECOND
            most = max(_LEAST_S, _SPELLED * pace * len(text))
            if complete.fields.get("characters") != len(text):
                reason = f"Of {name} {complete.fields.get('characters')} characters were counted."
            elif pace and heard > most:
                reason = f"What was spoken for {name} lasts {heard:.0f} s."
        elif error is not None:
            reason = f"{name.capitalize()} was answered with `{error.code}`."
        elif dialogue.hung_up and utterance.starts:
            reason = f"The session ended over {name}."
        elif utterance.seq in dialogue.in_vain:
            reason = f"{name.capitalize()} was not spoken to its end."
        else:
            return
        if reason is None:
            yield passed()
            return
        yield fail(
            reason,
            sent=quote.sent(utterance.sent),
            received=quote.chunk(complete or error),
            legal=f"`synthesis_complete` with `characters` {len(text)}, the text spoken as written",
            advice=advice,
        )

    return settle(find(), evidence, "no text could be spoken")


def _name(utterance: Utterance) -> str:
    return utterance.sent.case.name if utterance.sent.case is not None else ""


def _pace(utterance: Utterance) -> float:
    """Seconds of audio for a character of a plain text; 0.0 where it was not spoken."""
    if utterance.complete is None:
        return 0.0
    return len(utterance.pcm) / _BYTES_A_SECOND / max(1, len(utterance.sent.meaning.text))


_INSIDE: Final = {
    "a stack trace": re.compile(
        r"Traceback \(most recent call last\)|File \"[^\"]+\", line \d+|\.(py|js|go|rs|java):\d+"
        r"|\bgoroutine \d+ \[|thread '[^']*' panicked at|\bat [\w.$<>]+\([\w.]+:\d+\)"
    ),
    "the path of a file": re.compile(
        r"(?<![\w./:])/(home|root|usr|opt|var|etc|app|srv|tmp|mnt|proc|workspace|Users|lib)/[\w.-]+"
        r"|\b[A-Za-z]:\\[\w ]+\\|site-packages|node_modules"
    ),
    "the address of an object": re.compile(r"<[\w. ]+ at 0x[0-9a-fA-F]{6,}>"),
}


@check("security.no-internals", "order", general=True)
def no_internals(evidence: Sequence[Account]) -> Judgement:
    """No `message` of an `error` holds a stack trace or a path that the client did not send."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            for dialogue in account.dialogues:
                sent = {message.seq: message for message in dialogue.sent}
                for chunk in dialogue.controls:
                    if chunk.type == "error":
                        about = sent.get(chunk.seq or 0)
                        yield one(
                            chunk.fields.get("message"),
                            about.data if about is not None else b"",
                            quote.sent(about),
                            quote.chunk(chunk),
                        )
            for exchange in account.exchanges:
                body = exchange.json
                if exchange.is_synthesis and body is not None and body.get("type") == "error":
                    yield one(
                        body.get("message"),
                        exchange.request_body,
                        quote.exchange_request(exchange),
                        quote.answer(exchange),
                    )

    def one(message: object, asked: bytes, sent: str, received: str) -> Judgement:
        told = message if isinstance(message, str) else ""
        known = asked.decode("utf-8", "replace").replace("\\\\", "\\").replace("\\/", "/")
        for what, pattern in _INSIDE.items():
            for hit in pattern.finditer(told):
                if hit.group() not in known:
                    return fail(
                        f"The `message` of an `error` holds {what}: {hit.group()!r}.",
                        sent=sent,
                        received=received,
                        legal="words for a person, and nothing of the inside of the endpoint",
                        advice="Write traces to the log; tell the client what it can do.",
                    )
        return passed()

    return settle(find(), evidence, "no error was received")


@check("security.text-not-logged", "private-text")
def text_not_logged(evidence: Sequence[Account]) -> Judgement:
    """What a launched endpoint writes to its output holds no text that it was sent."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            notes = [e.text or "" for e in account.transcript.entries if e.kind == "note"]
            for note in notes:
                if note.startswith("log: holds"):
                    yield fail(
                        f"The output of the endpoint {note.removeprefix('log: ')}.",
                        sent=quote.sent(account.dialogues[0].sent[0]),
                        received="the same text in what the process writes to stdout or stderr",
                        legal="its length, `seq` and session, never the text",
                        advice="Take texts out of the log; they are private.",
                    )
                elif note.startswith("log: does not hold"):
                    yield passed()

    return settle(find(), evidence, "no output of the endpoint could be read")
