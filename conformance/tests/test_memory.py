"""Reading the memory of a launched endpoint."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from utterwire_conformance.memory import held_by
from utterwire_conformance.target import Child, Instance

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

# Listens in a child, and grows by 40 MB with each line it is sent.
LISTENS = """
import socket, subprocess, sys
sock = socket.create_server(("127.0.0.1", 0))
sock.set_inheritable(True)
grows = "import sys; kept = []"
grows += "\\nfor line in sys.stdin: kept.append(b'x' * 40_000_000); print(0, flush=True)"
command = [sys.executable, "-c", grows]
process = subprocess.Popen(command, pass_fds=[sock.fileno()])
print(sock.getsockname()[1], flush=True)
sock.close()
process.wait()
"""


def test_the_memory_of_all_processes_is_seen_to_grow() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LISTENS],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        child = Child(process)
        instance = Instance(f"ws://127.0.0.1:{port}/", "http://127.0.0.1", child)
        try:
            process.stdin.write(b"\n")
            process.stdout.readline()
            before = instance.memory()
            process.stdin.write(b"\n")
            process.stdout.readline()
            after = instance.memory()
            assert before is not None
            assert after is not None
            assert 35_000_000 < after - before < 60_000_000
            with socket.create_server(("127.0.0.1", 0)) as other:
                # Somebody else listens there: a container, say.
                assert held_by(process.pid, other.getsockname()[1]) is None
            process.stdin.close()
            process.stdout.close()
            asyncio.run(child.wait(30))
            assert instance.memory() is None
        finally:
            asyncio.run(child.end(30))


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    assert held_by(os.getpid(), 80, tmp_path) is None
    assert Instance("ws://h:1/", "http://h:1").memory() is None


def test_what_ends_while_it_is_looked_at_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a) b) S 1 7 7 0")
    (tmp_path / "8").mkdir()
    (tmp_path / "net").mkdir()
    head = "sl local rem st tx tr tm retr uid timeout inode\n"
    line = "0: 0100007F:0050 00000000:0000 0A 0:0 0:0 0 0 0 55 1\n"
    (tmp_path / "net" / "tcp").write_text(head + line)
    assert held_by(7, 80, tmp_path) is None
    (tmp_path / "7" / "fd").mkdir()
    (tmp_path / "7" / "fd" / "3").symlink_to("socket:[55]")
    assert held_by(7, 80, tmp_path) == 0
    (tmp_path / "7" / "status").write_text("RssAnon:\t 10 kB\nVmRSS:\t 99 kB\nVmSwap:\t 2 kB\n")
    assert held_by(7, 80, tmp_path) == 12 * 1024
    assert held_by(7, 81, tmp_path) is None
