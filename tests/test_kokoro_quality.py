"""What decides whether served speech still says the words, on recordings made by hand."""

from __future__ import annotations

import log_mel
import numpy as np
import pytest
from kokoro_quality import Reading, carries, clicks, controls, holds, mark_errors, markdown, shown
from served_speech import RATE, Samples, Spoken, decoded, read_wav, write_wav
from utterwire_client import Word
from word_errors import Hearing


def voice(seconds: float = 2.0, *, seed: int = 0) -> Samples:
    """Something with pitch, syllables and breath: harmonics of 120 Hz under a slow envelope."""
    time = np.arange(round(seconds * RATE)) / RATE
    harmonics = sum(np.sin(2 * np.pi * 120 * n * time) / n for n in range(1, 30))
    breath = np.random.default_rng(seed).normal(0, 0.02, time.size)
    level = np.clip(np.sin(2 * np.pi * 1.7 * time), 0, 1)
    samples: Samples = ((0.2 * harmonics + breath) * level).astype(np.float32)
    return samples


@pytest.mark.parametrize(
    ("served", "stock", "held"),
    [(3.0, 1.0, True), (3.1, 1.0, False), (0.0, 5.0, True), (100.0, 0.0, False)],
)
def test_two_points_more_than_stock_hold(served: float, stock: float, held: bool) -> None:
    assert holds(served, stock) is held


@pytest.mark.parametrize(
    ("words_hold", "db", "window", "sentence", "carried"),
    [
        ([True, True], 1.3, 3, 3, True),
        ([True, False], 1.3, 0, 0, False),
        ([True, True], 2.0, 0, 0, False),
        ([True, True], 1.3, 4, 3, False),
    ],
)
def test_window_is_carried_by_words_distance_and_clicks_together(
    words_hold: list[bool], db: float, window: int, sentence: int, carried: bool
) -> None:
    assert carries(words_hold, db, window, sentence) is carried


def test_a_reading_counts_over_all_sentences_and_shows_what_was_wrong() -> None:
    reading = Reading({"a": "x", "b": "y"}, {"a": Hearing(0, 5), "b": Hearing(1, 5)})
    assert reading.rate == 10.0
    assert reading.table() == {
        "word_error_rate": 10.0,
        "errors": 1,
        "wrong": {"b": {"heard": "y", "errors": 1}},
    }


def test_controls_say_nothing_or_something_else() -> None:
    recordings = {"a": voice(seed=1), "b": voice(seed=2), "c": voice(1.0)}
    wrong = controls(recordings)
    assert {name: set(each) for name, each in wrong.items()} == {
        name: {"a", "b", "c"} for name in ("silence", "noise", "reversed", "another sentence")
    }
    assert not wrong["silence"]["a"].any()
    assert np.array_equal(wrong["reversed"]["c"], recordings["c"][::-1])
    others = wrong["another sentence"]
    assert [others[name] is recordings[other] for name, other in ("ab", "bc", "ca")] == [True] * 3


def test_speech_has_no_clicks_and_a_cut_in_it_is_one() -> None:
    whole = voice()
    assert clicks(whole) == []
    assert clicks(np.zeros(RATE, np.float32)) == clicks(whole[:5]) == []
    jump = whole.copy()
    jump[RATE + 2_345 :] += 0.1
    assert clicks(jump) == [pytest.approx((RATE + 2_345) / RATE, abs=0.001)]


def test_the_distance_grows_with_what_is_changed_and_is_0_for_the_same() -> None:
    whole = voice()
    assert log_mel.distance(whole, whole) == 0.0
    noise = log_mel.distance(whole, voice(seed=3))
    assert 0 < noise < log_mel.distance(whole, 0.5 * whole) < log_mel.distance(whole, whole[::-1])


@pytest.mark.parametrize("late", [-1_200, -240, 0, 24, 2_400])
def test_the_lag_is_found(late: int) -> None:
    whole = voice(3.0)
    other = np.roll(voice(3.0, seed=5), late)
    assert log_mel.lag(whole, other) == late


def test_marks_are_early_or_late_by_their_difference() -> None:
    marks = (Word("a", 0.5, 0.7, 0, 1), Word("b", 0.7, 1.0, 2, 3))
    starts, ends = mark_errors(Spoken(voice(), marks), [(0.4, 0.7), (0.8, 0.9)])
    assert starts == pytest.approx([0.1, -0.1])
    assert ends == pytest.approx([0.0, 0.1])
    with pytest.raises(ValueError, match="zip"):
        mark_errors(Spoken(voice(), marks), [(0.4, 0.7)])


def test_wav_files_keep_what_they_are_given(tmp_path: object) -> None:
    path = write_wav(tmp_path / "a.wav", voice())  # type: ignore[operator]
    assert np.abs(read_wav(path) - voice()).max() < 1e-4
    pcm = np.array([0, 16_384, -32_768], "<i2").tobytes()
    assert decoded(pcm, "pcm_s16le", RATE).tolist() == [0.0, 0.5, -1.0]
    with pytest.raises(ValueError, match="8000 Hz"):
        decoded(pcm, "pcm_s16le", 8_000)


def test_the_command_in_the_result_names_no_path_of_this_machine() -> None:
    said = ["--model-dir", "/home/me/model", "--engine", "kokoro-onnx", "--keep", "/tmp/x"]
    assert shown(said)[2:] == ["--model-dir", "DIR", "--engine", "kokoro-onnx", "--keep", "DIR"]


def test_the_table_shows_every_reading_and_both_verdicts() -> None:
    spread = {"median": 1.0, "median_size": 9.5, "p95_size": 40.0, "most": 60.0}
    way = {"mean_db": 1.26, "most_db": 2.0}
    served = {"word_error_rate": 0.7, "errors": 2, "wrong": {}}
    result = {
        "sentences": 20,
        "words": 295,
        "voice": "af_heart",
        "command": ["python", "x"],
        "stock": {"onnx, misaki": served},
        "controls": {"silence": served | {"fails": True}, "noise": served | {"fails": False}},
        "engines": {
            "kokoro-onnx": {
                "served": [
                    {"streaming": "window", "format": "mp3", "holds": False} | served,
                    {"streaming": "sentence", "format": "aac", "holds": True} | served,
                ],
                "log_mel": {"window_to_sentence": way, "sentence_again": way},
                "clicks": {"sentence": 1, "window": 0},
                "marks": {name: {"start_ms": spread} for name in ("sentence", "window")},
                "window_may_be_default": False,
            }
        },
    }
    table = markdown(result)
    for row in (
        "| stock: onnx, misaki | 2 | 0.7 | |",
        "| kokoro-onnx, window, mp3 | 2 | 0.7 | **no** |",
        "| kokoro-onnx, sentence, aac | 2 | 0.7 | yes |",
        "| control: silence | 2 | 0.7 | fails, as it must |",
        "| control: noise | 2 | 0.7 | **passes** |",
        "| kokoro-onnx | 1.26 (2.0) | 1.26 (2.0) | 1, 0 |" + 2 * " 9.5, 40.0, 60.0 |" + " **no** |",
    ):
        assert row in table.splitlines()
