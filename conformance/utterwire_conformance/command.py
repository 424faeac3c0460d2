"""What all the commands have in common: how they refuse, and how they print."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from typing import Final, NoReturn

__all__ = ["PROGRAM", "Parser", "complain", "printable", "show"]

PROGRAM: Final = "utterwire-conformance"


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, with the same beginning for every command."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{PROGRAM}: {message}\n")


def complain(text: str) -> int:
    """Say what is wrong, in one line on stderr; the exit status of what cannot be done."""
    print(f"{PROGRAM}: {printable(text)}", file=sys.stderr)
    return 2


def show(lines: Iterable[str]) -> None:
    """Print lines; somebody who reads no further (`| head`) is no error."""
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still to be flushed at exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def printable(text: str) -> str:
    """The text with everything escaped that a terminal might act on, or show as something else."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
