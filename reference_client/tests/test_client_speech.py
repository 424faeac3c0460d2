"""A text that comes in fragments: what is asked for when, in which order, and how much ahead."""

# ruff: noqa: PT012 - how a loop or a block is left is what is tested

import asyncio
import contextlib
import gc
import itertools
import math
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Unpack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from utterwire_client import (
    Audio,
    AudioMissing,
    Backend,
    Complete,
    ConnectFailed,
    Lost,
    Marks,
    Player,
    RequestInvalid,
    Sentence,
    SessionLost,
    Skipped,
    Speech,
    SpeechIncomplete,
    SpeechOptions,
    Spoken,
    Start,
    Utterance,
    UtteranceCancelled,
    UtteranceFailed,
    UtteranceRejected,
    UtterwireError,
    Word,
)
from utterwire_client.interruption import heard_of, in_source
from utterwire_client.speech import Text
from utterwire_client.utterance import Inbox, Request

pytestmark = pytest.mark.usefixtures("no_leftover_tasks")

START = Start(sample_rate=1000, format="pcm_s16le", voice="v")
SECOND = bytes(2000)


class Asked:
    """An utterance that was asked for; the test says what comes of it."""

    def __init__(self, text: str, inbox: Inbox) -> None:
        self.text = text
        self.inbox = inbox

    def begin(self, start: Start = START) -> None:
        self.inbox.start = start
        self.inbox.put(start)

    def audio(self, data: bytes = SECOND) -> None:
        self.inbox.received_bytes += len(data)
        self.inbox.put(Audio(data))

    def words(self, *words: Word) -> None:
        self.inbox.put(Marks(words))

    def end(self, error: UtterwireError | None = None, **fields: Any) -> None:
        if error is None:
            self.inbox.put(Complete(received_bytes=self.inbox.received_bytes, **fields))
        self.inbox.end(error)

    def say(self, *chunks: bytes, **fields: Any) -> None:
        self.begin()
        for chunk in chunks or (SECOND,):
            self.audio(chunk)
        self.end(**fields)


class Dots:
    """Cuts at each stop that a space comes after: where texts are cut is tested elsewhere."""

    def __init__(self) -> None:
        self._buffer = ""

    def feed(self, fragment: str) -> list[str]:
        pieces = []
        for char in fragment:
            if char == " " and self._buffer[-1:] in ".!?":
                pieces.append(self._buffer)
                self._buffer = ""
            self._buffer += char
        return pieces

    def flush(self) -> list[str]:
        rest, self._buffer = self._buffer, ""
        return [rest] if rest else []


class Stage(Backend):
    """A backend that says what the test has it say, or, with ``obliging``, a second at once."""

    def __init__(self, *, obliging: bool = False) -> None:
        super().__init__()
        self.asked: list[Asked] = []
        self.fields: list[dict[str, Any]] = []
        self.obliging = obliging
        self.opened = 0
        self.refusals: list[Exception] = []
        self.interrupted: list[str] = []
        self.stops = True
        self._changed = asyncio.Event()

    def speak(self, text: Text, **options: Unpack[SpeechOptions]) -> Speech:
        options.setdefault("chunker", Dots())
        return super().speak(text, **options)

    async def open(self) -> None:
        self.opened += 1
        if self.refusals:
            raise self.refusals.pop(0)

    def synthesize(self, text: str, **fields: Any) -> Utterance:
        if text.startswith("Invalid"):
            raise RequestInvalid("no")
        inbox = Inbox(Request(text), taken=lambda: None)
        asked = Asked(text, inbox)
        self.asked.append(asked)
        self.fields.append(fields)
        self._changed.set()
        if self.obliging:
            asked.say()
        return Utterance(inbox, Inbox.abandon)

    async def interrupt(self, utterances: Sequence[Utterance]) -> bool:
        self.interrupted += [u.inbox.request.text for u in utterances]
        await asyncio.sleep(0)
        return self.stops

    async def until(self, count: int) -> Asked:
        """Wait until so many were asked for; returns the last of them."""
        async with asyncio.timeout(60):
            while len(self.asked) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.asked[count - 1]

    @property
    def texts(self) -> list[str]:
        return [asked.text for asked in self.asked]


async def settle() -> None:
    """Let every task run as far as it can without anything new."""
    for _ in range(200):
        await asyncio.sleep(0)


