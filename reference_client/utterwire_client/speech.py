"""A text that comes in fragments, spoken sentence by sentence as it comes."""

import asyncio
import contextlib
import itertools
import logging
import math
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
)
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias, TypedDict, TypeVar

from utterwire_protocol import ERROR_CODES

from utterwire_client.backoff import Backoff
from utterwire_client.bell import Bell
from utterwire_client.chunker import IncrementalSentenceChunker
from utterwire_client.errors import (
    AudioMissing,
    DeadlineExceeded,
    RequestInvalid,
    SessionLost,
    SpeechIncomplete,
    UtteranceCancelled,
    UtteranceFailed,
    UtteranceRejected,
    UtterwireError,
)
from utterwire_client.events import SAMPLE_BYTES, Audio, Complete, Event, Marks, Start, Word
from utterwire_client.interruption import Interruption, Precision, heard_of
from utterwire_client.player import Player
from utterwire_client.sentence import Lost, Sentence, Skipped, SpeechEvent, Spoken
from utterwire_client.side_thread import SideThread
from utterwire_client.speakable import SpeakableState, speakable
from utterwire_client.utterance import Utterance

if TYPE_CHECKING:
    from utterwire_client.backend import Backend

T = TypeVar("T", int, float)

__all__ = ["Approve", "Chunker", "Speech", "SpeechOptions", "Text"]

_logger = logging.getLogger("utterwire_client")

#: What can be spoken: a text, or fragments of one as they come.
Text: TypeAlias = str | Iterable[str] | AsyncIterable[str]

#: The release gate: gets what is about to be spoken, returns what is to be, or None for nothing.
Approve: TypeAlias = Callable[[str], Awaitable[str | None]]

# A text that is there at once is given to the chunker in slices, so that it holds up nobody.
_SLICE_CHARS: Final = 1024
# Sentences that are ready and not asked for yet: with them the source is waited for no more.
_READY: Final = 2
# How long a source is waited for that does not let itself be cancelled, in seconds.
_STOP_S: Final = 5.0
# How fast people are spoken to, in code points a second, where nothing was heard to go by.
_CHARS_PER_S: Final = 15.0
_ENOUGH: Final = 1e-6
# Codes that may mean `marks`: of `invalid_request`, of a refused field; or of no code at all.
_GENERAL_CODES: Final = frozenset({"invalid_request", "unknown_type", "internal"})


class Chunker(Protocol):
    """What cuts a text into sentences: exact slices of it, in order."""

    def feed(self, fragment: str) -> list[str]:
        """The pieces that ``fragment`` completes."""
        ...

    def flush(self) -> list[str]:
        """What is left when the text ends."""
        ...


class SpeechOptions(TypedDict, total=False):
    """How a text is spoken; all may be left out.

    ``voice``, ``speed``, ``sample_rate``, ``format``: of every utterance
    (``protocol.md#synthesize``). ``marks``: whether to ask when words are spoken, so that an
    interruption can be told to the word (True; endpoints that do not know it send none, and one
    that refuses a sentence without naming another reason is asked for it again without).

    ``approve``: the release gate, an async function. It gets each sentence as it would be spoken,
    before it goes to the endpoint, and returns what may become audible: the same, something else,
    or None. It may take its time: sentences wait for it, in order, and it is cancelled with the
    speech. What it raises ends the speech.
    ``chunker``: cuts the text; None takes an ``IncrementalSentenceChunker``.
    ``markdown``: whether markup, code, link targets and emoji are taken out (True).

    ``depth``: utterances in flight at most; 1 is stop-and-wait (3).
    ``max_chars_in_flight``: code points of them, at most; a longer sentence goes alone (2,000).
    ``max_unheard_s``: audio that was not heard yet, in seconds; past that no sentence is asked for
    (30). ``math.inf`` makes speech as fast as the endpoint does.
    ``player``: hears the audio before it is yielded; None takes for granted that whoever reads it
    plays it at once.

    ``retries``: how often a sentence of which nothing was yielded yet is asked for again, on a new
    connection where there is no other, if the failure was one that may pass (2).
    ``on_loss``: ``raise`` ends the speech at the first sentence that is lost, by
    :class:`SpeechIncomplete`; ``tell`` yields :class:`Lost` and goes on (``raise``).
    """

    voice: str | None
    speed: float | None
    sample_rate: int | None
    format: str | None
    marks: bool
    approve: Approve | None
    chunker: Chunker | None
    markdown: bool
    depth: int
    max_chars_in_flight: int
    max_unheard_s: float
    player: Player | None
    retries: int
    on_loss: Literal["raise", "tell"]


