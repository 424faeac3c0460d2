"""`python -m utterwire_conformance.requirements`: hold prose and requirements together."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .catalogue import RequirementsError, parse
from .prose import disagreements, read_folder, with_tables

__all__ = ["main"]


def _default_folder() -> Path:
    checkout = Path(__file__).resolve().parents[3] / "spec"
    return checkout if checkout.is_dir() else Path("spec")


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the specification, or write its tables; return the exit code (2: cannot be read)."""
    parser = argparse.ArgumentParser(
        prog="python -m utterwire_conformance.requirements",
        description="Compare the prose of the specification with requirements.yaml.",
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="fail where they disagree")
    action.add_argument("--write", action="store_true", help="make the clause tables anew")
    parser.add_argument(
        "--folder",
        type=Path,
        default=_default_folder(),
        help="the folder of the specification (default: that of this checkout, or ./spec)",
    )
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    try:
        source = folder / "requirements.yaml"
        rows = parse(source.read_text(encoding="utf-8"), str(source))
        texts = read_folder(folder)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}: name the folder by --folder", file=sys.stderr)
        return 2
    except UnicodeDecodeError as error:
        print(f"{folder}: a file is not UTF-8: {error.reason}: save it as UTF-8", file=sys.stderr)
        return 2
    except RequirementsError as error:
        print(error, file=sys.stderr)
        return 2
    if options.write:
        for name, text in texts.items():
            fresh = with_tables(name, text, rows)
            if fresh != text:
                (folder / name).write_text(fresh, encoding="utf-8")
            texts[name] = fresh
    faults = disagreements(texts, rows)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
