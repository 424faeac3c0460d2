"""What crossed the wire, as data: recorded once, judged as often as one likes.

On disk a transcript is a file of JSON lines of the schema `transcript`: a header, then one line
for each frame, part of an HTTP exchange, or note. It may be compressed (xz or gzip).
"""

from __future__ import annotations

import base64
import gzip
import json
import lzma
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeAlias, get_args

from .claims import EndpointClaims

__all__ = [
    "BULKY_BYTES",
    "MOST_FILE_BYTES",
    "Case",
    "Direction",
    "Entry",
    "Kind",
    "Role",
    "Transcript",
    "merged",
    "suite_name",
]

Direction: TypeAlias = Literal["out", "in", "note"]
Role: TypeAlias = Literal["endpoint", "client"]
Kind: TypeAlias = Literal[
    "text",
    "binary",
    "cont",
    "ping",
    "pong",
    "close",
    "raw",
    "open",
    "eof",
    "http-request",
    "http-response",
    "http-body",
    "note",
]

BULKY_BYTES: Final = 256 * 1024
"""From this size on a transcript is better compressed when it is saved: PCM as JSON is bulky."""

MOST_FILE_BYTES: Final = 512 * 1024 * 1024
"""The most that is read of one file, decompressed: a small file may unpack to anything."""

_Octets: TypeAlias = IO[bytes] | gzip.GzipFile | lzma.LZMAFile

_CASE: Final = "case "
_EXPECTED: Final = ("accept", "reject", "either")
_FRAMES: Final = frozenset({"text", "binary", "cont", "ping", "pong", "close"})
_KINDS: Final[frozenset[str]] = frozenset(get_args(Kind))
_DIRECTIONS: Final[frozenset[str]] = frozenset(get_args(Direction))
_ROLES: Final[frozenset[str]] = frozenset(get_args(Role))
_LONG: Final = 512
_MOST_SECONDS: Final = 1e12
_GZIP: Final = b"\x1f\x8b"
_XZ: Final = b"\xfd7zXZ\x00"


def suite_name() -> str:
    """Name and version of this suite, as it stands in transcripts and reports."""
    try:
        return f"utterwire-conformance {version('utterwire')}"
    except PackageNotFoundError:
        return "utterwire-conformance (not installed)"


