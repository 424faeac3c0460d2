"""``utterwire latency --browser``: what is heard in a browser; ``--compare``: do runs agree."""

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from utterwire_client.address import display
from utterwire_client.cli.exit_code import ExitCode, UsageError, exit_code_of
from utterwire_client.cli.output import show, write_results
from utterwire_client.cli.release import release
from utterwire_client.cli.run import run
from utterwire_client.cli.where import Where
from utterwire_client.endpoints import Endpoint
from utterwire_client.errors import RequestInvalid, UtterwireError
from utterwire_client.listening.answer import STANDARD, Answer, read_answers
from utterwire_client.listening.chromium import Chromium, find_chromium
from utterwire_client.listening.comparison import AGREED, Compared, compare, read_measurement
from utterwire_client.listening.figures import Spread
from utterwire_client.listening.heard_page import heard_page
from utterwire_client.listening.recording import run_of
from utterwire_client.listening.series import WAYS, Series, Turn
from utterwire_client.listening.site import Site, import_extra
from utterwire_client.progress import Progress, printable

__all__ = ["add_listen", "agreement", "heard_table", "listen"]

_REPEAT = 20
_SILENCE_S = 30.0

# What the page's player holds back at first.
_LEAD_S = 0.02

# Before anything is measured, each way is tried with it.
_TRIAL = Answer("trial", ("Hello.",))


def add_listen(command: argparse.ArgumentParser) -> None:
    """Add the options of listening in a browser to a command."""
    browser = command.add_argument_group("heard in a browser")
    browser.add_argument(
        "--browser",
        action="store_true",
        help="play in headless Chromium, record every sample, and repeat: answers that are short, "
        "long, with pauses and interrupted, or the text that is given (extra `browser`)",
    )
    browser.add_argument(
        "--repeat",
        type=int,
        metavar="N",
        help=f"how often each answer is listened to in each way (default: {_REPEAT})",
    )
    browser.add_argument("--answers", type=Path, metavar="PATH", help="answers of your own (TOML)")
    browser.add_argument(
        "--way",
        action="append",
        choices=tuple(WAYS),
        help="ask so only; may be repeated (default: all four). bidi asks sentence by sentence as "
        "the text comes, batch once all of it is there",
    )
    browser.add_argument(
        "--chromium",
        type=Path,
        metavar="PATH",
        help="the browser (default: $UTTERWIRE_CHROMIUM, else chromium or google-chrome)",
    )
    browser.add_argument(
        "--trace",
        type=Path,
        metavar="PATH",
        help="keep what the browser does, for ui.perfetto.dev; it gets large: repeat little",
    )
    browser.add_argument(
        "--compare",
        nargs="+",
        type=Path,
        metavar="JSON",
        help="measure nothing: tell whether the medians of such measurements lie within "
        f"{AGREED:.0%}% of each other, and where not, how far apart",  # "%%": argparse formats it
    )


def listen(
    arguments: argparse.Namespace, where: Where, text: str | None, progress: Progress
) -> ExitCode:
    """Run ``--browser``; ``text`` is None for the usual answers. Returns the exit status; raises
    ``UsageError``, :class:`UtterwireError`."""
    if arguments.transport is not None or arguments.depth is not None:
        raise UsageError("--browser takes --way, and neither --transport nor --depth")
    if arguments.repeat is not None and arguments.repeat < 1:
        raise UsageError("--repeat wants a number of 1 or more")
    if arguments.answers is not None and text is not None:
        raise UsageError("give a text to speak, or --answers PATH, not both")
    if text is not None and not any(map(str.isalnum, text)):
        raise UsageError("there is nothing to speak in the text")
    if arguments.answers is not None:
        answers = read_answers(arguments.answers)
    else:
        answers = STANDARD if text is None else (Answer("text", (text,)),)
    # What is missing is told before anything is begun.
    import_extra("playwright")
    import_extra("uvicorn")
    import_extra("httpx")
    program = find_chromium(arguments.chromium)
    ways = [WAYS[name] for name in dict.fromkeys(arguments.way or WAYS)]
    series = Series(answers, ways, arguments.repeat or _REPEAT)
    return run(_listen(arguments, where, program, series, progress))


