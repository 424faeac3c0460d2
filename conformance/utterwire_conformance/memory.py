"""How much memory a launched endpoint holds, as Linux tells it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["held_by"]

_PROC: Final = Path("/proc")
_COUNTED: Final = ("RssAnon:", "VmSwap:")
_LISTENING: Final = "0A"


def held_by(leader: int, port: int, proc: Path = _PROC) -> int | None:
    """Bytes of memory of its own that the session of processes led by `leader` holds.

    None where that cannot be told: there is no `/proc`, or whoever listens on `port` is none of
    them (a container, a server that was running before), so that the number would mean nothing.
    Pages that forked processes share count for each of them; it is the growth that matters.
    """
    members = list(_session(leader, proc))
    if not members or not _listens(members, port, proc):
        return None
    total = 0
    for member in members:
        # A process may end while it is looked at.
        with suppress(OSError):
            for line in (member / "status").read_text().splitlines():
                name, _, value = line.partition("\t")
                if name in _COUNTED:
                    total += int(value.split()[0]) * 1024
    return total


def _session(leader: int, proc: Path) -> Iterator[Path]:
    for folder in proc.glob("[0-9]*"):
        with suppress(OSError):
            # The name of the command, in parentheses, can hold anything.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                yield folder


def _listens(members: list[Path], port: int, proc: Path) -> bool:
    wanted = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    wanted.add(f"socket:[{fields[9]}]")
    for member in members:
        with suppress(OSError):
            for descriptor in (member / "fd").iterdir():
                with suppress(OSError):
                    if str(descriptor.readlink()) in wanted:
                        return True
    return False