class Tokens:
    """A source of fragments that come when the test says so."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[object] = asyncio.Queue()
        self.taken = 0
        self.closed = False

    def put(self, *fragments: object) -> None:
        for fragment in fragments:
            self._queue.put_nowait(fragment)

    async def __aiter__(self) -> AsyncIterator[str]:
        try:
            while (fragment := await self._queue.get()) is not None:
                self.taken += 1
                if isinstance(fragment, BaseException):
                    raise fragment
                yield fragment  # type: ignore[misc]
        finally:
            self.closed = True


async def events(speech: Speech) -> list[Any]:
    return [event async for event in speech]


def said(events: list[Any]) -> list[str]:
    """The sentences of which audio was yielded, in its order."""
    texts = [e.sentence.text for e in events if isinstance(e, Spoken) and e.event == Audio(SECOND)]
    return list(dict.fromkeys(texts))


def rejected(*, retryable: bool = True, wait: float | None = None) -> UtteranceRejected:
    return UtteranceRejected("no", code="overloaded", retryable=retryable, retry_after_s=wait)


def lost(*, processed: bool | None = None, retryable: bool = True) -> SessionLost:
    return SessionLost("gone", retryable=retryable, processed=processed)


# -- sentences


async def test_a_text_is_spoken_sentence_by_sentence() -> None:
    stage = Stage(obliging=True)
    got = await events(stage.speak("One thing. Two things! Three?", voice="anna", speed=1.5))
    assert stage.texts == ["One thing.", "Two things!", "Three?"]
    assert [type(e.event) for e in got] == [Start, Audio, Complete] * 3
    assert [e.sentence.index for e in got[::3]] == [0, 1, 2]
    assert "".join(e.sentence.text for e in got[::3]) == "One thing. Two things! Three?"
    assert all(e.utterance.inbox.request.text == e.sentence.spoken for e in got)
    assert stage.fields[0] == {
        "voice": "anna",
        "speed": 1.5,
        "sample_rate": None,
        "format": None,
        "marks": ("word",),
    }
    assert not stage.speeches


@given(
    text=st.lists(
        st.sampled_from(["One. ", "Two? ", "**3**! ", "\n\n", "... ", "word ", "\U0001f600 ", "'"])
    ).map("".join),
    cuts=st.lists(st.integers(0, 60)),
    threaded=st.booleans(),
)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
def test_all_sentences_joined_are_the_input(text: str, cuts: list[int], threaded: bool) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    fragments = [text[a:b] for a, b in itertools.pairwise(places)]

    async def main() -> list[Any]:
        source: Any = (f for f in fragments) if threaded else fragments
        return await events(Stage(obliging=True).speak(source, chunker=None))

    sentences = {e.sentence.index: e.sentence for e in asyncio.run(main())}
    assert [*sentences] == [*range(len(sentences))]
    assert "".join(s.text for s in sentences.values()) == text
    assert all(text[s.start : s.end] == s.text for s in sentences.values())


async def test_a_sentence_leaves_as_soon_as_it_is_one() -> None:
    stage, tokens = Stage(), Tokens()
    speech = stage.speak(tokens)
    tokens.put("Hello", " there", ". ", "How ")
    asked = await stage.until(1)
    assert asked.text == "Hello there."
    asked.say()
    assert [type((await anext(speech)).event) for _ in range(3)] == [Start, Audio, Complete]  # type: ignore[union-attr]
    tokens.put("are you?", None)
    (await stage.until(2)).say()
    assert said(await events(speech)) == [" How are you?"]
    assert tokens.closed


async def test_what_has_nothing_to_say_is_skipped_and_told() -> None:
    stage = Stage(obliging=True)
    text = "Look.\n\n```\nx = 1\n```\n\nDone."
    got = await events(stage.speak(text, chunker=None))
    assert stage.texts == ["Look.", "Done."]
    got_only = await events(stage.speak("... \U0001f600"))
    assert [(e.sentence.text, e.reason) for e in got_only] == [
        ("...", "unspeakable"),
        (" \U0001f600", "unspeakable"),
    ]
    assert "".join(dict.fromkeys(e.sentence.text for e in got)) == text
    await events(stage.speak("**No** markup. ", markdown=False))
    assert stage.texts[-1] == "**No** markup."


async def test_nothing_at_all() -> None:
    stage = Stage()
    assert await events(stage.speak("")) == []
    assert await events(stage.speak([])) == []
    assert await stage.speak(iter(())).read() == b""


# -- how much ahead


async def test_stop_and_wait() -> None:
    stage = Stage()
    reading = asyncio.create_task(events(stage.speak("A a. B b. C c.", depth=1)))
    for count in (1, 2, 3):
        asked = await stage.until(count)
        await settle()
        assert len(stage.asked) == count
        asked.say()
    assert len(said(await reading)) == 3


async def test_several_in_flight() -> None:
    stage = Stage()
    async with stage.speak("A a. B b. C c. D d. E e.", depth=3) as speech:
        await stage.until(3)
        await settle()
        assert len(stage.asked) == 3
        stage.asked[0].say()
        await stage.until(4)
        await settle()
        assert len(stage.asked) == 4
        assert not await speech.aclose()  # type: ignore[func-returns-value]


async def test_characters_in_flight_are_bounded() -> None:
    stage = Stage()
    long = "This sentence alone is longer than the bound that there is."
    speech = stage.speak(f"Ab c. De f. {long} Gh i.", depth=9, max_chars_in_flight=10)
    reading = asyncio.create_task(events(speech))
    await stage.until(2)
    await settle()
    assert stage.texts == ["Ab c.", "De f."]
    for asked in stage.asked[:2]:
        asked.say()
    await stage.until(3)
    await settle()
    assert stage.texts[2:] == [long]
    stage.asked[2].say()
    (await stage.until(4)).say()
    assert len(said(await reading)) == 4


async def test_audio_that_was_not_heard_is_bounded(clock: Any) -> None:
    """By what the player has not played, or, where there is none, by the clock."""
    stage = Stage()
    loop = asyncio.get_running_loop()
    player = Player(clock=loop.time)
    speech = stage.speak("A a. B b. C c.", depth=1, max_unheard_s=500, player=player)
    reading = asyncio.create_task(events(speech))
    (await stage.until(1)).say(SECOND * 10_000)
    await settle()
    await clock.advance(9_000)
    await settle()
    assert len(stage.asked) == 1
    await clock.advance(1_000)
    (await stage.until(2)).say(SECOND * 100)
    (await stage.until(3)).say(SECOND * 100)
    await reading
    assert 0 < player.queued_s <= 200


async def test_audio_that_nobody_reads_is_not_heard() -> None:
    stage = Stage(obliging=True)
    speech = stage.speak(["A a. "] * 50, max_unheard_s=2)
    await settle()
    assert len(stage.asked) == 3  # the first, and two that came before it was known how long
    await speech.aclose()


async def test_as_fast_as_it_goes() -> None:
    stage = Stage(obliging=True)
    got = await events(stage.speak(["Aa b. "] * 50, max_unheard_s=math.inf))
    assert len(stage.asked) == 50
    assert sum(isinstance(event, Spoken) for event in got) == 150


async def test_a_source_is_not_read_ahead_without_bound() -> None:
    taken = 0

    async def endless() -> AsyncIterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "Some words. "

    stage = Stage()
    speech = stage.speak(endless(), depth=2)
    await settle()
    assert len(stage.asked) == 2
    before = taken
    assert before < 8
    stage.asked[0].say()
    for _ in range(3):
        await anext(speech)
    await settle()
    assert taken == before
    assert len(stage.asked) == 3
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await anext(speech)
    await speech.aclose()


# -- sources


async def test_an_iterator_that_blocks_blocks_nobody() -> None:
    release, closed = threading.Event(), threading.Event()

    def slow() -> Iterator[str]:
        try:
            yield "One thing. And "
            release.wait(20)
            yield "another."
        finally:
            closed.set()

    stage = Stage(obliging=True)
    speech = stage.speak(slow())
    assert isinstance(await anext(speech), Spoken)
    release.set()
    assert len(said(await events(speech))) == 2
    assert await asyncio.to_thread(closed.wait, 20)


async def test_an_iterator_that_blocks_for_ever_is_left() -> None:
    release = threading.Event()

    def stuck() -> Iterator[str]:
        yield "One thing. And "
        release.wait(20)

    speech = Stage(obliging=True).speak(stuck())
    await anext(speech)
    await speech.aclose()
    release.set()


async def test_a_source_is_closed_with_the_speech() -> None:
    stage, tokens = Stage(), Tokens()
    speech = stage.speak(aiter(tokens))
    tokens.put("Hello. ")
    await settle()
    await speech.aclose()
    assert tokens.closed
    assert not stage.speeches


class Broke(Exception):
    pass


async def test_what_the_source_raises_comes_after_what_is_whole() -> None:
    stage, tokens = Stage(obliging=True), Tokens()
    speech = stage.speak(tokens)
    tokens.put("One thing. Another th", Broke())
    got = []
    with pytest.raises(Broke):
        async for event in speech:
            got.append(event)  # noqa: PERF401 - what came before it is wanted, too
    assert said(got) == ["One thing."]
    assert speech.unspoken == " Another th"


async def test_a_source_that_is_cancelled_is_not_taken_for_whole() -> None:
    tokens = Tokens()
    speech = Stage(obliging=True).speak(tokens)
    tokens.put("One thing. Another th", asyncio.CancelledError())
    with pytest.raises(SpeechIncomplete) as caught:
        await events(speech)
    assert caught.value.unspoken == " Another th"


async def test_a_source_that_will_not_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("utterwire_client.speech._STOP_S", 0.05)
    release = asyncio.Event()

    async def stubborn() -> AsyncIterator[str]:
        yield "One. "
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    speech = Stage().speak(stubborn())
    await settle()
    await speech.aclose()
    release.set()
    await settle()


@pytest.mark.parametrize("wrong", [5, None, b"bytes", ["One. ", 7], [None]])
async def test_what_is_no_text(wrong: Any) -> None:
    with pytest.raises(RequestInvalid):
        await events(Stage(obliging=True).speak(wrong))


@pytest.mark.parametrize(
    "options",
    [
        {"depth": 0},
        {"max_unheard_s": -1},
        {"max_chars_in_flight": True},
        {"on_loss": "ignore"},
        {"depth": "3"},
        {"retries": -1},
        {"retries": 1.5},
        {"retries": "2"},
    ],
)
async def test_options_that_make_no_sense(options: Any) -> None:
    with pytest.raises(RequestInvalid):
        Stage().speak("x", **options)


async def test_options_that_there_are_not() -> None:
    with pytest.raises(TypeError, match="depht"):
        Stage().speak("x", depht=3)  # type: ignore[call-arg]


# -- the gate


async def test_the_gate_changes_and_drops() -> None:
    seen = []

    async def approve(sentence: str) -> str | None:
        seen.append(sentence)
        await asyncio.sleep(0)
        return {"Drop me.": None, "Change me.": "Changed.", "Empty me.": "..."}.get(
            sentence, sentence
        )

    stage = Stage(obliging=True)
    text = "**Keep** me. Drop me. Change me. Empty me. \U0001f600"
    got = await events(stage.speak(text, approve=approve))
    assert seen == ["Keep me.", "Drop me.", "Change me.", "Empty me."]
    assert stage.texts == ["Keep me.", "Changed."]
    skipped = [(e.sentence.text, e.reason) for e in got if isinstance(e, Skipped)]
    assert skipped[0] == (" Drop me.", "dropped")
    assert [reason for _, reason in skipped[1:]] == ["unspeakable"] * (len(skipped) - 1)
    changed = next(e for e in got if e.sentence.spoken == "Changed.")
    assert changed.sentence.text == " Change me."


async def test_the_gate_holds_what_comes_after_in_order() -> None:
    stage = Stage(obliging=True)
    gate = asyncio.Event()
    held: list[str] = []

    async def approve(sentence: str) -> str | None:
        held.append(sentence)
        if sentence.startswith("B"):
            await gate.wait()
        return sentence

    taken = 0

    async def source() -> AsyncIterator[str]:
        nonlocal taken
        for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
            taken += 1
            yield f"{letter} is one. "

    reading = asyncio.create_task(events(stage.speak(source(), approve=approve)))
    await settle()
    assert held == ["A is one.", "B is one."]
    assert stage.texts == ["A is one."]
    assert taken < 6
    gate.set()
    assert len(said(await reading)) == 26
    assert held == stage.texts


async def test_a_gate_that_holds_is_cancelled_with_the_speech() -> None:
    cancelled = asyncio.Event()

    async def approve(sentence: str) -> str | None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return sentence

    stage = Stage()
    speech = stage.speak("One thing. And more.", approve=approve)
    await settle()
    interruption = await speech.interrupt()
    assert cancelled.is_set()
    assert (interruption.text, interruption.unheard) == ("", "One thing. And more.")
    assert stage.asked == []


@pytest.mark.parametrize("answer", [Broke(), 7])
async def test_a_gate_that_fails(answer: object) -> None:
    async def approve(sentence: str) -> str | None:
        if sentence != "Bad one.":
            return sentence
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    stage = Stage(obliging=True)
    speech = stage.speak("Good one. Bad one. Next one.", approve=approve)
    got = []
    with pytest.raises((Broke, RequestInvalid)):
        async for event in speech:
            got.append(event)  # noqa: PERF401 - what came before it is wanted, too
    assert said(got) == ["Good one."]
    assert stage.texts == ["Good one."]
    assert speech.unspoken.startswith(" Bad one.")


# -- what is lost


async def test_what_was_not_heard_is_asked_for_again_in_its_place() -> None:
    stage = Stage()
    reading = asyncio.create_task(events(stage.speak("A a. B b. C c.")))
    await stage.until(3)
    stage.asked[0].end(rejected(wait=0.001))
    stage.asked[1].say()
    stage.asked[2].say()
    again = await stage.until(4)
    assert again.text == "A a."
    again.say()
    assert said(await reading) == ["A a.", " B b.", " C c."]


async def test_audio_that_came_and_was_not_yielded_may_be_thrown_away() -> None:
    stage = Stage()
    speech = stage.speak("A a. B b.")
    await stage.until(2)
    stage.asked[1].begin()
    stage.asked[1].audio(bytes(500))
    stage.asked[1].end(lost())
    (await stage.until(3)).say()
    stage.asked[0].say()
    assert stage.texts == ["A a.", "B b.", "B b."]
    got = await events(speech)
    assert said(got) == ["A a.", " B b."]
    assert Audio(bytes(500)) not in [e.event for e in got]


async def test_audio_that_was_yielded_is_not_repeated() -> None:
    stage = Stage()
    speech = stage.speak("A a. B b. C c")
    await stage.until(2)
    stage.asked[0].begin()
    stage.asked[0].audio()
    await anext(speech)
    await anext(speech)
    stage.asked[0].end(lost())
    with pytest.raises(SpeechIncomplete, match=r"sentence 1 .* end: gone") as caught:
        await anext(speech)
    error = caught.value
    assert (error.text, error.unspoken, error.audio_bytes) == ("A a.", "A a. B b. C c", 2000)
    assert error.retryable
    assert isinstance(error.__cause__, SessionLost)
    assert await events(speech) == []


async def test_a_loss_can_be_told_instead() -> None:
    stage = Stage()
    reading = asyncio.create_task(events(stage.speak("A a. Invalid. C c.", on_loss="tell")))
    await stage.until(2)
    stage.asked[0].begin()
    stage.asked[0].audio()
    await settle()
    stage.asked[0].end(UtteranceFailed("broke", code="internal", retryable=True))
    stage.asked[1].say()
    got = await reading
    assert said(got) == ["A a.", " C c."]
    told = [(e.sentence.text, type(e.error), e.audio_bytes) for e in got if isinstance(e, Lost)]
    assert told == [("A a.", UtteranceFailed, 2000), (" Invalid.", RequestInvalid, 0)]


async def test_nothing_is_tried_for_ever() -> None:
    stage = Stage()
    reading = asyncio.create_task(events(stage.speak("A a. B b.", retries=2)))
    for count in (1, 3, 4):
        (await stage.until(count)).end(rejected(wait=0.001))
    with pytest.raises(SpeechIncomplete) as caught:
        await reading
    assert isinstance(caught.value.__cause__, UtteranceRejected)
    assert stage.texts == ["A a.", "B b.", "A a.", "A a."]


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (rejected(retryable=False), False),
        (lost(retryable=False), False),
        (lost(retryable=False, processed=False), True),
        (ConnectFailed("no", retryable=True), True),
        (UtteranceCancelled("stopped"), False),
    ],
)
async def test_what_is_asked_for_again(error: UtterwireError, again: bool) -> None:
    stage = Stage()
    speech = stage.speak("A a.", on_loss="tell")
    (await stage.until(1)).end(error)
    if again:
        (await stage.until(2)).say()
        assert said(await events(speech)) == ["A a."]
    elif isinstance(error, UtteranceCancelled):
        with pytest.raises(SpeechIncomplete):
            await events(speech)
    else:
        assert [type(event) for event in await events(speech)] == [Lost]


async def test_what_waited_behind_a_lost_sentence_was_not_tried() -> None:
    """An endpoint that ends the session after each utterance speaks all of them."""
    stage = Stage()
    reading = asyncio.create_task(
        events(stage.speak("A a. B b. C c. D d. E e. F f.", depth=4, retries=1))
    )
    count = 0
    while len(stage.asked) < 6 or any(not asked.inbox.ended for asked in stage.asked):
        await settle()
        flying = stage.asked[count:]
        count = len(stage.asked)
        flying[0].say()
        for asked in flying[1:]:
            asked.end(lost())
        await settle()
        if len(stage.asked) == count:
            break
    assert len(said(await reading)) == 6
    assert stage.texts[:5] == ["A a.", "B b.", "C c.", "D d.", "B b."]


async def test_a_hole_in_the_audio_is_told() -> None:
    stage = Stage()
    speech = stage.speak("A a. B b.", on_loss="tell")
    await stage.until(2)
    stage.asked[0].say(audio_bytes=3000)
    stage.asked[1].begin()
    stage.asked[1].end(audio_bytes=1000)  # nothing of it came: it is asked for again
    reading = asyncio.create_task(events(speech))
    (await stage.until(3)).say()
    got = await reading
    told = [e for e in got if isinstance(e, Lost)]
    assert [(e.sentence.text, type(e.error)) for e in told] == [("A a.", AudioMissing)]
    assert said(got) == ["A a.", " B b."]


async def test_a_backend_that_cannot_be_opened() -> None:
    stage = Stage(obliging=True)
    stage.refusals = [ConnectFailed("busy", retryable=True, retry_after_s=0.001)] * 2
    assert len(said(await events(stage.speak("A a. B b.", retries=2)))) == 2
    stage.refusals = [ConnectFailed("no")]
    with pytest.raises(SpeechIncomplete) as caught:
        await events(stage.speak("A a. B b.", on_loss="tell"))
    assert (caught.value.text, caught.value.unspoken) == ("A a.", "A a. B b.")
    assert not caught.value.retryable
    stage.refusals = [OSError("odd")]
    with pytest.raises(OSError, match="odd"):
        await events(stage.speak("A a."))


# -- the player


class Recorder(Player):
    """A player whose clock the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(clock=lambda: self.now)
        self.played = b""

    async def play(self, data: bytes, start: Start) -> None:
        self.played += data
        await super().play(data, start)


