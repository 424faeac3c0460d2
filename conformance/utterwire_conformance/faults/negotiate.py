"""Faults in `hello`, and in what `session` states."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

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
from utterwire_conformance.wire import Frame

from .catalogue import Catalogue
from .rewriting import invalid_twin, message_frame

__all__ = ["FAULTS"]

FAULTS: Final = Catalogue()

_HELLO: Final = b'{"type":"hello","protocol_versions":[1]}'


def _is_hello(message: ClientMessage) -> bool:
    return message.fields.get("type") == "hello"


def _says(code: str) -> Callable[[ClientMessage, Tap], bool]:
    """First `hello` messages that are to be rejected with `code`."""
    return lambda message, _: (
        message.seq == 1 and _is_hello(message) and message.meaning.codes == {code}
    )


# --- hello ---------------------------------------------------------------------------------------

FAULTS.chunks(
    "session-missing",
    "`hello` gets no answer.",
    "hello.session",
    lambda chunk, _: [] if chunk.type == "session" else None,
)
FAULTS.chunks(
    "session-other-version",
    "`session` names version 2.",
    "hello.session",
    lambda chunk, _: [chunk.changed(protocol_version=2)] if chunk.type == "session" else None,
)
FAULTS.chunks(
    "session-without-seq",
    "`session` has no `seq`.",
    "hello.session",
    lambda chunk, _: [chunk.changed(seq=...)] if chunk.type == "session" else None,
)
FAULTS.chunks(
    "session-with-id",
    "`session` carries a `request_id`.",
    "hello.session",
    lambda chunk, _: [chunk.changed(request_id="hello")] if chunk.type == "session" else None,
)
FAULTS.refuses(
    "hello-knows-one-version",
    "A `hello` that names other versions beside 1 is rejected.",
    "hello.session",
    lambda message, _: (
        _is_hello(message) and message.is_valid and message.fields["protocol_versions"] != [1]
    ),
    "invalid_request",
)


class _SessionWaits(SessionTamper):
    """Sends `session` only when the first utterance has ended."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held: list[Action] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        if chunk.type == "session":
            self._held.append(ToClient(chunk.frame))
            return
        yield ToClient(chunk.frame)
        if chunk.is_terminal:
            held, self._held = self._held, []
            yield from held


FAULTS.add(
    "session-waits",
    "`session` comes only after the utterance behind the `hello`.",
    "hello.session",
    _SessionWaits,
)


class _NeedsHello(SessionTamper):
    """Rejects every request of a session that did not begin with `hello`."""

    def client_message(self, message: ClientMessage) -> Iterable[Action]:
        greeted = _is_hello(self.tap.messages[1])
        if greeted or not message.is_valid_request:
            return super().client_message(message)
        return [message_frame(invalid_twin(message, "invalid_request"), message)]


FAULTS.add(
    "hello-needed",
    "Without `hello` no request is served.",
    "hello.optional",
    _NeedsHello,
)


