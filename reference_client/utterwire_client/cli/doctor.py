"""``utterwire doctor``: an endpoint looked over, on one screen."""

import argparse
import asyncio
import sys

from utterwire_client.address import display
from utterwire_client.cli.exit_code import ExitCode, UsageError, exit_code_of
from utterwire_client.cli.run import run
from utterwire_client.cli.where import Where, add_where
from utterwire_client.errors import RequestInvalid, UtterwireError
from utterwire_client.examination import Examination, Finding
from utterwire_client.progress import Progress, printable
from utterwire_client.side_thread import SideThread

__all__ = ["add_doctor", "doctor"]

_MARKS = {"ok": "ok ", "note": "!  ", "bad": "BAD", "none": "-  "}


def add_doctor(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_where(command)
    command.set_defaults(quiet=False)


def doctor(arguments: argparse.Namespace, progress: Progress) -> int:
    """Run the command; returns its exit status."""
    try:
        where = Where.of(arguments)
    except (UsageError, RequestInvalid) as exc:
        progress.note(f"utterwire: {exc}")
        return ExitCode.USAGE
    return run(_doctor(where, progress))


async def _doctor(where: Where, progress: Progress) -> ExitCode:
    thread = SideThread()

    async def say(line: str) -> None:
        await thread.run(lambda: print(printable(line), flush=True))

    shown = display(where.endpoint.url)
    name = where.endpoint.name
    found: list[Finding] = []
    try:
        await say(shown if name == where.endpoint.url else f"{name}: {shown}")
        examination = Examination(
            where.endpoint, headers=where.headers, ssl=where.tls, deadlines=where.deadlines
        )
        async for finding in examination.run():
            found.append(finding)
            await say(f"  {_MARKS[finding.grade]}  {finding.subject:<16}  {finding.told}")
        await say(_verdict(found))
        for finding in found:
            if finding.advice is not None:
                await say(f"  {finding.subject}: {finding.advice}")
    except asyncio.CancelledError:
        progress.note("utterwire: interrupted")
        raise
    except BrokenPipeError:
        # The interpreter would try again as it exits.
        sys.stdout = None
        return ExitCode.BROKEN_PIPE
    except UtterwireError as exc:
        progress.note(f"utterwire: {exc}")
        return exit_code_of(exc)
    except OSError as exc:
        progress.note(f"utterwire: cannot write to stdout: {exc.strerror or exc}")
        return ExitCode.USAGE
    finally:
        thread.stop()
    return ExitCode.FAILED if any(it.grade == "bad" for it in found) else ExitCode.DONE


def _verdict(found: list[Finding]) -> str:
    bad = sum(finding.grade == "bad" for finding in found)
    notes = sum(finding.grade == "note" for finding in found)
    if bad:
        return f"{bad} {'thing is' if bad == 1 else 'things are'} broken"
    if notes:
        return f"it works; {notes} {'thing' if notes == 1 else 'things'} could be better"
    return "it works well"