async def broken() -> AsyncIterator[str]:
    yield "A a. B b. C"
    raise Broke


async def test_audio_is_played_before_it_is_yielded() -> None:
    player = Recorder()
    speech = Stage(obliging=True).speak("A a. B b.", player=player)
    async for event in speech:
        if isinstance(event, Spoken) and isinstance(event.event, Audio):
            assert player.played.endswith(event.event.data)
    assert len(player.played) == 4000
    assert player.queued_s == 2
    player.now = 1000.0
    await Stage(obliging=True).speak("A a. B b.", player=player).read()
    player.now = 2000.0
    with pytest.raises(Broke):
        await Stage(obliging=True).speak(broken(), player=player).read()
    player.now = 3000.0
    await Stage(obliging=True).speak("A a. B b.", player=player).read()
    assert player.playback.gaps == ()  # between two speeches nobody waited


async def test_play_returns_when_all_was_heard(clock: Any) -> None:
    stage = Stage()
    player = Player(clock=asyncio.get_running_loop().time)
    playing = asyncio.create_task(stage.speak("A a.", player=player).play())
    (await stage.until(1)).say(SECOND * 100)
    await settle()
    assert not playing.done()
    await clock.advance(101)
    await playing
    assert player.queued_s == 0


async def test_a_player_that_fails_ends_the_speech() -> None:
    class Full(Player):
        async def play(self, data: bytes, start: Start) -> None:
            raise OSError(28, "No space left on device")

    stage = Stage(obliging=True)
    with pytest.raises(OSError, match="No space"):
        await events(stage.speak("A a. B b.", player=Full()))
    assert not stage.speeches


