"""Messages that must be accepted, one peculiarity each."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from utterwire_conformance.stage import SMALL_BUFFER, Stage, Unplayable, scenario
from utterwire_conformance.transcript import Case
from utterwire_conformance.wire import Frame, Opcode

from .cases import Special, accepted, padded, play_cases, rejected

__all__ = ["ACCEPTED_GROUPS"]

_Change = Any
_KINDS: Final[tuple[Literal["text", "binary"], ...]] = ("text", "binary")
_REJECTED_ALIKE: Final[tuple[tuple[str, str, Any], ...]] = (
    ("unknown type", "unknown_type", {"type": "utterwire-unknown"}),
    ("not JSON", "invalid_json", b"nonsense"),
    ("empty", "invalid_json", b""),
    ("array", "not_an_object", b"[]"),
)


def _group(check: str, *cases: tuple[str, _Change]) -> list[Special]:
    return [accepted(check, name, change) for name, change in cases]


def _written(field: str, literal: str) -> Callable[[dict[str, Any]], bytes]:
    """The request with a number spelt exactly so."""

    def make(request: dict[str, Any]) -> bytes:
        body = json.dumps(request, ensure_ascii=False)
        return f'{body[:-1]}, "{field}": {literal}}}'.encode()

    return make


ACCEPTED_GROUPS: Final[dict[str, list[Special]]] = {
    "accept-defaults": _group(
        "accept.defaults",
        ("text alone", lambda request: {"text": request["text"]}),
        # What an endpoint cannot speak it passes over; these are not blank.
        ("symbols", lambda _: {"text": "+ = <>"}),
        ("U+001F, which is no White_Space", lambda _: {"text": "\x1f"}),
        ("an unassigned code point", lambda _: {"text": "\U000e01ff"}),
    ),
    "type-absent": _group(
        "message.type_absent",
        ("no type", {}),
        ("type null", {"type": None}),
        ("type synthesize", {"type": "synthesize"}),
    ),
    "unknown-fields": _group(
        "message.unknown_fields_ignored",
        ("a string", {"colour": "blue"}),
        ("an object", {"x": {"type": "close", "text": 7}}),
        ("an array", {"x": [None, True, [[]], {}]}),
        ("an empty name", {"": 1}),
        ("fields of other types", {"protocol_versions": "none", "reason": 7, "seq": -1}),
        ("stream, as over HTTP", {"stream": "no"}),
        ("names in another case", {"Text": 7, "VOICE": 7}),
    ),
    "reserved-fields": _group(
        "message.reserved_fields_ignored",
        ("language", {"language": "xx"}),
        ("language, not a string", {"language": 7}),
        ("model", {"model": "no such model"}),
        ("model, an object", {"model": {"name": []}}),
    ),
    "null-fields": _group(
        "message.null_is_absent",
        (
            "all optional fields",
            {
                "voice": None,
                "speed": None,
                "sample_rate": None,
                "format": None,
                "request_id": None,
                "marks": None,
                "request_timestamp": None,
                "type": None,
            },
        ),
        ("voice", {"voice": None}),
        ("speed", {"speed": None}),
        ("sample_rate", {"sample_rate": None}),
        ("format", {"format": None}),
        ("request_id", {"request_id": None}),
    ),
    "integral-floats": _group(
        "message.integral_floats",
        ("24000.0", _written("sample_rate", "24000.0")),
        ("2.4e4", _written("sample_rate", "2.4e4")),
        ("240000E-1", _written("sample_rate", "240000E-1")),
        ("speed 1", _written("speed", "1")),
        ("speed 1e0", _written("speed", "1e0")),
    ),
    "request-timestamp": _group(
        "message.request_timestamp",
        ("a number", {"request_timestamp": 1_700_000_000.123}),
        ("a date", {"request_timestamp": "2026-01-01T00:00:00Z"}),
        ("nonsense", {"request_timestamp": "yesterday"}),
        ("an object", {"request_timestamp": {"at": []}}),
        ("negative", {"request_timestamp": -1}),
        ("a boolean", {"request_timestamp": False}),
    ),
    "speed-range": _group(
        "accept.speed_range",
        ("0.5", {"speed": 0.5}),
        ("2.0", {"speed": 2.0}),
        ("1", {"speed": 1}),
        ("0.51", {"speed": 0.51}),
        ("1.37", {"speed": 1.37}),
        ("1.999", {"speed": 1.999}),
    ),
    "request-id-floor": _group(
        "accept.request_id_floor",
        ("1 code point", {"request_id": "a"}),
        ("128 code points", {"request_id": "r" * 128}),
        ("128 outside the BMP", {"request_id": "\U0001f600" * 128}),
        ("a space", {"request_id": " "}),
        ("control characters", {"request_id": "\x00\x01\x1f\x7f\x85"}),
        ("quotes and slashes", {"request_id": "\"'\\/<>&%\u2028"}),
        ("combining and right-to-left", {"request_id": "e\u0301\u200f\u05d0\ufeff"}),
        ("escaped", _written("request_id", '"\\u00e9\\ud83d\\ude00"')),
    ),
}
"""What each scenario sends, by the scenario's name."""


