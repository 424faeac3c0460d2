"""Judges of the HTTP binding (`http.md`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote as percent
from urllib.parse import unquote

from utterwire_schemas import ERROR_CODES, validator

from utterwire_conformance.check import Account, check, on_exchanges, settle
from utterwire_conformance.client_message import read_client_message
from utterwire_conformance.exchange import Exchange
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed

from . import quote

__all__ = [
    "abort",
    "body_limit",
    "content_type",
    "error_body",
    "headers",
    "method",
    "persistent",
    "ping",
    "ping_busy",
    "ping_draining",
    "ping_post",
    "request_content_type",
    "retry_after",
    "same_validation",
    "status",
    "stream_type",
    "streams",
    "survives",
    "unknown_type",
    "unspeakable",
    "whole",
    "whole_headers",
]

_SUCCESS: Final = "HTTP 200 and audio"
_EXCUSES: Final = frozenset({"overloaded", "going_away", "queue_full"})
_ACCEPTING: Final = ("http-streams", "http-whole", "http-content-types", "http-unspeakable")
# A 200 with one of these, or with text, is some other page: nothing was spoken.
_NO_AUDIO: Final = frozenset({"application/json", "application/problem+json", "application/xml"})
_MEDIA_TYPES: Final = {
    "pcm_s16le": "audio/pcm;rate={rate};channels=1",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "aac": "audio/aac",
    "opus": "audio/ogg;codecs=opus",
    "mulaw": "audio/PCMU;rate={rate}",
    "alaw": "audio/PCMA;rate={rate}",
}
_DECIMAL: Final = re.compile(r"[0-9]+(\.[0-9]+)?")


def _case(exchange: Exchange, name: str) -> bool:
    return exchange.case is not None and exchange.case.check == name


def _code(exchange: Exchange) -> str | None:
    body = exchange.json
    code = body.get("code") if body is not None else None
    return code if isinstance(code, str) else None


def _format(exchange: Exchange) -> str:
    """The format that a request asks for."""
    return str(exchange.request.get("format") or "pcm_s16le")


def _rate(exchange: Exchange) -> int:
    """The rate in Hz that a request asks for, or the default of its format."""
    rate = exchange.request.get("sample_rate")
    if isinstance(rate, int | float) and rate >= 1:
        return int(rate)
    return 8_000 if _format(exchange) in ("mulaw", "alaw") else 24_000


def _is_audio(exchange: Exchange) -> bool:
    if not exchange.is_synthesis or exchange.status != 200 or exchange.asks_for_events:
        return False
    # Events that nobody asked for are the affair of the judges of events.
    case = exchange.case
    tried = case is not None and case.check.startswith("sse.")
    return not (tried and _medium(exchange) == "text/event-stream")


def _medium(exchange: Exchange) -> str:
    return exchange.headers.get("content-type", "").partition(";")[0].strip().lower()


def _asks_whole(exchange: Exchange) -> bool:
    return exchange.request.get("stream") is False


def _fail(exchange: Exchange, reason: str, legal: str, advice: str) -> Judgement:
    return fail(
        reason,
        sent=quote.exchange_request(exchange),
        received=quote.answer(exchange),
        legal=legal,
        advice=advice,
    )


def _accepted(exchange: Exchange, advice: str, legal: str = _SUCCESS) -> Iterator[Judgement]:
    """Judge a request that must be accepted."""
    if exchange.status == 200 and exchange.clean is not False:
        kind = _medium(exchange)
        if kind.startswith("text/") or kind in _NO_AUDIO:
            yield _fail(
                exchange, f"A valid request was answered with {kind}, not audio.", legal, advice
            )
        else:
            yield passed()
    elif exchange.status == 503 and _code(exchange) in _EXCUSES:
        yield not_exercised(f"The endpoint refused a valid request with {_code(exchange)}.")
    elif exchange.status is None:
        yield _fail(exchange, "A valid request got no response.", legal, advice)
    elif exchange.status == 200:
        yield _fail(exchange, "The body of a valid request was cut off.", legal, advice)
    else:
        yield _fail(
            exchange, f"A valid request was answered with {exchange.status}.", legal, advice
        )


def _rejected(exchange: Exchange, advice: str) -> Iterator[Judgement]:
    """Judge a request that must be rejected, by its code."""
    case = exchange.case
    assert case is not None
    legal = f"an `error` with the code {' or '.join(case.codes)}"
    if exchange.status == 200:
        yield _fail(exchange, f"An invalid request was accepted ({case.name}).", legal, advice)
    elif exchange.status is None:
        yield _fail(exchange, f"No response came ({case.name}).", legal, advice)
    elif _code(exchange) in case.codes:
        yield passed()
    elif _code(exchange) in _EXCUSES:
        yield not_exercised(f"The endpoint refused the request with {_code(exchange)}.")
    else:
        yield _fail(
            exchange,
            f"An invalid request ({case.name}) was answered with {_code(exchange) or 'no code'}.",
            legal,
            advice,
        )


@check("http.streams", "http-streams")
def streams(evidence: Sequence[Account]) -> Judgement:
    """A valid request is answered with audio that leaves as it is made."""
    advice = "Stream the audio as the engine makes it, in a chunked body without a length."

    def find() -> Iterator[Judgement]:
        for account in evidence:
            # What every answer takes, a short one too: the way, and the start of the engine.
            waits = [
                e.first_byte_t - e.sent_t for e in account.exchanges if e.first_byte_t is not None
            ]
            for exchange in account.exchanges:
                if _case(exchange, "http.streams"):
                    yield from judge(exchange, min(waits) if len(waits) > 1 else 0.0)

    def judge(exchange: Exchange, least: float) -> Iterator[Judgement]:
        yield from _accepted(exchange, advice)
        if exchange.status != 200 or not exchange.clean:
            return
        if "content-length" in exchange.headers:
            yield _fail(
                exchange,
                "A streamed answer has a `Content-Length`, so that all of it was made first.",
                "a body without `Content-Length`",
                advice,
            )
        if not exchange.body:
            yield _fail(exchange, "The body holds no audio.", _SUCCESS, advice)
        elif len(exchange.body) % 2 or exchange.body.startswith(b"RIFF") or exchange.json:
            yield _fail(
                exchange, "The body is not whole samples of raw PCM.", "raw PCM alone", advice
            )
        yield from in_time(exchange, least)

    def in_time(exchange: Exchange, least: float) -> Iterator[Judgement]:
        if exchange.case is None or exchange.case.name != "a long text":
            return
        first, end = exchange.first_byte_t, exchange.end_t
        if first is None or end is None or end - exchange.sent_t - least < 0.1:
            return
        share = (first - exchange.sent_t - least) / (end - exchange.sent_t - least)
        if share > 0.3:
            yield _fail(
                exchange,
                f"The first byte of a long text came when {share:.0%} of the time had passed.",
                "the first byte well before the last",
                advice,
            )

    return settle(find(), evidence, "no request could be made")


@check("http.whole", "http-whole")
def whole(evidence: Sequence[Account]) -> Judgement:
    """`"stream": false` gives one body with its length."""
    advice = "With `stream` false make all of the audio, then send it with `Content-Length`."
    legal = "HTTP 200, all of the audio, and a `Content-Length` that is its length"

    def find() -> Iterator[Judgement]:
        streamed = {
            str(e.request.get("text")): e
            for account in evidence
            for e in account.exchanges
            if e.is_synthesis and e.status == 200 and not _asks_whole(e)
        }
        for account in evidence:
            for exchange in account.exchanges:
                if _case(exchange, "http.whole") and _asks_whole(exchange):
                    yield from judge(exchange, streamed.get(str(exchange.request.get("text"))))

    def judge(exchange: Exchange, twin: Exchange | None) -> Iterator[Judgement]:
        yield from _accepted(exchange, advice, legal)
        if exchange.status != 200:
            return
        length = exchange.headers.get("content-length")
        if length is None:
            yield _fail(exchange, "There is no `Content-Length`.", legal, advice)
        elif exchange.clean and length != str(len(exchange.body)):
            yield _fail(exchange, f"`Content-Length` is {length}.", legal, advice)
        elif twin is not None and twin.clean and not _alike(len(exchange.body), len(twin.body)):
            yield _fail(
                exchange,
                f"The body has {len(exchange.body)} bytes; streamed, the same text had"
                f" {len(twin.body)}.",
                legal,
                advice,
            )

    return settle(find(), evidence, "no request could be made")


def _alike(one: int, other: int) -> bool:
    """Whether two lengths of audio can be of the same text, spoken twice."""
    return abs(one - other) <= 0.4 * max(one, other)


@check("http.whole-headers", "http-whole")
@on_exchanges("no whole body was received")
def whole_headers(exchange: Exchange) -> Iterator[Judgement]:
    """Duration, bytes and characters of a whole body are told, and true."""
    if not (_is_audio(exchange) and _asks_whole(exchange) and exchange.clean):
        return
    rate = exchange.headers.get("utterwire-sample-rate", "24000")
    hertz = int(rate) if rate.isdecimal() and int(rate) else 24_000
    text = exchange.request.get("text")
    expected: dict[str, float] = {
        "utterwire-audio-bytes": len(exchange.body),
        "utterwire-characters": len(text) if isinstance(text, str) else 0,
    }
    if (exchange.request.get("format") or "pcm_s16le") == "pcm_s16le":
        # That of other formats is told by `formats.duration`.
        expected["utterwire-duration-s"] = len(exchange.body) / (2 * hertz)
    for name, value in expected.items():
        said = exchange.headers.get(name)
        if said is None or not _DECIMAL.fullmatch(said) or abs(float(said) - value) > 0.001:
            yield _fail(
                exchange,
                f"`{name}` is {said if said is not None else 'missing'}.",
                f"`{name}: {value:g}`",
                "Send the three headers of a whole body, in plain decimals.",
            )
            return
    yield passed()


@check("http.content-type", *_ACCEPTING, "http-formats", general=True)
@on_exchanges("no audio was received")
def content_type(exchange: Exchange) -> Iterator[Judgement]:
    """`Content-Type` is the one of the format and rate."""
    if not _is_audio(exchange):
        return
    right = _MEDIA_TYPES.get(_format(exchange))
    if right is None:
        return
    legal = right.format(rate=_rate(exchange))
    kind, *parameters = (
        part.strip() for part in exchange.headers.get("content-type", "").split(";")
    )
    pairs = {
        name.strip().lower(): value.strip().strip('"')
        for name, _, value in (parameter.partition("=") for parameter in parameters)
    }
    expected, *rest = legal.split(";")
    wanted = dict(parameter.split("=") for parameter in rest)
    if kind.lower() == expected.lower() and pairs == wanted:
        yield passed()
        return
    yield _fail(
        exchange,
        f"`Content-Type` is {exchange.headers.get('content-type', 'missing')}.",
        legal,
        "Name the format and the rate in `Content-Type`, as the table of the clause does.",
    )


@check("http.headers", *_ACCEPTING, "http-formats", general=True)
@on_exchanges("no audio was received")
def headers(exchange: Exchange) -> Iterator[Judgement]:
    """Rate, format, voice and id are told by headers."""
    if not _is_audio(exchange):
        return
    request, found = exchange.request, exchange.headers
    advice = "Send the `Utterwire-` headers with every answer, percent-encoded."
    expected: dict[str, str | None] = {
        "utterwire-sample-rate": str(_rate(exchange)),
        "utterwire-format": _format(exchange),
    }
    named = request.get("request_id")
    expected["utterwire-request-id"] = _encoded(named) if isinstance(named, str) else None
    if isinstance(request.get("voice"), str):
        expected["utterwire-voice"] = _encoded(str(request["voice"]))
    elif not found.get("utterwire-voice"):
        yield _fail(exchange, "`Utterwire-Voice` is missing.", "the voice that speaks", advice)
        return
    for name, value in expected.items():
        said = found.get(name)
        same = said == value or (
            value is not None
            and said is not None
            and said.isascii()
            and re.sub("%[0-9a-f]{2}", lambda hit: hit.group().upper(), said) == value
        )
        if not same:
            yield _fail(
                exchange,
                f"`{name}` is {said if said is not None else 'missing'}.",
                f"`{name}: {value}`" if value is not None else f"no `{name}`",
                advice,
            )
            return
    voice = found.get("utterwire-voice", "")
    if _encoded(unquote(voice)) != re.sub("%[0-9a-f]{2}", lambda hit: hit.group().upper(), voice):
        yield _fail(exchange, "`Utterwire-Voice` is not percent-encoded.", _encoded(voice), advice)
        return
    yield passed()


def _encoded(value: str) -> str:
    return percent(value, safe="", errors="replace")


@check("http.request-content-type", "http-content-types")
@on_exchanges("no request could be made")
def request_content_type(exchange: Exchange) -> Iterator[Judgement]:
    """The body is JSON, whatever its header says."""
    if _case(exchange, "http.request_content_type"):
        kind = exchange.request_headers.get("content-type", "none")
        for judgement in _accepted(
            exchange, "Read the body as JSON without looking at its `Content-Type`."
        ):
            if judgement.verdict.value == "fail":
                yield fail(
                    f"{judgement.reason} (`Content-Type` of the request: {kind})",
                    sent=f"{judgement.sent} ({kind})",
                    received=judgement.received,
                    legal=judgement.legal,
                    advice=judgement.advice,
                )
            else:
                yield judgement


@check("http.same-validation", "http-rejects", "http-accepts", fuzzed=True)
@on_exchanges("no request could be made")
def same_validation(exchange: Exchange) -> Iterator[Judgement]:
    """What a session accepts or rejects, HTTP does as well, with the same codes."""
    if not _case(exchange, "http.same_validation"):
        return
    assert exchange.case is not None
    advice = "Validate the body with the code that validates `synthesize`."
    free = exchange.case.expect == "either" and exchange.status == 200
    if exchange.case.expect == "accept" or free:
        yield from _accepted(exchange, advice)
    else:
        yield from _rejected(exchange, advice)


@check("http.unknown-type", "http-rejects")
@on_exchanges("no request could be made")
def unknown_type(exchange: Exchange) -> Iterator[Judgement]:
    """Every type but `synthesize` is unknown over HTTP."""
    if _case(exchange, "http.unknown_type"):
        yield from _rejected(exchange, "Over HTTP reject every `type` but `synthesize`.")


@check("http.stream-type", "http-rejects")
@on_exchanges("no request could be made")
def stream_type(exchange: Exchange) -> Iterator[Judgement]:
    """`stream` is a boolean or null."""
    if _case(exchange, "http.stream_type"):
        yield from _rejected(exchange, "Reject a `stream` that is no boolean.")


def _refusals(exchange: Exchange) -> bool:
    return exchange.is_synthesis and exchange.status is not None and exchange.status >= 400


@check("http.status", "http-rejects", general=True)
@on_exchanges("no request was refused")
def status(exchange: Exchange) -> Iterator[Judgement]:
    """The status is the registry's for the code."""
    code = _code(exchange)
    if not _refusals(exchange) or code is None or code not in ERROR_CODES:
        case = exchange.case
        must = case is not None and case.expect == "reject" and case.check != "http.method"
        if must and exchange.is_synthesis and exchange.status is not None and exchange.status < 400:
            yield _fail(
                exchange,
                f"An invalid request was answered with {exchange.status}.",
                "the status that the registry gives for the code",
                "Refuse with the status of the code, never with a success.",
            )
        return
    expected = {ERROR_CODES[code].http_status}
    if code == "invalid_request" and _case(exchange, "http.body_limit"):
        expected = {413}
    if exchange.status in expected:
        yield passed()
        return
    yield _fail(
        exchange,
        f"`{code}` was answered with the status {exchange.status}.",
        f"status {expected.pop()}",
        "Take the status from the registry of error codes.",
    )


