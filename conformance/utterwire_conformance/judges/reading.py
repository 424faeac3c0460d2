"""Judges of an endpoint that must read while it speaks, and of its queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from utterwire_conformance.check import Account, check, on_sessions, settle
from utterwire_conformance.dialogue import Dialogue, Utterance
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed
from utterwire_conformance.via import SAGEMAKER

from . import quote

__all__ = ["disconnect_isolated", "pong_while_busy", "queue_full", "read_always"]

_TAKEN: Final = (
    "something on the way took the whole utterance that was to hold up the queue, so that it ended"
)


def _busy(dialogue: Dialogue) -> Utterance | None:
    """The utterance that was being spoken when the suite sent its ping."""
    return next((u for u in dialogue.utterances.values() if u.audio), None)


def _pong_in_time(dialogue: Dialogue, payload: bytes) -> Iterator[Judgement]:
    utterance = _busy(dialogue)
    ping = next((p for p in dialogue.pings if p[2] == payload), None)
    if utterance is None or ping is None:
        return
    terminal = utterance.terminal
    if terminal is not None and terminal.index < ping[1]:
        yield not_exercised("The utterance had ended before the ping could be sent.")
        return
    pong = next((p for p in dialogue.pongs if p[2] == payload), None)
    legal = "a pong with the same payload before the utterance ends"
    advice = "Keep reading the socket while the engine works, in a task of its own."
    if pong is not None and (terminal is None or pong[1] < terminal.index):
        yield passed()
    elif pong is not None or terminal is not None or dialogue.ended or dialogue.close_out:
        yield fail(
            "A ping was not answered while an utterance was being spoken.",
            sent=f"a ping with {payload!r} during message {utterance.seq}",
            received="the pong only after the utterance had ended" if pong else "no pong",
            legal=legal,
            advice=advice,
        )


@check("read.pong-while-busy", "busy-ping")
@on_sessions("no ping could be sent while an utterance was being spoken")
def pong_while_busy(dialogue: Dialogue) -> Iterator[Judgement]:
    """A ping is answered before the utterance that is being spoken ends."""
    yield from _pong_in_time(dialogue, b"while busy")


@check("read.always", "flood", "queue-full")
@on_sessions("nothing could be sent while an utterance was being spoken")
def read_always(dialogue: Dialogue) -> Iterator[Judgement]:
    """What is sent during an utterance is read during it."""
    advice = "Read messages all the time, and queue what you have read."
    if dialogue.scenario == "flood":
        utterance = _busy(dialogue)
        if utterance is None or len(dialogue.sent) < 2:
            return
        if dialogue.pings:
            yield from _pong_in_time(dialogue, b"after the flood")
        elif dialogue.facts.get("via") != SAGEMAKER:
            # A router may well have taken it all, and no ping goes through it.
            yield fail(
                "Messages sent during an utterance were not read before it ended.",
                sent=f"{len(dialogue.sent) - 1} keepalives of 60,000 bytes",
                received="the connection took no more of them",
                legal="every message is read while the endpoint speaks",
                advice=advice,
            )
        return
    for utterance in dialogue.utterances.values():
        chunk = utterance.rejection
        if chunk is None or chunk.code != "queue_full":
            continue
        running = next((u for u in dialogue.utterances.values() if u.starts), None)
        if running is None or running.terminal is None or chunk.number < running.terminal.number:
            yield passed()
        elif dialogue.had_ended(running, utterance.sent.t):
            yield not_exercised(_TAKEN)
        else:
            yield fail(
                "`queue_full` came only after the running utterance had ended.",
                sent=quote.sent(utterance.sent),
                received=quote.chunk(chunk),
                legal="`queue_full` at once, ahead of all that waits",
                advice=advice,
            )
            return


@check("queue.full", "queue-full")
@on_sessions("the queue could not be filled")
def queue_full(dialogue: Dialogue) -> Iterator[Judgement]:
    """What goes past `max_waiting` is refused with `queue_full`; all else is served."""
    cases = [
        u
        for u in dialogue.utterances.values()
        if u.sent.case is not None and u.sent.case.check == "queue.full"
    ]
    refused = [u for u in cases if u.rejection is not None]
    legal = "`queue_full` for what goes past `max_waiting`; everything accepted is served"
    advice = "Count the accepted, unended requests of a session; refuse more with `queue_full`."
    for utterance in cases:
        case, chunk = utterance.sent.case, utterance.rejection
        assert case is not None
        reason = None
        if chunk is not None and chunk.code in ("overloaded", "going_away"):
            yield not_exercised(f"The endpoint refused a request with {chunk.code}.")
            return
        if chunk is not None and chunk.code != "queue_full":
            reason = f"A request past the limit was rejected with `{chunk.code}`."
        elif chunk is not None and case.expect == "accept":
            reason = "A request within `max_waiting` was refused."
        elif chunk is None and case.expect == "reject" and utterance.answered:
            if dialogue.had_ended(dialogue.utterances.get(1), utterance.sent.t):
                yield not_exercised(_TAKEN)
                return
            reason = "A request past `max_waiting` was accepted."
        elif chunk is None and utterance.complete is None and not dialogue.hung_up:
            reason = "A request that was accepted was not served."
        if reason is not None:
            yield fail(
                reason,
                sent=quote.sent(utterance.sent),
                received=quote.chunk(chunk or utterance.terminal),
                legal=legal,
                advice=advice,
            )
            return
    if refused and all(u.ended for u in cases):
        after = [u for u in dialogue.utterances.values() if u.sent.meaning.request_id == "after"]
        if after and after[0].rejection is not None:
            yield fail(
                "When the queue was empty again, a request was refused.",
                sent=quote.sent(after[0].sent),
                received=quote.chunk(after[0].rejection),
                legal="the request is served",
                advice="Free the place of an utterance when it ends.",
            )
        else:
            yield passed()
    elif cases and not refused and all(u.ended for u in cases):
        yield not_exercised(f"{len(cases)} requests waited, and none was refused.")


@check("disconnect.isolated", "disconnect")
def disconnect_isolated(evidence: Sequence[Account]) -> Judgement:
    """Sessions beside and after one that vanished are served."""
    advice = "Let a lost connection cancel its own utterances and nothing else."

    def find() -> Iterator[Judgement]:
        for account in evidence:
            for entry in account.transcript.entries:
                if (entry.text or "").startswith("refused after a disconnect"):
                    yield fail(
                        "After a client had vanished in mid-utterance, no session could be opened.",
                        sent="a handshake",
                        received=str(entry.text).partition(": ")[2],
                        legal="HTTP 101, and the next session is served",
                        advice=advice,
                    )
            for dialogue in account.dialogues:
                yield from others(dialogue)

    def others(dialogue: Dialogue) -> Iterator[Judgement]:
        for utterance in dialogue.utterances.values():
            named = utterance.sent.meaning.request_id or ""
            if not named.startswith(("beside", "after")):
                continue
            lost = utterance.seq in dialogue.in_vain or (dialogue.hung_up and utterance.starts)
            if utterance.complete is not None:
                yield passed()
            elif utterance.ended or lost:
                yield fail(
                    "After a client had vanished in mid-utterance, another session was not served.",
                    sent=quote.sent(utterance.sent),
                    received=quote.chunk(utterance.rejection or utterance.terminal)
                    if utterance.ended
                    else quote.ending(dialogue),
                    legal="the other session's utterance, whole",
                    advice=advice,
                )

    return settle(find(), evidence, "no other session was open or opened")
