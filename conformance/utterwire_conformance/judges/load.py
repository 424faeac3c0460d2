"""Judges of the profile `load`: fairness, bounds and recovery with many sessions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from utterwire_conformance.check import Account, check, on_sessions, settle
from utterwire_conformance.dialogue import Chunk, Dialogue, Utterance
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed

from . import quote

__all__ = [
    "bad_input_frees",
    "disconnect_frees",
    "fair",
    "memory",
    "rejections_bounded",
    "slow_reader_closed",
    "stalled_reader",
]

_REFUSALS: Final = frozenset({"overloaded", "queue_full", "going_away"})


def _named(account: Account, prefix: str) -> Iterator[tuple[Dialogue, Utterance]]:
    """The utterances of a transcript whose `request_id` begins so."""
    for dialogue in account.dialogues:
        for utterance in dialogue.utterances.values():
            if (utterance.sent.meaning.request_id or "").startswith(prefix):
                yield dialogue, utterance


def _notes(account: Account) -> list[str]:
    return [entry.text or "" for entry in account.transcript.entries if entry.kind == "note"]


def _received(dialogue: Dialogue, utterance: Utterance) -> str:
    last = utterance.rejection or utterance.terminal
    if last is not None:
        return quote.chunk(last)
    return quote.chunk(utterance.chunks[-1]) if utterance.chunks else quote.ending(dialogue)


# --- slow readers -------------------------------------------------------------------------------


@check("load.stalled-reader", "stalled-readers")
def stalled_reader(evidence: Sequence[Account]) -> Judgement:
    """A session beside stalled ones is served before they read again."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            stalled = [(d, u) for d, u in _named(account, "stalled") if u.start is not None]
            for dialogue, utterance in _named(account, "beside"):
                yield from one(dialogue, utterance, stalled)

    def one(
        dialogue: Dialogue, beside: Utterance, stalled: list[tuple[Dialogue, Utterance]]
    ) -> Iterator[Judgement]:
        again = next(
            (i for i, e in enumerate(dialogue.entries) if e.text == "the others read again: yes"),
            None,
        )
        if again is None or not stalled:
            return
        code = (beside.rejection or beside.terminal or _NOTHING).code
        if code in _REFUSALS:
            yield not_exercised(f"The session beside stalled ones was refused with `{code}`.")
        elif beside.complete is not None and beside.complete.index < again:
            if any(not d.had_ended(u, beside.complete.t) for d, u in stalled):
                yield passed()
            else:
                yield not_exercised("Something on the way took all that was to be left unread.")
        elif not beside.ended or (beside.terminal and beside.terminal.index > again):
            yield fail(
                f"While {len(stalled)} other sessions did not read, a session was not served.",
                sent=quote.sent(beside.sent),
                received="its end only when they read again"
                if beside.ended
                else _received(dialogue, beside),
                legal="the utterance, whole, whatever other clients read",
                advice="Give each session a sender of its own, and let only its own engine wait.",
            )

    return settle(find(), evidence, "no session could be opened beside one that stalls")


class _Nothing:
    code: str | None = None


_NOTHING: Final = _Nothing()


