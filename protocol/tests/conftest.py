"""Fixtures: an endpoint and a client in memory, and what they hand over in a form to compare."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings
from utterwire_protocol import (
    Chunk,
    Connection,
    EndpointOptions,
    Event,
    FrameKind,
    Limits,
    Role,
)

# A mutation run wants to know whether a test fails, not the smallest example of it.
if "MUTANT_UNDER_TEST" in os.environ:
    settings.register_profile("mutants", phases=(Phase.generate,))
    settings.load_profile("mutants")


def make_options(**changes: Any) -> EndpointOptions:
    limits = changes.pop("limits", {})
    return EndpointOptions(
        **{
            "voices": ("v", "w"),
            "profiles": frozenset({"interrupt", "negotiate"}),
            "limits": Limits(**{"max_waiting": 8, **limits}),
            **changes,
        }
    )


class EndpointUnderTest:
    """An endpoint core, its messages as dicts and its audio as bytes."""

    def __init__(self, **changes: Any) -> None:
        self.core = Connection(Role.ENDPOINT, now=0.0, endpoint=make_options(**changes))
        self.now = 0.0

    def read(self, message: object, **fields: Any) -> tuple[Event, ...]:
        """Read a message: bytes or str as they are, anything else as JSON."""
        if not isinstance(message, (bytes, str)):
            message = json.dumps(message)
        return self.core.receive(message, self.now)

    def take(self, most: int = 10_000) -> list[Any]:
        """What it hands over, at most so many chunks."""
        taken: list[Any] = []
        while len(taken) < most and (chunk := self.core.next_chunk(self.now)) is not None:
            taken.append(shown(chunk))
        return taken

    def speak(self, seq: int, audio: bytes = b"\0\0" * 8) -> None:
        """Make a whole utterance; nothing is handed over."""
        self.core.start(seq, self.now)
        self.core.audio(seq, audio, self.now)
        self.core.complete(seq, self.now)


def shown(chunk: Chunk) -> Any:
    if chunk.kind is FrameKind.BINARY:
        return chunk.data
    return json.loads(chunk.data)


@pytest.fixture
def options() -> Callable[..., EndpointOptions]:
    return make_options


@pytest.fixture
def endpoint() -> EndpointUnderTest:
    return EndpointUnderTest()


@pytest.fixture
def endpoint_with() -> type[EndpointUnderTest]:
    return EndpointUnderTest


class ClientUnderTest:
    """A client core; what it reads is given as dicts, or bytes for audio."""

    def __init__(self) -> None:
        self.core = Connection(Role.CLIENT, now=0.0)

    def read(self, *chunks: Any) -> list[Event]:
        events: list[Event] = []
        for chunk in chunks:
            data = chunk if isinstance(chunk, (bytes, str)) else json.dumps(chunk)
            events += self.core.receive(data, 0.0)
        return events

    def sent(self) -> list[Any]:
        taken = []
        while (chunk := self.core.next_chunk()) is not None:
            taken.append(shown(chunk))
        return taken


@pytest.fixture
def client() -> ClientUnderTest:
    return ClientUnderTest()
