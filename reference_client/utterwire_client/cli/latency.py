"""``utterwire latency``: the waterfall of one conversation."""

import argparse
import asyncio
import re
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from utterwire_client.address import display
from utterwire_client.chunker import IncrementalSentenceChunker
from utterwire_client.cli.exit_code import ExitCode, UsageError, exit_code_of
from utterwire_client.cli.listen import add_listen, agreement, listen
from utterwire_client.cli.output import write_results
from utterwire_client.cli.release import release
from utterwire_client.cli.run import run
from utterwire_client.cli.where import TRANSPORTS, Where, add_where
from utterwire_client.errors import ExtraMissing, PeerViolation, RequestInvalid, UtterwireError
from utterwire_client.progress import Progress, printable
from utterwire_client.side_thread import SideThread
from utterwire_client.text_reader import TextReader
from utterwire_client.waterfall import Waterfall
from utterwire_client.waterfall_page import waterfall_page

__all__ = ["add_latency", "latency"]

_TEXT = (
    "Sure, I can help with that. Your train to Edinburgh leaves at 9:42 from platform 4, and it is "
    "on time. You have about twelve minutes to change at York, which is enough for a coffee. Would "
    "you like me to send the tickets to your phone?"
)

# About a token: a language model gives its text in such pieces.
_PIECE = re.compile(r"\s*\S{1,5}|\s+")


def add_latency(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="what to speak (default: four sentences of an assistant); - takes stdin as it comes",
    )
    command.add_argument("--file", type=Path, metavar="PATH", help="speak a file (UTF-8)")
    add_where(command)
    command.add_argument("--transport", choices=TRANSPORTS, help="default: websocket")
    command.add_argument(
        "--rate",
        type=float,
        default=30.0,
        metavar="N",
        help="give the text as a language model would, in N pieces a second (default: 30); inf "
        "gives all at once",
    )
    command.add_argument(
        "--depth",
        type=int,
        metavar="N",
        help="sentences in flight at most; 1 waits for each (default: 3)",
    )
    command.add_argument(
        "--voice", help="default: that of the endpoint file, or the endpoint's own"
    )
    command.add_argument(
        "--json", metavar="PATH", help="write the figures as JSON (schema `latency`); - is stdout"
    )
    command.add_argument(
        "--html", metavar="PATH", help="write them as one page, with a picture; - is stdout"
    )
    command.add_argument("-q", "--quiet", action="store_true", help="show no table")
    add_listen(command)


def latency(arguments: argparse.Namespace, progress: Progress) -> int:
    """Run the command; returns its exit status."""
    try:
        if arguments.text is not None and arguments.file is not None:
            raise UsageError("give a text to speak, or --file PATH, not both")
        if not arguments.rate > 0:
            raise UsageError("--rate wants a number greater than 0")
        if arguments.json == arguments.html == "-":
            raise UsageError("only one of --json and --html can go to stdout")
        for option in ("json", "html"):
            if getattr(arguments, option) == "-" and sys.stdout is None:
                raise UsageError(f"stdout is closed: give --{option} FILE")
        if arguments.compare is not None:
            return agreement(arguments.compare, quiet=arguments.quiet)
        where = Where.of(arguments)
        if arguments.browser:
            return listen(arguments, where, _whole(arguments), progress)
        for name in ("repeat", "answers", "way", "chromium", "trace"):
            if getattr(arguments, name) is not None:
                raise UsageError(f"--{name} belongs to --browser")
        text = None if arguments.text == "-" else _text(arguments)
    except (UsageError, RequestInvalid, ExtraMissing) as exc:
        progress.note(f"utterwire: {exc}")
        return ExitCode.USAGE
    except BrokenPipeError:
        return ExitCode.BROKEN_PIPE
    arguments.transport = arguments.transport or "websocket"
    arguments.depth = 3 if arguments.depth is None else arguments.depth
    return run(_latency(arguments, where, text, progress))


def _whole(arguments: argparse.Namespace) -> str | None:
    """The text that is given; None if there is none."""
    if arguments.text == "-":
        raise UsageError("--browser repeats the text: give it, or --file PATH, and not -")
    given = arguments.text is not None or arguments.file is not None
    return _text(arguments) if given else None


def _text(arguments: argparse.Namespace) -> str:
    if arguments.file is None:
        return _TEXT if arguments.text is None else str(arguments.text)
    try:
        return str(arguments.file.read_text(encoding="utf-8-sig"))
    except OSError as exc:
        raise UsageError(f"cannot read {arguments.file}: {exc.strerror}") from None
    except UnicodeDecodeError as exc:
        raise UsageError(f"the text in {arguments.file} is not UTF-8 (byte {exc.start})") from None


