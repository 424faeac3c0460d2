"""Keeping secrets out of what is written down."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

__all__ = [
    "HIDDEN",
    "LEAST_SECRET",
    "public_command",
    "public_url",
    "redact",
    "secret_words",
    "secrets_of_command",
    "secrets_of_url",
]

HIDDEN: Final = "***"
"""What stands in the place of a secret."""

LEAST_SECRET: Final = 6
"""A word shorter than this is not looked for: `1` or `en` stand in every other message."""

# Headers that people set and whose values stand in ordinary answers as well; masking
# `application/json` wherever it is met would make up faults that are not there.
_HARMLESS: Final = re.compile(
    r"accept(-.*)?|content-.*|cache-control|connection|host|origin|pragma|referer|te"
    r"|transfer-encoding|upgrade|user-agent",
    re.IGNORECASE,
)
_TELLING: Final = re.compile(r"token|secret|passw|key|credential|auth|bearer", re.IGNORECASE)
_OPTION: Final = re.compile(r"(?P<name>-{0,2}[A-Za-z][\w.-]*)=(?P<value>.*)", re.DOTALL)


def secret_words(headers: Iterable[tuple[str, str]]) -> set[str]:
    """The secrets in headers: each value, and each of its words."""
    found: set[str] = set()
    for name, value in headers:
        if not _HARMLESS.fullmatch(name):
            found.update(w for w in (value, *value.split()) if len(w) >= LEAST_SECRET)
    return found - {"Bearer", "Digest", "Negotiate"}


def secrets_of_url(url: str) -> set[str]:
    """Password and query of a URL, as they stand there and as a server may repeat them."""
    parts = urlsplit(url)
    found = {parts.query, *(value for _, value in parse_qsl(parts.query))}
    if parts.password:
        found |= {parts.password, unquote(parts.password)}
    return {word for word in found if len(word) >= LEAST_SECRET}


def secrets_of_command(command: Sequence[str]) -> set[str]:
    """The values of options that sound like secrets (`--api-key=…`, `--token …`)."""
    return {word for word, _ in _hidden_words(command) if len(word) >= LEAST_SECRET}


def public_url(url: str) -> str:
    """A URL without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def public_command(command: Sequence[str]) -> list[str]:
    """A command with the values of options that sound like secrets masked."""
    shown = list(command)
    for word, place in _hidden_words(command):
        shown[place] = shown[place].removesuffix(word) + HIDDEN
    return shown


def _hidden_words(command: Sequence[str]) -> list[tuple[str, int]]:
    found = []
    for place, word in enumerate(command):
        option = _OPTION.fullmatch(word)
        before = command[place - 1] if place else ""
        if option is not None and _TELLING.search(option["name"]) and option["value"]:
            found.append((option["value"], place))
        elif (
            before.startswith("-")
            and "=" not in before
            and _TELLING.search(before)
            and word
            and not word.startswith("-")
        ):
            found.append((word, place))
    return found


def redact(value: Any, secrets: Sequence[str]) -> Any:
    """A JSON value with each of the secrets masked in every string; names of fields stay."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, dict):
        return {name: redact(inner, secrets) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact(inner, secrets) for inner in value]
    return value
