"""A run of the scripts on a client, and the judgements on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from utterwire_conformance.check import CHECKS, Account, Check
from utterwire_conformance.judging import chosen_checks, judge_checks
from utterwire_conformance.requirements import requirement
from utterwire_conformance.runner import Results
from utterwire_conformance.transcript import Transcript

from . import judges, scripts
from .account import ClientAccount
from .contract import Client, ContractError
from .script import SCRIPTS, Script, play
from .subject import Launcher, launch

__all__ = ["PLAIN", "client_checks", "run_client"]

PLAIN: Final = {"http": "client-http-plain", "sse": "client-sse-plain"}
"""What a client must do before anything else of a profile is worth trying."""

_SESSION_PLAIN: Final = "client-plain"
_TOO_LATE_S: Final = 2.0
# Importing the packages registers what they hold.
_REGISTERED: Final = (judges, scripts)

Progress = Callable[[Transcript], None]


def client_checks(profiles: Iterable[str]) -> tuple[str, ...]:
    """The ids of the checks of clients that claim these profiles."""
    claimed = set(profiles)
    return tuple(
        made.id
        for made in chosen_checks(role="client")
        if requirement(made.requirement).profile in claimed
    )


async def run_client(
    client: Client,
    checks: Iterable[str] | None = None,
    *,
    launcher: Launcher = launch,
    players: int = 6,
    limit_s: float = 60.0,
    progress: Progress | None = None,
) -> Results:
    """Play what the checks need on a client, `players` scripts at a time, and judge it.

    `checks` are ids; None means all of the profiles that the client claims. `limit_s` bounds each
    script, in seconds. A client that does not speak a plain utterance is not judged:
    `Results.unreachable` then says why.

    Raises:
        KeyError: there is no such check.
    """
    names = client_checks(client.profiles) if checks is None else tuple(checks)
    chosen = [CHECKS[name] for name in names]
    results = Results()
    needed = _needed(chosen, client)
    places = asyncio.Semaphore(players)

    async def one(made: Script) -> None:
        async with places:
            transcript = await play(made, client, launcher, limit_s=limit_s)
            account = ClientAccount.of(Account.of(transcript))
            if account.lag_s > _TOO_LATE_S:
                # A machine that stood still for so long makes good clients look bad: once more.
                transcript = await play(made, client, launcher, limit_s=limit_s)
                account = ClientAccount.of(Account.of(transcript))
        breach = account.breach
        if breach is not None and transcript.broken is None:
            transcript.broken = f"the client does not keep the contract: {breach}"
        results.transcripts[made.name] = transcript
        results.sessions += len(transcript.sessions())
        if progress is not None:
            progress(transcript)

    async def all_of(several: Iterable[Script]) -> None:
        async with asyncio.TaskGroup() as group:
            for made in several:
                group.create_task(one(made))

    try:
        await all_of(made for made in needed if made.name in _PLAINS)
        reasons = {name: why for name in _PLAINS if (why := _out_of_order(name, results))}
        if len(reasons) == len(results.transcripts):
            results.unreachable = next(iter(reasons.values()), None)
        if results.unreachable is None:
            hopeless = {SCRIPTS[name].profile for name in reasons}
            hopeless |= {"interrupt", "negotiate"} if "core" in hopeless else set()
            await all_of(
                made for made in needed if made.name not in _PLAINS and made.profile not in hopeless
            )
            for profile in hopeless:
                _spoil(results, profile, reasons)
    except* ContractError as errors:
        results.unreachable = str(errors.exceptions[0])
    results.judgements = judge_checks(
        chosen, results.transcripts.values(), unreachable=results.unreachable
    )
    return results


_PLAINS: Final = (_SESSION_PLAIN, *PLAIN.values())


def _needed(chosen: Iterable[Check], client: Client) -> list[Script]:
    """The scripts to play, those that take longest first."""
    names = {name for made in chosen for name in made.scenarios}
    profiles = {SCRIPTS[name].profile for name in names} & client.profiles
    if profiles - set(PLAIN):
        names.add(_SESSION_PLAIN)
    names |= {PLAIN[profile] for profile in profiles if profile in PLAIN}
    # General judges look at whatever was played: what HTTP adds to `client.backs-off` and others.
    names |= {s.name for s in SCRIPTS.values() if s.profile in profiles and s.profile in PLAIN}
    found = [SCRIPTS[name] for name in names if SCRIPTS[name].profile in client.profiles | {"core"}]
    return sorted(found, key=lambda made: (-made.patience_s, not made.silent, made.name))


def _out_of_order(name: str, results: Results) -> str | None:
    """Why a client that was asked for two plain utterances cannot be judged; None if it can."""
    transcript = results.transcripts.get(name)
    if transcript is None:
        return None
    if transcript.broken is not None:
        return transcript.broken
    account = ClientAccount.of(Account.of(transcript))
    faulty = next((line for line in account.lines if line.fault() is not None), None)
    if faulty is None and account.killed is None:
        return None
    strangers = account.facts("no HTTP request")
    if not account.dialogues and not account.exchanges:
        what = "the client never connected"
        if strangers:
            what = f"the client connected and sent no HTTP request ({strangers[0]})"
    elif faulty is not None:
        what = f"of two plain utterances, number {faulty.number} {faulty.fault()}"
    else:
        what = "after two plain utterances the client did not end"
    return f"{what}; {account.way_out}"


def _spoil(results: Results, profile: str, reasons: dict[str, str]) -> None:
    """Let nothing of a profile count that rests on a client that cannot even speak plainly."""
    for name, why in reasons.items():
        if SCRIPTS[name].profile == profile and results.transcripts[name].broken is None:
            results.transcripts[name].broken = why
