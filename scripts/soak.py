"""Minutes of mixed load on one server: is anything kept that should have been given back?

    python scripts/soak.py --minutes 5                        the tone engine
    python scripts/soak.py --minutes 30 --engine kokoro-onnx -- --model-dir /path/to/model
    python scripts/soak.py --minutes 1 --out -

What stands after ``--`` goes to the server, which runs in a process of its own. Clients by
WebSocket and by HTTP listen, cancel, break off, stop reading, and send what is no request; the
server's memory, open files, threads and gauges are looked at all the while. Eight times in
between all clients end what they are at, and the server is looked at when it has nothing to do:
what it holds then is not in use, but kept. So at those times and at the end, when all have left:

- the clients saw every accepted utterance end exactly once, and so did the server;
- no task, stream, place in the queue, session or file is left that was not there at the beginning;
- in the last third of the run the memory at rest stayed within 2 % (judged from 5 minutes on).

The result is written again at each look, so that a run that is broken off (Ctrl-C) leaves what it
has seen. Exits 0 if all of that holds, 1 if not, 2 if there was no run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
from launched_server import package_environment
from provenance import record, write
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

__all__ = ["Soak", "judge", "main"]

LIBRARIES = ("httpx", "numpy", "starlette", "uvicorn", "websockets")
LOOK_S = 2.0
RESTS = 8
#: A rest takes as long as the slowest client; more often, there would be little load.
REST_LEAST_S = 20.0
#: By then the server has given up whoever does not read, and whoever does not go.
QUIET_S = 20.0
MEMORY_SPREAD = 0.02
MEMORY_FROM_S = 300.0
WORDS = (
    *("Rain,", "one,", "two,", "and", "then", "the", "boats", "came", "home;", "nobody"),
    *("had", "thought", "of", "it", "before.", "7", "\u4e03", "\u00fcber", "..."),
)
BAD = (
    *(b"", b"{", b"[]", b'{"text": 1}', b'{"type": "x"}', b"\xff\xfe"),
    b'{"text": "a", "speed": 9}',
)
FORMATS: tuple[str, ...] = ("pcm_s16le", "pcm_s16le", "wav", "mulaw")
if find_spec("av") is not None:
    FORMATS = (*FORMATS, "mp3", "aac", "opus")
_ENDS = frozenset({"synthesis_complete", "error", "cancelled"})
#: Gauges that are 0 when nobody is there.
_GAUGES = (
    "guests", "active_sessions", "streams", "blocks_computing", "queued_utterances",
    "queued_characters",
)  # fmt: skip


@dataclass
class Soak:
    """One run: its server, what the clients did, and what was seen of the server."""

    process: asyncio.subprocess.Process
    port: int
    chance: random.Random
    #: A client that waits so long for anything has found a fault.
    patience_s: float
    done: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    looks: list[dict[str, float]] = field(default_factory=list)
    rests: list[dict[str, float]] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    going: asyncio.Event = field(default_factory=asyncio.Event)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    busy: int = 0

    def session(self, **options: Any) -> connect:
        """A session, to be awaited or entered."""
        url = f"ws://127.0.0.1:{self.port}/invocations-bidirectional-stream"
        return connect(url, compression=None, proxy=None, open_timeout=self.patience_s, **options)

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def text(self, most: int = 40) -> str:
        """Some words, now and then many of them."""
        count = self.chance.choice((1, 3, 8, 8, 12, most))
        return " ".join(self.chance.choices(WORDS, k=count))

    def fault(self, words: str) -> None:
        """Note a promise that was not kept; the first hundred."""
        self.done["faults"] += 1
        if len(self.faults) < 100:
            self.faults.append(words)

    # What clients do

    async def converse(self) -> None:
        """Ask, cancel, send rubbish and read, and close in order: each request ends once."""
        async with self.session() as session:
            asked = expected = 0
            # Who does not read while it asks would be given up for that.
            hearing = asyncio.create_task(self._hear(session))
            try:
                for _ in range(self.chance.randrange(1, 8)):
                    asked += 1
                    expected += await self._ask(session)
                    if self.chance.random() < 0.3:
                        await asyncio.sleep(self.chance.random())
                await session.send(json.dumps({"type": "close"}))
                last_seq, ended = await hearing
            finally:
                hearing.cancel()
                await asyncio.wait({hearing})
            if last_seq != asked + 1:
                self.fault(f"last_seq {last_seq} after {asked + 1} messages")
            if len(ended) != expected or max(ended.values(), default=1) > 1:
                self.fault(f"{expected} requests had these ends: {dict(ended)}")

    async def _ask(self, session: ClientConnection) -> bool:
        """Send something; whether it has an end."""
        action = self.chance.random()
        if action < 0.7:
            wish = {"text": self.text(), "format": self.chance.choice(FORMATS)}
            await session.send(json.dumps(wish))
        elif action < 0.8:
            await session.send(json.dumps({"type": "cancel"}))
        elif action < 0.9:
            await session.send(self.chance.choice(BAD))
        else:
            await session.send(json.dumps({"type": "keepalive"}))
            return False
        return True

    async def _hear(self, session: ClientConnection) -> tuple[int, Counter[int]]:
        """Read to the end of a session: its `last_seq`, and how often each request ended."""
        ended = Counter[int]()
        while True:
            message = await session.recv()
            if isinstance(message, bytes):
                continue
            told = json.loads(message)
            self.done[f"ws {told.get('code') or told['type']}"] += 1
            if told["type"] == "session_closed":
                return told["last_seq"], ended
            if told["type"] in _ENDS or told["type"] == "cancel_done":
                ended[told["seq"]] += 1

    async def break_off(self) -> None:
        """Vanish in mid-speech, or before it, with or without a close frame."""
        session = await self.session()
        for _ in range(self.chance.randrange(1, 4)):
            await session.send(json.dumps({"text": self.text(200)}))
        if self.chance.random() < 0.8:
            await self._some(session)
        if self.chance.random() < 0.5:
            session.transport.abort()
            await session.wait_closed()
        else:
            await session.close()

    async def interrupt(self) -> None:
        """Cancel in mid-speech and ask for something else at once, several times."""
        async with self.session() as session:
            for _ in range(self.chance.randrange(1, 4)):
                await session.send(json.dumps({"text": self.text(100)}))
                await self._some(session)
                await session.send(json.dumps({"type": "cancel"}))
                while True:
                    message = await session.recv()
                    if isinstance(message, str):
                        told = json.loads(message)
                        if told["type"] == "cancel_done":
                            break

    async def stall(self) -> None:
        """Read nothing for longer than the server bears, or for a while."""
        session = await self.session(max_queue=1)
        with contextlib.suppress(ConnectionClosed):
            await session.send(json.dumps({"text": self.text(400)}))
            await asyncio.sleep(self.chance.choice((1.0, 3.0, 6.0)))
            await self._some(session)
        session.transport.abort()
        await session.wait_closed()

    async def _some(self, session: ClientConnection) -> None:
        for _ in range(self.chance.randrange(1, 12)):
            message = await session.recv()
            if isinstance(message, str) and json.loads(message)["type"] in _ENDS:
                return

    async def request(self) -> None:
        """Ask by HTTP: streamed, whole or as events, or for what cannot be."""
        async with httpx.AsyncClient(trust_env=False, timeout=self.patience_s) as client:
            body: dict[str, Any] = {"text": self.text()}
            headers = {}
            how = self.chance.choice(("streamed", "whole", "events", "bad"))
            if how == "whole":
                body["stream"] = False
            elif how == "events":
                headers["Accept"] = "text/event-stream"
            elif how == "bad":
                body = {"text": self.chance.choice((1, "", None))}
            answer = await client.post(f"{self.http}/invocations", json=body, headers=headers)
        self.done[f"http {how} {answer.status_code}"] += 1
        wanted = (400,) if how == "bad" else (200, 503)
        if answer.status_code not in wanted:
            self.fault(f"http {how}: {answer.status_code} {answer.text[:200]}")
        if how == "events" and answer.status_code == 200:
            ends = re.findall(r"^event: (audio_stream_end|error)$", answer.text, re.MULTILINE)
            if len(ends) != 1:
                self.fault(f"a stream of events had these ends: {ends}")

    async def request_and_leave(self) -> None:
        """Ask by HTTP, or begin to, and vanish."""
        body = json.dumps({"text": self.text(300), "stream": self.chance.random() < 0.5}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        whole = head + body
        writer.write(whole[: self.chance.choice((5, len(head) + 3, len(whole), len(whole)))])
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.chance.random()):
                await reader.read(self.chance.choice((1, 50_000)))
        writer.transport.abort()

    async def be_a_client(self) -> None:
        """One thing after another until the run is over."""
        ways: list[Callable[[], Awaitable[None]]] = [
            self.converse, self.converse, self.converse, self.break_off, self.interrupt,
            self.stall, self.request, self.request, self.request_and_leave,
        ]  # fmt: skip
        while await self.going.wait() and not self.stopping.is_set():
            way = self.chance.choice(ways)
            name = getattr(way, "__name__", "?")
            self.busy += 1
            self.idle.clear()
            try:
                async with asyncio.timeout(self.patience_s):
                    await way()
                self.done[name] += 1
            except InvalidStatus as error:
                self.done[f"refused {error.response.status_code}"] += 1
                if error.response.status_code != 503:
                    self.fault(f"{name}: {error}")
            except Exception as error:
                self.fault(f"{name}: {type(error).__name__}: {error}"[:300])
            finally:
                self.busy -= 1
                if not self.busy:
                    self.idle.set()

    # What is seen of the server

    async def look(self) -> dict[str, float]:
        """Memory in MiB, files, threads and, where it has them, the server's gauges."""
        folder = Path(f"/proc/{self.process.pid}")
        status = (folder / "status").read_text(encoding="ascii")
        seen: dict[str, float] = {
            "rss_mib": int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1_024,
            "threads": int(re.findall(r"Threads:\s+(\d+)", status)[0]),
            "files": len(os.listdir(folder / "fd")),
        }
        async with httpx.AsyncClient(trust_env=False, timeout=self.patience_s) as client:
            answer = await client.get(f"{self.http}/metrics")
        if answer.status_code == 200:
            for name, value in re.findall(r"^utterwire_(\S+?) (\S+)$", answer.text, re.MULTILINE):
                if name in _GAUGES or name == "tasks":
                    seen[name] = float(value)
                elif name.startswith(("accepted_total", "utterances_total")):
                    total = name.partition("_total")[0]
                    seen[total] = seen.get(total, 0.0) + float(value)
        return seen

    async def rest(self) -> dict[str, float]:
        """What the server holds when each client has ended what it was at, and none goes on."""
        self.going.clear()
        await self.idle.wait()
        seen = await self.quiet()
        self.going.set()
        return seen

    async def quiet(self) -> dict[str, float]:
        """What is left when everybody has gone: looked at until it is as at the beginning."""
        loop = asyncio.get_running_loop()
        until = loop.time() + QUIET_S
        while True:
            seen = await self.look()
            if not left_behind(self.looks[0], seen) or loop.time() > until:
                return seen
            await asyncio.sleep(0.5)


