"""Judges of how a client tries again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from utterwire_conformance.client_half.account import Attempt, ClientAccount, Line
from utterwire_conformance.dialogue import Chunk
from utterwire_conformance.judges import quote
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed

from .finding import rule

__all__ = ["backs_off", "no_blind_retry"]

# A client is told in whole or tenths of seconds; its clock may be a little ahead of ours.
_SLACK_S: Final = 0.05
_AT_ONCE_S: Final = 0.02
_ALIKE: Final = 1.25
# Of a wait, how much may be the delay of this machine: too little to make the same wait another.
_SURE: Final = 0.2


def _error(attempt: Attempt) -> tuple[Chunk | None, dict[str, object] | None]:
    """The `error` that a request met: over a session, or over HTTP."""
    if attempt.utterance is not None:
        chunk = attempt.utterance.rejection or attempt.utterance.terminal
        return (chunk if chunk is not None and chunk.type == "error" else None), None
    assert attempt.exchange is not None
    failed = attempt.exchange.status is not None and attempt.exchange.status >= 400
    return None, attempt.exchange.json if failed else None


def _final(attempt: Attempt) -> str | None:
    """The `error` of a request that is of no use to send again, quoted; None if it is of use."""
    chunk, body = _error(attempt)
    if chunk is not None and chunk.fields.get("retryable") is not True:
        return quote.chunk(chunk)
    if body is not None and body.get("retryable") is not True:
        assert attempt.exchange is not None
        return quote.answer(attempt.exchange)
    return None


@rule(
    "client.no-blind-retry",
    "client-errors",
    "client-no-seq",
    general=True,
    otherwise="no request was answered by an `error` that is not retryable",
)
def no_blind_retry(account: ClientAccount) -> Iterator[Judgement]:
    """What was refused for good is not asked for again."""
    for line in account.lines:
        for number, attempt in enumerate(line.attempts):
            final = _final(attempt)
            if final is None:
                continue
            if number + 1 < len(line.attempts):
                yield fail(
                    f"Utterance {line.number} was asked for again after an `error` that is not"
                    " retryable.",
                    sent=final,
                    received=f"the same request, {len(line.attempts)} times",
                    legal="no such request again",
                    advice="Try again only where `retryable` is true.",
                )
            elif account.ended and account.killed is None:
                yield passed()


@rule(
    "client.backs-off",
    "client-full",
    "client-full-for-1-s",
    "client-overloaded",
    "client-dismissed-for-1-s",
    otherwise="the client did not try again",
)
def backs_off(account: ClientAccount) -> Iterator[Judgement]:
    """Between tries the client waits: as long as it was told, or ever longer."""
    yield from _told_waits(account)
    gaps = _gaps(account)
    if not gaps:
        return
    if max(gaps) >= _AT_ONCE_S and account.lag_s > _SURE * min(gaps):
        yield not_exercised(
            f"The machine was {account.lag_s:.1f} s behind: how long the client waited cannot be"
            " told."
        )
        return
    shown = ", ".join(f"{gap:.3f} s" for gap in gaps)
    advice = "Wait for a time that doubles with each try, times a random number."
    if max(gaps) < _AT_ONCE_S:
        yield fail(
            "The client tried again at once.",
            sent="a refusal that is worth another try",
            received=f"the next try after {shown}",
            legal="a wait that grows with each try and is partly random",
            advice=advice,
        )
    elif len(gaps) > 2 and max(gaps) < _ALIKE * min(gaps):
        yield fail(
            "The client tried again and again after the same time.",
            sent="refusals that are worth another try",
            received=f"the next try after {shown}",
            legal="a wait that grows with each try and is partly random",
            advice=advice,
        )
    else:
        yield passed()


def _told_waits(account: ClientAccount) -> Iterator[Judgement]:
    for told, gap, shown in _told(account):
        if gap >= told - _SLACK_S:
            yield passed()
        else:
            yield fail(
                f"The client was told to wait for {told:g} s and came back after {gap:.3f} s.",
                sent=shown,
                received=f"the next try after {gap:.3f} s",
                legal=f"no try before {told:g} s have passed",
                advice="Take `Retry-After` and `retry_after_s` for the least time to wait.",
            )


def _told(account: ClientAccount) -> Iterator[tuple[float, float, str]]:
    """How long the client was told to wait, how long it did, and by what it was told."""
    for before, after in zip(account.dialogues, account.dialogues[1:], strict=False):
        assert after.asked is not None
        if before.opened is not None and before.opened.status != 101:
            seconds = _seconds(dict(before.opened.headers).get("Retry-After"))
            # A connection that was asked for before is no answer to the refusal.
            if seconds is not None and after.asked.t > before.opened.t:
                yield seconds, after.asked.t - before.opened.t, f"503, Retry-After: {seconds:g}"
        farewell = before.session_closed
        if farewell is not None:
            seconds = _seconds(farewell.fields.get("retry_after_s"))
            if seconds and after.asked.t > farewell.t:
                yield seconds, after.asked.t - farewell.t, quote.chunk(farewell)
    for line in account.lines:
        for first, second in zip(line.attempts, line.attempts[1:], strict=False):
            exchange = first.exchange
            if exchange is None or exchange.end_t is None:
                continue
            seconds = _seconds(exchange.headers.get("retry-after"))
            if seconds is not None:
                yield seconds, second.t - exchange.end_t, quote.answer(exchange)


def _seconds(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return float(value) if isinstance(value, str) and value.isdigit() else None


def _gaps(account: ClientAccount) -> list[float]:
    """The waits after refusals that said nothing of how long to wait."""
    gaps = []
    for before, after in zip(account.dialogues, account.dialogues[1:], strict=False):
        refused, again = before.opened, after.asked
        if refused is None or again is None or refused.status != 503 or again.t < refused.t:
            continue
        if "Retry-After" not in dict(refused.headers):
            gaps.append(again.t - refused.t)
    for line in account.lines:
        gaps += _again(line)
    return gaps


def _again(line: Line) -> list[float]:
    gaps = []
    for first, second in zip(line.attempts, line.attempts[1:], strict=False):
        chunk, _ = _error(first)
        # `queue_full` says when there is room: after the next terminal message.
        if chunk is not None and chunk.fields.get("retryable") and chunk.code != "queue_full":
            gaps.append(second.t - chunk.t)
    return gaps
