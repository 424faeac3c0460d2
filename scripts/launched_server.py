"""The packages of the checkout, for processes of their own: the reference server above all.

with LaunchedServer(["--engine", "tone"], log=Path("server.log")) as server:
    print(server.url)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from provenance import ROOT

__all__ = ["LaunchedServer", "package_environment"]

_PACKAGES: Final = ("schemas", "protocol", "reference_server", "reference_client", "conformance")
_STOP_S: Final = 60.0


def package_environment(*modules: Path) -> dict[str, str]:
    """Our environment, with the packages of the checkout and the folders ``modules`` to be imported
    from."""
    folders = [*(str(ROOT / name) for name in _PACKAGES), *map(str, modules)]
    if inherited := os.environ.get("PYTHONPATH"):
        folders.append(inherited)
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders)}


class LaunchedServer:
    """The reference server in a process of its own, as a context manager; ``url`` is the address of
    its sessions. Entering it raises `RuntimeError` if the server does not get ready.

    :param flags: of ``utterwire-server serve``.
    :param log: the file its log goes to.
    :param python: its interpreter.
    :param ready_s: how long it may take until it is ready.
    :param modules: folders of engines of one's own.
    """

    def __init__(
        self,
        flags: Sequence[str],
        *,
        log: Path,
        python: str = sys.executable,
        ready_s: float = 600.0,
        modules: Sequence[Path] = (),
    ) -> None:
        self._command = [python, "-m", "utterwire_server", "serve", *flags, "--port", "0"]
        self._log = log
        self._ready_s = ready_s
        self._environment = package_environment(*modules)
        self.url = ""

    def __enter__(self) -> Self:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stderr=log, env=self._environment)
        try:
            self._wait()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self) -> None:
        until = time.monotonic() + self._ready_s
        with self._log.open(encoding="utf-8", errors="replace") as lines:
            line = last = ""
            while time.monotonic() < until:
                ended = self._process.poll() is not None
                if more := lines.readline():
                    # The end of a line may not be written yet.
                    line += more
                    if line.endswith("\n"):
                        if self._ready(line):
                            return
                        last, line = line, ""
                elif ended:
                    raise RuntimeError(f"the server ended at once: {(line or last).strip()}")
                else:
                    time.sleep(0.05)
        raise RuntimeError(f"the server was not ready after {self._ready_s:g} s")

    def _ready(self, line: str) -> bool:
        try:
            event = json.loads(line)
        except ValueError:
            return False  # libraries write there, too
        if not isinstance(event, dict):
            return False
        self.url = event.get("url", self.url)
        return event.get("event") == "ready"
