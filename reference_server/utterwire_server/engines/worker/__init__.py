"""An engine in a process of its own, supervised: see `WorkerEngine`."""

from __future__ import annotations

from utterwire_server.engines.worker.host import WorkerEngine

__all__ = ["WorkerEngine"]
