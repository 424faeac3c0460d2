"""Where results go: files, and stdout."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from utterwire_client.cli.exit_code import UsageError

__all__ = ["show", "write_results"]


def write_results(
    arguments: argparse.Namespace,
    document: Mapping[str, Any],
    *,
    page: Callable[[Mapping[str, Any]], str],
    table: Callable[[Mapping[str, Any]], str],
) -> None:
    """Write figures where ``--json`` and ``--html`` have them, and a table to stdout unless one of
    those goes there, or ``--quiet`` forbids it. Raises ``UsageError``, ``BrokenPipeError``."""
    as_json = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    if arguments.json not in (None, "-"):
        _put(arguments.json, as_json)
    if arguments.html not in (None, "-"):
        _put(arguments.html, page(document))
    if arguments.json == "-":
        show(as_json)
    elif arguments.html == "-":
        show(page(document))
    elif not arguments.quiet:
        show(table(document))


def show(text: str) -> None:
    """Write to stdout, if there is one. Raises ``UsageError``, ``BrokenPipeError``."""
    if not text or sys.stdout is None:
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter would try again as it exits.
        sys.stdout = None
        raise
    except OSError as exc:
        raise UsageError(f"cannot write to stdout: {exc.strerror or exc}") from None


def _put(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as exc:
        raise UsageError(f"cannot write {path}: {exc.strerror}") from None
