"""The study as it is run: from end to end with few samples, and where it cannot be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from launched_server import LaunchedServer
from speaking import Place, Tap
from study import EXPERIMENTS, QUICK, SCHEMA, Subject, main, parser, shown_command, study
from utterwire_client import Deadlines, Endpoint
from utterwire_client.cli.where import Where

STUDY = Path(__file__).resolve().parent.parent / "study.py"


def run(*arguments: str, out: Path) -> tuple[int, dict[str, Any]]:
    """Its status and its result."""
    done = subprocess.run(
        [sys.executable, STUDY, "--quick", "--rounds", "1", *arguments, "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert out.is_file(), done.stderr
    result = json.loads(out.read_text(encoding="utf-8"))
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(result)
    return done.returncode, result


def rows(result: dict[str, Any], experiment: str) -> dict[str, dict[str, Any]]:
    found = next(each for each in result["experiments"] if each["id"] == experiment)
    assert found["not_measured"] is None
    for row in found["rows"]:
        assert set(row["measures"]) <= set(found["measures"])
        assert set(row["facts"]) <= set(found["facts"])
    return {row["name"]: row for row in found["rows"]}


@pytest.mark.slow
class TestRun:
    def test_of_the_server_that_it_starts(self, tmp_path: Path) -> None:
        status, result = run(out=tmp_path / "study.json")
        assert [each["id"] for each in result["experiments"]] == list(EXPERIMENTS)
        assert status == int(any(not goal["met"] for goal in result["goals"]))
        assert result["goals"][-1]["met"], result["goals"]

        whole = rows(result, "whole-or-sentences")
        assert len(whole) == 4
        bidi = rows(result, "token-stream")["short: bidi"]
        assert bidi["expected"]["sooner"] == 3.0
        assert bidi["measures"]["over_ms"]["samples"] == 1
        afar = rows(result, "links")
        # A round trip of 160 ms cannot be had for less, nor two of them.
        assert afar["80 ms: pipelined"]["measures"]["first_byte_ms"]["least"] >= 159
        assert afar["80 ms: one at a time"]["measures"]["here_ms"]["least"] >= 319
        assert len(rows(result, "gaps")) == 8
        cut = rows(result, "interruptions")["interrupted"]
        assert cut["measures"]["silent_ms"]["samples"] == 5
        assert cut["facts"] == {"after_ack_bytes": 0, "tasks_left": 0, "sessions_dropped": 0}
        encoded = rows(result, "encodings")
        assert list(encoded) == ["PCM", "MP3", "AAC", "Opus"]
        assert encoded["PCM"]["facts"]["kbit_s"] == 384.0
        assert all(encoded[name]["facts"]["of_pcm"] < 50 for name in ("MP3", "AAC", "Opus"))
        assert all("speaks" in row["facts"]["words"] for row in encoded.values())
        carried = rows(result, "carriers")
        assert carried["HTTP, raw"]["facts"]["more"] == 1.0
        assert 4 / 3 < carried["HTTP, events"]["facts"]["more"] < 1.5
        assert (tmp_path / "study.html").read_text(encoding="utf-8").startswith("<!doctype html>")

    def test_of_an_endpoint_that_is_there_and_offers_less(self, tmp_path: Path) -> None:
        flags = ["--engine", "tone", "--formats", "pcm_s16le"]
        with LaunchedServer(flags, log=tmp_path / "log", ready_s=60.0) as server:
            status, result = run(
                "--url", server.url, "--only", "encodings", out=tmp_path / "study.json"
            )
        assert status == 0
        assert result["endpoint"]["engine"] is None
        assert result["endpoint"]["first_block_ms"] > 0
        encoded = rows(result, "encodings")
        assert encoded["PCM"]["note"] is None
        assert encoded["MP3"]["note"] == "not offered (unsupported_format)"
        assert not encoded["MP3"]["measures"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--url", "ws://127.0.0.1:9"], "nothing listens at"),
        (["--url", "nowhere"], "is not an endpoint's address"),
        (["--endpoint", "nobody", "--endpoints-file", "none.toml"], "there is no endpoint file"),
        (["--rounds", "0"], "--rounds wants"),
        (["--rate", "inf"], "--rate wants"),
        (["--recogniser", "python3"], "endpoint that speaks"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--out", "-"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("study: ")
    assert told in err
    assert err.count("\n") == 1


def test_a_missing_package_is_one_line_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "word_errors", raising=False)
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    monkeypatch.delitem(sys.modules, "rapidfuzz.distance", raising=False)
    assert main(["--url", "ws://127.0.0.1:9", "--recogniser", "ears", "--out", "-"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("study: the package rapidfuzz")
    assert told.endswith("is missing: pip install 'utterwire[client,quality]'\n")


def test_the_command_that_is_shown_has_no_secrets_and_no_paths() -> None:
    options = parser().parse_args(
        [
            "--url", "wss://me:secret@tts.example.com?key=secret",
            "--header", "Authorization: secret",
            "--ca-file", "/home/me/ca.pem", "--recogniser", "/home/me/python",
            "--rounds", "3", "--out", "/home/me/out.json",
        ]
    )  # fmt: skip
    words = " ".join(shown_command(options))
    assert "tts.example.com" in words
    assert "--rounds 3" in words
    assert "secret" not in words
    assert "/home" not in words


async def test_where_no_delay_can_be_laid_the_reason_stands_in_the_result() -> None:
    endpoint = Endpoint(name="mine", url="sagemaker:mine")
    told: list[str] = []
    place = Place(Where(endpoint, None, [], Deadlines()), 0.1, None, told.append)
    subject = Subject("mine", place, (("endpoint", place),), None)
    (document,), reached = await study(subject, QUICK, ["links"])
    assert "takes no proxy" in document["not_measured"]
    assert document["rows"] == []
    assert not reached
    assert told[-1] == f"not measured: {document['not_measured']}"


class Scripted:
    """A transport that receives what it is given."""

    def __init__(self, *messages: str | bytes) -> None:
        self._messages = list(messages)

    async def receive(self) -> str | bytes:
        return self._messages.pop(0)

    async def send(self, message: str) -> None: ...

    async def close(self) -> None: ...

    def abort(self) -> None: ...


async def test_audio_between_an_acknowledgement_and_the_next_utterance_is_counted() -> None:
    start, done = '{"type": "synthesis_start"}', '{"type": "cancel_done"}'
    odd = '{"type": "error", "message": "\\"cancel_done\\""}'
    script: list[str | bytes] = [start, b"12", odd, b"34", done, b"567", b"8", start, b"90"]
    tap = Tap(Scripted(*script))
    assert [await tap.receive() for _ in script] == script
    assert tap.after_ack_bytes == 4
    assert tap.audio_at is not None
    assert tap.received_bytes == sum(len(message) for message in script)