async def _listen(
    arguments: argparse.Namespace,
    where: Where,
    program: Path,
    series: Series,
    progress: Progress,
) -> ExitCode:
    started, began_at = datetime.now(UTC), time.monotonic()
    voice = arguments.voice or where.endpoint.voice
    rate = None if arguments.rate == float("inf") else arguments.rate
    endpoint = _endpoint(arguments, where)
    browser: Mapping[str, Any] = {}

    def document() -> dict[str, Any]:
        shown = display(endpoint.url)
        return series.document(
            made_by=f"utterwire {release()}",
            started=started,
            duration_s=time.monotonic() - began_at,
            endpoint={"name": shown if endpoint.name == endpoint.url else endpoint.name}
            | {"url": shown},
            options={"pieces_per_s": rate, "voice": voice, "lead_s": _LEAD_S},
            browser=browser,
        )

    try:
        # Whether anybody is there, in words that are better than a browser's.
        async with where.connect():
            pass
        site = Site(endpoint)
        async with (
            site.served() as address,
            Chromium.open(program, address, trace=arguments.trace) as chromium,
        ):
            browser = chromium.described
            silence_s = endpoint.first_byte_s or _SILENCE_S
            ask = partial(chromium.listen, rate=rate, voice=voice, silence_s=silence_s)
            for way in series.ways:
                progress.step(f"trying {way}")
                told = await ask(Turn(0, 0, _TRIAL, way))
                if told["failure"]:
                    series.leave_out(way, told["failure"])
                    progress.note(f"utterwire: {way} is left out: {told['failure']}")
            begun_at = time.monotonic()
            for turn in series.turns():
                progress.step(_stand(turn, time.monotonic() - begun_at))
                told = await ask(turn)
                if told["failure"]:
                    series.failed(turn, told["failure"])
                else:
                    series.heard(turn, await asyncio.to_thread(run_of, told))
        if not series.count:
            reasons = [*series.reasons, *series.left_out.values()]
            progress.note(f"utterwire: nothing was heard: {reasons[0]}")
            return ExitCode.FAILED
        await asyncio.to_thread(_write, arguments, document())
    except asyncio.CancelledError:
        if series.count:
            with suppress(UsageError, BrokenPipeError):
                _write(arguments, document())
            progress.note(f"utterwire: interrupted; {series.count} runs are in what was written")
        else:
            progress.note("utterwire: interrupted")
        raise
    except BrokenPipeError:
        return ExitCode.BROKEN_PIPE
    except UtterwireError as exc:
        progress.note(f"utterwire: {exc}")
        return exit_code_of(exc)
    except UsageError as exc:
        progress.note(f"utterwire: {exc}")
        return ExitCode.USAGE
    if series.failures:
        runs = "run" if series.failures == 1 else "runs"
        progress.note(f"utterwire: {series.failures} {runs} failed: {series.reasons[0]}")
        return ExitCode.FAILED
    return ExitCode.DONE


def _endpoint(arguments: argparse.Namespace, where: Where) -> Endpoint:
    deadlines = where.deadlines
    return replace(
        where.endpoint,
        headers=dict(where.headers),
        ca_file=arguments.ca_file or where.endpoint.ca_file,
        connect_s=deadlines.connect_s,
        first_byte_s=deadlines.first_chunk_s,
        stall_s=deadlines.stall_s,
    )


def _stand(turn: Turn, elapsed_s: float) -> str:
    done = turn.number - 1
    left = ""
    if done:
        minutes = elapsed_s / done * (turn.of - done) / 60
        left = f", about {minutes:.0f} min left" if minutes >= 1 else ", less than a minute left"
    return f"{turn.number} of {turn.of}: {turn.answer.name}, {turn.way}{left}"


