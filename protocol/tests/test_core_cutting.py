from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_protocol import Cutter, is_sendable_audio

FORMATS = ["pcm_s16le", "wav", "mp3", "aac", "opus", "mulaw", "alaw"]
PIECES = st.lists(
    st.one_of(
        st.binary(max_size=50),
        st.lists(st.sampled_from([b"{", b"}", b" ", b"\n", b"{}", b"\0"]), max_size=60).map(
            b"".join
        ),
    ),
    max_size=6,
)


def test_audio_is_cut_at_the_preferred_size() -> None:
    cutter = Cutter("pcm_s16le", 5)
    assert cutter.cut(b"abcdefghij") == [b"abcd", b"efgh", b"ij"]
    assert cutter.cut(b"") == []


def test_half_a_sample_waits_for_the_rest() -> None:
    cutter = Cutter("pcm_s16le", 100)
    assert cutter.cut(b"abc") == [b"ab"]
    assert cutter.rest == 1
    assert cutter.cut(b"d") == [b"cd"]
    assert cutter.rest == 0
    assert cutter.cut(b"e") == []
    assert cutter.rest == 1


def test_a_cut_is_moved_away_from_a_brace() -> None:
    assert Cutter("pcm_s16le", 4).cut(b"abcd{fgh") == [b"ab", b"cd{f", b"gh"]
    # Only the first byte of a sample begins a chunk.
    assert Cutter("pcm_s16le", 4).cut(b"abcde{gh") == [b"abcd", b"e{gh"]


def test_where_no_cut_helps_one_sample_is_changed_by_one_step() -> None:
    assert Cutter("pcm_s16le", 4).cut(b"{}{}{}{}") == [b"z}{}", b"z}{}"]
    assert Cutter("mulaw", 2).cut(b"{{{") == [b"z{", b"z"]
    # Not the second byte, which would be 256 steps.
    assert Cutter("pcm_s16le", 4).cut(b"a{") == [b"a{"]


def test_a_cut_is_looked_for_within_256_samples() -> None:
    def lengths(braces: int, size: int) -> list[int]:
        audio = b"aabb" + b"{a" * braces + b"cc"
        return [len(each) for each in Cutter("pcm_s16le", size).cut(audio)]

    assert lengths(256, 514) == [2, 514, 2]
    assert lengths(257, 516) == [516, 4]


def test_encoded_audio_is_never_changed_and_never_ends_in_a_brace_it_began_with() -> None:
    assert Cutter("mp3", 100).cut(b"{}") == [b"{", b"}"]
    assert Cutter("mp3", 100).cut(b"{a} ") == [b"{a", b"} "]
    assert Cutter("mp3", 4).cut(b"abcd{f") == [b"abc", b"d{f"]
    assert Cutter("mp3", 4).cut(b"{}}}}}") == [b"{", b"}}}}", b"}"]
    # Past the look-back there is one cut that always helps.
    assert Cutter("opus", 1000).cut(b"{" + b"}" * 999)[0] == b"{"


def test_a_wav_header_is_never_split() -> None:
    header = b"RIFF" + b"\xff" * 40
    assert Cutter("wav", 10).cut(header) == [header]
    cutter = Cutter("wav", 10)
    assert cutter.cut(header[:30]) == []
    assert cutter.rest == 30
    assert cutter.cut(header[30:] + b"a" * 12) == [header, b"a" * 10, b"aa"]
    assert cutter.cut(b"{a" * 3) == [b"za{a{a"]


@pytest.mark.parametrize("format", FORMATS)
@given(pieces=PIECES, size=st.integers(2, 30))
@settings(derandomize=True, max_examples=60, deadline=None, database=None)
def test_every_chunk_may_be_sent(format: str, pieces: list[bytes], size: int) -> None:
    cutter = Cutter(format, size)
    chunks = [chunk for piece in pieces for chunk in cutter.cut(piece)]
    audio = b"".join(pieces)
    sent = b"".join(chunks)
    assert all(is_sendable_audio(chunk) for chunk in chunks)
    assert len(sent) + cutter.rest == len(audio)
    limit = max(size, 44) if format == "wav" else size
    assert all(len(chunk) <= limit for chunk in chunks)
    if format in ("pcm_s16le", "wav"):
        assert all(len(chunk) % 2 == 0 for chunk in chunks)
    if format in ("mp3", "aac", "opus"):
        assert sent == audio[: len(sent)]
    else:
        assert not any(chunk.startswith(b"{") for chunk in chunks)
        starts = {sum(map(len, chunks[:index])) for index in range(len(chunks))}
        for place, (before, after) in enumerate(zip(audio, sent, strict=False)):
            changed = place in starts and before == ord("{")
            assert after == (ord("z") if changed else before)
