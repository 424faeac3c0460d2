"""The recognisers hear what is said, hear it nowhere else, and say when.

They come with the extra ``quality``; `UTTERWIRE_RECOGNISER_PYTHON` names the interpreter of another
environment that has it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kokoro_quality import CONTROL_ERRORS, controls, holds
from recogniser import Recogniser, RecogniserError
from served_speech import read_wav, write_wav
from word_errors import Hearing, Sentence, hearing, rate, words

PYTHON = os.environ.get("UTTERWIRE_RECOGNISER_PYTHON", sys.executable)
SPOKEN = "Ever tried, ever failed, no matter, try again, fail again, fail better."
SENTENCE = Sentence("beckett", SPOKEN, (tuple(words(SPOKEN)),))


@pytest.fixture(scope="module")
def recording() -> Path:
    """A recording of a person that comes with the recogniser."""
    code = "from moonshine_voice import get_assets_path; print(get_assets_path())"
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("the extra quality is not installed")
    return Path(done.stdout.strip(), "beckett.wav")


@pytest.fixture(scope="module")
def recogniser(recording: Path) -> Iterator[Recogniser]:
    with Recogniser(PYTHON) as child:
        yield child


def test_it_hears_what_is_said(recogniser: Recogniser, recording: Path) -> None:
    assert hearing(SENTENCE, recogniser.hear(recording)).errors <= 1


@pytest.mark.parametrize("control", ["silence", "noise", "reversed"])
def test_what_says_nothing_or_something_else_fails(
    recogniser: Recogniser, recording: Path, tmp_path: Path, control: str
) -> None:
    wrong = controls({"beckett": read_wav(recording), "other": read_wav(recording)})[control]
    heard = recogniser.hear(write_wav(tmp_path / "wrong.wav", wrong["beckett"]))
    failed = rate([hearing(SENTENCE, heard)])
    assert failed > CONTROL_ERRORS
    assert not holds(failed, rate([Hearing(1, 12)]))


def test_an_empty_recording_says_nothing(recogniser: Recogniser, tmp_path: Path) -> None:
    assert recogniser.hear(write_wav(tmp_path / "empty.wav", np.zeros(0, np.float32))) == ""


def test_it_finds_when_words_are_said(recogniser: Recogniser, recording: Path) -> None:
    times = recogniser.word_times(recording, words(SPOKEN))
    with wave.open(str(recording)) as file:
        whole = file.getnframes() / file.getframerate()
    assert len(times) == 12
    flat = [moment for time in times for moment in time]
    assert flat == sorted(flat)
    assert 0 < flat[0] < flat[-1] < whole
    # The pauses between the six pairs of words are long.
    assert all(times[at][0] - times[at - 1][1] > 0.3 for at in range(2, 12, 2))


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (["ever", "qqzzx"], "dictionary: qqzzx"),
        (
            words("Where is the old green house that my uncle told me about yesterday?" * 9),
            "are not what is said",
        ),
    ],
)
def test_words_that_are_not_there_are_not_found(
    recogniser: Recogniser, recording: Path, said: list[str], problem: str
) -> None:
    with pytest.raises(RecogniserError, match=problem):
        recogniser.word_times(recording, said)
    assert len(recogniser.word_times(recording, words(SPOKEN))) == 12


def test_an_interpreter_without_it_is_one_line(tmp_path: Path) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text("#!/bin/sh\nexit 1\n")
    stand_in.chmod(0o755)
    with Recogniser(str(stand_in)) as recogniser, pytest.raises(RecogniserError, match="gave up"):
        recogniser.hear(tmp_path / "none.wav")
