"""Speech in server-sent events (`sse.md`)."""

from __future__ import annotations

from typing import Any, Final

from utterwire_conformance.stage import Stage, scenario
from utterwire_conformance.transcript import Case

__all__ = ["ACCEPT", "sse_accept", "sse_long", "sse_rejects", "sse_streams"]

ACCEPT: Final = ("Accept", "text/event-stream")
"""The header that asks for events."""

_JSON: Final = ("Content-Type", "application/json")
_ID: Final = "héllo 1/\n\U0001f600"
_ACCEPTS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("named", ("text/event-stream",)),
    ("named, in capitals", ("Text/Event-Stream",)),
    ("named, with a parameter", ("text/event-stream; charset=utf-8",)),
    ("named, with a weight", ("text/event-stream;q=0.4, audio/*;q=0.9",)),
    ("named, behind others", ("audio/pcm, */*;q=0.1, text/event-stream",)),
    ("named, in the second field", ("audio/pcm", "text/event-stream")),
    ("no field", ()),
    ("everything", ("*/*",)),
    ("all text", ("text/*",)),
    ("audio", ("audio/pcm",)),
    ("another name", ("text/event-streams",)),
    ("with no weight", ("text/event-stream;q=0, */*",)),
)


@scenario(profile="sse")
async def sse_accept(stage: Stage) -> None:
    """`Accept` in many spellings, with and without the name of events."""
    for name, fields in _ACCEPTS:
        await stage.post(
            stage.request(stage.texts.shortest),
            headers=(_JSON, *(("Accept", field) for field in fields)),
            case=Case(name, "sse.content_type", "accept"),
        )


@scenario(profile="sse")
async def sse_streams(stage: Stage) -> None:
    """Requests of many kinds, each answered by events."""
    texts, claims = stage.texts, stage.claims
    one = texts.shortest
    shapes: list[tuple[str, str, dict[str, Any]]] = [
        ("text alone", one, {}),
        ("with an id", one, {"request_id": _ID}),
        ("stream false", one, {"stream": False}),
        ("stream true", one, {"stream": True}),
        ("with rate, format and speed", one, {"sample_rate": 24_000, "format": "pcm_s16le"}),
        ("faster", one, {"speed": 1.5}),
        ("wide characters", f"{one} e\u0301 \U0001f600", {}),
        ("nothing to speak", "...", {"request_id": "quiet"}),
        ("longer", texts.of_length(400), {"request_id": "longer"}),
    ]
    shapes += [
        (f"voice {voice}", one, {"voice": voice}) for voice in sorted(claims.voices or ())[:2]
    ]
    formats = sorted((claims.formats or frozenset()) - {"pcm_s16le"})[:2]
    shapes += [(f"format {name}", one, {"format": name}) for name in formats]
    rates = sorted((claims.sample_rates or frozenset()) - {24_000})[:1]
    shapes += [(f"{rate} Hz", one, {"sample_rate": rate}) for rate in rates]
    for name, text, fields in shapes:
        await stage.post(
            stage.request(text, **fields),
            headers=(_JSON, ACCEPT),
            case=Case(name, "sse.start", "accept"),
        )


@scenario(profile="sse", heavy=True)
async def sse_long(stage: Stage) -> None:
    """A short text, then one of half a minute or so: when does its first chunk come."""
    texts = stage.texts
    for name, text in (("a short text", texts.shortest), ("a long text", texts.of_length(600))):
        await stage.post(
            stage.request(text),
            headers=(_JSON, ACCEPT),
            case=Case(name, "sse.streamed", "accept"),
        )


@scenario(profile="sse")
async def sse_rejects(stage: Stage) -> None:
    """Invalid requests that ask for events, between two valid ones."""
    text = stage.texts.shortest
    check = "sse.refusal"
    bad: list[tuple[str, tuple[str, ...], dict[str, Any] | bytes]] = [
        ("not JSON", ("invalid_json",), b"nonsense"),
        ("an array", ("not_an_object",), b"[]"),
        ("no text", ("missing_text",), {"request_id": _ID}),
        ("blank text", ("empty_text",), {"text": " "}),
        ("another type", ("unknown_type",), {"text": text, "type": "close"}),
        ("bad speed", ("invalid_request", "invalid_speed"), {"text": text, "speed": "x"}),
        ("bad stream", ("invalid_request",), {"text": text, "stream": "no", "request_id": "s"}),
    ]

    async def post(name: str, expect: Any, codes: tuple[str, ...], message: Any) -> None:
        case = Case(name, check, expect, codes)
        await stage.post(message, headers=(_JSON, ACCEPT), case=case)

    await post("the valid twin", "accept", (), stage.request(text))
    for name, codes, message in bad:
        await post(name, "reject", codes, message)
    await post("a valid one", "accept", (), stage.request(text))
