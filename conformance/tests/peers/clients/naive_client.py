"""What a client looks like that was written in an hour against one good endpoint."""

import asyncio
import json
import sys

from websockets.asyncio.client import ClientConnection, connect


def tell(**event: object) -> None:
    print(json.dumps(event), file=sys.stderr, flush=True)


async def speak(socket: ClientConnection, number: int, text: str) -> None:
    await socket.send(json.dumps({"text": text}))
    size = 0
    tell(event="start", utterance=number, sample_rate=24000, format="pcm_s16le")
    async for chunk in socket:
        if isinstance(chunk, str) or chunk[:1] == b"{":
            message = json.loads(chunk)
            if message["type"] == "synthesis_complete":
                break
            if message["type"] == "error":
                raise RuntimeError(message["message"])
        else:
            sys.stdout.buffer.write(chunk)
            size += len(chunk)
    tell(event="complete", utterance=number, audio_bytes=size)


async def main(url: str) -> None:
    async with connect(url) as socket:
        for number, line in enumerate(sys.stdin, 1):
            await speak(socket, number, line.rstrip("\n"))


asyncio.run(main(sys.argv[1]))
