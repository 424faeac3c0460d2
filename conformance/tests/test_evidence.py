"""Reports as evidence: what is saved can be judged again, and what was changed later is found."""

from __future__ import annotations

import asyncio
import gzip
import json
import lzma
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from utterwire_conformance import cli, verification
from utterwire_conformance.archive import store
from utterwire_conformance.baseline import Baseline
from utterwire_conformance.check import CHECKS
from utterwire_conformance.comparison import Change, Comparison
from utterwire_conformance.endpoints import find_endpoint
from utterwire_conformance.faults import FAULTS
from utterwire_conformance.faults.matrix import ProxiedTarget
from utterwire_conformance.judging import chosen_checks, judge_checks
from utterwire_conformance.junit import to_junit
from utterwire_conformance.report import Report, results_of
from utterwire_conformance.report_file import ReportError, ReportFile
from utterwire_conformance.runner import Options, Results, run_checks
from utterwire_conformance.stage import Pace
from utterwire_conformance.target import Instance, Target
from utterwire_conformance.transcript import Entry, Transcript
from utterwire_conformance.verdict import Verdict
from utterwire_conformance.verification import problems
from utterwire_schemas import validator

REQUIREMENTS = (
    "audio.whole-samples",
    "order.fifo",
    "order.start-first",
    "request-id.echoed",
    "reject.unknown-type",
    "http.ping",
    "http.whole-failure",
)
ENDPOINT = find_endpoint("reference")
PROFILES = ("core", "http")
# What comes may be late on a machine that halts for seconds.
PACE = Pace(connect=30.0, first=30.0, stall=30.0)


async def run_behind(upstream: Instance, fault: str | None, checks: list[str]) -> Results:
    tampers = FAULTS[fault] if fault is not None else None
    behind = ProxiedTarget(ENDPOINT, upstream, tampers)
    return await run_checks(behind, checks, Options(pace=PACE))


def run(fault: str | None) -> Results:
    async def main() -> Results:
        async with Target(ENDPOINT) as target:
            assert target.main is not None
            names = [c.id for c in CHECKS.values() if c.requirement in REQUIREMENTS]
            return await run_behind(target.main, fault, names)

    return asyncio.run(main())


def saved(results: Results, folder: Path) -> Path:
    report = Report(
        ENDPOINT,
        PROFILES,
        results_of(results, ENDPOINT, PROFILES, selected=REQUIREMENTS),
        results,
        options={"selected": sorted(REQUIREMENTS)},
    )
    report.save(folder)
    return folder


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(run(None), tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(run("samples-split"), tmp_path_factory.mktemp("bad"))


def document(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "report.json").read_text("utf-8"))
    return read


@pytest.mark.parametrize("which", ["good", "bad"])
def test_a_report_follows_from_its_transcripts(
    which: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = request.getfixturevalue(which)
    assert list(validator("report").iter_errors(document(folder))) == []
    assert list(problems(ReportFile.load(folder))) == []
    assert cli.main(["verify", str(folder)]) == 0
    assert "verdicts follow from" in capsys.readouterr().out


def test_a_red_check_says_where(bad: Path) -> None:
    rows = {row["requirement"]: row for row in document(bad)["results"]}
    assert rows["audio.whole-samples"]["verdict"] == "fail"
    (check,) = rows["audio.whole-samples"]["checks"]
    at = check["at"]
    transcript = ReportFile.load(bad).transcript(at["transcript"])
    entry = transcript.entries[at["line"] - 2]
    assert (entry.session, entry.t) == (at["session"], at["t"])
    # The chunk with half a sample itself.
    assert entry.kind == "binary"
    assert len(entry.data) % 2 == 1
    earlier = [e for e in transcript.session(entry.session) if e.t < entry.t]
    assert not [e for e in earlier if e.kind == "binary" and e.dir == "in" and len(e.data) % 2]


Tampering = Callable[[Path, dict[str, Any]], None]


def _row(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in report["results"] if row["requirement"] == name)


def verdict(folder: Path, report: dict[str, Any]) -> None:
    _row(report, "audio.whole-samples")["verdict"] = "pass"


def verdict_and_check(folder: Path, report: dict[str, Any]) -> None:
    row = _row(report, "audio.whole-samples")
    row["verdict"] = row["checks"][0]["verdict"] = "pass"


def words(folder: Path, report: dict[str, Any]) -> None:
    _row(report, "audio.whole-samples")["checks"][0]["reason"] = "A trifle."


def place(folder: Path, report: dict[str, Any]) -> None:
    _row(report, "audio.whole-samples")["checks"][0]["at"]["line"] += 1


def counts(folder: Path, report: dict[str, Any]) -> None:
    report["summary"]["core"]["failed"] = 0


def exit_code(folder: Path, report: dict[str, Any]) -> None:
    report["exit_code"] = 0


def row_left_out(folder: Path, report: dict[str, Any]) -> None:
    report["results"].remove(_row(report, "audio.whole-samples"))


def deselected(folder: Path, report: dict[str, Any]) -> None:
    report["options"]["selected"].remove("audio.whole-samples")


def unclaimed(folder: Path, report: dict[str, Any]) -> None:
    report["claims"]["profiles"].remove("http")


def latency(folder: Path, report: dict[str, Any]) -> None:
    report["latency"]["first_byte_s"]["median"] /= 2


def digest(folder: Path, report: dict[str, Any]) -> None:
    report["transcripts"]["order"]["sha256"] = "0" * 64


def octet_changed(folder: Path, report: dict[str, Any]) -> None:
    path = folder / report["transcripts"]["probe"]["file"]
    path.write_bytes(path.read_bytes().replace(b"See you", b"See YOU"))


def line_left_out(folder: Path, report: dict[str, Any]) -> None:
    path = folder / report["transcripts"]["probe"]["file"]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-3]))


