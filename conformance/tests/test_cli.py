"""The command, as far as it needs no endpoint."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from utterwire_conformance import cli
from utterwire_conformance.offline import judge_transcripts
from utterwire_conformance.router.cli import router_parser
from utterwire_conformance.transcript import Entry, Transcript
from utterwire_conformance.verdict import Verdict

START = (
    b'{"type": "synthesis_start", "seq": 1, "sample_rate": 24000, "format": "pcm_s16le",'
    b' "voice": "v"}'
)


def transcript(*, odd: bool) -> Transcript:
    made = Transcript("probe", "mine")
    lines: list[tuple[Any, Any, bytes]] = [
        ("out", "text", b'{"text": "Hello."}'),
        (
            "in",
            "text",
            START,
        ),
        ("in", "binary", b"\x01\x02\x03" if odd else b"\x01\x02\x03\x04"),
    ]
    made.add(Entry(0.0, "out", "open", 1, method="GET", target="/"))
    made.add(Entry(0.1, "in", "open", 1, status=101))
    for number, (direction, kind, data) in enumerate(lines):
        made.add(Entry(0.2 + number / 10, direction, kind, 1, data=data))
    return made


def test_stored_transcripts_are_judged_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, odd in (("good", False), ("bad", True)):
        transcript(odd=odd).save(tmp_path / f"{name}.jsonl")
    assert cli.main(["judge", str(tmp_path / "good.jsonl")]) == 0
    assert "checks that these transcripts exercise pass" in capsys.readouterr().out
    assert cli.main(["judge", str(tmp_path / "bad.jsonl"), str(tmp_path / "good.jsonl")]) == 1
    said = capsys.readouterr().out
    assert "FAIL  audio.whole-samples  (MUST, spec/protocol.md#audio)" in said
    assert judge_transcripts([transcript(odd=True)])["audio.whole_samples"].verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "the following arguments are required: FILE"),
        (["none.jsonl"], 2, "none.jsonl: No such file"),
        ([__file__], 2, "not a transcript: the first line is not the header of one"),
    ],
)
def test_wrong_files(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["judge", *arguments]) == code
    assert words in capsys.readouterr().err


def test_what_is_not_installed_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "h11" else found(name)
    )
    assert cli.main(["--endpoint", "reference"]) == 2
    said = capsys.readouterr().err
    assert said == (
        "utterwire-conformance: h11 is missing; install it with: pip install"
        " 'utterwire[conformance]'\n"
    )


def test_the_proxy_is_behind_the_same_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["proxy", "--list"]) == 0
    assert "binary-messages-ignored" in capsys.readouterr().out


def test_a_command_is_made_of_all_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def run(command: list[str]) -> int:
        seen.append(command)
        return 5

    monkeypatch.setattr("pytest.main", run)
    options = ["--endpoint", "x", "--profile", "core", "--header", "A: b", "-k", "order", "-vv"]
    assert cli.main([*options, "-q", "--strict", "--report", "r"]) == 2
    (command,) = seen
    for part in ("--endpoint=x", "--profile=core", "--header=A: b", "--report=r", "order", "-q"):
        assert part in command
    assert command.count("-v") == 2
    assert "--strict" in command


README = Path(__file__).parents[1] / "README.md"


def test_the_guide_names_only_options_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    text = README.read_text("utf-8")
    commands = set(re.findall(r"utterwire-conformance ([a-z]+)", text)) - {"with"}
    known = ""
    for command in ["", *sorted(commands)]:
        arguments = [command, "--help"] if command else ["--help"]
        assert cli.main(arguments) == 0, command
        known += capsys.readouterr().out
    known += router_parser().format_help()
    own = {"--update", "--url", "--events", "--port"}  # of scripts, and of other programs
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - own
    assert len(named) > 20
    assert {name for name in named if not re.search(rf"{name}(?![\w-])", known)} == set()


def test_the_workflow_of_the_guide_can_be_read() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    (job,) = yaml.safe_load(block)["jobs"].values()
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert any(line.startswith("utterwire-conformance --endpoint") for line in runs)
