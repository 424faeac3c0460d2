"""What the study makes of what it measured."""

from __future__ import annotations

import itertools
import json
import math
import wave
from pathlib import Path
from typing import Self

import pytest
from carriage import CLIPS, _Events, base64_bytes, words_wrong
from conversations import ANSWERS, promptness
from finding import Finding, NotMeasured, Row
from hypothesis import given
from hypothesis import strategies as st
from recogniser import RecogniserError
from spread import Spread
from study import goals
from token_stream import Best, Uncut, decisive_token, tokens
from utterwire_client import IncrementalSentenceChunker


class TestSpread:
    @pytest.mark.parametrize(
        ("values", "q1", "median", "q3", "p95"),
        [
            ([7.0], 7, 7, 7, 7),
            ([4.0, 2.0], 2.5, 3, 3.5, 3.9),
            ([5.0, 1.0, 3.0, 2.0, 4.0], 2, 3, 4, 4.8),
            ([*map(float, range(101))], 25, 50, 75, 95),
        ],
    )
    def test_quartiles_lie_between_samples(
        self, values: list[float], q1: float, median: float, q3: float, p95: float
    ) -> None:
        found = Spread.of(values)
        assert (found.q1, found.median, found.q3, found.p95) == pytest.approx((q1, median, q3, p95))
        assert (found.least, found.most, found.samples) == (min(values), max(values), len(values))

    @pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
    def test_what_has_no_spread_is_refused(self, values: list[float]) -> None:
        with pytest.raises(ValueError, match="finite numbers"):
            Spread.of(values)

    @given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
    def test_in_order_whatever_was_measured(self, values: list[float]) -> None:
        found = Spread.of(values)
        parts = [found.least, found.q1, found.median, found.q3, found.p95, found.most]
        slack = 1e-6
        assert all(a <= b + slack for a, b in itertools.pairwise(parts))


class TestTokens:
    @given(st.text(max_size=200))
    def test_joined_they_are_the_text(self, text: str) -> None:
        assert "".join(tokens(text)) == text

    def test_the_deciding_one_is_that_with_which_the_chunker_has_a_sentence(self) -> None:
        pieces = ["Well", " then", ".", " Off", " we", " go", "."]
        assert decisive_token(pieces, IncrementalSentenceChunker()) == 3
        assert decisive_token(pieces, Uncut()) == 6
        with pytest.raises(ValueError, match="no tokens"):
            decisive_token([], Uncut())

    def test_a_whole_text_is_one_piece(self) -> None:
        chunker = Uncut()
        assert [chunker.feed(piece) for piece in ("One. ", "Two.")] == [[], []]
        assert chunker.flush() == ["One. Two."]
        assert chunker.flush() == []

    def test_the_most_that_a_text_allows(self) -> None:
        # 31 tokens at 10 a second: the last after 3 s; the sixth after 0.5 s.
        best = Best(count=31, decisive=5, per_s=10.0, first_block_s=0.1)
        assert best.first_byte_s == pytest.approx(0.6)
        assert best.ratio == pytest.approx(6.0)
        assert Best(count=1, decisive=0, per_s=10.0, first_block_s=0.1).ratio is None

    def test_the_answers_allow_what_was_published(self) -> None:
        ratios = []
        for text in ANSWERS.values():
            pieces = tokens(text)
            decisive = decisive_token(pieces, IncrementalSentenceChunker())
            ratios.append(Best(len(pieces), decisive, 30.0, 0.0).ratio)
        assert any(ratio and 2.4 <= ratio <= 3.6 for ratio in ratios), ratios


@pytest.mark.parametrize(("size", "encoded"), [(0, 0), (1, 4), (3, 4), (4, 8), (1920, 2560)])
def test_base64(size: int, encoded: int) -> None:
    assert base64_bytes(size) == encoded


@pytest.mark.parametrize(
    "data",
    ["{", "null", "{}", '{"data": 5}', '{"data": "*"}'],
)
def test_an_event_that_cannot_be_read_is_told_in_one_line(data: str) -> None:
    with pytest.raises(NotMeasured, match="cannot be read"):
        _Events().audio_of(f"event: audio_chunk\ndata: {data}\n\n".encode())