@check("http.error-body", "http-rejects", general=True)
@on_exchanges("no request was refused")
def error_body(exchange: Exchange) -> Iterator[Judgement]:
    """A refusal is an `error` message as JSON."""
    if not _refusals(exchange):
        return
    body = exchange.json
    kind = _medium(exchange)
    meaning = read_client_message(exchange.request_body)
    fault = None
    if kind != "application/json":
        fault = f"the `Content-Type` is {kind or 'missing'}"
    elif body is None:
        fault = "the body is not a JSON object"
    elif "seq" in body:
        fault = "it has a `seq`"
    elif not validator("http-error").is_valid(body):
        error = next(validator("http-error").iter_errors(body))
        while error.context:
            error = error.context[0]
        fault = str(error.message)[:200]
    elif (
        exchange.case is not None and exchange.case.expect == "reject" and not body.get("rejected")
    ):
        fault = "`rejected` is not true"
    elif meaning.id_certain and body.get("request_id") != meaning.request_id:
        fault = "the `request_id` is not the one that was sent"
    if fault is None:
        yield passed()
        return
    yield _fail(
        exchange,
        f"The body of a refusal is not the `error` message: {fault}.",
        "one JSON object of type `error` without `seq`, as application/json",
        "Answer refusals with the same `error` as in a session, less its `seq`.",
    )


