"""Whatever stands where a file should: one line on stderr, exit status 2, and no traceback."""

from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from utterwire_conformance.baseline import Baseline, BaselineError
from utterwire_conformance.cli import main
from utterwire_conformance.endpoints import EndpointFileError, find_endpoint

HEADER: Final = b'{"utterwire_transcript": 1, "endpoint": "x", "claims": {}}\n'


def _absent(path: Path) -> None:
    pass


def _folder(path: Path) -> None:
    path.mkdir()


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _locked(path: Path) -> None:
    path.write_bytes(HEADER)
    path.chmod(0)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 * 2**30)  # With holes: it takes no room.


def _holding(octets: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(octets)

    return make


BAD: Final[dict[str, Callable[[Path], None]]] = {
    "absent": _absent,
    "folder": _folder,
    "loop": _loop,
    "locked": _locked,
    "empty": _holding(b""),
    "blank": _holding(b"\n \n"),
    "cut": _holding(b'{"utterwire_report": 2, "results": [{"requ'),
    "cut-transcript": _holding(HEADER + b'{"t": 0, "dir": "in", "ki'),
    "cut-xz": _holding(lzma.compress(HEADER * 100)[:60]),
    "cut-gzip": _holding(gzip.compress(os.urandom(100))[:60]),
    "list": _holding(b"[]"),
    "null": _holding(b"null"),
    "string": _holding(b'"utterwire_report"'),
    "other-report": _holding(b'{"utterwire_report": 99}'),
    "other-transcript": _holding(b'{"utterwire_transcript": 99}'),
    "strange-version": _holding(b'{"utterwire_transcript": {"a": [1]}, "utterwire_report": [2]}'),
    "strange-claims": _holding(b'{"utterwire_transcript": 1, "endpoint": "x", "claims": [1]}'),
    "strange-line": _holding(HEADER + b"[1, 2]\n"),
    "deep": _holding(b"[" * 100_000),
    "digits": _holding(b'{"utterwire_report": ' + b"9" * 6_000 + b"}"),
    "not-utf-8": _holding(b'\xff\xfe{"utterwire_report": 2}'),
    "nul": _holding(b"\0" * 100),
}

COMMANDS: Final[dict[str, Callable[[str], list[str]]]] = {
    "judge": lambda name: ["judge", name],
    "show": lambda name: ["show", name],
    "replay": lambda name: ["replay", name, "--endpoint-url", "ws://127.0.0.1:9"],
    "verify": lambda name: ["verify", name],
    "compare": lambda name: ["compare", name, name],
    "page": lambda name: ["page", name],
    "clause": lambda name: ["clause", name],
    "proxy": lambda name: ["proxy", "--to", "wss://127.0.0.1:9", "--ca-file", name],
}


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("utterwire-conformance")
    assert captured.err.count("\n") == 1
    # What Python calls its own things is nothing to people.
    assert "object has no attribute" not in captured.err
    assert "Traceback" not in captured.err
    return captured.err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("bad", BAD)
def test_one_line_and_status_2(
    bad: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if bad == "locked" and os.geteuid() == 0:
        pytest.skip("nothing is locked for root")
    path = tmp_path / "thing"
    BAD[bad](path)
    said = refused(COMMANDS[command](str(path)), capsys)
    assert str(path) in said


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_too_large_is_not_read_to_its_end(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "thing"
    _huge(path)
    refused(COMMANDS[command](str(path)), capsys)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["", "a\0b", "n" * 5_000, "\udcff", "line\nend\x1b[31m"])
def test_odd_names(command: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(COMMANDS[command](name), capsys)
    assert said.removesuffix("\n").isprintable()


def _read_settings(option: str, path: Path) -> None:
    if option == "--baseline":
        Baseline.load(path)
    else:
        find_endpoint("mine", file=path)


@pytest.mark.parametrize("option", ["--endpoints", "--baseline"])
@pytest.mark.parametrize("bad", ["absent", "folder", "loop", "cut", "deep", "not-utf-8", "nul"])
def test_files_of_settings(
    bad: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "thing"
    BAD[bad](path)
    with pytest.raises((BaselineError, EndpointFileError)) as told:
        _read_settings(option, path)
    assert str(path) in str(told.value)
    assert "\n" not in str(told.value)


def test_a_transcript_of_nothing_is_none_that_can_be_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(HEADER)
    assert main(["judge", str(path)]) == 2
    assert capsys.readouterr().out.startswith("0 of 0 checks")
