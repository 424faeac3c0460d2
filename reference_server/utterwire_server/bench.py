"""What this machine can do: first byte, real-time factor, and how many can listen at once.

The server runs as it always does, and listeners speak with it by WebSocket over loopback, in the
same process: scheduler, engine, encoding and sockets are those of real use, the network is not.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from utterwire_server.app import SESSION
from utterwire_server.observer import AUDIBLE_S, Observer, UtteranceRecord
from utterwire_server.playback import Playback
from utterwire_server.runner import Runner, listen
from utterwire_server.service import DEFAULT_SAMPLE_RATE, Service

__all__ = ["SCHEMA", "Bench", "BenchFailed", "Load", "capacity", "percentile", "table"]

#: JSON Schema of the result.
SCHEMA: Final = Path(__file__).with_name("bench.schema.json")
FORMAT: Final = 1
SENTENCES: Final = (
    "The train leaves in ten minutes.",
    "She opened the window and listened to the rain, which had begun again before dawn.",
    "When the lights came back everybody talked at once, and nobody saw that the door was open.",
)
#: How often each sentence is spoken alone.
REPEATS: Final = 5
SILENCE_S: Final = 60.0


class BenchFailed(Exception):
    """The machine could not be measured; the message is one line for a person."""


class Refused(Exception):
    """The server did not take or finish an utterance: the code it gave."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One utterance, as its listener had it; times in seconds."""

    first_byte_s: float
    speech_s: float
    underruns: int
    starved_s: float


@dataclass(frozen=True, slots=True)
class Alone:
    """What a text is like for somebody who is alone with the server; medians, in seconds."""

    characters: int
    speech_s: float
    first_byte_s: float
    first_byte_p95_s: float
    real_time_factor: float


@dataclass(frozen=True, slots=True)
class Load:
    """What so many listeners had; ``refused`` counts utterances that were not taken or failed."""

    listeners: int
    utterances: int
    first_byte_p50_s: float
    first_byte_p95_s: float
    underruns: int
    starved_s: float
    refused: int
    engine_share: float
    carried: bool


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that ``share`` of all do not exceed; 0.0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


async def capacity(measure: Callable[[int], Awaitable[Load]], most: int) -> list[Load]:
    """Find how many listeners are carried: doubling until too many, then halving the gap.

    A load that is not carried is tried once more, since a machine may have been busy elsewhere.
    Every load that was measured, in order; the answer is the largest that was carried.
    """
    loads: list[Load] = []

    async def carries(listeners: int) -> bool:
        for _ in range(2):
            loads.append(await measure(listeners))
            if loads[-1].carried:
                return True
        return False

    good, tried = 0, 1
    while await carries(tried):
        good = tried
        if good == most:
            return loads
        tried = min(2 * tried, most)
    bad = tried
    while bad - good > 1:
        middle = (good + bad) // 2
        if await carries(middle):
            good = middle
        else:
            bad = middle
    return loads


class _Work(Observer):
    """Adds up what the engine did."""

    def __init__(self) -> None:
        self.computing_s = 0.0
        self.speech_s = 0.0

    def ended(self, record: UtteranceRecord) -> None:
        self.computing_s += record.computing_s
        self.speech_s += record.speech_s


class _Listener:
    """A session over loopback that plays what it gets."""

    def __init__(self, session: ClientConnection, voice: str) -> None:
        self._session = session
        self._voice = voice
        self._loop = asyncio.get_running_loop()

    async def hear(self, text: str) -> tuple[Heard, Playback]:
        """Speak ``text``.

        :raises Refused: if the server does not.
        """
        playback = Playback()
        first_byte_s = speech_s = starved_s = 0.0
        underruns = 0
        asked = self._loop.time()
        await self._session.send(json.dumps({"text": text, "voice": self._voice}))
        while True:
            async with asyncio.timeout(SILENCE_S):
                message = await self._session.recv()
            now = self._loop.time()
            if isinstance(message, bytes):
                if not playback.begun:
                    first_byte_s = now - asked
                seconds = len(message) / 2 / DEFAULT_SAMPLE_RATE
                gap = playback.put(seconds, now)
                speech_s += seconds
                if gap > AUDIBLE_S:
                    underruns += 1
                    starved_s += gap
                continue
            told = json.loads(message)
            if told["type"] == "error":
                raise Refused(told["code"])
            if told["type"] == "synthesis_complete":
                return Heard(first_byte_s, speech_s, underruns, starved_s), playback


