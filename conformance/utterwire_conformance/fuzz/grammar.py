"""Messages to send: valid, nearly valid, odd, and none at all.

What is legal in answer is not decided here: the same reading of the message by which every other
transcript is judged tells that (`read_client_message`). So whatever comes out of a mutation is
judged by what it is, not by what it was meant to be.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from hypothesis import strategies as st

from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.client_message import Meaning, read_client_message
from utterwire_conformance.strict_json import NotJson, NotUtf8, Oddity, parse
from utterwire_conformance.transcript import Case

__all__ = ["Ground", "bodies", "http_case", "messages", "messages_for", "tame"]

_MOST_BYTES: Final = 60_000
"""Less than any endpoint's limit, so that size is no fault."""

_IDS: Final = (
    "a",
    "b",
    "c",
    "\U0001f600",
    " ",
    "a\u0000b",
    "\u200b",
    "x" * 128,
    "\u00e9",
)
_ODD_TEXTS: Final = (
    "...",
    "!?",
    "\u200b",
    "\U0001f600",
    "\u00e9",
    "e\u0301",
    "\u05d0",
    "\u0644",
    "\u4f60",
    "\ufeff",
    "\u202e.",
    "\u0000",
    "a\u0000",
    "\uffff",
    "\U0010ffff",
    "\u001c",
    "1",
    "{",
    "<b>",
    "\\",
    '"',
)
_BLANKS: Final = ("", " ", "\t\n", "\u00a0", "\u3000", "\u2028", "\u0085", "\u1680", "\u200a")


@dataclass(frozen=True, slots=True)
class Ground:
    """What of an endpoint the grammar has to know.

    `words` are short texts that it speaks; `voice` is one that it has, if any is known; `long` is
    a text of some seconds, or None where characters cost something.
    """

    claims: EndpointClaims
    words: tuple[str, ...]
    voice: str | None = None
    long: str | None = None

    def plain(self, **fields: Any) -> bytes:
        """An ordinary request."""
        return json.dumps({"text": self.words[0]} | fields, ensure_ascii=False).encode()

    def reading(self, octets: bytes) -> Meaning:
        """What the endpoint must make of a message."""
        return read_client_message(octets, self.claims)


# --- values -----------------------------------------------------------------------------------

_SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from(["", "a", "word", "\ud800", "\x00", "\U0001f600"]),
    st.sampled_from([0.5, -0.0, 1.5, 1e-9, 24000.0]),
)
VALUES: Final = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "type", "text", ""]), inner, max_size=2)
    ),
    max_leaves=4,
)
# Numbers that parsers, and what comes behind them, read in different ways.
_NUMBERS: Final = st.sampled_from(
    [
        "0",
        "-0",
        "1",
        "1.0",
        "2.4e4",
        "24000.0",
        "0.5",
        "2.0",
        "2.0000000000000001",
        "0.49999999999999999",
        "1e400",
        "-1e400",
        "1e-400",
        "1E+2",
        "1" * 18,
        "9" * 400,
        "1" + "0" * 5000,
        "0." + "3" * 30,
        "9007199254740993",
        "18446744073709551616",
        "1e308",
        "NaN",
        "Infinity",
        "-Infinity",
        "01",
        "+1",
        ".5",
        "1.",
        "0x10",
        "1e",
        "-",
        "1_000",
    ]
)


def _nested(open_: str, close: str, depth: int) -> str:
    return open_ * depth + close * depth


_DEEP: Final = st.tuples(
    st.sampled_from([("[", "]"), ('{"a":', "}"), ("[", "")]),
    st.sampled_from([3, 14, 15, 16, 17, 100, 1_000, 5_000, 9_000]),
).map(
    lambda pair: (
        _nested(*pair[0], pair[1]) if pair[0][0] == "[" else '{"a":' * pair[1] + "1" + "}" * pair[1]
    )
)
_ESCAPES: Final = st.sampled_from(
    [
        r"\ud800",
        r"\udc00\ud800",
        r"\ud83d\ude00",
        r"\u0000",
        r"\uD83D",
        r"\x41",
        r"\u12",
        "\\",
        r"\/",
        "\t",
        "\n",
        "\x7f",
        "\u2028",
    ]
)


