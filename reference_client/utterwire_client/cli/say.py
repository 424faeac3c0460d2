"""``utterwire say``: a text, or a stream of it, into a file, a pipe or a sound device."""

import argparse
import asyncio
import contextlib
import io
import math
import os
import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from utterwire_client.cli.exit_code import ExitCode, UsageError, exit_code_of
from utterwire_client.cli.run import run
from utterwire_client.cli.where import TRANSPORTS, TransportName, Where, add_where, import_http
from utterwire_client.errors import PeerViolation, RequestInvalid, UtterwireError
from utterwire_client.events import SAMPLE_BYTES, Audio, Complete, Event, Marks, Start, Word
from utterwire_client.interruption import in_source
from utterwire_client.player import DevicePlayer, Player
from utterwire_client.progress import Progress
from utterwire_client.sentence import Sentence, Spoken
from utterwire_client.side_thread import SideThread
from utterwire_client.sink import Container, FileSink, RawContainer, Sink, StreamSink, WavContainer
from utterwire_client.sound import SoundFinder
from utterwire_client.speech import SpeechOptions
from utterwire_client.text_reader import TextReader, Unbuffered
from utterwire_client.wav import WAV_FORMATS
from utterwire_client.word_file import WordFile

__all__ = ["add_say", "say"]

# Files whose names say what is in them.
_SUFFIXES = {".mp3": "mp3", ".aac": "aac", ".opus": "opus", ".ogg": "opus"}
_FIT_FOR_WAV = frozenset({*WAV_FORMATS, "wav"})

# For how long what came of a failed utterance may take to be put away.
_GIVE_UP_S = 2.0


@dataclass(frozen=True, slots=True)
class _Job:
    where: Where
    text: str | AsyncIterable[str]
    voice: str | None
    speed: float | None
    sample_rate: int | None
    format: str | None
    output: str | None
    raw: bool
    marks: str | None
    play: bool
    typed: bool
    transport: TransportName