async def _paced(text: str, rate: float) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for number, piece in enumerate(_PIECE.findall(text)):
        # From the beginning on, so that being late now and then does not add up.
        await asyncio.sleep(max(begun + number / rate - loop.time(), 0.0))
        yield piece


def _stdin() -> TextReader:
    if sys.stdin is None:
        raise UsageError("stdin is closed: there is no text to read")
    return TextReader(getattr(sys.stdin.buffer, "raw", sys.stdin.buffer))


async def _latency(
    arguments: argparse.Namespace, where: Where, text: str | None, progress: Progress
) -> ExitCode:
    waterfall = Waterfall(IncrementalSentenceChunker())
    voice = arguments.voice or where.endpoint.voice
    try:
        source = _stdin() if text is None else _paced(text, arguments.rate)
        async with (
            where.speaker(arguments.transport, _Ignored()) as speaker,
            speaker.speak(
                source,
                voice=voice,
                marks=False,
                depth=arguments.depth,
                chunker=waterfall.chunker,
                player=waterfall.player,
            ) as speech,
        ):
            async for event in speech:
                waterfall.take(event)
        document = waterfall.document(
            made_by=f"utterwire {release()}",
            endpoint=_endpoint(where),
            options={
                "transport": arguments.transport,
                "depth": arguments.depth,
                "pieces_per_s": _pace(text, arguments.rate),
                "voice": voice,
            },
        )
        if not document["sentences"]:
            raise ValueError("there is nothing to speak in the text")
        thread = SideThread()
        try:
            await thread.run(
                lambda: write_results(arguments, document, page=waterfall_page, table=table)
            )
        finally:
            thread.stop()
    except asyncio.CancelledError:
        progress.note("utterwire: interrupted")
        raise
    except BrokenPipeError:
        return ExitCode.BROKEN_PIPE
    except UtterwireError as exc:
        progress.note(f"utterwire: {exc}")
        return exit_code_of(exc)
    except (UsageError, ValueError) as exc:
        progress.note(f"utterwire: {exc}")
        return ExitCode.USAGE
    return ExitCode.DONE


class _Ignored:
    def __call__(self, violation: PeerViolation) -> None:
        """What the endpoint does wrong is for the suite to tell."""


def _pace(text: str | None, rate: float) -> float | None:
    return None if text is None or rate == float("inf") else rate


def _endpoint(where: Where) -> dict[str, str]:
    endpoint = where.endpoint
    shown = display(endpoint.url)
    return {"name": shown if endpoint.name == endpoint.url else endpoint.name, "url": shown}


def table(document: Mapping[str, Any]) -> str:
    """The document as lines for a terminal; times in milliseconds."""
    summary = document["summary"]
    titles = ("#", "ready", "sent", "first byte", "first sound", "heard", "gap", "sentence")
    rows = [
        (
            str(row["index"] + 1),
            *(
                _ms(row[key])
                for key in ("text_ready_s", "sent_s", "first_byte_s", "first_sound_s", "heard_s")
            ),
            _ms(row["gap_s"]) if row["gap_s"] else "-",
            printable(row["text"] if len(row["text"]) <= 40 else row["text"][:37] + "..."),
        )
        for row in document["sentences"]
    ]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    lines = [
        "  ".join(
            [cell.rjust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
            + [row[-1]]
        )
        for row in (titles, *rows)
    ]
    factor = summary["real_time_factor"]
    late = f", {_ms(summary['stall_s'])} ms of stalls" if summary["stall_s"] else ""
    gaps = summary["gaps"]
    gap = (
        f"{gaps} {'gap' if gaps == 1 else 'gaps'}, {_ms(summary['gap_s'])} ms in all"
        if gaps
        else "no gaps"
    )
    first = (
        f"first byte {_ms(summary['first_byte_s'])} ms and first sound "
        f"{_ms(summary['first_sound_s'])} ms after the request; heard "
        f"{_ms(summary['heard_s'])} ms after the text began"
    )
    return "\n".join(
        [
            "milliseconds since the first of the text",
            *lines,
            "",
            first,
            f"{gap}{late}; {summary['audio_s']:.2f} s of audio"
            + ("" if factor is None else f", real-time factor {factor:.3f}"),
            "",
        ]
    )


def _ms(seconds: float | None) -> str:
    return "?" if seconds is None else f"{1000 * seconds:.1f}"
