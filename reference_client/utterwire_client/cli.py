"""``utterwire``: speech from an endpoint on the command line.

Exit codes: see :class:`ExitCode`. Errors are one line on stderr.
"""

import argparse
import asyncio
import contextlib
import io
import os
import signal
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn, TextIO

from utterwire_client.deadlines import Deadlines
from utterwire_client.endpoints import Endpoint, find_endpoint, tls_context
from utterwire_client.errors import (
    ConnectFailed,
    DeadlineExceeded,
    ExtraMissing,
    PeerViolation,
    RequestInvalid,
    UtteranceRejected,
    UtterwireError,
)
from utterwire_client.events import Audio, Complete, Event, Marks, Start
from utterwire_client.lines import PROFILES, EventWriter, LineReader, LineSpeaker, Profile
from utterwire_client.progress import Progress, printable
from utterwire_client.session import connect
from utterwire_client.side_thread import SideThread
from utterwire_client.sink import (
    Container,
    FileSink,
    RawContainer,
    Sink,
    StreamSink,
    WavContainer,
)
from utterwire_client.wav import WAV_FORMATS
from utterwire_client.word_file import WordFile

__all__ = ["ExitCode", "main"]

# Files whose names say what is in them.
_SUFFIXES = {".mp3": "mp3", ".aac": "aac", ".opus": "opus", ".ogg": "opus"}
_FIT_FOR_WAV = frozenset({*WAV_FORMATS, "wav"})


# The audio is whole and written by then: an endpoint that does not say goodbye is not waited for.
_CLOSE_S = 1.0

# For how long what came of a failed utterance may take to be put away.
_GIVE_UP_S = 2.0


class ExitCode(IntEnum):
    """What the exit status of ``utterwire`` means."""

    DONE = 0
    #: The endpoint failed, broke the protocol, or was lost before the end.
    FAILED = 1
    #: The command line, the endpoint file, the text or the output cannot be used.
    USAGE = 2
    #: There is no way to the endpoint.
    NO_CONNECTION = 3
    #: The endpoint does not accept the request.
    REJECTED = 4
    #: The endpoint kept silent for too long.
    TIMEOUT = 5
    INTERRUPTED = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM
    #: Nobody reads the output any more.
    BROKEN_PIPE = 128 + signal.SIGPIPE