@dataclass(slots=True)
class Bench:
    """Measures one engine on this machine.

    :param service: what is measured; it is loaded and unloaded here.
    :param options: what else the result is to tell of the engine, such as its threads.
    :param step_s: how long each load is held, in seconds.
    :param most: listeners that are tried at most.
    :param goal_s: p95 of the first byte that a load must keep to be carried, in seconds.
    :param progress: is given a line for each thing that was measured.
    """

    service: Service
    voice: str
    options: Mapping[str, Any] = field(default_factory=dict)
    step_s: float = 20.0
    most: int = 64
    goal_s: float = 0.5
    progress: Callable[[str], None] = print
    _work: _Work = field(default_factory=_Work, init=False)
    _url: str = field(default="", init=False)

    async def run(self) -> dict[str, Any]:
        """The result, as `SCHEMA` has it.

        :raises BenchFailed: if the engine does not start, or does not speak.
        """
        service = self.service
        service.observe(self._work)
        sock = listen("127.0.0.1", 0, send_buffer_bytes=service.settings.send_buffer_bytes)
        self._url = f"ws://127.0.0.1:{sock.getsockname()[1]}{SESSION}"
        runner = Runner(service, sock)
        began = time.monotonic()
        serving = asyncio.create_task(runner.run(), name="bench-server")
        try:
            await self._ready(serving)
            cold_start_s = time.monotonic() - began
            process_s = _process_age_s()
            self.progress(f"ready after {cold_start_s:.2f} s")
            try:
                alone = [await self._alone(text) for text in SENTENCES]
                loads = await capacity(self._load, self.most)
            except (Refused, WebSocketException, OSError, TimeoutError) as error:
                words = str(error) or type(error).__name__
                raise BenchFailed(
                    f"engine {service.engine.name!r} did not speak: {words}"
                ) from None
        finally:
            runner.stop()
            await asyncio.wait({serving})
        return self._result(cold_start_s, process_s, alone, loads)

    async def _ready(self, serving: asyncio.Task[int]) -> None:
        while not self.service.ready:
            if serving.done() or self.service.failed.is_set():
                raise BenchFailed(f"engine {self.service.engine.name!r} could not be started")
            await asyncio.sleep(0.005)

    async def _alone(self, text: str) -> Alone:
        before = (self._work.computing_s, self._work.speech_s)
        async with self._session() as session:
            listener = _Listener(session, self.voice)
            heard = [(await listener.hear(text))[0] for _ in range(REPEATS)]
        computing_s = self._work.computing_s - before[0]
        speech_s = self._work.speech_s - before[1]
        if not speech_s:
            raise Refused("it made no audio")
        first = [one.first_byte_s for one in heard]
        alone = Alone(
            characters=len(text),
            speech_s=heard[0].speech_s,
            first_byte_s=percentile(first, 0.5),
            first_byte_p95_s=percentile(first, 0.95),
            real_time_factor=computing_s / speech_s,
        )
        self.progress(
            f"alone, {alone.characters} characters: first byte {alone.first_byte_s * 1_000:.0f} ms,"
            f" real-time factor {alone.real_time_factor:.3f}"
        )
        return alone

    def _session(self) -> connect:
        return connect(self._url, compression=None, proxy=None, max_size=None, ping_interval=None)

    async def _load(self, listeners: int) -> Load:
        heard: list[Heard] = []
        refusals: list[str] = []
        loop = asyncio.get_running_loop()
        began, computed = loop.time(), self._work.computing_s
        ends = began + self.step_s

        async def listen_on(place: int) -> None:
            # Nobody sits down at the same moment as everybody else.
            await asyncio.sleep(min(self.step_s / 4, 2.0) * place / listeners)
            async with self._session() as session:
                listener = _Listener(session, self.voice)
                turn = place
                while not refusals:
                    try:
                        one, playback = await listener.hear(SENTENCES[turn % len(SENTENCES)])
                    except (Refused, WebSocketException, OSError, TimeoutError) as error:
                        refusals.append(str(error) or type(error).__name__)
                        return
                    heard.append(one)
                    turn += 1
                    # The next sentence is asked for when this one has been heard. Who came to
                    # sit down late has heard one as well: nobody at all is no load.
                    await asyncio.sleep(playback.ahead_s(loop.time()))
                    if loop.time() >= ends:
                        return

        async with asyncio.TaskGroup() as group:
            for place in range(listeners):
                group.create_task(listen_on(place), name=f"listener-{place}")
        took = loop.time() - began
        first = [one.first_byte_s for one in heard]
        p95 = percentile(first, 0.95)
        underruns = sum(one.underruns for one in heard)
        load = Load(
            listeners=listeners,
            utterances=len(heard),
            first_byte_p50_s=percentile(first, 0.5),
            first_byte_p95_s=p95,
            underruns=underruns,
            starved_s=sum(one.starved_s for one in heard),
            refused=len(refusals),
            engine_share=(self._work.computing_s - computed)
            / (took * self.service.engine.concurrency),
            carried=not underruns and not refusals and p95 <= self.goal_s,
        )
        self.progress(
            f"{listeners} at once: first byte p95 {p95 * 1_000:.0f} ms, {underruns} underruns"
            + (f", refused: {refusals[0]}" if refusals else "")
            + ("" if load.carried else ": too many")
        )
        return load

    def _result(
        self, cold_start_s: float, process_s: float | None, alone: list[Alone], loads: list[Load]
    ) -> dict[str, Any]:
        service = self.service
        engine = service.engine
        carried = max((load.listeners for load in loads if load.carried), default=0)
        return {
            "format": FORMAT,
            "method": "loopback",
            "utterwire": metadata.version("utterwire"),
            "machine": _machine(),
            "engine": {
                "name": engine.name,
                "concurrency": engine.concurrency,
                "voice": self.voice,
                "options": dict(self.options),
            },
            "cold_start_s": _short(cold_start_s),
            "process_start_s": None if process_s is None else _short(process_s),
            "alone": [_shortened(asdict(one)) for one in alone],
            "real_time_factor": _short(max(one.real_time_factor for one in alone)),
            "capacity": {
                "listeners": carried,
                "goal_first_byte_p95_s": self.goal_s,
                "step_s": self.step_s,
                "at_most": self.most,
                "more_possible": carried == self.most,
                "loads": [_shortened(asdict(load)) for load in loads],
            },
            "limits": {
                name: getattr(service.settings, name)
                for name in (
                    *("max_sessions", "max_waiting", "max_queued_chars", "max_queued_work_s"),
                    "shutdown_timeout_s",
                )
            },
        }


