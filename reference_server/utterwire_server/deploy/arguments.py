"""Arguments that commands of ``utterwire-deploy`` have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeAlias

from utterwire_server.parser import Parser

__all__ = ["Commands", "add_command", "count", "seconds"]

# Made by `add_subparsers`; argparse has no public name for it.
Commands: TypeAlias = Any


def add_command(
    commands: Commands,
    name: str,
    text: str,
    *,
    of: str = "the endpoint",
    dry: bool = True,
    aws: bool = True,
) -> Parser:
    """Add a command.

    :param of: whose NAME it takes.
    :param dry: whether it has ``--dry-run``.
    :param aws: whether it asks AWS about something that has a NAME.
    """
    made: Parser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    if aws:
        made.add_argument("name", metavar="NAME", help=f"name of {of}")
        made.add_argument("--region", help="AWS region (default: the profile's)")
        made.add_argument("--profile", help="AWS profile (default: AWS_PROFILE)")
    if dry:
        made.add_argument(
            "--dry-run", action="store_true", help="show what would be done; ask AWS nothing"
        )
    return made


def count(text: str) -> int:
    """A whole number above 0.

    :raises argparse.ArgumentTypeError: if it is none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def seconds(most: int) -> Callable[[str], int]:
    """What reads a whole number of seconds, from 60 to ``most``.

    It raises `argparse.ArgumentTypeError` for anything else.
    """

    def read(text: str) -> int:
        if not text.isdecimal() or not 60 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not 60 to {most} seconds")
        return int(text)

    return read