class _UsageError(Exception):
    """The command cannot be carried out as it was given."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"{printable(f'{self.prog}: {message}')} (see {self.prog} -h)\n")


@dataclass(frozen=True, slots=True)
class _Job:
    endpoint: Endpoint
    tls: ssl.SSLContext | None
    text: str
    voice: str | None
    speed: float | None
    sample_rate: int | None
    format: str | None
    headers: list[tuple[str, str]]
    deadlines: Deadlines
    output: str
    raw: bool
    marks: str | None
    transport: str


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="utterwire", description="Speech from an Utterwire endpoint.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"utterwire {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    say = commands.add_parser(
        "say",
        help="speak a text into a file or a pipe",
        description="Have an endpoint speak a text, and keep the audio.",
        epilog="Exit status: 0 done; 1 the endpoint failed or was lost; 2 the command line, the "
        "endpoint file, the text or the output cannot be used; 3 no connection; 4 the endpoint "
        "does not accept the request; 5 the endpoint kept silent; 130 interrupted; 141 nobody "
        "reads the output; 143 terminated. What came of an utterance that failed is kept beside "
        "the output as NAME.partial.wav.",
        allow_abbrev=False,
    )
    say.add_argument("text", nargs="?", metavar="TEXT", help="what to speak; - reads it from stdin")
    say.add_argument("--file", type=Path, metavar="PATH", help="read the text from a file (UTF-8)")
    _add_where(say)
    say.add_argument(
        "--transport",
        choices=("websocket", "http", "sse"),
        default="websocket",
        help="a session (the default), one HTTP request, or one answered by server-sent events",
    )
    say.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        default="-",
        help="where the audio goes: a .wav file; a .mp3, .aac or .opus file, in that format; any "
        "other name for the audio alone; or - for a WAV on stdout (the default)",
    )
    say.add_argument(
        "--raw", action="store_true", help="the audio alone, without a header, as it is made"
    )
    say.add_argument("--voice", help="default: that of the endpoint file, else the endpoint's own")
    say.add_argument("--speed", type=float, help="1 is normal; 0.5 to 2 work everywhere")
    say.add_argument("--sample-rate", type=int, metavar="HZ")
    say.add_argument(
        "--format", help="pcm_s16le, wav, mp3, aac, opus, mulaw or alaw (default: by the output)"
    )
    say.add_argument(
        "--marks",
        metavar="PATH",
        help="write when each word is spoken, and where it stands in the text, to a file as JSON "
        "lines; - is stdout",
    )
    say.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    _add_lines(commands)
    return parser


def _add_where(command: argparse.ArgumentParser) -> None:
    """Where the endpoint is, and how to get in."""
    where = command.add_mutually_exclusive_group()
    where.add_argument(
        "--endpoint",
        metavar="NAME",
        help="an endpoint of the endpoint file; `reference` needs none (default: reference)",
    )
    where.add_argument("--url", help="the endpoint's address: ws://HOST:PORT or wss://HOST")
    command.add_argument(
        "--endpoints-file",
        type=Path,
        metavar="PATH",
        help="the endpoint file (default: $UTTERWIRE_ENDPOINTS, else ./endpoints.toml)",
    )
    command.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="a header field for the opening handshake or the request; may be repeated",
    )
    command.add_argument(
        "--ca-file", type=Path, metavar="PATH", help="authorities to trust for wss:// (PEM)"
    )
    command.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="how long the endpoint may keep silent: to connect, to the first audio, between "
        "chunks (defaults: 10, 30, 30)",
    )


def _add_lines(commands: "argparse._SubParsersAction[_Parser]") -> None:
    lines = commands.add_parser(
        "lines",
        help="speak each line of stdin as it comes, for programs",
        description="Speak each line of stdin (UTF-8), one after the other, until stdin ends. The "
        "audio goes to stdout as it comes, without headers. An empty line is an interruption: "
        "what is being spoken and what waits is stopped. What befalls each line is told in JSON "
        'lines: {"event": "start", "utterance": 1, "sample_rate": 24000, "format": "pcm_s16le"}, '
        'then "complete", "failed" or "cancelled" with "audio_bytes", how much of it went to '
        'stdout; "warning" for what the endpoint did wrong.',
        epilog="Exit status: 0 all was spoken or interrupted, else that of the first failure, as "
        "for `say`.",
        allow_abbrev=False,
    )
    _add_where(lines)
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


def _version() -> str:
    try:
        return version("utterwire")
    except PackageNotFoundError:  # a checkout that is not installed
        return "(not installed)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status (:class:`ExitCode`)."""
    arguments = _parser().parse_args(argv)
    progress = Progress(sys.stderr, quiet=arguments.quiet)
    if arguments.command == "lines":
        return _lines(arguments, progress)
    try:
        job = _job(arguments)
        words = _word_file(job)
        sink = _sink(job)
    except (_UsageError, RequestInvalid) as exc:
        progress.note(f"utterwire: {exc}")
        return ExitCode.USAGE
    try:
        return asyncio.run(_say(job, sink, words, progress))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except asyncio.CancelledError:
        return ExitCode.TERMINATED


def _found(arguments: argparse.Namespace) -> Endpoint:
    if arguments.url is not None:
        return Endpoint(name=arguments.url, url=arguments.url)
    return find_endpoint(arguments.endpoint or "reference", file=arguments.endpoints_file)


def _job(arguments: argparse.Namespace) -> _Job:
    text = _text(arguments)
    endpoint = _found(arguments)
    ca_file = arguments.ca_file or endpoint.ca_file
    return _Job(
        endpoint=endpoint,
        tls=None if ca_file is None else tls_context(ca_file),
        text=text,
        voice=arguments.voice or endpoint.voice,
        speed=arguments.speed,
        sample_rate=arguments.sample_rate,
        format=arguments.format or (None if arguments.raw else _called_after(arguments.output)),
        headers=_headers(endpoint, [_header(given) for given in arguments.header]),
        deadlines=_deadlines(arguments.timeout, endpoint),
        output=arguments.output,
        raw=arguments.raw,
        marks=arguments.marks,
        transport=arguments.transport,
    )