def _player(specials: list[Special], name: str) -> Callable[[Stage], Awaitable[None]]:
    async def play(stage: Stage) -> None:
        await play_cases(stage, specials, twin=None)

    play.__name__ = name
    return play


for _name, _specials in ACCEPTED_GROUPS.items():
    scenario()(_player(_specials, _name))


@scenario()
async def unclaimed_marks(stage: Stage) -> None:
    """`marks` to an endpoint that does not claim `timing`."""
    if "timing" in stage.claims.profiles:
        raise Unplayable("the endpoint claims `timing`")
    check = "message.unclaimed_marks"
    await play_cases(
        stage,
        _group(
            check,
            ("word", {"marks": ["word"]}),
            ("a number", {"marks": 5}),
            ("an object", {"marks": {}}),
            ("unknown kinds", {"marks": ["phoneme", 7, None]}),
        ),
        twin=None,
    )


@scenario()
async def frame_kinds(stage: Stage) -> None:
    """The same messages in text and in binary frames, valid and invalid."""
    check = "message.frame_kinds_alike"
    await play_cases(
        stage,
        [
            accepted(check, "valid, text", {}),
            accepted(check, "valid, text again", {}),
            accepted(check, "valid, binary", {}, kind="binary"),
            *(
                rejected(check, code, f"{name}, {kind}", change, kind=kind)
                for name, code, change in _REJECTED_ALIKE
                for kind in _KINDS
            ),
        ],
        twin=None,
    )
    async with await stage.session(receive_buffer=SMALL_BUFFER) as session:
        await stage.hold(session)
        seqs = []
        for kind in ("text", "binary", "text"):
            case = Case(f"valid, {kind}, while an utterance runs", check, "accept")
            request = stage.request(stage.texts.shortest, request_id=stage.new_id())
            seqs.append(await session.send(request, kind=kind, case=case))
        session.resume()
        await stage.ended(session, *seqs)
    async with await stage.session() as session:
        # `keepalive` and `close` count alike as well.
        await session.send({"type": "keepalive"}, kind="binary")
        case = Case("valid after a keepalive, binary", check, "accept")
        seq = await session.send(stage.request(stage.texts.shortest), kind="binary", case=case)
        await stage.ended(session, seq)
        await session.send({"type": "close"}, kind="binary")
        await stage.farewell(session)


@scenario()
async def fragments(stage: Stage) -> None:
    """One message cut in every way, with pings in between."""
    check = "message.fragmentation_invisible"
    request = stage.request(stage.texts.shortest, request_id="zerlegt-é-\U0001f600")
    whole = json.dumps(request, ensure_ascii=False).encode()
    wide = whole.index("\U0001f600".encode())
    cuttings: dict[str, list[bytes]] = {
        "whole": [whole],
        "whole again": [whole],
        "one byte a frame": [whole[i : i + 1] for i in range(len(whole))],
        "inside a code point": [whole[: wide + 2], whole[wide + 2 :]],
        "empty frames between": [b"", whole[:5], b"", b"", whole[5:], b""],
    }

    def ping(number: int) -> Frame | None:
        return Frame(Opcode.PING, b"between-%d" % number) if number % 7 == 0 else None

    async with stage.relay() as relay:
        for kind in _KINDS:
            for name, pieces in cuttings.items():
                session = await relay.session()
                case = Case(f"{name}, {kind}", check, "accept")
                seq = await session.send_fragments(pieces, kind=kind, between=ping, case=case)
                await stage.ended(session, seq)
                if session.utterance(seq).answered:
                    continue
                if name == "whole":
                    break
                if seq > 1 and await stage.is_over(session):
                    # Once more as the first message, so that nothing else can be to blame.
                    session = await relay.session()
                    seq = await session.send_fragments(pieces, kind=kind, between=ping, case=case)
                    await stage.ended(session, seq)


@scenario(heavy=True)
async def text_floor(stage: Stage) -> None:
    """A text of 4,096 code points."""
    check = "accept.text_floor"
    for name, text in (
        ("4,096 code points", stage.texts.of_length(4096)),
        (
            "4,096 code points, four bytes each",
            stage.texts.shortest + "\U00020000" * (4096 - len(stage.texts.shortest)),
        ),
    ):
        async with await stage.session() as session:
            seq = await session.send(stage.request(text), case=Case(name, check, "accept"))
            utterance = session.utterance(seq)
            await session.until(
                lambda u=utterance: u.ended or bool(u.audio),  # type: ignore[misc]
                within=stage.pace.first,
                stall=stage.pace.stall,
            )
            # Where the engine is quick, hear it to the end; where it is not, that says enough.
            await session.until(lambda u=utterance: u.ended, within=3.0)  # type: ignore[misc]


@scenario()
async def message_floor(stage: Stage) -> None:
    """A message of 65,536 bytes."""
    check = "accept.message_floor"
    await play_cases(
        stage,
        [
            accepted(check, "65,536 bytes, text", lambda request: padded(request, 65_536)),
        ],
        twin=None,
    )