def _write(arguments: argparse.Namespace, document: Mapping[str, Any]) -> None:
    write_results(arguments, document, page=heard_page, table=heard_table)


_COLUMNS = (
    ("first byte", "first_byte_s"),
    ("first sound", "first_sound_s"),
    ("heard", "heard_s"),
    ("byte to heard", "byte_to_heard_s"),
    ("in gaps", "gap_s"),
    ("underruns", "underruns"),
    ("to silence", "silence_s"),
)


def heard_table(document: Mapping[str, Any]) -> str:
    """A document as lines for a terminal: medians and quartiles in milliseconds."""
    rows = [("answer", "way", *(title for title, _ in _COLUMNS), "runs")]
    for group in document["heard"]:
        way = f"{group['way']['ask']}-{group['way']['transport']}"
        cells = [_cell(group["figures"][key], key) for _, key in _COLUMNS]
        rows.append((printable(group["answer"]), way, *cells, str(group["count"])))
    known = [it for it in document["heard"] if it["exact"] is not None]
    exact = sum(it["exact"] for it in known)
    of = sum(it["count"] for it in known)
    lines = [
        "milliseconds: median (quartiles); heard: since the first of the text",
        *_aligned(rows, left=2),
        "",
        f"rendered as it came, sample for sample: {exact} of {of} runs",
    ]
    lines += [
        f"left out: {it['way']['ask']}-{it['way']['transport']}: {printable(it['reason'])}"
        for it in document["left_out"]
    ]
    return "\n".join([*lines, ""])


def _cell(spread: Mapping[str, float] | None, key: str) -> str:
    if spread is None:
        return "-"
    if key == "underruns":
        return f"{spread['median']:g} (at most {spread['most']:g})" if spread["most"] else "0"
    if not spread["most"]:
        return "0"
    return f"{_ms(spread['median'])} ({_ms(spread['q1'])}-{_ms(spread['q3'])})"


def agreement(paths: Sequence[Path], *, quiet: bool) -> ExitCode:
    """Run ``--compare``; returns the exit status: 1 if something does not agree. Raises
    ``UsageError``, :class:`RequestInvalid`."""
    if len(paths) < 2:
        raise RequestInvalid("--compare wants two measurements or more")
    found = compare([read_measurement(path) for path in paths])
    apart = [each for each in found if not each.agrees]
    if not quiet:
        show(agreement_table(found))
    return ExitCode.FAILED if apart else ExitCode.DONE


def agreement_table(found: Sequence[Compared]) -> str:
    """Which medians agree, and of those that do not the spread of each measurement."""
    apart = [each for each in found if not each.agrees]
    most = max(found, key=lambda each: each.apart if each.agrees else -1.0)
    lines = [f"{len(found) - len(apart)} of {len(found)} medians lie within {AGREED:.0%}"]
    if most.agrees:
        lines[0] += f"; the widest of them, {_named(most)}, are {most.apart:.1%} apart"
    if apart:
        rows = [("apart", "figure", "median (quartiles) of each measurement")]
        rows += [
            (
                "0 or not" if each.apart == float("inf") else f"{each.apart:.1%}",
                _named(each),
                ", ".join(_spread(spread, each.figure) for spread in each.spreads),
            )
            for each in sorted(apart, key=lambda each: -each.apart)
        ]
        lines += ["", *_aligned(rows, left=3)]
    return "\n".join([*lines, ""])


def _named(each: Compared) -> str:
    return printable(f"{each.figure} of {each.answer!r}, {each.way}")


def _spread(spread: Spread, figure: str) -> str:
    if not figure.endswith("_s"):
        return f"{spread['median']:g} ({spread['q1']:g}-{spread['q3']:g})"
    return f"{_ms(spread['median'])} ({_ms(spread['q1'])}-{_ms(spread['q3'])}) ms"


def _aligned(rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Columns as wide as they have to be, so many of them set to the left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"