def test_events_that_fail_or_break_off_are_no_sample() -> None:
    events = _Events()
    assert events.audio_of(b'event: audio_chunk\ndata: {"data": "AAAA"}\n\nevent: aud') == 3
    assert not events.ended
    assert events.audio_of(b"io_stream_end\ndata: {}\n\n") == 0
    assert events.ended
    with pytest.raises(NotMeasured, match="error"):
        events.audio_of(b'event: error\ndata: {"message": "x"}\n\n')


class Ears:
    """A recogniser that hears each clip but the first right."""

    def __init__(self, python: str) -> None:
        if python != "ears":
            raise RecogniserError("it could not be started")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def hear(self, path: Path) -> str:
        with wave.open(str(path)) as file:
            assert file.getnframes() == 100
        texts = {clip["id"]: clip["text"] for clip in clips()}
        return "" if path.stem == clips()[0]["id"] else texts[path.stem].lower().strip(".?")


def clips() -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(CLIPS.read_text(encoding="utf-8"))["sentences"]
    return found


class TestWords:
    def test_there_are_24_short_clips(self) -> None:
        assert len({clip["id"] for clip in clips()}) == 24
        assert all(len(clip["text"]) < 60 for clip in clips())

    @pytest.fixture
    def heard(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
        monkeypatch.setattr("recogniser.Recogniser", Ears)
        files = [tmp_path / f"{clip['id']}.pcm_s16le" for clip in clips()]
        for file in files:
            file.write_bytes(bytes(200))
        return [(file, 24_000) for file in files]

    def test_errors_are_counted_over_all_clips(self, heard: list[tuple[Path, int]]) -> None:
        words = [len(clip["text"].split()) for clip in clips()]
        found = words_wrong("ears", clips(), heard, "pcm_s16le")
        assert found == pytest.approx(100 * words[0] / sum(words))

    def test_why_nothing_was_heard_is_told(self, heard: list[tuple[Path, int]]) -> None:
        found = words_wrong("python3", clips(), heard, "pcm_s16le")
        assert found == "not heard: it could not be started"
        at_another_rate = [(file, 16_000) for file, _ in heard]
        found = words_wrong("ears", clips(), at_another_rate, "pcm_s16le")
        assert "16000 Hz" in str(found)


def stream(*over_ms: float) -> Finding:
    return Finding(
        "?",
        rows=[
            # Who waits for the whole text is not held to it.
            Row("batch", samples={"over_ms": [400.0] * 20}),
            Row("bidi", samples={"over_ms": [*over_ms], "sooner": [3.0]}),
        ],
    )


def gapped(pipelined: int) -> Finding:
    rows = [
        Row("80 ms: one at a time", samples={"gap_ms": [9.0]}, facts={"gaps": 1}),
        Row("80 ms: pipelined", samples={"gap_ms": [0.0, 0.0]}, facts={"gaps": pipelined}),
    ]
    return Finding("?", rows=rows)


def interrupted(late: int, tasks: int) -> Finding:
    return Finding(
        "?", rows=[Row("interrupted", facts={"after_ack_bytes": late, "tasks_left": tasks})]
    )


class TestGoals:
    @pytest.mark.parametrize(
        ("findings", "met"),
        [
            ({}, []),
            ({"token-stream": stream(*[3.0] * 19, 10.0)}, [True]),
            # One of twenty is beyond the 95th percentile; two are not.
            ({"token-stream": stream(*[3.0] * 20, 80.0)}, [True]),
            ({"token-stream": stream(*[3.0] * 18, 80.0, 80.0)}, [False]),
            ({"gaps": gapped(0)}, [True]),
            ({"gaps": gapped(1)}, [False]),
            ({"interruptions": interrupted(0, 0)}, [True]),
            ({"interruptions": interrupted(2, 0)}, [False]),
            ({"interruptions": interrupted(0, 1)}, [False]),
        ],
    )
    def test_held_against_what_was_found(
        self, findings: dict[str, Finding], met: list[bool]
    ) -> None:
        assert [goal.met for goal in goals(findings)] == met

    def test_found_is_told_in_numbers(self) -> None:
        found = goals({"token-stream": stream(1.0, 2.0, 3.0)})[0].found
        assert found == "median 2.0 ms, 95 of 100 within 2.9 ms, at most 3.0 ms, of 3"

    def test_promptness_is_of_all_texts_that_were_streamed(self) -> None:
        both = Finding("?", rows=[*stream(1.0).rows, *stream(2.0).rows])
        assert promptness(both) == [1.0, 2.0]