def _text(arguments: argparse.Namespace) -> str:
    if (arguments.text is None) == (arguments.file is None):
        raise _UsageError("give a text to speak, or - for stdin, or --file PATH (one of them)")
    if arguments.text not in (None, "-"):
        return str(arguments.text)
    if arguments.file is None and sys.stdin is None:
        raise _UsageError("stdin is closed: there is no text to read")
    try:
        data = sys.stdin.buffer.read() if arguments.file is None else arguments.file.read_bytes()
    except OSError as exc:
        raise _UsageError(f"cannot read {arguments.file or 'stdin'}: {exc.strerror}") from None
    try:
        # A byte order mark is no part of the text.
        return str(data.decode("utf-8-sig"))
    except UnicodeDecodeError as exc:
        raise _UsageError(
            f"the text in {arguments.file or 'stdin'} is not UTF-8 (byte {exc.start})"
        ) from None


def _headers(endpoint: Endpoint, given: list[tuple[str, str]]) -> list[tuple[str, str]]:
    replaced = {name.lower() for name, _ in given}
    kept = [pair for pair in endpoint.headers.items() if pair[0].lower() not in replaced]
    return kept + given


def _header(given: str) -> tuple[str, str]:
    name, colon, value = given.partition(":")
    if not colon:
        # The value may be a secret: it is not repeated.
        raise _UsageError("--header wants 'NAME: VALUE', with a colon")
    return name.strip(), value.strip()


def _deadlines(timeout: float | None, endpoint: Endpoint) -> Deadlines:
    standard = Deadlines()
    if timeout is not None:
        return Deadlines(
            connect_s=timeout, first_chunk_s=timeout, stall_s=timeout, close_s=_CLOSE_S
        )
    return Deadlines(
        close_s=_CLOSE_S,
        connect_s=endpoint.connect_s or standard.connect_s,
        first_chunk_s=endpoint.first_byte_s or standard.first_chunk_s,
        stall_s=endpoint.stall_s or standard.stall_s,
    )


def _called_after(output: str) -> str | None:
    """The format that a file's name promises; None where it promises none."""
    return _SUFFIXES.get(Path(output).suffix.lower())


def _path(output: str) -> Path:
    """The file to write.

    Raises ``_UsageError`` for a name that is a folder's, or nothing but a suffix.
    """
    path = Path(output)
    if not output or output.endswith(("/", os.sep)) or path.is_dir():
        raise _UsageError(f"-o {output or '(nothing)'} is a folder: name a file, as in -o NAME.wav")
    if path.name.lower() in (".wav", *_SUFFIXES):
        raise _UsageError(f"-o {output} is a suffix without a name: write -o NAME{path.name}")
    return path


def _sink(job: _Job) -> Sink:
    no_wav = job.format is not None and job.format not in _FIT_FOR_WAV
    if job.output == "-":
        if sys.stdout is None:
            raise _UsageError("stdout is closed: give -o FILE")
        if sys.stdout.isatty():
            raise _UsageError("audio is not for a terminal: give -o FILE, or a pipe")
        container: Container = RawContainer() if job.raw or no_wav else WavContainer()
        return StreamSink(io.FileIO(sys.stdout.fileno(), "wb", closefd=False), "stdout", container)
    path = _path(job.output)
    suffix = path.suffix.lower()
    promised = None if job.raw else _called_after(job.output)
    if (suffix == ".wav" and no_wav and not job.raw) or promised not in (None, job.format):
        raise _UsageError(f"a {suffix} file cannot hold {job.format}: give the output another name")
    container = WavContainer() if suffix == ".wav" and not job.raw else RawContainer(promised)
    try:
        if path.exists() and not path.is_file():
            return StreamSink(path.open("wb", buffering=0), str(path), container)
        return FileSink(path, container)
    except OSError as exc:
        raise _UsageError(f"cannot write {path}: {exc.strerror}") from None