async def test_a_format_whose_length_is_known_at_its_end() -> None:
    player = Recorder()
    stage = Stage()
    speech = stage.speak("A a.", player=player)
    asked = await stage.until(1)
    asked.begin(Start(sample_rate=24000, format="mp3", voice=None))
    asked.audio(bytes(100))
    asked.end(duration_s=2.5)
    await events(speech)
    assert player.queued_s == 2.5
    player.now = 1.0
    interruption = await speech.interrupt()
    assert (interruption.heard_s, interruption.dropped_s) == (1.0, 1.5)


# -- endpoints that mind being asked for the times of words


def refusal(code: str) -> UtteranceRejected:
    return UtteranceRejected("no", code=code, retryable=False)


@pytest.mark.parametrize("code", ["invalid_request", "unknown_type", "field_unknown"])
async def test_a_refusal_that_may_mean_the_marks(code: str) -> None:
    stage = Stage()
    speech = stage.speak("A a. B b.", depth=1)
    (await stage.until(1)).end(refusal(code))
    (await stage.until(2)).say()
    listening = asyncio.create_task(events(speech))
    (await stage.until(3)).say()
    assert said(await listening) == ["A a.", " B b."]
    assert [fields["marks"] for fields in stage.fields] == [("word",), (), ()]
    again = stage.speak("C c.")
    (await stage.until(4)).say()
    assert said(await events(again)) == ["C c."]
    assert stage.fields[3]["marks"] == ()


