"""The WebSocket binding: pings, compression, breaches of RFC 6455, messages that are too big."""

from __future__ import annotations

import asyncio

from utterwire_conformance.stage import Stage, Unplayable, scenario
from utterwire_conformance.transcript import Case
from utterwire_conformance.wire import Frame, Opcode

from .cases import padded

__all__ = ["BREACHES", "compression", "invalid_utf8_text", "pings", "protocol_errors", "too_big"]

BREACHES: dict[str, list[Frame]] = {
    "reserved bit": [Frame(Opcode.TEXT, b'{"text": "Hello."}', rsv=4)],
    "reserved opcode": [Frame(0x3, b"x")],
    "reserved control opcode": [Frame(0xB, b"x")],
    "continuation of nothing": [Frame(Opcode.CONTINUATION, b"x")],
    "new message inside another": [
        Frame(Opcode.TEXT, b'{"text": ', fin=False),
        Frame(Opcode.TEXT, b'"Hello."}'),
    ],
    "fragmented ping": [Frame(Opcode.PING, b"x", fin=False)],
    "ping of 126 bytes": [Frame(Opcode.PING, b"x" * 126)],
    "close frame of one byte": [Frame(Opcode.CLOSE, b"\x03")],
    "close code 1005": [Frame(Opcode.CLOSE, b"\x03\xed")],
    "close code 999": [Frame(Opcode.CLOSE, b"\x03\xe7")],
    "close code 1006": [Frame(Opcode.CLOSE, b"\x03\xee")],
    "close code 2999": [Frame(Opcode.CLOSE, b"\x0b\xb7")],
    "close code 5000": [Frame(Opcode.CLOSE, b"\x13\x88")],
}
"""What RFC 6455 forbids, by what it is; one session each."""


@scenario()
async def pings(stage: Stage) -> None:
    """Pings of every size, one after the other, on a session that does nothing else."""
    async with await stage.session() as session:
        for payload in (b"", b"p", b"\x00\xff" * 20, b"x" * 125):
            before = len(session.dialogue.pongs)
            await session.ping(payload)
            await session.until_pongs(before + 1, stage.pace.first)
        await stage.speak(session, stage.texts.shortest)


@scenario()
async def compression(stage: Stage) -> None:
    """The client offers per-message compression."""
    offer = "permessage-deflate; client_max_window_bits, permessage-deflate"
    async with await stage.session(extensions=offer) as session:
        await stage.speak(session, stage.texts.shortest)


@scenario()
async def invalid_utf8_text(stage: Stage) -> None:
    """Octets that are not UTF-8 in text frames, whole and in fragments."""
    check = "ws.invalid_utf8_text"
    for name, pieces in (
        ("FF", [b'{"text": "Hel\xfflo."}']),
        ("encoded surrogate", [b'{"text": "Hel\xed\xa0\x80lo."}']),
        ("cut code point at the end", [b'{"text": "Hello.\xe2\x82']),
        ("in the second fragment", [b'{"text": "Hello.', b'\xc3\x28"}']),
    ):
        async with await stage.session() as session:
            session.abuse()
            await session.send_fragments(pieces, case=Case(name, check, "reject"))
            await session.until_close(stage.pace.first)


@scenario()
async def protocol_errors(stage: Stage) -> None:
    """Each breach of RFC 6455 in a session of its own."""

    async def breach(name: str, frames: list[Frame], *, masked: bool = True) -> None:
        async with await stage.session() as session:
            await session.ping(b"up")
            await session.until_pongs(1, 1.0 + 2 * stage.pace.rtt)
            session.abuse()
            session.note(f"breach: {name}")
            for frame in frames:
                await session.send_frame(frame, masked=masked)
            await session.until_close(stage.pace.first)

    for name, frames in BREACHES.items():
        await breach(name, frames)
    await breach("no mask", [Frame(Opcode.TEXT, b'{"text": "Hello."}')], masked=False)


@scenario()
async def too_big(stage: Stage) -> None:
    """A message one byte beyond the limit that the endpoint claims, whole and in fragments."""
    limit = stage.claims.max_message_bytes
    if limit is None:
        raise Unplayable(
            "`max_message_bytes` is not in the endpoint file, so the limit is not known"
        )
    if limit > 32 * 1024 * 1024:
        raise Unplayable(f"the endpoint takes messages of {limit} bytes; that is too much to send")
    check = "ws.message_too_big"
    octets = padded(stage.request(stage.texts.shortest), limit + 1)
    half = len(octets) // 2
    for name, pieces in (
        ("one frame", [octets]),
        ("two frames", [octets[:half], octets[half:]]),
    ):
        async with await stage.session() as session:
            session.note("too big: begins")
            case = Case(f"{limit + 1} bytes, {name}", check, "reject")
            sending = asyncio.create_task(session.send_fragments(pieces, case=case))
            try:
                dialogue = session.dialogue
                await session.until(
                    lambda d=dialogue: d.close_in is not None or bool(d.chunks),  # type: ignore[misc]
                    within=stage.pace.first,
                )
                await session.until_close(6.0 + 2 * stage.pace.rtt)
            finally:
                sending.cancel()
                (sent,) = await asyncio.gather(sending, return_exceptions=True)
            if isinstance(sent, Unplayable):
                raise sent
    async with await stage.session() as session:
        octets = padded(stage.request(stage.texts.shortest), limit)
        seq = await session.send(octets, case=Case(f"{limit} bytes", check, "accept"))
        await stage.ended(session, seq)