def cut_off(folder: Path, report: dict[str, Any]) -> None:
    path = folder / report["transcripts"]["order"]["file"]
    path.write_bytes(path.read_bytes()[:200])


def file_lost(folder: Path, report: dict[str, Any]) -> None:
    (folder / report["transcripts"]["order"]["file"]).unlink()


def file_unnamed(folder: Path, report: dict[str, Any]) -> None:
    file = report["transcripts"].pop("order")["file"]
    assert (folder / file).is_file()


def files_exchanged(folder: Path, report: dict[str, Any]) -> None:
    named = report["transcripts"]
    named["order"], named["probe"] = named["probe"], named["order"]


def junit(folder: Path, report: dict[str, Any]) -> None:
    path = folder / "junit.xml"
    path.write_text(path.read_text("utf-8").replace("failure", "system-out"), "utf-8")


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (verdict, "audio.whole-samples: it says pass, and fail follows"),
        (verdict_and_check, "says pass, and fail follows"),
        (words, "`reason` of its check audio.whole_samples does not follow"),
        (place, "`at` of its check"),
        (counts, "summary: "),
        (exit_code, "exit_code: 0 does not follow, but 1"),
        (row_left_out, "audio.whole-samples: the report says nothing of it"),
        (deselected, "it says fail, and not-exercised follows"),
        (unclaimed, "it was recorded with other claims"),
        (latency, "latency: "),
        (digest, "it is not the file that was saved"),
        (octet_changed, "transcripts/probe.jsonl: it is not the file that was saved"),
        (line_left_out, "transcripts/probe.jsonl: it is not the file that was saved"),
        (cut_off, "the file that was saved"),
        (file_lost, "No such file"),
        (file_unnamed, "the report does not name this file"),
        (files_exchanged, "it is the transcript of 'probe', not of 'order'"),
        (junit, "junit.xml: "),
    ],
)
def test_what_was_changed_later_is_found(
    tamper: Tampering,
    said: str,
    bad: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "report"
    shutil.copytree(bad, folder)
    report = document(folder)
    tamper(folder, report)
    (folder / "report.json").write_text(json.dumps(report), "utf-8")
    assert cli.main(["verify", str(folder / "report.json")]) == 1
    assert said in capsys.readouterr().out


def test_a_forged_digest_does_not_help(bad: Path, tmp_path: Path) -> None:
    """Who drops half a sample from the transcript and mends the digest is found out all the same:
    what the report says no longer follows."""
    folder = tmp_path / "report"
    shutil.copytree(bad, folder)
    report = ReportFile.load(folder)
    mended = {}
    for name in report.document["transcripts"]:
        transcript = report.transcript(name)
        transcript.entries = [
            e for e in transcript.entries if not (e.kind == "binary" and len(e.data) % 2)
        ]
        mended[name] = transcript
    stored = store(folder, "transcripts", mended)
    changed = report.document
    changed["transcripts"] = {name: file.to_json() for name, file in stored.items()}
    (folder / "report.json").write_text(json.dumps(changed), "utf-8")
    found = list(problems(ReportFile.load(folder)))
    assert not any("digest" in line for line in found)
    assert any(line.startswith("audio.whole-samples: it says fail") for line in found)


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        (b"", "the file is empty"),
        (b"\x00\xff\xfe" * 100, "not UTF-8"),
        (b'{"utterwire_report": 2, "resu', "report.json:1: not JSON"),
        (b"[1, 2]", "it is no report"),
        (b"{}", "it is no report"),
        (b'{"utterwire_report": 1}', "it is a report of format 1; this is for 2"),
        (b'{"utterwire_report": {"a": 1}}', "it is a report of format"),
        (b'{"utterwire_report": 2}', "is a required property"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5_000, "not JSON"),
    ],
)
@pytest.mark.parametrize("command", ["verify", "compare"])
def test_what_is_no_report_is_told_in_a_line(
    octets: bytes, said: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(octets)
    paths = [str(path)] * (2 if command == "compare" else 1)
    assert cli.main([command, *paths]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("utterwire-conformance: ")
    assert said in line


def test_a_report_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(tmp_path)]) == 2
    assert "report.json: cannot be read: No such file" in capsys.readouterr().err
    assert cli.main(["verify"]) == 2
    assert cli.main(["verify", "--help"]) == 0