async def test_a_refusal_that_means_something_else() -> None:
    stage = Stage()
    speech = stage.speak("A a. B b. C c.", depth=1, on_loss="tell")
    listening = asyncio.create_task(events(speech))
    (await stage.until(1)).end(refusal("invalid_request"))
    (await stage.until(2)).end(refusal("invalid_request"))  # nor without
    (await stage.until(3)).end(refusal("invalid_voice"))
    (await stage.until(4)).end(UtteranceFailed("no", code="internal", retryable=False))
    (await stage.until(5)).say()
    got = await listening
    assert [e.sentence.index for e in got if isinstance(e, Lost)] == [0, 1]
    assert said(got) == [" C c."]
    # A failure may have been of that moment only.
    again = stage.speak("D d.")
    (await stage.until(6)).say()
    await events(again)
    marks: list[Any] = [("word",), (), ("word",), ("word",), (), ("word",)]
    assert [fields["marks"] for fields in stage.fields] == marks


# -- being left


async def test_leaving_the_loop_stops_everything() -> None:
    stage = Stage()
    speech = stage.speak(Tokens())
    assert isinstance(speech, Speech)
    texts = stage.speak("A a. B b. C c.")
    await stage.until(3)
    stage.asked[0].begin()
    async for _ in texts:
        break
    del texts, speech
    gc.collect()
    await settle()
    assert all(asked.inbox.abandoned for asked in stage.asked)
    assert not stage.speeches


