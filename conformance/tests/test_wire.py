"""The frame codec: RFC 6455 section 5, to the bit, in any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_conformance.wire import (
    MAX_FRAME_BYTES,
    CloseReason,
    Frame,
    FrameDecoder,
    FrameTooLarge,
    Opcode,
    accept_key,
    close_payload,
    encode,
    masked,
    parse_close,
)

# The examples of RFC 6455 section 5.7.
RFC = [
    ("810548656c6c6f", [Frame(1, b"Hello")]),
    ("818537fa213d7f9f4d5158", [Frame(1, b"Hello", mask=bytes.fromhex("37fa213d"))]),
    ("010348656c80026c6f", [Frame(1, b"Hel", fin=False), Frame(0, b"lo")]),
    ("890548656c6c6f", [Frame(9, b"Hello")]),
    ("8a8537fa213d7f9f4d5158", [Frame(10, b"Hello", mask=bytes.fromhex("37fa213d"))]),
    ("827e0100" + "00" * 256, [Frame(2, bytes(256))]),
    ("827f0000000000010000" + "00" * 65_536, [Frame(2, bytes(65_536))]),
]


@pytest.mark.parametrize(("octets", "frames"), RFC)
def test_examples_of_the_rfc(octets: str, frames: list[Frame]) -> None:
    data = bytes.fromhex(octets)
    assert FrameDecoder().feed(data) == frames
    assert b"".join(encode(frame) for frame in frames) == data


ODD = st.builds(
    Frame,
    opcode=st.integers(0, 15),
    payload=st.binary(max_size=300),
    fin=st.booleans(),
    rsv=st.integers(0, 7),
    mask=st.none() | st.binary(min_size=4, max_size=4),
)


@given(frames=st.lists(ODD, max_size=5), size=st.integers(1, 40))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_any_frame_survives_any_cutting(frames: list[Frame], size: int) -> None:
    data = b"".join(encode(frame) for frame in frames)
    decoder = FrameDecoder()
    found: list[Frame] = []
    for start in range(0, len(data), size):
        found += decoder.feed(data[start : start + size])
    assert found == frames
    assert decoder.buffered == b""


@given(payload=st.binary(max_size=200), mask=st.binary(min_size=4, max_size=4))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_masking_is_the_xor_of_the_rfc(payload: bytes, mask: bytes) -> None:
    assert masked(payload, mask) == bytes(o ^ mask[i % 4] for i, o in enumerate(payload))
    assert masked(masked(payload, mask), mask) == payload


def test_what_is_not_whole_is_kept() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(encode(Frame(1, b"Hello"))[:-1]) == []
    assert decoder.buffered == encode(Frame(1, b"Hello"))[:-1]


def test_a_frame_nobody_can_hold_is_refused() -> None:
    head = b"\x82\x7f" + (MAX_FRAME_BYTES + 1).to_bytes(8, "big")
    with pytest.raises(FrameTooLarge):
        FrameDecoder().feed(head)


@pytest.mark.parametrize(
    "bad", [{"opcode": 16}, {"opcode": 1, "rsv": 8}, {"opcode": 1, "mask": b"abc"}]
)
def test_frames_that_cannot_be(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"bits|bytes"):
        Frame(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", CloseReason(None, "")),
        (b"\x03", CloseReason(None, "")),
        (close_payload(1000), CloseReason(1000, "")),
        (close_payload(4000, "bye"), CloseReason(4000, "bye")),
        (b"\x03\xe8\xff", CloseReason(1000, "\ufffd")),
    ],
)
def test_close_frames(payload: bytes, said: CloseReason) -> None:
    assert parse_close(payload) == said


def test_small_things() -> None:
    assert close_payload() == b""
    # RFC 6455 section 1.3.
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert Frame(Opcode.PING).is_control
    assert not Frame(Opcode.TEXT).is_control
