"""A router in a process of its own, before an endpoint that is judged."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from utterwire_conformance.via import SageMakerTarget

from .options import LOCAL_CREDENTIALS
from .requisites import missing

__all__ = ["RouterLost", "RouterProcess"]

_READY_S: Final = 60.0
_TO_END_S: Final = 5.0
# The rule about accepting is judged over the container's own socket.
_ACCEPT_MS: Final = 10_000
_ADDRESS: Final = re.compile(r"SageMaker runtime at (https://[^,\s]+),")


class RouterLost(OSError):
    """The router did not start: nothing can be judged."""


class RouterProcess:
    """One router; signatures are checked. `target` is how the endpoint is called through it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        folder: tempfile.TemporaryDirectory[str],
        target: SageMakerTarget,
    ) -> None:
        self._process = process
        self._folder = folder
        self.target = target

    @classmethod
    async def start(cls, container_url: str) -> RouterProcess:
        """Start one before a container, an http address, and wait until it listens.

        Raises:
            RouterLost: it does not start.
        """
        lacking = missing()
        if lacking is not None:
            raise RouterLost(f"--via sagemaker needs a router: {lacking}")
        folder = tempfile.TemporaryDirectory(prefix="utterwire-router-")
        log = Path(folder.name) / "log"
        with log.open("wb") as out:
            # It takes a moment.
            process = subprocess.Popen(  # noqa: ASYNC220
                [
                    sys.executable, "-m", "utterwire_conformance.router.cli", "--verify", "--quiet",
                    "--port", "0", "--to", container_url, "--certificates", folder.name,
                    "--accept-ms", str(_ACCEPT_MS),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )  # fmt: skip
        try:
            async with asyncio.timeout(_READY_S):
                while True:
                    # Before its words are read: it says the last of them, and ends.
                    is_over = process.poll() is not None
                    said = log.read_text("utf-8", "replace")
                    found = _ADDRESS.search(said)
                    if found is not None:
                        break
                    if is_over:
                        last = said.strip().splitlines()[-1:] or ["(nothing)"]
                        raise RouterLost(f"the router ended at once: {last[0]}")
                    await asyncio.sleep(0.05)
        except BaseException as error:
            process.kill()
            process.wait()
            folder.cleanup()
            if isinstance(error, TimeoutError):
                raise RouterLost(f"the router was not ready within {_READY_S:g} s") from None
            raise
        keys = (LOCAL_CREDENTIALS.access_key, LOCAL_CREDENTIALS.secret_key)
        target = SageMakerTarget(
            "utterwire",
            region="us-east-1",
            endpoint_url=found[1],
            ca_file=Path(folder.name) / "ca.pem",
            keys=keys,
        )
        return cls(process, folder, target)

    def kill(self) -> None:
        """End it at once; from any thread."""
        self._process.kill()

    async def stop(self) -> None:
        """End it, by force if need be."""
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, _TO_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        self._folder.cleanup()
