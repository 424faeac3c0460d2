"""The player of pages in a browser: ES modules, to be served as they are, beside each other.

They are written once and served by whoever has a page: the reference server, and `utterwire latency
--browser`. `player.md` tells how to use them in a page of one's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

__all__ = ["modules"]


@cache
def modules() -> Mapping[str, bytes]:
    """The files by name: ES modules (``.js``) and how to use them (``.md``)."""
    return {
        file.name: file.read_bytes()
        for file in resources.files(__package__).iterdir()
        if file.name.endswith((".js", ".md"))
    }