@check("load.slow-reader-closed", "slow-reader")
@on_sessions("no reader could be stalled beyond the limit")
def slow_reader_closed(dialogue: Dialogue) -> Iterator[Judgement]:
    """Stalled beyond the limit a session ends with `slow_reader`; stalled for less it does not."""
    if "stalled for" not in dialogue.facts:
        return
    limit = float(dialogue.facts["stall limit"])
    stalled = float(dialogue.facts["stalled for"])
    farewell = dialogue.session_closed
    told = farewell is not None and farewell.fields.get("reason") == "slow_reader"
    utterance = dialogue.utterances[1]
    sent = f"{quote.sent(utterance.sent)}; nothing was read for {stalled:.1f} s"
    advice = "Watch how long the transport takes nothing, and end the session at the limit."
    if stalled < limit:
        if told:
            yield fail(
                f"A reader was given up after {stalled:.1f} s, though the limit is {limit:g} s.",
                sent=sent,
                received=quote.chunk(farewell),
                legal="the utterance goes on when the client reads again",
                advice=advice,
            )
    elif told:
        yield passed()
    elif dialogue.had_ended(utterance, utterance.sent.t + stalled):
        yield not_exercised("Something on the way took all that was to be left unread.")
    elif dialogue.given_up:
        yield not_exercised("The session was ended, but its last words did not get through.")
    else:
        ended = farewell or dialogue.close_in or utterance.terminal
        lives = utterance.complete is not None or not ended
        yield fail(
            f"A reader stalled for {stalled:.1f} s (the limit is {limit:g} s) "
            + ("was served on." if lives else "was not told why its session ended."),
            sent=sent,
            received=quote.chunk(dialogue.chunks[-1]) if lives else quote.ending(dialogue),
            legal="`session_closed` with `reason` slow_reader",
            advice=advice,
        )


# --- fairness and bounds ------------------------------------------------------------------------

_LEAST_OVERLAP_S: Final = 0.2
# Of two sessions the end of one may be read after the first audio of the other that came later.
_KEPT_SHARE: Final = 0.9


@check("load.fair", "fair")
def fair(evidence: Sequence[Account]) -> Judgement:
    """A short text gets its first audio before a long one of another session has ended."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            found = {
                name: next(iter(_named(account, name)), None)
                for name in ("alone", "beside", "long")
            }
            if all(found.values()):
                yield from one(*(pair for pair in found.values() if pair is not None))

    def one(
        alone: tuple[Dialogue, Utterance],
        beside: tuple[Dialogue, Utterance],
        long: tuple[Dialogue, Utterance],
    ) -> Iterator[Judgement]:
        end, first = long[1].terminal, _first_audio(beside[1])
        rest = _waited(beside[1], end) if end is not None else 0.0
        refused = beside[1].rejection
        usual = _first_audio(alone[1])
        if refused is not None and refused.code in _REFUSALS:
            yield not_exercised(f"The short text was refused with `{refused.code}`.")
        elif end is None or usual is None:
            return
        elif first is not None and _waited(beside[1], first) < _KEPT_SHARE * _waited(
            beside[1], end
        ):
            yield passed()
        elif _waited(beside[1], end) < max(
            _LEAST_OVERLAP_S, 5 * (usual.t - alone[1].sent.t) + 2 * beside[0].rtt
        ):
            yield not_exercised("The long text was spoken too soon for anybody to wait for it.")
        elif beside[1].answered or beside[1].seq in beside[0].in_vain:
            yield fail(
                "A short text had no audio before a long one of another session had ended.",
                sent=f"{quote.sent(beside[1].sent)}, while {len(long[1].sent.meaning.text)}"
                " characters were being spoken in another session",
                received="no audio"
                if first is None
                else f"the first audio {_waited(beside[1], first):.2f} s later; the long text ended"
                f" {rest:.2f} s later",
                legal="audio for both, turn by turn or side by side",
                advice="Give out the engine in small pieces, to one session after the other.",
            )

    return settle(find(), evidence, "no long text could be spoken beside a short one")


def _waited(utterance: Utterance, chunk: Chunk) -> float:
    return chunk.t - utterance.sent.t


def _first_audio(utterance: Utterance) -> Chunk | None:
    return utterance.audio[0] if utterance.audio else None


_KEPT: Final = 256


@check("load.rejections-bounded", "rejection-bound")
@on_sessions("no bad messages could be sent behind an utterance that does not end")
def rejections_bounded(dialogue: Dialogue) -> Iterator[Judgement]:
    """What is rejected while 256 rejections wait is told ahead of them."""
    running = dialogue.utterances.get(1)
    rejected = [u for u in dialogue.utterances.values() if u.seq > 1]
    if running is None or running.terminal is None or len(rejected) <= _KEPT:
        return
    end = running.terminal
    pong = next((index for _, index, data in dialogue.pongs if data == b"after them all"), None)
    if dialogue.had_ended(running, rejected[-1].sent.t) or pong is None or pong > end.index:
        yield not_exercised("The endpoint did not read all of them while the utterance ran.")
        return
    late = [u for u in rejected[_KEPT:] if u.rejection is None or u.rejection.index > end.index]
    if not late:
        yield passed()
        return
    yield fail(
        f"While {_KEPT} rejections waited for their place, {len(late)} more were kept back.",
        sent=f"{len(rejected)} bad messages behind an utterance that does not end",
        received=f"the rejection of {quote.sent(late[0].sent)} only after that utterance's end"
        if late[0].rejection is not None
        else f"no rejection of {quote.sent(late[0].sent)}",
        legal="those past 256 at once, ahead of what waits",
        advice="Bound what waits for its place; send further rejections out of order.",
    )


# --- what bad input costs, and who leaves -------------------------------------------------------


@check("load.bad-input-frees", "bad-input")
def bad_input_frees(evidence: Sequence[Account]) -> Judgement:
    """After any amount of bad input as many sessions are served as before it."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            notes = _notes(account)
            if "bad input: 280 connections, broken_handshake" not in notes:
                continue
            before = [u for _, u in _named(account, "before") if u.complete is not None]
            after = list(_named(account, "after"))
            served = [u for _, u in after if u.complete is not None]
            if not before:
                yield not_exercised("No session was served before the bad input.")
            elif len(served) >= len(before):
                yield passed()
            elif "apart: no" in notes and not _wedged(after, served):
                yield not_exercised("The endpoint, which others may use too, had no room left.")
            else:
                yield lost(account, len(before), after, served)

    def lost(
        account: Account,
        before: int,
        after: list[tuple[Dialogue, Utterance]],
        served: list[Utterance],
    ) -> Judgement:
        refused = [note for note in _notes(account) if note.startswith("after: no session")]
        unserved = [(d, u) for d, u in after if u not in served]
        return fail(
            f"Of {before} sessions that were served at once, {len(served)} were after bad input.",
            sent="hundreds of bad messages, broken frames and broken handshakes, then"
            f" {before} sessions with a short text each",
            received=_received(*unserved[0]) if unserved else (refused or ["nothing"])[0],
            legal="as many sessions as before, each served",
            advice="Free what a message, a frame or a handshake took wherever it is refused.",
        )

    return settle(find(), evidence, "the bad input could not be sent to its end")


