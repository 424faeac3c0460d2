"""Control messages: writing them as an endpoint must (``protocol.md#control-messages``)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from utterwire_schemas import ERROR_CODES

from utterwire_protocol.classification import MAX_CHUNK_BYTES
from utterwire_protocol.errors import LocalProtocolError
from utterwire_protocol.jsontext import JsonObject, dump
from utterwire_protocol.options import EndpointOptions
from utterwire_protocol.utterance import Utterance

__all__ = [
    "PROTOCOL_VERSION",
    "SESSION_END_REASONS",
    "Word",
    "encode_cancel_done",
    "encode_cancelled",
    "encode_error",
    "encode_marks",
    "encode_session",
    "encode_session_closed",
    "encode_synthesis_complete",
    "encode_synthesis_start",
]

PROTOCOL_VERSION = 1

#: Reasons of ``session_closed`` (``protocol.md#session-closed``).
SESSION_END_REASONS = frozenset(
    {"client_close", "going_away", "idle", "slow_reader", "message_too_big", "policy"}
)

# Code points of an error's `message`, the rest is cut off.
_MAX_MESSAGE = 1000

# Seconds are written to the microsecond.
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Word:
    """When a word is spoken, in seconds from the first sample, and where it stands in ``text``.

    Offsets count code points, ``char_end`` not included (``protocol.md#marks``). Raises
    ``ValueError`` for what cannot be.
    """

    text: str
    start_s: float
    end_s: float
    char_start: int
    char_end: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.end_s) and 0 <= self.start_s <= self.end_s):
            raise ValueError(f"a word is spoken from {self.start_s} to {self.end_s} s")
        if not 0 <= self.char_start < self.char_end:
            raise ValueError(f"a word stands from {self.char_start} to {self.char_end}")

    def as_fields(self) -> JsonObject:
        """The members of one entry of ``words``."""
        return {
            "text": self.text,
            "start_s": round(self.start_s, _DIGITS),
            "end_s": round(self.end_s, _DIGITS),
            "char_start": self.char_start,
            "char_end": self.char_end,
        }


def _encode(type: str, seq: int | None, request_id: str | None, members: JsonObject) -> bytes:
    fields: JsonObject = {"type": type}
    if seq is not None:
        fields["seq"] = seq
    if request_id is not None:
        fields["request_id"] = request_id
    fields.update(members)
    return dump(fields)


def encode_synthesis_start(utterance: Utterance) -> bytes:
    """``synthesis_start`` of an utterance whose rate, format and voice are known."""
    return _encode(
        "synthesis_start",
        utterance.seq,
        utterance.request_id,
        {
            "sample_rate": utterance.sample_rate,
            "format": utterance.format,
            "voice": utterance.voice,
        },
    )


def encode_synthesis_complete(
    utterance: Utterance, *, total_duration_s: float, elapsed_s: float, audio_bytes: int
) -> bytes:
    """``synthesis_complete``; both times in seconds."""
    return _encode(
        "synthesis_complete",
        utterance.seq,
        utterance.request_id,
        {
            "total_duration_s": round(total_duration_s, _DIGITS),
            # Down, so that it is never longer than what the client saw.
            "elapsed_s": math.floor(elapsed_s * 10**_DIGITS) / 10**_DIGITS,
            "audio_bytes": audio_bytes,
            "characters": len(utterance.text),
        },
    )


def encode_error(
    code: str,
    message: str,
    *,
    seq: int | None = None,
    request_id: str | None = None,
    rejected: bool = False,
    retry_after_s: float | None = None,
) -> bytes:
    """``error``, with ``retryable`` as the registry has it; ``seq`` is None over HTTP alone.

    ``message`` is cut to 1,000 code points, and what UTF-8 cannot carry is replaced. Raises
    ``LocalProtocolError`` for a code that the registry does not have, that does not go with
    ``rejected``, or that is not retryable and yet has ``retry_after_s``
    (``protocol.md#error-codes``).
    """
    row = ERROR_CODES.get(code)
    if row is None:
        raise LocalProtocolError(f"there is no error code {code!r}")
    if row.rejection == ("never" if rejected else "always"):
        use = "never for rejections" if rejected else "for rejections alone"
        raise LocalProtocolError(f"the error code {code!r} is {use}")
    if retry_after_s is not None and not row.retryable:
        raise LocalProtocolError(f"the error code {code!r} is not worth another try")
    words = message[:_MAX_MESSAGE].encode("utf-8", "replace").decode("utf-8")
    members: JsonObject = {
        "code": code,
        "message": words or row.meaning,
        "retryable": row.retryable,
    }
    if rejected:
        members["rejected"] = True
    if retry_after_s is not None:
        members["retry_after_s"] = round(retry_after_s, _DIGITS)
    return _encode("error", seq, request_id, members)


def encode_cancelled(utterance: Utterance) -> bytes:
    """``cancelled``, with the bytes handed to the transport so far."""
    return _encode(
        "cancelled",
        utterance.seq,
        utterance.request_id,
        {"audio_bytes": utterance.audio_bytes},
    )


def encode_cancel_done(seq: int, request_id: str | None, count: int) -> bytes:
    """``cancel_done`` for the ``cancel`` of that ``seq``, which named ``request_id``."""
    return _encode("cancel_done", seq, request_id, {"count": count})


def encode_marks(utterance: Utterance, words: Iterable[Word]) -> list[bytes]:
    """As many ``marks`` messages as it takes to keep each within 64 KiB; none without words.

    Raises ``LocalProtocolError`` where a word is not the slice of ``text`` that it names, or takes
    no time.
    """
    messages: list[bytes] = []
    batch: list[JsonObject] = []
    # Every word is counted with a comma, of which a message has one fewer than words.
    empty = len(_encode("marks", utterance.seq, utterance.request_id, {"words": []})) - 1
    size = empty
    for word in words:
        if utterance.text[word.char_start : word.char_end] != word.text:
            raise LocalProtocolError(
                f"`text` from {word.char_start} to {word.char_end} is not {word.text!r}"
            )
        if word.end_s <= word.start_s:
            raise LocalProtocolError(f"{word.text!r} takes no time: it ends at {word.end_s} s")
        fields = word.as_fields()
        length = len(dump(fields)) + 1
        if batch and size + length > MAX_CHUNK_BYTES:
            messages.append(_encode("marks", utterance.seq, utterance.request_id, {"words": batch}))
            batch, size = [], empty
        batch.append(fields)
        size += length
    if batch:
        messages.append(_encode("marks", utterance.seq, utterance.request_id, {"words": batch}))
    return messages


def encode_session(seq: int, options: EndpointOptions) -> bytes:
    """``session``, the answer to the ``hello`` of that ``seq``.

    Where all voices do not fit into a control message, the list holds as many as do, the default
    among them.
    """
    voices = [options.default_voice]
    voices += [voice for voice in options.voices if voice != options.default_voice]
    members: JsonObject = {
        "protocol_version": PROTOCOL_VERSION,
        "session_id": options.session_id,
        "profiles": sorted(options.profiles),
        "limits": options.limits.as_fields(),
        "voices": voices,
        "formats": list(options.formats),
        "sample_rates": list(options.sample_rates),
    }
    while len(message := _encode("session", seq, None, members)) > MAX_CHUNK_BYTES:
        members["voices"] = voices = voices[: len(voices) // 2]
    return message


def encode_session_closed(
    reason: str, last_seq: int, *, seq: int | None = None, retry_after_s: float | None = None
) -> bytes:
    """``session_closed``; ``seq`` is that of the ``close`` which caused it, if one did."""
    members: JsonObject = {"reason": reason, "last_seq": last_seq}
    if retry_after_s is not None:
        members["retry_after_s"] = round(retry_after_s, _DIGITS)
    return _encode("session_closed", seq, None, members)