def _short(value: float) -> float:
    return round(value, 4)


def _shortened(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: _short(v) if isinstance(v, float) else v for k, v in fields.items()}


def _machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": _cores(),
        "memory_bytes": _memory_bytes(),
        "python": platform.python_version(),
        "versions": {
            name: version
            for name in ("numpy", "onnxruntime", "torch", "uvicorn", "websockets")
            if (version := _version(name)) is not None
        },
    }


def _version(name: str) -> str | None:
    # What is not loaded had no part in it.
    if name not in sys.modules:
        return None
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cores() -> int:
    """Those that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _process_age_s() -> float | None:
    """Seconds since this process began, its imports included; None where nothing tells."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (AttributeError, OSError, ValueError):
        return None


def table(result: Mapping[str, Any]) -> str:
    """The result for people, without the line end."""
    engine, machine, found = result["engine"], result["machine"], result["capacity"]
    ready = f"ready after {result['cold_start_s']:.2f} s"
    rows = [
        f"engine {engine['name']}, voice {engine['voice']}, {machine['cores']} cores, {ready}",
        "",
        "alone       characters  speech s  first byte ms  p95 ms  real-time factor",
    ]
    rows += [
        f"{'':12}{one['characters']:10}{one['speech_s']:10.2f}{one['first_byte_s'] * 1_000:15.0f}"
        f"{one['first_byte_p95_s'] * 1_000:8.0f}{one['real_time_factor']:18.3f}"
        for one in result["alone"]
    ]
    rows += ["", "at once     utterances  underruns  first byte ms  p95 ms  engine busy"]
    rows += [
        f"{load['listeners']:7}{load['utterances']:15}{load['underruns']:11}"
        f"{load['first_byte_p50_s'] * 1_000:15.0f}{load['first_byte_p95_s'] * 1_000:8.0f}"
        f"{load['engine_share'] * 100:11.0f} %" + ("" if load["carried"] else "  too many")
        for load in sorted(found["loads"], key=lambda load: int(load["listeners"]))
    ]
    least = "at least " if found["more_possible"] else ""
    goal = f"{found['goal_first_byte_p95_s'] * 1_000:.0f} ms"
    rows += [
        "",
        f"capacity: {least}{found['listeners']} listeners at once, none of whom runs dry,",
        f"with p95 of the first byte within {goal}",
    ]
    return "\n".join(rows)
