"""Messages that must be rejected, one fault each (`protocol.md#validation`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from utterwire_conformance.client_message import WHITE_SPACE
from utterwire_conformance.stage import Stage, Unplayable, scenario

from .cases import Special, either, play_cases, rejected

__all__ = ["REJECTED_GROUPS"]


# Who repeats it in an `error` sends more than a control message may hold.
_LONG_NAME: Final = "\u20ac" * 21_000


def _without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda request: {key: value for key, value in request.items() if key != name}


def _group(check: str, codes: str, *cases: tuple[Any, ...]) -> list[Special]:
    """Cases of one check: (name, change) or (name, change, kind of frame)."""
    made = []
    for name, change, *kind in cases:
        made.append(rejected(check, codes, name, change, kind=kind[0] if kind else "text"))
    return made


REJECTED_GROUPS: Final[dict[str, list[Special]]] = {
    "reject-invalid-json": _group(
        "reject.invalid_json",
        "invalid_json",
        ("no JSON at all", b"hello"),
        ("cut short", b'{"text": "Hello.'),
        ("single quotes", b"{'text': 'Hello.'}"),
        ("trailing comma", b'{"text": "Hello.",}'),
        ("two values", b'{"text": "Hello."}{"text": "Hello."}'),
        ("garbage after", b'{"text": "Hello."} x'),
        ("NaN", b'{"text": "Hello.", "speed": NaN}'),
        ("Infinity", b'{"text": "Hello.", "speed": Infinity}'),
        ("-Infinity", b'{"text": "Hello.", "other": -Infinity}'),
        ("a line end in a string", b'{"text": "Hel\nlo."}'),
        ("leading zero", b'{"text": "Hello.", "speed": 01}'),
        ("comment", b'{"text": "Hello."} // please'),
        ("white space alone", b" \r\n\t"),
        ("no-break space before", b'\xc2\xa0{"text": "Hello."}'),
        ("comment inside", b'{"text": /* what to say */ "Hello."}'),
        ("trailing comma in an array", b'{"text": "Hello.", "other": [1, 2,]}'),
        ("NaN inside", b'{"text": "Hello.", "other": [{"deep": NaN}]}'),
        # Some parsers guess the encoding of bytes; without a mark these are UTF-8 all the same.
        ("UTF-16", '{"text": "Hello."}'.encode("utf-16-le"), "binary"),
        ("UTF-16, big-endian", '{"text": "Hello."}'.encode("utf-16-be"), "binary"),
    ),
    "reject-empty-frame": _group(
        "reject.empty_frame",
        "invalid_json",
        ("empty text frame", b""),
    ),
    "reject-not-an-object": _group(
        "reject.not_an_object",
        "not_an_object",
        ("array", b'[{"text": "Hello."}]'),
        ("string", b'"Hello."'),
        ("number", b"7"),
        ("null", b"null"),
        ("true", b"true"),
    ),
    "reject-invalid-utf8": _group(
        "reject.invalid_utf8",
        "invalid_utf8",
        ("FF in text", b'{"text": "Hel\xfflo."}', "binary"),
        ("overlong", b'{"text": "Hel\xc0\xaflo."}', "binary"),
        ("encoded surrogate", b'{"text": "Hel\xed\xa0\x80lo."}', "binary"),
        ("cut code point", b'{"text": "Hel\xe2\x82"}', "binary"),
        ("beyond U+10FFFF", b'{"text": "Hel\xf4\x90\x80\x80lo."}', "binary"),
        ("Latin-1", '{"text": "Grüße."}'.encode("latin-1"), "binary"),
        ("in an ignored field", b'{"text": "Hello.", "note": "\x80"}', "binary"),
    ),
    "reject-unknown-type": _group(
        "reject.unknown_type",
        "unknown_type",
        ("unknown", {"type": "speak"}),
        ("empty", {"type": ""}),
        ("another case", {"type": "Synthesize"}),
        ("space around", {"type": " synthesize "}),
        ("one of the endpoint's own", {"type": "synthesis_start"}),
        ("as long as a message may be", {"type": _LONG_NAME}),
    ),
    "reject-type-not-string": _group(
        "reject.type_not_string",
        "invalid_request",
        ("number", {"type": 1}),
        ("boolean", {"type": True}),
        ("array", {"type": ["synthesize"]}),
        ("object", {"type": {}}),
    ),
    "reject-reserved-types": _group(
        "reject.reserved_types",
        "unknown_type",
        ("append", {"type": "append"}),
        ("flush", b'{"type": "flush"}'),
    ),
    "reject-missing-text": _group(
        "reject.missing_text",
        "missing_text",
        ("absent", _without("text")),
        ("null", {"text": None}),
        ("empty object", b"{}"),
        ("type alone", b'{"type": "synthesize"}'),
    ),
    "reject-text-type": _group(
        "reject.text_type",
        "invalid_request missing_text",
        ("number", {"text": 7}),
        ("array", {"text": ["Hello."]}),
        ("object", {"text": {"text": "Hello."}}),
        ("boolean", {"text": False}),
    ),
    "reject-empty-text": _group(
        "reject.empty_text",
        "empty_text",
        ("empty", {"text": ""}),
        ("space", {"text": " "}),
        ("line ends", {"text": "\r\n\t"}),
        ("all 25 white space characters", {"text": "".join(sorted(WHITE_SPACE))}),
        ("ideographic space", {"text": "\u3000"}),
        ("next line", {"text": "\x85"}),
    ),
    "reject-lone-surrogate": _group(
        "reject.lone_surrogate",
        "invalid_request",
        ("high", b'{"text": "Hello \\ud800."}'),
        ("low", b'{"text": "Hello \\udc00."}'),
        ("reversed pair", b'{"text": "Hello \\udc00\\ud800."}'),
    ),
    "reject-invalid-voice": _group(
        "reject.invalid_voice",
        "invalid_voice",
        ("unknown", {"voice": "utterwire-no-such-voice"}),
        ("empty", {"voice": ""}),
        ("very long", {"voice": "v" * 5000}),
        ("as long as a message may be", {"voice": _LONG_NAME}),
    ),
    "reject-unsupported-format": _group(
        "reject.unsupported_format",
        "unsupported_format",
        ("unknown", {"format": "utterwire-no-such-format"}),
        ("empty", {"format": ""}),
        ("another case", {"format": "PCM_S16LE"}),
    ),
    "reject-unsupported-sample-rate": _group(
        "reject.unsupported_sample_rate",
        "unsupported_sample_rate",
        ("never offered", {"sample_rate": 12_345}),
        ("one", {"sample_rate": 1}),
        ("huge", {"sample_rate": 10**9}),
    )
    + _group(
        "reject.unsupported_sample_rate",
        # Zero and less are integral values that nobody offers.
        "unsupported_sample_rate",
        ("zero", {"sample_rate": 0}),
        ("negative", {"sample_rate": -24_000}),
    ),
    "reject-invalid-speed": _group(
        "reject.invalid_speed",
        "invalid_speed",
        ("zero", {"speed": 0}),
        ("negative", {"speed": -1.0}),
        ("a million", {"speed": 1_000_000}),
    ),
    "reject-field-types": [
        *_group(
            "reject.field_types",
            "invalid_request invalid_voice",
            ("voice as number", {"voice": 1}),
            ("voice as array", {"voice": []}),
        ),
        *_group(
            "reject.field_types",
            "invalid_request invalid_speed",
            ("speed as string", {"speed": "1.0"}),
            (
                "with an id outside ASCII",
                {"speed": "1.0", "request_id": " abge-le\u0301hnt/\U0001f600"},
            ),
            ("speed as object", {"speed": {}}),
        ),
        *_group(
            "reject.field_types",
            "invalid_request unsupported_sample_rate",
            ("sample_rate as string", {"sample_rate": "24000"}),
            ("sample_rate with a fraction", {"sample_rate": 24_000.5}),
        ),
        *_group(
            "reject.field_types",
            "invalid_request unsupported_format",
            ("format as number", {"format": 16}),
            ("format as object", {"format": {"name": "pcm_s16le"}}),
        ),
    ],
    "reject-boolean-is-not-number": [
        *_group(
            "reject.boolean_is_not_number",
            "invalid_request invalid_speed",
            ("speed true", {"speed": True}),
            ("speed false", {"speed": False}),
        ),
        *_group(
            "reject.boolean_is_not_number",
            "invalid_request unsupported_sample_rate",
            ("sample_rate true", {"sample_rate": True}),
        ),
    ],
    "reject-request-id": _group(
        "reject.request_id",
        "invalid_request",
        ("number", {"request_id": 7}),
        ("empty", {"request_id": ""}),
        ("array", {"request_id": ["a"]}),
        ("boolean", {"request_id": True}),
        ("lone surrogate", b'{"text": "Hello.", "request_id": "a\\ud800"}'),
    ),
}
"""What each scenario sends, by the scenario's name."""


