"""Faults in what an endpoint makes of client messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from utterwire_conformance.proxy import (
    Action,
    Chunk,
    ClientMessage,
    CloseSession,
    SessionTamper,
    Shared,
    Tap,
    ToClient,
    control_frame,
)
from utterwire_conformance.strict_json import JsonValue, has_lone_surrogate

from .catalogue import Catalogue
from .rewriting import KEEPALIVE, MessageTest, error_frame, message_frame

__all__ = ["FAULTS"]

FAULTS: Final = Catalogue()

_KNOWN_FIELDS: Final = frozenset(
    {
        "type",
        "text",
        "voice",
        "speed",
        "sample_rate",
        "format",
        "request_id",
        "marks",
        "request_timestamp",
    }
)
_RESERVED_FIELDS: Final = frozenset({"language", "model"})
# What an endpoint may well offer.
_FORMATS: Final = frozenset({"pcm_s16le", "wav", "mp3", "aac", "opus", "mulaw", "alaw"})
_RATES: Final = frozenset(
    {8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000}
)
_RESERVED_TYPES: Final = frozenset({"append", "flush"})


def _valid(test: MessageTest) -> MessageTest:
    return lambda message, tap: message.is_valid_request and test(message, tap)


def _has(name: str) -> MessageTest:
    return lambda message, _: message.fields.get(name) is not None


# --- How a message comes -------------------------------------------------------------------

FAULTS.rewrites(
    "binary-messages-ignored",
    "Messages in binary frames are counted but never acted on.",
    "message.frame-kinds-alike",
    lambda message, _: not message.is_text,
    lambda *_: KEEPALIVE,
)
FAULTS.refuses(
    "binary-messages-refused",
    "Valid requests in binary frames are rejected.",
    "message.frame-kinds-alike",
    _valid(lambda message, _: not message.is_text),
    "invalid_json",
)
FAULTS.rewrites(
    "first-fragment-only",
    "Of a message in several frames only the first is read.",
    "message.fragmentation-invisible",
    lambda message, _: len(message.frames) > 1,
    lambda message, _: message.frames[0].payload,
)
FAULTS.rewrites(
    "fragments-joined-by-spaces",
    "The frames of a message are joined with a space between them.",
    "message.fragmentation-invisible",
    lambda message, _: len(message.frames) > 1,
    lambda message, _: b" ".join(frame.payload for frame in message.frames),
)


class _ClosesOnFragments(SessionTamper):
    """Closes over messages that came in frames `when` picks."""

    def __init__(
        self, shared: Shared, tap: Tap, when: Callable[[ClientMessage], bool], code: int
    ) -> None:
        super().__init__(shared, tap)
        self._when = when
        self._code = code

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if self._when(message):
            return [CloseSession(self._code)]
        return super().client_message(message)


def _cuts_a_character(message: ClientMessage) -> bool:
    try:
        for frame in message.frames:
            frame.payload.decode()
    except UnicodeDecodeError:
        return len(message.frames) > 1
    return False


FAULTS.add(
    "fragments-decoded-singly",
    "A character that is cut by the end of a frame is taken for bad UTF-8.",
    "message.fragmentation-invisible",
    lambda shared, tap: _ClosesOnFragments(shared, tap, _cuts_a_character, 1007),
)
FAULTS.add(
    "many-fragments-refused",
    "A message in more than sixteen frames is closed on.",
    "message.fragmentation-invisible",
    lambda shared, tap: _ClosesOnFragments(
        shared, tap, lambda message: len(message.frames) > 16, 1009
    ),
)
FAULTS.rewrites(
    "types-in-any-case",
    "The case of a `type` makes no difference, nor do spaces around it.",
    "reject.unknown-type",
    lambda message, _: (
        isinstance(kind := message.fields.get("type"), str)
        and kind != kind.strip().lower()
        and kind.strip().lower() in ("synthesize", "close", "keepalive")
    ),
    lambda message, _: message.changed(type=str(message.fields["type"]).strip().lower()),
)
FAULTS.rewrites(
    "ids-trimmed-on-reading",
    "White space around a `request_id` is dropped.",
    "request-id.echoed",
    lambda message, _: (
        message.is_valid_request and _id(message) != (_id(message).strip() or _id(message))
    ),
    lambda message, _: message.changed(request_id=_id(message).strip()),
)

# --- Validity: what is refused though it is valid ------------------------------------------

FAULTS.refuses(
    "type-demanded",
    "A request without a type is rejected.",
    "message.type-absent",
    _valid(lambda message, _: "type" not in message.fields),
    "unknown_type",
)
FAULTS.refuses(
    "null-type-refused",
    "A request whose type is null is rejected.",
    "message.type-absent",
    _valid(lambda message, _: message.fields.get("type", 0) is None),
    "invalid_request",
)
FAULTS.refuses(
    "unknown-fields-refused",
    "A request with a field the endpoint does not know is rejected.",
    "message.unknown-fields-ignored",
    _valid(lambda message, _: bool(message.fields.keys() - _KNOWN_FIELDS - _RESERVED_FIELDS)),
    "invalid_request",
)
FAULTS.refuses(
    "stream-checked-in-sessions",
    "A request whose `stream` is no boolean is rejected, as it would be over HTTP.",
    "message.unknown-fields-ignored",
    _valid(lambda message, _: not isinstance(message.fields.get("stream"), bool | None)),
    "invalid_request",
)
FAULTS.refuses(
    "reserved-fields-refused",
    "A request with `language` or `model` is rejected.",
    "message.reserved-fields-ignored",
    _valid(lambda message, _: bool(message.fields.keys() & _RESERVED_FIELDS)),
    "invalid_request",
)
FAULTS.refuses(
    "null-fields-refused",
    "A request with a field that is null is rejected.",
    "message.null-is-absent",
    _valid(lambda message, _: any(value is None for value in message.fields.values())),
    "invalid_request",
)
FAULTS.refuses(
    "integral-floats-refused",
    "A sample rate written with a point or an exponent is rejected.",
    "message.integral-floats",
    _valid(lambda message, _: isinstance(message.fields.get("sample_rate"), float)),
    "unsupported_sample_rate",
)
FAULTS.refuses(
    "timestamps-refused",
    "A request whose `request_timestamp` is no string is rejected.",
    "message.request-timestamp",
    _valid(lambda message, _: not isinstance(message.fields.get("request_timestamp"), str | None)),
    "invalid_request",
)
FAULTS.refuses(
    "timestamps-unwelcome",
    "A request with a `request_timestamp` is rejected.",
    "message.request-timestamp",
    _valid(_has("request_timestamp")),
    "invalid_request",
)
FAULTS.refuses(
    "marks-refused",
    "A request with `marks` is rejected though `timing` is not claimed.",
    "message.unclaimed-marks",
    _valid(_has("marks")),
    "invalid_request",
)
FAULTS.refuses(
    "keepalives-refused",
    "A keepalive is rejected.",
    "message.keepalive",
    lambda message, _: message.meaning.type == "keepalive",
    "unknown_type",
)


class _AnswersKeepalives(SessionTamper):
    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        yield from super().client_message(message)
        if message.meaning.type == "keepalive":
            yield ToClient(control_frame({"type": "keepalive", "seq": message.seq}))


FAULTS.add(
    "keepalives-answered",
    "A keepalive is answered with a message.",
    "message.keepalive",
    _AnswersKeepalives,
)


class _Renumbers(SessionTamper):
    """Counts only the messages that `counts` picks, so that every later `seq` is too low."""

    def __init__(self, shared: Shared, tap: Tap, counts: Callable[[ClientMessage], bool]) -> None:
        super().__init__(shared, tap)
        self._counts = counts

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.seq is None or chunk.is_audio:
            return super().chunk(chunk)
        seq = sum(
            number == chunk.seq or self._counts(message)
            for number, message in self.tap.messages.items()
            if number <= chunk.seq
        )
        changes = {"seq": seq}
        if chunk.type == "session_closed" and chunk.fields is not None:
            changes["last_seq"] = seq
        return [ToClient(chunk.changed(**changes))]


FAULTS.add(
    "keepalives-not-counted",
    "Keepalives do not count as messages, so that later answers carry a `seq` that is too low.",
    ("message.keepalive", "seq.counts-messages"),
    lambda shared, tap: _Renumbers(
        shared, tap, lambda message: message.meaning.type != "keepalive"
    ),
)
FAULTS.add(
    "rejections-not-counted",
    "Rejected messages do not count, so that later answers carry a `seq` that is too low.",
    "seq.counts-messages",
    lambda shared, tap: _Renumbers(shared, tap, lambda message: message.is_valid),
)

FAULTS.refuses(
    "control-codes-blank",
    "A text of control codes that are no White_Space is rejected as blank.",
    "accept.defaults",
    _valid(lambda message, _: not message.meaning.text.strip()),
    "empty_text",
)

# --- The floors ------------------------------------------------------------------------------


def _speed(message: ClientMessage) -> float:
    speed = message.fields.get("speed")
    return float(speed) if isinstance(speed, int | float) else 1.0


FAULTS.refuses(
    "speed-two-refused",
    "Speeds from 2 up are rejected.",
    "accept.speed-range",
    _valid(lambda message, _: _speed(message) >= 2),
    "invalid_speed",
)
FAULTS.refuses(
    "speed-half-refused",
    "Speeds up to one half are rejected.",
    "accept.speed-range",
    _valid(lambda message, _: _speed(message) <= 0.5),
    "invalid_speed",
)
FAULTS.refuses(
    "text-of-4096-refused",
    "Text of 4,096 code points is rejected as too long.",
    "accept.text-floor",
    _valid(lambda message, _: len(message.meaning.text) >= 4096),
    "text_too_long",
)


class _CapsMessages(SessionTamper):
    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if len(message.data) >= 65_536:
            return [CloseSession(1009, "message too big")]
        return super().client_message(message)


FAULTS.refuses(
    "messages-of-64k-unwelcome",
    "A request of exactly 65,536 bytes is rejected.",
    "accept.message-floor",
    _valid(lambda message, _: len(message.data) == 65_536),
    "invalid_request",
)
FAULTS.add(
    "messages-of-64k-refused",
    "A message of 65,536 bytes is closed on with 1009.",
    "accept.message-floor",
    _CapsMessages,
)


def _id(message: ClientMessage) -> str:
    return message.meaning.request_id or ""


FAULTS.refuses(
    "long-ids-refused",
    "A `request_id` of 128 code points is rejected.",
    "accept.request-id-floor",
    _valid(lambda message, _: len(_id(message)) >= 128),
    "invalid_request",
)
FAULTS.refuses(
    "foreign-ids-refused",
    "A `request_id` with anything but ASCII is rejected.",
    "accept.request-id-floor",
    _valid(lambda message, _: not _id(message).isascii()),
    "invalid_request",
)
FAULTS.refuses(
    "voice-demanded",
    "A request without a voice is rejected.",
    "accept.defaults",
    _valid(lambda message, _: message.fields.get("voice") is None),
    "invalid_voice",
)


class _KeepsSpeed(SessionTamper):
    """Speaks a request that names no speed at the speed of the one before it."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._speed: object = None

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        if not message.is_valid_request:
            return super().client_message(message)
        self._speed = message.fields.get("speed") or self._speed
        if self._speed is None:
            return super().client_message(message)
        return [message_frame(message.changed(speed=self._speed), message)]


