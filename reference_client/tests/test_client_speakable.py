"""What is to be heard of a piece."""

import pytest
from utterwire_client import SpeakableState, speakable


@pytest.mark.parametrize(
    ("piece", "heard"),
    [
        ("Hello.", "Hello."),
        ("**Hello**, [you](https://example.com/).", "Hello, you."),
        ("2 * 3 * 4 is in `snake_case_name`", "2 * 3 * 4 is in snake_case_name"),
        ("```python\nprint()\n```", ""),
        ("🎉", ""),
    ],
)
def test_speakable(piece: str, heard: str) -> None:
    assert speakable(piece) == heard


def test_a_code_block_over_several_pieces_is_never_read_out() -> None:
    state = SpeakableState()
    pieces = ["Run this:\n", "```\nmake.\n", "all.\n", "```\n", "Done."]
    assert [speakable(piece, state) for piece in pieces] == ["Run this:", "", "", "", "Done."]
