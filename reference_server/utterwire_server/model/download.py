"""Fetching a file over HTTP so that a broken-off transfer goes on where it stopped."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TextIO

from utterwire_server.model.folder import ModelError
from utterwire_server.model.manifest import digest
from utterwire_server.model.source import Expected

if TYPE_CHECKING:
    import httpx

__all__ = ["Downloader", "Fetched", "Progress"]

_ATTEMPTS: Final = 5
_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0)
_LONGEST_PAUSE_S: Final = 30.0
# For files whose size is not known: ten times the largest of those that are.
_MOST_BYTES: Final = 2**32
# The hub answers with a redirect whose headers tell the commit and, for large files, the sha256.
_COMMIT_HEADER: Final = "x-repo-commit"
_LINKED_HEADER: Final = "x-linked-etag"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


class _Again(Exception):
    """The transfer can be tried again; the message says what happened."""

    def __init__(self, problem: str, pause_s: float | None = None) -> None:
        super().__init__(problem)
        self.pause_s = pause_s


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file that is there, whole: `commit` is what the hub says it comes from."""

    size: int
    sha256: str
    commit: str | None
    confirmed: bool


class Progress:
    """Tells a person how far a transfer is: in place on a terminal, else a line for each file."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._shown_at = 0.0

    def part(self, name: str, done: int, total: int | None) -> None:
        """`done` bytes of `total` are there."""
        now = time.monotonic()
        if not self._live or now - self._shown_at < 0.1:
            return
        self._shown_at = now
        share = f"{100 * done / total:3.0f} %" if total else ""
        self._stream.write(f"\r\x1b[K{name}  {done / 1e6:.1f} MB  {share}")
        self._stream.flush()

    def line(self, text: str) -> None:
        """A line that stays."""
        self._stream.write(f"\r\x1b[K{text}\n" if self._live else f"{text}\n")
        self._stream.flush()


@dataclass(slots=True)
class _Part:
    """What is known of a file that is not whole yet, kept beside it."""

    url: str
    etag: str | None = None
    commit: str | None = None
    linked: str | None = None


class Downloader:
    """Fetches files into a folder of its own, and takes up what an earlier one left there.

    :param pause: waits so many seconds before a transfer is tried again.
    """

    def __init__(
        self,
        folder: Path,
        progress: Progress,
        *,
        pause: Callable[[float], None] = time.sleep,
        timeout_s: float = 30.0,
    ) -> None:
        try:
            import httpx
        except ModuleNotFoundError:
            raise ModelError("httpx is not installed; pip install 'utterwire[model]'") from None
        self._httpx = httpx
        self._client = httpx.Client(
            follow_redirects=True, timeout=timeout_s, headers={"Accept-Encoding": "identity"}
        )
        self._folder = folder
        self._progress = progress
        self._pause = pause

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def fetch(self, url: str, name: str, expected: Expected) -> Fetched:
        """Have `url` as the file `name` of the folder, whole and with the digest it should have.

        The digest is the one in `expected`, else the one that the hub's headers tell, else it is
        only recorded.

        :raises ModelError: if it is not to be had, or it is not what it should be.
        """
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = self._known(path, url)
        # What an earlier run left may not fit what is there now: then it is fetched once more.
        for left in (path.is_file() or _unfinished(path).is_file(), False):
            if not path.is_file():
                part = self._transfer(url, name, expected)
            size, sha256 = path.stat().st_size, digest(path)
            wanted = expected.sha256 or part.linked
            if wanted in (None, sha256) and expected.size in (None, size):
                self._progress.line(f"{name}  {size / 1e6:.1f} MB  sha256 {sha256[:12]}")
                return Fetched(size, sha256, part.commit, confirmed=expected.sha256 is not None)
            path.unlink()
            _notes(path).unlink(missing_ok=True)
            if not left:
                break
        raise ModelError(
            f"{url} is not the file it should be: sha256 {sha256}, {size} bytes; "
            f"expected {wanted or 'any sha256'}, {expected.size or 'any number of'} bytes"
        )

    def _known(self, path: Path, url: str) -> _Part:
        """What an earlier run left; nothing, if that was of another address."""
        try:
            part = _Part(**json.loads(_notes(path).read_bytes()))
        except (OSError, ValueError, TypeError):
            part = _Part("")
        if part.url != url:
            for each in (path, _unfinished(path), _notes(path)):
                each.unlink(missing_ok=True)
            part = _Part(url)
        return part

    def _transfer(self, url: str, name: str, expected: Expected) -> _Part:
        path = self._folder / name
        problem = ""
        for attempt in range(_ATTEMPTS):
            try:
                part = self._attempt(url, name, expected)
            except (_Again, self._httpx.TransportError) as error:
                problem = str(error) or type(error).__name__
                if attempt + 1 < _ATTEMPTS:
                    asked_s = error.pause_s if isinstance(error, _Again) else None
                    pause_s = _PAUSES_S[attempt] if asked_s is None else asked_s
                    self._progress.line(f"{name}  {problem}; again in {pause_s:g} s")
                    self._pause(pause_s)
                continue
            except (self._httpx.HTTPError, self._httpx.InvalidURL) as error:
                raise ModelError(f"{url} cannot be fetched: {error}") from error
            os.replace(_unfinished(path), path)
            return part
        raise ModelError(
            f"{url} cannot be fetched: {problem} ({_ATTEMPTS} attempts; "
            "run the command again to go on from here)"
        )

    def _attempt(self, url: str, name: str, expected: Expected) -> _Part:
        path = self._folder / name
        unfinished = _unfinished(path)
        part = self._known(path, url)
        # Without an entity tag, only a digest can tell that both halves are of the same file.
        have = unfinished.stat().st_size if unfinished.is_file() else 0
        if have and not (part.etag or expected.sha256):
            have = 0
        headers = {}
        if have:
            headers["Range"] = f"bytes={have}-"
            if part.etag:
                headers["If-Range"] = part.etag
        with self._client.stream("GET", url, headers=headers) as response:
            start = self._start(response, url, have)
            if start is None:
                unfinished.unlink(missing_ok=True)
                raise _Again("what was there did not fit", 0.0)
            part = _of(url, response)
            _notes(path).write_text(json.dumps(_plain(part)), encoding="utf-8")
            length = response.headers.get("content-length", "")
            total = start + int(length) if length.isdigit() else expected.size
            done, most = start, expected.size or _MOST_BYTES
            with unfinished.open("r+b" if start else "wb") as file:
                file.seek(start)
                file.truncate()
                # In pieces as they come: what is held back to fill one up is lost if it breaks.
                for piece in response.iter_raw():
                    file.write(piece)
                    done += len(piece)
                    if done > most:
                        file.truncate(0)
                        raise ModelError(f"{url} is longer than the {most} bytes it may have")
                    self._progress.part(name, done, total)
                file.flush()
                os.fsync(file.fileno())
        if total is not None and done < total:
            raise _Again(f"it ended after {done} of {total} bytes")
        return part

    def _start(self, response: httpx.Response, url: str, have: int) -> int | None:
        """From which byte on the answer is; None if what is there has to go first."""
        status = response.status_code
        if status == 206:
            begins = re.match(r"bytes (\d+)-", response.headers.get("content-range", ""))
            return have if have and begins and int(begins[1]) == have else None
        if status == 416 and have:
            return None
        if status == 200:
            return 0
        if status in (408, 429) or status >= 500:
            after = response.headers.get("retry-after", "")
            pause_s = min(float(after), _LONGEST_PAUSE_S) if after.isdigit() else None
            raise _Again(f"the server answers {status}", pause_s)
        raise ModelError(f"{url} cannot be fetched: the server answers {status}")


def _unfinished(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _notes(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _plain(part: _Part) -> dict[str, str | None]:
    return {"url": part.url, "etag": part.etag, "commit": part.commit, "linked": part.linked}


def _of(url: str, response: httpx.Response) -> _Part:
    def first(name: str) -> str | None:
        for each in (*response.history, response):
            if value := each.headers.get(name):
                return str(value)
        return None

    etag = response.headers.get("etag")
    linked = (first(_LINKED_HEADER) or "").strip('"')
    commit = first(_COMMIT_HEADER) or ""
    return _Part(
        url,
        etag=None if etag is None or etag.startswith("W/") else etag,
        # It becomes part of a path.
        commit=commit if _COMMIT.fullmatch(commit) else None,
        linked=linked if _SHA256.fullmatch(linked) else None,
    )
