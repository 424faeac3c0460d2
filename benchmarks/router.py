"""How much the router adds: one large part, a round trip, and many streams at once.

A plain echo container, the router (signatures checked) and the caller run in a process each. The
caller is the unmodified AWS SDK; beside it, a WebSocket client speaks to the same container
directly, in turns with it. Times are in milliseconds, on this machine's loopback.

Python 3.12, with the extras ``aws`` and ``client``: ``python benchmarks/router.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from provenance import record, write
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

_LIBRARIES: Final = (
    "aws-sdk-sagemaker-runtime-http2",
    "awscrt",
    "h2",
    "smithy-http",
    "trustme",
    "websockets",
)
_GOAL_MS: Final = 100.0
_STREAMS: Final = 50
_MIB: Final = 1024 * 1024
_SMALL: Final = 320
_WARM_UP: Final = 3

Echo = Callable[[bytes], Awaitable[bytes]]


async def _container() -> None:
    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async with serve(echo, "127.0.0.1", 0, compression=None, max_size=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Event().wait()


@contextlib.contextmanager
def _process(*command: str) -> Any:
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline()
    finally:
        process.terminate()
        process.communicate()


@contextlib.asynccontextmanager
async def _sdk(url: str, ca_file: Path) -> AsyncIterator[Any]:
    os.environ["SSL_CERT_FILE"] = str(ca_file)
    from aws_sdk_sagemaker_runtime_http2.client import AsyncSageMakerRuntimeHTTP2Client
    from aws_sdk_sagemaker_runtime_http2.config import AsyncSageMakerRuntimeHTTP2Config
    from smithy_http.aio.crt import AWSCRTHTTPClient
    from utterwire_conformance.router.options import LOCAL_CREDENTIALS

    config = await AsyncSageMakerRuntimeHTTP2Config.resolve(
        endpoint_uri=url,
        region="us-east-1",
        aws_access_key_id=LOCAL_CREDENTIALS.access_key,
        aws_secret_access_key=LOCAL_CREDENTIALS.secret_key,
        transport=AWSCRTHTTPClient(),
    )
    async with AsyncSageMakerRuntimeHTTP2Client(config=config) as client:
        yield client


@contextlib.asynccontextmanager
async def _stream(client: Any) -> AsyncIterator[Echo]:
    from aws_sdk_sagemaker_runtime_http2 import models

    stream = await client.invoke_endpoint_with_bidirectional_stream(
        models.InvokeEndpointWithBidirectionalStreamInput(endpoint_name="echo")
    )
    _, output = await stream.await_output()

    async def echo(data: bytes) -> bytes:
        part = models.RequestPayloadPart(bytes_=data)
        await stream.input_stream.send(models.RequestStreamEventPayloadPart(value=part))
        event = await output.receive()
        return bytes(event.value.bytes_)

    try:
        yield echo
    finally:
        await stream.input_stream.close()
        while await output.receive() is not None:
            pass


def _directly(connection: ClientConnection) -> Echo:
    async def echo(data: bytes) -> bytes:
        await connection.send(data)
        answer = await connection.recv()
        assert isinstance(answer, bytes)
        return answer

    return echo


async def _timed(echo: Echo, data: bytes) -> float:
    began = time.perf_counter()
    answer = await echo(data)
    took = (time.perf_counter() - began) * 1000
    if answer != data:
        raise SystemExit("what came back is not what was sent")
    return took


def _spread(times: list[float]) -> dict[str, float | int]:
    ordered = sorted(times)
    return {
        "median": round(statistics.median(ordered), 3),
        "p95": round(ordered[int(len(ordered) * 0.95)], 3),
        "least": round(ordered[0], 3),
        "most": round(ordered[-1], 3),
        "samples": len(ordered),
    }


async def _compare(
    routed: Echo, direct: Echo, size: int, rounds: int
) -> dict[str, dict[str, float | int] | float]:
    data = os.urandom(size)
    times: dict[str, list[float]] = {"router": [], "direct": []}
    for number in range(rounds + _WARM_UP):
        for name, echo in (("router", routed), ("direct", direct)):
            took = await _timed(echo, data)
            if number >= _WARM_UP:
                times[name].append(took)
    ratio = statistics.median(times["router"]) / statistics.median(times["direct"])
    return {**{name: _spread(found) for name, found in times.items()}, "ratio": round(ratio, 2)}


async def _at_once(client: Any) -> float:
    async def one(number: int) -> None:
        async with _stream(client) as echo:
            await _timed(echo, b"%d" % number * 100)

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(_STREAMS)))
    return (time.perf_counter() - began) * 1000


async def _measure(container: str, url: str, ca_file: Path, rounds: int) -> dict[str, object]:
    load = os.getloadavg()[0]
    async with (
        _sdk(url, ca_file) as client,
        connect(f"ws://127.0.0.1:{container}", compression=None, max_size=None) as connection,
    ):
        direct = _directly(connection)
        async with _stream(client) as routed:
            large = await _compare(routed, direct, _MIB, rounds)
            small = await _compare(routed, direct, _SMALL, 10 * rounds)
        opening = []
        for _ in range(rounds):
            began = time.perf_counter()
            async with _stream(client):
                opening.append((time.perf_counter() - began) * 1000)
        at_once = [await _at_once(client) for _ in range(5)]
    median = large["router"]
    assert isinstance(median, dict)
    return {
        "unit": "ms",
        # Of one minute, before anything was measured: above the cores, others had a share.
        "load_average": round(load, 1),
        "one_mib_in_one_part": large,
        "round_trip_of_320_bytes": small,
        "open_a_stream": _spread(opening),
        "fifty_streams_at_once": _spread(at_once),
        "goal": {
            "one_mib_under_ms": _GOAL_MS,
            "met": float(median["median"]) < _GOAL_MS,
        },
    }


def main() -> int:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=30, help="default: %(default)s")
    parser.add_argument(
        "--out", default="evidence/router.json", help="where to write; - for the screen"
    )
    parser.add_argument("--container", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.container:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_container())
        return 0
    started = datetime.datetime.now(datetime.UTC)
    with (
        tempfile.TemporaryDirectory() as folder,
        _process(__file__, "--container") as port,
        _process(
            "-m", "utterwire_conformance.router.cli", "--verify", "--quiet", "--port", "0",
            "--to", f"http://127.0.0.1:{port.strip()}", "--certificates", folder,
            "--accept-ms", "10000",
        ) as greeting,
    ):  # fmt: skip
        found = re.search(r"https://[^,\s]+", greeting)
        if found is None:
            raise SystemExit("the router did not start")
        ca_file = Path(folder) / "ca.pem"
        result = asyncio.run(_measure(port.strip(), found[0], ca_file, given.rounds))
    command = ["python", "benchmarks/router.py", *sys.argv[1:]]
    write({**record(command, started, _LIBRARIES), **result}, given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