class _SessionUnasked(SessionTamper):
    """Greets a client that begins with a request."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._greeted = False

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        first = self.tap.messages.get(1)
        if not self._greeted and first is not None and first.is_valid_request:
            self._greeted = True
            fields = {"type": "session", "seq": 1, "protocol_version": 1, "session_id": "x"}
            limits: dict[str, Any] = {
                "max_text_chars": 4096,
                "max_message_bytes": 65_536,
                "max_waiting": 8,
            }
            limits |= {"max_request_id_chars": 128, "idle_timeout_s": 300, "max_speed": 2}
            stated: dict[str, Any] = {"limits": limits | {"min_speed": 0.5}, "voices": ["v"]}
            stated |= {"formats": ["pcm_s16le"], "sample_rates": [24_000]}
            profiles = {"profiles": ["core", "negotiate"]}
            yield ToClient(control_frame({**fields, **profiles, **stated}))
        yield ToClient(chunk.frame)


FAULTS.add(
    "session-unasked",
    "A client that begins with a request gets a `session`, though it said no `hello`.",
    "hello.optional",
    _SessionUnasked,
)


class _HelloAgain(SessionTamper):
    """Answers a late `hello` as if it were the first."""

    _LIMITS: Final = {"max_text_chars": 4096}

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        message = self.tap.messages.get(chunk.seq or 0)
        late = message is not None and message.seq > 1 and _is_hello(message)
        if not (late and chunk.is_rejection):
            return super().chunk(chunk)
        fields = {"type": "session", "seq": chunk.seq, "protocol_version": 1}
        return [ToClient(control_frame({**fields, "limits": self._LIMITS}))]


FAULTS.add(
    "hello-late-accepted",
    "A `hello` that is not the first message is obeyed.",
    "hello.first-only",
    _HelloAgain,
)
FAULTS.renames(
    "hello-late-looked-into",
    "A late `hello` without a known version is rejected with `unsupported_version`.",
    "hello.first-only",
    lambda message, _: (
        message.seq > 1 and _is_hello(message) and "unsupported_version" in message.meaning.codes
    ),
    "unsupported_version",
)


class _HelloInOrder(SessionTamper):
    """Keeps the rejection of a late `hello` back until what is being spoken has ended."""

    def __init__(self, shared: Shared, tap: Tap) -> None:
        super().__init__(shared, tap)
        self._held: list[Action] = []

    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        message = self.tap.messages.get(chunk.seq or 0)
        refused = chunk.is_rejection and message is not None and _is_hello(message)
        if refused and self.tap.running is not None:
            self._held.append(ToClient(chunk.frame))
            return
        yield ToClient(chunk.frame)
        if chunk.is_terminal and chunk.seq == self.tap.running:
            held, self._held = self._held, []
            yield from held


FAULTS.add(
    "hello-late-in-order",
    "The rejection of a late `hello` waits until the running utterance has ended.",
    "hello.first-only",
    _HelloInOrder,
)
FAULTS.rewrites(
    "hello-any-version",
    "A `hello` without a version that there is gets `session`.",
    "hello.unsupported-version",
    _says("unsupported_version"),
    lambda *_: _HELLO,
)
FAULTS.renames(
    "hello-unsupported-is-invalid",
    "A `hello` without a version that there is is rejected with `invalid_request`.",
    "hello.unsupported-version",
    _says("unsupported_version"),
    "invalid_request",
)


class _ClosesOnRefusal(SessionTamper):
    def chunk(self, chunk: Chunk) -> Iterable[Action]:
        yield ToClient(chunk.frame)
        message = self.tap.messages.get(chunk.seq or 0)
        if chunk.is_rejection and message is not None and message.seq == 1 and _is_hello(message):
            yield CloseSession(1002)


FAULTS.add(
    "hello-refused-closes",
    "After a `hello` that is refused the endpoint closes the session.",
    ("hello.unsupported-version", "hello.malformed"),
    _ClosesOnRefusal,
)
FAULTS.rewrites(
    "hello-malformed-accepted",
    "A `hello` whose versions are none gets `session`.",
    "hello.malformed",
    _says("invalid_request"),
    lambda *_: _HELLO,
)
FAULTS.renames(
    "hello-malformed-is-unsupported",
    "A `hello` whose versions are none is rejected with `unsupported_version`.",
    "hello.malformed",
    _says("invalid_request"),
    "unsupported_version",
)

# --- session -------------------------------------------------------------------------------------


def _restates(change: Callable[[dict[str, Any]], None]) -> Callable[[Chunk, Tap], Any]:
    """Change what `session` states."""

    def changed(chunk: Chunk, _: Tap) -> Iterable[Frame] | None:
        if chunk.type != "session":
            return None
        fields: dict[str, Any] = json.loads(chunk.frame.payload)
        # An endpoint that does not state it at all is left as it is.
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            change(fields)
        return [control_frame(fields)]

    return changed


def _sets_limit(name: str, value: Callable[[Any], Any]) -> Callable[[Chunk, Tap], Any]:
    def change(fields: dict[str, Any]) -> None:
        fields["limits"][name] = value(fields["limits"][name])

    return _restates(change)


FAULTS.chunks(
    "limits-lack-a-key",
    "`limits` in `session` lacks `idle_timeout_s`.",
    "session.limits",
    _restates(lambda fields: fields["limits"].pop("idle_timeout_s")),
)
FAULTS.chunks(
    "limits-below-floor",
    "`session` states that an id may have 64 code points only.",
    "session.limits",
    _sets_limit("max_request_id_chars", lambda _: 64),
)
FAULTS.chunks(
    "limits-slow-speech-missing",
    "`session` states that the least speed is 0.75.",
    "session.limits",
    _sets_limit("min_speed", lambda _: 0.75),
)
FAULTS.chunks(
    "session-hides-a-profile",
    "`session` does not list the profile `interrupt`, which is claimed elsewhere.",
    "session.matches-claims",
    _restates(lambda fields: fields["profiles"].remove("interrupt")),
)
FAULTS.chunks(
    "session-other-limit",
    "`session` states another `max_waiting` than is claimed elsewhere.",
    "session.matches-claims",
    _sets_limit("max_waiting", lambda value: value + 1),
)
FAULTS.chunks(
    "session-lists-no-voice",
    "`session` lists a voice that there is not.",
    "session.offers-work",
    _restates(lambda fields: fields["voices"].append("nobody's voice")),
)
FAULTS.chunks(
    "session-lists-no-rate",
    "`session` lists a sample rate that there is not.",
    "session.offers-work",
    _restates(lambda fields: fields["sample_rates"].append(7_000)),
)
FAULTS.chunks(
    "limits-promise-more-id",
    "`session` states that ids may be longer than they may.",
    "session.limits-hold",
    _sets_limit("max_request_id_chars", lambda value: value + 1),
)
FAULTS.chunks(
    "limits-promise-more-speed",
    "`session` states that speech may be faster than it may.",
    "session.limits-hold",
    _sets_limit("max_speed", lambda value: value + 0.5),
)
FAULTS.chunks(
    "limits-promise-less-text",
    "`session` states that texts must be shorter than they must.",
    "session.limits-hold",
    _sets_limit("max_text_chars", lambda value: value - 1 if value > 4096 else value),
)
FAULTS.chunks(
    "limits-promise-more-waiting",
    "`session` states that one more may wait than may.",
    "session.limits-hold",
    _sets_limit("max_waiting", lambda value: value + 1),
)
FAULTS.chunks(
    "limits-promise-more-bytes",
    "`session` states that messages may be larger than they may.",
    "session.limits-hold",
    _sets_limit("max_message_bytes", lambda value: value + 1),
)
FAULTS.chunks(
    "limits-promise-less-idle",
    "`session` states that the endpoint waits half as long as it does.",
    "session.limits-hold",
    _sets_limit("idle_timeout_s", lambda value: value / 2.5),
)
