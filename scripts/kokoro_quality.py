"""Does it still say the words? Served speech against the stock model's, by a recogniser.

    python scripts/kokoro_quality.py --model-dir DIR                      engine kokoro-onnx
    python scripts/kokoro_quality.py --model-dir DIR --engine kokoro-onnx --engine kokoro-torch \\
        --torch-python TORCH/bin/python --recogniser-python RECOGNISER/bin/python

20 sentences (``scripts/data/quality_sentences.json``, with the rules for counting) are spoken by
each engine with ``--streaming`` sentence and window, as PCM, MP3, Opus and AAC, through the real
server and the reference client, and by the stock model with nothing around it. What was fixed
before the first run:

- Words. A recogniser writes down what it hears. Each way of serving may make at most 2 points more
  word errors than the stock model, of two stock readings (phonemes of misaki, phonemes of this
  server) the one with fewer errors.
- Controls. Silence, noise, the stock audio reversed and the stock audio of the next sentence must
  all fail this by far: more than half of the words wrong.
- ``window`` may be the default of an engine only if it holds for every format, if its audio is
  less than 2.0 dB log-mel away from that of ``sentence`` (windows with their own statistics, whose
  words change, are 2.2 to 4 dB away), and if it has no clicks: no more sudden samples than
  ``sentence`` has.
- Marks. Beginnings and ends of the words of 5 sentences against those that an aligner finds.

The result is JSON, and a table beside it as Markdown. Exits 0 if the words hold and every control
fails, 1 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import log_mel
import numpy as np
from launched_server import LaunchedServer
from provenance import ROOT, record, write
from recogniser import Recogniser, RecogniserError
from served_speech import RATE, Samples, Spoken, read_wav, speak, write_wav
from word_errors import Hearing, Sentence, hearing, rate, read_sentences, words

__all__ = ["Reading", "carries", "clicks", "holds", "main", "mark_errors"]

LIBRARIES = ("numpy", "num2words", "onnxruntime", "rapidfuzz", "websockets")
STREAMING: Final = ("sentence", "window")
FORMATS: Final = ("pcm_s16le", "mp3", "opus", "aac")
MORE_ERRORS: Final = 2.0  # points of word error rate
CONTROL_ERRORS: Final = 50.0
LOG_MEL_DB: Final = 2.0
PATHS: Final = {
    "--model-dir": "DIR",
    "--torch-python": "PYTHON",
    "--recogniser-python": "PYTHON",
    "--keep": "DIR",
    "--plots": "DIR",
}
MARKED: Final = ("kettle", "letter", "garden", "weather", "library")


@dataclass
class Reading:
    """What was heard of all sentences in one way of speaking them."""

    heard: dict[str, str] = field(default_factory=dict)
    hearings: dict[str, Hearing] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Word error rate in percent."""
        return rate(self.hearings.values())

    @property
    def errors(self) -> int:
        """Words that were heard wrong."""
        return sum(each.errors for each in self.hearings.values())

    def table(self) -> dict[str, Any]:
        """For the result: the rate, and the sentences that were not heard as they stand."""
        wrong = {
            name: {"heard": self.heard[name], "errors": each.errors}
            for name, each in self.hearings.items()
            if each.errors
        }
        return {"word_error_rate": round(self.rate, 2), "errors": self.errors, "wrong": wrong}


def holds(served: float, stock: float) -> bool:
    """Whether a word error rate is close enough to that of the stock model, both in percent."""
    return served <= stock + MORE_ERRORS


def carries(words_hold: Iterable[bool], log_mel_db: float, window_clicks: int, others: int) -> bool:
    """Whether `window` may be the default of an engine; `others` are the clicks of `sentence`."""
    return all(words_hold) and log_mel_db < LOG_MEL_DB and window_clicks <= others


