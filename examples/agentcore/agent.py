"""An agent on Amazon Bedrock AgentCore that is heard while it writes.

    python examples/agentcore/agent.py

See README.md beside it for what it is asked, what it answers and how it is configured.
"""

import asyncio
import base64
import contextlib
import os
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bedrock_agentcore import BedrockAgentCoreApp
from scripted_model import ScriptedModel
from strands import Agent
from strands.models.model import Model
from utterwire_client import (
    Audio,
    Session,
    Spoken,
    Start,
    UtterwireError,
    connect,
    error_event,
)

ANSWER = (
    "Good morning. Today will be sunny, with a light wind from the west. "
    "In the afternoon some clouds are coming up, but it stays dry. "
    "Take a jacket if you go out tonight, for it will be cold. "
    "Is there anything else that you would like to know?"
)

# Events that wait for a caller who reads slowly. Past that, model and endpoint wait, too.
QUEUE_EVENTS = 64
# Tokens that were written and not spoken. Text is not held up before that.
QUEUE_TOKENS = 4096
# How long a caller may leave a full queue unread, in seconds. AgentCore does not always tell that
# one has gone.
CALLER_S = float(os.environ.get("AGENT_CALLER_S", "30"))

app = BedrockAgentCoreApp()


def make_model() -> Model:
    """The model that ``AGENT_MODEL`` names: a model id of Bedrock, or ``scripted``."""
    name = os.environ.get("AGENT_MODEL", "scripted")
    if name != "scripted":
        from strands.models.bedrock import BedrockModel

        return BedrockModel(model_id=name)
    script = os.environ.get("AGENT_SCRIPT")
    answer = Path(script).read_text(encoding="utf-8") if script else ANSWER
    return ScriptedModel(answer, tokens_per_s=float(os.environ.get("AGENT_TOKENS_PER_S", "30")))


class CallerGone(Exception):
    """Nobody takes the events any more."""


class Conversation:
    """One question: a task that writes and a task that speaks, and what both have to tell."""

    def __init__(self, prompt: str, mode: str, request_id: str) -> None:
        self.prompt = prompt
        self.mode = mode
        self.request_id = request_id
        self.events = asyncio.Queue[dict[str, Any] | None]()
        self.room = asyncio.Semaphore(QUEUE_EVENTS)  # the end needs none
        self.tokens = asyncio.Queue[str | None](QUEUE_TOKENS)
        self.silent = False

    async def tell(self, kind: str, **fields: Any) -> None:
        try:
            async with asyncio.timeout(CALLER_S):
                await self.room.acquire()
        except TimeoutError:
            raise CallerGone from None
        self.events.put_nowait({"type": kind, "request_id": self.request_id, **fields})

    async def next(self) -> dict[str, Any] | None:
        """What is told next; None at the end."""
        event = await self.events.get()
        self.room.release()
        return event

    async def run(self) -> None:
        """Tell all there is, and None at the end, also to a caller who comes back too late."""
        try:
            await self.tell("agent_start", mode=self.mode)
            failure = await self.answer()
            if failure is not None:
                message = f"the model failed: {failure}"
                await self.tell("error", code="internal", message=message)
            await self.tell("agent_end")
        except CallerGone:
            pass
        finally:
            self.events.put_nowait(None)

    async def answer(self) -> Exception | None:
        """Write and speak at once; returns what went wrong in writing."""
        failures: list[Exception] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.write())
                tasks.create_task(self.speak())
        except* Exception as group:
            failures.extend(group.exceptions)
        if any(isinstance(failure, CallerGone) for failure in failures):
            raise CallerGone
        return failures[0] if failures else None

    async def write(self) -> None:
        agent = Agent(model=make_model(), callback_handler=None)
        async with contextlib.aclosing(agent.stream_async(self.prompt)) as events:
            async for event in events:
                if text := event.get("data"):
                    await self.tell("text_delta", text=text)
                    if not self.silent:
                        await self.tokens.put(text)
        await self.tokens.put(None)

    async def fragments(self) -> AsyncIterator[str]:
        """What is to be spoken: each token as it comes, or the whole answer when it is there."""
        whole = ""
        while (token := await self.tokens.get()) is not None:
            if self.mode == "bidi":
                yield token
            whole += token
        if self.mode == "batch":
            yield whole

    async def speak(self) -> None:
        url = os.environ.get("UTTERWIRE_URL", "ws://127.0.0.1:8080")
        try:
            async with connect(url) as session:
                await self.speak_in(session)
        except UtterwireError as error:
            # What cannot be heard can still be read.
            self.silent = True
            while not self.tokens.empty():
                self.tokens.get_nowait()
            await self.tell("error", **error_event(error).fields)

    async def speak_in(self, session: Session) -> None:
        chunks = sent = 0
        start: Start | None = None
        voice = os.environ.get("UTTERWIRE_VOICE")
        async with session.speak(self.fragments(), voice=voice, marks=False) as speech:
            async for event in speech:
                match event:
                    case Spoken(event=Start() as begun) if start is None:
                        start = begun
                        await self.tell(
                            "audio_stream_start",
                            format=start.format,
                            voice=start.voice or "unknown",
                            sample_rate=start.sample_rate,
                        )
                    case Spoken(event=Audio(data)):
                        encoded = base64.b64encode(data).decode("ascii")
                        await self.tell("audio_chunk", seq=chunks, data=encoded)
                        chunks += 1
                        sent += len(data)
        if start is not None:
            seconds = sent / (2 * start.sample_rate)
            await self.tell("audio_stream_end", total_chunks=chunks, duration_s=seconds)


@app.entrypoint
async def answer(payload: Any) -> AsyncIterator[dict[str, Any]]:
    """Both modes, behind one entry point; AgentCore makes each event one of its SSE."""
    fields = payload if isinstance(payload, dict) else {}
    prompt, mode = fields.get("prompt"), fields.get("mode", "bidi")
    request_id = fields.get("request_id") or uuid.uuid4().hex
    if not isinstance(prompt, str) or not prompt.strip() or mode not in ("bidi", "batch"):
        told = "send {'prompt': text, 'mode': 'bidi' or 'batch'}"
        yield {"type": "error", "code": "invalid_request", "message": told}
        return
    conversation = Conversation(prompt, mode, str(request_id))
    running = asyncio.create_task(conversation.run())
    try:
        while (event := await conversation.next()) is not None:
            yield event
    finally:
        # A caller who goes away ends this generator: nobody needs to write or speak any more.
        running.cancel()
        await asyncio.wait([running])


if __name__ == "__main__":
    app.run(port=int(sys.argv[1]) if len(sys.argv) > 1 else 8081)