def _player(specials: list[Special], name: str) -> Callable[[Stage], Awaitable[None]]:
    async def play(stage: Stage) -> None:
        await play_cases(stage, specials, twin=specials[0].kind)

    play.__name__ = name
    return play


for _name, _specials in REJECTED_GROUPS.items():
    scenario()(_player(_specials, _name))


@scenario()
async def reject_beyond_limits(stage: Stage) -> None:
    """Values just past the limits that the endpoint claims."""
    claims = stage.claims
    specials: list[Special] = []
    if claims.max_request_id_chars is not None:
        change = {"request_id": "i" * (claims.max_request_id_chars + 1)}
        specials.append(rejected("reject.request_id", "invalid_request", "too long", change))
    codes = "invalid_speed"
    if claims.max_speed is not None:
        change_speed = {"speed": claims.max_speed + 0.01}
        specials.append(rejected("reject.invalid_speed", codes, "just above", change_speed))
    if claims.min_speed is not None:
        change_speed = {"speed": claims.min_speed / 2}
        specials.append(rejected("reject.invalid_speed", codes, "half the least", change_speed))
    if not specials:
        raise Unplayable("the endpoint file claims no limits of its own")
    await play_cases(stage, specials)


@scenario(heavy=True)
async def reject_text_too_long(stage: Stage) -> None:
    """Text one code point beyond the limit, after text at the floor."""
    limit = stage.claims.max_text_chars
    if limit is None:
        raise Unplayable("`max_text_chars` is not in the endpoint file, so the limit is not known")
    text = stage.texts.of_length(limit + 1)
    specials = [rejected("reject.text_too_long", "text_too_long", "one too many", {"text": text})]
    wide = stage.texts.shortest + "\U0001f600" * (limit + 1 - len(stage.texts.shortest))
    size = 5 * limit
    if stage.claims.max_message_bytes is None or size < stage.claims.max_message_bytes:
        specials.append(
            rejected("reject.text_too_long", "text_too_long", "wide characters", {"text": wide})
        )
    await play_cases(stage, specials)


