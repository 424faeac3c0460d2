"""Judges of what a client sends: its messages, its ids, its `hello`, its handshake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from utterwire_conformance.client_half.account import ClientAccount
from utterwire_conformance.client_half.scripts.negotiate import MAX_TEXT, MAX_WAITING
from utterwire_conformance.client_half.talk import ANY_CLAIMS
from utterwire_conformance.client_message import read_client_message
from utterwire_conformance.dialogue import Dialogue, Utterance
from utterwire_conformance.judges import quote
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed

from .finding import own_session, rule

__all__ = [
    "first_hello",
    "limits",
    "no_message_after_close",
    "offers_no_compression",
    "reads_always",
    "unique_ids",
    "valid_messages",
]

_VALID: Final = "one JSON object in UTF-8, valid by `client-message.json`"


@rule(
    "client.valid-messages",
    "client-plain",
    "client-texts",
    general=True,
    otherwise="no message was sent",
    to_the_end=False,
)
def valid_messages(account: ClientAccount) -> Iterator[Judgement]:
    """Every message and every body of a request is valid."""
    for dialogue in own_session(account):
        breach = dialogue.facts.get("frame breach")
        if breach is not None:
            yield fail(
                f"A frame breaks RFC 6455: {breach}.",
                received=f"{len(dialogue.sent)} messages in session {dialogue.session}",
                legal="masked frames with an opcode of RFC 6455",
                advice="Leave the framing to a WebSocket library.",
            )
        for message in dialogue.sent:
            meaning = read_client_message(message.data, ANY_CLAIMS)
            yield _validity(meaning.verdict, meaning.codes, quote.sent(message))
    for exchange in account.exchanges:
        if exchange.is_synthesis:
            meaning = read_client_message(exchange.request_body)
            yield _validity(meaning.verdict, meaning.codes, quote.exchange_request(exchange))


def _validity(verdict: str, codes: frozenset[str], shown: str) -> Judgement:
    if verdict != "reject":
        return passed()
    return fail(
        f"A message is not valid: an endpoint rejects it with `{sorted(codes)[0]}`.",
        received=shown,
        legal=_VALID,
        advice="Write messages with a JSON library, and check fields against their schema.",
    )


def _requests(dialogue: Dialogue) -> list[Utterance]:
    return [u for u in dialogue.utterances.values() if u.sent.meaning.type == "synthesize"]


def _ended_at(utterance: Utterance) -> float:
    """The place in the session at which a request had its last word."""
    chunk = utterance.rejection or utterance.terminal
    return chunk.index if chunk is not None else float("inf")


@rule(
    "client.unique-ids",
    "client-plain",
    "client-pauses",
    general=True,
    otherwise="there were no two requests in a session",
    to_the_end=False,
)
def unique_ids(account: ClientAccount) -> Iterator[Judgement]:
    """No id is used again while its utterance is unended."""
    for dialogue in own_session(account):
        requests = _requests(dialogue)
        if len(requests) < 2:
            continue
        open_ids: dict[str, Utterance] = {}
        clash = None
        for request in requests:
            name = request.sent.meaning.request_id
            if name is None:
                continue
            before = open_ids.get(name)
            if before is not None and _ended_at(before) > request.sent.index:
                clash = (before, request)
                break
            open_ids[name] = request
        if clash is None:
            yield passed()
            continue
        yield fail(
            "A `request_id` was used again before its utterance had ended.",
            received=f"{quote.sent(clash[0].sent)}; then {quote.sent(clash[1].sent)}",
            legal="an id of its own for each request that is unended, or none",
            advice="Count the requests of a session, and make the ids from that.",
        )


@rule(
    "client.no-message-after-close",
    "client-closing",
    "client-plain",
    general=True,
    otherwise="the client never sent `close`",
    to_the_end=False,
)
def no_message_after_close(account: ClientAccount) -> Iterator[Judgement]:
    """After `close` only `cancel` is sent."""
    for dialogue in own_session(account):
        if dialogue.close_sent is None:
            continue
        late = [s for s in dialogue.sent if s.after_close and s.meaning.type != "cancel"]
        if not late:
            yield passed()
            continue
        yield fail(
            "A message came after `close`.",
            received=quote.sent(late[0]),
            legal="nothing but `cancel`",
            advice="Stop timers and queues of messages when `close` is sent.",
        )


@rule(
    "client.offers-no-compression",
    "client-plain",
    general=True,
    otherwise="no session was asked for",
    to_the_end=False,
)
def offers_no_compression(account: ClientAccount) -> Iterator[Judgement]:
    """The handshake offers no per-message compression."""
    for dialogue in account.dialogues:
        if dialogue.asked is None:
            continue
        offered = ", ".join(
            value
            for name, value in dialogue.asked.headers
            if name.lower() == "sec-websocket-extensions"
        )
        if "permessage-deflate" not in offered:
            yield passed()
            continue
        yield fail(
            "The handshake offers per-message compression.",
            received=f"Sec-WebSocket-Extensions: {offered}",
            legal="a handshake without `permessage-deflate`",
            advice="Switch compression off in the WebSocket library.",
        )


@rule(
    "client.first-hello",
    "client-hello",
    "client-hello-refused",
    general=True,
    otherwise="the client sent no `hello`",
    to_the_end=False,
)
def first_hello(account: ClientAccount) -> Iterator[Judgement]:
    """`hello` is sent as the first message, and once."""
    for dialogue in own_session(account):
        greetings = [s for s in dialogue.sent if s.meaning.fields.get("type") == "hello"]
        late = [s for s in greetings if s.seq != 1]
        if late:
            yield fail(
                f"`hello` came as message {late[0].seq}.",
                received=quote.sent(late[0]),
                legal="`hello` as message 1, or not at all",
                advice="Send `hello` as soon as the session is open, and never again in it.",
            )
        elif greetings:
            yield passed()


@rule(
    "client.limits",
    "client-limits",
    otherwise="the client never learned of limits: it sent no `hello`",
    to_the_end=False,
)
def limits(account: ClientAccount) -> Iterator[Judgement]:
    """No text is longer, and no more utterances wait, than `session` allows."""
    for dialogue in own_session(account):
        stated = next((c for c in dialogue.chunks if c.type == "session"), None)
        if stated is None:
            continue
        after = [u for u in _requests(dialogue) if u.sent.index > stated.index]
        long = [u for u in after if len(u.sent.meaning.text) > MAX_TEXT]
        if long:
            yield fail(
                f"A text of {len(long[0].sent.meaning.text)} code points was sent.",
                sent=quote.chunk(stated),
                received=quote.sent(long[0].sent),
                legal=f"texts of at most {MAX_TEXT} code points",
                advice="Cut the text into sentences, or refuse it before it is sent.",
            )
            continue
        most, crowd = _most_unended(_requests(dialogue), after)
        if most > MAX_WAITING + 1 and crowd is not None:
            yield fail(
                f"{most} utterances were unended at once.",
                sent=quote.chunk(stated),
                received=f"{quote.sent(crowd.sent)} while {most - 1} others were unended",
                legal=f"{MAX_WAITING} that wait, and one that runs",
                advice="Hold requests back until a terminal message makes room.",
            )
        elif len(after) > 1:
            yield passed()


def _most_unended(
    requests: list[Utterance], counted: list[Utterance]
) -> tuple[int, Utterance | None]:
    most, crowd = 0, None
    for request in counted:
        unended = sum(
            other.sent.index <= request.sent.index < _ended_at(other) for other in requests
        )
        if unended > most:
            most, crowd = unended, request
    return most, crowd


@rule(
    "client.reads-always",
    "client-flood",
    otherwise="the client asked for nothing",
    to_the_end=False,
)
def reads_always(account: ClientAccount) -> Iterator[Judgement]:
    """Audio is taken though the endpoint reads nothing meanwhile."""
    taken, unread = account.facts("audio taken"), account.facts("unread requests")
    if not taken or not unread:
        return
    if taken[0] == "no":
        yield fail(
            "The client took no audio while it had requests to send.",
            sent="audio, while the endpoint read no further",
            received="for seconds the connection took nothing",
            legal="the client reads all the time, whatever it still has to send",
            advice="Read the socket in a task or thread of its own.",
        )
    elif unread[0] == "0":
        yield not_exercised(
            "The client sent no request before the one before it was answered, so that there was"
            " nothing to send while it read."
        )
    else:
        yield passed()
