"""Judges of what SageMaker asks of a container (`sagemaker.md`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote as percent

from utterwire_conformance.check import Account, check, on_exchanges, on_sessions, settle
from utterwire_conformance.dialogue import Dialogue, Utterance
from utterwire_conformance.exchange import Exchange
from utterwire_conformance.verdict import Judgement, Verdict, fail, not_exercised, passed

from . import quote
from .cases import judge_case

__all__ = [
    "accept",
    "client_closes",
    "headers",
    "partial_parts",
    "ping_fast",
    "pong",
    "sigterm",
    "untyped_part",
]

_ACCEPT_S: Final = 0.25
_PING_S: Final = 2.0
_EXIT_S: Final = 30.0
# TCP, TLS and the handshake itself go to and fro.
_TRIPS: Final = 4
_LEAST_ATTEMPTS: Final = 3


def _times(text: str) -> dict[str, Any] | None:
    try:
        told = json.loads(text)
    except ValueError:
        return None
    return told if isinstance(told, dict) and told.get("busy") == "yes" else None


def _net(times: dict[str, Any], trips: int) -> float:
    """What the endpoint took, in seconds, at least: less the way, and what was the suite's own."""
    return float(times["took"]) - float(times["own"]) - trips * float(times["rtt"])


# --- under load ---------------------------------------------------------------------------------


@check("sagemaker.accept", "sagemaker-busy")
def accept(evidence: Sequence[Account]) -> Judgement:
    """While texts are spoken, connections are accepted in time: more often than not, since the
    machine that the suite shares with an endpoint may halt at times."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            found = [
                (dialogue, _net(times, _TRIPS))
                for dialogue in account.dialogues
                if (times := _times(dialogue.facts.get("accepted", ""))) is not None
            ]
            if len(found) < _LEAST_ATTEMPTS:
                continue
            late = sorted(((took, d) for d, took in found if took > _ACCEPT_S), key=lambda p: -p[0])
            if 2 * len(late) <= len(found):
                yield passed(f"{max(took for _, took in found):.3f} s at most")
                continue
            yield fail(
                f"Of {len(found)} connections {len(late)} were accepted only after more than"
                " 250 ms.",
                sent="a connection and a handshake, while long texts were being spoken",
                received=f"HTTP 101 after {late[0][0]:.2f} s, the way and the suite's own delays"
                " taken off",
                legal="HTTP 101 within 250 ms",
                advice="Let no engine hold up the loop that accepts connections.",
            )

    return settle(find(), evidence, "too few connections could be opened while texts were spoken")


@check("sagemaker.ping-fast", "sagemaker-busy")
def ping_fast(evidence: Sequence[Account]) -> Judgement:
    """While texts are spoken `/ping` is answered 200, and in time."""
    advice = "Answer `/ping` without asking the engine, from a loop that nothing blocks."
    legal = "HTTP 200 within 2 s"

    def find() -> Iterator[Judgement]:
        for account in evidence:
            found = []
            for exchange in account.exchanges:
                for note in exchange.notes:
                    times = _times(note.removeprefix("answered: "))
                    if exchange.target == "/ping" and times is not None:
                        found.append((exchange, _net(times, _TRIPS)))
            yield from judge(found)

    def judge(found: list[tuple[Exchange, float]]) -> Iterator[Judgement]:
        if not found:
            return
        for exchange, took in found:
            if exchange.status is not None and exchange.status != 200:
                yield fail(
                    f"While texts were spoken `/ping` was answered {exchange.status}.",
                    sent="GET /ping",
                    received=quote.answer(exchange),
                    legal=legal,
                    advice=advice,
                )
                return
            if exchange.status is None and took <= _PING_S:
                yield fail(
                    "While texts were spoken `/ping` got no answer.",
                    sent="GET /ping",
                    received="the end of the connection",
                    legal=legal,
                    advice=advice,
                )
                return
        late = [took for _, took in found if took > _PING_S]
        if 2 * len(late) > len(found):
            yield fail(
                f"While texts were spoken `/ping` took {max(late):.1f} s.",
                sent=f"GET /ping, {len(found)} times",
                received=f"{len(late)} answers after more than 2 s, or none",
                legal=legal,
                advice=advice,
            )
        else:
            yield passed(f"{max(took for _, took in found):.3f} s at most")

    return settle(find(), evidence, "`/ping` could not be asked while texts were spoken")


# What comes in one session is read before or after what comes at the same time in another.
_HELD_SHARE: Final = 0.9
_LEAST_BUSY_S: Final = 0.2


@check("sagemaker.pong", "sagemaker-busy")
def pong(evidence: Sequence[Account]) -> Judgement:
    """Pings of sessions that speak and of one that is quiet are answered while texts are spoken."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            ends = [
                utterance.terminal.t if utterance.terminal is not None else float("inf")
                for dialogue in account.dialogues
                for utterance in dialogue.utterances.values()
            ]
            for dialogue in account.dialogues:
                if dialogue.facts.get("busy when pinged") == "yes" and dialogue.pings:
                    yield from judge(dialogue, max(ends, default=0.0))

    def judge(dialogue: Dialogue, end: float) -> Iterator[Judgement]:
        sent, _, payload = dialogue.pings[0]
        # What came only when the suite had given up waiting, and was leaving, is no answer.
        given_up = next(
            (e.t for e in dialogue.entries if e.text == "pong: waited for"), float("inf")
        )
        got = next((t for t, _, data in dialogue.pongs if data == payload and t <= given_up), None)
        if got is not None and got - sent < _HELD_SHARE * (end - sent):
            yield passed()
        elif min(end, given_up) - sent < _LEAST_BUSY_S:
            yield not_exercised("The long texts were spoken too soon after the ping.")
        elif got is not None or "pong" in dialogue.facts:
            yield fail(
                "A ping was not answered while texts were being spoken.",
                sent=f"a ping, in a session with {len(dialogue.sent)} messages",
                received=f"the pong {got - sent:.2f} s later, when no text was being spoken"
                if got is not None
                else f"no pong in {min(end, given_up) - sent:.1f} s",
                legal="a pong with the same payload while the engine works",
                advice="Keep reading all sockets while the engine works; give it a thread or a"
                " process of its own.",
            )

    return settle(find(), evidence, "no ping could be sent while texts were spoken")