def test_a_report_of_enormous_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("utterwire_conformance.report_file.MOST_BYTES", 10)
    (tmp_path / "report.json").write_text("{" + " " * 20)
    with pytest.raises(ReportError, match="larger than 10 bytes"):
        ReportFile.load(tmp_path)


def test_paths_never_lead_out_of_the_folder(bad: Path, tmp_path: Path) -> None:
    report = document(bad)
    report["transcripts"]["probe"]["file"] = "../../etc/passwd"
    (tmp_path / "report.json").write_text(json.dumps(report))
    with pytest.raises(ReportError, match=r"transcripts\.probe\.file"):
        ReportFile.load(tmp_path)


def with_finding(bad: Path, folder: Path, requirement: str) -> Path:
    """The report, with a session of its run as a finding of fuzzing."""
    shutil.copytree(bad, folder)
    report = document(folder)
    name = _row(report, "audio.whole-samples")["checks"][0]["at"]["transcript"]
    found = ReportFile.load(folder).transcript(name)
    found.scenario = "fuzz-sessions-1"
    (file,) = store(folder, "findings", {"1": found}).values()
    told = {"file": file.file, "sha256": file.sha256, "requirement": requirement, "reason": "x"}
    report["findings"] = [told]
    (folder / "report.json").write_text(json.dumps(report), "utf-8")
    (folder / "junit.xml").unlink()
    return folder


def test_findings_are_judged_again(bad: Path, tmp_path: Path) -> None:
    found = with_finding(bad, tmp_path / "a", "audio.whole-samples")
    schema = [e.message for e in validator("report").iter_errors(document(found))]
    assert [m for m in schema if "is a required property" not in m] == []
    assert list(verification._findings(ReportFile(found / "report.json", document(found)))) == []
    other = with_finding(bad, tmp_path / "b", "order.fifo")
    (line,) = verification._findings(ReportFile(other / "report.json", document(other)))
    assert line.endswith("that it breaks order.fifo does not follow")
    (file,) = (other / "findings").iterdir()
    file.write_bytes(b"nonsense")
    report = ReportFile(other / "report.json", document(other))
    assert any("not a transcript: the first line" in line for line in problems(report))
    file.unlink()
    assert any("No such file" in line for line in problems(report))


def test_a_run_that_judged_nothing_follows_as_well(tmp_path: Path) -> None:
    """Nobody there: all is a harness error, and has to be."""
    results = Results(unreachable="nobody there")
    results.judgements = judge_checks(chosen_checks(), (), unreachable="nobody there")
    folder = saved(results, tmp_path)
    assert list(problems(ReportFile.load(folder))) == []
    report = document(folder)
    assert report["exit_code"] == 2
    del report["unreachable"]
    (folder / "report.json").write_text(json.dumps(report), "utf-8")
    assert any(
        line.startswith("order.fifo: it says harness-error, and not-exercised follows")
        for line in problems(ReportFile.load(folder))
    )