def left_behind(before: dict[str, float], after: dict[str, float]) -> list[str]:
    """What is there after a run that was not before it."""
    left = [
        f"{name}: {before[name]:g} before, {after[name]:g} after"
        for name in ("files", "tasks")
        if after.get(name, 0) > before.get(name, 0)
    ]
    left += [f"{name}: {after[name]:g}" for name in _GAUGES if after.get(name)]
    accepted, ended = after.get("accepted", 0), after.get("utterances", 0)
    if accepted != ended:
        left.append(f"{accepted:g} utterances were accepted, {ended:g} ended")
    return left


def judge(
    looks: list[dict[str, float]], rests: list[dict[str, float]], after: dict[str, float] | None
) -> dict[str, Any]:
    """The verdicts on what was seen; ``after`` is None for a run that was broken off."""
    at_rest = [look["rss_mib"] for look in (*rests, *([after] if after else ()))]
    third = at_rest[-max(2, len(at_rest) // 3) :]
    # None as long as there was no rest.
    spread = round(max(third) / min(third) - 1, 4) if third else None
    judged = looks[-1]["at_s"] - looks[0]["at_s"] >= MEMORY_FROM_S * 0.95 and len(third) > 2
    return {
        "memory": {
            "first_mib": round(looks[0]["rss_mib"], 1),
            "at_rest_mib": [round(value, 1) for value in at_rest],
            "last_third": len(third),
            "last_third_spread": spread,
            "most": MEMORY_SPREAD,
            "flat": spread <= MEMORY_SPREAD if spread is not None and judged else None,
        },
        "left_behind": None if after is None else left_behind(looks[0], after),
    }


async def _run(options: argparse.Namespace, report: Callable[[dict[str, Any]], None]) -> bool:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "utterwire_server", "--port", "0", "--engine", options.engine,
        "--stall-timeout", "4", "--idle-timeout", "30", "--body-timeout", "5",
        "--max-sessions", str(options.clients + 2), *options.server,
        stderr=asyncio.subprocess.PIPE, env=package_environment(),
    )  # fmt: skip
    try:
        return await _soak(process, options, report)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _soak(
    process: asyncio.subprocess.Process,
    options: argparse.Namespace,
    report: Callable[[dict[str, Any]], None],
) -> bool:
    assert process.stderr is not None
    lines = process.stderr
    events: Counter[str] = Counter()
    port = 0
    while not events["ready"]:
        line = await lines.readline()
        if not line:
            raise RuntimeError("the server did not start")
        told = json.loads(line)
        events[told["event"]] += 1
        port = told.get("port", port)

    async def follow() -> None:
        async for line in lines:
            told = json.loads(line)
            wrong = told.get("level") == "error"
            events[f"{told['event']} ({told.get('error')})" if wrong else told["event"]] += 1

    following = asyncio.create_task(follow())
    soak = Soak(process, port, random.Random(options.seed), options.patience)
    loop = asyncio.get_running_loop()
    # The first of everything takes what is kept for good: encoders, threads, tables.
    for way in (soak.converse, soak.request, soak.request_and_leave, soak.interrupt):
        await way()
    await asyncio.sleep(1.0)
    began = loop.time()

    async def look() -> None:
        soak.looks.append({"at_s": round(loop.time() - began, 1), **await soak.look()})

    def result(after: dict[str, float] | None, **more: Any) -> dict[str, Any]:
        verdict = judge(soak.looks, soak.rests, after)
        holds = not (soak.faults or verdict["left_behind"] or verdict["memory"]["flat"] is False)
        return {
            "engine": options.engine,
            "seed": options.seed,
            "clients": options.clients,
            "minutes": round((loop.time() - began - rested_s) / 60, 2),
            "minutes_of_rests": round(rested_s / 60, 2),
            "complete": after is not None,
            "holds": holds and after is not None,
            **verdict,
            "faults": soak.faults,
            "done": dict(sorted(soak.done.items())),
            "server_log": dict(sorted(events.items())),
            "before": soak.looks[0],
            "after": after,
            # So many that their plot has a shape, not all that there are.
            "rss_mib": [look["rss_mib"] for look in soak.looks[:: max(1, len(soak.looks) // 60)]],
            **more,
        }

    rested_s = 0.0

    async def rest() -> None:
        nonlocal rested_s
        rested_s -= loop.time()
        seen = await soak.rest()
        rested_s += loop.time()
        soak.rests.append(seen)
        for what in left_behind(soak.looks[0], seen):
            soak.fault(f"left behind at rest {len(soak.rests)}: {what}")

    await look()
    soak.going.set()
    between_s = max(options.minutes * 60 / (RESTS + 1), REST_LEAST_S)
    clients = [asyncio.create_task(soak.be_a_client()) for _ in range(options.clients)]
    try:
        while (left := began + options.minutes * 60 + rested_s - loop.time()) > 0:
            await asyncio.sleep(min(LOOK_S, left))
            if process.returncode is not None:
                raise RuntimeError(f"the server ended by itself, with status {process.returncode}")
            await look()
            seen = soak.looks[-1]
            if len(soak.looks) % 15 == 0:
                print(
                    f"{seen['at_s']:.0f} s: {seen['rss_mib']:.1f} MiB, {seen['files']:.0f} files,"
                    f" {seen.get('accepted', 0):.0f} utterances, {len(soak.faults)} faults",
                    file=sys.stderr,
                    flush=True,
                )
                report(result(None))
            if options.minutes * 60 - left > (len(soak.rests) + 1) * between_s:
                await rest()
        soak.stopping.set()
        await asyncio.wait(clients, timeout=options.patience)
    finally:
        for task in clients:
            task.cancel()
        await asyncio.wait(clients)
    after = await soak.quiet()
    process.terminate()
    async with asyncio.timeout(60):
        status = await process.wait()
        await following
    if status:
        soak.fault(f"the server ended with status {status}")
    final = result(after, exit_status=status)
    report(final)
    return bool(final["holds"])


def main(arguments: list[str]) -> int:
    """Run and write the result; see the module's text for the exit codes."""
    parser = argparse.ArgumentParser(description="Minutes of mixed load on one server.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--engine", default="tone")
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument(
        "--patience",
        type=float,
        default=120.0,
        metavar="S",
        help="who waits longer for an answer has found a fault (default: %(default)s); an engine"
        " that is slower than speech needs more",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="a file, or - for stdout (default evidence/soak_ENGINE.json)")
    parser.add_argument("server", nargs="*", help="flags of the server, after --")
    options = parser.parse_args(arguments)
    started = datetime.datetime.now(datetime.UTC)
    out = options.out or f"evidence/soak_{options.engine.replace('-', '_')}.json"
    last: dict[str, Any] = {}

    def report(result: dict[str, Any]) -> None:
        last.update(result)
        if out != "-":
            head = record(["python", "scripts/soak.py", *arguments], started, LIBRARIES)
            write({**head, **last}, out)

    try:
        holds = asyncio.run(_run(options, report))
    except KeyboardInterrupt:
        print("soak: broken off", file=sys.stderr)
        return 2
    except (OSError, RuntimeError, TimeoutError, httpx.HTTPError) as error:
        print(f"soak: {error or type(error).__name__}", file=sys.stderr)
        return 2
    if out == "-":
        head = record(["python", "scripts/soak.py", *arguments], started, LIBRARIES)
        write({**head, **last}, out)
    memory = last["memory"]
    print(
        f"soak: {last['minutes']} min, {memory['last_third_spread']:.1%} of memory at rest in"
        f" the last third, left behind: {last['left_behind'] or 'nothing'},"
        f" faults: {len(last['faults'])}",
        file=sys.stderr,
    )
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