# --- parts --------------------------------------------------------------------------------------


def _parts(evidence: Sequence[Account], name: str, advice: str) -> Judgement:
    def find() -> Iterator[Judgement]:
        for account in evidence:
            cases = [
                (dialogue, utterance)
                for dialogue in account.dialogues
                for utterance in dialogue.utterances.values()
                if utterance.sent.case is not None
            ]
            twin = next((u for _, u in cases if _of(u) == "sagemaker.twin"), None)
            if twin is not None and twin.complete is None:
                yield not_exercised("The same message whole, in a text frame, was not served.")
                continue
            for dialogue, utterance in cases:
                if _of(utterance) == name and utterance.sent.case is not None:
                    for judgement in judge_case(dialogue, utterance, utterance.sent.case):
                        yield (
                            judgement
                            if judgement.verdict is not Verdict.FAIL
                            else fail(
                                judgement.reason,
                                sent=judgement.sent,
                                received=judgement.received,
                                legal=judgement.legal,
                                advice=advice,
                            )
                        )
            for dialogue in account.dialogues:
                if dialogue.close_sent is not None and "no session_closed" in dialogue.facts:
                    yield fail(
                        "A `close` in two parts without a type had no effect.",
                        sent=quote.sent(dialogue.close_sent),
                        received=quote.ending(dialogue),
                        legal="`session_closed`",
                        advice=advice,
                    )

    return settle(find(), evidence, "no parts could be sent")


def _of(utterance: Utterance) -> str:
    return utterance.sent.case.check if utterance.sent.case is not None else ""


@check("sagemaker.untyped-part", "sagemaker-parts")
def untyped_part(evidence: Sequence[Account]) -> Judgement:
    """A part without a type, which comes as a binary frame, does what text would."""
    return _parts(
        evidence, "sagemaker.untyped_part", "Read binary frames as you read text, at any time."
    )


@check("sagemaker.partial-parts", "sagemaker-parts")
def partial_parts(evidence: Sequence[Account]) -> Judgement:
    """Parts form one message with the one that ends them."""
    return _parts(
        evidence,
        "sagemaker.partial_parts",
        "Join all frames of a message before you decode or parse it.",
    )


# --- closing ------------------------------------------------------------------------------------

_AT_LEAST_S: Final = 2.0
_SLACK_S: Final = 0.1


