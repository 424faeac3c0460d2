"""Where the driver writes down what crosses the wire."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from utterwire_conformance.transcript import Case, Direction, Entry, Kind, Transcript, merged

__all__ = ["Recorder"]


class Recorder:
    """Adds lines to a transcript, on one monotonic clock, without the secrets it is told of."""

    def __init__(
        self,
        transcript: Transcript,
        secrets: Iterable[str] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.transcript = transcript
        self._clock = clock
        self._began = clock()
        self._secrets = tuple(secret for secret in secrets if secret)
        self._sessions = 0

    @property
    def now(self) -> float:
        """Seconds since the recording began."""
        return self._clock() - self._began

    @property
    def sessions(self) -> int:
        """How many connections have been opened."""
        return self._sessions

    def next_session(self) -> int:
        """The ordinal of a connection about to be opened."""
        self._sessions += 1
        return self._sessions

    def begin_at(self, session: int) -> None:
        """Let the connection opened next have this ordinal."""
        self._sessions = session - 1

    def forget(self, session: int) -> None:
        """Strike out the last connection, which never came to be; its ordinal is used again."""
        self.transcript.entries[:] = [e for e in self.transcript.entries if e.session != session]
        self._sessions = session - 1

    def record(self, direction: Direction, kind: Kind, session: int, **fields: Any) -> Entry:
        """Write down one line and give it back.

        It is what a reader of the saved transcript gets, to the digit, so that nothing is judged
        live that a file does not show.
        """
        entry = self._without_secrets(Entry(round(self.now, 6), direction, kind, session, **fields))
        if entry.headers:
            entry = replace(entry, headers=merged(entry.headers))
        self.transcript.add(entry)
        return entry

    def note(self, text: str, session: int = 0) -> Entry:
        """Write down a remark."""
        return self.record("note", "note", session, text=text)

    def case(self, case: Case, session: int) -> Entry:
        """Write down why the next message is sent."""
        return self.note(case.to_note(), session)

    def _without_secrets(self, entry: Entry) -> Entry:
        for secret in self._secrets:
            data = entry.data.replace(secret.encode(), b"***") if entry.data else entry.data
            headers = tuple((name, value.replace(secret, "***")) for name, value in entry.headers)
            target = entry.target and entry.target.replace(secret, "***")
            text = entry.text and entry.text.replace(secret, "***")
            entry = replace(entry, data=data, headers=headers, target=target, text=text)
        return entry
