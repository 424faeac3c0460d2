"""How the suite reaches an endpoint: the one running, or instances that it launches.

Every connection of a run goes to the addresses given here, so that whoever stands between (the
fault proxy) need only give other addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import IO, TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from .driver import Address, fetch_status, tls_context
from .endpoints import SESSION_PATH, Endpoint
from .memory import held_by
from .via import SAGEMAKER, SageMakerTarget

if TYPE_CHECKING:
    from .router.process import RouterProcess

__all__ = ["Child", "Instance", "LaunchFailed", "Target"]

_POLL_S: Final = 0.05
_POLL_ENDED_S: Final = 0.01
_TO_END_S: Final = 5.0
_LOG_TAIL: Final = 2000


class LaunchFailed(OSError):
    """The endpoint could not be started: nothing can be judged."""


class Child:
    """A launched process, the first of a group of its own.

    It is left unreaped until the whole group has been ended: as long as that lasts no other
    process can get its id, and no stranger's group the signal.
    """

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        # A signal may come while the lock is held, and its handler may ask for the same.
        self._lock = threading.RLock()
        self._reaped = False

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, below zero for a signal; None while it runs."""
        with self._lock:
            return self._peek()

    def _peek(self) -> int | None:
        if self._reaped or not hasattr(os, "waitid"):
            return self._popen.poll()
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def terminate(self) -> None:
        """Tell it to end (SIGTERM)."""
        with self._lock:
            if self._peek() is None:
                os.kill(self.pid, signal.SIGTERM)

    def kill_group(self) -> None:
        """End it and all that it started, at once (SIGKILL); from any thread."""
        with self._lock:
            if not self._reaped:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)

    async def wait(self, within: float) -> int | None:
        """Wait for it to end; its exit status, or None if it still runs."""
        deadline = time.monotonic() + within
        while (status := self.returncode) is None and time.monotonic() < deadline:  # noqa: ASYNC110
            # A process that is left unreaped can only be polled.
            await asyncio.sleep(_POLL_ENDED_S)
        return status

    async def end(self, within: float) -> None:
        """Tell it to end, by force after `within` seconds, and leave nothing of its group."""
        self.terminate()
        await self.wait(within)
        self.kill_group()
        # What was killed has ended in a moment, unless the kernel itself holds it.
        if await self.wait(within) is not None:
            with self._lock:
                self._popen.wait()
                self._reaped = True


@dataclass(slots=True)
class Instance:
    """One running endpoint; `ws_url` is the whole address of a session, `http_url` a base.

    `process` is None where somebody else runs it, so that it cannot be told to stop.
    """

    ws_url: str
    http_url: str
    process: Child | None = None
    log: IO[bytes] | None = None
    sagemaker: SageMakerTarget | None = None
    """How sessions are opened, where SageMaker carries them."""

    @property
    def returncode(self) -> int | None:
        """The exit status of a launched process that has ended."""
        return self.process.returncode if self.process is not None else None

    def terminate(self) -> None:
        """Tell a launched process to shut down (SIGTERM)."""
        if self.process is not None:
            self.process.terminate()

    def kill(self) -> None:
        """End a launched process and all that it started, at once (SIGKILL)."""
        if self.process is not None:
            self.process.kill_group()

    async def wait(self, within: float) -> int | None:
        """Wait for the process to end; its exit status, or None if it still runs."""
        return None if self.process is None else await self.process.wait(within)

    def log_tail(self) -> str:
        """The end of what the process wrote, for the person who must find out why."""
        return self.output()[-_LOG_TAIL:].decode("utf-8", "replace").strip()

    def output(self) -> bytes:
        """All that a launched process has written so far."""
        if self.log is None:
            return b""
        # The process writes at the same file offset, which must stay where it is.
        descriptor = self.log.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)

    def memory(self) -> int | None:
        """Bytes of memory that a launched process and its children hold; None where unknown."""
        port = urlsplit(self.ws_url).port
        if self.process is None or self.process.returncode is not None or port is None:
            return None
        return held_by(self.process.pid, port)

    async def stop(self) -> None:
        """End a launched process and all that it started, by force if need be."""
        if self.process is not None:
            await self.process.end(_TO_END_S)
        if self.log is not None:
            self.log.close()
            self.log = None


