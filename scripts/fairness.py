"""How long sixteen sessions wait for their first byte behind one long text.

    python scripts/fairness.py                     writes evidence/fairness.json
    python scripts/fairness.py --rounds 3 --out -

Two servers with the tone engine at a real-time factor of 0.04 are measured in turns, in one run:
the reference server, and the same one with an engine that a lock gives to one request at a time,
from its first block to its last, as servers without a scheduler do. Each round asks for one
sentence in sixteen sessions at once: alone, and while a text of 1,500 characters is spoken in
another session.

Exits 1 if the long text makes the 95th percentile more than 1.3 times as long, 2 without a result.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path

from launched_server import LaunchedServer
from provenance import record, write
from utterwire_server.engines import Block, Engine, SpeechRequest, ToneEngine
from websockets.asyncio.client import ClientConnection, connect

__all__ = ["locked_tone", "main", "measure"]

LIBRARIES = ("numpy", "starlette", "uvicorn", "websockets")
REAL_TIME_FACTOR = 0.04
SESSIONS = 16
MOST = 1.3
SENTENCE = "The rain had stopped before anybody thought of the boats."
LONG = ("A long story about nothing at all, told slowly, by somebody who had time. " * 21)[:1_500]


class LockedTone(ToneEngine):
    """Speaks one utterance at a time, from its first block to its last."""

    name = "locked"
    concurrency = 1_000

    def __init__(self) -> None:
        super().__init__(REAL_TIME_FACTOR)
        self._lock = asyncio.Lock()

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        async with self._lock, aclosing(super().synthesize(request)) as stream:
            async for block in stream:
                yield block


def locked_tone() -> Engine:
    """The engine that is compared with."""
    return LockedTone()


async def _first_byte(session: ClientConnection, text: str) -> float:
    """Seconds from the request to its first audio; nothing more is read."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await session.send(json.dumps({"text": text}))
    while not isinstance(await session.recv(), bytes):
        pass
    return loop.time() - began


async def _all_audio(session: ClientConnection) -> None:
    while True:
        message = await session.recv()
        if isinstance(message, str) and json.loads(message)["type"] == "synthesis_complete":
            return


async def measure(url: str, *, behind: bool) -> list[float]:
    """The first byte of each session, in seconds; ``behind`` a long text or alone."""
    async with contextlib.AsyncExitStack() as stack:

        async def session() -> ClientConnection:
            return await stack.enter_async_context(
                connect(url, compression=None, proxy=None, open_timeout=60)
            )

        reading = None
        if behind:
            first = await session()
            await _first_byte(first, LONG)
            reading = asyncio.create_task(_all_audio(first))
        sessions = [await session() for _ in range(SESSIONS)]

        async def one(each: ClientConnection) -> float:
            waited = await _first_byte(each, SENTENCE)
            await _all_audio(each)
            return waited

        if reading is not None and reading.done():
            raise RuntimeError("the long text was over before the sentences were asked for")
        waits = await asyncio.gather(*(one(each) for each in sessions))
        if reading is not None:
            reading.cancel()
            await asyncio.wait({reading})
        return list(waits)


def _summary(waits: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(waits, n=20, method="inclusive")
    return {"p50_s": round(statistics.median(waits), 4), "p95_s": round(cuts[18], 4)}


@contextlib.contextmanager
def _launched() -> Iterator[dict[str, str]]:
    """A server with each engine; their addresses."""
    engines = {"scheduler": "tone", "lock per request": "fairness:locked_tone"}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield {
            name: stack.enter_context(
                LaunchedServer(
                    ["--engine", engine, "--rtf", str(REAL_TIME_FACTOR)],
                    log=folder / f"{engine.partition(':')[0]}.log",
                    modules=[Path(__file__).parent],
                )
            ).url
            for name, engine in engines.items()
        }


async def _compare(urls: dict[str, str], rounds: int) -> dict[str, dict[str, object]]:
    waits: dict[str, dict[bool, list[float]]] = {name: {False: [], True: []} for name in urls}
    for number in range(rounds):
        for name, url in urls.items():
            # Which comes first changes, so that no drift of the machine falls on one of them.
            for behind in (False, True) if number % 2 else (True, False):
                waits[name][behind] += await measure(url, behind=behind)
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    result: dict[str, dict[str, object]] = {}
    for name, by in waits.items():
        alone, behind_it = _summary(by[False]), _summary(by[True])
        ratio = round(behind_it["p95_s"] / alone["p95_s"], 3)
        result[name] = {"alone": alone, "behind_long_text": behind_it, "p95_ratio": ratio}
    return result


def main(arguments: list[str]) -> int:
    """Measure and write the result; see the module's text for the exit codes."""
    parser = argparse.ArgumentParser(description="Wait for a first byte behind a long text.")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", default="evidence/fairness.json", help="a file, or - for stdout")
    options = parser.parse_args(arguments)
    started = datetime.datetime.now(datetime.UTC)
    try:
        with _launched() as urls:
            compared = asyncio.run(_compare(urls, options.rounds))
    except (OSError, RuntimeError) as error:
        print(f"fairness: {error}", file=sys.stderr)
        return 2
    head = record(["python", "scripts/fairness.py", *arguments], started, LIBRARIES)
    result = {
        "engine": f"tone, real-time factor {REAL_TIME_FACTOR}",
        "sessions": SESSIONS,
        "rounds": options.rounds,
        "sentence_characters": len(SENTENCE),
        "long_text_characters": len(LONG),
        "most": MOST,
        **compared,
    }
    write({**head, **result}, options.out)
    ratio = compared["scheduler"]["p95_ratio"]
    assert isinstance(ratio, float)
    for name, figures in compared.items():
        print(f"{name}: p95 of the first byte {figures['p95_ratio']} times that without the text")
    return int(ratio > MOST)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
