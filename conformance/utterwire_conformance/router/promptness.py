"""Acknowledgements of TCP without delay."""

from __future__ import annotations

import contextlib
import socket
from typing import Any, Final

__all__ = ["acknowledge_at_once"]

# On Linux alone.
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


def acknowledge_at_once(sock: Any) -> None:
    """Have the kernel acknowledge at once what comes next on a socket (None: there is none).

    It delays by 40 ms what a sender may wait for: the AWS SDK leaves Nagle's algorithm on, and a
    large frame fills a small receive buffer. The kernel forgets this setting, so that it is to be
    set again with each read.
    """
    if sock is not None and _QUICKACK is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
