"""Judges of whether all of a text is heard, whatever way it is asked for (`protocol.md#audio`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from utterwire_conformance.check import Account, check, settle
from utterwire_conformance.dialogue import Dialogue, Utterance
from utterwire_conformance.exchange import Exchange
from utterwire_conformance.verdict import Judgement, fail, passed

from . import quote
from .audio import audible_pieces, is_heard, spoken
from .sse import whole_pcm

__all__ = ["speaks_text"]

# What is compared with each other: texts of many lengths, first and waiting, in sessions, as bodies
# and in events. They cost little, and nothing cuts them short.
_COMPARED: Final = frozenset(
    {
        "spoken-texts",
        "streamed",
        "busy-ping",
        "text-floor",
        "order",
        "close-drains",
        "http-streams",
        "http-whole",
        "sse-streams",
        "sse-long",
    }
)
_PCM: Final = "pcm_s16le"
_RATE: Final = 24_000
_PIECE_MS: Final = 20
_ADVICE: Final = "Speak the `text` of each request."


@dataclass(frozen=True, slots=True)
class _Speech:
    """A text that was spoken to its end, as PCM at the usual rate and speed.

    `letters` is how many letters and digits it has, `pieces` how much of it is heard. `sent` quotes
    the request.
    """

    text: str
    letters: int
    pieces: int
    voice: str
    sent: str
    scenario: str


@check("audio.speaks-text", "spoken-texts", "streamed", "order", general=True)
def speaks_text(evidence: Sequence[Account]) -> Judgement:
    """Text is heard, longer text takes longer, another text sounds different."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            yield from _follows_text(spoken(account.dialogues, "audio.speaks_text"))
        yield from _takes_longer([speech for account in evidence for speech in _speeches(account)])

    return settle(find(), evidence, "the texts were not spoken")


def _follows_text(heard: Mapping[str, Utterance]) -> Iterator[Judgement]:
    for utterance in heard.values():
        if is_heard(utterance.pcm):
            yield passed()
            continue
        yield fail(
            "A text of plain words is not heard: there is nothing or only silence.",
            sent=quote.sent(utterance.sent),
            received=f"{len(utterance.pcm)} bytes of audio, all but silent",
            legal="audible speech",
            advice=_ADVICE,
        )
    one, again, other, both = (
        heard.get(name) for name in ("one text", "the same again", "another text", "both texts")
    )
    if one is None or other is None:
        return
    if one.pcm == other.pcm and one.pcm:
        yield fail(
            "Two different texts have exactly the same audio.",
            sent=quote.sent(other.sent),
            received=f"the same {len(one.pcm)} bytes as for: {quote.sent(one.sent)}",
            legal="different audio",
            advice=_ADVICE,
        )
    two, eight = heard.get("ends in 2"), heard.get("ends in 8")
    if two is not None and eight is not None and two.pcm == eight.pcm and two.pcm:
        yield fail(
            "Texts that end in different digits have exactly the same audio.",
            sent=quote.sent(eight.sent),
            received=f"the same {len(two.pcm)} bytes as for: {quote.sent(two.sent)}",
            legal="different audio for different words",
            advice=_ADVICE,
        )
    longest = max(len(u.pcm) for u in (one, again or one, other))
    audible = max(audible_pieces(u.pcm) for u in (one, again or one, other))
    if both is not None and len(both.pcm) <= longest:
        yield fail(
            "Two sentences together are no longer than the longer of them alone.",
            sent=quote.sent(both.sent),
            received=f"{len(both.pcm)} bytes of audio; the longer alone had {longest}",
            legal="longer audio for longer text",
            advice=_ADVICE,
        )
    elif both is not None and audible_pieces(both.pcm) <= audible:
        yield fail(
            "Of two sentences together no more is heard than of one alone; the rest is silence.",
            sent=quote.sent(both.sent),
            received=f"{audible_pieces(both.pcm) * _PIECE_MS} ms that are not silent; one alone had"
            f" {audible * _PIECE_MS} ms",
            legal="all of the text to be heard",
            advice=_ADVICE,
        )


