"""``utterwire lines``: each line of stdin is spoken, for programs."""

import argparse
import io
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TextIO

from utterwire_client.cli.exit_code import ExitCode, UsageError, exit_code_of
from utterwire_client.cli.run import run
from utterwire_client.cli.where import Where, add_where, import_http
from utterwire_client.deadlines import Deadlines
from utterwire_client.errors import RequestInvalid, UtterwireError
from utterwire_client.lines import PROFILES, EventWriter, LineReader, LineSpeaker, Profile
from utterwire_client.progress import Progress
from utterwire_client.side_thread import SideThread

__all__ = ["add_lines", "lines"]


def add_lines(lines: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_where(lines)
    lines.add_argument(
        "--profile",
        choices=PROFILES,
        default="core",
        help="what to use: a session (core, interrupt), a session that asks first what the "
        "endpoint offers (negotiate), HTTP, or server-sent events",
    )
    lines.add_argument(
        "--voice", help="default: that of the endpoint file, else the endpoint's own"
    )
    lines.add_argument(
        "--retries",
        type=int,
        default=0,
        metavar="N",
        help="how often to try again what may work later (default: 0)",
    )
    lines.add_argument(
        "--events", type=Path, metavar="PATH", help="where events go (default: stderr)"
    )
    lines.set_defaults(quiet=False)


def lines(arguments: argparse.Namespace, progress: Progress) -> int:
    """Run the command; returns its exit status."""
    try:
        if arguments.retries < 0:
            raise UsageError("--retries wants a number of 0 or more")
        if sys.stdin is None or sys.stdout is None:
            raise UsageError("stdin and stdout are needed: text comes by one, audio by the other")
        where = Where.of(arguments)
        # Nobody knows better when it has waited enough for a goodbye.
        close_s = arguments.timeout or Deadlines().close_s
        where = replace(where, deadlines=replace(where.deadlines, close_s=close_s))
        stream = sys.stderr if arguments.events is None else _events_file(arguments.events)
    except (UsageError, RequestInvalid) as exc:
        progress.note(f"utterwire: {exc}")
        return ExitCode.USAGE
    try:
        return run(
            _speak_lines(
                progress,
                where,
                profile=arguments.profile,
                retries=arguments.retries,
                voice=arguments.voice or where.endpoint.voice,
                events=EventWriter(stream),
            )
        )
    finally:
        if stream is not None and stream is not sys.stderr:
            stream.close()


def _events_file(path: Path) -> TextIO:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as exc:
        raise UsageError(f"cannot write {path}: {exc.strerror}") from None


async def _speak_lines(
    progress: Progress,
    where: Where,
    *,
    profile: Profile,
    retries: int,
    voice: str | None,
    events: EventWriter,
) -> ExitCode:
    thread = SideThread()
    stdout = io.FileIO(sys.stdout.fileno(), "wb", closefd=False)

    def put(data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[stdout.write(rest) or 0 :]

    async def write(data: bytes) -> None:
        await thread.run(partial(put, data))

    speaker = LineSpeaker(
        where.endpoint.url,
        profile=profile,
        headers=where.headers,
        tls=where.tls,
        deadlines=where.deadlines,
        retries=retries,
        voice=voice,
        write=write,
        events=events,
    )
    try:
        if profile in ("http", "sse"):
            import_http()
        await speaker.speak(LineReader(sys.stdin.buffer))
    except BrokenPipeError:
        return ExitCode.BROKEN_PIPE
    except UtterwireError as exc:
        return _failed(exc, progress)
    except OSError as exc:
        progress.note(f"utterwire: cannot write to stdout: {exc.strerror or exc}")
        return ExitCode.USAGE
    finally:
        thread.stop()
    return _failed(speaker.failures[0], progress) if speaker.failures else ExitCode.DONE


def _failed(error: UtterwireError, progress: Progress) -> ExitCode:
    progress.note(f"utterwire: {error}")
    return exit_code_of(error)