def add_say(say: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    say.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="what to speak, as one request; - or nothing speaks stdin, sentence by sentence, as "
        "it is typed or piped",
    )
    say.add_argument(
        "--file",
        type=Path,
        metavar="PATH",
        help="speak a file (UTF-8), sentence by sentence",
    )
    say.add_argument(
        "--whole",
        action="store_true",
        help="read stdin or the file to its end, and speak it as one request, untouched",
    )
    add_where(say)
    say.add_argument(
        "--transport",
        choices=TRANSPORTS,
        default="websocket",
        help="a session (the default), HTTP requests, or such that server-sent events answer",
    )
    say.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help="where the audio goes: a .wav file; a .mp3, .aac or .opus file, in that format; any "
        "other name for the audio alone; or - for a WAV on stdout (the default without --play)",
    )
    say.add_argument(
        "--play", action="store_true", help="play it on the sound device (extra `play`)"
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


def say(arguments: argparse.Namespace, progress: Progress) -> int:
    """Run the command; returns its exit status."""
    with contextlib.ExitStack() as files:
        try:
            job = _job(arguments, files)
            words = _word_file(job)
            sink = _sink(job)
        except (UsageError, RequestInvalid) as exc:
            progress.note(f"utterwire: {exc}")
            return ExitCode.USAGE
        return run(_say(job, sink, words, progress))


def _job(arguments: argparse.Namespace, files: contextlib.ExitStack) -> _Job:
    text = _text(arguments, files)
    where = Where.of(arguments)
    output = arguments.output
    if output is None and not arguments.play:
        output = "-"
    named = None if arguments.raw or output is None else _called_after(output)
    format = arguments.format or named
    if arguments.play and format not in (None, "pcm_s16le"):
        raise UsageError(f"a sound device plays pcm_s16le, not {format}: leave --play or it away")
    return _Job(
        where=where,
        text=text,
        voice=arguments.voice or where.endpoint.voice,
        speed=arguments.speed,
        sample_rate=arguments.sample_rate,
        format=format,
        output=output,
        raw=arguments.raw,
        marks=arguments.marks,
        play=arguments.play,
        typed=arguments.file is None and not isinstance(text, str) and sys.stdin.isatty(),
        transport=arguments.transport,
    )


def _text(arguments: argparse.Namespace, files: contextlib.ExitStack) -> str | AsyncIterable[str]:
    if arguments.text is not None and arguments.file is not None:
        raise UsageError("give a text to speak, or --file PATH, not both")
    if arguments.text not in (None, "-"):
        return str(arguments.text)
    if arguments.file is None and sys.stdin is None:
        raise UsageError("stdin is closed: there is no text to read")
    shown = arguments.file or "stdin"
    try:
        stream: Unbuffered
        if arguments.file is not None:
            stream = files.enter_context(arguments.file.open("rb", buffering=0))
        else:
            stream = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        if not arguments.whole:
            # Its thread belongs to an event loop, and there is none yet.
            return _Deferred(lambda: TextReader(stream, str(shown)))
        data = bytearray()
        while piece := stream.read(1 << 20):
            data += piece
    except OSError as exc:
        raise UsageError(f"cannot read {shown}: {exc.strerror}") from None
    try:
        # A byte order mark is no part of the text.
        return str(data.decode("utf-8-sig"))
    except UnicodeDecodeError as exc:
        raise UsageError(f"the text in {shown} is not UTF-8 (byte {exc.start})") from None


class _Deferred:
    """Something to iterate over that is made when that begins."""

    def __init__(self, make: Callable[[], AsyncIterator[str]]) -> None:
        self._make = make

    def __aiter__(self) -> AsyncIterator[str]:
        return self._make()


def _called_after(output: str) -> str | None:
    """The format that a file's name promises; None where it promises none."""
    return _SUFFIXES.get(Path(output).suffix.lower())


def _path(output: str) -> Path:
    """The file to write.

    Raises ``UsageError`` for a name that is a folder's, or nothing but a suffix.
    """
    path = Path(output)
    if not output or output.endswith(("/", os.sep)) or path.is_dir():
        raise UsageError(f"-o {output or '(nothing)'} is a folder: name a file, as in -o NAME.wav")
    if path.name.lower() in (".wav", *_SUFFIXES):
        raise UsageError(f"-o {output} is a suffix without a name: write -o NAME{path.name}")
    return path


def _sink(job: _Job) -> Sink | None:
    if job.output is None:
        return None
    no_wav = job.format is not None and job.format not in _FIT_FOR_WAV
    if job.output == "-":
        if sys.stdout is None:
            raise UsageError("stdout is closed: give -o FILE")
        if sys.stdout.isatty():
            raise UsageError("audio is not for a terminal: give --play, -o FILE, or a pipe")
        container: Container = RawContainer() if job.raw or no_wav else WavContainer()
        return StreamSink(io.FileIO(sys.stdout.fileno(), "wb", closefd=False), "stdout", container)
    path = _path(job.output)
    suffix = path.suffix.lower()
    promised = None if job.raw else _called_after(job.output)
    if (suffix == ".wav" and no_wav and not job.raw) or promised not in (None, job.format):
        raise UsageError(f"a {suffix} file cannot hold {job.format}: give the output another name")
    container = WavContainer() if suffix == ".wav" and not job.raw else RawContainer(promised)
    try:
        if path.exists() and not path.is_file():
            return StreamSink(path.open("wb", buffering=0), str(path), container)
        return FileSink(path, container)
    except OSError as exc:
        raise UsageError(f"cannot write {path}: {exc.strerror}") from None


def _word_file(job: _Job) -> WordFile | None:
    if job.marks is None:
        return None
    if job.transport != "websocket":
        raise UsageError("--marks wants a session: leave --transport away")
    if job.marks == "-" and job.output == "-":
        raise UsageError("stdout cannot take both: give -o FILE, or --marks FILE")
    if job.marks == "-" and sys.stdout is None:
        raise UsageError("stdout is closed: give --marks FILE")
    try:
        return WordFile(job.marks, sys.stdout.fileno() if job.marks == "-" else 1)
    except OSError as exc:
        raise UsageError(f"cannot write {job.marks}: {exc.strerror}") from None


async def _say(
    job: _Job, sink: Sink | None, words: WordFile | None, progress: Progress
) -> ExitCode:
    thread = SideThread()
    finished = False
    try:
        async with DevicePlayer() if job.play else Player() as player:
            output = _Output(job, sink, words, player, progress, thread)
            await _speak(job, output)
            where = await output.finish()
            finished = True
        # What is played has been heard by now; of a file nobody waits for the sound.
        progress.done(where)
        return ExitCode.DONE
    except asyncio.CancelledError:
        progress.note("utterwire: interrupted")
        raise
    except BrokenPipeError:
        return ExitCode.BROKEN_PIPE
    except UsageError as exc:
        progress.note(f"utterwire: {exc}")
        return ExitCode.USAGE
    except UtterwireError as exc:  # before the built-in types that some of them also are
        progress.note(f"utterwire: {exc}")
        return exit_code_of(exc)
    except OSError as exc:
        progress.note(f"utterwire: cannot write {job.output}: {exc.strerror or exc}")
        return ExitCode.USAGE
    except ValueError as exc:
        progress.note(f"utterwire: {exc}")
        return ExitCode.USAGE
    finally:
        if not finished and sink is not None:
            # A pipe that nobody reads may hold up the thread for ever.
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_GIVE_UP_S):
                    kept = await thread.run(sink.give_up)
                if kept is not None:
                    progress.note(f"utterwire: kept {progress.amount()} in {kept}")
        thread.stop(None if words is None else words.close)