@scenario()
async def reject_unclaimed_types(stage: Stage) -> None:
    """The messages of profiles that the endpoint does not claim."""
    if not stage.endpoint.claims_known:
        raise Unplayable("what the endpoint claims is not known; name it with --profile")
    specials = []
    if "negotiate" not in stage.claims.profiles:
        change: Any = b'{"type": "hello", "protocol_versions": [1]}'
        specials.append(rejected("reject.unclaimed_types", "unknown_type", "hello", change))
    if "interrupt" not in stage.claims.profiles:
        for name, change in (
            ("cancel", b'{"type": "cancel"}'),
            ("cancel with an id", b'{"type": "cancel", "request_id": "a"}'),
        ):
            specials.append(rejected("reject.unclaimed_types", "unknown_type", name, change))
    if not specials:
        raise Unplayable("the endpoint claims every profile that has messages of its own")
    await play_cases(stage, specials)


@scenario()
async def reject_odd_json(stage: Stage) -> None:
    """JSON that good parsers read differently (`protocol.md#odd-json`)."""
    codes = "invalid_json invalid_request"
    check = "reject.odd_json_survives"
    text = stage.texts.shortest
    specials = [
        either(check, codes, name, change)
        for name, change in (
            ("a name twice", b'{"text": "Hello.", "text": "Hello."}'),
            ("byte order mark", b'\xef\xbb\xbf{"text": "Hello."}'),
            ("17 levels", b'{"text": "Hello.", "x": ' + b"[" * 16 + b"]" * 16 + b"}"),
            ("25,000 levels", b'{"text": "Hello.", "x": ' + b"[" * 25_000 + b"]" * 25_000 + b"}"),
            ("25,000 levels, unclosed", b'{"x": ' + b"[" * 25_000),
            ("18 digits", b'{"text": "Hello.", "x": 123456789012345678}'),
            ("5,000 digits", b'{"text": "Hello.", "x": ' + b"9" * 5_000 + b"}"),
            ("overflow", b'{"text": "Hello.", "x": 1e400}'),
            ("underflow", b'{"text": "Hello.", "x": 1e-400}'),
            ("surrogate in an ignored field", b'{"text": "Hello.", "x": "\\ud800"}'),
            ("surrogate in a name", b'{"text": "Hello.", "\\udfff": 1}'),
        )
    ]
    specials[4] = rejected(check, codes, "25,000 levels, unclosed", b'{"x": ' + b"[" * 25_000)
    specials.append(
        either(
            check,
            f"{codes} unsupported_sample_rate",
            "sample_rate of 400 digits",
            f'{{"text": "{text}", "sample_rate": {"9" * 400}}}'.encode()
            if text.isascii() and text.isprintable() and '"' not in text
            else b'{"text": "Hello.", "sample_rate": ' + b"9" * 400 + b"}",
        )
    )
    await play_cases(stage, specials)
