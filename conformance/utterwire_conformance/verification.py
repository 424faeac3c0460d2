"""`utterwire-conformance verify`: whether all that a report says follows from its transcripts.

The report is made again from what lies beside it, and compared. That shows what was changed, lost
or damaged later. It is no signature: who makes up transcripts can make a report that follows from
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .archive import Stored, file_digest
from .baseline import Baseline
from .check import CHECKS
from .claims import EndpointClaims
from .command import PROGRAM, Parser, complain, printable, show
from .deployed_client import findings as deployed_findings
from .fuzz import FuzzResults, KindResult
from .judging import judge_checks
from .junit import to_junit
from .report import Report, results_of
from .report_file import ReportError, ReportFile
from .requirements import requirements
from .requirements.text import revision
from .runner import Results
from .selection import Selection
from .transcript import Transcript, suite_name
from .verdict import Judgement, Verdict

__all__ = ["main_verify", "problems"]

_FOLDERS: Final = ("transcripts", "findings")
_SAID: Final = ("reason", "sent", "received", "legal", "advice")
_MOST_SHOWN: Final = 40


def problems(report: ReportFile) -> Iterator[str]:
    """What does not follow, each in one line.

    Raises:
        ReportError: the report is of a form that cannot be made again.
    """
    yield from _files(report)
    transcripts: dict[str, Transcript] = {}
    for name in report.document["transcripts"]:
        try:
            transcripts[name] = report.transcript(name)
        except OSError:
            continue  # Told already.
        except ValueError as error:
            yield f"{report.document['transcripts'][name]['file']}: {error}"
    yield from _headers(report, transcripts)
    yield from _verdicts(report, transcripts)
    yield from _findings(report)


def _files(report: ReportFile) -> Iterator[str]:
    named = [*report.document["transcripts"].values(), *report.document.get("findings", ())]
    for entry in named:
        path = report.folder / entry["file"]
        try:
            digest = file_digest(path)
        except OSError as error:
            yield f"{entry['file']}: {error.strerror or error}"
            continue
        if digest != entry["sha256"]:
            yield f"{entry['file']}: it is not the file that was saved (its digest differs)"
    known = {entry["file"] for entry in named}
    for part in _FOLDERS:
        place = report.folder / part
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            if f"{part}/{path.name}" not in known:
                yield f"{part}/{path.name}: the report does not name this file"


def _headers(report: ReportFile, transcripts: Mapping[str, Transcript]) -> Iterator[str]:
    document = report.document
    claimed = set(document["claims"]["profiles"])
    for name, transcript in transcripts.items():
        file = document["transcripts"][name]["file"]
        if transcript.scenario != name:
            yield f"{file}: it is the transcript of {transcript.scenario!r}, not of {name!r}"
        if transcript.role != document["role"]:
            yield f"{file}: it judges a {transcript.role}, the report {_a(document['role'])}"
        if set(transcript.claims.profiles) != claimed:
            yield f"{file}: it was recorded with other claims than the report's"
        for key in ("unfinished", "broken"):
            if document["transcripts"][name].get(key) != getattr(transcript, key):
                yield f"{file}: `{key}` is another in the report"


def _a(role: str) -> str:
    return f"an {role}" if role == "endpoint" else f"a {role}"


def _verdicts(report: ReportFile, transcripts: Mapping[str, Transcript]) -> Iterator[str]:
    document = report.document
    again = _again(report, transcripts)
    made = again.to_json()
    old = {row["requirement"]: row for row in document["results"]}
    new = {row["requirement"]: row for row in made["results"]}
    for name in new.keys() - old.keys():
        yield f"{name}: the report says nothing of it"
    for name in old.keys() - new.keys():
        yield f"{name}: there is no such requirement in this version of the suite"
    for name, row in old.items():
        if name in new:
            yield from _row(name, row, new[name])
    if len(old) != len(document["results"]):
        yield "results: a requirement stands there twice"
    for key, what in (
        ("summary", "the counts do not follow from the verdicts"),
        ("exit_code", f"{document['exit_code']} does not follow, but {made['exit_code']}"),
        ("deployed_client", "what clients in the field would meet does not follow"),
        ("latency", "the times do not follow from the transcripts"),
        ("baseline", "what is known, stale and unseen does not follow"),
    ):
        if document.get(key) != made.get(key):
            yield f"{key}: {what}"
    try:
        junit = (report.folder / "junit.xml").read_text("utf-8")
    except FileNotFoundError:
        junit = None
    except (OSError, UnicodeDecodeError):
        junit = ""
    if junit is not None and junit != to_junit(document):
        yield "junit.xml: it says something else than report.json"


def _row(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if old["verdict"] != new["verdict"]:
        yield f"{name}: it says {old['verdict']}, and {new['verdict']} follows{_why(new)}"
    for key in ("level", "profile", "clause", "text", "reason", "known"):
        if old.get(key) != new.get(key) and old["verdict"] == new["verdict"]:
            yield f"{name}: `{key}` does not follow"
    checks = {check["check"]: check for check in new["checks"]}
    if [check["check"] for check in old["checks"]] != list(checks):
        yield f"{name}: its checks are not those of the suite"
    for check in old["checks"]:
        other = checks.get(check["check"], check)
        if check["verdict"] != other["verdict"]:
            yield (
                f"{name}: its check {check['check']} says {check['verdict']}, and"
                f" {other['verdict']} follows"
            )
            continue
        for key in (*_SAID, "transcripts", "at"):
            if check.get(key) != other.get(key):
                yield f"{name}: `{key}` of its check {check['check']} does not follow"


def _why(row: Mapping[str, Any]) -> str:
    return f" ({row['reason']})" if row.get("reason") else ""


def _again(report: ReportFile, transcripts: Mapping[str, Transcript]) -> Report:
    """The report made anew, from the transcripts and from what shaped the run."""
    document = report.document
    subject = report.subject()
    options = dict(document["options"])
    role = document["role"]
    chosen, selected = options["profiles"], options.get("selected")
    wanted = {
        name
        for row in requirements()
        if row.role == role and row.profile in subject.claims.profiles and row.profile in chosen
        if selected is None or row.id in selected
        for name in row.checks
        if name in CHECKS
    }
    results = Results(
        judge_checks(
            [CHECKS[name] for name in sorted(wanted)],
            transcripts.values(),
            launched="launch" in document["subject"],
            unreachable=document.get("unreachable"),
            selection=Selection(quick=options.get("quick") is True),
        ),
        dict(transcripts),
        unreachable=document.get("unreachable"),
    )
    if document["claims_learned"]:
        table = document["claims"] | document["claims_learned"]
        results.claims = EndpointClaims.from_table(table)
    again = Report(
        subject,
        tuple(chosen),
        results_of(results, subject, chosen, selected=selected, role=role),
        results,
        strict=options["strict"],
        role=role,
        options=options,
        deployed_client=[f for t in results.transcripts.values() for f in deployed_findings(t)]
        if role == "endpoint"
        else document["deployed_client"],
    )
    again.baseline = _baseline(document)
    again.listed_findings = tuple(f["requirement"] for f in document.get("findings", ()))
    kinds = document.get("fuzz", {}).get("kinds", {})
    again.fuzzed = FuzzResults(0, kinds={name: _kind(told) for name, told in kinds.items()})
    again.stored = {name: _stored(entry) for name, entry in document["transcripts"].items()}
    return again


def _kind(told: Mapping[str, Any]) -> KindResult:
    return KindResult(Verdict(told["verdict"]), told.get("reason", ""), told.get("programs", 0))


def _baseline(document: Mapping[str, Any]) -> Baseline | None:
    """The known failures, as far as the report repeats them."""
    listed = document.get("baseline")
    if listed is None:
        return None
    told = {row["requirement"]: row.get("known", "") for row in document["results"]}
    names = (*listed["known"], *listed["stale"], *listed["unseen"])
    return Baseline({name: told.get(name) or "known" for name in names}, listed["file"])


def _stored(entry: Mapping[str, Any]) -> Stored:
    notes = (entry.get("unfinished"), entry.get("broken"))
    return Stored(entry["file"], entry["sha256"], entry["lines"], entry["sessions"], *notes)


def _findings(report: ReportFile) -> Iterator[str]:
    """Whether each finding of the fuzzing is found again."""
    for finding in report.document.get("findings", ()):
        try:
            transcript = Transcript.load(report.folder / finding["file"])
        except OSError:
            continue  # Told already.
        except ValueError as error:
            yield f"{finding['file']}: {error}"
            continue
        names = [c for c in CHECKS.values() if c.requirement == finding["requirement"]]
        found: Sequence[Judgement] = list(judge_checks(names, [transcript]).values())
        if not any(j.verdict in (Verdict.FAIL, Verdict.WEAK) for j in found):
            yield f"{finding['file']}: that it breaks {finding['requirement']} does not follow"


def main_verify(arguments: Sequence[str]) -> int:
    """`verify REPORT`: the exit status is 0 if all follows, 1 if not, 2 if it is no report."""
    parser = Parser(
        prog=f"{PROGRAM} verify",
        description="Judge a whole report again from its transcripts, and compare.",
        epilog="Exit status: 0 all of it follows, 1 something does not, 2 it is no report. It"
        " finds what was changed or lost later; it is no signature.",
    )
    parser.add_argument("report", metavar="REPORT", help="report.json, or the folder it lies in")
    try:
        options = parser.parse_args(list(arguments))
        report = ReportFile.load(Path(options.report))
        found = list(problems(report))
    except SystemExit as stop:
        return int(stop.code or 0)
    except ReportError as error:
        return complain(str(error))
    show(_lines(report, found))
    return int(bool(found))


def _lines(report: ReportFile, found: Sequence[str]) -> Iterable[str]:
    document = report.document
    own = suite_name().rpartition(" ")[2]
    if document["suite_version"] != own:
        said = printable(document["suite_version"])
        yield f"note: it was made by version {said} of the suite; this is {own}"
    if document["spec"]["revision"] != revision():
        yield "note: it was made with another revision of the specification than this suite has"
    yield from (printable(line) for line in found[:_MOST_SHOWN])
    if len(found) > _MOST_SHOWN:
        yield f"… and {len(found) - _MOST_SHOWN} more"
    files = len(document["transcripts"])
    rows = len(document["results"])
    if found:
        yield f"{len(found)} of what the report says does not follow from its {files} transcripts."
    else:
        yield f"All {rows} verdicts follow from the {files} transcripts, which are as they were."
