"""Server-sent events: when they are asked for, and how one is written (`sse.md`)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from utterwire_protocol import Synthesize

__all__ = ["COMMENT", "EventWriter", "accepts_events"]

#: Keeps a connection alive that has nothing to say (`sse.md#framing`).
COMMENT: Final = b":\n\n"
#: An event is given to the transport in one piece, so that none is ever broken off in its middle:
#: in base64 so much audio stays well under what the transport takes at once.
EVENT_AUDIO_BYTES: Final = 32_768

_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_NO_WEIGHT: Final = re.compile(r"0(\.0*)?")


def accepts_events(fields: Iterable[str]) -> bool:
    """Whether the `Accept` fields of a request name `text/event-stream` (`sse.md#opening`).

    A weight of 0 takes the name back; another media range that covers the type does not name it.
    """
    for media_range in _QUOTED.sub("", ",".join(fields)).split(","):
        name, *parameters = (part.strip() for part in media_range.split(";"))
        if name.lower() != "text/event-stream":
            continue
        weights = [
            value.strip()
            for key, _, value in (parameter.partition("=") for parameter in parameters)
            if key.strip().lower() == "q"
        ]
        if not any(_NO_WEIGHT.fullmatch(weight) for weight in weights):
            return True
    return False


class EventWriter:
    """Writes the events of one audio stream, each as the bytes of a whole event."""

    def __init__(self, request: Synthesize) -> None:
        self._request = request
        self._chunks = 0

    def start(self) -> bytes:
        """`audio_stream_start`."""
        request = self._request
        return self._event(
            "audio_stream_start",
            format=request.format,
            voice=request.voice,
            sample_rate=request.sample_rate,
        )

    def audio(self, data: bytes) -> Iterator[bytes]:
        """As many `audio_chunk` as ``data``, whole samples of it, takes; none for no bytes."""
        for at in range(0, len(data), EVENT_AUDIO_BYTES):
            piece = base64.b64encode(data[at : at + EVENT_AUDIO_BYTES]).decode("ascii")
            event = self._event("audio_chunk", seq=self._chunks, data=piece)
            self._chunks += 1
            yield event

    def end(self, duration_s: float) -> bytes:
        """`audio_stream_end`; ``duration_s`` is the length of the speech."""
        return self._event(
            "audio_stream_end", total_chunks=self._chunks, duration_s=round(duration_s, 6)
        )

    def whole(self, data: bytes, duration_s: float) -> bytes:
        """All events of ``data``, for a body that cannot be streamed."""
        return b"".join([self.start(), *self.audio(data), self.end(duration_s)])

    def error(self, code: str, message: str) -> bytes:
        """`error`, after which nothing may follow."""
        return self._event("error", code=code, message=message)

    def _event(self, name: str, **fields: Any) -> bytes:
        if self._request.request_id is not None:
            fields = {"request_id": self._request.request_id} | fields
        # JSON escapes line breaks, so that one `data` line always does.
        data = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
        return f"event: {name}\ndata: {data}\n\n".encode()
