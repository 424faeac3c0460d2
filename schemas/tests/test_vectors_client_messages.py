"""The client message vectors against a second reading of the validation rules."""

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
