"""``spec/states.md`` and ``states.json`` of the schemas, made from the tables of ``states``.

``python -m utterwire_protocol.state_chart`` prints the document; ``--write FILE`` writes it, and
``--check FILE`` exits with 1 where the file says something else. A file whose name ends in
``.json`` gets the same tables as data, for programs that may not import the core.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from utterwire_protocol.states import (
    TRANSITIONS,
    UTTERANCE_TRANSITIONS,
    Move,
    Role,
    SessionInput,
    SessionState,
    UtteranceInput,
    UtteranceState,
    Verdict,
)

__all__ = ["data", "main", "render"]

_StateT = TypeVar("_StateT", bound=Enum)
_InputT = TypeVar("_InputT", bound=Enum)

_HEAD = """\
# States

This file is made from the tables of the protocol core (`python -m utterwire_protocol.state_chart
--write spec/states.md`); an edit by hand is lost. [protocol.md](protocol.md) has the rules; this is
what follows from them for a program that keeps the state of a session.

A session and each of its utterances have a state, at the endpoint and at the client. In the tables
a column is a state, a row is what can meet it, and a cell is the state after. *Rejected* and
*ignored* messages change no utterance. "-" means that it cannot happen, or that doing it is a fault
of the one who does.
"""

_SESSION_STATES = {
    SessionState.FRESH: "no message yet; `hello` is allowed",
    SessionState.OPEN: "requests are taken",
    SessionState.CLOSING: "`close` was read (by the client: sent); what was accepted is finished",
    SessionState.GOING_AWAY: "the endpoint is shutting down; what was accepted is finished",
    SessionState.CLOSED: "`session_closed` is on its way or read, or the transport is lost",
}

_UTTERANCE_STATES = {
    UtteranceState.WAITING: "accepted (by the client: sent), not started",
    UtteranceState.RUNNING: "started",
    UtteranceState.FINISHING: "all is made; the terminal message is not handed over yet",
    UtteranceState.COMPLETED: "ended in `synthesis_complete`",
    UtteranceState.FAILED: "ended in `error`",
    UtteranceState.CANCELLED: "ended in `cancelled`, or by a disconnect",
    UtteranceState.REJECTED: "was never accepted",
    UtteranceState.LOST: "the session ended first",
}

_PROSE = {
    Role.ENDPOINT: (
        """\