async def _speak(job: _Job, output: "_Output") -> None:
    where = job.where
    if isinstance(job.text, str):
        if job.transport == "websocket":
            await _request(job, job.text, output)
        else:
            await _request_over_http(job, job.text, output)
        return
    options: SpeechOptions = {
        "voice": job.voice,
        "speed": job.speed,
        "sample_rate": job.sample_rate,
        "format": job.format,
        "marks": job.marks is not None,
        "player": output.player,
    }
    if not job.play:
        options["max_unheard_s"] = math.inf
    async with where.speaker(job.transport, output.warn) as speaker:
        if job.typed:
            output.progress.hint("type what to speak; Ctrl-D ends it")
        async with speaker.speak(job.text, **options) as speech:
            async for event in speech:
                if isinstance(event, Spoken):
                    if isinstance(event.event, Start):
                        output.progress.requested(event.utterance.inbox.submitted_at)
                    await output.take(event.event, event.sentence)
        if not output.spoke:
            raise UsageError("there is nothing to speak in the text")


async def _request(job: _Job, text: str, output: "_Output") -> None:
    async with job.where.connect(on_violation=output.warn) as session:
        output.progress.requested()
        utterance = session.synthesize(
            text,
            voice=job.voice,
            speed=job.speed,
            sample_rate=job.sample_rate,
            format=job.format,
            marks=None if job.marks is None else ["word"],
        )
        async for event in utterance:
            if isinstance(event, Complete):
                utterance.demand_whole(event)
            await output.play(event)


async def _request_over_http(job: _Job, text: str, output: "_Output") -> None:
    where = job.where
    http_utterance = import_http()
    output.progress.requested()
    events = http_utterance(
        where.endpoint.url,
        text,
        transport="sse" if job.transport == "sse" else "http",
        voice=job.voice,
        speed=job.speed,
        sample_rate=job.sample_rate,
        format=job.format,
        headers=where.headers,
        ssl=where.tls,
        deadlines=where.deadlines,
        on_violation=output.warn,
    )
    async with contextlib.aclosing(events):
        # A body that comes to its end is whole.
        async for event in events:
            await output.play(event)


