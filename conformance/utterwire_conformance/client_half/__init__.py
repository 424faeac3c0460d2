"""The client half of the suite: scripted endpoints that a client under test is run against.

`utterwire-conformance client --command "CMD {url}"`. The contract that a client keeps so that it
can be judged stands in `conformance/README.md`.
"""

from __future__ import annotations

from .contract import Client, ContractError
from .script import SCRIPTS

__all__ = ["SCRIPTS", "Client", "ContractError", "main_client"]


def main_client(arguments: list[str]) -> int:
    """Run `utterwire-conformance client`; the exit status."""
    from .command import main

    return main(arguments)