class _Slot:
    """A sentence on its way."""

    def __init__(self, sentence: Sentence, skipped: Skipped | None = None) -> None:
        self.sentence = sentence
        self.skipped = skipped
        self.utterance: Utterance | None = None
        self.error: UtterwireError | None = None
        self.tries = 0
        self.backoff = Backoff()
        self.ready_at = -math.inf
        self.start: Start | None = None
        self.marks = False  # whether they were asked for
        self.refused: str | None = None  # the code by which they may have been
        self.audio_bytes = 0  # yielded
        self.at_s = 0.0  # where its audio begins, in the player's audio
        self.audio_s = 0.0
        self.words: list[Word] = []
        self.complete = skipped is not None

    @property
    def text(self) -> str:
        return self.sentence.spoken or ""

    @property
    def waits(self) -> bool:
        """Whether it is still, or again, to be asked for."""
        return self.utterance is None and self.skipped is None and self.error is None

    @property
    def in_flight(self) -> bool:
        return self.utterance is not None and not self.utterance.inbox.ended


class Speaking:
    """The work of one speech: two tasks that read and ask, and what they know.

    It knows nothing of the :class:`Speech` in the program's hands, so that losing that ends this.
    """

    def __init__(self, backend: "Backend", text: Text, options: SpeechOptions) -> None:
        unknown = set(options) - set(SpeechOptions.__annotations__)
        if unknown:
            raise TypeError(f"speak() knows no {', '.join(sorted(unknown))}")
        self._backend = backend
        self._voice = options.get("voice")
        self._speed = options.get("speed")
        self._sample_rate = options.get("sample_rate")
        self._format = options.get("format")
        self._marks = options.get("marks", True)
        self._approve = options.get("approve")
        self._chunker = options.get("chunker") or IncrementalSentenceChunker()
        self._markdown = options.get("markdown", True)
        self._depth = _positive("depth", options.get("depth", 3))
        self._max_chars = _positive("max_chars_in_flight", options.get("max_chars_in_flight", 2000))
        self._max_unheard_s = _positive("max_unheard_s", options.get("max_unheard_s", 30.0))
        self.player = options.get("player") or Player()
        self._retries = options.get("retries", 2)
        whole = isinstance(self._retries, int) and not isinstance(self._retries, bool)
        if not whole or self._retries < 0:
            raise RequestInvalid(f"retries is {self._retries!r}: give a whole number, 0 or more")
        self._on_loss = options.get("on_loss", "raise")
        if self._on_loss not in ("raise", "tell"):
            raise RequestInvalid(f"on_loss is {self._on_loss!r}: give 'raise' or 'tell'")
        self._text = text
        self._fragments, self._release = _fragments(text)
        self._state = SpeakableState()
        self._count = 0
        self._position = 0
        self._loose = ""  # taken from the source, and no sentence yet
        self._slots: deque[_Slot] = deque()  # not yielded to the end
        self._past: list[_Slot] = []  # yielded, in order
        self._heard = 0  # how many of them were heard whole
        self._bell = Bell()
        self._loop = asyncio.get_running_loop()
        self._source_ended = False
        self._source_error: Exception | None = None
        self._fatal: Exception | None = None
        self._over = False
        self._reading = False
        self.interruption: Interruption | None = None
        self._interrupting: asyncio.Task[Interruption] | None = None
        self._left = False
        self._tasks = {
            asyncio.create_task(self._read(), name="utterwire-speech-read"),
            asyncio.create_task(self._ask(), name="utterwire-speech-ask"),
        }
        backend.speeches.add(self)
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    @property
    def over(self) -> bool:
        """Whether nothing more will be yielded."""
        return self._over

    def _task_ended(self, _: asyncio.Task[Any]) -> None:
        stopping = self._interrupting
        if all(task.done() for task in self._tasks) and (stopping is None or stopping.done()):
            self._backend.speeches.discard(self)

    # -- from the source to sentences

    async def _read(self) -> None:
        try:
            try:
                while not self._over:
                    try:
                        fragment = await anext(self._fragments)
                    except StopAsyncIteration:
                        break
                    await self._take(fragment)
                await self._add(self._chunker.flush())
            finally:
                await self._release()
        except Exception as exc:
            self._source_error = exc
        except asyncio.CancelledError:
            # Where nobody here cancelled it, the source did, and its text is not whole.
            self._source_error = SpeechIncomplete(
                "the source of the text was cancelled before its end",
                text=self._loose,
                unspoken=self._loose,
                audio_bytes=0,
                retryable=False,
            )
            raise
        finally:
            self._source_ended = True
            self._bell.ring()

    async def _take(self, fragment: object) -> None:
        if not isinstance(fragment, str):
            raise RequestInvalid(f"a fragment is {type(fragment).__name__}: give strings")
        for at in range(0, len(fragment), _SLICE_CHARS):
            piece = fragment[at : at + _SLICE_CHARS]
            self._loose += piece
            await self._add(self._chunker.feed(piece))
            if len(fragment) > _SLICE_CHARS:
                await asyncio.sleep(0)

    async def _add(self, pieces: list[str]) -> None:
        for piece in pieces:
            while len(self._slots) >= self._depth + _READY:
                await self._bell.wait()
            slot = await self._decide(piece)
            self._count += 1
            self._position += len(piece)
            self._loose = self._loose[len(piece) :]
            self._slots.append(slot)
            self._bell.ring()

    async def _decide(self, piece: str) -> _Slot:
        said = speakable(piece, self._state) if self._markdown else piece.strip()
        reason: Literal["unspeakable", "dropped"] = "unspeakable"
        if _is_spoken(said) and self._approve is not None:
            answer = await self._approve(said)
            if not isinstance(answer, str | None):
                raise RequestInvalid(
                    f"approve returned {type(answer).__name__}: give a string or None"
                )
            if answer is None:
                reason = "dropped"
            said = answer or ""
        spoken = said if _is_spoken(said) else None
        sentence = Sentence(self._count, self._position, piece, spoken)
        return _Slot(sentence, Skipped(sentence, reason) if spoken is None else None)

    # -- from sentences to utterances

    async def _ask(self) -> None:
        try:
            while not self._over:
                slot = next((slot for slot in self._slots if slot.waits), None)
                if slot is None:
                    await self._bell.wait()
                elif (wait := self._wait_for_room(slot)) is not None:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(None if math.isinf(wait) else wait):
                            await self._bell.wait()
                else:
                    await self._ask_for(slot)
        except Exception as exc:
            self._fatal = exc
            self._bell.ring()

    def _wait_for_room(self, slot: _Slot) -> float | None:
        """None if a sentence may be asked for; else after how long to look again, at the latest."""
        unheard_s = self.player.queued_s
        if slot is not self._slots[0]:
            flying = [other for other in self._slots if other.in_flight]
            chars = sum(len(other.text) for other in flying)
            if flying and (len(flying) >= self._depth or chars + len(slot.text) > self._max_chars):
                return math.inf
            # What waits behind the sentence that is read holds up those after it, and not it.
            unheard_s += self._unread_s()
        waits = [slot.ready_at - self._loop.time(), unheard_s - self._max_unheard_s]
        # Not for every sample that is heard.
        return max(*waits, 0.01) if max(waits) > 0 else None

    def _unread_s(self) -> float:
        """Audio that has come and was not yielded."""
        seconds = 0.0
        for slot in self._slots:
            inbox = None if slot.utterance is None else slot.utterance.inbox
            if inbox is not None and inbox.start is not None:
                width = SAMPLE_BYTES.get(inbox.start.format)
                if width:
                    unread = inbox.received_bytes - slot.audio_bytes
                    seconds += unread / (width * inbox.start.sample_rate)
        return seconds

    async def _ask_for(self, slot: _Slot) -> None:
        backoff = Backoff()
        slot.marks = self._marks and slot.refused is None and not self._backend.refuses_marks
        for left in range(self._retries, -1, -1):
            try:
                await self._backend.open()
                utterance = self._backend.synthesize(
                    slot.text,
                    voice=self._voice,
                    speed=self._speed,
                    sample_rate=self._sample_rate,
                    format=self._format,
                    marks=("word",) if slot.marks else (),
                )
                break
            except RequestInvalid as exc:
                slot.error = exc
                self._bell.ring()
                return
            except UtterwireError as exc:
                # Nothing was sent.
                if not left or not exc.retryable:
                    raise
                await asyncio.sleep(backoff.wait_s(getattr(exc, "retry_after_s", None)))
        slot.utterance = utterance
        utterance.inbox.watch = lambda: self._ended(slot, utterance)
        self._bell.ring()

    def _ended(self, slot: _Slot, utterance: Utterance) -> None:
        """An utterance came to its end, read or not."""
        error = utterance.inbox.failure
        if error is None and slot.refused not in (None, "internal"):
            self._backend.refuses_marks = True  # that was what it minded
        if error is not None and slot.utterance is utterance:
            self._ask_again(slot, error)
        self._bell.ring()

    def _ask_again(self, slot: _Slot, error: UtterwireError) -> bool:
        """Have a sentence asked for again, if that cannot speak anything twice."""
        never_looked_at = isinstance(error, SessionLost) and error.processed is False
        if self._over or slot.audio_bytes or isinstance(error, UtteranceCancelled):
            return False
        without_marks = self._may_mean_marks(slot, error)
        if not error.retryable and not never_looked_at and not without_marks:
            return False
        # Where the session ended, it is a try only for the first that did not come to its end.
        behind = isinstance(error, SessionLost | DeadlineExceeded) and any(
            other.waits and other.tries for other in _before(self._slots, slot)
        )
        if not behind and not without_marks:
            if slot.tries >= self._retries:
                return False
            slot.tries += 1
            told = getattr(error, "retry_after_s", None)
            if slot.tries > 1 or told is not None or not isinstance(error, SessionLost):
                slot.ready_at = self._loop.time() + slot.backoff.wait_s(told)
        utterance, slot.utterance = slot.utterance, None
        slot.start, slot.words = None, []
        if utterance is not None:
            utterance.give_up()
        return True

    def _may_mean_marks(self, slot: _Slot, error: UtterwireError) -> bool:
        """Whether a sentence may have been refused because words were to be timed; once."""
        if not slot.marks or not isinstance(error, UtteranceRejected | UtteranceFailed):
            return False
        utterance = slot.utterance
        begun = utterance is not None and utterance.inbox.start is not None
        if begun or (error.code in ERROR_CODES and error.code not in _GENERAL_CODES):
            return False
        slot.marks, slot.refused = False, error.code
        return True

    # -- from utterances to the reader

    async def next(self) -> SpeechEvent:
        if self._reading:
            raise RuntimeError("another task is already reading this speech")
        self._reading = True
        try:
            return await self._next()
        except (StopAsyncIteration, Exception):
            await self.stop()
            raise
        except BaseException:
            self.give_up()
            raise
        finally:
            self._reading = False

    async def _next(self) -> SpeechEvent:
        while not self._over:
            if not self._slots:
                if not self._source_ended:
                    await self._bell.wait()
                    continue
                if self._source_error is not None:
                    raise self._source_error
                break
            slot = self._slots[0]
            if slot.skipped is not None:
                self._pass(slot)
                return slot.skipped
            if slot.error is not None:
                return self._lose(slot, slot.error)
            utterance = slot.utterance
            if utterance is None:
                if isinstance(self._fatal, UtterwireError):
                    raise self._incomplete(slot, self._fatal) from self._fatal
                if self._fatal is not None:
                    raise self._fatal
                await self._bell.wait()
                continue
            try:
                event = await anext(utterance)
            except StopAsyncIteration:
                if slot.utterance is utterance:
                    self._pass(slot)
                continue
            except UtterwireError as exc:
                if slot.utterance is utterance and not self._over:
                    slot.error = exc
                continue
            if slot.utterance is utterance and not self._over:
                if (missing := self._missing(slot, event)) is None:
                    await self._hear(slot, event)
                    if not self._over:
                        return Spoken(slot.sentence, utterance, event)
                elif not self._ask_again(slot, missing):
                    slot.error = missing
        if self._left:
            raise self._cut_off()
        raise StopAsyncIteration

    def _cut_off(self) -> SpeechIncomplete:
        """What speaks it went away before it was whole: told once."""
        self._left = False
        slot = self._slots[0] if self._slots else None
        return SpeechIncomplete(
            "what spoke the text was closed before its end",
            text=self._loose if slot is None else slot.sentence.text,
            unspoken=self.unspoken,
            audio_bytes=0 if slot is None else slot.audio_bytes,
            retryable=False,
        )

    def _missing(self, slot: _Slot, event: Event) -> AudioMissing | None:
        if not isinstance(event, Complete) or not event.missing_bytes:
            return None
        return AudioMissing(
            f"the audio has a hole: {event.received_bytes} of {event.audio_bytes} bytes came",
            audio_bytes=event.received_bytes,
            missing_bytes=event.missing_bytes,
            request_id=slot.utterance.request_id if slot.utterance is not None else None,
        )

    async def _hear(self, slot: _Slot, event: Event) -> None:
        """An event is about to be yielded."""
        playback = self.player.playback
        match event:
            case Start():
                slot.start = event
            case Marks():
                # A text has no more words than characters, whatever is told of it.
                slot.words.extend(event.words[: len(slot.text) - len(slot.words)])
            case Audio():
                assert slot.start is not None
                if not slot.audio_bytes:
                    slot.at_s = playback.enqueued_s
                slot.audio_bytes += len(event.data)
                width = SAMPLE_BYTES.get(slot.start.format)
                if width:
                    slot.audio_s += len(event.data) / (width * slot.start.sample_rate)
                await self.player.play(event.data, slot.start)
            case Complete():
                slot.complete = True
                if not slot.audio_s and slot.audio_bytes and event.duration_s:
                    # Of a format whose bytes do not tell their length.
                    slot.audio_s = event.duration_s
                    self.player.queue(event.duration_s)

    def _pass(self, slot: _Slot) -> None:
        """A sentence was yielded to its end."""
        self._slots.popleft()
        slot.utterance = None
        self._past.append(slot)
        heard_s = self.player.heard_s
        while self._heard < len(self._past):
            past = self._past[self._heard]
            if past.at_s + past.audio_s > heard_s:
                break
            # Of what was heard the text is kept, to tell it.
            past.words = []
            self._heard += 1
        self._bell.ring()

    def _lose(self, slot: _Slot, error: UtterwireError) -> Lost:
        """A sentence will not be spoken, or not to its end."""
        if self._on_loss == "raise" or isinstance(error, UtteranceCancelled):
            raise self._incomplete(slot, error) from error
        if slot.utterance is not None:
            slot.utterance.give_up()
        self._pass(slot)
        return Lost(slot.sentence, error, slot.audio_bytes)

    def _incomplete(self, slot: _Slot, error: Exception) -> SpeechIncomplete:
        what = "was not spoken to its end" if slot.audio_bytes else "was not spoken"
        return SpeechIncomplete(
            f"sentence {slot.sentence.index + 1} {what}: {error}",
            text=slot.sentence.text,
            unspoken=self._taken_from(slot.sentence.start),
            audio_bytes=slot.audio_bytes,
            retryable=getattr(error, "retryable", False),
        )

    def _taken_from(self, position: int) -> str:
        """What was taken from the source, from a place in it on."""
        texts = [
            slot.sentence.text[max(position - slot.sentence.start, 0) :]
            for slot in (*self._past, *self._slots)
            if slot.sentence.end > position
        ]
        return "".join(texts) + self._loose[max(position - self._position, 0) :]

    @property
    def unspoken(self) -> str:
        """What was taken from the source and was not yielded as audio to its end."""
        first = self._slots[0].sentence.start if self._slots else self._position
        return self._taken_from(first)

    # -- the end

    def give_up(self) -> None:
        """Ask for nothing more, and have the endpoint stop; needs no waiting."""
        if not self._over:
            self._over = True
            # Who speaks next is not late.
            self.player.playback.finish()
        for task in self._tasks:
            task.cancel()
        for slot in self._slots:
            if slot.utterance is not None:
                slot.utterance.give_up()
        self._bell.ring()

    async def stop(self) -> None:
        """The same, and wait until nothing of it is left."""
        self.give_up()
        _, left = await asyncio.wait(self._tasks, timeout=_STOP_S)
        if left:
            _logger.warning("the text of a speech does not let itself be cancelled")

    async def end(self) -> None:
        """The same, when what speaks it goes away: whoever reads it is told if it was not whole."""
        lacking = any(not slot.complete for slot in self._slots)
        if not self._over:
            self._left = lacking or not self._source_ended or self._source_error is not None
        await self.stop()
        if self._interrupting is not None:
            await asyncio.wait({self._interrupting})

    async def interrupt(self) -> Interruption:
        if self._interrupting is None:
            # In a task of its own: who asks for it may be cancelled meanwhile, by this very call
            # where it is the gate or the source of the text, and the endpoint is to stop anyhow.
            self._backend.speeches.add(self)
            self._interrupting = asyncio.create_task(
                self._finish_interrupt(self._silence()), name="utterwire-speech-interrupt"
            )
            self._interrupting.add_done_callback(self._interrupted)
        return await asyncio.shield(self._interrupting)

    def _interrupted(self, task: asyncio.Task[Interruption]) -> None:
        self._task_ended(task)
        if not task.cancelled():
            task.exception()  # whoever asked may be gone: nothing is said of it elsewhere

    async def _finish_interrupt(self, cut: Interruption) -> Interruption:
        flying = [s.utterance for s in self._slots if s.utterance is not None]
        stopped = await self._backend.interrupt([u for u in flying if not u.inbox.ended])
        await self.stop()
        self.interruption = replace(cut, session_dropped=not stopped)
        return self.interruption

    def _silence(self) -> Interruption:
        """Silent from now on: nothing is waited for here."""
        heard_s = self.player.heard_s
        # What sounds after the last of it was heard is not its own, where a player is shared.
        sounds = not self._over or any(
            slot.at_s + slot.audio_s > heard_s + _ENOUGH or (slot.audio_bytes and not slot.audio_s)
            for slot in (*self._past, *self._slots)
        )
        dropped_s = self.player.flush() if sounds else 0.0
        self._over = True
        for task in self._tasks:
            task.cancel()
        for slot in self._slots:
            if slot.utterance is not None:
                # One message stops them all, and its answer is waited for.
                slot.utterance.inbox.cancel_sent = True
                slot.utterance.give_up()
        self._bell.ring()
        return self._cut(heard_s, dropped_s)

    def _cut(self, heard_s: float, dropped_s: float) -> Interruption:
        texts: list[str] = []
        between: list[str] = []  # what is silent, and heard if what comes after it is
        whole: list[Sentence] = []
        running: Sentence | None = None
        position, seconds = 0, 0.0
        precision: Precision = "sentence"
        for slot in (*self._past, *self._slots):
            sentence = slot.sentence
            if not slot.audio_s:
                if not slot.complete and slot.error is None:
                    break
                if slot.complete and (not slot.skipped or slot.skipped.reason == "unspeakable"):
                    between.append(sentence.text)
                continue
            heard = min(heard_s - slot.at_s, slot.audio_s)
            if heard <= 0:
                break
            seconds += heard
            if slot.complete and heard >= slot.audio_s - _ENOUGH:
                texts += [*between, sentence.text]
                whole.append(sentence)
                position = sentence.end
                running, precision = None, "sentence"
            else:
                duration = slot.audio_s if slot.complete else self._duration_s(slot)
                size, precision = heard_of(sentence, slot.words, heard, duration)
                running = sentence
                if size:
                    texts += [*between, sentence.text[:size]]
                    position = sentence.start + size
                if slot.error is None:
                    break
            between.clear()
        return Interruption(
            text="".join(texts),
            position=position,
            unheard=self._taken_from(position),
            precision=precision,
            sentences=tuple(whole),
            running=running,
            heard_s=seconds,
            dropped_s=dropped_s,
            session_dropped=False,
        )

    def _duration_s(self, slot: _Slot) -> float:
        """About how long a sentence is of which not all audio came, going by those before it."""
        whole = [other for other in self._past if other.complete and other.audio_s]
        pace = _CHARS_PER_S
        if whole:
            pace = sum(len(o.text) for o in whole) / sum(o.audio_s for o in whole)
        return max(slot.audio_s, len(slot.text) / pace)