async def test_a_read_that_is_cancelled_gives_the_speech_up() -> None:
    stage, tokens = Stage(), Tokens()
    speech = stage.speak(tokens)
    tokens.put("A a. B ")
    asked = await stage.until(1)
    reading = asyncio.create_task(events(speech))
    await settle()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await settle()
    assert asked.inbox.abandoned
    assert tokens.closed
    assert not stage.speeches
    assert await events(speech) == []


async def test_one_reader_at_a_time() -> None:
    speech = Stage().speak(Tokens())
    first = asyncio.create_task(anext(speech))
    await settle()
    with pytest.raises(RuntimeError, match="another task"):
        await anext(speech)
    await speech.aclose()
    with pytest.raises(StopAsyncIteration):
        await first


async def test_a_speech_that_outlives_its_loop() -> None:
    kept: list[Speech] = []

    async def main() -> None:
        kept.append(Stage().speak("A a."))

    await asyncio.to_thread(asyncio.run, main())
    kept.clear()
    gc.collect()


async def test_a_backend_ends_its_speeches() -> None:
    stage = Stage()
    first, second = stage.speak("A a."), stage.speak(Tokens())
    assert len(stage.speeches) == 2
    await settle()
    await stage.end_speeches()
    assert not stage.speeches
    # What was not spoken is not lost in silence.
    with pytest.raises(SpeechIncomplete, match="was closed before its end") as told:
        await first.read()
    assert (told.value.text, told.value.unspoken, told.value.retryable) == ("A a.", "A a.", False)
    with pytest.raises(SpeechIncomplete):
        await events(second)
    assert await events(first) == []


async def test_a_backend_that_ends_takes_nothing_from_a_speech_that_is_whole() -> None:
    stage = Stage(obliging=True)
    speech = stage.speak("A a.")
    while not isinstance((await anext(speech)).event, Complete):  # type: ignore[union-attr]
        pass
    await settle()
    await stage.end_speeches()
    assert await events(speech) == []


# -- interruption


async def spoken_to(stage: Stage, speech: Speech, count: int) -> None:
    """Read so many events."""
    for _ in range(count):
        await anext(speech)


async def test_what_was_heard_between_two_sentences() -> None:
    stage, player = Stage(obliging=True), Recorder()
    text = "A a. ... B b. C c."
    speech = stage.speak(text, player=player)
    await events(speech)
    player.now = 2.0
    interruption = await speech.interrupt()
    heard = "".join(s.text for s in interruption.sentences)
    assert interruption.text.replace(" ...", "") == heard.replace(" ...", "")
    assert text[: interruption.position] == interruption.text
    assert interruption.text + interruption.unheard == text
    assert interruption.precision == "sentence"
    assert interruption.running is None
    assert (interruption.heard_s, interruption.dropped_s) == (2.0, 1.0)
    assert not interruption.session_dropped
    assert stage.interrupted == []
    assert speech.interruption is interruption is await speech.interrupt()


