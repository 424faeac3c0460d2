"""Judges of the order of chunks, over every session of a run (`protocol.md#order`)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from utterwire_conformance.check import check, on_sessions
from utterwire_conformance.dialogue import Dialogue, Utterance
from utterwire_conformance.verdict import Judgement, fail, passed

from . import quote

__all__ = [
    "complete_had_start",
    "fifo",
    "no_mixing",
    "nothing_after_terminal",
    "one_terminal",
    "start_first",
    "stays_open",
]


@check("order.start-first", "probe", "order", general=True)
@on_sessions("no audio was received")
def start_first(dialogue: Dialogue) -> Iterator[Judgement]:
    """Audio comes only after a `synthesis_start`."""
    late = {chunk.number for u in dialogue.utterances.values() for chunk in u.late_audio}
    for chunk in dialogue.orphans:
        if chunk.number not in late:
            yield fail(
                "Audio came while no utterance had started.",
                sent=quote.sent(dialogue.sent[0] if dialogue.sent else None),
                received=quote.chunk(chunk),
                legal="`synthesis_start` before the first audio of its utterance",
                advice="Send `synthesis_start` before any audio.",
            )
            return
    if any(u.audio for u in dialogue.utterances.values()):
        yield passed()


@check("order.nothing-after-terminal", "probe", "order", general=True)
@on_sessions("no utterance ended")
def nothing_after_terminal(dialogue: Dialogue) -> Iterator[Judgement]:
    """Nothing of an utterance comes after its terminal message."""
    for utterance in dialogue.utterances.values():
        terminal = utterance.terminal
        if terminal is None:
            continue
        after = next(
            (
                c
                for c in utterance.chunks
                if c.number > terminal.number and not c.is_terminal and not c.rejects
            ),
            None,
        )
        if after is None:
            yield passed()
            continue
        yield fail(
            f"Something of message {utterance.seq} came after its `{terminal.type}`.",
            sent=quote.sent(utterance.sent),
            received=f"{quote.chunk(terminal)}, then {quote.chunk(after)}",
            legal="nothing more of this utterance",
            advice="Send the terminal message when all audio has been handed to the transport.",
        )


@check("order.one-terminal", "probe", "order", general=True)
@on_sessions("no utterance was accepted")
def one_terminal(dialogue: Dialogue) -> Iterator[Judgement]:
    """Every utterance has exactly one terminal message."""
    legal = "exactly one `synthesis_complete`, `error` or `cancelled` for each utterance"
    advice = "End every accepted utterance with one terminal message, also when it fails."
    for utterance in dialogue.utterances.values():
        reason = _terminal_fault(dialogue, utterance)
        if reason is not None:
            last = utterance.terminals[-1] if utterance.terminals else None
            yield fail(
                reason,
                sent=quote.sent(utterance.sent),
                received=quote.chunk(last) if last else quote.ending(dialogue),
                legal=legal,
                advice=advice,
            )
        elif utterance.terminals:
            yield passed()


def _terminal_fault(dialogue: Dialogue, utterance: Utterance) -> str | None:
    if len(utterance.terminals) > 1:
        return f"Message {utterance.seq} has {len(utterance.terminals)} terminal messages."
    if utterance.terminals or utterance.rejections:
        return None
    if "shutdown" in dialogue.facts:
        return None
    if utterance.starts and dialogue.hung_up:
        return "The endpoint ended the session in the middle of an utterance."
    if utterance.seq in dialogue.in_vain and utterance.sent.meaning.verdict == "accept":
        begun = "An utterance that had started" if utterance.starts else "A valid request"
        return f"{begun} never came to an end."
    if utterance.starts and any(
        u.starts and u.seq > utterance.seq for u in dialogue.utterances.values()
    ):
        return "An utterance had no terminal message, and the next one was begun."
    return None


@check("order.fifo", "order", "waiting-floor", general=True)
@on_sessions("no two utterances were spoken in one session")
def fifo(dialogue: Dialogue) -> Iterator[Judgement]:
    """Utterances are served in the order they were sent."""
    spoken = [u for u in dialogue.utterances.values() if u.starts]
    for first, second in pairwise(spoken):
        begun = second.chunks[0]
        unended = first.terminal is None or first.terminal.number > begun.number
        if unended and first.starts:
            yield fail(
                f"Message {second.seq} was begun before message {first.seq} had ended.",
                sent=f"{quote.sent(first.sent)}; {quote.sent(second.sent)}",
                received=quote.chunk(begun),
                legal="the utterances one after the other, in the order of the requests",
                advice="Serve the requests of a session from one queue, first in, first out.",
            )
        else:
            yield passed()


@check("order.no-mixing", "order", "waiting-floor", general=True)
@on_sessions("no two utterances were spoken in one session")
def no_mixing(dialogue: Dialogue) -> Iterator[Judgement]:
    """Between a start and its terminal message there is no other start."""
    for chunk, running in dialogue.interleaved:
        yield fail(
            f"An utterance was started while message {running.seq} was being spoken, so that"
            " nobody can tell whose audio follows.",
            sent=quote.sent(running.sent),
            received=quote.chunk(chunk),
            legal="the end of the running utterance before the next `synthesis_start`",
            advice="Finish one utterance before you start the next.",
        )
    if sum(bool(u.starts) for u in dialogue.utterances.values()) > 1:
        yield passed()


@check("order.complete-had-start", "probe", "order", general=True)
@on_sessions("no utterance was completed")
def complete_had_start(dialogue: Dialogue) -> Iterator[Judgement]:
    """A completed utterance had exactly one start."""
    for utterance in dialogue.utterances.values():
        if len(utterance.starts) > 1 or (utterance.complete is not None and not utterance.starts):
            yield fail(
                f"Message {utterance.seq} has {len(utterance.starts)} `synthesis_start`.",
                sent=quote.sent(utterance.sent),
                received=quote.chunk(
                    utterance.starts[1] if utterance.starts else utterance.complete
                ),
                legal="exactly one `synthesis_start`, before the audio",
                advice="Send one `synthesis_start` for each utterance, also if it has no audio.",
            )
        elif utterance.complete is not None:
            yield passed()


@check("session.stays-open", "order", "probe", general=True)
@on_sessions("no session went on after an utterance")
def stays_open(dialogue: Dialogue) -> Iterator[Judgement]:
    """After a terminal message the session goes on."""
    last = dialogue.chunks[-1] if dialogue.chunks else None
    if last is dialogue.dismissed and len(dialogue.chunks) > 1:
        last = dialogue.chunks[-2]
    owed = dialogue.first_owed
    # A bad message may be what it hung up on; then another session will tell.
    bad = owed is not None and owed.meaning.verdict == "reject"
    ended = last is not None and last.is_terminal and last.type != "error"
    if dialogue.hung_up and last is not None and ended and not bad:
        yield fail(
            "The endpoint ended the session after an utterance.",
            sent=quote.sent(dialogue.utterances[last.seq].sent if last.seq else None),
            received=f"{quote.chunk(last)}, then {quote.ending(dialogue)}",
            legal="the session stays open for more requests",
            advice="After an utterance read the next message; leave the closing to the client.",
        )
        return
    silent = [s for s in sorted(dialogue.in_vain) if not dialogue.utterances[s].answered]
    if silent and last is not None and last.is_terminal and last.type != "error":
        yield fail(
            "After an utterance nothing was answered any more.",
            sent=quote.sent(dialogue.utterances[silent[0]].sent),
            received="no answer",
            legal="the answer to the next request",
            advice="After an utterance read the next message.",
        )
        return
    ends = [u.terminal.number for u in dialogue.utterances.values() if u.terminal is not None]
    if ends and any(
        u.answered and u.chunks[0].number > min(ends) for u in dialogue.utterances.values()
    ):
        yield passed()
