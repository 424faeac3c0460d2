"""How well texts are cut into sentences as they come, and how soon: ours beside others.

    python benchmarks/chunkers.py --peers .venv-peers/bin/python

Each chunker runs in a process of its own, under a time limit, for some hang. Those that take whole
texts only are used as agents use them: all that came so far is cut, and all sentences but the
last are spoken. ``--peers`` is a Python that has the others (``pip install sentencex pysbd
stream2sentence livekit-blingfire``; no package of this project is needed there); what is missing is
told and left out. Cost is CPU time, so that a busy machine tells no tales. A run of all writes the
table into ``reference_client/README.md``, too.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import queue
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "reference_client" / "tests" / "data"
#: Where the table is shown, and between what.
README = ROOT / "reference_client" / "README.md"
BEGIN, END = "<!-- table of benchmarks/chunkers.py -->", "<!-- end of table -->"
LIMIT_S = 60.0
#: Distribution of each chunker.
CHUNKERS = {
    "utterwire": "utterwire",
    "sentencex": "sentencex",
    "pysbd": "pysbd",
    "stream2sentence": "stream2sentence",
    "blingfire": "livekit-blingfire",
    "regex": "",
}
TITLES = {
    "utterwire": "`IncrementalSentenceChunker`",
    "sentencex": "sentencex alone",
    "regex": r"regex `(?<=[.!?])\s+`",
    "blingfire": "livekit-blingfire",
}
#: About a token of a language model, in characters.
TOKEN = 4

#: Pieces as they come, each with how many characters had been fed by then.
Pieces = list[tuple[str, int]]
Cutter = Callable[[list[str], str], Pieces]


# The process of one chunker: nothing but the standard library and the chunker.


def _utterwire() -> Cutter:
    from utterwire_client import IncrementalSentenceChunker

    def cut(fragments: list[str], language: str) -> Pieces:
        chunker = IncrementalSentenceChunker(language=language)
        pieces: Pieces = []
        fed = 0
        for fragment in fragments:
            fed += len(fragment)
            pieces += [(piece, fed) for piece in chunker.feed(fragment)]
        return pieces + [(piece, fed + 1) for piece in chunker.flush()]

    return cut


def _all_but_the_last(segment: Callable[[str, str], list[str]]) -> Cutter:
    """A chunker from what cuts whole texts."""

    def cut(fragments: list[str], language: str) -> Pieces:
        pieces: Pieces = []
        buffer = ""
        fed = 0
        for fragment in fragments:
            fed += len(fragment)
            buffer += fragment
            *whole, buffer = segment(buffer, language) or [""]
            pieces += [(piece, fed) for piece in whole]
        return [*pieces, (buffer, fed + 1)]

    return cut


def _sentencex() -> Cutter:
    from sentencex import segment

    return _all_but_the_last(lambda text, language: list(segment(language, text)))


def _pysbd() -> Cutter:
    from pysbd import Segmenter
    from pysbd.languages import LANGUAGE_CODES

    made: dict[str, Any] = {}

    def segment(text: str, language: str) -> list[str]:
        code = language if language in LANGUAGE_CODES else "en"
        if code not in made:
            made[code] = Segmenter(language=code, clean=False)
        return list(made[code].segment(text))

    return _all_but_the_last(segment)


def _blingfire() -> Cutter:
    from livekit.blingfire import text_to_sentences_with_offsets

    def segment(text: str, _: str) -> list[str]:
        ends = [end for _, end in text_to_sentences_with_offsets(text)[1]]
        return [
            text[start:end]
            for start, end in zip([0, *ends[:-1]], [*ends[:-1], len(text)], strict=True)
        ]

    return _all_but_the_last(segment)


def _regex() -> Cutter:
    return _all_but_the_last(lambda text, _: re.split(r"(?<=[.!?])\s+", text))


def _stream2sentence() -> Cutter:
    from stream2sentence import generate_sentences

    def cut(fragments: list[str], language: str) -> Pieces:
        fed = 0

        def source() -> Iterator[str]:
            nonlocal fed
            for fragment in fragments:
                fed += len(fragment)
                yield fragment
            fed += 1

        return [(piece, fed) for piece in generate_sentences(source(), language=language)]

    return cut


MAKERS: dict[str, Callable[[], Cutter]] = {
    "utterwire": _utterwire,
    "sentencex": _sentencex,
    "pysbd": _pysbd,
    "stream2sentence": _stream2sentence,
    "blingfire": _blingfire,
    "regex": _regex,
}


def work(name: str) -> None:
    """Answer each task on stdin, a line of JSON, by a line on stdout."""
    # What a library prints is no answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(value: object) -> None:
        print(json.dumps(value), file=answers, flush=True)

    try:
        cut = MAKERS[name]()
        cut(["One. Two."], "en")
        version = _version(CHUNKERS[name])
    except ImportError as exc:
        answer({"missing": str(exc)})
        return
    answer({"version": version})
    for line in sys.stdin:
        task = json.loads(line)
        started = time.process_time()
        try:
            pieces = cut(task["fragments"], task["language"])
        except Exception as exc:
            answer({"failed": repr(exc)})
        else:
            answer({"pieces": pieces, "seconds": time.process_time() - started})


def _version(distribution: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(distribution) if distribution else None
    except metadata.PackageNotFoundError:
        return None


# The other side: tasks, and what is made of the answers.


class Worker:
    """A chunker in a process, which is killed when it takes longer than the limit."""

    def __init__(self, python: str, name: str) -> None:
        self._command = [python, str(Path(__file__).resolve()), "--work", name]
        self._answers: queue.Queue[str] = queue.Queue()
        self._process: subprocess.Popen[str] | None = None
        self.hangs = 0
        self.failures = 0
        self.hello = self._start()

    def _start(self) -> dict[str, Any]:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        self._answers = queue.Queue()
        threading.Thread(
            target=self._read, args=(self._process, self._answers), daemon=True
        ).start()
        return self._answer(60) or {"missing": "it did not start"}

    def _read(self, process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answers.put(line)
        answers.put("")

    def _answer(self, limit_s: float) -> dict[str, Any] | None:
        try:
            line = self._answers.get(timeout=limit_s)
        except queue.Empty:
            return None
        return dict(json.loads(line)) if line else None

    def cut(self, fragments: list[str], language: str = "en") -> dict[str, Any] | None:
        """Pieces and seconds of CPU; None if it took too long or failed."""
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"fragments": fragments, "language": language}) + "\n")
        self._process.stdin.flush()
        answer = self._answer(LIMIT_S)
        if answer is None:
            self.hangs += 1
            self.close()
        elif "failed" in answer:
            self.failures += 1
            return None
        return answer

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _plain(pieces: list[str]) -> list[str]:
    """White space between pieces belongs to either side."""
    plain = [" ".join(piece.split()) for piece in pieces]
    return [piece for piece in plain if piece]


def _fragments(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _at_random(text: str, chance: random.Random) -> list[str]:
    fragments = []
    while text:
        size = chance.randint(1, 12)
        fragments.append(text[:size])
        text = text[size:]
    return fragments


def _delays(text: str, expected: list[str], pieces: Pieces) -> list[int]:
    """For each piece that had to come before the end and did: characters fed after its last."""
    right = {}
    at = 0
    for piece in expected[:-1]:
        at = text.index(piece.strip(), at) + len(piece.strip())
        right[at] = piece
    delays = []
    at = 0
    for piece, fed in pieces:
        plain = piece.strip()
        found = text.find(plain, at) if plain else -1
        if found < 0:
            continue
        at = found + len(plain)
        if at in right and fed <= len(text):
            delays.append(fed - at)
    return delays


def measure(worker: Worker, sets: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Exactness, invariance, delay and cost of one chunker."""
    chance = random.Random(6)
    exact: dict[str, dict[str, int]] = {}
    delays: list[int] = []
    same = count = boundaries = 0
    for name, items in sets.items():
        whole = streamed = 0
        for item in items:
            text, language = item["in"], item.get("language", "en")
            cuttings = [[text], list(text), _at_random(text, chance), _at_random(text, chance)]
            answers = [worker.cut(cutting, language) for cutting in cuttings]
            made = [
                _plain([piece for piece, _ in answer["pieces"]]) if answer else None
                for answer in answers
            ]
            wanted = _plain(item["out"])
            whole += made[0] == wanted
            streamed += made[1] == wanted
            same += all(pieces is not None and pieces == made[0] for pieces in made)
            count += 1
            boundaries += len(item["out"]) - 1
            if answers[1]:
                delays += _delays(text, item["out"], answers[1]["pieces"])
        exact[name] = {"items": len(items), "whole": whole, "streamed": streamed}
    english = " ".join(
        item["in"].replace("\n", " ")
        for items in sets.values()
        for item in items
        if item.get("language", "en") == "en"
    )
    prose = (english * 3)[:20_000]
    running = ("and so it went on " * 250)[:4_000]
    return {
        "exact": exact,
        "same_for_every_cutting": {"items": count, "same": same},
        "delay_characters": {
            "boundaries": boundaries,
            "found_before_the_end": len(delays),
            "median": statistics.median(delays) if delays else None,
            "p90": sorted(delays)[int(len(delays) * 0.9)] if delays else None,
        },
        "us_per_character": _seconds(worker, _fragments(prose, TOKEN), 1e6 / len(prose)),
        "ms_for_4000_unpunctuated": _seconds(worker, _fragments(running, TOKEN), 1e3),
        "hangs": worker.hangs,
        "failures": worker.failures,
    }