A message is read, judged and acted on before the next. *An invalid message* is one that fails
[validation](protocol.md#validation), whatever its type. A valid request can still be rejected with
`duplicate_request_id`, `queue_full` or `overloaded`; that makes no other move. The first of `close`
and shutdown gives the reason of `session_closed`. The idle limit can pass only while nothing is
unended. *The last unended utterance ends* at once where none is unended when `close` or the
shutdown comes: a session that is fresh then is closed, and no `hello` that meets *going away* is
message 1. *The endpoint ends the session* for a slow reader, a message that is too big, or policy.
""",
        """\
*Unended* are waiting, running and finishing. The first unended utterance counts as running for
[the queue](protocol.md#queue), whether it was started or not. An utterance that is cancelled while
finishing ends in `cancelled`: its completion was never sent.
""",
    ),
    Role.CLIENT: (
        """\
What the client sends is in the first rows, what it reads below. A chunk is whatever an endpoint
sends but `session_closed`.
""",
        """\
A client that is strict would do without three cells, which serve endpoints that came before this
document: audio, marks and completion of an utterance that was not started.
""",
    ),
}


def _identifier(state: Enum) -> str:
    return str(state.value).replace(" ", "_")


def _label(event: Enum) -> str:
    value = str(event.value)
    wire = isinstance(event, UtteranceInput) or event in (
        SessionInput.HELLO,
        SessionInput.SYNTHESIZE,
        SessionInput.CANCEL,
        SessionInput.KEEPALIVE,
        SessionInput.CLOSE,
        SessionInput.SESSION_CLOSED,
    )
    if not wire or event in (
        UtteranceInput.AUDIO,
        UtteranceInput.SESSION_ENDS,
        UtteranceInput.TRANSPORT_LOST,
    ):
        return value
    name, _, rest = value.partition(" ")
    name, comma, _ = name.partition(",")
    return f"`{name}`{comma}{' ' if rest else ''}{rest}"


def _cell(move: Move | UtteranceState | None) -> str:
    if move is None:
        return "-"
    if isinstance(move, UtteranceState):
        return str(move.value)
    if move.verdict is Verdict.ACT:
        return str(move.to.value)
    if move.verdict is Verdict.IGNORE:
        return "ignored"
    code = f" with `{move.code}`" if move.code else ""
    return f"{move.to.value}; rejected{code}"


def _table(
    rows: Mapping[_StateT, Mapping[_InputT, Move | UtteranceState]], inputs: Sequence[_InputT]
) -> list[str]:
    states = [state for state in rows if rows[state]]
    lines = [
        "| | " + " | ".join(f"**{state.value}**" for state in states) + " |",
        "| --- |" + " --- |" * len(states),
    ]
    for event in inputs:
        cells = [_cell(rows[state].get(event)) for state in states]
        if any(cell != "-" for cell in cells):
            lines.append(f"| {_label(event)} | " + " | ".join(cells) + " |")
    return lines


def _diagram(edges: Mapping[tuple[Enum, Enum], list[str]], first: Enum, last: list[Enum]) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {_identifier(first)}"]
    for (source, target), labels in edges.items():
        lines.append(f"    {_identifier(source)} --> {_identifier(target)}: {', '.join(labels)}")
    lines += [f"    {_identifier(state)} --> [*]" for state in last]
    return "\n".join([*lines, "```"])


def _edges(
    rows: Mapping[_StateT, Mapping[_InputT, Move | UtteranceState]],
) -> dict[tuple[Enum, Enum], list[str]]:
    """The labels of all moves from one state to another, in the order of the table."""
    edges: dict[tuple[Enum, Enum], list[str]] = {}
    for state, row in rows.items():
        for event, move in row.items():
            target = move.to if isinstance(move, Move) else move
            if target is not state:
                edges.setdefault((state, target), []).append(_label(event).replace("`", ""))
    return edges


def _legend(states: Mapping[_StateT, str], used: Sequence[_StateT]) -> list[str]:
    return [
        "| state | means |",
        "| --- | --- |",
        *(f"| **{state.value}** | {states[state]} |" for state in used),
    ]


def render() -> str:
    """The whole document."""
    parts = [_HEAD]
    for role in (Role.ENDPOINT, Role.CLIENT):
        session, utterance = TRANSITIONS[role], UTTERANCE_TRANSITIONS[role]
        session_prose, utterance_prose = _PROSE[role]
        ended = [state for state, row in utterance.items() if not row]
        name = role.value.capitalize()
        parts += [
            f"## {name}: session\n",
            "\n".join(_legend(_SESSION_STATES, list(session))) + "\n",
            session_prose,
            "\n".join(_table(session, list(SessionInput))) + "\n",
            _diagram(_edges(session), SessionState.FRESH, [SessionState.CLOSED]) + "\n",
            f"## {name}: utterance\n",
            "\n".join(_legend(_UTTERANCE_STATES, list(utterance))) + "\n",
            utterance_prose,
            "\n".join(_table(utterance, list(UtteranceInput))) + "\n",
            _diagram(_edges(utterance), UtteranceState.WAITING, list(ended)) + "\n",
        ]
    return "\n".join(parts)


def _move(move: Move | UtteranceState) -> dict[str, str]:
    if isinstance(move, UtteranceState):
        return {"to": move.value}
    cell = {"to": move.to.value, "verdict": move.verdict.value}
    return cell | ({"code": move.code} if move.code is not None else {})


def data() -> dict[str, Any]:
    """The tables of both roles as JSON: role, then `session` or `utterance`, state, input, cell."""
    tables: dict[str, Any] = {
        "title": "The states of a session and of an utterance, and every legal move between them",
        "clause": "states.md",
    }
    for role in TRANSITIONS:
        tables[role.value] = {
            part: {
                state.value: {event.value: _move(move) for event, move in row.items()}
                for state, row in table.items()
            }
            for part, table in (
                ("session", TRANSITIONS[role]),
                ("utterance", UTTERANCE_TRANSITIONS[role]),
            )
        }
    return tables


def _content(name: str) -> bytes:
    if name.endswith(".json"):
        return (json.dumps(data(), indent=2) + "\n").encode()
    return render().encode()


def main(arguments: Sequence[str]) -> int:
    """Print, write or check the document; 1 where the check finds another, 2 for wrong use."""
    match list(arguments):
        case []:
            print(render(), end="")
            return 0
        case ["--write", name]:
            Path(name).write_bytes(_content(name))
            return 0
        case ["--check", name]:
            path = Path(name)
            if path.is_file() and path.read_bytes() == _content(name):
                return 0
            print(
                f"{name} differs from the tables of the core: "
                f"run python -m utterwire_protocol.state_chart --write {name}",
                file=sys.stderr,
            )
            return 1
        case _:
            print(
                "usage: python -m utterwire_protocol.state_chart [--write FILE | --check FILE]",
                file=sys.stderr,
            )
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