def clicks(samples: Samples) -> list[float]:
    """When, in seconds, a sample jumps as speech does not.

    A click is a second difference above a floor of -40 dBFS and more than 12 times the median of
    those in the 10 ms around it.
    """
    jumps = np.abs(np.diff(samples.astype(np.float64), 2))
    size = RATE // 100
    if jumps.size < size:
        return []
    around = np.lib.stride_tricks.sliding_window_view(np.pad(jumps, size // 2, mode="edge"), size)
    usual = np.median(around[: jumps.size], axis=1)
    found = np.flatnonzero((jumps > 0.01) & (jumps > 12 * usual))
    # Neighbours are one click.
    first = found[np.diff(found, prepend=-size) >= size // 4]
    return [round(float(at + 1) / RATE, 4) for at in first]


def mark_errors(
    spoken: Spoken, times: Sequence[tuple[float, float]]
) -> tuple[list[float], list[float]]:
    """By how many seconds the marks of an utterance are late, at beginnings and at ends."""
    starts = [word.start_s - start for word, (start, _) in zip(spoken.words, times, strict=True)]
    ends = [word.end_s - end for word, (_, end) in zip(spoken.words, times, strict=True)]
    return starts, ends


def summary(errors: Sequence[float]) -> dict[str, float]:
    """Of errors in seconds: the median, and of their sizes the median, the 95th part, the most."""
    sizes = np.abs(errors)
    found = {
        "median": statistics.median(errors),
        "median_size": float(np.median(sizes)),
        "p95_size": float(np.percentile(sizes, 95)),
        "most": float(sizes.max()),
    }
    return {name: round(1_000 * value, 1) for name, value in found.items()}


class Judge:
    """Hears every recording of a run, and keeps them in a folder to listen to."""

    def __init__(self, recogniser: Recogniser, sentences: Sequence[Sentence], folder: Path) -> None:
        self.recogniser = recogniser
        self.sentences = sentences
        self.folder = folder

    def read(self, name: str, recordings: Mapping[str, Samples]) -> Reading:
        """Hear one recording for each sentence; all of them are written to a folder `name`."""
        reading = Reading()
        for sentence in self.sentences:
            path = write_wav(self.folder / name / f"{sentence.id}.wav", recordings[sentence.id])
            heard = self.recogniser.hear(path)
            reading.heard[sentence.id] = heard
            reading.hearings[sentence.id] = hearing(sentence, heard)
        say(f"{name}: {reading.rate:.2f} % of words wrong ({reading.errors})")
        return reading


def say(line: str) -> None:
    """Progress, on stderr."""
    print(f"kokoro_quality: {line}", file=sys.stderr, flush=True)


def stock(
    python: str, model: str, options: argparse.Namespace, entries: Sequence[dict[str, str]]
) -> dict[str, Samples]:
    """The stock model's audio for each entry, by its id; see ``stock_kokoro.py``."""
    with tempfile.TemporaryDirectory(prefix="utterwire-stock-") as folder:
        command = [python, str(ROOT / "scripts" / "stock_kokoro.py"), model]
        command += ["--model-dir", str(options.model_dir), "--voice", options.voice]
        subprocess.run(
            [*command, "--out", folder], input=json.dumps(entries), text=True, check=True
        )
        return {each["id"]: read_wav(Path(folder, f"{each['id']}.wav")) for each in entries}


def own_phonemes(
    options: argparse.Namespace, sentences: Sequence[Sentence]
) -> list[dict[str, str]]:
    """The sentences as this server's front end has them said, those that are one segment."""
    text: Any = importlib.import_module("utterwire_server.text")
    path = Path(options.model_dir, "config.json")
    front_end = text.FrontEnd(json.loads(path.read_text(encoding="utf-8"))["vocab"])
    entries = []
    for sentence in sentences:
        segments = front_end.segments(sentence.text, options.voice[0])
        phonemes = " ".join(segment.phonemes for segment in segments)
        entries.append({"id": sentence.id, "phonemes": phonemes})
    return entries


async def speak_all(
    url: str, sentences: Sequence[Sentence], voice: str, format: str
) -> dict[str, Spoken]:
    """Every sentence, one after the other, in a session of its own."""
    plain = format == "pcm_s16le"
    return {
        sentence.id: await speak(url, sentence.text, voice=voice, format=format, marks=plain)
        for sentence in sentences
    }


def controls(recordings: Mapping[str, Samples]) -> dict[str, dict[str, Samples]]:
    """Audio that says something else, or nothing, in the place of each recording."""
    names = list(recordings)
    noise = np.random.default_rng(1)
    return {
        "silence": {name: np.zeros_like(recordings[name]) for name in names},
        "noise": {
            name: noise.normal(0, 0.1, recordings[name].size).astype(np.float32) for name in names
        },
        "reversed": {name: recordings[name][::-1] for name in names},
        "another sentence": {
            name: recordings[other]
            for name, other in zip(names, [*names[1:], names[0]], strict=True)
        },
    }


def apart(one: Mapping[str, Spoken], other: Mapping[str, Spoken]) -> dict[str, float]:
    """Log-mel distances in dB of two ways to speak the same sentences, aligned first."""
    found = []
    for name in one:
        first, second = one[name].samples, other[name].samples
        late = log_mel.lag(first, second)
        found.append(log_mel.distance(first[max(0, -late) :], second[max(0, late) :]))
    return {"mean_db": round(statistics.mean(found), 2), "most_db": round(max(found), 2)}


def marks_against_aligner(judge: Judge, name: str, spoken: Mapping[str, Spoken]) -> dict[str, Any]:
    """How far off the marks of `MARKED` are; the audio is in the judge's folder already."""
    starts: list[float] = []
    ends: list[float] = []
    for sentence in judge.sentences:
        if sentence.id not in MARKED:
            continue
        path = judge.folder / name / f"{sentence.id}.wav"
        said = [word for each in spoken[sentence.id].words for word in words(each.text)]
        late, late_ends = mark_errors(spoken[sentence.id], judge.recogniser.word_times(path, said))
        starts += late
        ends += late_ends
    return {"words": len(starts), "start_ms": summary(starts), "end_ms": summary(ends)}


def judge_engine(
    engine: str,
    python: str,
    judge: Judge,
    options: argparse.Namespace,
    least: float,
) -> dict[str, Any]:
    """All ways in which one engine serves the sentences; ``least`` is the stock model's rate."""
    served: list[dict[str, Any]] = []
    plain: dict[str, dict[str, Spoken]] = {}
    marks: dict[str, Any] = {}
    noise: dict[str, float] = {}
    for streaming in STREAMING:
        flags = ["--engine", engine, "--model-dir", str(options.model_dir)]
        flags += ["--streaming", streaming]
        log = judge.folder / f"{engine}-{streaming}.log"
        with LaunchedServer(flags, python=python, log=log) as server:
            for format in FORMATS:
                name = f"{engine}-{streaming}-{format}"
                spoken = asyncio.run(speak_all(server.url, judge.sentences, options.voice, format))
                reading = judge.read(name, {key: each.samples for key, each in spoken.items()})
                served.append(
                    {"streaming": streaming, "format": format}
                    | reading.table()
                    | {"holds": holds(reading.rate, least)}
                )
                if format == "pcm_s16le":
                    plain[streaming] = spoken
                    marks[streaming] = marks_against_aligner(judge, name, spoken)
            if streaming == "sentence":
                again = asyncio.run(
                    speak_all(server.url, judge.sentences, options.voice, "pcm_s16le")
                )
                noise = apart(plain["sentence"], again)
    distance = apart(plain["sentence"], plain["window"])
    count = {
        streaming: sum(len(clicks(each.samples)) for each in plain[streaming].values())
        for streaming in STREAMING
    }
    if options.plots is not None:
        from quality_plot import plot

        for sentence in judge.sentences[:: max(1, len(judge.sentences) // 4)]:
            pair = {way: plain[way][sentence.id].samples for way in STREAMING}
            plot(options.plots / f"{engine}-{sentence.id}.png", sentence.text, pair)
    carried = carries(
        [each["holds"] for each in served if each["streaming"] == "window"],
        distance["mean_db"],
        count["window"],
        count["sentence"],
    )
    return {
        "served": served,
        "log_mel": {"window_to_sentence": distance, "sentence_again": noise},
        "clicks": count,
        "marks": marks,
        "window_may_be_default": carried,
    }


def markdown(result: Mapping[str, Any]) -> str:
    """The result as tables to read."""
    lines = ["# Does it still say the words?", ""]
    lines += [
        (
            f"{result['sentences']} sentences, {result['words']} words, voice `{result['voice']}`;"
            f" recogniser moonshine-voice (tiny, English). Made by `{' '.join(result['command'])}`."
        ),
        "",
        "| audio | word errors | % | at most 2 points over stock |",
        "| --- | ---: | ---: | --- |",
    ]
    for name, reading in result["stock"].items():
        lines.append(f"| stock: {name} | {reading['errors']} | {reading['word_error_rate']} | |")
    for engine, part in result["engines"].items():
        for each in part["served"]:
            lines.append(
                f"| {engine}, {each['streaming']}, {each['format']} | {each['errors']} |"
                f" {each['word_error_rate']} | {'yes' if each['holds'] else '**no**'} |"
            )
    for name, reading in result["controls"].items():
        failed = "fails, as it must" if reading["fails"] else "**passes**"
        lines.append(
            f"| control: {name} | {reading['errors']} | {reading['word_error_rate']} | {failed} |"
        )
    lines += [
        "",
        (
            "Log-mel distance in dB (mean of all sentences, and the worst); clicks are sudden"
            " samples; marks are off by so many ms (median of the sizes, 95 % of them, the most)."
        ),
        "",
        (
            "| engine | window to sentence | sentence to itself | clicks: sentence, window |"
            " word starts: sentence | word starts: window | window may be the default |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for engine, part in result["engines"].items():
        apart_db = part["log_mel"]
        cells = [engine]
        cells += [
            f"{apart_db[way]['mean_db']} ({apart_db[way]['most_db']})"
            for way in ("window_to_sentence", "sentence_again")
        ]
        cells.append(f"{part['clicks']['sentence']}, {part['clicks']['window']}")
        for streaming in STREAMING:
            starts = part["marks"][streaming]["start_ms"]
            cells.append(f"{starts['median_size']}, {starts['p95_size']}, {starts['most']}")
        cells.append("yes" if part["window_may_be_default"] else "**no**")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Whether served speech still says the words.")
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--engine", action="append", choices=("kokoro-onnx", "kokoro-torch"))
    parser.add_argument("--voice", default="af_heart")
    parser.add_argument("--torch-python", default=sys.executable, help="runs what needs torch")
    parser.add_argument("--recogniser-python", default=sys.executable, help="runs the recogniser")
    parser.add_argument("--keep", type=Path, help="a folder for the recordings")
    parser.add_argument("--plots", type=Path, help="a folder for pictures")
    parser.add_argument("--sentences", type=int, help="only so many of them, to try things")
    parser.add_argument("--out", default="evidence/kokoro_quality.json", help="a file, or -")
    return parser


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Everything that is measured."""
    sentences = read_sentences()[: options.sentences]
    texts = [{"id": sentence.id, "text": sentence.text} for sentence in sentences]
    engines: list[str] = options.engine or ["kokoro-onnx"]
    with Recogniser(options.recogniser_python) as recogniser:
        judge = Judge(recogniser, sentences, folder)
        readings: dict[str, Reading] = {}
        made: dict[str, Samples] = {}
        phonemes = own_phonemes(options, sentences)
        for engine in engines:
            model = engine.removeprefix("kokoro-")
            python = options.torch_python if model == "torch" else sys.executable
            for source, entries in (("misaki", texts), ("own phonemes", phonemes)):
                made = stock(python, model, options, entries)
                readings[f"{model}, {source}"] = judge.read(f"stock-{model}-{source}", made)
        trials = {name: judge.read(name, audio) for name, audio in controls(made).items()}
        judged = {}
        for engine in engines:
            model = engine.removeprefix("kokoro-")
            least = min(each.rate for name, each in readings.items() if name.startswith(model))
            python = options.torch_python if model == "torch" else sys.executable
            judged[engine] = judge_engine(engine, python, judge, options, least)
    worst = max(each.rate for each in readings.values())
    return {
        "voice": options.voice,
        "sentences": len(sentences),
        "words": sum(len(sentence.spoken[0]) for sentence in sentences),
        "stock": {name: reading.table() for name, reading in readings.items()},
        "engines": judged,
        "controls": {
            name: {
                "word_error_rate": round(trial.rate, 2),
                "errors": trial.errors,
                "fails": not holds(trial.rate, worst) and trial.rate > CONTROL_ERRORS,
            }
            for name, trial in trials.items()
        },
    }


def main(arguments: list[str]) -> int:
    """Run and write the result; see the module's text for the exit codes."""
    options = _parser().parse_args(arguments)
    started = datetime.datetime.now(datetime.UTC)
    try:
        with tempfile.TemporaryDirectory(prefix="utterwire-quality-") as temporary:
            measured = run(options, options.keep or Path(temporary))
    except (RecogniserError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"kokoro_quality: {error}", file=sys.stderr)
        return 2
    result = record(shown(arguments), started, LIBRARIES) | measured
    write(result, options.out)
    if options.out != "-":
        (ROOT / options.out).with_suffix(".md").write_text(markdown(result), encoding="utf-8")
    print(markdown(result))
    words_hold = all(
        each["holds"] for part in measured["engines"].values() for each in part["served"]
    )
    wrong_fails = all(each["fails"] for each in measured["controls"].values())
    return int(not (words_hold and wrong_fails))


def shown(arguments: Sequence[str]) -> list[str]:
    """The command for the result: paths of this machine are left to the reader."""
    command = ["python", "scripts/kokoro_quality.py"]
    for before, word in zip(["", *arguments], arguments, strict=False):
        command.append(PATHS.get(before, word))
    return command


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
