"""Faults in the form and the fields of control messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from utterwire_conformance.proxy import Chunk, Tap
from utterwire_conformance.wire import Frame, Opcode

from .catalogue import Catalogue
from .rewriting import ChunkChange

__all__ = ["FAULTS"]

FAULTS: Final = Catalogue()


def _of_type(kind: str, **changes: Any) -> ChunkChange:
    """Set fields of each control message of type `kind`; `...` drops one."""
    return lambda chunk, _: [chunk.changed(**changes)] if chunk.type == kind else None


def _field(kind: str, name: str, change: Callable[[Any, Chunk, Tap], Any]) -> ChunkChange:
    """Set a field of each control message of type `kind` by what it was."""

    def apply(chunk: Chunk, tap: Tap) -> Iterable[Frame] | None:
        if chunk.type != kind or chunk.fields is None or name not in chunk.fields:
            return None
        return [chunk.changed(**{name: change(chunk.fields[name], chunk, tap)})]

    return apply


def _control(change: Callable[[Chunk], Iterable[Frame]]) -> ChunkChange:
    """Change every control message."""
    return lambda chunk, _: None if chunk.is_audio else change(chunk)


def _numbered(change: Callable[[int], int | str]) -> ChunkChange:
    """Change the `seq` of every control message."""
    return _control(
        lambda chunk: [chunk.frame if chunk.seq is None else chunk.changed(seq=change(chunk.seq))]
    )


def _text(chunk: Chunk) -> str:
    return chunk.frame.payload.decode("utf-8", "replace")


def _with_member(member: str) -> ChunkChange:
    """Put a member, written out, at the end of every control message."""

    def apply(chunk: Chunk) -> Iterable[Frame]:
        body = _text(chunk).rstrip().removesuffix("}")
        return [Frame(Opcode.TEXT, f"{body},{member}}}".encode())]

    return _control(apply)


# --- request_id and seq ------------------------------------------------------------------------

FAULTS.chunks(
    "ids-left-out",
    "Messages about an utterance do not carry its `request_id`.",
    "request-id.echoed",
    _control(lambda chunk: [chunk.changed(request_id=...)]),
)


def _ascii_id(chunk: Chunk) -> Iterable[Frame]:
    request_id = (chunk.fields or {}).get("request_id")
    if not isinstance(request_id, str):
        return [chunk.frame]
    return [chunk.changed(request_id=request_id.encode("ascii", "replace").decode())]


FAULTS.chunks(
    "ids-made-ascii",
    "A `request_id` comes back with a question mark for all that is not ASCII.",
    "request-id.echoed",
    _control(_ascii_id),
)


def _invented_id(chunk: Chunk) -> Iterable[Frame]:
    if "request_id" in (chunk.fields or {}) or chunk.type in ("session", "session_closed"):
        return [chunk.frame]
    return [chunk.changed(request_id=f"request-{chunk.seq}")]


FAULTS.chunks(
    "ids-invented",
    "An utterance without a `request_id` is given one.",
    "request-id.echoed",
    _control(_invented_id),
)
FAULTS.chunks(
    "seq-in-threes",
    "`seq` goes up by three with each message.",
    "seq.counts-messages",
    _control(
        lambda chunk: [chunk.frame] if chunk.seq is None else [chunk.changed(seq=chunk.seq * 3)]
    ),
)
FAULTS.chunks(
    "seq-as-a-byte",
    "`seq` begins again at 1 behind 255.",
    "seq.counts-messages",
    _numbered(lambda seq: (seq - 1) % 255 + 1),
)
FAULTS.chunks(
    "seq-as-string",
    "`seq` is a string.",
    ("control.schema", "seq.counts-messages"),
    _control(
        lambda chunk: [chunk.frame] if chunk.seq is None else [chunk.changed(seq=str(chunk.seq))]
    ),
)
FAULTS.chunks(
    "seq-from-zero",
    "Messages are counted from 0.",
    "seq.counts-messages",
    _numbered(lambda seq: seq - 1),
)
FAULTS.chunks(
    "seq-left-out",
    "Control messages carry no `seq`.",
    "seq.counts-messages",
    _control(lambda chunk: [chunk.changed(seq=...)]),
)

# --- error ---------------------------------------------------------------------------------------

FAULTS.chunks(
    "codes-unregistered",
    "Errors carry a code that is not in the registry.",
    "error.registered-code",
    _of_type("error", code="bad_request"),
)
FAULTS.chunks(
    "one-code-unregistered",
    "A request for an unknown voice is rejected with a code that is not in the registry.",
    "error.registered-code",
    lambda chunk, _: (
        [chunk.changed(code="no_such_voice")]
        if chunk.type == "error" and (chunk.fields or {}).get("code") == "invalid_voice"
        else None
    ),
)
FAULTS.chunks(
    "retryable-flipped",
    "Errors say `retryable` where they are not, and the other way round.",
    "error.retryable",
    _field("error", "retryable", lambda value, *_: not value),
)
FAULTS.chunks(
    "error-message-empty",
    "The `message` of an error is empty.",
    "error.message",
    _of_type("error", message=""),
)
FAULTS.chunks(
    "error-message-missing",
    "An error has no `message`.",
    ("error.message", "control.schema"),
    _of_type("error", message=...),
)

# --- Form ----------------------------------------------------------------------------------------

FAULTS.chunks(
    "start-without-voice",
    "`synthesis_start` has no `voice`.",
    "control.schema",
    _of_type("synthesis_start", voice=...),
)
FAULTS.chunks(
    "complete-with-strings",
    "The numbers of `synthesis_complete` are strings.",
    "control.schema",
    _field("synthesis_complete", "audio_bytes", lambda value, *_: str(value)),
)
FAULTS.chunks(
    "rejected-as-a-word",
    "`rejected` is the string `true`.",
    ("control.schema",),
    _field("error", "rejected", lambda *_: "true"),
)
FAULTS.chunks(
    "control-names-a-field-twice",
    "Control messages have a name twice.",
    "control.strict-json",
    _with_member('"x_note":1,"x_note":2'),
)
FAULTS.chunks(
    "control-with-nan",
    "Control messages hold NaN.",
    "control.strict-json",
    _with_member('"x_level":NaN'),
)
FAULTS.chunks(
    "control-with-long-numbers",
    "Control messages hold numbers of 30 digits.",
    "control.strict-json",
    _with_member('"x_clock":0.123456789012345678901234567890'),
)
FAULTS.chunks(
    "control-with-surrogates",
    "Control messages hold half of a surrogate pair.",
    "control.strict-json",
    _with_member('"x_note":"\\ud83d"'),
)
FAULTS.chunks(
    "control-after-a-space",
    "Control messages begin with a space.",
    "control.strict-json",
    _control(lambda chunk: [Frame(Opcode.TEXT, b" " + chunk.frame.payload)]),
)
FAULTS.chunks(
    "control-too-long",
    "Control messages are longer than 65,536 bytes.",
    "control.size",
    _with_member(f'"x_padding":"{"x" * 66_000}"'),
)
FAULTS.chunks(
    "control-too-deep",
    "Control messages nest 20 levels deep.",
    "control.size",
    _with_member(f'"x_nest":{"[" * 20}{"]" * 20}'),
)
FAULTS.chunks(
    "control-in-binary",
    "Control messages are sent in binary frames.",
    "control.text-frame",
    _control(lambda chunk: [Frame(Opcode.BINARY, chunk.frame.payload)]),
)


FAULTS.chunks(
    "small-talk-in-text-frames",
    "A text frame that holds no message comes before each utterance.",
    "audio.binary-frame",
    lambda chunk, _: (
        [Frame(Opcode.TEXT, b"here it comes"), chunk.frame]
        if chunk.type == "synthesis_start"
        else None
    ),
)


def _fragmented(chunk: Chunk, _: Tap) -> Iterable[Frame]:
    opcode, payload = chunk.frame.opcode, chunk.frame.payload
    middle = len(payload) // 2
    return [
        Frame(opcode, payload[:middle], fin=False),
        Frame(Opcode.CONTINUATION, payload[middle:]),
    ]


FAULTS.chunks(
    "chunks-fragmented",
    "Each chunk is sent in two frames.",
    "chunk.unfragmented",
    _fragmented,
)
FAULTS.chunks(
    "audio-fragmented",
    "Each chunk of audio is sent in two frames.",
    "chunk.unfragmented",
    lambda chunk, tap: _fragmented(chunk, tap) if chunk.is_audio else None,
)

# --- synthesis_start and synthesis_complete ------------------------------------------------------

FAULTS.chunks(
    "start-names-another-rate",
    "`synthesis_start` names a sample rate other than the one asked for.",
    "start.fields",
    _of_type("synthesis_start", sample_rate=22_050),
)
FAULTS.chunks(
    "start-names-another-voice",
    "`synthesis_start` names a voice other than the one asked for, and the default keeps changing.",
    "start.fields",
    _field("synthesis_start", "voice", lambda _, chunk, tap: f"x-voice-{chunk.seq}"),
)
FAULTS.chunks(
    "start-names-another-format",
    "`synthesis_start` names a format other than the one asked for.",
    "start.fields",
    _of_type("synthesis_start", format="mulaw"),
)
FAULTS.chunks(
    "default-rate-is-another",
    "Without a `sample_rate`, audio is announced at 16,000 Hz.",
    "audio.default-format",
    _of_type("synthesis_start", sample_rate=16_000),
)


def _text_alone(chunk: Chunk, tap: Tap) -> list[Frame] | None:
    message = tap.messages.get(chunk.seq or 0)
    if chunk.type != "synthesis_start" or message is None:
        return None
    alone = message.fields.keys() <= {"type", "text", "request_id"}
    return [chunk.changed(format="mulaw")] if alone else None


FAULTS.chunks(
    "default-format-is-another",
    "What was asked for by a text alone is announced as `mulaw`.",
    "audio.default-format",
    _text_alone,
)
FAULTS.chunks(
    "audio-bytes-one-too-many",
    "`audio_bytes` is one too high.",
    "complete.audio-bytes",
    _field("synthesis_complete", "audio_bytes", lambda value, *_: value + 1),
)
FAULTS.chunks(
    "duration-in-milliseconds",
    "`total_duration_s` is given in milliseconds.",
    "complete.duration",
    _field("synthesis_complete", "total_duration_s", lambda value, *_: value * 1000),
)
FAULTS.chunks(
    "duration-ten-milliseconds-off",
    "`total_duration_s` is ten milliseconds too long.",
    "complete.duration",
    _field("synthesis_complete", "total_duration_s", lambda value, *_: value + 0.01),
)
FAULTS.chunks(
    "elapsed-since-the-epoch",
    "`elapsed_s` is the time of day.",
    "complete.elapsed",
    _field("synthesis_complete", "elapsed_s", lambda value, *_: value + 1.7e9),
)
FAULTS.chunks(
    "elapsed-negative",
    "`elapsed_s` is negative.",
    "complete.elapsed",
    _field("synthesis_complete", "elapsed_s", lambda value, *_: -1.0 - value),
)


def _text_of(chunk: Chunk, tap: Tap) -> str:
    message = tap.messages.get(chunk.seq or 0)
    return message.meaning.text if message is not None else ""


FAULTS.chunks(
    "characters-in-bytes",
    "`characters` counts the bytes of the text.",
    "complete.characters",
    _field(
        "synthesis_complete",
        "characters",
        lambda _, chunk, tap: len(_text_of(chunk, tap).encode("utf-8", "replace")),
    ),
)
FAULTS.chunks(
    "characters-in-utf-16",
    "`characters` counts UTF-16 units.",
    "complete.characters",
    _field(
        "synthesis_complete",
        "characters",
        lambda _, chunk, tap: len(_text_of(chunk, tap).encode("utf-16-le", "replace")) // 2,
    ),
)

# --- session_closed ------------------------------------------------------------------------------


def _closed(asked: bool, **changes: Any) -> ChunkChange:
    """Change `session_closed` where a `close` asked for it, or where none did."""

    def apply(chunk: Chunk, _: Tap) -> Iterable[Frame] | None:
        if chunk.type != "session_closed" or chunk.fields is None:
            return None
        if (chunk.fields.get("reason") == "client_close") is not asked:
            return None
        return [chunk.changed(**changes)]

    return apply


FAULTS.chunks(
    "close-reason-is-another",
    "The `session_closed` that a `close` asked for gives the reason `policy`.",
    "close.session-closed",
    _closed(True, reason="policy"),
)
FAULTS.chunks(
    "close-without-seq",
    "The `session_closed` that a `close` asked for has no `seq`.",
    "close.session-closed",
    _closed(True, seq=...),
)
FAULTS.chunks(
    "close-last-seq-zero",
    "The `session_closed` that a `close` asked for has a `last_seq` of 0.",
    "close.session-closed",
    _closed(True, last_seq=0),
)
FAULTS.chunks(
    "session-closed-unasked-with-seq",
    "A `session_closed` that nobody asked for carries a `seq`.",
    "session-closed.last-seq",
    _closed(False, seq=1),
)
FAULTS.chunks(
    "session-closed-unasked-last-seq",
    "The `last_seq` of a `session_closed` that nobody asked for is too high.",
    "session-closed.last-seq",
    _closed(False, last_seq=1000),
)