def _wedged(after: list[tuple[Dialogue, Utterance]], served: list[Utterance]) -> bool:
    """Whether some were not even refused."""
    return any(
        u not in served and (u.rejection or u.terminal or _NOTHING).code not in _REFUSALS
        for _, u in after
    )


# So many times the usual is no accident, if it comes twice and passes each time.
_SLOWER: Final = 3.0


@check("load.disconnect-frees", "disconnects")
def disconnect_frees(evidence: Sequence[Account]) -> Judgement:
    """What sessions had unspoken when they vanished keeps nobody waiting."""
    advice = "On a disconnect cancel all that the session had, and free the engine at once."
    legal = "the text as soon as before: nobody hears the abandoned ones"

    def find() -> Iterator[Judgement]:
        for account in evidence:
            notes = _notes(account)
            times = [_took(u) for _, u in _named(account, "before")]
            usual = [took for took in times if took is not None]
            if not usual or not any(note.startswith("vanished") for note in notes):
                continue
            yield judge(account, notes, _SLOWER * median(usual) + 0.1, median(usual))

    def judge(account: Account, notes: list[str], most: float, usual: float) -> Judgement:
        slow: list[tuple[Utterance, float]] = []
        for dialogue, utterance in _named(account, "after"):
            took = _took(utterance)
            code = (utterance.rejection or utterance.terminal or _NOTHING).code
            if took is None and code in _REFUSALS and "apart: no" in notes:
                return not_exercised(f"The text after was refused with `{code}`.")
            if took is None:
                return fail(
                    "After sessions had vanished from long texts, a new one was not served.",
                    sent=quote.sent(utterance.sent),
                    received=_received(dialogue, utterance),
                    legal=legal,
                    advice=advice,
                )
            if took <= most:
                return passed(f"{took:.2f} s, before {usual:.2f} s")
            slow.append((utterance, took))
        refused = [note for note in notes if re.match(r"after-\d: no session", note)]
        if refused and "apart: yes" in notes:
            return fail(
                "After sessions had vanished from long texts, no new one could be opened.",
                sent="a handshake",
                received=refused[0].partition(": no session: ")[2],
                legal="HTTP 101, and the session is served",
                advice=advice,
            )
        later = [_took(u) for _, u in _named(account, "later")]
        if len(slow) < 2 or len(later) < 2 or any(t is None or t > most for t in later):
            return not_exercised("The endpoint was slow, whether or not sessions had vanished.")
        utterance, took = slow[0]
        return fail(
            f"After sessions had vanished from long texts, a text took {took:.2f} s"
            f" instead of {usual:.2f} s, until those could have been spoken.",
            sent=quote.sent(utterance.sent),
            received=f"its end after {took:.2f} s, and after {slow[1][1]:.2f} s when it was tried"
            " again",
            legal=legal,
            advice=advice,
        )

    return settle(find(), evidence, "no sessions could vanish from long texts")