async def test_what_was_heard_to_the_word() -> None:
    stage, player = Stage(), Recorder()
    speech = stage.speak("First one. Say the **very** long word now. Then", player=player)
    await stage.until(3)
    stage.asked[0].say()
    asked = stage.asked[1]
    assert asked.text == "Say the very long word now."
    asked.begin()
    asked.words(
        Word("Say", 0.0, 0.2, 0, 3), Word("the", 0.2, 0.4, 4, 7), Word("very", 0.4, 0.6, 8, 12)
    )
    asked.audio()
    await spoken_to(stage, speech, 6)
    player.now = 1.65
    interruption = await speech.interrupt()
    assert interruption.precision == "word"
    assert interruption.text == "First one. Say the **very"
    assert interruption.unheard == "** long word now. Then"
    assert interruption.running is not None
    assert interruption.running.index == 1
    assert [s.index for s in interruption.sentences] == [0]
    assert stage.interrupted == ["Say the very long word now.", "Then"]
    assert await events(speech) == []


async def test_words_without_end_are_not_kept() -> None:
    stage = Stage()
    speech = stage.speak("A a.")
    asked = await stage.until(1)
    asked.begin()
    for _ in range(3):
        asked.words(*[Word("A", 0.0, 0.5, 0, 1)] * 100)
    await spoken_to(stage, speech, 4)
    assert len(speech._speaking._slots[0].words) == len("A a.")
    await speech.aclose()


async def test_words_that_were_heard_are_let_go() -> None:
    stage, player = Stage(), Recorder()
    speech = stage.speak("A a. B b. C c.", player=player)
    await stage.until(3)
    for asked in stage.asked:
        asked.begin()
        asked.words(Word("A", 0.0, 0.5, 0, 1))
        asked.audio()
        asked.end()
    await spoken_to(stage, speech, 8)
    player.now = 1.5
    await spoken_to(stage, speech, 1)
    past = speech._speaking._past
    assert [len(slot.words) for slot in past] == [0, 1]
    interruption = await speech.interrupt()
    assert (interruption.text, interruption.precision) == ("A a. B", "word")


@pytest.mark.parametrize(
    ("complete", "heard_s", "text"),
    [
        (True, 5.0, "one two three"),
        (True, 1.0, ""),
        (True, 10.0, "one two three four five six"),
        (False, 1.0, "one two three"),
        (False, 2.5, "one two three four five six"),
    ],
)
async def test_what_was_heard_by_proportion(complete: bool, heard_s: float, text: str) -> None:
    """Of a sentence that is not whole yet, by how fast people are spoken to."""
    stage, player = Stage(), Recorder()
    speech = stage.speak("one two three four five six", player=player)
    asked = await stage.until(1)
    asked.begin()
    asked.audio(SECOND * (10 if complete else 2))
    if complete:
        asked.end()
    await spoken_to(stage, speech, 2 + complete)
    player.now = heard_s
    interruption = await speech.interrupt()
    assert interruption.text == text
    whole = heard_s >= 10
    assert interruption.precision == ("sentence" if whole else "proportion")


async def test_the_pace_of_what_was_heard_before_counts() -> None:
    stage, player = Stage(), Recorder()
    speech = stage.speak("Twelve chars. one two three four five six", player=player)
    await stage.until(2)
    stage.asked[0].say(SECOND * 13)
    stage.asked[1].begin()
    stage.asked[1].audio(SECOND * 4)
    await spoken_to(stage, speech, 5)
    player.now = 17.0
    assert (await speech.interrupt()).text == "Twelve chars. one"


async def test_what_the_gate_changed_is_heard_by_its_likeness() -> None:
    async def approve(sentence: str) -> str | None:
        return None if "secret" in sentence else sentence.replace("three", "3")

    stage, player = Stage(obliging=True), Recorder()
    text = "It is one. A secret. It is three of them."
    speech = stage.speak(text, player=player, approve=approve)
    await events(speech)
    player.now = 1.7
    interruption = await speech.interrupt()
    assert interruption.text == "It is one. It is three of"
    assert text[: interruption.position] == "It is one. A secret. It is three of"
    assert interruption.unheard == " them."


async def test_one_that_was_heard_to_its_end_leaves_the_next_its_player() -> None:
    stage, player = Stage(obliging=True), Recorder()
    first = stage.speak("A a.", player=player)
    await events(first)
    player.now = 1.0
    await events(stage.speak("B b.", player=player))
    interruption = await first.interrupt()
    assert (interruption.text, interruption.dropped_s) == ("A a.", 0.0)
    assert player.queued_s == 1.0


async def test_one_of_unknown_length_is_silenced_all_the_same() -> None:
    stage, player = Stage(), Recorder()
    speech = stage.speak("A a.", player=player)
    asked = await stage.until(1)
    asked.begin(Start(sample_rate=24000, format="mp3", voice=None))
    asked.audio(bytes(100))
    asked.end()
    await events(speech)
    flushes: list[float] = []
    player.flush = lambda: flushes.append(0.0) or 0.0  # type: ignore[method-assign,func-returns-value]
    await speech.interrupt()
    assert flushes