def test_known_failures_follow_from_their_list(bad: Path, tmp_path: Path) -> None:
    rows = [row for row in document(bad)["results"] if row["verdict"] == "fail"]
    known = Baseline({row["requirement"]: "known for long" for row in rows}, "known.toml")
    transcripts = {n: ReportFile.load(bad).transcript(n) for n in document(bad)["transcripts"]}
    names = [c.id for c in CHECKS.values() if c.requirement in REQUIREMENTS]
    judged = judge_checks(chosen_checks(names), transcripts.values())
    results = Results(judged, transcripts)
    Report(
        ENDPOINT,
        PROFILES,
        results_of(results, ENDPOINT, PROFILES, selected=REQUIREMENTS),
        results,
        options={"selected": sorted(REQUIREMENTS)},
        baseline=known,
    ).save(tmp_path)
    assert document(tmp_path)["exit_code"] == 0
    assert list(problems(ReportFile.load(tmp_path))) == []
    report = document(tmp_path)
    report["baseline"]["stale"] = report["baseline"]["known"]
    (tmp_path / "report.json").write_text(json.dumps(report), "utf-8")
    assert any(line.startswith("baseline: ") for line in problems(ReportFile.load(tmp_path)))


# --- comparing ------------------------------------------------------------------------------------


def test_two_reports_are_compared(
    good: Path, bad: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", str(good), str(good)]) == 0
    assert "No verdict changed." in capsys.readouterr().out
    assert cli.main(["compare", str(good), str(bad)]) == 1
    said = capsys.readouterr().out
    assert "worse:\n   audio.whole-samples: pass -> fail" in said
    assert "exit status: 0 -> 1" in said
    assert "first byte, median:" in said
    assert cli.main(["compare", "--json", str(bad), str(good)]) == 0
    found = json.loads(capsys.readouterr().out)
    kinds = {change["requirement"]: change["kind"] for change in found["changes"]}
    assert kinds["audio.whole-samples"] == "better"
    assert not found["worse"]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("pass", "fail", "worse"),
        ("pass", "weak", "worse"),
        ("weak", "fail", "worse"),
        ("pass", "harness-error", "worse"),
        ("fail", "pass", "better"),
        ("not-exercised", "fail", "worse"),
        ("not-exercised", "pass", "new"),
        (None, "pass", "new"),
        (None, "not-claimed", "other"),
        ("pass", "not-exercised", "gone"),
        ("fail", None, "gone"),
        ("not-claimed", "not-exercised", "other"),
    ],
)
def test_kinds_of_change(before: str | None, after: str | None, kind: str) -> None:
    assert Change("a.b", before, after).kind == kind


def test_claims_and_versions_are_compared(good: Path) -> None:
    before, after = document(good), document(good)
    after["suite_version"] = "99.0"
    after["claims"]["max_waiting"] = 99
    after["results"] = after["results"][1:]
    found = Comparison.of(before, after)
    assert {name for name, _, _ in found.facts} == {"suite version", "claims.max_waiting"}
    gone = before["results"][0]["requirement"]
    assert [(c.requirement, c.after) for c in found.changes] == [(gone, None)]