@check("http.retry-after", "shutdown", general=True)
@on_exchanges("no request was answered with 503")
def retry_after(exchange: Exchange) -> Iterator[Judgement]:
    """A 503 says when to try again."""
    if not exchange.is_synthesis or exchange.status != 503:
        return
    if re.fullmatch(r"[0-9]+", exchange.headers.get("retry-after", "")):
        yield passed()
        return
    yield _fail(
        exchange,
        f"A 503 has `Retry-After` {exchange.headers.get('retry-after', 'missing')}.",
        "`Retry-After` with a number of seconds",
        "Send `Retry-After` with every 503.",
    )


@check("http.unspeakable", "http-unspeakable")
@on_exchanges("no request could be made")
def unspeakable(exchange: Exchange) -> Iterator[Judgement]:
    """Text with nothing to speak gives 200 and nothing."""
    if not _case(exchange, "http.unspeakable"):
        return
    legal = "HTTP 200 and an empty body"
    advice = "Answer text that has nothing to speak with 200 and no audio."
    yield from _accepted(exchange, advice, legal)
    if exchange.status == 200 and exchange.body:
        yield _fail(exchange, "The body is not empty.", legal, advice)


@check("http.abort", "shutdown")
def abort(evidence: Sequence[Account]) -> Judgement:
    """A body that cannot be finished is cut off."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            for exchange in account.exchanges:
                if any(note.startswith("stalls") for note in exchange.notes):
                    yield from judge(exchange)

    def judge(exchange: Exchange) -> Iterator[Judgement]:
        text = exchange.request.get("text")
        # Nobody speaks 4,096 code points in less: some 50 code points a second.
        least = len(text) / 50 * 48_000 if isinstance(text, str) else 0
        if exchange.status != 200:
            yield not_exercised("The long request was not answered with audio.")
        elif exchange.clean is False:
            yield passed()
        elif exchange.clean and len(exchange.body) >= least:
            yield not_exercised("The endpoint finished the long request in spite of the shutdown.")
        elif exchange.clean:
            yield _fail(
                exchange,
                f"A shutdown cut the audio short after {len(exchange.body)} bytes, and the body"
                " was ended as if it were whole.",
                "the end of the connection without the last chunk",
                "On a failure close the connection; never finish the body.",
            )

    return settle(find(), evidence, "no body could be made to fail after its first byte")


@check("http.body-limit", "http-body-limit")
@on_exchanges("no body beyond the limit could be sent")
def body_limit(exchange: Exchange) -> Iterator[Judgement]:
    """A body beyond the limit is answered 413."""
    if not _case(exchange, "http.body_limit"):
        return
    assert exchange.case is not None
    if exchange.case.expect == "accept":
        return
    if exchange.status == 413 and _code(exchange) in exchange.case.codes:
        yield passed()
        return
    yield _fail(
        exchange,
        "A body beyond `max_message_bytes` was not answered with 413 and its code.",
        "HTTP 413 with the code text_too_long or invalid_request",
        "Bound the body while you read it, and answer 413.",
    )


@check("http.method", "http-methods")
@on_exchanges("no request could be made")
def method(exchange: Exchange) -> Iterator[Judgement]:
    """Other methods are answered 405 with `Allow`."""
    if not _case(exchange, "http.method"):
        return
    allowed = {name.strip() for name in exchange.headers.get("allow", "").split(",")}
    if exchange.status == 405 and "POST" in allowed:
        yield passed()
        return
    yield _fail(
        exchange,
        f"{exchange.method} was answered with {exchange.status}, `Allow`"
        f" {exchange.headers.get('allow', 'missing')}.",
        "HTTP 405 with an `Allow` that names POST",
        "Allow POST alone on `/invocations`, and say so in `Allow`.",
    )


@check("http.persistent", "http-persistent")
def persistent(evidence: Sequence[Account]) -> Judgement:
    """What follows on the same connection is answered as the first was."""
    advice = "Leave nothing of an exchange on its connection, or close it after the answer."

    def find() -> Iterator[Judgement]:
        for account in evidence:
            found = [e for e in account.exchanges if _case(e, "http.persistent")]
            # Where the first is not served, the connection is not to blame.
            if found and found[0].status == 200 and found[0].clean:
                for exchange in found[1:]:
                    yield from judge(exchange)

    def judge(exchange: Exchange) -> Iterator[Judgement]:
        assert exchange.case is not None
        if exchange.status is None and exchange.clean is False:
            yield not_exercised("The endpoint closed the connection after an answer.")
        elif exchange.case.expect == "accept":
            yield from _accepted(exchange, advice)
        elif exchange.case.expect == "reject":
            yield from _rejected(exchange, advice)
        elif exchange.status is None:
            yield _fail(
                exchange,
                "No response came on a connection that was left open.",
                "an answer, or the end of the connection",
                advice,
            )

    return settle(find(), evidence, "the endpoint closes each connection after its answer")


def _pings(exchange: Exchange, verb: str) -> bool:
    return (
        exchange.target == "/ping"
        and exchange.method == verb
        and not any(note.startswith(("busy", "draining")) for note in exchange.notes)
    )


def _draining(account: Account, exchange: Exchange) -> bool:
    return any(
        entry.session == exchange.session and entry.text == "draining"
        for entry in account.transcript.entries
    )


@check("http.ping", "http-pings")
@on_exchanges("no request could be made")
def ping(exchange: Exchange) -> Iterator[Judgement]:
    """`GET /ping` gives 200."""
    if not _pings(exchange, "GET"):
        return
    if exchange.status == 200:
        yield passed()
        return
    yield _fail(
        exchange,
        f"`GET /ping` was answered with {exchange.status}.",
        "HTTP 200",
        "Answer `/ping` with 200 as soon as the endpoint can speak.",
    )


@check("http.ping-post", "http-pings")
@on_exchanges("no request could be made")
def ping_post(exchange: Exchange) -> Iterator[Judgement]:
    """`POST /ping` gives 200 as well."""
    if not _pings(exchange, "POST"):
        return
    if exchange.status == 200:
        yield passed()
        return
    yield _fail(
        exchange,
        f"`POST /ping` was answered with {exchange.status}.",
        "HTTP 200",
        "Let `/ping` take POST too.",
    )


@check("http.ping-busy", "http-busy")
@on_exchanges("`/ping` could not be asked while the engine was busy")
def ping_busy(exchange: Exchange) -> Iterator[Judgement]:
    """`/ping` is answered while an utterance is being spoken."""
    if exchange.target != "/ping":
        return
    advice = "Answer `/ping` without asking the engine, from a loop that nothing blocks."
    legal = "HTTP 200 while the utterance is being spoken"
    if exchange.status != 200:
        yield _fail(exchange, "`/ping` was not answered while the engine was busy.", legal, advice)
    elif "busy: running" in exchange.notes:
        yield passed()
    else:
        yield _fail(
            exchange, "`/ping` was answered only when the utterance had ended.", legal, advice
        )


@check("http.ping-draining", "shutdown")
def ping_draining(evidence: Sequence[Account]) -> Judgement:
    """A draining endpoint answers `/ping` with 503."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            for exchange in account.exchanges:
                if exchange.target != "/ping" or not _draining(account, exchange):
                    continue
                if exchange.status == 503:
                    yield passed()
                else:
                    yield _fail(
                        exchange,
                        f"While draining, `/ping` was answered with {exchange.status}.",
                        "HTTP 503",
                        "From SIGTERM on answer `/ping` with 503, so that no more traffic comes.",
                    )

    return settle(find(), evidence, "no endpoint could be shut down")


@check("http.survives", "http-rejects")
@on_exchanges("no request could be made after a rejected one")
def survives(exchange: Exchange) -> Iterator[Judgement]:
    """After rejected requests a valid one is served."""
    if _case(exchange, "http.survives") and exchange.case and exchange.case.name == "a valid one":
        yield from _accepted(exchange, "A bad request must leave nothing behind.")
