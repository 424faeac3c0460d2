"""Formats other than PCM, and rates other than the default (`protocol.md#encoded-audio`)."""

from __future__ import annotations

from typing import Any, Final

from utterwire_conformance.dialogue import Utterance
from utterwire_conformance.driver import WebSocketSession
from utterwire_conformance.stage import LONGEST_TEXT, Relay, Stage, Unplayable, scenario
from utterwire_conformance.transcript import Case

__all__ = ["cancel_encoded", "encoded_long", "encoded_rates", "encoded_speech", "http_formats"]

ENCODED: Final = ("mp3", "aac", "opus", "wav", "mulaw", "alaw")
"""Every format but PCM, those first that hold back what they were given."""

_COMPRESSED: Final = ("mp3", "aac", "opus")
# Tried where nobody says which rates there are.
_USUAL_RATES: Final = (8_000, 16_000, 22_050, 44_100, 48_000)
_MOST_RATES: Final = 12
_LONG_CHARACTERS: Final = 320
_MORE_TRIES: Final = 2
_EARLY: Final = 0.25
_CHECK: Final = "formats.offered"


def _offered(stage: Stage, among: tuple[str, ...] = ENCODED) -> list[str]:
    """What is known to be offered; all there are, where nobody says."""
    offered = stage.claims.formats
    return [name for name in among if offered is None or name in offered]


def _formats(stage: Stage) -> list[str]:
    """What is offered besides PCM.

    Raises:
        Unplayable: nothing is.
    """
    found = _offered(stage)
    if not found:
        raise Unplayable("the endpoint offers no format but `pcm_s16le`")
    return found


def _case(stage: Stage, name: str, *codes: str) -> Case:
    """A request that has to be accepted where what it asks for is known to be offered."""
    if stage.claims.formats is not None and not codes:
        return Case(name, _CHECK, "accept")
    return Case(name, _CHECK, "either", codes or ("unsupported_format",))


async def _say(stage: Stage, relay: Relay, text: str, case: Case, **fields: Any) -> bool:
    """Speak in one format; whether the session got as far as the end of it."""
    session = await relay.session()
    seq = await session.send(stage.request(text, **fields), case=case)
    return await stage.ended(session, seq)


@scenario(profile="formats")
async def encoded_speech(stage: Stage) -> None:
    """PCM twice, then two texts in each format, then a text with nothing to speak in each."""
    formats = _formats(stage)
    one, two = stage.texts.sample(0), stage.texts.sample(1)
    async with stage.relay() as relay:
        for name in ("the twin in PCM", "the twin again"):
            if not await _say(stage, relay, one, Case(name, _CHECK, "accept")):
                return
        # Another format between the two: each utterance is a stream of its own.
        for text in (one, two):
            for name in formats:
                if not await _say(stage, relay, text, _case(stage, name), format=name):
                    return
        for name in formats:
            session = await relay.session()
            codes = () if stage.claims.formats is not None else ("unsupported_format",)
            case = Case(f"full stops in {name}", "audio.unspeakable", "accept", codes)
            seq = await session.send(stage.request("...", format=name), case=case)
            if not await stage.ended(session, seq):
                return


@scenario(profile="formats")
async def encoded_rates(stage: Stage) -> None:
    """One text in each format at each rate, beside PCM at the default rate, twice."""
    formats = ["pcm_s16le", *_offered(stage)]
    rates = sorted(stage.claims.sample_rates or _USUAL_RATES)[:_MOST_RATES]
    text = stage.texts.shortest
    async with stage.relay() as relay:
        for name in ("the twin in PCM", "the twin again"):
            if not await _say(stage, relay, text, Case(name, _CHECK, "accept")):
                return
        for name in formats:
            for rate in rates:
                # What is listed goes with PCM; another format can refuse it.
                listed = name == "pcm_s16le" and stage.claims.sample_rates is not None
                codes = () if listed else ("unsupported_sample_rate", "unsupported_format")
                case = _case(stage, f"{name} at {rate} Hz", *codes)
                fields = {"format": name, "sample_rate": rate}
                if not await _say(stage, relay, text, case, **fields):
                    return


@scenario(profile="formats", heavy=True)
async def encoded_long(stage: Stage) -> None:
    """A longer text in each format that an encoder holds back: when does its first byte come.

    A short one before it shows what any answer takes. One that comes late is asked for again: it
    may be the suite that was late.
    """
    formats = _offered(stage, _COMPRESSED) or _formats(stage)
    texts = stage.texts.shortest, stage.texts.of_length(_LONG_CHARACTERS)
    async with stage.relay() as relay:
        for name in formats:
            for text in (*texts, *texts[1:] * _MORE_TRIES):
                session = await relay.session()
                request = stage.request(text, format=name)
                seq = await session.send(request, case=_case(stage, name))
                if not await stage.ended(session, seq):
                    return
                if text is not texts[0] and _is_early(session.utterance(seq)):
                    break


def _is_early(utterance: Utterance) -> bool:
    """Whether the first audio came in the first part of the time to the last."""
    if not utterance.audio:
        return True
    first, last = (utterance.audio[n].t - utterance.sent.t for n in (0, -1))
    return first <= _EARLY * last


@scenario(profile="formats", heavy=True)
async def cancel_encoded(stage: Stage) -> None:
    """A long utterance in an encoded format is cancelled at its first audio.

    A short one before it shows how many bytes a character makes.
    """
    # It serves checks of `interrupt`, which an endpoint may claim alone.
    if not stage.claims.profiles >= {"formats", "interrupt"}:
        return
    format = _formats(stage)[0]
    async with await stage.session() as session:
        twin = await session.send(
            stage.request(stage.texts.sample(0), format=format), case=_case(stage, format)
        )
        if await stage.ended(session, twin) and session.utterance(twin).complete is not None:
            await _cancel_at_first_audio(stage, session, format)


async def _cancel_at_first_audio(stage: Stage, session: WebSocketSession, format: str) -> None:
    text = stage.texts.of_length(LONGEST_TEXT)
    seq = await session.send(stage.request(text, format=format, request_id="long"))
    utterance = session.utterance(seq)
    await session.until(
        lambda: utterance.ended or bool(utterance.audio),
        within=stage.pace.first,
        stall=stage.pace.stall,
    )
    if utterance.ended or not utterance.audio:
        return
    cancel = await session.send({"type": "cancel", "request_id": "long"})
    if await stage.ended(session, seq, cancel) and not await stage.is_over(session):
        await stage.speak(session, stage.texts.shortest)


@scenario(profile="formats")
async def http_formats(stage: Stage) -> None:
    """Each format by HTTP, streamed, and whole at a rate of its own."""
    if not stage.claims.profiles >= {"formats", "http"}:
        return
    text = stage.texts.shortest
    for name in _formats(stage):
        request = stage.request(text, format=name)
        await stage.post(request, case=_case(stage, f"{name}, streamed"))
        codes = ("unsupported_sample_rate", "unsupported_format")
        whole = request | {"stream": False, "sample_rate": 16_000}
        await stage.post(whole, case=_case(stage, f"{name}, whole", *codes))