async def test_an_interruption_before_anything_was_heard() -> None:
    stage, tokens = Stage(), Tokens()
    speech = stage.speak(tokens)
    tokens.put("A a. B b. C")
    await stage.until(2)
    reading = asyncio.create_task(events(speech))
    await settle()
    first, second = await asyncio.gather(speech.interrupt(), speech.interrupt())
    assert first is second
    assert (first.text, first.position, first.unheard) == ("", 0, "A a. B b. C")
    assert await reading == []
    assert stage.interrupted == ["A a.", "B b."]
    assert tokens.closed
    assert not stage.speeches
    stage.asked[0].audio()
    assert stage.asked[0].inbox.buffered_bytes == 0


async def test_an_interruption_while_the_player_takes_audio() -> None:
    taking, take = asyncio.Event(), asyncio.Event()

    class Slow(Player):
        async def play(self, data: bytes, start: Start) -> None:
            await super().play(data, start)
            taking.set()
            await take.wait()

    stage = Stage(obliging=True)
    speech = stage.speak("A a. B b.", player=Slow())
    reading = asyncio.create_task(events(speech))
    await taking.wait()
    interrupting = asyncio.create_task(speech.interrupt())
    await settle()
    take.set()
    await interrupting
    assert [type(e.event) for e in await reading] == [Start]


async def test_a_lost_sentence_and_what_was_heard_of_it() -> None:
    stage, player = Stage(), Recorder()
    speech = stage.speak("A bc d. Invalid. E f.", player=player, on_loss="tell")
    await stage.until(2)
    stage.asked[0].begin()
    stage.asked[0].words(Word("A", 0.0, 0.5, 0, 1), Word("bc", 0.5, 1.0, 2, 4))
    stage.asked[0].audio()
    reading = asyncio.create_task(events(speech))
    await settle()
    stage.asked[0].end(UtteranceFailed("broke", code="internal", retryable=True))
    stage.asked[1].say()
    await reading
    player.now = 2.0
    interruption = await speech.interrupt()
    assert interruption.text == "A bc E f."
    assert [s.text for s in interruption.sentences] == [" E f."]
    assert (interruption.precision, interruption.running) == ("sentence", None)


async def test_an_endpoint_that_cannot_be_told_to_stop() -> None:
    stage = Stage()
    stage.stops = False
    speech = stage.speak("A a.")
    await stage.until(1)
    assert (await speech.interrupt()).session_dropped


@pytest.mark.parametrize("where", ["gate", "source"])
async def test_the_gate_or_the_source_may_interrupt(where: str) -> None:
    stage = Stage()
    speeches: list[Speech] = []

    async def interrupt_at(sentence: str) -> str:
        if "stop" in sentence:
            await speeches[0].interrupt()
        return sentence

    async def source() -> AsyncIterator[str]:
        yield "A a. B b."
        await stage.until(1)
        if where == "source":
            await speeches[0].interrupt()
        yield " C stop. D d."

    speeches.append(stage.speak(source(), approve=interrupt_at))
    assert await events(speeches[0]) == []
    interruption = await speeches[0].interrupt()
    # The endpoint was told, whatever became of who asked.
    assert "A a." in stage.interrupted
    assert interruption.text == ""
    assert speeches[0].interruption is interruption
    assert not stage.speeches


async def test_who_waits_for_an_interruption_may_be_cancelled() -> None:
    class Deaf(Stage):
        async def interrupt(self, utterances: Sequence[Utterance]) -> bool:
            await release.wait()
            return await super().interrupt(utterances)

    release = asyncio.Event()
    stage = Deaf()
    speech = stage.speak("A a.")
    await stage.until(1)
    first = asyncio.create_task(speech.interrupt())
    await settle()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert stage.asked[0].inbox.abandoned
    assert stage.speeches
    ending = asyncio.create_task(stage.end_speeches())
    await settle()
    assert not ending.done()
    release.set()
    await ending
    assert not stage.speeches
    assert stage.interrupted == ["A a."]
    assert (await speech.interrupt()).unheard == "A a."


@pytest.mark.parametrize(
    ("text", "spoken", "at", "place"),
    [
        ("**a** b", "a b", 1, 3),
        ("**a** b", "a b", 3, 7),
        ("a b", "x y z", 1, 0),
        ("  all of it  ", "all of it", 9, 11),
        ("**x** " * 1000, "x " * 1000, 1000, 3000),
    ],
)
def test_a_place_in_what_was_said_has_a_place_in_the_text(
    text: str, spoken: str, at: int, place: int
) -> None:
    assert in_source(Sentence(0, 0, text, spoken), at) == place


def test_audio_of_no_length_is_heard_at_once() -> None:
    assert heard_of(Sentence(0, 0, "a b", "a b"), [], 0.5, 0.0) == (3, "proportion")


async def test_an_attempt_that_another_made_needless() -> None:
    """A sentence may be given up while the connection for it is opened."""
    opened = asyncio.Event()

    class Slow(Stage):
        async def open(self) -> None:
            await opened.wait()

    stage = Slow()
    speech = stage.speak("A a.")
    await settle()
    await speech.aclose()
    opened.set()
    await settle()
    assert stage.asked == []