# --- valid messages -----------------------------------------------------------------------------


def _texts(ground: Ground) -> st.SearchStrategy[str]:
    plain = st.sampled_from(ground.words)
    odd = st.sampled_from(_ODD_TEXTS)
    return st.one_of(plain, plain, plain, odd)


def _ids() -> st.SearchStrategy[str]:
    # Few, so that they meet again.
    return st.sampled_from(["a"] * 8 + ["b"] * 4 + list(_IDS[2:]))


def _requests(ground: Ground) -> st.SearchStrategy[dict[str, Any]]:
    """Valid requests to speak, with and without everything that is optional."""
    marks: st.SearchStrategy[Any] = VALUES
    if "timing" in ground.claims.profiles:
        marks = st.sampled_from([["word"], [], None])
    optional = {
        "request_id": _ids(),
        "type": st.sampled_from(["synthesize", None]),
        "speed": st.sampled_from([1, 1.0, 0.5, 2, None]),
        "sample_rate": st.sampled_from([24000, 24000.0, None]),
        "format": st.sampled_from(["pcm_s16le", None]),
        "request_timestamp": VALUES,
        "language": VALUES,
        "model": VALUES,
        "x_more": VALUES,
        "marks": marks,
    }
    if ground.voice is not None:
        optional["voice"] = st.sampled_from([ground.voice, None])
    short = st.fixed_dictionaries(
        {"text": _texts(ground)}, optional={"request_id": optional["request_id"]}
    )
    full = st.fixed_dictionaries({"text": _texts(ground)}, optional=optional)
    found = [short, short, short, full, full]
    if ground.long is not None:
        long = st.fixed_dictionaries(
            {"text": st.just(ground.long)}, optional={"request_id": optional["request_id"]}
        )
        found.append(long)
    return st.one_of(*found)


