"""The audio in a stream of server-sent events (`sse.md#events`), read when all of it is there."""

from __future__ import annotations

import base64
import json

__all__ = ["spoken"]


def spoken(body: bytes) -> tuple[bytes, bool]:
    """The audio in the whole events of a body, and whether an `audio_stream_end` is among them.

    What stands after the last blank line is no event. The stream is one that the suite itself
    wrote: lines end in LF.
    """
    audio, ended = bytearray(), False
    for event in body.split(b"\n\n")[:-1]:
        name, data = "", []
        for line in event.decode("utf-8").split("\n"):
            key, _, value = line.partition(":")
            if key == "event":
                name = value.removeprefix(" ")
            elif key == "data":
                data.append(value.removeprefix(" "))
        if name == "audio_chunk":
            audio += base64.b64decode(json.loads("\n".join(data))["data"])
        elif name == "audio_stream_end":
            ended = True
    return bytes(audio), ended