def test_an_endpoint_is_not_compared_with_a_client(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = document(good) | {"role": "client"}
    (tmp_path / "report.json").write_text(json.dumps(report))
    assert cli.main(["compare", str(good), str(tmp_path)]) == 2
    assert "the other a client" in capsys.readouterr().err


# --- files ----------------------------------------------------------------------------------------


def test_bulky_transcripts_are_compressed(tmp_path: Path) -> None:
    small, large = Transcript("small"), Transcript("large/../x")
    small.add(Entry(0.0, "in", "binary", 1, data=b"\x01\x02"))
    for number in range(100):
        large.add(Entry(number / 10, "in", "binary", 1, data=bytes(range(256)) * 16))
    (tmp_path / "transcripts").mkdir()
    (tmp_path / "transcripts" / "old.jsonl").write_text("an earlier run")
    stored = store(tmp_path, "transcripts", {t.scenario: t for t in (small, large)})
    assert stored["small"].file == "transcripts/small.jsonl"
    assert stored["large/../x"].file == "transcripts/large----x.jsonl.xz"
    assert {path.name for path in (tmp_path / "transcripts").iterdir()} == {
        "small.jsonl",
        "large----x.jsonl.xz",
    }
    path = tmp_path / stored["large/../x"].file
    assert path.read_bytes()[:6] == b"\xfd7zXZ\x00"
    assert Transcript.load(path).entries == large.entries
    assert stored["large/../x"].lines == 101


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_transcripts_are_read_whatever_their_name(suffix: str, tmp_path: Path) -> None:
    transcript = Transcript("order", role="client")
    transcript.add(Entry(0.0, "in", "text", 1, data=b"{}"))
    transcript.save(tmp_path / f"t.jsonl{suffix}")
    (tmp_path / f"t.jsonl{suffix}").rename(tmp_path / "any.name")
    again = Transcript.load(tmp_path / "any.name")
    assert (again.entries, again.role) == (transcript.entries, "client")


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        (b"", ": the file is empty"),
        (b"\n\n", "not a transcript: a blank line"),
        (b"[]", "the first line is not the header of one"),
        (b"{", "the first line is not the header of one"),
        (b"\x00\x01\x02\xff", "line 1: not a transcript: it is not UTF-8"),
        (gzip.compress(b"x" * 1000, mtime=0)[:20], "damaged or cut off"),
        (lzma.compress(b"x" * 1000)[:40], "damaged or cut off"),
        (b"\xfd7zXZ\x00nonsense that is no stream", "damaged or cut off"),
        (b'{"utterwire_transcript": 2, "endpoint": "x"}', "of format 2; this is for 1"),
        (b'{"utterwire_transcript": 1}', "'endpoint' is missing"),
        (b'{"utterwire_transcript": 1, "endpoint": "x", "role": "judge"}', "`role`"),
        (b'{"utterwire_transcript": 1, "endpoint": "x", "claims": 5}', "line 1"),
        (b'{"utterwire_transcript": 1, "endpoint": "x"}\n' + b"[" * 100_000, "line 2: .*deeply"),
        (b'{"utterwire_transcript": 1, "endpoint": "x"}\n{"t": 1', "line 2: .*not JSON"),
    ],
)
@pytest.mark.parametrize("command", ["judge", "show", "replay"])
def test_files_that_are_no_transcripts(
    octets: bytes,
    said: str,
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import re

    path = tmp_path / "t.jsonl"
    path.write_bytes(octets)
    rest = ["--endpoint", "reference"] if command == "replay" else []
    assert cli.main([command, str(path), *rest]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"utterwire-conformance: {path}: ")
    assert re.search(said, line)


LINE: dict[str, Any] = {"t": 0.5, "dir": "in", "kind": "text", "session": 1, "fin": True}


@pytest.mark.parametrize(
    "change",
    [
        {"t": "now"},
        {"t": -1},
        {"t": True},
        {"t": 1e999},
        {"dir": "up"},
        {"dir": "note"},
        {"kind": "note"},
        {"kind": ["text"]},
        {"session": -1},
        {"session": 1.5},
        {"fin": 1},
        {"text": 5},
        {"code": "1000"},
        {"status": 7},
        {"headers": {"a": 1}},
        {"headers": []},
        {"data": {}},
        {"data": {"hex": "0"}},
        {"data": {"b64": "???"}},
        {"data": {"text": "a", "hex": "00"}},
        {"data": "text"},
    ],
    ids=repr,
)
def test_lines_that_break_the_schema_are_refused(change: dict[str, Any]) -> None:
    head = '{"utterwire_transcript": 1, "endpoint": "x"}'
    assert len(Transcript.from_lines([head, json.dumps(LINE)]).entries) == 1
    with pytest.raises(ValueError, match="line 2: not a transcript"):
        Transcript.from_lines([head, json.dumps(LINE | change)])


def test_files_that_unpack_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("utterwire_conformance.transcript.MOST_FILE_BYTES", 1000)
    path = tmp_path / "bomb.xz"
    path.write_bytes(lzma.compress(b'{"utterwire_transcript": 1, "endpoint": "x"}' + b" " * 10**6))
    with pytest.raises(ValueError, match="larger than 1000 bytes"):
        Transcript.load(path)


# --- JUnit ----------------------------------------------------------------------------------------


def test_junit_has_a_case_for_each_requirement(bad: Path) -> None:
    report = document(bad)
    root = ET.parse(bad / "junit.xml").getroot()
    assert root.tag == "testsuites"
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert len(cases) == len(report["results"]) == int(root.get("tests", 0))
    failed = cases["audio.whole-samples"]
    assert failed.get("classname") == "utterwire.core"
    (failure,) = failed
    assert failure.tag == "failure"
    assert "legal: " in (failure.text or "")
    assert "received: " in (failure.text or "")
    (skipped,) = cases["http.whole-failure"]
    assert skipped.tag == "skipped"
    assert (skipped.get("message") or "").startswith("not-exercised: ")
    for suite in root:
        assert suite.tag == "testsuite"
        kinds = [child.tag for case in suite.iter("testcase") for child in case]
        assert int(suite.get("tests", -1)) == len(list(suite.iter("testcase")))
        assert int(suite.get("failures", -1)) == kinds.count("failure")
        assert int(suite.get("errors", -1)) == kinds.count("error")
        assert int(suite.get("skipped", -1)) == kinds.count("skipped")


def test_junit_carries_what_xml_cannot(bad: Path) -> None:
    report = document(bad)
    nasty = "\x00\x1b[31m<b>&\ud800]]>\ufffe\x85"
    row = _row(report, "audio.whole-samples")
    row["reason"] = row["checks"][0]["received"] = nasty
    report["subject"]["name"] = nasty
    root = ET.fromstring(to_junit(report))
    (failure,) = next(c for c in root.iter("testcase") if c.get("name") == "audio.whole-samples")
    assert (failure.get("message") or "").startswith("\\u0000\\u001b[31m<b>&\\ud800]]>\\ufffe")


@pytest.mark.parametrize(
    ("verdict_", "strict", "tags"),
    [
        ("pass", False, []),
        ("weak", False, ["system-out"]),
        ("weak", True, ["failure"]),
        ("harness-error", False, ["error"]),
        ("not-claimed", False, ["skipped"]),
    ],
)
def test_junit_of_each_verdict(verdict_: str, strict: bool, tags: list[str], bad: Path) -> None:
    report = document(bad)
    report["options"]["strict"] = strict
    _row(report, "order.fifo")["verdict"] = verdict_
    root = ET.fromstring(to_junit(report))
    case = next(c for c in root.iter("testcase") if c.get("name") == "order.fifo")
    assert [child.tag for child in case] == tags


def test_junit_fails_where_the_run_does(bad: Path) -> None:
    """Build servers fail by this file alone: known failures are none, stale entries are."""
    report = document(bad)
    _row(report, "audio.whole-samples")["known"] = "mended in May \x00"
    _row(report, "order.fifo")["verdict"] = "pass"
    report["baseline"] = {"stale": ["order.fifo"]}
    root = ET.fromstring(to_junit(report))
    cases = {case.get("name"): list(case) for case in root.iter("testcase")}
    (known,), (stale,) = cases["audio.whole-samples"], cases["order.fifo"]
    assert (known.tag, known.get("message")) == ("skipped", "known failure: mended in May \\u0000")
    assert "received: " in (known.text or "")
    assert (stale.tag, stale.get("type")) == ("failure", "stale")
    (core,) = (suite for suite in root if suite.get("name") == "utterwire.core")
    tags = [child.tag for case in core.iter("testcase") for child in case]
    assert int(core.get("failures", -1)) == tags.count("failure")
    assert int(core.get("skipped", -1)) == tags.count("skipped")


# --- live and offline -----------------------------------------------------------------------------


def offline(results: Results) -> dict[str, Any]:
    """The judgements on the transcripts once they were written and read."""
    again = [Transcript.from_lines(t.to_lines()) for t in results.transcripts.values()]
    return dict(judge_checks([CHECKS[name] for name in results.judgements], reversed(again)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        "samples-split",
        "seq-from-zero",
        "second-first",
        "closes-after-utterance",
        "pongs-empty",
        "null-fields-refused",
    ],
)
def test_files_are_judged_as_the_live_run_was(fault: str) -> None:
    """Without a fault the report of a whole run is verified in test_suite.py."""

    async def main() -> Results:
        async with Target(ENDPOINT) as target:
            assert target.main is not None
            breaks = FAULTS[fault].breaks
            broken = [c.id for c in chosen_checks() if c.requirement in breaks]
            general = [c.id for c in chosen_checks() if c.general and c.id not in broken]
            return await run_behind(target.main, fault, [*broken, *general[:20]])

    results = asyncio.run(main())
    assert offline(results) == results.judgements
    red = {Verdict.FAIL, Verdict.WEAK}
    assert red & {j.verdict for j in results.judgements.values()}