def _speeches(account: Account) -> Iterator[_Speech]:
    """What can be compared: texts whose audio came whole, as far as its books tell."""
    if account.scenario not in _COMPARED:
        return
    for dialogue in account.dialogues:
        for utterance in dialogue.utterances.values():
            yield from _of_utterance(dialogue, utterance)
    for exchange in account.exchanges:
        yield from _of_exchange(account, exchange)


def _of_utterance(dialogue: Dialogue, utterance: Utterance) -> Iterator[_Speech]:
    start, complete, meaning = utterance.start, utterance.complete, utterance.sent.meaning
    if start is None or complete is None or meaning.verdict != "accept":
        return
    if not _is_plain(meaning.fields) or _named(start.fields) != (_PCM, _RATE):
        return
    # Letters that nobody is bound to know are no measure.
    if any(character > "\uffff" and character.isalnum() for character in meaning.text):
        return
    # What was lost, or came elsewhere, is another rule's affair.
    if complete.fields.get("audio_bytes") == len(utterance.pcm) and not utterance.unstarted_audio:
        yield _Speech(
            meaning.text,
            _letters(meaning.text),
            audible_pieces(utterance.pcm),
            str(start.fields.get("voice")),
            quote.sent(utterance.sent),
            dialogue.scenario,
        )


def _of_exchange(account: Account, exchange: Exchange) -> Iterator[_Speech]:
    text = exchange.request.get("text")
    whole = exchange.is_synthesis and exchange.status == 200 and exchange.clean
    if not whole or not isinstance(text, str) or not _is_plain(exchange.request):
        return
    if exchange.asks_for_events:
        told = whole_pcm(exchange)
        if told is None:
            return
        pcm, voice = told
    else:
        headers = exchange.headers
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "audio/pcm":
            return
        pcm, voice = exchange.body, unquote(headers.get("utterwire-voice", ""))
    sent = quote.exchange_request(exchange)
    yield _Speech(text, _letters(text), audible_pieces(pcm), voice, sent, account.scenario)


def _is_plain(fields: Mapping[str, object]) -> bool:
    """Whether a request asks for PCM at the default rate, at the usual speed."""
    usual: tuple[tuple[str, object], ...] = (
        ("format", _PCM),
        ("sample_rate", _RATE),
        ("speed", 1),
    )
    return all(fields.get(name) in (None, value) for name, value in usual)


def _named(fields: Mapping[str, object]) -> tuple[object, object]:
    return fields.get("format"), fields.get("sample_rate")


def _letters(text: str) -> int:
    return sum(character.isalnum() for character in text)


def _takes_longer(speeches: Iterable[_Speech]) -> Iterator[Judgement]:
    """Of two texts in one voice the one of twice the letters, or more, is heard for longer."""
    voices: dict[str, list[_Speech]] = {}
    for speech in speeches:
        if speech.letters:
            voices.setdefault(speech.voice, []).append(speech)
    for every in voices.values():
        every.sort(key=lambda speech: speech.letters)
        # Digits are soon written and long to say: what has some is no measure for others.
        measures = [s for s in every if not any(letter.isdigit() for letter in s.text)]
        for speech in every:
            shorter = [s for s in measures if 2 * s.letters <= speech.letters]
            if not shorter:
                continue
            longest = max(shorter, key=lambda each: each.pieces)
            if speech.pieces > longest.pieces:
                yield passed(scenarios=(speech.scenario, longest.scenario))
                continue
            yield fail(
                f"A text of {speech.letters} letters is heard for no longer than one of"
                f" {longest.letters}: not all of it is spoken.",
                sent=speech.sent,
                received=f"{speech.pieces * _PIECE_MS} ms that are not silent (in"
                f" {speech.scenario}); {longest.pieces * _PIECE_MS} ms (in {longest.scenario}) for:"
                f" {longest.sent}",
                legal="longer audio for a text of twice the letters",
                advice="Speak all of each text, however long it is, and whatever way it is asked"
                " for.",
                scenarios=tuple(dict.fromkeys((speech.scenario, longest.scenario))),
            )
