"""`utterwire-conformance`: the suite from anywhere, without a checkout."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Final

from .number import natural_number, positive_number, whole_number

__all__ = ["main"]

_PROGRAM: Final = "utterwire-conformance"
# Each with the module and function behind it, which are imported only when they are needed.
_COMMANDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "judge": ("offline", "main_judge", "judge stored transcripts again"),
    "show": ("ladder", "main_show", "print a transcript, and where a rule broke"),
    "replay": ("resend", "main_replay", "send a transcript again to a live endpoint"),
    "verify": ("verification", "main_verify", "judge a whole report again, and compare"),
    "compare": ("comparison", "main_compare", "say what changed between two reports"),
    "clause": ("clause", "main_clause", "print what the specification says"),
    "page": ("page", "main_page", "render a report as one page of HTML again"),
    "client": ("client_half", "main_client", "judge a client instead of an endpoint"),
    "proxy": ("faults", "main_proxy", "make a faulty endpoint out of a good one"),
}
_NEEDED: Final = {
    "h11": "h11",
    "hypothesis": "hypothesis",
    "jinja2": "jinja2",
    "pytest": "pytest",
    "yaml": "pyyaml",
}
_OPTIONS: Final = (
    "endpoint",
    "endpoint_url",
    "endpoints",
    "via",
    "report",
    "baseline",
    "write_baseline",
    "max_characters",
    "max_sessions",
    "max_rate",
    "max_concurrent",
    "max_minutes",
    "fuzz_examples",
    "fuzz_minutes",
    "fuzz_seed",
)
_REPEATED: Final = ("profile", "header", "requirement")
_FLAGS: Final = ("strict", "quick", "fuzz", "no_fuzz")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: {message}\n")


def _version() -> str:
    try:
        return f"{_PROGRAM} {version('utterwire')}"
    except PackageNotFoundError:
        return f"{_PROGRAM} (not installed)"


def _parser() -> argparse.ArgumentParser:
    commands = "\n".join(f"  {name:<10}{what}" for name, (_, _, what) in _COMMANDS.items())
    parser = _Parser(
        prog=_PROGRAM,
        description="Judge an Utterwire endpoint by the specification.",
        epilog="exit status: 0 it conforms, 1 it does not, 2 it could not be judged\n\n"
        f"other commands (each with --help):\n{commands}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=_version())
    parser.add_argument("--endpoint", metavar="NAME", help="judge the endpoint of this name")
    parser.add_argument("--endpoint-url", metavar="URL", help="judge the endpoint at this URL")
    parser.add_argument("--endpoints", metavar="FILE", help="the endpoint file")
    parser.add_argument(
        "--profile",
        metavar="PROFILE",
        action="append",
        default=[],
        help="with --endpoint: judge this profile only; with --endpoint-url: what it claims;"
        " repeatable",
    )
    parser.add_argument(
        "--header",
        metavar="'NAME: VALUE'",
        action="append",
        default=[],
        help="sent with each request; ${NAME} is an environment variable; repeatable",
    )
    parser.add_argument(
        "--via",
        choices=("websocket", "sagemaker"),
        help="sagemaker: through a local stand-in for SageMaker (Python 3.12, extra aws)",
    )
    parser.add_argument("--report", metavar="DIR", help="where the report goes")
    parser.add_argument(
        "--requirement",
        metavar="ID",
        action="append",
        default=[],
        help="judge this one only; a glob such as 'audio.*'; repeatable",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a first look: seconds, 500 characters at most"
    )
    parser.add_argument("--strict", action="store_true", help="fail on a SHOULD, too")
    parser.add_argument("--baseline", metavar="FILE", help="failures that are known")
    parser.add_argument("--write-baseline", metavar="FILE", help="write what fails now")
    parser.add_argument(
        "--max-characters", metavar="N", type=whole_number, help="speak no more, in all"
    )
    parser.add_argument(
        "--max-sessions", metavar="N", type=whole_number, help="open no more, in all"
    )
    parser.add_argument(
        "--max-rate", metavar="N", type=positive_number, help="no more requests a second"
    )
    parser.add_argument(
        "--max-concurrent", metavar="N", type=whole_number, help="no more sessions at a time"
    )
    parser.add_argument(
        "--max-minutes", metavar="M", type=positive_number, help="take no longer, in all"
    )
    parser.add_argument("--fuzz", action="store_true", help="fuzz, whatever it costs")
    parser.add_argument("--no-fuzz", action="store_true", help="do not fuzz")
    parser.add_argument(
        "--fuzz-examples", metavar="N", type=whole_number, help="fuzz with N programs of each kind"
    )
    parser.add_argument(
        "--fuzz-minutes", metavar="M", type=positive_number, help="fuzz for M minutes"
    )
    parser.add_argument(
        "--fuzz-seed", metavar="S", type=natural_number, help="the seed by which to fuzz"
    )
    parser.add_argument("-k", metavar="EXPRESSION", help="only requirements that match")
    parser.add_argument("-v", action="count", default=0, help="a line for each requirement")
    parser.add_argument("-q", action="count", default=0, help="less")
    return parser


def _missing() -> str | None:
    for module, distribution in _NEEDED.items():
        if importlib.util.find_spec(module) is None:
            return distribution
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite, or one of the other commands; the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    missing = _missing()
    if missing is not None:
        print(
            f"{_PROGRAM}: {missing} is missing; install it with: pip install"
            " 'utterwire[conformance]'",
            file=sys.stderr,
        )
        return 2
    if given and given[0] in _COMMANDS:
        module, function, _ = _COMMANDS[given[0]]
        command = getattr(importlib.import_module(f"{__package__}.{module}"), function)
        return int(command(given[1:]))
    try:
        options = _parser().parse_args(given)
        if not options.endpoint and not options.endpoint_url:
            _parser().error("which endpoint? Give --endpoint NAME or --endpoint-url URL")
    except SystemExit as stop:
        return int(stop.code or 0)
    return _run(options)


class _Complaints:
    """Stands in for stderr while pytest runs, so that its complaints have the command's name."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if text.startswith("ERROR: "):
            text = f"{_PROGRAM}: {text.removeprefix('ERROR: ').rstrip()}"
        self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        # No colours, which would stand before the word that is looked for.
        return False


