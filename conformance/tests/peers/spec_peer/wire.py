"""One TCP connection with a send queue whose length is known to the byte."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections import deque

# Linux doubles this; with what waits here it stays well below the 262,144 of the specification.
KERNEL_BUFFER = 32_768
RECEIVE = 8_192


class Wire:
    """A non-blocking socket: frames are queued whole, and only an unbegun one can be dropped."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over an accepted socket."""
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BUFFER)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._frames: deque[memoryview] = deque()
        self._begun = False
        self._pong: bytes | None = None
        self._watching = False
        self._progress = time.monotonic()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.buffered = 0
        self.dead = False

    def write(self, data: bytes | bytearray) -> None:
        """Hand a frame over; it goes out behind all others."""
        if self.dead or not data:
            return
        if not self.buffered:
            self._progress = time.monotonic()
        self._frames.append(memoryview(data))
        self.buffered += len(data)
        if not self._watching:
            self._flush()

    def write_pong(self, data: bytes | bytearray) -> None:
        """Send between two frames as soon as can be; the last of several replaces the others."""
        self._pong = bytes(data)
        if not self._watching:
            self._flush()

    def drop_unsent(self) -> None:
        """Forget all frames of which no byte has been sent."""
        keep = [self._frames[0]] if self._begun else []
        self._frames = deque(keep)
        self.buffered = sum(map(len, keep))
        self._pong = None

    def stalled_for(self) -> float:
        """Give for how long the transport has taken no byte of what there is to send."""
        return time.monotonic() - self._progress if self.buffered else 0.0

    async def room(self, limit: int) -> bool:
        """Wait until at most so many bytes are queued; false if the connection is lost."""
        while self.buffered > limit and not self.dead:
            future = self._loop.create_future()
            self._waiters.append((limit, future))
            await future
        return not self.dead

    async def drained(self, stall: float) -> bool:
        """Wait for all to leave, for as long as the other side takes some in so many seconds."""
        while self.buffered and not self.dead and self.stalled_for() < stall:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.room(0), min(stall, 0.5))
        return not self.buffered and not self.dead

    async def recv(self) -> bytes:
        """Read some bytes; none at the end, however it came. Others get their turn first."""
        await asyncio.sleep(0)
        if self.dead:
            return b""
        try:
            return await self._loop.sock_recv(self._sock, RECEIVE)
        except OSError:
            return b""

    def abort(self) -> None:
        """End the connection at once: whoever reads or waits comes back."""
        self._die()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    async def finish(self, patience: float = 2.0) -> None:
        """Send what is queued and FIN, then wait a little for the other side's FIN."""
        if await self.drained(patience):
            with contextlib.suppress(OSError, TimeoutError):
                self._sock.shutdown(socket.SHUT_WR)
                async with asyncio.timeout(patience):
                    while await self.recv():
                        pass
        self.abort()

    def release(self, *, reset: bool = False) -> None:
        """Give the descriptor back; nobody may be reading. A reset leaves no doubt of failure."""
        self._die()
        if reset:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def _flush(self) -> None:
        while not self.dead and (self._frames or self._pong):
            if self._pong and not self._begun:
                self._frames.appendleft(memoryview(self._pong))
                self.buffered += len(self._pong)
                self._pong = None
            head = self._frames[0]
            try:
                sent = self._sock.send(head)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self.abort()
                return
            self._progress = time.monotonic()
            self.buffered -= sent
            self._begun = sent < len(head)
            if self._begun:
                self._frames[0] = head[sent:]
            else:
                self._frames.popleft()
        self._watch(bool(self._frames or self._pong) and not self.dead)
        self._wake()

    def _watch(self, wanted: bool) -> None:
        if wanted and not self._watching:
            self._loop.add_writer(self._sock, self._flush)
        elif self._watching and not wanted:
            self._loop.remove_writer(self._sock)
        self._watching = wanted

    def _wake(self) -> None:
        waiting, self._waiters = self._waiters, []
        for limit, future in waiting:
            if self.dead or self.buffered <= limit:
                if not future.done():
                    future.set_result(None)
            else:
                self._waiters.append((limit, future))

    def _die(self) -> None:
        self.dead = True
        self._watch(False)
        self._frames.clear()
        self.buffered = 0
        self._wake()
