"""Engines that misbehave in a process of their own; `test_worker` names them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from utterwire_server.engines import Block, Engine, EngineError, SpeechRequest, ToneEngine
from utterwire_server.engines.worker import WorkerEngine
from utterwire_server.logs import log_event


class ObedientEngine(ToneEngine):
    """Speaks; after two blocks it does what the text says."""

    def __init__(self, real_time_factor: float = 0.0, folder: str = "") -> None:
        super().__init__(real_time_factor)
        self._folder = Path(folder)
        self._broken = False

    @property
    def healthy(self) -> bool:
        return not self._broken

    async def start(self) -> None:
        print("loading the model", flush=True)
        log_event("loaded", size=3)

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        made = 0
        async with aclosing(super().synthesize(request)) as stream:
            async for block in stream:
                made += 1
                if made == 3:
                    await self._obey(request.text)
                yield block

    async def _obey(self, text: str) -> None:
        print(text, flush=True)
        match text.split()[0]:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(7)
            case "hang":
                (self._folder / "held").touch()
                time.sleep(600)  # noqa: ASYNC251 - it blocks its loop, which no engine should
            case "garble":
                os.write(int(sys.argv[1]), b"what a worker gone mad may say " * 9)
            case "fail":
                raise EngineError("this worker will not say that")
            case "break":
                self._broken = True
                raise EngineError("this worker will never say anything again")
            case "hold":
                # As a model does that computes in a thread: a cancel cannot stop it.
                (self._folder / "held").touch()
                waiting = asyncio.create_task(_appears(self._folder / "gate"))
                try:
                    await asyncio.shield(waiting)
                except asyncio.CancelledError:
                    await waiting
                    raise


class CrashingEngine(ToneEngine):
    """Dies as it starts, until it has tried ``times``; each try is a letter in ``tries``."""

    def __init__(self, tries: str, times: int) -> None:
        super().__init__()
        self._tries = Path(tries)
        self._times = times

    async def start(self) -> None:
        with self._tries.open("a", encoding="utf-8") as file:
            file.write("x")
        if self._tries.stat().st_size <= self._times:
            os.kill(os.getpid(), signal.SIGSEGV)


class SlowEngine(ToneEngine):
    """Is ready when the file ``gate`` is there."""

    def __init__(self, gate: str) -> None:
        super().__init__()
        self._gate = Path(gate)

    async def start(self) -> None:
        (self._gate.parent / "loading").touch()
        await _appears(self._gate)


async def _appears(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110, ASYNC240 - nothing announces a file
        await asyncio.sleep(0.005)


def refusing() -> Engine:
    raise EngineError("no model\nin /nowhere")


def raising() -> Engine:
    raise OSError("no such device")


def nothing() -> None:
    """Makes no engine."""


def served() -> Engine:
    """What `utterwire-server --engine worker_engines:served` speaks with."""
    return WorkerEngine(
        "worker_engines:ObedientEngine",
        {"real_time_factor": 0.25},
        like=ToneEngine(),
        block_timeout_s=60.0,
    )