def _word_file(job: _Job) -> WordFile | None:
    if job.marks is None:
        return None
    if job.transport != "websocket":
        raise _UsageError("--marks wants a session: leave --transport away")
    if job.marks == "-" and job.output == "-":
        raise _UsageError("stdout cannot take both: give -o FILE, or --marks FILE")
    if job.marks == "-" and sys.stdout is None:
        raise _UsageError("stdout is closed: give --marks FILE")
    try:
        return WordFile(job.marks, sys.stdout.fileno() if job.marks == "-" else 1)
    except OSError as exc:
        raise _UsageError(f"cannot write {job.marks}: {exc.strerror}") from None


async def _say(job: _Job, sink: Sink, words: WordFile | None, progress: Progress) -> ExitCode:
    thread = SideThread()
    finished = False
    task = asyncio.current_task()
    assert task is not None
    # A thread that is not the main one is sent no signals.
    with contextlib.suppress(ValueError, RuntimeError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await _speak(job, sink, words, progress, thread)
        finished = True
        return ExitCode.DONE
    except asyncio.CancelledError:
        progress.note("utterwire: interrupted")
        raise
    except BrokenPipeError:
        return ExitCode.BROKEN_PIPE
    except _UsageError as exc:
        progress.note(f"utterwire: {exc}")
        return ExitCode.USAGE
    except UtterwireError as exc:  # before the built-in types that some of them also are
        return _failed(exc, progress)
    except OSError as exc:
        progress.note(f"utterwire: cannot write {job.output}: {exc.strerror or exc}")
        return ExitCode.USAGE
    except ValueError as exc:
        progress.note(f"utterwire: {exc}")
        return ExitCode.USAGE
    finally:
        if not finished:
            # A pipe that nobody reads may hold up the thread for ever.
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_GIVE_UP_S):
                    kept = await thread.run(sink.give_up)
                if kept is not None:
                    progress.note(f"utterwire: kept {progress.amount()} in {kept}")
        thread.stop(None if words is None else words.close)


def _failed(exc: UtterwireError, progress: Progress) -> ExitCode:
    progress.note(f"utterwire: {exc}")
    match exc:
        case RequestInvalid() | ExtraMissing():
            return ExitCode.USAGE
        case ConnectFailed() | DeadlineExceeded(which="connect"):
            return ExitCode.NO_CONNECTION
        case UtteranceRejected():
            return ExitCode.REJECTED
        case DeadlineExceeded():
            return ExitCode.TIMEOUT
        case _:
            return ExitCode.FAILED


async def _speak(
    job: _Job, sink: Sink, words: WordFile | None, progress: Progress, thread: SideThread
) -> None:
    broken: set[str] = set()

    def warn(violation: PeerViolation) -> None:
        if violation.requirement not in broken:
            broken.add(violation.requirement)
            progress.note(f"utterwire: warning: {violation} [{violation.requirement}]")

    async def play(events: AsyncIterator[Event], whole: Callable[[Complete], None]) -> None:
        async for event in events:
            match event:
                case Start():
                    progress.began(event)
                    await thread.run(partial(sink.begin, event))
                case Audio():
                    progress.audio(len(event.data))
                    await thread.run(partial(sink.write, event.data))
                case Marks() if words is not None:
                    try:
                        await thread.run(partial(words.write, event.words))
                    except BrokenPipeError:
                        raise
                    except OSError as exc:
                        problem = f"cannot write {job.marks}: {exc.strerror or exc}"
                        raise _UsageError(problem) from None
                case Complete():
                    whole(event)
                    if words is not None and not words.count and event.received_bytes:
                        progress.note("utterwire: warning: the endpoint told of no words")
                    # Before the session is closed: what is whole is not to be lost by that.
                    progress.done(await thread.run(sink.finish))
                case _:
                    pass

    if job.transport != "websocket":
        await _speak_over_http(job, progress, warn, play)
        return
    async with connect(
        job.endpoint.url,
        headers=job.headers,
        ssl=job.tls,
        deadlines=job.deadlines,
        on_violation=warn,
    ) as session:
        progress.requested()
        utterance = session.synthesize(
            job.text,
            voice=job.voice,
            speed=job.speed,
            sample_rate=job.sample_rate,
            format=job.format,
            marks=None if words is None else ["word"],
        )
        await play(utterance, utterance.demand_whole)


