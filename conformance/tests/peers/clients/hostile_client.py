"""A client that does harm: `python hostile_client.py HOW URL EVENTS MARK`; each says what it
does. MARK is by what the process is found."""

# mypy: ignore-errors
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from urllib.parse import urlsplit

MASK = b"\x00\x00\x00\x00"


def connect(url):
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port)), parts.path


def session(url):
    sock, path = connect(url)
    sock.sendall(
        f"GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    while b"\r\n\r\n" not in sock.recv(65536):
        pass
    return sock


def frame(first, payload):
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xff" + size.to_bytes(8, "big")
    return bytes([first]) + length + MASK + payload


def never_reads(url, events):
    """Asks for more and more, and reads nothing of what comes."""
    sock, number = session(url), 0
    while True:
        sock.sendall(frame(0x81, b'{"text": "Number %d."}' % number))
        number += 1


def pings(url, events):
    """Sends pings, as many as go out."""
    sock = session(url)
    while True:
        sock.sendall(frame(0x89, b"") * 1000)


def crumbs(url, events):
    """Sends a message in empty fragments that never ends."""
    sock = session(url)
    sock.sendall(frame(0x01, b"{"))
    while True:
        sock.sendall(frame(0x00, b"") * 1000)


def long_message(url, events):
    """Sends a message without end."""
    sock = session(url)
    while True:
        sock.sendall(frame(0x01, b"x" * 65536))
        sock.sendall(frame(0x00, b"x" * 65536) * 100)


def huge_frame(url, events):
    """Announces a frame of a terabyte."""
    sock = session(url)
    sock.sendall(b"\x81\xff" + (2**40).to_bytes(8, "big") + MASK)
    while True:
        sock.sendall(b"x" * 65536)


def large_frame(url, events):
    """Sends a frame of 60 MiB."""
    sock = session(url)
    sock.sendall(b"\x81\xff" + (60 * 2**20).to_bytes(8, "big") + MASK)
    while True:
        sock.sendall(b"x" * 65536)


def garbage(url, events):
    """Speaks no HTTP."""
    sock, _ = connect(url)
    while True:
        sock.sendall(bytes(range(256)) * 256)


def headers(url, events):
    """Sends a head that never ends."""
    sock, path = connect(url)
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n".encode())
    while True:
        sock.sendall(b"X-More: and more\r\n" * 100)


def body(url, events):
    """Sends a body that never ends."""
    sock, path = connect(url)
    sock.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    while True:
        sock.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")


def reconnects(url, events):
    """Connects again and again, and hangs up in the middle of the handshake."""
    while True:
        with suppress(OSError):
            sock, path = connect(url)
            sock.sendall(f"GET {path} HTTP/1.1\r\nHos".encode())
            sock.close()


def logs(url, events):
    """Writes long lines to stderr without end."""
    while True:
        os.write(2, b'{"event": "warning", "message": "' + b"x" * 1000 + b'"}\n')


def chatter(url, events):
    """Writes events to stderr without end."""
    while True:
        os.write(2, b'{"event": "warning"}\n' * 1000)


def event_file(url, events):
    """Writes events without end."""
    with open(events, "wb") as file:
        while True:
            file.write(b'{"event": "warning"}\n' * 10000)


def event_pipe(url, events):
    """Puts a pipe where its events should be, into which nobody writes."""
    os.mkfifo(events)


def event_folder(url, events):
    """Puts a folder there."""
    os.mkdir(events)


def deaf(url, events):
    """Ignores every signal that can be ignored, closes its output, and stays."""
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    os.close(1)
    os.close(2)
    while True:
        time.sleep(1)


def stays(url, events):
    """Speaks no HTTP, and stays where it is hung up on."""
    with suppress(OSError):
        garbage(url, events)
    time.sleep(600)


def stopped(url, events):
    """Stops itself."""
    os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    # Hung up on, most of them end.
    with suppress(OSError):
        globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:4])
