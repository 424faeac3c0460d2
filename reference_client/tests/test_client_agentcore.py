"""The example of an agent on AgentCore: its real server, with a model that is scripted."""

import asyncio
import base64
import importlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from utterwire_client import connect
from utterwire_client.event_stream import EventStreamReader

pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("bedrock_agentcore", "strands", "uvicorn"))),
    reason="the extras `agents` and `server` are not installed",
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "agentcore"
ANSWER = "Good morning. Today will be sunny, with **light** wind. It stays dry. Anything else?"
SENTENCES = (
    "Good morning.",
    "Today will be sunny, with light wind.",
    "It stays dry.",
    "Anything else?",
)
ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

Event = dict[str, Any]


@pytest.fixture(scope="module")
def server(reference_program: Callable[[float], str]) -> str:
    """A reference server that needs a 25th of the time of what it speaks."""
    return reference_program(0.04)


@contextmanager
def agent(endpoint: str, folder: Path, answer: str = ANSWER, **environ: str) -> Iterator[str]:
    """The example, as `python agent.py PORT` starts it; the address it listens at."""
    script = folder / "answer.txt"
    script.write_text(answer, encoding="utf-8")
    with socket.socket() as holding:
        # Held until the end, so that nobody else is given the port meanwhile; the agent may still
        # listen there.
        holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holding.bind(("127.0.0.1", 0))
        port = holding.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE / "agent.py"), str(port)],
            env={**ENVIRON, "AGENT_SCRIPT": str(script), "UTTERWIRE_URL": endpoint, **environ},
        )
        url = f"http://127.0.0.1:{port}"
        try:
            while True:
                assert process.poll() is None, "the agent did not start"
                try:
                    if httpx.get(f"{url}/ping", trust_env=False).status_code == 200:
                        break
                except httpx.TransportError:
                    continue
            yield url
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def url(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with agent(server, tmp_path_factory.mktemp("agent")) as url:
        yield url


async def events(url: str, payload: object) -> AsyncGenerator[Event]:
    reader = EventStreamReader()
    async with (
        httpx.AsyncClient(trust_env=False, timeout=60) as client,
        client.stream("POST", f"{url}/invocations", json=payload) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        async for data in response.aiter_raw():
            for event in reader.feed(data):
                yield json.loads(event.data)
    assert not reader.in_event


def places(got: list[Event], kind: str) -> list[int]:
    return [place for place, event in enumerate(got) if event["type"] == kind]


@pytest.mark.parametrize("mode", ["bidi", "batch"])
async def test_an_answer_is_written_and_spoken(url: str, server: str, mode: str) -> None:
    payload = {"prompt": "How is the weather?", "mode": mode, "request_id": "r1"}
    got = [event async for event in events(url, payload)]
    assert {event["request_id"] for event in got} == {"r1"}
    assert (got[0]["type"], got[-1]["type"]) == ("agent_start", "agent_end")
    assert got[0]["mode"] == mode
    assert "".join(got[place]["text"] for place in places(got, "text_delta")) == ANSWER
    (start,), (end,) = places(got, "audio_stream_start"), places(got, "audio_stream_end")
    chunks = places(got, "audio_chunk")
    assert start < chunks[0]
    assert chunks[-1] < end
    assert got[start]["format"] == "pcm_s16le"
    assert [got[place]["seq"] for place in chunks] == list(range(len(chunks)))
    assert got[end]["total_chunks"] == len(chunks)
    audio = b"".join(base64.b64decode(got[place]["data"]) for place in chunks)
    async with connect(server) as session:
        wanted = [await session.synthesize(text).read() for text in SENTENCES]
    assert audio == b"".join(wanted)
    assert got[end]["duration_s"] == pytest.approx(len(audio) / 48000)
    # The overlap: the first sentence was heard whole before the last token was written, or none.
    first_sentence = chunks[: len(wanted[0]) // len(base64.b64decode(got[chunks[0]]["data"]))]
    last_token = places(got, "text_delta")[-1]
    if mode == "bidi":
        assert first_sentence[-1] < last_token
    else:
        assert last_token < chunks[0]


async def test_two_at_once(url: str) -> None:
    async def ask(number: int) -> list[Event]:
        payload = {"prompt": "How is the weather?", "request_id": f"r{number}"}
        return [event async for event in events(url, payload)]

    for number, got in enumerate(await asyncio.gather(ask(0), ask(1))):
        assert {event["request_id"] for event in got} == {f"r{number}"}
        assert got[-1]["type"] == "agent_end"
        assert places(got, "audio_stream_end")


@pytest.mark.parametrize(
    "payload", [{}, {"prompt": " "}, {"prompt": 1}, {"prompt": "x", "mode": "loud"}, [], "x"]
)
async def test_what_cannot_be_asked(url: str, payload: object) -> None:
    (got,) = [event async for event in events(url, payload)]
    assert (got["type"], got["code"]) == ("error", "invalid_request")


async def test_an_endpoint_that_refuses(server: str, tmp_path: Path) -> None:
    with agent(server, tmp_path, UTTERWIRE_VOICE="nobody's") as url:
        got = [event async for event in events(url, {"prompt": "x"})]
    (error,) = places(got, "error")
    assert got[error]["code"] == "invalid_voice"
    # What cannot be heard can still be read.
    assert "".join(got[place]["text"] for place in places(got, "text_delta")) == ANSWER
    assert got[-1]["type"] == "agent_end"
    assert not places(got, "audio_chunk")


async def test_a_caller_who_leaves_stops_the_endpoint(endpoint: Any, tmp_path: Path) -> None:
    stopped = asyncio.Event()

    async def script(peer: Any) -> None:
        await peer.next("synthesize")
        await peer.start(1)
        await peer.audio(bytes(48000))
        await peer.gone()
        stopped.set()

    # AgentCore may notice late, or never: then the queue is full, for the model still writes.
    fast = {"AGENT_CALLER_S": "0.5", "AGENT_TOKENS_PER_S": "300"}
    with agent(await endpoint(script), tmp_path, ANSWER * 30, **fast) as url:
        async with aclosing(events(url, {"prompt": "x"})) as got:
            async for event in got:
                if event["type"] == "audio_chunk":
                    break
        async with asyncio.timeout(30):
            await stopped.wait()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # AgentCore's own
async def test_a_caller_who_comes_back_too_late_finds_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "answer.txt"
    script.write_text(ANSWER * 30, encoding="utf-8")
    for name, value in {
        "AGENT_CALLER_S": "0.05",
        "AGENT_TOKENS_PER_S": "1e6",
        "AGENT_SCRIPT": str(script),
        "UTTERWIRE_URL": "ws://user:secret@127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    example = importlib.import_module("agent")
    conversation = example.Conversation("x", "bidi", "r1")
    await conversation.run()
    got = []
    async with asyncio.timeout(30):
        while (event := await conversation.next()) is not None:
            got.append(event)
    assert len(got) == example.QUEUE_EVENTS
    assert got[0]["type"] == "agent_start"
    assert "agent_end" not in [event["type"] for event in got]
    # The address may hold what is nobody's business.
    assert "127.0.0.1" not in json.dumps(got)
