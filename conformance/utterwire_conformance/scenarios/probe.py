"""The first scenario of every run: is anybody there, and how fast."""

from __future__ import annotations

from typing import Final

from utterwire_conformance.dialogue import Dialogue
from utterwire_conformance.stage import Stage, scenario
from utterwire_conformance.transcript import Transcript

__all__ = ["out_of_order", "probe", "probed", "spent", "spoke"]

_NOT_WORKING: Final = frozenset({"synthesis_failed", "internal", "overloaded", "going_away"})
# What an utterance of a few words may take from its first chunk on, in seconds.
_MORE_S: Final = 12.0


@scenario()
async def probe(stage: Stage) -> None:
    """One ping and one short utterance."""
    async with await stage.session() as session:
        await session.ping(b"probe")
        await session.until(
            lambda: bool(session.dialogue.pongs), within=2.0 + 2 * session.dialogue.rtt
        )
        seq = await session.send(stage.request(stage.texts.shortest))
        dialogue, utterance = session.dialogue, session.utterance(seq)

        def speaks() -> bool:
            return bool(dialogue.chunks) and dialogue.chunks[-1].is_audio

        def ends() -> bool:
            return bool(dialogue.chunks) and dialogue.chunks[-1].is_terminal

        # A model may have to be loaded first, but nothing that comes meanwhile takes the suite any
        # longer; and an endpoint that never ends what it sends must not keep it for ever.
        await session.until(lambda: utterance.ended or speaks() or ends(), within=stage.pace.first)
        if speaks():
            await session.until(lambda: utterance.ended or ends(), within=_MORE_S)
        # What ends something else may be followed by what ends this.
        await session.until(lambda: utterance.ended, within=0.5)
        if not utterance.ended and not dialogue.ended:
            session.note(f"in vain: {seq}")
            stage.transcript.unfinished = "a first utterance of a few words did not end"


def probed(transcript: Transcript) -> tuple[float, float | None, float]:
    """Round trip, time to the first chunk, and time to speak a character, in seconds.

    The second is None where the utterance did not come to its end.
    """
    if not transcript.sessions():
        return 0.0, None, 0.0
    dialogue = Dialogue.read(transcript, 1)
    asked, opened = dialogue.asked, dialogue.opened
    rtt = opened.t - asked.t if asked is not None and opened is not None else 0.0
    if dialogue.pings and dialogue.pongs:
        rtt = min(rtt, dialogue.pongs[0][0] - dialogue.pings[0][0])
    utterance = dialogue.utterance(1)
    if utterance is None or not utterance.ended:
        return rtt, None, 0.0
    first = utterance.audio[0] if utterance.audio else utterance.chunks[0]
    lasted = utterance.chunks[-1].t - utterance.sent.t
    characters = max(1, len(utterance.sent.meaning.text))
    return rtt, first.t - utterance.sent.t, lasted / characters


def spent(transcript: Transcript) -> float | None:
    """Seconds from the request of the probe to its end; None where it did not come to it."""
    rtt, first_byte, _ = probed(transcript)
    if first_byte is None:
        return None
    utterance = Dialogue.read(transcript, 1).utterances[1]
    return max(0.0, utterance.chunks[-1].t - utterance.sent.t - rtt)


def out_of_order(transcript: Transcript) -> str | None:
    """Why nothing can be judged though the endpoint answers: it cannot speak at present."""
    if transcript.broken is not None or not transcript.sessions():
        return transcript.broken
    utterance = Dialogue.read(transcript, 1).utterance(1)
    for chunk in (*utterance.rejections, *utterance.terminals) if utterance is not None else ():
        if chunk.code in _NOT_WORKING:
            said = chunk.fields.get("message")
            return f"the endpoint failed on a first, plain request with `{chunk.code}` ({said})"
    return None


def spoke(transcript: Transcript) -> bool:
    """Whether the endpoint spoke the request of the probe to its end."""
    if not transcript.sessions():
        return False
    utterance = Dialogue.read(transcript, 1).utterance(1)
    return utterance is not None and utterance.complete is not None
