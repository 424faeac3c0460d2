"""`utterwire-conformance client`: judge a client, show what was found, and save the report."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

from utterwire_conformance.check import CHECKS
from utterwire_conformance.command import printable
from utterwire_conformance.report import Report, results_of
from utterwire_conformance.requirements import PROFILES, RequirementsError
from utterwire_conformance.runner import Results
from utterwire_conformance.transcript import Transcript

from .contract import PROFILES_OF_CLIENTS, Client, ContractError
from .run import client_checks, run_client
from .script import SCRIPTS

__all__ = ["main"]

_PROGRAM: Final = "utterwire-conformance client"
_NOT_JUDGED: Final = 2
_MOST_PLAYERS: Final = 32


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(_NOT_JUDGED, f"{self.prog}: {message} (see {self.prog} -h)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROGRAM,
        description="Judge a client by the specification: scripted endpoints play good and bad"
        " sessions with it. It reads lines on stdin, each to be spoken as one utterance, writes"
        " audio to stdout, and events as JSON lines to stderr or to a file; the whole contract is"
        " in conformance/README.md.",
        epilog="In the command, {url} is filled in with the address to connect to, and, where they"
        " stand, {profile} with what the client is to use (core, interrupt, negotiate, http, sse),"
        " {deadline_s} with how long to wait for a silent endpoint, {events} with the file for"
        " events. Exit status: 0 it conforms, 1 it does not, 2 it could not be judged.",
        allow_abbrev=False,
    )
    parser.add_argument("--command", metavar="'CMD {url}'", help="how the client is started")
    parser.add_argument("--name", metavar="NAME", help="what to call it (default: the command's)")
    parser.add_argument(
        "--profile",
        metavar="PROFILE",
        action="append",
        default=[],
        help="what it can do: core (the default), interrupt, negotiate, http, sse; may be repeated",
    )
    parser.add_argument(
        "--deadline-s",
        metavar="SECONDS",
        type=float,
        help="the longest it waits for a silent endpoint, if the command has no {deadline_s}",
    )
    parser.add_argument(
        "--report",
        metavar="DIR",
        default="utterwire-client-report",
        help="where the report goes (default: utterwire-client-report)",
    )
    parser.add_argument(
        "--players", metavar="N", type=int, default=6, help="scripts played at a time (default: 6)"
    )
    parser.add_argument("-k", metavar="TEXT", help="only requirements with this in their name")
    parser.add_argument(
        "--strict", action="store_true", help="fail on a SHOULD that is not met, too"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each script")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the last line")
    parser.add_argument("--list", action="store_true", help="list the scripts, and end")
    return parser


def main(arguments: list[str]) -> int:
    """Run the command; the exit status."""
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    if options.list:
        print("\n".join(_listed()))
        return 0
    try:
        client = _client(options)
        checks = _checks(options, client)
        return _run(options, client, checks)
    except (ContractError, RequirementsError) as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return _refuse("interrupted; nothing was judged")


def _refuse(why: str) -> int:
    print(f"{_PROGRAM}: {printable(why)}", file=sys.stderr)
    return _NOT_JUDGED


def _listed() -> list[str]:
    ordered = sorted(SCRIPTS.values(), key=lambda s: (PROFILES.index(s.profile), s.name))
    return [f"{made.name:<30}{made.profile:<11}{made.explanation}" for made in ordered]


def _client(options: argparse.Namespace) -> Client:
    if not options.command:
        raise ContractError("which client? Give --command 'CMD {url}'")
    if not 1 <= options.players <= _MOST_PLAYERS:
        raise ContractError(f"--players: 1 to {_MOST_PLAYERS}")
    made = Client.of(
        options.name or "client",
        options.command,
        profiles=frozenset(options.profile or ["core"]),
        deadline_s=options.deadline_s,
    )
    if options.name:
        return made
    return Client(Path(made.command[0]).name, made.command, made.profiles, made.deadline_s)


def _checks(options: argparse.Namespace, client: Client) -> tuple[str, ...]:
    found = client_checks(client.profiles)
    if options.k:
        found = tuple(name for name in found if options.k in CHECKS[name].requirement)
        if not found:
            raise ContractError(f"-k {options.k}: no requirement of a client is called so")
    return found


def _run(options: argparse.Namespace, client: Client, checks: tuple[str, ...]) -> int:
    began, started = time.monotonic(), datetime.now(UTC)

    def show(transcript: Transcript) -> None:
        if options.verbose:
            what = transcript.broken or f"{len(transcript.sessions())} connections"
            print(f"{transcript.scenario}: {what}", flush=True)

    async def run() -> Results:
        task = asyncio.current_task()
        assert task is not None
        # So that the clients it has started are ended with it.
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await run_client(client, checks, players=options.players, progress=show)

    try:
        results = asyncio.run(run())
    except asyncio.CancelledError:
        return _refuse("terminated; nothing was judged")
    profiles = tuple(p for p in PROFILES_OF_CLIENTS if p in client.profiles)
    selected = {CHECKS[name].requirement for name in checks} if options.k else None
    report = Report(
        client,
        profiles,
        results_of(results, client, profiles, selected=selected, role="client"),
        results,
        strict=options.strict,
        started=started,
        duration_s=time.monotonic() - began,
        role="client",
        options={"selected": sorted(selected)} if selected is not None else {},
    )
    folder = Path(options.report)
    saved: Path | None = folder
    try:
        report.save(folder)
    except OSError as error:
        print(
            f"{_PROGRAM}: the report cannot be written to {folder}: {error.strerror}",
            file=sys.stderr,
        )
        saved = None
    lines = [report.verdict_line()] if options.quiet else report.lines(saved)
    print("\n".join(lines))
    return report.exit_code
