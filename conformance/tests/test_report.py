"""The report: counts that add up, words, and no secret."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from utterwire_conformance.baseline import Baseline
from utterwire_conformance.check import CHECKS
from utterwire_conformance.endpoints import Endpoint, endpoint_at
from utterwire_conformance.fuzz import Finding, FuzzResults, KindResult, Program, Say
from utterwire_conformance.report import Report, results_of
from utterwire_conformance.runner import Results
from utterwire_conformance.transcript import Entry, Transcript
from utterwire_conformance.verdict import Judgement, Verdict, fail, not_exercised, passed
from utterwire_schemas import validator

SECRET = "tok-abcdefgh"


def endpoint() -> Endpoint:
    found = endpoint_at("wss://u:pass-word-1@h/x?key=1", profiles=["http", "interrupt"])
    return replace(found, headers=(("Authorization", f"Bearer {SECRET}"),))


def report(changes: dict[str, Judgement], *, strict: bool = False) -> Report:
    judgements = dict.fromkeys(CHECKS, passed()) | changes
    transcript = Transcript("order")
    transcript.add(Entry(0.0, "note", "note", 0, text="hello"))
    run = Results(judgements, {"order": transcript})
    where = endpoint()
    return Report(
        where, ("core", "http"), results_of(run, where, ("core", "http")), run, strict=strict
    )


BROKEN = fail(
    "It is broken.",
    sent=f"a message with {SECRET}",
    received="nonsense",
    legal="sense",
    advice="Mend it.",
    scenarios=["order"],
)


@pytest.mark.parametrize(
    ("changes", "strict", "code", "word"),
    [
        ({}, False, 0, "CONFORMS"),
        ({"order.fifo": BROKEN}, False, 1, "DOES NOT CONFORM"),
        ({"audio.speed": BROKEN.weakened()}, False, 0, "1 recommendation not met"),
        ({"audio.speed": BROKEN.weakened()}, True, 1, "DOES NOT CONFORM"),
        (
            {"order.fifo": Judgement(Verdict.HARNESS_ERROR, "nobody there")},
            False,
            2,
            "COULD NOT BE JUDGED",
        ),
        (dict.fromkeys(CHECKS, not_exercised("not now")), False, 2, "nothing was judged"),
    ],
)
def test_exit_codes_and_their_words(
    changes: dict[str, Judgement], strict: bool, code: int, word: str
) -> None:
    made = report(changes, strict=strict)
    assert made.exit_code == code
    assert word in made.lines()[-1]


def fuzzed(verdict: Verdict) -> FuzzResults:
    """Fuzzing that came to that verdict, with a finding where it is a failure."""
    results = FuzzResults(7, kinds={"sessions": KindResult(verdict, "the way is gone", 5)})
    results.stopped = "every program was played"
    if verdict is Verdict.FAIL:
        program = Program.of("sessions", [Say(0, b"{")])
        rules = {"order.fifo": BROKEN}
        found = Finding("order-fifo", program, Transcript("fuzz-sessions"), rules, "order.fifo")
        results.findings.append(replace(found, tries=3, again=3))
    return results


@pytest.mark.parametrize(
    ("verdict", "listed", "code", "words"),
    [
        (Verdict.PASS, False, 0, ("5 programs", "nothing found", "CONFORMS")),
        (Verdict.FAIL, False, 1, ("1 finding", "1 step", "DOES NOT CONFORM", "of fuzzing")),
        (Verdict.FAIL, True, 1, ("IS BETTER THAN ITS BASELINE",)),
        (Verdict.HARNESS_ERROR, False, 2, ("COULD NOT BE JUDGED", "the way is gone")),
        (Verdict.NOT_EXERCISED, False, 0, ("not-exercised: the way is gone",)),
    ],
)
def test_what_fuzzing_found_counts(
    tmp_path: Path, verdict: Verdict, listed: bool, code: int, words: tuple[str, ...]
) -> None:
    made = report({})
    made.fuzzed = fuzzed(verdict)
    if listed:
        made.baseline = Baseline({"order.fifo": "known"}, "known.toml")
    made.save(tmp_path)
    assert made.exit_code == code
    said = "\n".join(made.lines(tmp_path))
    assert [word for word in words if word not in said] == []
    document = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert list(validator("report").iter_errors(document)) == []
    assert document["fuzz"]["programs"] == 5
    files = [finding["file"] for finding in document.get("findings", ())]
    assert all((tmp_path / file).is_file() for file in files)
    assert len(files) == (verdict is Verdict.FAIL)


def test_why_there_was_no_fuzzing_is_told(tmp_path: Path) -> None:
    made = report({})
    made.unfuzzed = "left out by --no-fuzz"
    made.save(tmp_path)
    assert "no fuzzing: left out by --no-fuzz" in made.lines()
    document = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert document["fuzz"] == {"left_out": "left out by --no-fuzz"}
    assert list(validator("report").iter_errors(document)) == []


def test_an_endpoint_that_never_spoke_does_not_conform() -> None:
    made = report({})
    made.run.transcripts["probe"] = Transcript("probe")
    assert made.exit_code == 2
    assert "no request was spoken to its end" in made.lines()[-1]


def test_the_report_satisfies_its_schema_and_adds_up(tmp_path: Path) -> None:
    made = report(
        {
            "order.fifo": BROKEN,
            "ws.path": BROKEN,
            "audio.speed": BROKEN.weakened(),
            "queue.full": not_exercised("never full"),
            "http.ping": Judgement(Verdict.HARNESS_ERROR, "nobody there"),
        }
    )
    made.save(tmp_path)
    document = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert list(validator("report").iter_errors(document)) == []
    assert SECRET not in json.dumps(document)
    assert "pass-word-1" not in json.dumps(document)
    core = document["summary"]["core"]
    assert core["failed"] == 2
    assert core["weak"] == 1
    assert core["applicable"] == core["passed"] + core["failed"] + core["weak"]
    assert core["total"] == core["applicable"] + core["not_exercised"] + core["harness_errors"]
    assert (tmp_path / "transcripts" / "order.jsonl").is_file()
    worst_first = [result.requirement.id for result in made.grave()]
    assert worst_first == ["ws.path", "order.fifo", "http.ping", "audio.speed"]


def test_a_stranger_is_told_all_of_it(tmp_path: Path) -> None:
    made = report({"order.fifo": BROKEN})
    made.save(tmp_path)
    text = "\n".join(made.lines(tmp_path))
    for part in (
        "order.fifo",
        "spec/protocol.md#order",
        "It is broken.",
        "nonsense",
        "sense",
        "Mend it.",
        "order.jsonl",
        "not claimed: ",
    ):
        assert part in text


def test_what_stands_in_the_way_of_all_is_told_once() -> None:
    gone = Judgement(Verdict.HARNESS_ERROR, "nobody there")
    lines = report(dict.fromkeys(CHECKS, gone)).lines()
    assert sum("nobody there" in line for line in lines) == 1


def test_findings_of_deployed_clients_are_shown() -> None:
    made = report({})
    made.deployed_client = [{"finding": "It would hang.", "effect": "hang"}]
    assert any("It would hang." in line for line in made.lines())


def test_only_what_was_selected_counts() -> None:
    where = endpoint()
    run = Results({"order.fifo": passed()}, {})
    found = results_of(run, where, ("core",), selected=["order.fifo"])
    judged = [r.requirement.id for r in found if r.verdict is Verdict.PASS]
    assert judged == ["order.fifo"]
    assert any(r.reason == "it was not selected" for r in found)


@pytest.mark.parametrize(
    ("changes", "known", "strict", "code", "words"),
    [
        ({"order.fifo": BROKEN}, ["order.fifo"], False, 0, "AS_KNOWN 1 known failure"),
        ({"order.fifo": BROKEN}, [], False, 1, "1 requirement broken"),
        (
            {"order.fifo": BROKEN, "ws.path": BROKEN},
            ["order.fifo"],
            False,
            1,
            "1 requirement broken; 1 known failure.",
        ),
        ({}, ["order.fifo"], False, 1, "IS BETTER THAN ITS BASELINE"),
        ({}, ["order.fifo", "ws.path"], False, 1, "2 entries of known.toml are met now"),
        ({"order.fifo": not_exercised("no")}, ["order.fifo"], False, 0, "CONFORMS"),
        ({}, ["sse.content-type"], False, 0, "CONFORMS"),
        ({"audio.speed": BROKEN.weakened()}, ["audio.speed"], True, 0, "AS_KNOWN"),
        ({"audio.speed": BROKEN.weakened()}, ["audio.speed"], False, 0, "1 recommendation not met"),
        (
            {"order.fifo": Judgement(Verdict.HARNESS_ERROR, "gone"), "ws.path": BROKEN},
            ["ws.path"],
            False,
            2,
            "COULD NOT BE JUDGED",
        ),
    ],
)
def test_known_failures_are_compared_exactly(
    changes: dict[str, Judgement], known: list[str], strict: bool, code: int, words: str
) -> None:
    made = report(changes, strict=strict)
    made.baseline = Baseline(dict.fromkeys(known, "It may."), "known.toml")
    assert made.exit_code == code
    last = made.lines()[-1]
    for word in words.replace("AS_KNOWN", "DOES NOT CONFORM, as is known").split(" 1 known"):
        assert word in last
    document = made.to_json()
    assert list(validator("report").iter_errors(document)) == []
    listed = document["baseline"]
    assert sorted(listed["known"] + listed["stale"] + listed["unseen"]) == sorted(
        name
        for name in known
        if strict or name not in changes or changes[name].verdict is not Verdict.WEAK
    )
    marked = {row["requirement"] for row in document["results"] if "known" in row}
    assert marked == set(listed["known"])


def test_the_summary_names_known_stale_and_unseen_entries() -> None:
    made = report({"order.fifo": BROKEN, "queue.full": not_exercised("never full")})
    reasons = dict.fromkeys(["order.fifo", "queue.full", "ws.path"], "We wait for the scheduler.")
    made.baseline = Baseline(reasons, "known.toml")
    text = "\n".join(made.lines())
    for part in (
        "KNOWN FAIL  order.fifo",
        "We wait for the scheduler.",
        "STALE  listed in known.toml as known, and met now:\n   ws.path",
        "queue.full: not-exercised, never full",
    ):
        assert part in text


def test_a_quick_look_does_not_say_that_it_conforms() -> None:
    left_out = dict.fromkeys(list(CHECKS)[10:], not_exercised("left out by --quick"))
    made = report(left_out)
    made.options = {"quick": True}
    assert made.exit_code == 0
    lines = made.lines()
    assert "LOOKS RIGHT at a quick glance" in lines[-1]
    assert any("requirements: left out by --quick" in line for line in lines)
    assert made.to_json()["options"]["quick"] is True


def test_that_few_connections_were_let_in_is_said() -> None:
    made = report({})
    made.run.most_connections = 1
    assert any("only 1 connection at a time let in" in line for line in made.lines())
    assert made.to_json()["environment"]["most_connections"] == 1
