"""The tables of states (``states.md``) as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from utterwire_schemas.resource import read

__all__ = ["Cell", "session_states", "utterance_states"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the table of a session.

    ``to`` is the state after the input; ``verdict`` tells whether the input is acted on, rejected
    or ignored; ``code`` is the code of the rejection, where only one is right.
    """

    to: str
    verdict: Literal["act", "reject", "ignore"]
    code: str | None = None


def session_states(role: Literal["endpoint", "client"]) -> Mapping[str, Mapping[str, Cell]]:
    """The moves of a session as that role keeps it: by state, then by input, both as they are
    called in ``states.md``. An input that is absent cannot happen, or is a fault.

    Raises ``KeyError`` where there is no such role.
    """
    table = read("states.json")[role]["session"]
    return {
        state: {event: Cell(**cell) for event, cell in row.items()} for state, row in table.items()
    }


def utterance_states(role: Literal["endpoint", "client"]) -> Mapping[str, Mapping[str, str]]:
    """The moves of an utterance, likewise: by state, then by input, the state after.

    Raises ``KeyError`` where there is no such role.
    """
    table = read("states.json")[role]["utterance"]
    return {
        state: {event: cell["to"] for event, cell in row.items()} for state, row in table.items()
    }