class _Output:
    """Takes what is spoken to where it goes."""

    def __init__(
        self,
        job: _Job,
        sink: Sink | None,
        words: WordFile | None,
        player: Player,
        progress: Progress,
        thread: SideThread,
    ) -> None:
        self.player = player
        self.progress = progress
        self.spoke = False
        self._job = job
        self._sink = sink
        self._words = words
        self._thread = thread
        self._broken: set[str] = set()
        self._first: Start | None = None
        self._start: Start | None = None
        self._finder: SoundFinder | None = None
        self._before_s = 0.0  # audio of the utterances before this one
        self._audio_bytes = 0  # of this one
        self._audio_s = 0.0
        self._marks: list[Word] = []  # told, and no audio after them yet

    def warn(self, violation: PeerViolation) -> None:
        """Tell of a rule that the endpoint broke, once."""
        if violation.requirement not in self._broken:
            self._broken.add(violation.requirement)
            self.progress.note(f"utterwire: warning: {violation} [{violation.requirement}]")

    async def play(self, event: Event) -> None:
        """The same as :meth:`take`, of the only utterance, which is not played yet."""
        await self.take(event, None)
        if isinstance(event, Audio):
            assert self._start is not None
            await self.player.play(event.data, self._start)

    async def take(self, event: Event, sentence: Sentence | None) -> None:
        """Take the next event of the utterance that speaks ``sentence``, or the only one."""
        match event:
            case Start():
                await self._begin(event)
            case Marks():
                self._marks += [self._placed(word, sentence) for word in event.words]
            case Audio():
                await self._write_words()
                self._measure(event.data)
                if self._sink is not None:
                    await self._thread.run(partial(self._sink.write, event.data))
            case Complete():
                await self._write_words()
                if not self._audio_s and event.duration_s:
                    self._audio_s = event.duration_s
                self.progress.worked(event.elapsed_s)
                if self._words is not None and not self._words.count and event.received_bytes:
                    self.progress.note("utterwire: warning: the endpoint told of no words")

    async def _begin(self, start: Start) -> None:
        if self._first is None:
            self._first = start
            if start.format == "pcm_s16le":
                self._finder = SoundFinder(start.sample_rate)
        elif (start.format, start.sample_rate) != (self._first.format, self._first.sample_rate):
            raise ValueError(
                f"the endpoint began with {self._first.format} at {self._first.sample_rate} Hz and "
                f"goes on with {start.format} at {start.sample_rate} Hz: give --format and "
                "--sample-rate"
            )
        self.spoke = True
        self._start = start
        self._before_s += self._audio_s
        self._audio_s, self._audio_bytes = 0.0, 0
        self._marks.clear()
        self.progress.began(start)
        if self._sink is not None:
            await self._thread.run(partial(self._sink.begin, start))

    def _measure(self, data: bytes) -> None:
        assert self._start is not None
        self._audio_bytes += len(data)
        width = SAMPLE_BYTES.get(self._start.format)
        if width:
            self._audio_s = self._audio_bytes / (width * self._start.sample_rate)
        self.progress.audio(len(data))
        if self._finder is not None and (at_s := self._finder.feed(data)) is not None:
            self._finder = None
            self.progress.sounded(at_s)

    def _placed(self, word: Word, sentence: Sentence | None) -> Word:
        """A word of a sentence, where it stands in all of the text and all of the audio."""
        if sentence is None:
            return word
        return replace(
            word,
            start_s=self._before_s + word.start_s,
            end_s=self._before_s + word.end_s,
            char_start=sentence.start + in_source(sentence, word.char_start),
            char_end=sentence.start + in_source(sentence, word.char_end),
        )

    async def _write_words(self) -> None:
        words, self._marks = self._marks, []
        if self._words is None or not words:
            return
        try:
            await self._thread.run(partial(self._words.write, words))
        except BrokenPipeError:
            raise
        except OSError as exc:
            raise UsageError(f"cannot write {self._job.marks}: {exc.strerror or exc}") from None

    async def finish(self) -> str | None:
        """All has come; returns where it is, or None where it was only played."""
        return None if self._sink is None else await self._thread.run(self._sink.finish)
