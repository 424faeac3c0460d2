"""What the judges of clients have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from utterwire_conformance.check import Account, check, settle
from utterwire_conformance.client_half.account import ClientAccount, Line
from utterwire_conformance.dialogue import Dialogue
from utterwire_conformance.judges import quote
from utterwire_conformance.requirements import requirement
from utterwire_conformance.verdict import Judgement, fail, passed

__all__ = ["Find", "asked", "came", "own_session", "rule", "served", "told", "whole"]

Find = Callable[[ClientAccount], Iterator[Judgement]]


_PLAIN: Final = {"http": "client-http-plain", "sse": "client-sse-plain"}


def rule(
    name: str, *scripts: str, otherwise: str, general: bool = False, to_the_end: bool = True
) -> Callable[[Find], Find]:
    """Register a judge for a requirement, made from a function that yields what it finds.

    The function is called for each of `scripts`, and for every other one if it is `general`.
    Whatever is judged rests on the profile's plain script: a client that cannot even play its part
    in that was not seen to keep any rule. `otherwise` says what would have been needed;
    `to_the_end` that the judge goes by what the client told, which must have come to its end.
    """

    def register(find: Find) -> Find:
        def judge(evidence: Sequence[Account]) -> Judgement:
            clients = (ClientAccount.of(account) for account in evidence)
            found = (
                replace(judgement, scenarios=(client.name,))
                for client in clients
                if (general or client.name in scripts) and (client.ended or not to_the_end)
                for judgement in find(client)
            )
            return settle(found, evidence, otherwise)

        plain = _PLAIN.get(requirement(name).profile, "client-plain")
        check(
            name,
            *dict.fromkeys((plain, *scripts)),
            general=general,
            # What is sent here is the suite's own: where a `seq` is missing, that is meant.
            correlates=False,
        )(judge)
        return find

    return register


def asked(account: ClientAccount) -> list[Line]:
    """The lines that the client asked the endpoint to speak."""
    return [line for line in account.lines if line.attempts]


def came(account: ClientAccount, line: Line) -> str:
    """What became of a line by the client's own account, for a report."""
    if line.ending is None:
        return f"no event tells of the end of utterance {line.number}; {account.way_out}"
    code = f", code {line.ending.code}" if line.ending.code else ""
    heard = len(line.heard or b"")
    return f"`{line.ending.kind}` for utterance {line.number}{code}, {heard} bytes of audio"


def served(line: Line) -> str:
    """What the endpoint did about the last request for a line, for a report."""
    last = line.last
    if last is None:
        return "nothing: it was not asked for"
    if last.utterance is not None:
        chunks = last.utterance.chunks
        shown = [quote.chunk(chunk) for chunk in chunks if not chunk.is_audio]
        audio = sum(len(chunk.data) for chunk in chunks if chunk.is_audio)
        return "; ".join([*shown[:3], f"{audio} bytes of audio"])
    assert last.exchange is not None
    return quote.answer(last.exchange)


def whole(account: ClientAccount, line: Line, *, what: str, advice: str) -> Judgement:
    """The judgement on a line that should come out as the endpoint sent it."""
    fault = line.fault()
    if fault is None:
        return passed()
    return fail(
        f"{what}: utterance {line.number} {fault}.",
        sent=served(line),
        received=came(account, line),
        legal="`complete`, and on stdout the audio that was sent, byte for byte",
        advice=advice,
    )


def told(account: ClientAccount, line: Line, *, what: str, advice: str) -> Judgement:
    """The judgement on a line that the endpoint cut short: spoken whole in the end, or told of."""
    if line.fault() is None:
        return passed("It was asked for again, and spoken whole.")
    said_so = line.ending is not None and line.ending.kind != "complete"
    if said_so or (line.ending is None and account.ended and account.status):
        return passed()
    return fail(
        f"{what}, and the client does not say so.",
        sent=served(line),
        received=f"{came(account, line)}; {account.way_out}",
        legal=f"`failed` for utterance {line.number}, or an exit status other than 0",
        advice=advice,
    )


def own_session(account: ClientAccount) -> list[Dialogue]:
    """The sessions that were opened."""
    return [dialogue for dialogue in account.dialogues if dialogue.is_open]