FAULTS.add(
    "speed-kept",
    "A request without `speed` is spoken at the speed of the one before it.",
    "accept.defaults",
    _KeepsSpeed,
)


class _ShortQueue(SessionTamper):
    """Takes at most four requests beside the running one."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._refused: set[int] = set()

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        unended = [seq for seq in self.tap.unended() if seq not in self._refused]
        if not message.is_valid_request or len(unended) <= 5:
            return super().client_message(message)
        self._refused.add(message.seq)
        refusal = error_frame("queue_full", message.seq, message.meaning.request_id, rejected=True)
        return [message_frame(KEEPALIVE, message), ToClient(refusal)]


FAULTS.add(
    "four-may-wait",
    "With four utterances waiting the queue is called full.",
    "accept.waiting-floor",
    _ShortQueue,
)

# --- Validity: what is accepted though it is invalid, or rejected with the wrong code ----------


def _codes(*codes: str) -> MessageTest:
    """Messages that are rejected with one of `codes` and no other."""
    return lambda message, _: (
        message.meaning.verdict == "reject" and message.meaning.codes <= set(codes)
    )


def _type_is(test: Callable[[JsonValue], bool]) -> MessageTest:
    return lambda message, _: "type" in message.fields and test(message.fields["type"])


def _wrong(name: str, *kinds: type) -> MessageTest:
    """Messages with a field of a wrong type, booleans apart."""

    def test(message: ClientMessage, _: Tap) -> bool:
        value = message.fields.get(name)
        return value is not None and not isinstance(value, (*kinds, bool))

    return test


def _any(*tests: MessageTest) -> MessageTest:
    return lambda message, tap: any(test(message, tap) for test in tests)


def _is_boolean(*names: str) -> MessageTest:
    return lambda message, _: any(isinstance(message.fields.get(name), bool) for name in names)


def _number(name: str, test: Callable[[float], bool]) -> MessageTest:
    def apply(message: ClientMessage, _: Tap) -> bool:
        value = message.fields.get(name)
        return isinstance(value, int | float) and not isinstance(value, bool) and test(value)

    return apply


def _string(name: str, test: Callable[[str], bool]) -> MessageTest:
    def apply(message: ClientMessage, _: Tap) -> bool:
        value = message.fields.get(name)
        return isinstance(value, str) and test(value)

    return apply


def _bad_id(message: ClientMessage, _: Tap) -> bool:
    return (
        message.fields.get("request_id") is not None
        and message.is_request
        and (message.meaning.request_id is None or len(_id(message)) > 128)
    )


def _known_type(kind: JsonValue) -> bool:
    return kind in ("synthesize", "close", "keepalive", "cancel", "hello")


# Each row: name, what it says of the message, requirement, the messages, a code that is wrong.
_INVALID: Final[tuple[tuple[str, str, str, MessageTest, str], ...]] = (
    (
        "invalid-json",
        "Text that is not JSON",
        "reject.invalid-json",
        lambda message, tap: bool(message.data) and _codes("invalid_json")(message, tap),
        "invalid_request",
    ),
    (
        "empty-frame",
        "An empty message",
        "reject.empty-frame",
        lambda message, _: not message.data,
        "empty_text",
    ),
    (
        "non-object",
        "JSON that is not an object",
        "reject.not-an-object",
        lambda message, _: "not_an_object" in message.meaning.codes,
        "unknown_type",
    ),
    (
        "invalid-utf8",
        "A binary message that is not UTF-8",
        "reject.invalid-utf8",
        lambda message, _: "invalid_utf8" in message.meaning.codes,
        "invalid_json",
    ),
    (
        "unknown-type",
        "A message of an unknown type",
        "reject.unknown-type",
        _type_is(
            lambda kind: (
                isinstance(kind, str) and not _known_type(kind) and kind not in _RESERVED_TYPES
            )
        ),
        "invalid_request",
    ),
    (
        "type-not-string",
        "A message whose type is not a string",
        "reject.type-not-string",
        _type_is(lambda kind: kind is not None and not isinstance(kind, str)),
        "unknown_type",
    ),
    (
        "reserved-type",
        "A message of type `append` or `flush`",
        "reject.reserved-types",
        _type_is(lambda kind: kind in ("append", "flush")),
        "invalid_request",
    ),
    (
        "unclaimed-type",
        "A message of a profile that is not claimed",
        "reject.unclaimed-types",
        _type_is(lambda kind: kind in ("cancel", "hello")),
        "invalid_request",
    ),
    (
        "missing-text",
        "A request without text",
        "reject.missing-text",
        lambda message, _: message.is_request and message.fields.get("text") is None,
        "empty_text",
    ),
    (
        "text-of-wrong-type",
        "A request whose text is not a string",
        "reject.text-type",
        lambda message, _: (
            message.is_request and not isinstance(message.fields.get("text"), str | None)
        ),
        "empty_text",
    ),
    (
        "blank-text",
        "A request whose text is blank",
        "reject.empty-text",
        lambda message, _: message.is_request and "empty_text" in message.meaning.codes,
        "missing_text",
    ),
    (
        "lone-surrogate",
        "A request whose text has a lone surrogate",
        "reject.lone-surrogate",
        lambda message, tap: (
            message.is_request and _string("text", has_lone_surrogate)(message, tap)
        ),
        "invalid_json",
    ),
    (
        "long-text",
        "Text beyond the limit",
        "reject.text-too-long",
        lambda message, _: message.is_request and len(message.meaning.text) > 4096,
        "invalid_request",
    ),
    (
        "unknown-voice",
        "A request for a voice that does not exist",
        "reject.invalid-voice",
        _string("voice", bool),
        "invalid_request",
    ),
    (
        "speed-out-of-range",
        "A request for a speed beyond the range",
        "reject.invalid-speed",
        _number("speed", lambda speed: not 0.5 <= speed <= 2.0),
        "invalid_request",
    ),
    (
        "odd-sample-rate",
        "A request for a sample rate that is not offered",
        "reject.unsupported-sample-rate",
        _number("sample_rate", lambda rate: rate not in _RATES),
        "invalid_request",
    ),
    (
        "unknown-format",
        "A request for a format that is not offered",
        "reject.unsupported-format",
        _string("format", lambda name: name not in _FORMATS),
        "invalid_request",
    ),
    (
        "field-of-wrong-type",
        "A request with a field of the wrong type",
        "reject.field-types",
        _any(
            _wrong("voice", str),
            _wrong("format", str),
            _wrong("speed", int, float),
            _wrong("sample_rate", int, float),
            _wrong("request_id", str),
        ),
        "unknown_type",
    ),
    (
        "boolean-for-number",
        "A request with a boolean where a number is due",
        "reject.boolean-is-not-number",
        _is_boolean("speed", "sample_rate"),
        "unknown_type",
    ),
    (
        "bad-request-id",
        "A request whose `request_id` is no valid id",
        "reject.request-id",
        _bad_id,
        "unknown_type",
    ),
)


for _name, _what, _requirement, _test, _code in _INVALID:
    FAULTS.accepts(f"{_name}-accepted", f"{_what} is accepted as a request.", _requirement, _test)
    FAULTS.renames(
        f"{_name}-miscoded",
        f"{_what} is rejected with the code `{_code}`.",
        _requirement,
        _test,
        _code,
    )

FAULTS.rewrites(
    "long-text-cut-short",
    "Text beyond the limit is cut short and spoken.",
    "reject.text-too-long",
    lambda message, _: message.is_request and len(message.meaning.text) > 4096,
    lambda message, _: message.changed(text=message.meaning.text[:4096]),
)