@contextlib.contextmanager
def _storage() -> Iterator[None]:
    """A place for what Hypothesis keeps, which is of no use after the run: not the working folder,
    where it would be left behind."""
    name = "HYPOTHESIS_STORAGE_DIRECTORY"
    if name in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="utterwire-") as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            del os.environ[name]


def _run(options: argparse.Namespace) -> int:
    command = [
        str(Path(__file__).resolve().parent / "suite.py"),
        # Neither settings nor hooks of whatever project the working directory belongs to.
        "--noconftest",
        f"--rootdir={Path.cwd()}",
        "-c",
        os.devnull,
        # It would show that file, and plugins that have no part in this.
        "--no-header",
        "-p",
        "no:cacheprovider",
        # It would only warn of settings that nobody here has made.
        "-p",
        "no:asyncio",
        "-p",
        "utterwire_conformance.plugin",
        "--import-mode=importlib",
    ]
    for name in _OPTIONS:
        value = getattr(options, name)
        if value is not None:
            command.append(f"--{name.replace('_', '-')}={value}")
    for name in _REPEATED:
        command += [f"--{name}={value}" for value in getattr(options, name)]
    command += [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(options, name)]
    if options.k is not None:
        command += ["-k", options.k]
    command += ["-v"] * options.v + ["-q"] * options.q
    try:
        import pytest

        with contextlib.redirect_stderr(_Complaints(sys.stderr)), _storage():
            status = int(pytest.main(command))
    except KeyboardInterrupt:
        return 2
    # Whatever else goes wrong (usage, nothing collected, a fault inside) means: not judged.
    return status if status in (0, 1) else 2
