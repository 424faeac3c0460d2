"""Reading ``text/event-stream`` (the HTML standard, section 9.2.6), however it is delivered."""

from dataclasses import dataclass

from utterwire_client.errors import UtterwireError

__all__ = ["MAX_EVENT_BYTES", "EventStreamReader", "EventTooLarge", "ServerSentEvent"]

#: What one event may hold: a chunk of 64 KiB is 88 KiB in base64; others are small.
MAX_EVENT_BYTES = 1024 * 1024

_BOM = b"\xef\xbb\xbf"


class EventTooLarge(UtterwireError):
    """An event, or a line of one, is larger than anybody should hold."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event: its name (``message`` where it has none) and its data, lines joined by LF."""

    name: str
    data: str


class EventStreamReader:
    """Cuts a stream of octets, fed in any pieces, into events.

    An event is given out once its blank line has come: where the pieces end means nothing
    (``sse.md#framing``). Lines end in LF, CR or both. What has no blank line after it when the
    stream ends is no event.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._begun = False
        self._skip_lf = False
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    @property
    def in_event(self) -> bool:
        """Whether something has come that belongs to an event which has not ended."""
        return bool(self._buffer or self._data or self._name)

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Take octets, give back the events that are whole now.

        Raises :class:`EventTooLarge`.
        """
        self._buffer += data
        if not self._begun:
            if len(self._buffer) < len(_BOM) and _BOM.startswith(bytes(self._buffer)):
                return []
            self._begun = True
            if self._buffer.startswith(_BOM):
                del self._buffer[: len(_BOM)]
        events = []
        while (line := self._line()) is not None:
            event = self._take(line.decode("utf-8", "replace"))
            if event is not None:
                events.append(event)
        if self._size + len(self._buffer) > MAX_EVENT_BYTES:
            raise EventTooLarge(f"an event of more than {MAX_EVENT_BYTES} bytes came")
        return events

    def _line(self) -> bytes | None:
        buffer = self._buffer
        if self._skip_lf and buffer:
            self._skip_lf = False
            if buffer[0] == 0x0A:
                del buffer[:1]
        # Searching begins where it ended, so that a line in many pieces costs no more than one.
        ends = [
            place
            for place in (buffer.find(b"\n", self._searched), buffer.find(b"\r", self._searched))
            if place >= 0
        ]
        if not ends:
            self._searched = len(buffer)
            return None
        end = min(ends)
        line = bytes(buffer[:end])
        # The LF of CR LF may come with the next piece.
        self._skip_lf = buffer[end] == 0x0D
        del buffer[: end + 1]
        self._searched = 0
        return line

    def _take(self, line: str) -> ServerSentEvent | None:
        if not line:
            event = ServerSentEvent(self._name or "message", "\n".join(self._data))
            dispatched = bool(self._data)
            self._name, self._data, self._size = "", [], 0
            return event if dispatched else None
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
            # A line counts even where it is empty: it is held, too.
            self._size += len(value) + 1
        return None
