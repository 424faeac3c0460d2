"""A plain peer, as many are: it reads text frames only, ends the session after one utterance, and
drops the connection on bad JSON. All else it does right, so that it may be blamed for nothing else.
"""

# mypy: ignore-errors
import asyncio
import json
import time
from contextlib import suppress

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocketDisconnect

RIGHT = {"voice": "plain", "sample_rate": 24000, "format": "pcm_s16le"}
WRONG = ("invalid_voice", "unsupported_sample_rate", "unsupported_format")
WHITE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def is_text(value):
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def fault(message):
    if not isinstance(message, dict):
        return "not_an_object"
    kind, text, speed = (
        message.get("type", "synthesize"),
        message.get("text"),
        message.get("speed", 1),
    )
    if kind != "synthesize" and isinstance(kind, str):
        return None if kind in ("close", "keepalive") else "unknown_type"
    if text is None:
        return "missing_text"
    named = message.get("request_id", "-")
    if not is_text(kind) or not is_text(text) or not is_text(named) or not 0 < len(named) <= 128:
        return "invalid_request"
    for (name, right), code in zip(RIGHT.items(), WRONG, strict=True):
        value = message.get(name, right)
        if not (
            is_number(value) and value == int(value) if name == "sample_rate" else is_text(value)
        ):
            return "invalid_request"
        if value != right:
            return code
    if not is_number(speed) or not 0.5 <= speed <= 2:
        return "invalid_speed"
    return "empty_text" if not text.strip(WHITE) else "text_too_long" if len(text) > 4096 else None


async def speak(socket, about, text, speed):
    began, piece = time.monotonic(), int(1200 / speed)
    await socket.send_json({"type": "synthesis_start", **about, **RIGHT})
    letters = [ord(char) for char in text if char.isalnum()]
    for letter in letters:
        await socket.send_bytes(bytes([letter % 100, letter % 60] * piece))
        await asyncio.sleep(0.001)
    size = 2 * piece * len(letters)
    done = {"total_duration_s": size / 48000, "audio_bytes": size, "characters": len(text)}
    done["elapsed_s"] = round(time.monotonic() - began, 4)
    await socket.send_json({"type": "synthesis_complete", **about, **done})


async def read(socket, came):
    with suppress(KeyError, WebSocketDisconnect):
        while True:
            await came.put(await socket.receive_text())
    await came.put("")


async def serve(socket, came):
    for seq in range(1, 1000):
        message = json.loads(await came.get())
        if isinstance(message, dict):
            message = {name: value for name, value in message.items() if value is not None}
        about, code = {"seq": seq}, fault(message)
        named = message.get("request_id") if isinstance(message, dict) else None
        if is_text(named) and 0 < len(named) <= 128:
            about["request_id"] = named
        if code:
            error = {"code": code, "message": code, "retryable": False, "rejected": True}
            await socket.send_json({"type": "error", **about, **error})
        elif message.get("type") == "close":
            end = {"reason": "client_close", "seq": seq, "last_seq": seq}
            return await socket.send_json({"type": "session_closed", **end})
        elif message.get("type") != "keepalive":
            await speak(socket, about, message["text"], message.get("speed", 1))
            return await socket.close()
    return None


async def session(socket):
    await socket.accept()
    came = asyncio.Queue()
    reading = asyncio.create_task(read(socket, came))
    with suppress(ValueError, RecursionError, RuntimeError, WebSocketDisconnect):
        await serve(socket, came)
        await asyncio.wait({reading}, timeout=3)
    reading.cancel()
    with suppress(RuntimeError, WebSocketDisconnect):
        await socket.close(1000)


app = Starlette(routes=[WebSocketRoute("/invocations-bidirectional-stream", session)])