@check("sagemaker.client-closes", "sagemaker-parts", "endpoint-closes", general=True)
@on_sessions("no session was opened")
def client_closes(dialogue: Dialogue) -> Iterator[Judgement]:
    """The container ends nothing first, but 2 s after `session_closed`."""
    if not dialogue.is_open or dialogue.abused or "too big" in dialogue.facts:
        return
    theirs = dialogue.close_in.index if dialogue.close_in is not None else dialogue.eof_index
    if theirs is None or (dialogue.close_out is not None and dialogue.close_out.index < theirs):
        yield passed()
        return
    if dialogue.aborted or dialogue.given_up:
        return
    farewell = dialogue.session_closed
    ended = dialogue.entries[theirs].t
    if farewell is not None and dialogue.stood_still(farewell.t, ended):
        return
    waited = ended - farewell.t if farewell is not None else None
    if waited is not None and waited >= _AT_LEAST_S - _SLACK_S - dialogue.rtt:
        yield passed()
        return
    if farewell is not None and farewell.fields.get("reason") == "slow_reader":
        # The last words of a stalled reader may have waited for it.
        return
    how = (
        quote.closing(dialogue.close_in.code)
        if dialogue.close_in is not None
        else "the end of the connection without a close frame"
    )
    yield fail(
        f"The container closed first, {waited:.2f} s after `session_closed`."
        if waited is not None
        else "The container closed first, without `session_closed`.",
        sent=quote.sent(dialogue.sent[-1] if dialogue.sent else None),
        received=how,
        legal="no close frame before the client's, or for 2 s after `session_closed`",
        advice="Leave the closing to the caller, who sees yours as a `ModelStreamError`.",
    )


# --- HTTP ---------------------------------------------------------------------------------------


@check("sagemaker.headers", "sagemaker-invocation")
@on_exchanges("`POST /invocations` was not served")
def headers(exchange: Exchange) -> Iterator[Judgement]:
    """Rate and request id stand in headers of their own."""
    if not exchange.is_synthesis or exchange.status != 200:
        return
    rate = exchange.headers.get("utterwire-sample-rate", "")
    told = exchange.headers.get("utterwire-request-id", "")
    expected = percent(str(exchange.request.get("request_id")), safe="")
    if rate.isdecimal() and told.lower() == expected.lower():
        yield passed()
        return
    yield fail(
        "Rate and request id are not told by headers.",
        sent=quote.exchange_request(exchange),
        received=f"`Utterwire-Sample-Rate: {rate or '(missing)'}`,"
        f" `Utterwire-Request-Id: {told or '(missing)'}`",
        legal=f"the rate in Hz, and `Utterwire-Request-Id: {expected}`",
        advice="Send the headers of http.md with every answer that is audio.",
    )


# --- shutdown -----------------------------------------------------------------------------------


@check("sagemaker.sigterm", "sagemaker-sigterm")
def sigterm(evidence: Sequence[Account]) -> Judgement:
    """On SIGTERM the container drains, and exits before it would be killed."""
    advice = "Let SIGTERM reach the server (an entrypoint in exec form), drain, and exit in time."

    def find() -> Iterator[Judgement]:
        for account in evidence:
            notes = [e.text or "" for e in account.transcript.entries if e.kind == "note"]
            exits = [n.removeprefix("exited: ") for n in notes if n.startswith("exited: ")]
            if exits:
                yield judge(account, exits[0])

    def judge(account: Account, told: str) -> Judgement:
        sent = "SIGTERM, while one session spoke and another was quiet"
        if told == "no" or float(told.partition(" ")[0]) > _EXIT_S:
            return fail(
                "The container had not exited 30 s after SIGTERM.",
                sent=sent,
                received="a process that still ran" if told == "no" else f"its exit {told}",
                legal="the end of the process within 30 s; it is killed then",
                advice=advice,
            )
        for dialogue in account.dialogues:
            left = [
                u
                for u in dialogue.utterances.values()
                if u.sent.meaning.request_id == "speaking" and not u.ended
            ]
            if left or dialogue.session_closed is None:
                return fail(
                    "On SIGTERM the container did not drain.",
                    sent=sent,
                    received=quote.ending(dialogue),
                    legal="the terminal message of what was accepted, then `session_closed`",
                    advice=advice,
                )
        return passed(f"it exited {told}")

    return settle(find(), evidence, "no container could be stopped")