class Speech:
    """A text that is being spoken: iterate over it for what comes.

    ``async for event in speech`` yields, in the order of the text, a :class:`Spoken` for each
    ``Start``, ``Audio``, ``Marks`` and ``Complete`` of a sentence, a :class:`Skipped` for one that
    is not spoken, and, if asked to, a :class:`Lost` for one that could not be. The work begins
    with the call, not with the first read. It ends the speech to leave the loop early and let go
    of this object, to call ``aclose``, to leave an ``async with`` block, or to have the read
    cancelled: nothing more is taken from the text, and the endpoint is told to stop if it can be.

    Raises :class:`SpeechIncomplete` when something is lost, and what the text or the gate raised,
    after what was complete before it was yielded.
    """

    def __init__(self, backend: "Backend", text: Text, options: SpeechOptions) -> None:
        self._speaking = Speaking(backend, text, options)
        self._loop = asyncio.get_running_loop()

    @property
    def player(self) -> Player:
        """The player that was given, or the one that is taken for granted."""
        return self._speaking.player

    @property
    def unspoken(self) -> str:
        """What was taken from the text so far and was not yielded to its end, as audio."""
        return self._speaking.unspoken

    @property
    def interruption(self) -> Interruption | None:
        """How it was cut short, once :meth:`interrupt` has returned."""
        return self._speaking.interruption

    async def interrupt(self) -> Interruption:
        """Stop it everywhere: the player falls silent at once, what waits or arrives is thrown
        away, the endpoint is told to stop, and its answer is waited for.

        Returns what was heard. Whoever iterates gets nothing more: the loop ends. May be called at
        any time, also after the last audio came, and again. A session whose endpoint cannot be told
        to stop, or does not answer, is ended (``session_dropped``).
        """
        return await self._speaking.interrupt()

    async def play(self) -> None:
        """Go through it to the end; returns when all was heard. Raises what iterating raises."""
        async for _ in self:
            pass
        await self.player.drain()

    async def read(self) -> bytes:
        """All of its audio at once. Raises what iterating raises."""
        return b"".join(
            [
                event.event.data
                async for event in self
                if isinstance(event, Spoken) and isinstance(event.event, Audio)
            ]
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SpeechEvent:
        return await self._speaking.next()

    async def aclose(self) -> None:
        """Give up what is left of it; returns when none of it runs any more."""
        await self._speaking.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        # `break` leaves no other trace than the loss of the last reference.
        speaking = getattr(self, "_speaking", None)
        if speaking is None or speaking.over:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: so is all of it
            self._loop.call_soon_threadsafe(speaking.give_up)


def _before(slots: Iterable[_Slot], slot: _Slot) -> Iterator[_Slot]:
    return itertools.takewhile(lambda other: other is not slot, slots)


def _is_spoken(text: str) -> bool:
    return any(map(str.isalnum, text))


def _positive(name: str, value: T) -> T:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise RequestInvalid(f"{name} is {value!r}: give a number greater than 0")
    return value


async def _nothing() -> None:
    pass


_END: Final = object()


def _fragments(text: Text) -> tuple[AsyncIterator[object], Callable[[], Awaitable[None]]]:
    """The fragments of a text, and what lets go of it."""
    if isinstance(text, AsyncIterable):
        iterator = aiter(text)
        return iterator, getattr(iterator, "aclose", _nothing)
    if isinstance(text, str | list | tuple):
        each = _each([text] if isinstance(text, str) else text)
    elif isinstance(text, Iterable):
        each = _in_thread(text)
    else:
        raise RequestInvalid(
            f"the text is {type(text).__name__}: give a string, or an iterable of strings"
        )
    return each, each.aclose


async def _each(fragments: Iterable[object]) -> AsyncGenerator[object]:
    for fragment in fragments:
        yield fragment


async def _in_thread(fragments: Iterable[object]) -> AsyncGenerator[object]:
    """Iterates beside the event loop, since an iterator may wait for what is not there yet."""
    thread = SideThread()
    iterators: list[Iterator[object]] = []

    def close() -> None:
        for iterator in iterators:
            with contextlib.suppress(Exception):
                getattr(iterator, "close", lambda: None)()

    try:
        iterators.append(await thread.run(lambda: iter(fragments)))
        while True:
            fragment = await thread.run(lambda: next(iterators[0], _END))
            if fragment is _END:
                return
            yield fragment
    finally:
        thread.stop(close)
