"""`utterwire-conformance clause`: the text behind an id or a clause that a report names."""

from __future__ import annotations

from collections.abc import Sequence

from .command import PROGRAM, Parser, complain, show
from .requirements import requirements
from .requirements.text import clause_text

__all__ = ["main_clause"]


def main_clause(arguments: Sequence[str]) -> int:
    """`clause NAME`: print a clause; the exit status is 0, or 2 where there is none."""
    parser = Parser(
        prog=f"{PROGRAM} clause",
        description="Print what the specification says, as it was shipped with this suite.",
    )
    parser.add_argument(
        "name", metavar="NAME", help="a requirement (order.fifo) or a clause (protocol.md#order)"
    )
    try:
        options = parser.parse_args(list(arguments))
        text = clause_text(options.name)
    except SystemExit as stop:
        return int(stop.code or 0)
    except KeyError:
        part = options.name.partition(".")[0]
        near = [row.id for row in requirements() if row.id.partition(".")[0] == part][:5]
        hint = f" (there are: {', '.join(near)} …)" if near else ""
        return complain(f"there is no requirement or clause {options.name!r}{hint}")
    except OSError as error:
        return complain(f"the specification cannot be read: {error}")
    row = next((row for row in requirements() if row.id == options.name), None)
    head = [f"{row.id} ({row.level}, {row.clause}): {row.text}", ""] if row is not None else []
    show([*head, text.rstrip()])
    return 0