def _seconds(worker: Worker, fragments: list[str], scale: float) -> float | None:
    """The best of several, scaled; None if it took longer than the limit."""
    times: list[float] = []
    while len(times) < 10 and sum(times) < 3 * scale:
        answer = worker.cut(fragments)
        if answer is None:
            return None
        times.append(answer["seconds"] * scale)
    return round(min(times), 3)


def table(results: dict[str, Any]) -> str:
    """Results as a table in Markdown."""
    if not results:
        return ""
    sets = list(next(iter(results.values()))["exact"])
    head = ["", *(f"{name}, exact" for name in sets), "same for every cutting"]
    head += ["median delay", "µs per character", "4,000 unpunctuated"]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name, result in results.items():
        cut = result["same_for_every_cutting"]
        delay = result["delay_characters"]["median"]
        per_character, running = result["us_per_character"], result["ms_for_4000_unpunctuated"]
        late = f"over {LIMIT_S:.0f} s"
        rows.append(
            [
                TITLES.get(name, name),
                *(f"{each['streamed']} of {each['items']}" for each in result["exact"].values()),
                f"{100 * cut['same'] / cut['items']:.0f} %",
                "-" if delay is None else f"{delay:.0f}",
                late if per_character is None else f"{per_character:.1f}",
                late if running is None else f"{running:.1f} ms",
            ]
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main(arguments: list[str]) -> int:
    """Measure all that are there; print the table, write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--only", action="append", choices=CHUNKERS, help="may be repeated")
    parser.add_argument("--golden", type=Path, help="the English Golden Rules, as JSON")
    parser.add_argument("--out", default="evidence/chunkers.json", help="a path, or - for stdout")
    parser.add_argument("--work", choices=CHUNKERS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work(options.work)
        return 0

    sys.path.insert(0, str(ROOT / "scripts"))
    from provenance import record, write

    started = datetime.datetime.now(datetime.UTC)
    paths = {
        "voice": DATA / "voice_sentences.json",
        "held out": DATA / "voice_sentences_held_out.json",
    }
    if options.golden:
        paths = {"golden": options.golden, **paths}
    sets = {
        name: json.loads(path.read_text(encoding="utf-8"))["items"] for name, path in paths.items()
    }
    results: dict[str, Any] = {}
    for name in options.only or CHUNKERS:
        python = sys.executable if name in ("utterwire", "regex") else options.peers
        worker = Worker(python, name)
        try:
            if "missing" in worker.hello:
                print(f"{name} is left out: {worker.hello['missing']}", file=sys.stderr)
                continue
            results[name] = {"version": worker.hello["version"], **measure(worker, sets)}
        finally:
            worker.close()
    command = [
        "python",
        "benchmarks/chunkers.py",
        *(["--golden", "FILE"] if options.golden else []),
    ]
    result = {
        **record(command, started, ["sentencex"]),
        "time_limit_s": LIMIT_S,
        "chunkers": results,
    }
    write(result, options.out)
    print(table(results), file=sys.stderr)
    if options.out != "-" and not options.only:
        text = README.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        README.write_text(f"{before}{BEGIN}\n\n{table(results)}\n\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
