"""The client message vectors against a second reading of the validation rules."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import pytest
from utterwire_schemas import octets, vectors

VECTORS = vectors("client-messages")
ALL_CLAIMS = {"interrupt", "negotiate", "timing"}
WIDE: Mapping[str, Any] = {
    "max_text_chars": 20000,
    "max_request_id_chars": 256,
    "max_waiting": 64,
    "min_speed": 0.25,
    "max_speed": 4.0,
}


def endpoints(vector: dict[str, Any], floors: Mapping[str, Any]) -> list[tuple[set[str], Any]]:
    """Endpoints as different as the vector allows: its verdict must hold for all of them."""
    needs = vector.get("needs", {})
    claims = [set(needs.get("claims", [])), ALL_CLAIMS - set(needs.get("lacks", []))]
    limits = [{**base, **needs.get("limits", {})} for base in (floors, WIDE)]
    return [(claimed, limit) for claimed in claims for limit in limits]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_verdict(vector: dict[str, Any], rules: Any) -> None:
    raw = octets(vector["message"])
    for claims, limits in endpoints(vector, rules.floors):
        judged = rules.judge_message(raw, claims, limits)
        if judged.acceptable:
            assert vector["verdict"] == ("either" if judged.rejectable else "accept")
            assert vector["type"] == judged.type
        else:
            assert vector["verdict"] == "reject"
        assert set(vector.get("codes", [])) == judged.codes
        if not judged.odd:
            assert vector.get("request_id") == judged.request_id
        if "characters" in vector:
            assert vector["characters"] == len(judged.fields["text"])


def for_other_limits(vector: dict[str, Any], own: Mapping[str, Any]) -> bytes:
    """The vector made anew for other limits, as the README tells a runner to."""
    parts = list(vector["message"])
    for key, limit in vector["needs"]["limits"].items():
        if key.endswith("_speed"):
            (part,) = parts
            number = re.search(r"(?<=:)[0-9.]+", part["utf8"])
            assert number is not None
            moved = repr(round(float(number[0]) + own[key] - limit, 6))
            parts = [{"utf8": part["utf8"].replace(number[0], moved)}]
        else:
            parts.insert(-1, {"utf8": "a", "times": own[key] - limit})
    return octets(parts)


@pytest.mark.parametrize(
    "vector",
    [vector for vector in VECTORS if "limits" in vector.get("needs", {})],
    ids=lambda vector: vector["id"],
)
@pytest.mark.parametrize(
    "own", [WIDE, {**WIDE, "max_text_chars": 4097, "max_request_id_chars": 129}]
)
def test_vectors_of_a_limit_serve_for_others(
    vector: dict[str, Any], own: Mapping[str, Any], rules: Any
) -> None:
    claims = set(vector["needs"].get("claims", []))
    judged = rules.judge_message(for_other_limits(vector, own), claims, own)
    assert not judged.acceptable
    assert judged.codes == set(vector["codes"])
    assert judged.request_id == vector.get("request_id")


def test_utf8_flag() -> None:
    for vector in VECTORS:
        try:
            octets(vector["message"]).decode("utf-8")
        except UnicodeDecodeError:
            assert vector.get("utf8") is False, vector["id"]
        else:
            assert "utf8" not in vector, vector["id"]


def speakable(character: str) -> bool:
    """Whether a code point makes text more than punctuation, separators, formats and emoji."""
    return not (
        unicodedata.category(character)[0] in "PZ"
        or unicodedata.category(character) == "Cf"
        or character in "\t\n\v\f\r\x85\ufe0e\ufe0f"
        or "\U0001f1e6" <= character <= "\U0001f1ff"
        # Emoji_Presentation and Emoji_Modifier, as far as the vectors use them.
        or character in "😀👩👧🎉👍🏽"
    )


def test_unspeakable_flag(rules: Any) -> None:
    for vector in VECTORS:
        if vector["verdict"] != "accept" or vector["type"] != "synthesize":
            assert "unspeakable" not in vector, vector["id"]
            continue
        judged = rules.judge_message(octets(vector["message"]), set(), rules.floors)
        nothing = not any(speakable(character) for character in judged.fields["text"])
        assert nothing == vector.get("unspeakable", False), vector["id"]


def test_messages_keep_to_the_smallest_limit() -> None:
    assert len(VECTORS) >= 150
    assert all(len(octets(vector["message"])) <= 65536 for vector in VECTORS)
    assert any(len(octets(vector["message"])) == 65536 for vector in VECTORS)