def _took(utterance: Utterance) -> float | None:
    return utterance.complete.t - utterance.sent.t if utterance.complete is not None else None


# --- memory -------------------------------------------------------------------------------------

_READING: Final = re.compile(r"memory (?P<when>.+): (?P<held>\d+)")
_SIZE: Final = re.compile(r"after round \d+ of (?P<size>\d+) bytes")
# What three clients that do not read may rightly tie up: for each a message, and some thousand
# answers that wait, in objects that are larger than their JSON.
_TIED_UP: Final = 14 * 1024 * 1024


@check("load.memory", "memory")
def memory(evidence: Sequence[Account]) -> Judgement:
    """The same load again takes no more memory, and clients that do not read little of it."""
    legal = "memory that stays where it is when the same is done again and again"

    def find() -> Iterator[Judgement]:
        for account in evidence:
            readings = [hit for note in _notes(account) if (hit := _READING.fullmatch(note))]
            held = {hit["when"]: int(hit["held"]) for hit in readings}
            rounds = [(w, n) for w, n in held.items() if _SIZE.fullmatch(w)]
            if "warm" not in held or "while nobody reads" not in held or not rounds:
                continue
            yield from judge([held["warm"], *(n for _, n in rounds)], rounds[0][0], held)

    def judge(levels: list[int], first: str, held: dict[str, int]) -> Iterator[Judgement]:
        size = int((_SIZE.fullmatch(first) or {"size": "0"})["size"])
        grown = [after - before for before, after in itertools.pairwise(levels)]
        if size == 0:
            return
        told = ", ".join(f"{level / 1e6:.1f}" for level in levels)
        if len(grown) > 3 and all(more > size / 4 for more in grown):
            yield fail(
                f"The same load of {size / 1e6:.1f} MB took more memory each time: {told} MB.",
                sent=f"{len(grown)} times the same: messages spoken, rejected and abandoned",
                received=f"{told} MB held",
                legal=legal,
                advice="Find what is kept of messages, utterances or sessions that have ended.",
            )
            return
        more = held["while nobody reads"] - levels[-1]
        if more > _TIED_UP:
            yield fail(
                f"Three clients that send and do not read tied up {more / 1e6:.0f} MB.",
                sent="bad messages and a message without end, as fast as they are taken",
                received=f"{more / 1e6:.0f} MB more held than before",
                legal="a bound on the answers that wait and on the message that is being joined",
                advice="Stop reading, or end the session, when answers pile up; bound messages"
                " while they come in.",
            )
            return
        yield passed(f"{told} MB; {more / 1e6:.1f} MB more while nobody reads")

    return settle(find(), evidence, "the memory could not be read through")