def _written(fields: dict[str, Any], style: int) -> bytes:
    """One of the ways to write an object down."""
    if style == 1:
        return json.dumps(fields, indent=1).encode()
    if style == 2:
        return b"\r\n\t " + json.dumps(fields, separators=(",", ":")).encode() + b" \n"
    text = json.dumps(fields, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(fields).encode()


def _octets(objects: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[bytes]:
    return st.builds(_written, objects, st.sampled_from([0, 0, 0, 1, 2]))


def _others(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    extra: dict[str, st.SearchStrategy[Any]] = {"x_more": VALUES}
    if kind == "cancel":
        extra["request_id"] = _ids()
    elif kind != "hello":
        extra |= {"text": VALUES, "request_id": st.one_of(_ids(), VALUES)}
    needed: dict[str, st.SearchStrategy[Any]] = {"type": st.just(kind)}
    if kind == "hello":
        versions = st.lists(st.sampled_from([1, 2, 0, -1, 1.0, 10**30]), max_size=3)
        needed["protocol_versions"] = versions.map(lambda more: [1, *more])
    bare = st.fixed_dictionaries(needed)
    if kind == "cancel":
        named = st.fixed_dictionaries(needed | {"request_id": _ids()})
        return st.one_of(bare, named, named, st.fixed_dictionaries(needed, optional=extra))
    return st.one_of(bare, bare, st.fixed_dictionaries(needed, optional=extra))


# --- messages that are wrong or odd -------------------------------------------------------------


def _wrong_fields(ground: Ground) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with one field that is wrong, or several that may be."""
    wrong: dict[str, st.SearchStrategy[Any]] = {
        "text": st.one_of(st.sampled_from(_BLANKS), VALUES),
        "voice": VALUES,
        "speed": st.one_of(st.sampled_from([0, -1, 99, 0.1, "1", True, 10**400]), VALUES),
        "sample_rate": st.one_of(st.sampled_from([0, -1, 1, 24000.5, True, "24000"]), VALUES),
        "format": VALUES,
        "request_id": st.one_of(st.sampled_from(["", 5, ["a"], "\ud800"]), VALUES),
        "type": st.one_of(
            st.sampled_from(["speak", "Close", "append", "flush", "", "cancel", "hello"]), VALUES
        ),
        "protocol_versions": st.one_of(st.just([2]), VALUES),
    }
    return st.tuples(
        _requests(ground),
        st.sampled_from(sorted(wrong)).flatmap(lambda name: st.tuples(st.just(name), wrong[name])),
    ).map(lambda pair: pair[0] | {pair[1][0]: pair[1][1]})


def _spliced(ground: Ground) -> st.SearchStrategy[bytes]:
    """JSON by hand: numbers, depths, escapes and names that a serialiser would not write."""
    word = json.dumps(ground.words[0])
    field = st.sampled_from(["x", "speed", "sample_rate", "request_timestamp", "text", "language"])

    def member(name: str, value: str) -> bytes:
        body = f'{{"text":{word},"{name}":{value}}}'
        return body.encode("utf-8", "surrogatepass")

    def escaped(name: str, inner: str) -> bytes:
        return member(name, f'"{inner}"')

    def twice(name: str, first: Any, second: Any) -> bytes:
        one, two = json.dumps(first), json.dumps(second)
        return f'{{"{name}":{one},"text":{word},"{name}":{two}}}'.encode()

    return st.one_of(
        st.builds(member, field, _NUMBERS),
        st.builds(member, field, _DEEP),
        st.builds(
            escaped,
            st.sampled_from(["text", "x", "request_id", "voice", "format", "type", "language"]),
            _ESCAPES,
        ),
        st.builds(
            twice,
            st.sampled_from(["x", "text", "request_id", "speed", "voice"]),
            VALUES,
            VALUES,
        ),
        _ESCAPES.map(lambda name: f'{{"text":{word},"{name}":1}}'.encode("utf-8", "surrogatepass")),
        _DEEP.map(str.encode),
    )


def _odd(ground: Ground) -> st.SearchStrategy[bytes]:
    """Valid requests with odd JSON in a place where it may be ignored."""
    values = st.one_of(
        st.sampled_from(["1e400", "-1e400", "1e-400", "1" * 18, "9" * 400, "0." + "3" * 30]),
        st.sampled_from(['"\\ud800"', '["\\udc00"]', '{"a":1,"a":2}', '{"\\ud800":0}']),
        st.sampled_from([17, 100, 1_000, 5_000]).map(lambda depth: _nested("[", "]", depth)),
    )

    def put(request: bytes, name: str, value: str, *, front: bool) -> bytes:
        member = f'"{name}": {value}'.encode()
        inner = request.strip()[1:-1]
        return b"{" + (member + b", " + inner if front else inner + b", " + member) + b"}"

    plain = _requests(ground).map(lambda fields: _written(fields, 0))
    return st.one_of(
        st.builds(put, plain, st.sampled_from(["x", "language"]), values, front=st.booleans()),
        plain.map(lambda octets: b"\xef\xbb\xbf" + octets),
    )


_WHOLE: Final = (
    b"",
    b" ",
    b"\n",
    b"null",
    b"true",
    b"1",
    b'"text"',
    b"[]",
    b"{}",
    b"[{}]",
    b"{",
    b"}",
    b"{}{}",
    b'{"text"}',
    b'{"text":}',
    b'{"text":"a",}',
    b"{'text':'a'}",
    b'{text:"a"}',
    b'{"text":"a"}//',
    b'{"text":"a"} x',
    b'{"text":"a"',
    b'{"text":"a',
    b'{"text":"a"}\x00',
    b"\x00",
    b"\xef\xbb\xbf",
    b"\xff\xfe{\x00}\x00",
    b"{\x00}\x00",
    b"\xff",
    b"\xc0\x80",
    b'{"text":"\xed\xa0\x80"}',
    b'{"text":"\xf4\x90\x80\x80"}',
    b'{"text":"\xe2\x82"}',
    b'{"text":"\xe2\x82',
    b"NaN",
    b"-Infinity",
)


_HAZARDS: Final = (
    ("x", "9" * 400),
    ("x", "-" + "1" * 5_000),
    ("x", "0." + "1" * 5_000),
    ("x", "1e400"),
    ("x", "1e-5000"),
    ("x", "-0"),
    ("x", "[" * 200 + "]" * 200),
    ("x", "[" * 5_000 + "]" * 5_000),
    ("x", '{"a":' * 3_000 + "1" + "}" * 3_000),
    ("x", "[" * 20_000),
    ("x", '"' + "\\u0000" * 4_000 + '"'),
    ("x", '"\\ud800"'),
    ("x", '"\\udfff\\ud800"'),
    ("x", "NaN"),
    ("x", "-Infinity"),
    ("x", "[" + ",".join(["1"] * 10_000) + "]"),
    ("\\ud800", "1"),
    ("", "1"),
    ("__proto__", '{"a": 1}'),
    ("x" * 5_000, "1"),
    ("text", '"a"'),
    ("text", '"\\ud800"'),
    ("text", '"a\\ud800b"'),
    ("text", '"\\u0000"'),
    ("text", '"' + "\u0301" * 2_000 + '"'),
    ("text", '"' + "\u202e\u2066" * 500 + '."'),
    ("text", '"<speak><break/></speak>"'),
    ("speed", "1e400"),
    ("speed", "1" + "0" * 400),
    ("speed", "1e-400"),
    ("speed", "true"),
    ("sample_rate", "9" * 400),
    ("sample_rate", "24000.0000000000000000001"),
    ("sample_rate", "false"),
    ("request_id", '"\\ud800"'),
    ("request_id", '"\\u0000\\r\\n"'),
    ("request_id", "9" * 400),
    ("voice", '"../../etc/passwd"'),
    ("voice", '"' + "v" * 20_000 + '"'),
    ("format", '"\\u0000"'),
    ("type", '"' + "t" * 20_000 + '"'),
    ("type", '"\\ud800"'),
    ("type", "[[]]"),
)
"""Members that have brought down parsers, and what comes behind them: (name, JSON)."""


def _hazards(ground: Ground) -> st.SearchStrategy[bytes]:
    word = json.dumps(ground.words[0])

    def put(member: tuple[str, str], first: bool) -> bytes:
        name, value = member
        own = f'"text": {word}'
        told = f'"{name}": {value}'
        return "".join(("{", f"{told}, {own}" if first else f"{own}, {told}", "}")).encode()

    return st.builds(put, st.sampled_from(_HAZARDS), st.booleans())


def _mutated(valid: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Valid messages with some octets cut out, doubled, put in or changed."""
    edits = st.lists(
        st.tuples(
            st.sampled_from(["cut", "drop", "double", "insert", "set"]),
            st.integers(0, 200),
            st.integers(1, 8),
            st.sampled_from(
                [
                    b"\x00",
                    b"\xff",
                    b"\xe2\x82",
                    b'"',
                    b"\\",
                    b"{",
                    b"}",
                    b",",
                    b":",
                    b"\xef\xbb\xbf",
                    b"\xed\xa0\x80",
                    b"\n",
                ]
            ),
        ),
        min_size=1,
        max_size=3,
    )

    def apply(octets: bytes, changes: list[tuple[str, int, int, bytes]]) -> bytes:
        for how, place, length, piece in changes:
            at = place % (len(octets) + 1)
            end = min(len(octets), at + length)
            if how == "cut":
                octets = octets[:at]
            elif how == "drop":
                octets = octets[:at] + octets[end:]
            elif how == "double":
                octets = octets[:end] + octets[at:]
            elif how == "insert":
                octets = octets[:at] + piece + octets[at:]
            else:
                octets = octets[:at] + piece + octets[end:]
        return octets

    return st.builds(apply, valid, edits)


def tame(octets: bytes, ground: Ground) -> bool:
    """Whether it is known what an answer to this message means for the rest of the session.

    Of odd JSON two parsers can read two messages. Where one of them is a `close` or a `keepalive`,
    what follows cannot be judged, so that such messages are not sent.
    """
    if len(octets) > _MOST_BYTES:
        return False
    meaning = ground.reading(octets)
    if meaning.verdict == "reject" and meaning.type is None:
        return True
    if meaning.verdict == "either" and meaning.type != "synthesize":
        return False
    try:
        document = parse(octets)
    except (NotJson, NotUtf8):
        return True
    return Oddity.DUPLICATE_NAME not in document.oddities or octets.count(b'"type"') < 2


def _wrong(ground: Ground) -> st.SearchStrategy[bytes]:
    valid = _octets(_requests(ground))
    found = st.one_of(
        st.sampled_from(_WHOLE),
        _octets(_wrong_fields(ground)),
        _spliced(ground),
        _mutated(valid),
        valid.map(lambda octets: octets.decode().encode("utf-16-le")),
        st.binary(max_size=12),
    )
    return found.filter(lambda octets: tame(octets, ground))


def messages(ground: Ground) -> st.SearchStrategy[bytes]:
    """Messages of every sort, most of them wrong or odd."""
    wrong, odd = _wrong(ground), _odd(ground).filter(lambda octets: tame(octets, ground))
    hazards = _hazards(ground).filter(lambda octets: tame(octets, ground))
    sorts = [wrong, wrong, hazards, hazards, odd, _octets(_requests(ground))]
    return st.sampled_from(sorts).flatmap(lambda strategy: strategy)


def messages_for(event: str, ground: Ground) -> st.SearchStrategy[bytes] | None:
    """Messages that are what the table of states calls `event`; None if that is no message."""
    if event == "synthesize":
        return _octets(_requests(ground))
    if event == "an invalid message":
        return _wrong(ground).filter(lambda octets: ground.reading(octets).verdict == "reject")
    if event in ("hello", "cancel", "keepalive", "close"):
        return _octets(_others(event)).filter(lambda octets: tame(octets, ground))
    return None


def bodies(ground: Ground) -> st.SearchStrategy[tuple[bytes, Case]]:
    """Bodies for `POST /invocations`, each with what is legal in answer."""
    streamed = st.fixed_dictionaries(
        {"text": _texts(ground)},
        optional={"stream": st.one_of(st.booleans(), st.none(), VALUES), "request_id": _ids()},
    )
    octets = st.one_of(messages(ground), _octets(streamed))
    cases = octets.map(lambda body: (body, http_case(body, ground)))
    return cases.filter(lambda pair: pair[1] is not None)  # type: ignore[return-value]


def http_case(body: bytes, ground: Ground) -> Case | None:
    """What `http.md#request` makes of a body; None where two parsers may read two requests."""
    profiles = ground.claims.profiles & {"core", "timing"}
    meaning = read_client_message(body, replace(ground.claims, profiles=profiles))
    verdict, codes = meaning.verdict, set(meaning.codes)
    if meaning.type in ("close", "keepalive"):
        if verdict != "accept":
            return None
        verdict, codes = "reject", {"unknown_type"}
    stream = meaning.fields.get("stream")
    if stream is not None and not isinstance(stream, bool):
        verdict, codes = "reject", codes | {"invalid_request"}
    if stream is not None and body.count(b"stream") > 1:
        return None
    return Case("fuzz", "http.same_validation", verdict, tuple(sorted(codes)))
