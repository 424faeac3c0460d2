"""Speech as events that text can carry (``sse.md#events``): for a leg that takes no bytes."""

import base64
import json
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from utterwire_protocol import ERROR_CODES

from utterwire_client.errors import (
    ConnectFailed,
    DeadlineExceeded,
    RequestInvalid,
    SessionLost,
    SpeechIncomplete,
    UtteranceFailed,
    UtteranceRejected,
    UtterwireError,
)
from utterwire_client.events import Audio, Complete, Start
from utterwire_client.sentence import Lost, SpeechEvent, Spoken

__all__ = ["AudioEvent", "EventStyle", "audio_events", "error_event"]

#: How an event's name travels: in an ``event`` line, or as ``type`` in data that stands alone.
EventStyle = Literal["event", "data"]

# What one event may hold (``sse.chunks``); whole samples of every width.
_MOST_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class AudioEvent:
    """One event: its name and its fields, which JSON can hold."""

    name: str
    fields: Mapping[str, Any]

    def message(self) -> dict[str, Any]:
        """All of it as one object, for carriers that write events themselves."""
        return {"type": self.name, **self.fields}

    def encode(self, style: EventStyle = "event") -> bytes:
        """The event as it stands in a ``text/event-stream``."""
        if style == "data":
            return b"data: " + _json(self.message()) + b"\n\n"
        return b"event: " + self.name.encode() + b"\ndata: " + _json(self.fields) + b"\n\n"


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


async def audio_events(
    speech: AsyncIterable[SpeechEvent],
    *,
    joined: bool = False,
    request_id: str | None = None,
) -> AsyncIterator[AudioEvent]:
    """A speech as events, each as it comes.

    Each sentence is a stream of its own, from ``audio_stream_start`` to ``audio_stream_end``, with
    ``request_id`` and the number of the sentence, as in ``answer-2``, or that of its utterance.
    ``joined`` makes one stream of all of them with just that id, which is what answers one request;
    :class:`RequestInvalid` is raised if their formats then differ. A sentence that was lost (see
    ``on_loss``) is an ``error`` event, which ends a joined stream: nothing may follow it there.
    Raises what the speech raises; :func:`error_event` makes an event of that.
    """
    first: Start | None = None
    waiting: Start | None = None  # told with the first audio: until then it may come again
    chunks, duration_s = 0, 0.0
    known = True
    ids: dict[str, str] = {} if request_id is None else {"request_id": request_id}
    async for event in speech:
        if not joined and isinstance(event, Spoken | Lost):
            own = _id_of(event, request_id)
            ids = {} if own is None else {"request_id": own}
        if isinstance(event, Lost):
            yield error_event(event.error, ids.get("request_id"))
            if joined:
                return
        if not isinstance(event, Spoken):
            continue
        if isinstance(event.event, Start):
            waiting = event.event
            continue
        if waiting is not None and isinstance(event.event, Audio | Complete):
            if first is None or not joined:
                chunks, duration_s, known = 0, 0.0, True
                yield _start(ids, waiting)
            elif (waiting.format, waiting.sample_rate) != (first.format, first.sample_rate):
                raise RequestInvalid(
                    "the format changed between sentences: ask for one format and rate"
                )
            first, waiting = waiting, None
        if isinstance(event.event, Audio):
            audio = event.event.data
            for at in range(0, len(audio), _MOST_BYTES):
                data = base64.b64encode(audio[at : at + _MOST_BYTES]).decode("ascii")
                yield AudioEvent("audio_chunk", {**ids, "seq": chunks, "data": data})
                chunks += 1
        elif isinstance(event.event, Complete):
            known = known and event.event.duration_s is not None
            duration_s += event.event.duration_s or 0.0
            if not joined:
                yield _end(ids, chunks, duration_s if known else 0.0)
    if joined:
        if first is None:
            raise RequestInvalid("there is nothing to speak in the text")
        yield _end(ids, chunks, duration_s if known else 0.0)


def _start(ids: Mapping[str, str], start: Start) -> AudioEvent:
    described = {
        "format": start.format,
        "voice": start.voice or "unknown",
        "sample_rate": start.sample_rate,
    }
    return AudioEvent("audio_stream_start", {**ids, **described})


def _id_of(event: Spoken | Lost, request_id: str | None) -> str | None:
    if request_id is not None:
        return f"{request_id}-{event.sentence.index + 1}"
    return event.utterance.request_id if isinstance(event, Spoken) else None


def _end(ids: Mapping[str, str], chunks: int, duration_s: float) -> AudioEvent:
    told = {"total_chunks": chunks, "duration_s": round(duration_s, 6)}
    return AudioEvent("audio_stream_end", {**ids, **told})


def error_event(error: UtterwireError, request_id: str | None = None) -> AudioEvent:
    """What went wrong, as the last event: a code of the registry, and no word of where the endpoint
    is."""
    cause = error.__cause__
    if isinstance(error, SpeechIncomplete) and isinstance(cause, UtterwireError):
        error = cause
    code, message = _told(error)
    ids = {} if request_id is None else {"request_id": request_id}
    return AudioEvent("error", {**ids, "code": code, "message": message})


def _told(error: UtterwireError) -> tuple[str, str]:
    match error:
        case UtteranceRejected() | UtteranceFailed():
            return error.code if error.code in ERROR_CODES else "internal", str(error)
        case RequestInvalid():
            return "invalid_request", str(error)
        case SessionLost(reason="going_away"):
            return "going_away", "the endpoint is going away"
        case ConnectFailed():
            return "internal", "there is no connection to the endpoint"
        case DeadlineExceeded():
            return "internal", "the endpoint kept silent for too long"
        case _:
            return "internal", "the endpoint was lost"
