"""What goes to the transport."""

from __future__ import annotations

from dataclasses import dataclass

from utterwire_protocol.classification import FrameKind

__all__ = ["Chunk"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """One message for the transport to send as one unfragmented frame of its ``kind``.

    ``seq``: the client message it belongs to, if one; ``data`` is never empty.
    """

    kind: FrameKind
    data: bytes
    seq: int | None = None

    def __post_init__(self) -> None:
        if self.kind is FrameKind.UNKNOWN:
            raise ValueError("what is sent is text or binary")
        if not self.data:
            raise ValueError("a chunk must not be empty")