class Target:
    """An endpoint under test, as an asynchronous context manager that starts and stops it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.main: Instance | None = None
        self._instances: list[Instance] = []
        self._router: RouterProcess | None = None
        self._context: ssl.SSLContext | None = None

    @property
    def context(self) -> ssl.SSLContext | None:
        """TLS settings, where an address asks for TLS.

        Raises:
            ConnectFailed: the `ca_file` cannot be used.
        """
        urls = (self.endpoint.url or "", self.endpoint.http_url or "")
        if self._context is None and any(urlsplit(u).scheme in ("wss", "https") for u in urls):
            self._context = tls_context(self.endpoint.ca_file)
        return self._context

    @property
    def can_launch(self) -> bool:
        """Whether the suite can start instances of its own, and so stop them."""
        return bool(self.endpoint.launch)

    async def __aenter__(self) -> Self:
        try:
            self.main = await self.start()
        except BaseException:
            # Broken off while it was getting ready.
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop every instance that was launched."""
        router, self._router = self._router, None
        if router is not None:
            await router.stop()
        await asyncio.gather(*(instance.stop() for instance in self._instances))
        self._instances.clear()

    def kill(self) -> None:
        """End every instance that was launched, at once; may be called from any thread."""
        router = self._router
        if router is not None:
            router.kill()
        for instance in tuple(self._instances):
            instance.kill()

    async def start(self) -> Instance:
        """The instance that most scenarios talk to.

        Raises:
            LaunchFailed: it is launched, and does not get ready; or a router does not.
            ConnectFailed: the `ca_file` cannot be used.
        """
        endpoint = self.endpoint
        if endpoint.sagemaker is not None:
            return Instance("", "", sagemaker=endpoint.sagemaker)
        if self.can_launch:
            instance = await self.launch()
        else:
            _ = self.context
            instance = Instance(endpoint.url or "", endpoint.http_url or "")
        if endpoint.via == SAGEMAKER:
            instance.sagemaker = await self._route(instance)
        return instance

    async def _route(self, instance: Instance) -> SageMakerTarget:
        """Put a router before an instance."""
        from .router.process import RouterLost, RouterProcess

        parts = urlsplit(instance.ws_url)
        if parts.scheme != "ws":
            raise LaunchFailed("--via sagemaker wants a container on ws://, as SageMaker does")
        try:
            self._router = await RouterProcess.start(f"http://{parts.netloc}")
        except RouterLost as error:
            raise LaunchFailed(str(error)) from error
        return self._router.target

    async def launch(self) -> Instance:
        """Start one more instance, on a free port, and wait until it is ready.

        Raises:
            LaunchFailed: it cannot be started, ends, or does not get ready in time.
        """
        attempts = 3
        while True:
            attempts -= 1
            try:
                return await self._launch_on(_free_port())
            except LaunchFailed as error:
                # Somebody else may have taken the port between its choice and its use.
                if not attempts or "in use" not in str(error).lower():
                    raise

    async def _launch_on(self, port: int) -> Instance:
        endpoint = self.endpoint
        command = [arg.replace("{port}", str(port)) for arg in endpoint.launch]
        ready = (endpoint.ready_url or "").replace("{port}", str(port))
        base = urlsplit(ready)
        scheme = {"http": "ws", "https": "wss"}[base.scheme]
        # Held open as long as the process runs; `Instance.stop` closes it.
        log = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            # It takes a moment; a process that asyncio starts would be reaped at its end.
            process = subprocess.Popen(  # noqa: ASYNC220
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            log.close()
            why = error.strerror or str(error)
            raise LaunchFailed(f"cannot start {command[0]}: {why}") from error
        instance = Instance(
            f"{scheme}://{base.netloc}{SESSION_PATH}",
            endpoint.http_url or f"{base.scheme}://{base.netloc}",
            Child(process),
            log,
        )
        self._instances.append(instance)
        try:
            await self._await_ready(instance, ready)
        except LaunchFailed:
            await instance.stop()
            self._instances.remove(instance)
            raise
        return instance

    async def _await_ready(self, instance: Instance, url: str) -> None:
        limit = self.endpoint.timeouts.ready_s
        deadline = time.monotonic() + limit
        while instance.returncode is None:
            if await fetch_status(url, headers=self.endpoint.headers, context=self.context) == 200:
                return
            if time.monotonic() > deadline:
                raise LaunchFailed(
                    f"{Address.of(url).authority} did not answer {urlsplit(url).path} with 200"
                    f" within {limit:g} s; its last words: {instance.log_tail() or '(none)'}"
                )
            await asyncio.sleep(_POLL_S)
        last = instance.log_tail().splitlines()[-3:]
        raise LaunchFailed(
            f"it ended with status {instance.returncode} before it was ready;"
            f" its last words: {' / '.join(last) or '(none)'}"
        )


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
