"""What is said in a WAV file, and when: two recognisers that ship in wheels.

`moonshine-voice` writes down what it hears; `pocketsphinx` finds when each of the given words is
said. Both run in a process of their own, in an environment that may be another one, since the first
brings its own ONNX Runtime and does not survive the end of its interpreter:

    with Recogniser("python3") as recogniser:
        recogniser.hear(Path("hello.wav"))

The child reads requests from stdin and writes answers to stdout, one JSON object on a line.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import wave
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

__all__ = ["Recogniser", "RecogniserError"]

RATE = 16_000
# All of a clip at once: cut up where its own detector hears pauses, the words at the cuts suffer.
_OPTIONS = {"vad_threshold": "0", "identify_speakers": "false"}


class RecogniserError(RuntimeError):
    """The recogniser could not be started, or gave up."""


class Recogniser:
    """Both recognisers in a child process, as a context manager.

    :param python: the interpreter of an environment with `moonshine-voice`, `pocketsphinx`, numpy
        and soxr.
    """

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python

    def __enter__(self) -> Self:
        self._child = subprocess.Popen(
            [self._python, str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._child as child:
            if child.stdin is not None:
                with contextlib.suppress(BrokenPipeError):  # it has gone already
                    child.stdin.close()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()

    def hear(self, path: Path) -> str:
        """What is said in a WAV file of 16-bit mono PCM; "" if nothing is."""
        heard: str = self._ask({"hear": str(path)})
        return heard

    def word_times(self, path: Path, words: Sequence[str]) -> list[tuple[float, float]]:
        """When each of these words, which are all that is said in the file, begins and ends: s.

        Raises `RecogniserError` if they cannot be found in it, as where one is not in its
        dictionary.
        """
        return [(start, end) for start, end in self._ask({"align": str(path), "words": [*words]})]

    def _ask(self, request: dict[str, Any]) -> Any:
        source, sink = self._child.stdout, self._child.stdin
        if source is None or sink is None:
            raise RecogniserError("the recogniser has no pipes")
        try:
            print(json.dumps(request), file=sink, flush=True)
            answer = json.loads(source.readline())
        except (OSError, ValueError) as error:
            raise RecogniserError(f"the recogniser of {self._python} gave up; see above") from error
        if "error" in answer:
            raise RecogniserError(answer["error"])
        return answer["answer"]


def _samples(path: str) -> Any:
    """The samples of a WAV file at `RATE`, as a numpy array of float32, shape (n,)."""
    import numpy as np
    import soxr

    with wave.open(path, "rb") as file:
        if (file.getnchannels(), file.getsampwidth()) != (1, 2):
            raise ValueError(f"{path} is not 16-bit mono")
        pcm = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        return soxr.resample(pcm.astype(np.float32) / 32_768, file.getframerate(), RATE)


class _Ears:
    """What runs in the child; each model is loaded when it is first needed."""

    def __init__(self) -> None:
        self._transcriber: Any = None

    def hear(self, path: str) -> str:
        from moonshine_voice import ModelArch, Transcriber, get_model_path

        if self._transcriber is None:
            self._transcriber = Transcriber(
                str(get_model_path("tiny-en")), ModelArch.TINY, options=_OPTIONS
            )
        samples = _samples(path).tolist()
        if not samples:
            return ""
        lines = self._transcriber.transcribe_without_streaming(samples, RATE).lines
        return " ".join(line.text for line in lines)

    def align(self, path: str, words: list[str]) -> list[tuple[float, float]]:
        import numpy as np
        from pocketsphinx import Decoder

        samples = _samples(path)
        # Noise at -60 dBFS: in digital silence its features have no spread, and words go missing.
        samples = samples + np.random.default_rng(0).normal(0, 0.001, samples.size)
        pcm = (np.clip(samples, -1, 1) * 32_767).astype("<i2").tobytes()
        decoder = Decoder(lm=None, loglevel="FATAL", samprate=RATE)
        missing = [word for word in words if decoder.lookup_word(word) is None]
        if missing:
            raise ValueError(f"not in the recogniser's dictionary: {', '.join(missing)}")
        decoder.set_align_text(" ".join(words))
        decoder.start_utt()
        decoder.process_raw(pcm, full_utt=True)
        decoder.end_utt()
        # Frames of 10 ms, the last included; a second way to say a word is called word(2).
        found = [
            (part.word.partition("(")[0], part.start_frame / 100, (part.end_frame + 1) / 100)
            for part in decoder.seg() or ()
            if not part.word.startswith(("<", "["))
        ]
        if [word for word, _, _ in found] != words:
            raise ValueError(f"these words are not what is said in {path}")
        return [(start, end) for _, start, end in found]


def _serve(source: IO[str], sink: IO[str]) -> None:
    ears = _Ears()
    for line in source:
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            if "hear" in request:
                answer = {"answer": ears.hear(request["hear"])}
            else:
                answer = {"answer": ears.align(request["align"], request["words"])}
        except Exception as error:  # whatever it is, the parent shall say it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=sink, flush=True)


if __name__ == "__main__":
    _serve(sys.stdin, sys.stdout)
    sys.stdout.flush()
    # Its library crashes when the interpreter frees it.
    os._exit(0)
