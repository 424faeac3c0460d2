"""`utterwire-conformance judge`: stored transcripts judged again, without who made them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from .check import CHECKS
from .command import PROGRAM, Parser, complain, printable, show
from .judging import Moment, Moments, judge_checks
from .requirements import requirement
from .transcript import Transcript
from .verdict import Judgement, Verdict

__all__ = ["exit_status", "failure_lines", "judge_transcripts", "load_transcripts", "main_judge"]

_PARTS = (
    ("found:", "reason"),
    ("sent:", "sent"),
    ("received:", "received"),
    ("legal:", "legal"),
    ("change:", "advice"),
)


def judge_transcripts(transcripts: Sequence[Transcript]) -> dict[str, Judgement]:
    """What the judges find in these transcripts, by check; only what was put to the test.

    Checks of profiles that are not claimed in them are left out, as in a run.
    """
    claimed = {(t.role, profile) for t in transcripts for profile in t.claims.profiles}
    rows = {name: requirement(check.requirement) for name, check in CHECKS.items()}
    checks = [CHECKS[name] for name, row in rows.items() if (row.role, row.profile) in claimed]
    found = judge_checks(checks, transcripts)
    wanted = (Verdict.HARNESS_ERROR,)
    return {name: j for name, j in found.items() if j.verdict.judged or j.verdict in wanted}


def load_transcripts(names: Sequence[str]) -> list[Transcript]:
    """Read the files of these names.

    Raises:
        ValueError: one cannot be read or is no transcript; the text is a line for people.
    """
    found = []
    for name in names:
        try:
            found.append(Transcript.load(Path(name)))
        except OSError as error:
            raise ValueError(f"{name}: {error.strerror or error}") from error
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return found


def failure_lines(name: str, judgement: Judgement, moment: Moment | None) -> list[str]:
    """One finding, for a person."""
    row = requirement(CHECKS[name].requirement)
    lines = [f"{judgement.verdict.value.upper()}  {row.id}  ({row.level}, spec/{row.clause})"]
    for label, part in _PARTS:
        text = getattr(judgement, part)
        if text:
            lines.append(f"   {label:<10} {printable(text)}")
    if moment is not None:
        place = f"line {moment.line} of {moment.scenario}, session {moment.session}"
        lines.append(f"   {'broke at:':<10} {place}, {moment.t:.3f} s")
    return lines


def main_judge(arguments: Sequence[str]) -> int:
    """`judge FILE…`: show what is wrong in stored transcripts.

    The exit status is 0 if nothing is, 1 if something is, 2 if they cannot be judged.
    """
    parser = Parser(
        prog=f"{PROGRAM} judge",
        description="Judge stored transcripts again, without the endpoint that they came from.",
        epilog="Exit status: 0 nothing is wrong in them, 1 something is, 2 they cannot be judged.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a transcript, compressed or not")
    try:
        options = parser.parse_args(list(arguments))
        transcripts = load_transcripts(options.files)
    except SystemExit as stop:
        return int(stop.code or 0)
    except ValueError as error:
        return complain(str(error))
    found = judge_transcripts(transcripts)
    moments = Moments(transcripts)
    bad = {name: j for name, j in found.items() if j.verdict is not Verdict.PASS}
    lines: list[str] = []
    for name, judgement in bad.items():
        lines += [*failure_lines(name, judgement, moments.of(CHECKS[name], judgement)), ""]
    good = [name for name in found if name not in bad]
    lines.append(f"{len(good)} of {len(found)} checks that these transcripts exercise pass.")
    if good:
        lines += textwrap.wrap(", ".join(good), 96, initial_indent="   ", subsequent_indent="   ")
    show(lines)
    return exit_status(found)


def exit_status(found: dict[str, Judgement]) -> int:
    """0 all is well, 1 something is broken, 2 nothing could be judged."""
    verdicts = {judgement.verdict for judgement in found.values()}
    if not verdicts or Verdict.HARNESS_ERROR in verdicts:
        return 2
    return int(Verdict.FAIL in verdicts)