@dataclass(frozen=True, slots=True)
class Case:
    """Why a message is sent: the check it serves and what would be legal.

    `expect` is `accept`, `reject` (with one of `codes`) or `either`. `name` tells cases of one
    check apart. The case stands in the transcript as a note before the message, so that a replay
    judges the same.
    """

    name: str
    check: str
    expect: Literal["accept", "reject", "either"]
    codes: tuple[str, ...] = ()

    def to_note(self) -> str:
        """The case as the text of a note."""
        body = {"name": self.name, "check": self.check, "expect": self.expect}
        return _CASE + json.dumps(body | {"codes": list(self.codes)})

    @classmethod
    def from_note(cls, text: str) -> Case | None:
        """The case that a note tells of, or None if it is another kind of note."""
        if not text.startswith(_CASE):
            return None
        try:
            body = json.loads(text.removeprefix(_CASE))
            made = cls(body["name"], body["check"], body["expect"], tuple(body["codes"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        words = (made.name, made.check, *made.codes)
        sound = all(isinstance(word, str) for word in words) and made.expect in _EXPECTED
        return made if sound else None


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a transcript; `t` in seconds since its start, `data` the octets of a payload.

    `session` counts the connections of the transcript from 1; 0 is for notes about none.
    """

    t: float
    dir: Direction
    kind: Kind
    session: int
    fin: bool = True
    data: bytes = b""
    code: int | None = None
    reason: str | None = None
    method: str | None = None
    target: str | None = None
    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    text: str | None = None

    @property
    def is_frame(self) -> bool:
        """Whether this is a well-formed WebSocket frame."""
        return self.kind in _FRAMES

    def to_json(self) -> dict[str, Any]:
        """The line as the schema has it."""
        line: dict[str, Any] = {
            "t": round(self.t, 6),
            "dir": self.dir,
            "kind": self.kind,
            "session": self.session,
        }
        if self.kind in ("text", "binary", "cont", "http-body") or not self.fin:
            line["fin"] = self.fin
        if self.data:
            line["data"] = _data_to_json(self.data, self.kind)
        for name in ("code", "reason", "method", "target", "status", "text"):
            value = getattr(self, name)
            if value is not None:
                line[name] = value
        if self.headers:
            line["headers"] = dict(merged(self.headers))
        return line

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Entry:
        """Read a line.

        Raises:
            ValueError: it does not satisfy the schema.
            KeyError: a part that it must have is missing.
        """
        _check(line)
        return cls(
            t=line["t"],
            dir=line["dir"],
            kind=line["kind"],
            session=line["session"],
            fin=line.get("fin", True),
            data=_data_from_json(line.get("data", {"text": ""})),
            code=line.get("code"),
            reason=line.get("reason"),
            method=line.get("method"),
            target=line.get("target"),
            status=line.get("status"),
            headers=tuple(line.get("headers", {}).items()),
            text=line.get("text"),
        )


def merged(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Headers with those of one name as a list (RFC 9110 section 5.3), as a line has them."""
    found: dict[str, str] = {}
    for name, value in headers:
        found[name] = f"{found[name]}, {value}" if name in found else value
    return tuple(found.items())


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    # A time is compared and added up as a float, which an integer of any length does not fit.
    return -_MOST_SECONDS < value < _MOST_SECONDS


def _check(line: dict[str, Any]) -> None:
    """What the schema says of a line, by hand: a run has tens of thousands of them."""
    if not _is_number(line["t"]) or line["t"] < 0:
        raise ValueError("`t` must be a number of seconds")
    if line["dir"] not in _DIRECTIONS or line["kind"] not in _KINDS:
        raise ValueError(f"`{line['dir']}` and `{line['kind']}` are no direction and kind")
    if (line["dir"] == "note") != (line["kind"] == "note"):
        raise ValueError("a note is of no direction")
    for name, least in (("session", 0), ("code", 0), ("status", 100)):
        value = line.get(name, least)
        if type(value) is not int or value < least:
            raise ValueError(f"`{name}` must be an integer from {least}")
    if type(line.get("fin", True)) is not bool:
        raise ValueError("`fin` must be true or false")
    for name in ("reason", "method", "target", "text"):
        if not isinstance(line.get(name, ""), str):
            raise ValueError(f"`{name}` must be a string")
    if line["kind"] == "note" and "text" not in line:
        raise ValueError("a note must have `text`")
    for name in ("headers", "data"):
        value = line.get(name, {})
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise ValueError(f"`{name}` must hold strings by name")
    data = line.get("data", {"text": ""})
    if len(data) != 1 or not set(data) <= {"text", "hex", "b64"}:
        raise ValueError("`data` must hold one of `text`, `hex` and `b64`")


def _data_to_json(data: bytes, kind: str) -> dict[str, str]:
    if kind != "binary" or data[:1] == b"{":
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            pass
        else:
            return {"text": text}
    if len(data) > _LONG:
        return {"b64": base64.b64encode(data).decode()}
    return {"hex": data.hex()}


def _data_from_json(data: dict[str, str]) -> bytes:
    if "hex" in data:
        return bytes.fromhex(data["hex"])
    if "b64" in data:
        return base64.b64decode(data["b64"], validate=True)
    return data["text"].encode()


@dataclass(slots=True)
class Transcript:
    """Everything one scenario put on the wire and got back, in the order it was seen.

    `unfinished` says why the scenario could not be played to its end, or is None. `broken` says
    what went wrong in the suite or between it and the endpoint, so that nothing can be judged.
    `role` is that of who is judged by it; the directions are always those of the suite.
    """

    scenario: str
    endpoint: str = "endpoint"
    claims: EndpointClaims = field(default_factory=EndpointClaims)
    started: str | None = None
    entries: list[Entry] = field(default_factory=list)
    unfinished: str | None = None
    broken: str | None = None
    role: Role = "endpoint"

    def add(self, entry: Entry) -> None:
        """Record one more line."""
        self.entries.append(entry)

    def sessions(self) -> tuple[int, ...]:
        """The ordinals of the connections recorded."""
        return tuple(sorted({entry.session for entry in self.entries if entry.session}))

    def session(self, ordinal: int) -> list[Entry]:
        """The lines of one connection."""
        return [entry for entry in self.entries if entry.session == ordinal]

    def is_http(self, ordinal: int) -> bool:
        """Whether a connection carried HTTP exchanges, not a session."""
        return any(e.session == ordinal and e.kind == "http-request" for e in self.entries)

    def header(self) -> dict[str, Any]:
        """The first line."""
        head: dict[str, Any] = {
            "utterwire_transcript": 1,
            "suite": suite_name(),
            "endpoint": self.endpoint,
            "scenario": self.scenario,
        }
        if self.role != "endpoint":
            head["role"] = self.role
        if self.started is not None:
            head["started"] = self.started
        return head | {"claims": self.claims.to_table()}

    def to_lines(self) -> Iterator[str]:
        """The transcript as JSON lines, without line ends."""
        yield json.dumps(self.header())
        for entry in self.entries:
            yield json.dumps(entry.to_json())
        for label, text in (("unfinished", self.unfinished), ("broken", self.broken)):
            if text is not None:
                t = self.entries[-1].t if self.entries else 0.0
                yield json.dumps(Entry(t, "note", "note", 0, text=f"{label}: {text}").to_json())

    @classmethod
    def from_lines(cls, lines: Iterable[str]) -> Transcript:
        """Read what `to_lines` wrote.

        Raises:
            ValueError: there is no header, or a line is not JSON of the schema's shape.
        """
        remaining = iter(lines)
        number = 1
        try:
            header = _header(next(remaining, ""))
            transcript = cls(
                _string(header.get("scenario", ""), "scenario"),
                _string(header["endpoint"], "endpoint"),
                EndpointClaims.from_table(header.get("claims", {})),
                header.get("started"),
                role=header.get("role", "endpoint"),
            )
            if transcript.role not in _ROLES:
                raise ValueError("`role` must be endpoint or client")
            for line in remaining:
                number += 1
                entry = Entry.from_json(json.loads(line))
                text = entry.text or ""
                if entry.kind == "note" and text.startswith("unfinished: "):
                    transcript.unfinished = text.removeprefix("unfinished: ")
                elif entry.kind == "note" and text.startswith("broken: "):
                    transcript.broken = text.removeprefix("broken: ")
                else:
                    transcript.add(entry)
        except _NoTranscript:
            raise
        except UnicodeDecodeError as error:
            raise ValueError(f"line {number}: not a transcript: it is not UTF-8") from error
        except json.JSONDecodeError as error:
            raise ValueError(f"line {number}: not a transcript: not JSON: {error.msg}") from error
        except KeyError as error:
            raise ValueError(f"line {number}: not a transcript: {error} is missing") from error
        except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"line {number}: the file is damaged or cut off") from error
        except RecursionError as error:
            raise ValueError(f"line {number}: not a transcript: nested too deeply") from error
        except (TypeError, AttributeError) as error:
            raise ValueError(f"line {number}: not a transcript: of another shape") from error
        except ValueError as error:
            raise ValueError(f"line {number}: not a transcript: {error}") from error
        return transcript

    def save(self, path: Path) -> None:
        """Write the transcript to a file; it is compressed if the name ends in `.xz` or `.gz`.

        Raises:
            OSError: the file cannot be written.
        """
        with _writing(path) as file:
            file.writelines(f"{line}\n".encode() for line in self.to_lines())

    @classmethod
    def load(cls, path: Path) -> Transcript:
        """Read a transcript from a file, compressed or not, whatever its name.

        Raises:
            ValueError: it is not one, or too large; the text names the line.
            OSError: the file cannot be read.
        """
        with path.open("rb") as raw:
            start = raw.read(len(_XZ))
            raw.seek(0)
            if start.startswith(_GZIP):
                with gzip.GzipFile(fileobj=raw) as unzipped:
                    return cls.from_lines(_lines(unzipped))
            if start == _XZ:
                with lzma.LZMAFile(raw) as unpacked:
                    return cls.from_lines(_lines(unpacked))
            return cls.from_lines(_lines(raw))


class _NoTranscript(ValueError):
    """Something else altogether; no line of it is to blame."""


def _header(line: str) -> dict[str, Any]:
    if not line.strip():
        raise _NoTranscript("the file is empty" if not line else "not a transcript: a blank line")
    try:
        header = json.loads(line)
    except json.JSONDecodeError:
        header = None
    if not isinstance(header, dict) or "utterwire_transcript" not in header:
        raise _NoTranscript("not a transcript: the first line is not the header of one")
    version = header["utterwire_transcript"]
    if version != 1:
        told = json.dumps(version)[:40]
        raise _NoTranscript(f"it is a transcript of format {told}; this is for 1")
    return header


def _string(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"`{name}` must be a string")
    return value


def _writing(path: Path) -> _Octets:
    if path.suffix == ".xz":
        # The same sentence comes back again and again, far apart: xz sees that, gzip does not.
        return lzma.open(path, "wb", preset=1)
    if path.suffix == ".gz":
        return gzip.open(path, "wb")
    return path.open("wb")


def _lines(file: _Octets) -> Iterator[str]:
    """The lines of a file of UTF-8, up to a bound."""
    left = MOST_FILE_BYTES
    while line := file.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise ValueError(f"it is larger than {MOST_FILE_BYTES} bytes")
        yield line.decode("utf-8")
