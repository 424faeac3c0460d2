"""Judges of `cancel` (`protocol.md#cancel`).

What crosses is legal either way: an utterance that by its own account had ended before the
`cancel` could be read is no evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from utterwire_conformance.check import Account, check, on_sessions, settle
from utterwire_conformance.dialogue import Chunk, Dialogue, Utterance
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed

from . import quote
from .cases import judge_cases

__all__ = [
    "after_close",
    "all_stopped",
    "audio_bytes",
    "bad_ids",
    "done",
    "only_named",
    "overtakes",
    "prompt",
    "running",
    "saves_audio",
    "saves_encoded_audio",
    "session_goes_on",
    "unknown_id",
    "unsent_bound",
    "waiting",
]

_PROMPT_S: Final = 0.5
_SLACK_S: Final = 0.1
_UNSENT_BOUND: Final = 262_144
# What the buffers of the suite's own side hold comes on top of what waits unsent.
_MAY_FOLLOW: Final = 2 * _UNSENT_BOUND
_ENOUGH_LEFT: Final = 4 * _UNSENT_BOUND
_ENOUGH_LEFT_ENCODED: Final = 2 * _UNSENT_BOUND


def _rtt(dialogue: Dialogue) -> float:
    asked, opened = dialogue.asked, dialogue.opened
    return opened.t - asked.t if asked is not None and opened is not None else 0.0


def _cancels(dialogue: Dialogue) -> list[Utterance]:
    """The valid `cancel` messages that were sent before the session was over."""
    farewell = dialogue.session_closed
    return [
        u
        for u in dialogue.utterances.values()
        if u.sent.meaning.type == "cancel"
        and u.sent.meaning.verdict == "accept"
        and (farewell is None or u.sent.index < farewell.index)
    ]


def _names(cancel: Utterance, utterance: Utterance) -> bool:
    """Whether a `cancel` is about an utterance, as far as its words go."""
    if utterance.seq > cancel.seq or utterance.sent.meaning.type != "synthesize":
        return False
    if "request_id" not in cancel.sent.meaning.fields:
        return True
    return cancel.sent.meaning.request_id == utterance.sent.meaning.request_id


def _pending(cancel: Utterance, utterance: Utterance) -> bool:
    """Whether a client had to think the utterance unended when it sent the `cancel`."""
    sent = cancel.sent.index
    if any(c.index < sent for c in (*utterance.terminals, *utterance.rejections)):
        return False
    return not utterance.rejections and utterance.sent.meaning.verdict == "accept"


def _had_ended(dialogue: Dialogue, cancel: Utterance, utterance: Utterance) -> bool:
    """Whether it had ended, by its own account, before the `cancel` can have been read.

    One that nobody had seen begin may have, where that which was being spoken had: an endpoint can
    be far ahead of a client that does not read.
    """
    if utterance.complete is None:
        return False
    if _started_before(cancel, utterance):
        return _ended_by(dialogue, utterance, cancel.sent.t)
    return any(
        _ended_by(dialogue, other, cancel.sent.t)
        for other in dialogue.utterances.values()
        if other.seq < utterance.seq and _started_before(cancel, other) and _pending(cancel, other)
    )


def _ended_by(dialogue: Dialogue, utterance: Utterance, sent: float) -> bool:
    """Whether an utterance says that it was over when something was sent."""
    start, complete = utterance.start, utterance.complete
    if start is None or complete is None:
        return False
    elapsed = complete.fields.get("elapsed_s")
    spent = elapsed if isinstance(elapsed, int | float) else 0.0
    return start.t + spent <= sent + _SLACK_S + 2 * _rtt(dialogue)


def _failed(utterance: Utterance) -> bool:
    """Whether it came to grief by itself, which may cross any `cancel`."""
    return utterance.terminal is not None and utterance.terminal.type == "error"


def _settled(dialogue: Dialogue, cancel: Utterance) -> bool:
    """Whether what there will be about a `cancel` is there, or was waited for."""
    return bool(
        cancel.ended
        or cancel.seq in dialogue.unanswered
        or dialogue.session_closed is not None
        or dialogue.hung_up
    )


def _started_before(cancel: Utterance, utterance: Utterance) -> bool:
    return utterance.start is not None and utterance.start.index < cancel.sent.index


def _stopped(utterance: Utterance) -> bool:
    return utterance.terminal is not None and utterance.terminal.type == "cancelled"


def _not_stopped(
    dialogue: Dialogue, cancel: Utterance, utterance: Utterance, what: str, advice: str
) -> Judgement:
    return fail(
        f"{what} (message {utterance.seq}) was not stopped by a `cancel`.",
        sent=f"{quote.sent(utterance.sent)}; then {quote.sent(cancel.sent)}",
        received=quote.chunk(utterance.terminal or cancel.rejection)
        if utterance.terminal or cancel.rejection
        else quote.ending(dialogue),
        legal="`cancelled` for it, then `cancel_done`",
        advice=advice,
    )


@check("cancel.running", "cancel-named", "cancel-all", "cancel-reading")
@on_sessions("no running utterance could be cancelled")
def running(dialogue: Dialogue) -> Iterator[Judgement]:
    """A running utterance that is cancelled ends in `cancelled`."""
    for cancel in _cancels(dialogue):
        for utterance in dialogue.utterances.values():
            named = _names(cancel, utterance) and _pending(cancel, utterance)
            if not named or not _started_before(cancel, utterance) or _failed(utterance):
                continue
            if _stopped(utterance):
                yield passed()
            elif _had_ended(dialogue, cancel, utterance):
                yield not_exercised("The utterance had ended before the `cancel` could be read.")
            elif _settled(dialogue, cancel):
                advice = "Stop the engine on `cancel`, and end the utterance with `cancelled`."
                yield _not_stopped(dialogue, cancel, utterance, "A running utterance", advice)
                return


def _ahead(dialogue: Dialogue, cancel: Utterance, utterance: Utterance) -> Utterance | None:
    """An utterance that was being spoken when the `cancel` was read, so that others waited."""
    return next(
        (
            u
            for u in dialogue.utterances.values()
            if u.seq < utterance.seq
            and _started_before(cancel, u)
            and _pending(cancel, u)
            and not _had_ended(dialogue, cancel, u)
            and not _failed(u)
        ),
        None,
    )


@check("cancel.waiting", "cancel-named", "cancel-all", "cancel-after-close", general=True)
@on_sessions("no waiting utterance could be cancelled")
def waiting(dialogue: Dialogue) -> Iterator[Judgement]:
    """A waiting utterance that is cancelled ends in `cancelled` and is never begun."""
    advice = "Take a waiting utterance out of the queue, and send `cancelled` and nothing else."
    for cancel in _cancels(dialogue):
        for utterance in dialogue.utterances.values():
            named = _names(cancel, utterance) and _pending(cancel, utterance)
            if not named or _started_before(cancel, utterance) or _failed(utterance):
                continue
            if _ahead(dialogue, cancel, utterance) is None:
                continue
            begun = utterance.starts or utterance.audio or utterance.unstarted_audio
            if begun:
                yield fail(
                    "A waiting utterance that was cancelled was begun all the same.",
                    sent=f"{quote.sent(utterance.sent)}; then {quote.sent(cancel.sent)}",
                    received=quote.chunk(utterance.chunks[0]),
                    legal="`cancelled`, without `synthesis_start` and without audio",
                    advice=advice,
                )
                return
            if _stopped(utterance):
                yield passed()
            elif _settled(dialogue, cancel):
                yield _not_stopped(dialogue, cancel, utterance, "A waiting utterance", advice)
                return


@check("cancel.all", "cancel-all")
@on_sessions("nothing could be cancelled as a whole")
def all_stopped(dialogue: Dialogue) -> Iterator[Judgement]:
    """`cancel` without an id stops all that is unended, and nothing that is sent behind it."""
    advice = "On `cancel` without `request_id` stop the running utterance and empty the queue."
    for cancel in _cancels(dialogue):
        if "request_id" in cancel.sent.meaning.fields:
            continue
        for utterance in dialogue.utterances.values():
            if utterance.seq > cancel.seq:
                continue
            named = _names(cancel, utterance) and _pending(cancel, utterance)
            if not named or _failed(utterance) or _had_ended(dialogue, cancel, utterance):
                continue
            if _stopped(utterance):
                yield passed()
            elif _settled(dialogue, cancel):
                yield _not_stopped(dialogue, cancel, utterance, "An utterance", advice)
                return
        for chunk in (c for u in dialogue.utterances.values() for c in u.terminals):
            later = chunk.type == "cancelled" and (chunk.seq or 0) > cancel.seq
            if later and not any(
                _names(other, dialogue.utterances[chunk.seq or 0])
                and other.sent.index < chunk.index
                for other in _cancels(dialogue)
            ):
                yield fail(
                    "A request that was sent behind a `cancel` was stopped by it.",
                    sent=f"{quote.sent(cancel.sent)}; then"
                    f" {quote.sent(dialogue.utterances[chunk.seq or 0].sent)}",
                    received=quote.chunk(chunk),
                    legal="what is sent behind a `cancel` is spoken",
                    advice="Stop what is there when the `cancel` is read, and nothing else.",
                )
                return


@check("cancel.only-named", "cancel-named", "cancel-after-close", general=True)
@on_sessions("no utterance could be cancelled by its id")
def only_named(dialogue: Dialogue) -> Iterator[Judgement]:
    """`cancel` with an id stops no other utterance."""
    cancels = _cancels(dialogue)
    by_id = [c for c in cancels if "request_id" in c.sent.meaning.fields]
    if not by_id:
        return
    for utterance in dialogue.utterances.values():
        if utterance.terminal is None or utterance.sent.meaning.type != "synthesize":
            continue
        stopped = utterance.terminal.type == "cancelled"
        end = utterance.terminal.index
        if stopped and not any(_names(c, utterance) and c.sent.index < end for c in cancels):
            yield fail(
                f"Message {utterance.seq} was stopped, though the `cancel` names another.",
                sent=f"{quote.sent(utterance.sent)}; then {quote.sent(by_id[0].sent)}",
                received=quote.chunk(utterance.terminal),
                legal="all utterances but the one that is named are spoken",
                advice="Compare the `request_id` of a `cancel` exactly; an utterance without an"
                " id is never meant.",
            )
            return
        if not stopped and any(_pending(c, utterance) for c in by_id if c.seq > utterance.seq):
            yield passed()


def _cancel_done_fault(dialogue: Dialogue) -> Iterator[tuple[Utterance, str, Chunk | None]]:
    """What is wrong with the `cancel_done` of a session, and the chunk that shows it."""
    cancels = _cancels(dialogue)
    counted: set[int] = set()
    answered = sorted((c for c in cancels if c.obeyed), key=lambda c: c.obeyed[0].number)
    for cancel in answered:
        first = cancel.obeyed[0]
        if len(cancel.obeyed) > 1:
            yield cancel, "A `cancel` got two `cancel_done`.", cancel.obeyed[1]
        if cancel.rejections:
            yield cancel, "A `cancel` got both an `error` and a `cancel_done`.", cancel.rejection
        mine = [
            u
            for u in dialogue.utterances.values()
            if _names(cancel, u) and u.seq not in counted and _stopped(u)
        ]
        before = {u.seq for u in mine if u.terminal and u.terminal.number < first.number}
        others = [c for c in cancels if c is not cancel]
        # It came too late, unless it may be the work of another `cancel`.
        late = [u for u in mine if u.seq not in before and not any(_names(c, u) for c in others)]
        if late:
            yield cancel, "`cancel_done` came before a `cancelled` that it counts.", first
        count = first.fields.get("count")
        if not late and count != len(before):
            yield cancel, f"`count` is {count}; {len(before)} utterances were stopped.", first
        counted |= before
    for cancel in cancels:
        if cancel.rejection is not None and not cancel.obeyed:
            yield cancel, "A valid `cancel` was rejected.", cancel.rejection
        elif not cancel.ended and (cancel.seq in dialogue.unanswered):
            yield cancel, "A `cancel` got no `cancel_done`.", None


@check(
    "cancel.done",
    "cancel-named",
    "cancel-all",
    "cancel-after-close",
    "cancel-reading",
    general=True,
)
@on_sessions("no `cancel` could be sent")
def done(dialogue: Dialogue) -> Iterator[Judgement]:
    """Each `cancel` gets one `cancel_done`, with the right `count`, behind what it counts."""
    for cancel, reason, chunk in _cancel_done_fault(dialogue):
        yield fail(
            reason,
            sent=quote.sent(cancel.sent),
            received=quote.chunk(chunk),
            legal="the `cancelled` of all it stopped, then one `cancel_done` with its own `seq`"
            " and their number as `count`",
            advice="Answer each `cancel` once, when all that it stopped has its `cancelled`.",
        )
        return
    if any(cancel.obeyed for cancel in _cancels(dialogue)):
        yield passed()


@check("cancel.unknown-id", "cancel-all", "cancel-named")
@on_sessions("no `cancel` of something ended could be sent")
def unknown_id(dialogue: Dialogue) -> Iterator[Judgement]:
    """A `cancel` that finds nothing to stop gets `cancel_done` with `count` 0."""
    for cancel in _cancels(dialogue):
        case = cancel.sent.case
        if case is None or case.check != "cancel.unknown_id":
            continue
        answers = [*cancel.rejections, *cancel.obeyed, *cancel.terminals]
        right = cancel.obeyed and cancel.obeyed[0].fields.get("count") == 0
        if right and len(answers) == 1:
            yield passed()
        elif answers or cancel.seq in dialogue.unanswered or dialogue.hung_up:
            yield fail(
                f"A `cancel` that finds nothing ({case.name}) was not answered right.",
                sent=quote.sent(cancel.sent),
                received=quote.chunk(answers[0]) if answers else quote.ending(dialogue),
                legal="`cancel_done` with `count` 0, and no error",
                advice="A `cancel` may cross the end of what it names: answer it all the same.",
            )
            return


def _harm(dialogue: Dialogue, name: str) -> Iterator[Judgement]:
    """Whether an invalid `cancel` was obeyed, or stopped something."""
    bad = [
        u
        for u in dialogue.utterances.values()
        if u.sent.case is not None and u.sent.case.check == name
    ]
    if not bad:
        return
    legal = "`error` with `rejected` true and the code invalid_request, and nothing is stopped"
    for utterance in dialogue.utterances.values():
        terminal = utterance.terminal
        if terminal is None or terminal.type != "cancelled":
            continue
        cancels = [c for c in _cancels(dialogue) if _names(c, utterance)]
        if not any(c.sent.index < terminal.index for c in cancels):
            yield fail(
                "An utterance was stopped by a `cancel` that is invalid.",
                sent=quote.sent(bad[0].sent),
                received=quote.chunk(terminal),
                legal=legal,
                advice="Tell an absent `request_id` from one that is null or wrong.",
            )
            return


def bad_ids(name: str, advice: str) -> object:
    """A judge of invalid `cancel` messages: each rejected with the right code, without harm."""
    by_case = judge_cases(name, advice)

    def judge(evidence: Sequence[Account]) -> Judgement:
        harm = (j for a in evidence for d in a.dialogues for j in _harm(d, name))
        return settle([*harm, by_case(evidence)], evidence, "no such `cancel` could be sent")

    return check(name.replace("_", "-"), "cancel-bad-ids")(judge)


bad_ids(
    "cancel.null_id",
    "Null means absent in other messages, but not here: a variable that was never set must not"
    " silence everybody.",
)
bad_ids("cancel.invalid_id", "Validate the `request_id` of a `cancel` as that of a request.")


@check("cancel.audio-bytes", "cancel-named", "cancel-all", "cancel-reading", general=True)
@on_sessions("nothing was cancelled")
def audio_bytes(dialogue: Dialogue) -> Iterator[Judgement]:
    """`audio_bytes` of `cancelled` is what was sent of the utterance before it."""
    for utterance in dialogue.utterances.values():
        for chunk in utterance.terminals[:1]:
            if chunk.type != "cancelled":
                continue
            came = sum(len(audio.data) for audio in utterance.audio)
            came += sum(len(audio.data) for audio in utterance.unstarted_audio)
            said = chunk.fields.get("audio_bytes")
            if said == came:
                yield passed()
                continue
            yield fail(
                f"`audio_bytes` of `cancelled` is {said}; {came} bytes came before it.",
                sent=quote.sent(utterance.sent),
                received=quote.chunk(chunk),
                legal=f"`audio_bytes` {came}",
                advice="Count the bytes that you hand to the transport, not those you made.",
            )
            return


@check("cancel.saves-audio", "cancel-reading")
@on_sessions("no long utterance could be cancelled early enough to tell")
def saves_audio(dialogue: Dialogue) -> Iterator[Judgement]:
    """A long utterance that is cancelled at its beginning is not sent to its end."""
    yield from _saved(dialogue, _ENOUGH_LEFT)


@check("cancel.saves-audio", "cancel-encoded", id="cancel.saves_audio_encoded")
@on_sessions("no long utterance in an encoded format could be cancelled early enough to tell")
def saves_encoded_audio(dialogue: Dialogue) -> Iterator[Judgement]:
    """The same of an encoded format, in which there are fewer bytes to save."""
    yield from _saved(dialogue, _ENOUGH_LEFT_ENCODED)


def _saved(dialogue: Dialogue, enough: int) -> Iterator[Judgement]:
    """Whether a `cancel` saved what it could, where at least `enough` bytes were left.

    How much may still be on its way cannot be known from outside, so only the sum is judged.
    """
    spoken = [u for u in dialogue.utterances.values() if u.complete is not None and u.audio]
    for cancel in _cancels(dialogue):
        for utterance in dialogue.utterances.values():
            named = _names(cancel, utterance) and _pending(cancel, utterance)
            if not named or not utterance.audio or not spoken or not _settled(dialogue, cancel):
                continue
            twin = min(spoken, key=lambda u: u.seq)
            share = len(twin.pcm) / max(1, len(twin.sent.meaning.text))
            whole = share * len(utterance.sent.meaning.text)
            every = [*utterance.audio, *utterance.late_audio]
            before = sum(len(c.data) for c in every if c.index < cancel.sent.index)
            after = sum(len(c.data) for c in every) - before
            left = whole - before
            if left < enough:
                yield not_exercised("Most of the audio had been sent before the `cancel`.")
            elif _had_ended(dialogue, cancel, utterance):
                yield not_exercised("The utterance had ended before the `cancel` could be read.")
            elif after <= left / 2:
                yield passed()
            else:
                yield fail(
                    f"After `cancel` {after} bytes of audio still came, of some {left:.0f} left.",
                    sent=f"{quote.sent(utterance.sent)}; then {quote.sent(cancel.sent)}",
                    received=f"{before} bytes of audio before the `cancel`, {after} after it",
                    legal="what was on its way, and at most one chunk more",
                    advice="Throw away what is made and not sent, and stop the engine.",
                )


@check("cancel.prompt", "cancel-reading")
def prompt(evidence: Sequence[Account]) -> Judgement:
    """Toward a client that reads, `cancelled` comes within 500 ms; the better of two tries.

    What the round trip and the suite itself took is not held against the endpoint.
    """
    tries: list[tuple[float, Judgement]] = []
    unseen: list[Judgement] = []
    for account in evidence:
        for dialogue in account.dialogues:
            for cancel in _cancels(dialogue):
                for utterance in dialogue.utterances.values():
                    named = _names(cancel, utterance) and _pending(cancel, utterance)
                    if not named or not _started_before(cancel, utterance):
                        continue
                    if _stopped(utterance):
                        tries.append(_promptness(dialogue, cancel, utterance))
                    elif _had_ended(dialogue, cancel, utterance):
                        unseen.append(not_exercised("The utterance had ended before `cancel`."))
    if tries:
        return settle([min(tries, key=lambda found: found[0])[1]], evidence, "")
    return settle(unseen, evidence, "no running utterance was cancelled")


def _promptness(
    dialogue: Dialogue, cancel: Utterance, utterance: Utterance
) -> tuple[float, Judgement]:
    assert utterance.terminal is not None
    # A pong that passed what waits shows that the endpoint had not read much further.
    read = max([cancel.sent.t, *(p[0] for p in dialogue.pongs if p[1] < utterance.terminal.index)])
    read = min(read, cancel.sent.t + _PROMPT_S)
    waited = utterance.terminal.t - read
    lag = float(dialogue.facts.get("lag", "0"))
    if waited <= _PROMPT_S + _SLACK_S + 2 * _rtt(dialogue) + lag:
        return waited, passed()
    return waited, fail(
        f"`cancelled` came {waited:.2f} s after `cancel`.",
        sent=f"{quote.sent(utterance.sent)}; then {quote.sent(cancel.sent)}",
        received=quote.chunk(utterance.terminal),
        legal="`cancelled` within 500 ms, behind what was handed over",
        advice="Do not wait for the engine: end the utterance, and drop what it still makes.",
    )


def _immediate_answers(dialogue: Dialogue) -> Iterator[tuple[Utterance, Chunk]]:
    """The chunks that a `cancel`, valid or not, must get at once."""
    for utterance in dialogue.utterances.values():
        fields = utterance.sent.meaning.fields
        if fields.get("type") != "cancel":
            continue
        for chunk in (*utterance.obeyed[:1], *utterance.rejections[:1]):
            yield utterance, chunk
        if utterance.obeyed:
            for other in dialogue.utterances.values():
                end = other.terminal
                if end is None or end.type != "cancelled" or not _names(utterance, other):
                    continue
                if end.number < utterance.obeyed[0].number and end.index > utterance.sent.index:
                    yield utterance, end


@check("cancel.overtakes", "cancel-named", "cancel-bad-ids", "cancel-after-close")
@on_sessions("no `cancel` could be sent while an utterance was being spoken")
def overtakes(dialogue: Dialogue) -> Iterator[Judgement]:
    """What answers a `cancel` comes before the end of what was being spoken then."""
    for cancel, chunk in _immediate_answers(dialogue):
        for other in dialogue.utterances.values():
            end = other.terminal
            if other.seq == chunk.seq or end is None or _failed(other):
                continue
            spoken = _started_before(cancel, other) and end.index > cancel.sent.index
            named = cancel.sent.meaning.verdict == "accept" and _names(cancel, other)
            if not spoken or named or _had_ended(dialogue, cancel, other):
                continue
            if chunk.number < end.number:
                yield passed()
                continue
            yield fail(
                f"The answer to a `cancel` came only after message {other.seq} had ended.",
                sent=f"{quote.sent(other.sent)}; then {quote.sent(cancel.sent)}",
                received=f"{quote.chunk(end)}, then {quote.chunk(chunk)}",
                legal="`cancelled`, `cancel_done` and any `error` to a `cancel` at once",
                advice="Send what answers a `cancel` ahead of all that waits.",
            )
            return


@check("cancel.session-goes-on", "cancel-named", "cancel-all", "cancel-reading", general=True)
@on_sessions("no request was sent after a `cancel` was done")
def session_goes_on(dialogue: Dialogue) -> Iterator[Judgement]:
    """After a cancel the session serves the next request."""
    cancels = [c for c in _cancels(dialogue) if c.obeyed]
    if not cancels or dialogue.close_sent is not None:
        return
    stops = min(c.obeyed[0].index for c in cancels)
    lost = None
    for utterance in dialogue.utterances.values():
        meaning = utterance.sent.meaning
        after = utterance.seq > cancels[0].seq and meaning.type == "synthesize"
        if not after or any(_names(c, utterance) for c in cancels):
            continue
        if utterance.complete is not None:
            yield passed()
        elif utterance.seq in dialogue.in_vain or (
            meaning.verdict == "accept"
            and utterance.rejection is not None
            and utterance.rejection.code not in ("overloaded", "going_away", "queue_full")
            and not _shares_id(dialogue, utterance)
        ):
            lost = utterance
    last = dialogue.chunks[-1] if dialogue.chunks else None
    hung_up = dialogue.hung_up and last is not None and last.index >= stops
    told = last is not None and last.type in ("cancel_done", "cancelled", "session_closed")
    if lost is not None or (hung_up and told):
        yield fail(
            "After a `cancel` the session did not serve the next request.",
            sent=f"{quote.sent(cancels[0].sent)}" + (f"; {quote.sent(lost.sent)}" if lost else ""),
            received=quote.chunk(lost.rejection)
            if lost is not None and lost.rejection
            else quote.ending(dialogue),
            legal="the session goes on",
            advice="Cancelling ends utterances, never the session.",
        )


def _shares_id(dialogue: Dialogue, utterance: Utterance) -> bool:
    """Whether an earlier request has its id, so that it may be a duplicate."""
    named = utterance.sent.meaning.request_id
    return named is not None and any(
        other.seq < utterance.seq and other.sent.meaning.request_id == named
        for other in dialogue.utterances.values()
    )


@check("cancel.after-close", "cancel-after-close")
@on_sessions("no `cancel` could be sent after `close`")
def after_close(dialogue: Dialogue) -> Iterator[Judgement]:
    """A valid `cancel` after `close` is acted on and answered."""
    for cancel in _cancels(dialogue):
        if not cancel.sent.after_close:
            continue
        named = [
            u
            for u in dialogue.utterances.values()
            if _names(cancel, u) and _pending(cancel, u) and not _failed(u)
        ]
        if not named or any(_had_ended(dialogue, cancel, u) for u in named):
            continue
        over = dialogue.session_closed is not None or "no session_closed" in dialogue.facts
        if cancel.obeyed and all(_stopped(u) for u in named):
            yield passed()
        elif over or dialogue.hung_up or cancel.ended:
            answers = [*cancel.rejections, *cancel.obeyed, *(c for u in named for c in u.terminals)]
            yield fail(
                "A `cancel` after `close` was not acted on.",
                sent=f"{quote.sent(dialogue.close_sent)}; then {quote.sent(cancel.sent)}",
                received=quote.chunk(answers[0]) if answers else quote.ending(dialogue),
                legal="`cancelled`, then `cancel_done`, then, when all has ended, `session_closed`",
                advice="After `close` ignore every message but a valid `cancel`.",
            )
            return


@check("cancel.unsent-bound", "cancel-stalled")
@on_sessions("no reader could be stalled while an utterance was being spoken")
def unsent_bound(dialogue: Dialogue) -> Iterator[Judgement]:
    """Of what was made while nobody read, little waits unsent, so that `cancel` can stop it."""
    stall = next(
        (i for i, e in enumerate(dialogue.entries) if e.text == "stalled: begins"),
        None,
    )
    cancel = next(iter(_cancels(dialogue)), None)
    if stall is None or cancel is None:
        return
    utterance = next((u for u in dialogue.utterances.values() if _names(cancel, u)), None)
    if utterance is None:
        return
    came = sum(len(c.data) for c in dialogue.chunks if c.is_audio and c.index > stall)
    if came > _MAY_FOLLOW:
        yield fail(
            f"After a stall and a `cancel` {came} bytes of audio still came.",
            sent=f"{quote.sent(utterance.sent)}; then {quote.sent(cancel.sent)}",
            received=f"{came} bytes of audio",
            legal=f"{_UNSENT_BOUND} bytes wait unsent at most; with the suite's own buffers"
            f" {_MAY_FOLLOW} can follow",
            advice="Let the engine wait when the socket takes no more, and set its send buffer"
            " (SO_SNDBUF): systems let it grow to megabytes. If a proxy on the way takes all it is"
            " given, judge the endpoint without it.",
        )
    elif utterance.ended:
        yield passed()
