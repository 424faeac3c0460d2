"""Judges of what a client makes of the chunks it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from utterwire_conformance.client_half.account import ClientAccount, Line
from utterwire_conformance.dialogue import Utterance
from utterwire_conformance.judges import quote
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed

from .finding import asked, came, rule, served, told, whole

__all__ = [
    "carries_odd_chunks",
    "classifies",
    "correlates_by_seq",
    "error_ends",
    "flushes_on_cancel",
    "follows_start",
    "ignores_unknown_control",
    "sse_buffering",
    "terminal_ends",
    "tolerates_no_start",
]

_DEFAULTS: Final = (24_000, "pcm_s16le")
_TO_FAIL: Final = ("No such voice.", "It breaks.", "A code of tomorrow.")


@rule(
    "client.classifies",
    "client-binary-control",
    "client-audio-like-control",
    "client-fragments",
    otherwise="nothing was asked for",
)
def classifies(account: ClientAccount) -> Iterator[Judgement]:
    """Control and audio are told apart by the whole chunk."""
    what = {
        "client-binary-control": "Control came in binary frames",
        "client-audio-like-control": "Audio chunks began with 0x7B or looked like JSON",
        "client-fragments": "Chunks came in fragments",
    }.get(account.name, "A chunk was taken for what it is not")
    for line in asked(account):
        yield whole(
            account,
            line,
            what=what,
            advice="A binary chunk is control only if it begins with 0x7B and the whole of it is"
            " one strict JSON object with a string `type`; whatever else it is, is audio.",
        )


@rule(
    "client.follows-start",
    "client-other-start",
    otherwise="nothing was asked for",
)
def follows_start(account: ClientAccount) -> Iterator[Judgement]:
    """Audio is played at the rate and in the format that `synthesis_start` names."""
    for line in asked(account):
        utterance = line.last.utterance if line.last is not None else None
        if utterance is None or utterance.start is None:
            continue
        said = (
            utterance.start.fields.get("sample_rate"),
            utterance.start.fields.get("format"),
        )
        if line.kind != "complete":
            yield not_exercised(f"The client did not play audio of {said[1]} at {said[0]} Hz.")
        elif line.start is None:
            yield not_exercised("The client wrote no `start`: nobody knows how it plays.")
        elif (line.start.sample_rate, line.start.format) == said:
            yield passed()
        else:
            yield fail(
                f"The client plays {line.start.format} at {line.start.sample_rate} Hz what is"
                f" {said[1]} at {said[0]} Hz.",
                sent=quote.chunk(utterance.start),
                received=f"`start` with sample_rate {line.start.sample_rate}, format"
                f" {line.start.format}",
                legal="the rate and the format of `synthesis_start`, or `failed` where it cannot",
                advice="Set the player up anew from each `synthesis_start`.",
            )


@rule(
    "client.ignores-unknown-control",
    "client-unknown-control",
    otherwise="nothing was asked for",
)
def ignores_unknown_control(account: ClientAccount) -> Iterator[Judgement]:
    """Control of unknown types, and unknown fields, change nothing."""
    for line in asked(account):
        yield whole(
            account,
            line,
            what="Control messages of unknown types, and unknown fields, came",
            advice="Skip control messages whose `type` is not known; take known fields only.",
        )


@rule(
    "client.correlates-by-seq",
    "client-overtaking",
    "client-no-seq",
    otherwise="the client never had two requests in flight",
)
def correlates_by_seq(account: ClientAccount) -> Iterator[Judgement]:
    """Answers go to the requests they are about."""
    if account.name == "client-no-seq":
        yield from _counted(account)
    else:
        yield from _overtaken(account)


def _counted(account: ClientAccount) -> Iterator[Judgement]:
    lines = account.lines
    if len(lines) != 3 or not lines[1].attempts:
        return
    advice = "Where an endpoint sends no `seq`, an answer belongs to the oldest unended request."
    if lines[1].kind == "complete" or (lines[0].attempts and lines[0].fault() is not None):
        wrong = lines[0] if lines[0].fault() is not None else lines[1]
        yield fail(
            "Without `seq`, an answer was taken for that of another request.",
            sent=f"{served(lines[0])}; then {served(lines[1])}",
            received=came(account, wrong),
            legal="`complete` for utterance 1, `failed` for utterance 2",
            advice=advice,
        )
    elif lines[2].attempts and account.killed is None:
        yield whole(account, lines[2], what="Answers came without `seq`", advice=advice)
    elif lines[2].attempts:
        yield fail(
            "Without `seq`, the client did not come to its end.",
            sent=served(lines[2]),
            received=account.way_out,
            legal="`complete` for utterance 3",
            advice=advice,
        )


def _overtaken(account: ClientAccount) -> Iterator[Judgement]:
    def refused(line: Line) -> Utterance | None:
        first = line.attempts[0].utterance if line.attempts else None
        return first if first is not None and first.rejection is not None else None

    overtaken = [line for line in account.lines if refused(line) is not None]
    if not overtaken:
        return
    for line in asked(account):
        again = len(line.attempts) > 1
        utterance = refused(line)
        if utterance is None or (again and line.kind == "complete"):
            fault = line.fault()
        elif line.kind == "failed":
            fault = None
        else:
            fault = f"was refused, and told to be `{line.kind}`"
        if fault is None:
            yield passed()
            continue
        yield fail(
            "While an utterance was being spoken a later request was refused, and the client"
            f" took that for another's: utterance {line.number} {fault}.",
            sent=served(overtaken[0]) if utterance is None else served(line),
            received=came(account, line),
            legal=f"`failed` for utterance {overtaken[0].number}, `complete` for the others",
            advice="Match each answer to its request by `seq`, never by order or `request_id`.",
        )


@rule(
    "client.tolerates-no-start",
    "client-no-start",
    otherwise="nothing was asked for",
)
def tolerates_no_start(account: ClientAccount) -> Iterator[Judgement]:
    """Audio alone begins an utterance, in the default format."""
    for line in asked(account):
        advice = (
            "Where audio comes without `synthesis_start`, take what was asked for, or defaults."
        )
        start = line.start
        if start is not None and (start.sample_rate, start.format) != _DEFAULTS:
            yield fail(
                f"Without `synthesis_start` the client plays {start.format} at"
                f" {start.sample_rate} Hz.",
                sent=served(line),
                received=came(account, line),
                legal="pcm_s16le at 24000 Hz",
                advice=advice,
            )
        else:
            yield whole(account, line, what="No `synthesis_start` came", advice=advice)


@rule(
    "client.terminal-ends",
    "client-pauses",
    otherwise="nothing was asked for",
)
def terminal_ends(account: ClientAccount) -> Iterator[Judgement]:
    """An utterance ends with its terminal message, whatever pauses come before."""
    for line in asked(account):
        yield whole(
            account,
            line,
            what="There was a pause in it or before it, or it had no audio or tiny chunks",
            advice="End an utterance at `synthesis_complete`, `error` or `cancelled` alone.",
        )


@rule(
    "client.error-ends",
    "client-errors",
    otherwise="no request was answered by an `error`",
)
def error_ends(account: ClientAccount) -> Iterator[Judgement]:
    """An `error` is reported for its own request, and the others go on."""
    failed = [line for line in account.lines if line.text in _TO_FAIL and line.attempts]
    if not failed:
        return
    for line in failed:
        sent = _codes(line)
        ending = line.ending
        if ending is not None and ending.kind == "failed" and ending.code in (None, *sent):
            yield passed()
            continue
        yield fail(
            f"Utterance {line.number} ended in an `error`, and was not reported so.",
            sent=served(line),
            received=came(account, line),
            legal=f"`failed` for utterance {line.number}, with the code {sent[-1] if sent else ''}",
            advice="Report an `error` for the request whose `seq` it carries.",
        )
    for line in account.lines:
        if line.text not in _TO_FAIL:
            yield whole(
                account,
                line,
                what="Another utterance ended in an `error`",
                advice="After an `error` go on with the others: the session lives on.",
            )


def _codes(line: Line) -> list[str]:
    found = []
    for attempt in line.attempts:
        assert attempt.utterance is not None
        chunk = attempt.utterance.rejection or attempt.utterance.terminal
        if chunk is not None and chunk.code is not None:
            found.append(chunk.code)
    return found


@rule(
    "client.carries-odd-chunks",
    "client-odd-chunks",
    otherwise="nothing was asked for",
)
def carries_odd_chunks(account: ClientAccount) -> Iterator[Judgement]:
    """Samples that were split over chunks are joined, and the client warns."""
    lines = asked(account)
    for line in lines:
        yield whole(
            account,
            line,
            what="Chunks split samples",
            advice="Carry a byte that is left over into the next chunk.",
        )
    if lines and not account.warnings:
        yield fail(
            "Chunks split samples, and the client did not warn.",
            sent=served(lines[0]),
            received=f"no `warning`; {account.way_out}",
            legal="a `warning`, once",
            advice="Tell whoever runs the client that the endpoint is at fault.",
        )


@rule(
    "client.flushes-on-cancel",
    "client-cancel",
    otherwise="the client sent no `cancel` when it was interrupted",
)
def flushes_on_cancel(account: ClientAccount) -> Iterator[Judgement]:
    """Audio that comes after the `cancel` is not played."""
    if not account.facts("audio after cancel") or not account.lines:
        return
    line = account.lines[0]
    utterance = line.last.utterance if line.last is not None else None
    dialogue = line.last.dialogue if line.last is not None else None
    if utterance is None or dialogue is None:
        return
    cancel = next((s for s in dialogue.sent if s.meaning.type == "cancel"), None)
    if cancel is None:
        return
    late = b"".join(
        chunk.data
        for chunk in (*utterance.audio, *utterance.late_audio)
        if chunk.index > cancel.index
    )
    if late and late not in account.audio and line.kind != "complete":
        yield passed()
        return
    yield fail(
        "Audio that came after the `cancel` was played all the same."
        if line.kind != "complete"
        else "An utterance that was cancelled is told to be complete.",
        sent=f"{len(late)} bytes of audio, then `cancelled`",
        received=came(account, line),
        legal="none of that audio on stdout, and `cancelled` for the utterance",
        advice="When you send `cancel`, drop what is buffered, and what still comes of it.",
    )


@rule(
    "client.sse-buffering",
    "client-sse-bytes",
    "client-sse-one",
    "client-sse-split",
    "client-sse-cut",
    otherwise="nothing was asked for",
)
def sse_buffering(account: ClientAccount) -> Iterator[Judgement]:
    """Events end at blank lines, wherever deliveries do."""
    advice = "Gather octets until a blank line, then read the event; decode UTF-8 per line."
    for line in asked(account):
        if account.facts("stream cut") and line is account.lines[0]:
            yield told(
                account,
                line,
                what="The stream ended before the blank line of its last event",
                advice="What has no blank line after it is no event: the stream was cut off.",
            )
        else:
            yield whole(account, line, what="Deliveries split or joined events", advice=advice)
