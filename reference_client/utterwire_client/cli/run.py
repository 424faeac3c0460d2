"""Running a command's coroutine as a process should: its signals end it."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any

from utterwire_client.cli.exit_code import ExitCode

__all__ = ["run"]


def run(command: Coroutine[Any, Any, ExitCode]) -> ExitCode:
    """Run it to its end, or until SIGINT or SIGTERM cancels it; returns the exit status."""
    try:
        return asyncio.run(_until_terminated(command))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except asyncio.CancelledError:
        return ExitCode.TERMINATED


async def _until_terminated(command: Coroutine[Any, Any, ExitCode]) -> ExitCode:
    task = asyncio.current_task()
    assert task is not None
    # A thread that is not the main one is sent no signals.
    with contextlib.suppress(ValueError, RuntimeError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await command