async def _speak_over_http(
    job: _Job,
    progress: Progress,
    warn: Callable[[PeerViolation], None],
    play: Callable[[AsyncIterator[Event], Callable[[Complete], None]], Awaitable[None]],
) -> None:
    http_utterance = _http()
    progress.requested()
    events = http_utterance(
        job.endpoint.url,
        job.text,
        transport="sse" if job.transport == "sse" else "http",
        voice=job.voice,
        speed=job.speed,
        sample_rate=job.sample_rate,
        format=job.format,
        headers=job.headers,
        ssl=job.tls,
        deadlines=job.deadlines,
        on_violation=warn,
    )
    async with contextlib.aclosing(events):
        # A body that comes to its end is whole.
        await play(events, lambda complete: None)


def _lines(arguments: argparse.Namespace, progress: Progress) -> int:
    try:
        if arguments.retries < 0:
            raise _UsageError("--retries wants a number of 0 or more")
        if sys.stdin is None or sys.stdout is None:
            raise _UsageError("stdin and stdout are needed: text comes by one, audio by the other")
        endpoint = _found(arguments)
        ca_file = arguments.ca_file or endpoint.ca_file
        tls = None if ca_file is None else tls_context(ca_file)
        headers = _headers(endpoint, [_header(given) for given in arguments.header])
        deadlines = _deadlines(arguments.timeout, endpoint)
        # Nobody knows better when it has waited enough for a goodbye.
        deadlines = replace(deadlines, close_s=arguments.timeout or Deadlines().close_s)
        stream = sys.stderr if arguments.events is None else _events_file(arguments.events)
    except (_UsageError, RequestInvalid) as exc:
        progress.note(f"utterwire: {exc}")
        return ExitCode.USAGE
    try:
        return asyncio.run(
            _speak_lines(
                progress,
                endpoint.url,
                profile=arguments.profile,
                headers=headers,
                tls=tls,
                deadlines=deadlines,
                retries=arguments.retries,
                voice=arguments.voice or endpoint.voice,
                events=EventWriter(stream),
            )
        )
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except asyncio.CancelledError:
        return ExitCode.TERMINATED
    finally:
        if stream is not None and stream is not sys.stderr:
            stream.close()


def _events_file(path: Path) -> TextIO:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as exc:
        raise _UsageError(f"cannot write {path}: {exc.strerror}") from None


async def _speak_lines(
    progress: Progress,
    url: str,
    *,
    profile: Profile,
    headers: Sequence[tuple[str, str]],
    tls: ssl.SSLContext | None,
    deadlines: Deadlines,
    retries: int,
    voice: str | None,
    events: EventWriter,
) -> ExitCode:
    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(ValueError, RuntimeError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    thread = SideThread()
    stdout = io.FileIO(sys.stdout.fileno(), "wb", closefd=False)

    def put(data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[stdout.write(rest) or 0 :]

    async def write(data: bytes) -> None:
        await thread.run(partial(put, data))

    speaker = LineSpeaker(
        url,
        profile=profile,
        headers=headers,
        tls=tls,
        deadlines=deadlines,
        retries=retries,
        voice=voice,
        write=write,
        events=events,
    )
    try:
        if profile in ("http", "sse"):
            _http()
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


def _http() -> "Callable[..., AsyncGenerator[Event]]":
    """What speaks over HTTP, which needs a package of its own."""
    try:
        from utterwire_client.http import http_utterance
    except ModuleNotFoundError as exc:
        missing = (exc.name or "httpx").partition(".")[0]
        raise ExtraMissing(
            f"HTTP needs the package {missing}: pip install 'utterwire[client]'"
        ) from None
    return http_utterance
