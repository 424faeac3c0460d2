"""Judging stored transcripts again, without the endpoint that they came from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from .check import CHECKS, Account
from .judges import second_opinion
from .requirements import requirement
from .transcript import Transcript
from .verdict import Judgement, Verdict, worst

__all__ = ["main_replay", "replay"]


def replay(transcripts: Sequence[Transcript]) -> dict[str, Judgement]:
    """What the judges find in these transcripts, by check; only what was put to the test."""
    accounts = [Account.of(transcript) for transcript in transcripts]
    found: dict[str, Judgement] = {}
    for check in CHECKS.values():
        evidence = [a for a in accounts if check.general or a.scenario in check.scenarios]
        if not evidence:
            continue
        row = requirement(check.requirement)
        opinions = [check.judge(evidence)]
        second = second_opinion(row.id, row.text, evidence)
        judgement = worst([*opinions, second] if second is not None else opinions)
        if judgement.verdict.judged:
            recommended = row.level.startswith("SHOULD")
            found[check.id] = judgement.weakened() if recommended else judgement
    return found


def main_replay(arguments: Sequence[str]) -> int:
    """`replay FILE…`: show what is wrong in stored transcripts.

    The exit status is 0 if nothing is, 1 if something is, 2 if a file is no transcript.
    """
    if not arguments or any(argument.startswith("-") for argument in arguments):
        print("usage: utterwire-conformance replay TRANSCRIPT.jsonl …", file=sys.stderr)
        return 0 if set(arguments) & {"-h", "--help"} else 2
    transcripts = []
    for name in arguments:
        try:
            transcripts.append(Transcript.load(Path(name)))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            print(f"utterwire-conformance: {name}: {why}", file=sys.stderr)
            return 2
    found = replay(transcripts)
    bad = {name: j for name, j in found.items() if j.verdict is not Verdict.PASS}
    for name, judgement in bad.items():
        row = requirement(CHECKS[name].requirement)
        print(f"{judgement.verdict.value.upper()}  {row.id}  ({row.level}, spec/{row.clause})")
        for label in ("reason", "sent", "received", "legal", "advice"):
            text = getattr(judgement, label)
            if text:
                print(f"   {label + ':':<10} {text}")
    print(f"{len(found) - len(bad)} of {len(found)} checks that these transcripts exercise pass.")
    return int(any(j.verdict is Verdict.FAIL for j in bad.values()))
