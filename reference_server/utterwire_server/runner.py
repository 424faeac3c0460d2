"""A server from its listening socket to its orderly end."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn

from utterwire_server.app import SESSION, create_app
from utterwire_server.logs import log_event, logging_to
from utterwire_server.service import Service
from utterwire_server.wire import HttpWire, WebSocketWire

__all__ = ["Runner", "listen", "serve"]

#: So many connections that are not accepted yet may wait, and are accepted in one go.
BACKLOG = 256
#: Connections besides sessions and requests that are open, and one for each of these.
SPARE_CONNECTIONS = 512
#: Files that are not connections, and connections that have just been accepted.
OTHER_FILES = BACKLOG + 64
#: After the drain, what is still open gets so long, in seconds, before uvicorn cancels it.
LEFTOVERS_S = 2


def listen(host: str, port: int, *, send_buffer_bytes: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Every accepted socket inherits the small send buffer, so that little audio is beyond recall
    when a client cancels: left alone, Linux lets it grow to megabytes.

    :raises OSError: if the address cannot be had.
    """
    family, kind, proto, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _most_connections(max_sessions: int) -> int:
    """How many connections are kept: as many as are of use, and as there may be files for."""
    wanted = 2 * max_sessions + SPARE_CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, files - min(OTHER_FILES, files // 2)))


def _raise_file_limit(max_sessions: int) -> None:
    """Have the process open as many files as it needs, as far as it may."""
    wanted = 2 * max_sessions + SPARE_CONNECTIONS + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which close every WebSocket with 1012 at once.

    It exits as soon as it is told to, instead of looking ten times a second.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()

    def leave(self) -> None:
        """Shut down: what is still open is closed."""
        self.should_exit = True
        self._told.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        # The tick renews the `date` header when it is given a multiple of ten.
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._told.wait()


class Runner:
    """Serves until it is told to stop; then drains, and only then lets uvicorn exit.

    The socket is closed at the end. Use it once.

    :param tls: of the server, where sessions and requests come encrypted.
    :param renew: reads files again at SIGHUP, on the event loop; what it raises as `ValueError` is
        logged. Without it SIGHUP ends the server as SIGTERM does.
    """

    def __init__(
        self,
        service: Service,
        sock: socket.socket,
        *,
        tls: ssl.SSLContext | None = None,
        renew: Callable[[], None] | None = None,
    ) -> None:
        self._service = service
        self._renew = renew
        self._sock = sock
        self._stopping = asyncio.Event()
        self._given_up = False
        self._signal: int | None = None

        class PatientWire(HttpWire):
            # Audio has a clock of its own, which ends first and says so.
            stall_s = service.settings.stall_timeout_s + 1.0
            most_connections = _most_connections(service.settings.max_sessions)

        config = uvicorn.Config(
            create_app(service),
            http=PatientWire,
            ws=WebSocketWire,
            ws_max_size=service.settings.max_message_bytes,
            backlog=BACKLOG,
            ws_per_message_deflate=False,
            # The idle clock and the stall timeout find dead peers.
            ws_ping_interval=None,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=LEFTOVERS_S,
        )
        # What it would load by itself it loads from files, and asks a terminal for passwords.
        config.load()
        config.ssl = tls
        self._server = _Server(config)

    def stop(self) -> None:
        """Begin to drain; called again, give up draining."""
        if self._stopping.is_set():
            self._given_up = True
            # uvicorn then cancels at once what is still open.
            self._server.config.timeout_graceful_shutdown = 0
            self._server.leave()
        self._stopping.set()

    async def run(self, *, handle_signals: bool = False) -> int:
        """Serve; returns an exit status.

        0 after an orderly end, 1 if the engine could not be started, 128 plus the signal's number
        if a second signal cut the drain short.
        """
        loop = asyncio.get_running_loop()
        if handle_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._on_signal, number)
            # Who starts it by nohup has SIGHUP ignored.
            if self._renew or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                loop.add_signal_handler(signal.SIGHUP, self.hang_up)
        serving = asyncio.create_task(self._server.serve([self._sock]), name="uvicorn")
        stopping = asyncio.create_task(self._drain(), name="drain")
        try:
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            self._server.leave()
            await serving
        finally:
            for task in (serving, stopping):
                task.cancel()
            await asyncio.wait({serving, stopping})
            self._sock.close()
        log_event("stopped")
        if self._given_up:
            return 128 + (self._signal or signal.SIGTERM)
        return 1 if self._service.failed.is_set() else 0

    def _on_signal(self, number: int) -> None:
        log_event("signal", name=signal.Signals(number).name)
        self._signal = number
        self.stop()

    def hang_up(self) -> None:
        """Do what SIGHUP asks for: read the files again, or, if there are none, begin to drain."""
        if self._renew is None:
            self._on_signal(signal.SIGHUP)
            return
        try:
            self._renew()
        except ValueError as error:
            # What was read before goes on to hold.
            log_event("renewal_failed", error=type(error).__name__, message=str(error))
        else:
            log_event("renewed")

    async def _drain(self) -> None:
        failed = asyncio.create_task(self._service.failed.wait())
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({failed, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            failed.cancel()
            stopped.cancel()
        await self._service.drain()


def serve(
    service: Service,
    sock: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    renew: Callable[[], None] | None = None,
) -> int:
    """Run a server in this process, with JSON logs on stderr, until a signal ends it.

    The process may then open as many files as it needs. Returns the exit status of `Runner.run`,
    whose parameters these are.
    """
    settings, engine, access = service.settings, service.engine, service.access
    _raise_file_limit(settings.max_sessions)
    with logging_to():
        host, port = sock.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        fields = {item.name: getattr(settings, item.name) for item in dataclasses.fields(settings)}
        fields["profiles"] = sorted(settings.profiles)
        fields["allowed_endpoints"] = sorted(settings.allowed_endpoints)
        options = service.options()
        fields["formats"] = list(options.formats)
        log_event(
            "listening",
            host=host,
            port=port,
            url=f"{'ws' if tls is None else 'wss'}://{shown}:{port}{SESSION}",
            engine=engine.name,
            voices=list(engine.voices),
            sample_rates=list(options.sample_rates),
            pid=os.getpid(),
            tls=tls is not None,
            token=bool(access.tokens),
            allowed_origins=sorted(access.origins),
            max_sessions_per_address=access.sessions_per_address,
            max_connections=_most_connections(settings.max_sessions),
            observers=[type(observer).__name__ for observer in service.observers],
            **fields,
        )
        return asyncio.run(Runner(service, sock, tls=tls, renew=renew).run(handle_signals=True))
