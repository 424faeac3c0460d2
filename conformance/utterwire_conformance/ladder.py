"""`utterwire-conformance show`: a transcript as a ladder that a person can read.

One line for each message, with its time, direction and size; runs of audio are drawn together.
Where a check is red, the ladder says after which line it turned so.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from .check import CHECKS
from .command import PROGRAM, Parser, complain, printable, show
from .judging import Moments
from .offline import judge_transcripts, load_transcripts
from .redaction import HIDDEN
from .transcript import Case, Entry, Transcript
from .verdict import Judgement, Verdict

__all__ = ["Rung", "ladder_lines", "main_show", "marks_of", "rungs"]

Colour: TypeAlias = Literal["red", "green", "cyan", "dim", "bold"]

_COLOURS: Final[Mapping[str, str]] = {
    "red": "31;1",
    "green": "32",
    "cyan": "36",
    "dim": "2",
    "bold": "1",
}
_ARROWS: Final = {"out": "-->", "in": "<--", "note": "   "}
_WIDTH: Final = 110
_RUN: Final = 3
_SECRET_HEADER: Final = re.compile(r"auth|cookie|token|key|secret|credential", re.IGNORECASE)
_RED: Final = (Verdict.FAIL, Verdict.WEAK)


@dataclass(frozen=True, slots=True)
class Rung:
    """One line of a ladder: an entry, or a run of `count` chunks of audio up to `until` seconds.

    `first` and `last` are places among the entries of the transcript, `octets` the size of all
    payloads, `text` what is shown of it: printable, on one line, perhaps long. `marks` are the
    checks that turned red here, with what they found.
    """

    first: int
    last: int
    t: float
    until: float
    direction: str
    session: int
    kind: str
    octets: int
    count: int
    text: str
    marks: tuple[tuple[str, Judgement], ...] = field(default=())


def marks_of(
    transcript: Transcript, found: Mapping[str, Judgement]
) -> dict[int, list[tuple[str, Judgement]]]:
    """The red checks by the place of the entry at which each turned red.

    One that no single session shows stands at the end.
    """
    moments = Moments([transcript])
    marks: dict[int, list[tuple[str, Judgement]]] = {}
    for name, judgement in found.items():
        if judgement.verdict in _RED and transcript.scenario in judgement.scenarios:
            moment = moments.of(CHECKS[name], judgement)
            last = len(transcript.entries) - 1
            place = moment.index if moment is not None else last
            marks.setdefault(place, []).append((name, judgement))
    return marks


def rungs(
    transcript: Transcript,
    marks: Mapping[int, Sequence[tuple[str, Judgement]]] | None = None,
    *,
    every: bool = False,
) -> Iterator[Rung]:
    """The lines of a ladder; `every` draws no audio together."""
    marks = marks or {}
    run: list[int] = []
    entries = transcript.entries
    for index, entry in enumerate(entries):
        if run and not (
            _is_audio(entry) and entry.session == entries[run[-1]].session and not every
        ):
            yield from _run(transcript, run, marks)
            run = []
        if _is_audio(entry) and not every:
            run.append(index)
            if index in marks:
                yield from _run(transcript, run, marks)
                run = []
        else:
            yield _rung(transcript, index, marks)
    yield from _run(transcript, run, marks)


def _is_audio(entry: Entry) -> bool:
    plain = entry.kind == "binary" and entry.fin and not entry.data.startswith(b"{")
    body = entry.kind == "http-body" and not entry.fin and bool(entry.data)
    return entry.dir == "in" and (plain or body)


def _run(
    transcript: Transcript,
    run: Sequence[int],
    marks: Mapping[int, Sequence[tuple[str, Judgement]]],
) -> Iterator[Rung]:
    if len(run) <= _RUN:
        yield from (_rung(transcript, index, marks) for index in run)
        return
    # The last one stands by itself where something is marked there.
    drawn = run[:-1] if run[-1] in marks else run
    entries = [transcript.entries[index] for index in drawn]
    sizes = [len(entry.data) for entry in entries]
    yield Rung(
        drawn[0],
        drawn[-1],
        entries[0].t,
        entries[-1].t,
        "in",
        entries[0].session,
        entries[0].kind,
        sum(sizes),
        len(entries),
        f"{len(entries)} chunks of {min(sizes):,} to {max(sizes):,} bytes,"
        f" the last at {entries[-1].t:.3f}",
    )
    if len(drawn) < len(run):
        yield _rung(transcript, run[-1], marks)


def _rung(
    transcript: Transcript, index: int, marks: Mapping[int, Sequence[tuple[str, Judgement]]]
) -> Rung:
    entry = transcript.entries[index]
    return Rung(
        index,
        index,
        entry.t,
        entry.t,
        entry.dir,
        entry.session,
        _kind(entry),
        len(entry.data),
        1,
        printable(_text(entry)),
        tuple(marks.get(index, ())),
    )


def _kind(entry: Entry) -> str:
    if entry.kind in ("text", "binary", "cont") and not entry.fin:
        return f"{entry.kind}…"
    return entry.kind


def _text(entry: Entry) -> str:
    if entry.kind == "note":
        case = Case.from_note(entry.text or "")
        if case is None:
            return entry.text or ""
        codes = f" with {' or '.join(case.codes)}" if case.codes else ""
        return f"{case.name}: {case.expect}{codes} ({case.check})"
    if entry.kind == "close":
        code = "no code" if entry.code is None else str(entry.code)
        return f"{code} {entry.reason or ''}".rstrip()
    if entry.kind == "eof":
        return entry.reason or ""
    if entry.kind in ("open", "http-request", "http-response"):
        return _head(entry)
    return _payload(entry)


def _head(entry: Entry) -> str:
    words = [] if entry.status is None else [str(entry.status)]
    if entry.dir == "out":
        path, query, _ = (entry.target or "").partition("?")
        words += [entry.method or "", path + (f"?{HIDDEN}" if query else "")]
    shown = ("content-type", "retry-after", "sec-websocket-extensions", "transfer-encoding")
    for name, value in entry.headers:
        if _SECRET_HEADER.search(name) and not name.lower().startswith("sec-websocket-"):
            words.append(f"{name}: {HIDDEN}")
        elif name.lower() in shown or name.lower().startswith("utterwire"):
            words.append(f"{name}: {value}")
    if entry.data:
        words.append(_payload(entry))
    return "  ".join(word for word in words if word)


def _payload(entry: Entry) -> str:
    data = entry.data
    readable = entry.kind in ("text", "http-request", "ping", "pong", "cont") or data[:1] in (
        b"{",
        b"[",
    )
    if readable or entry.kind == "http-body":
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            pass
        else:
            if readable or text.isprintable():
                return text
    return data[:24].hex(" ") + (" …" if len(data) > 24 else "")


def ladder_lines(
    transcript: Transcript,
    found: Mapping[str, Judgement],
    *,
    every: bool = False,
    width: int | None = _WIDTH,
    coloured: bool = False,
) -> Iterator[str]:
    """The ladder as lines of text; `width` None leaves nothing out of a line."""

    def colour(text: str, name: Colour) -> str:
        return f"\x1b[{_COLOURS[name]}m{text}\x1b[0m" if coloured else text

    started = f", {transcript.started}" if transcript.started else ""
    yield colour(
        printable(f"{transcript.scenario}: {transcript.role} {transcript.endpoint}{started}"),
        "bold",
    )
    for label in ("unfinished", "broken"):
        text = getattr(transcript, label)
        if text is not None:
            yield colour(f"{label}: {printable(text)}", "red")
    # Pings and pongs of several sessions stand beside each other; their number tells them apart.
    many = len(transcript.sessions()) > 1
    marks = marks_of(transcript, found)
    for rung in rungs(transcript, marks, every=every):
        place = f"{rung.session or '':>3} " if many else ""
        size = f"{rung.octets:>9,} B" if rung.octets else " " * 11
        head = f"{rung.first + 2:>6} {rung.t:>10.3f} {place}{_ARROWS[rung.direction]}"
        line = f"{head} {rung.kind:<13}{size}  {rung.text}".rstrip()
        tint: Colour = {"out": "cyan", "in": "green"}.get(rung.direction, "dim")  # type: ignore[assignment]
        yield colour(_cut(line, width), tint)
        for name, judgement in rung.marks:
            word = judgement.verdict.value.upper()
            rule = CHECKS[name].requirement
            yield colour(f"{'^' * 17} {word} {rule}: {printable(judgement.reason)}", "red")
            if judgement.legal:
                yield colour(f"{' ' * 17} legal: {printable(judgement.legal)}", "red")


def _cut(line: str, width: int | None) -> str:
    if width is None or len(line) <= width:
        return line
    return f"{line[: width - 25]} … {line[-20:]}"


def main_show(arguments: Sequence[str]) -> int:
    """`show FILE…`: print transcripts; the exit status is 0, or 2 where one cannot be read."""
    parser = Parser(
        prog=f"{PROGRAM} show",
        description="Print transcripts as ladders: line, time, direction, kind, size, content,"
        " and where a rule broke.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a transcript, compressed or not")
    parser.add_argument(
        "--check",
        metavar="ID",
        action="append",
        default=[],
        help="mark only what breaks this requirement (or check); may be given several times",
    )
    parser.add_argument("--all", action="store_true", help="a line for each chunk of audio")
    parser.add_argument("--full", action="store_true", help="cut no line, however long")
    parser.add_argument("--no-judge", action="store_true", help="mark nothing")
    try:
        options = parser.parse_args(list(arguments))
        transcripts = load_transcripts(options.files)
    except SystemExit as stop:
        return int(stop.code or 0)
    except ValueError as error:
        return complain(str(error))
    names = {part for check in CHECKS.values() for part in (check.id, check.requirement)}
    for name in options.check:
        if name not in names:
            return complain(f"--check {name}: there is no requirement or check of that name")
    show(
        _all_lines(
            transcripts,
            options.check,
            judge=not options.no_judge,
            every=options.all,
            width=None if options.full else _terminal_width(),
        )
    )
    return 0


def _all_lines(
    transcripts: Sequence[Transcript],
    wanted: Sequence[str],
    *,
    judge: bool,
    every: bool,
    width: int | None,
) -> Iterable[str]:
    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for number, transcript in enumerate(transcripts):
        if number:
            yield ""
        found = judge_transcripts([transcript]) if judge else {}
        chosen = {
            name: judgement
            for name, judgement in found.items()
            if not wanted or name in wanted or CHECKS[name].requirement in wanted
        }
        yield from ladder_lines(transcript, chosen, every=every, width=width, coloured=coloured)


def _terminal_width() -> int:
    try:
        return max(60, os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError):
        return _WIDTH
