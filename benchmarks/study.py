"""What the field has published about streamed speech, measured again on any endpoint, in one run.

    python benchmarks/study.py                       writes evidence/study.json and study.html
    python benchmarks/study.py --quick --html quick.html
    python benchmarks/study.py --endpoint mine --recogniser .venv-ears/bin/python --out mine.json

Without an endpoint it measures the reference server, which it starts itself: the tone engine, at a
real-time factor of 0.04. Everything that is compared is measured in turns, in sessions that are
warm; each figure is told with quartiles and the number of samples. A full run takes about a quarter
of an hour; it wants a machine that does nothing else (``load_average`` tells). Word errors need an
endpoint that speaks and, by ``--recogniser``, a Python with what the extra ``quality`` has.

Exits 1 if the server that it started misses a goal or cannot be measured, 2 without a result.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import os
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

import carriage
import conversations
from finding import Finding, Goal, NotMeasured
from provenance import ROOT, record, write
from speaking import Place, Plan, spoken
from spread import Spread
from study_page import study_page
from utterwire_client import Deadlines, Endpoint, UtterwireError
from utterwire_client.address import display
from utterwire_client.cli.exit_code import UsageError
from utterwire_client.cli.where import Where, add_where

__all__ = [
    "EXPERIMENTS",
    "FULL",
    "QUICK",
    "SCHEMA",
    "Experiment",
    "Subject",
    "goals",
    "main",
    "parser",
    "shown_command",
    "study",
    "table",
]

#: JSON Schema of the result.
SCHEMA: Final = Path(__file__).with_name("study.schema.json")
FORMAT: Final = 1
FULL: Final = Plan(
    rounds=20, interruptions=100, texts=3, clips=24, delays_ms=(0, 20, 80, 200), per_s=30.0
)
QUICK: Final = Plan(rounds=2, interruptions=5, texts=1, clips=3, delays_ms=(0, 80), per_s=30.0)
#: What bears on the figures: of the client, and of the server that is started.
_CLIENT: Final = ("httpx", "sentencex", "websockets")
_SERVER: Final = ("av", "numpy", "starlette", "uvicorn", "websockets")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: ``place``, and where there are several kinds of engine, ``kinds``.

    ``engine`` is that of the server which was started here; None for an endpoint that was there.
    """

    name: str
    place: Place
    kinds: Sequence[tuple[str, Place]]
    engine: str | None


@dataclass(frozen=True, slots=True)
class Experiment:
    """A title, and what measures it."""

    title: str
    measure: Callable[[Subject, Plan], Awaitable[Finding]]


#: By id, in the order in which they are done and shown.
EXPERIMENTS: Final[Mapping[str, Experiment]] = {
    "whole-or-sentences": Experiment(
        "Whole answer, or sentence by sentence",
        lambda subject, plan: conversations.whole_or_sentences(subject.kinds, plan),
    ),
    "token-stream": Experiment(
        "As the text comes",
        lambda subject, plan: conversations.token_stream(subject.place, plan),
    ),
    "links": Experiment(
        "From afar: one at a time, or pipelined",
        lambda subject, plan: conversations.links(subject.place, plan),
    ),
    "gaps": Experiment(
        "Gaps between sentences",
        lambda subject, plan: conversations.gaps(subject.place, plan),
    ),
    "interruptions": Experiment(
        "Interruptions",
        lambda subject, plan: conversations.interruptions(subject.place, plan),
    ),
    "encodings": Experiment(
        "Encodings",
        lambda subject, plan: carriage.encodings(subject.place, plan),
    ),
    "carriers": Experiment(
        "Raw bytes, or base64 in events",
        lambda subject, plan: carriage.carriers(subject.place, plan),
    ),
}


def goals(findings: Mapping[str, Finding]) -> list[Goal]:
    """What the project set itself, held against what was found, by the ids of experiments."""
    reached = []
    if "token-stream" in findings:
        over = Spread.of(conversations.promptness(findings["token-stream"]))
        goal_ms = conversations.PROMPTNESS_GOAL_MS
        reached.append(
            Goal(
                "First byte after the token that told the first sentence and the engine's first "
                "block",
                f"within {goal_ms:g} ms, 95 of 100",
                f"median {over.median:.1f} ms, 95 of 100 within {over.p95:.1f} ms, at most "
                f"{over.most:.1f} ms, of {over.samples}",
                over.p95 <= goal_ms,
            )
        )
    if "gaps" in findings:
        rows = [row for row in findings["gaps"].rows if row.name.endswith("pipelined")]
        count = sum(int(row.facts["gaps"]) for row in rows)
        texts = sum(len(row.samples["gap_ms"]) for row in rows)
        found = f"{count} in {texts} texts"
        reached.append(Goal("Gaps between sentences, pipelined", "none", found, count == 0))
    if "interruptions" in findings:
        facts = findings["interruptions"].rows[0].facts
        late, tasks = int(facts["after_ack_bytes"]), int(facts["tasks_left"])
        reached.append(
            Goal(
                "Left of an interruption",
                "no audio after the acknowledgement, no task",
                f"{late} bytes of audio, {tasks} tasks",
                not late and not tasks,
            )
        )
    return reached


@contextlib.contextmanager
def _launched() -> Iterator[tuple[str, str]]:
    """The reference server with each of two engines: addresses of one that sends audio as it makes
    it, and of one that makes utterances whole. Raises `RuntimeError`."""
    from launched_server import LaunchedServer
    from whole_tone import REAL_TIME_FACTOR

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        streaming, whole = (
            stack.enter_context(
                LaunchedServer(
                    ["--engine", engine, "--rtf", str(REAL_TIME_FACTOR)],
                    log=folder / f"{number}.log",
                    ready_s=60.0,
                    modules=[Path(__file__).parent],
                )
            ).url
            for number, engine in enumerate(("tone", "whole_tone:whole_tone"))
        )
        yield streaming, whole


def _own(addresses: tuple[str, str], tell: Callable[[str], None]) -> Subject:
    """The servers that were launched."""
    from utterwire_server.engines.tone import BLOCK_S
    from whole_tone import REAL_TIME_FACTOR

    name = "reference server"
    streaming, whole = (
        Place(
            Where(Endpoint(name=name, url=url), None, [], Deadlines()),
            BLOCK_S * REAL_TIME_FACTOR,
            None,
            tell,
        )
        for url in addresses
    )
    kinds = (("sent as it is made", streaming), ("made whole first", whole))
    return Subject(name, streaming, kinds, f"tone, real-time factor {REAL_TIME_FACTOR}")


async def _given(where: Where, recogniser: str | None, tell: Callable[[str], None]) -> Subject:
    """An endpoint that is there; how long its first audio takes is measured. Raises
    `UtterwireError`, `NotMeasured`."""
    place = Place(where, 0.0, recogniser, tell)
    async with place.session() as session:
        waits = []
        for _ in range(6):
            told = await spoken(session, "One moment, please.")
            waits.append(told.first_at - told.asked_at)
    # The first one warms it up.
    place = Place(where, statistics.median(waits[1:]), recogniser, tell)
    name = where.endpoint.name
    if name == where.endpoint.url:
        name = display(name)
    return Subject(name, place, (("endpoint", place),), None)


async def study(
    subject: Subject, plan: Plan, chosen: Sequence[str]
) -> tuple[list[dict[str, Any]], list[Goal]]:
    """What each experiment found, or why it could not be done; and the goals."""
    documents = []
    findings: dict[str, Finding] = {}
    for name in chosen:
        experiment = EXPERIMENTS[name]
        subject.place.tell(f"{experiment.title} ...")
        reason = None
        finding = Finding("")
        try:
            finding = findings[name] = await experiment.measure(subject, plan)
        except (NotMeasured, UtterwireError) as exc:
            reason = str(exc)
            subject.place.tell(f"not measured: {reason}")
        documents.append(
            {
                "id": name,
                "title": experiment.title,
                "not_measured": reason,
                **finding.document(),
            }
        )
    return documents, goals(findings)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


async def _run(
    options: argparse.Namespace, plan: Plan, where: Where | tuple[str, str]
) -> dict[str, Any]:
    """The result, of an endpoint or of the servers that were launched."""
    started = datetime.datetime.now(datetime.UTC)
    load = os.getloadavg()[0]
    launched = isinstance(where, tuple)
    if isinstance(where, tuple):
        subject = _own(where, _tell)
    else:
        subject = await _given(where, options.recogniser, _tell)
    chosen = [name for name in EXPERIMENTS if name in (options.only or EXPERIMENTS)]
    documents, reached = await study(subject, plan, chosen)
    return {
        "utterwire_study": FORMAT,
        **record(shown_command(options), started, _installed(launched)),
        # Of one minute, before anything was measured: above the cores, others had a share.
        "load_average": round(load, 1),
        "endpoint": {
            "name": subject.name,
            "engine": subject.engine,
            "first_block_ms": round(1000 * subject.place.first_block_s, 3),
        },
        "plan": {
            "rounds": plan.rounds,
            "interruptions": plan.interruptions,
            "tokens_per_s": plan.per_s,
        },
        "goals": [goal.document() for goal in reached],
        "experiments": documents,
    }


def _installed(launched: bool) -> list[str]:
    names = dict.fromkeys([*_CLIENT, *(_SERVER if launched else ())])
    return [name for name in names if any(metadata.distributions(name=name))]


def shown_command(options: argparse.Namespace) -> list[str]:
    """How it was run, without paths of this machine and without secrets."""
    words = ["python", "benchmarks/study.py"]
    if options.endpoint is not None:
        words += ["--endpoint", options.endpoint]
    if options.url is not None:
        words += ["--url", display(options.url)]
    for name in options.only or ():
        words += ["--only", name]
    words += ["--quick"] * options.quick
    for name in ("rounds", "rate"):
        if getattr(options, name) is not None:
            words += [f"--{name}", f"{getattr(options, name):g}"]
    if options.recogniser:
        words += ["--recogniser", "PYTHON"]
    return words


def _plan(options: argparse.Namespace) -> Plan:
    """Raises `UsageError`."""
    plan = QUICK if options.quick else FULL
    rounds = plan.rounds if options.rounds is None else options.rounds
    per_s = plan.per_s if options.rate is None else options.rate
    if rounds < 1:
        raise UsageError("--rounds wants 1 or more")
    if not 0 < per_s < float("inf"):
        raise UsageError("--rate wants a number of tokens a second, greater than 0")
    return Plan(rounds, plan.interruptions, plan.texts, plan.clips, plan.delays_ms, per_s)


def table(result: Mapping[str, Any]) -> str:
    """The result as lines for a terminal: medians, quartiles, and what is expected."""
    lines = []
    for experiment in result["experiments"]:
        lines += ["", experiment["title"]]
        if experiment["not_measured"]:
            lines.append(f"  not measured: {experiment['not_measured']}")
        for row in experiment["rows"]:
            lines.append(f"  {row['name']}")
            for key, spread in row["measures"].items():
                due = row["expected"].get(key)
                lines.append(
                    f"    {experiment['measures'][key]}: {spread['median']:g} "
                    f"({spread['q1']:g} to {spread['q3']:g}, {spread['samples']} samples"
                    + (")" if due is None else f"; expected {due:g})")
                )
            told = [f"{experiment['facts'][key]}: {fact}" for key, fact in row["facts"].items()]
            lines += [f"    {each}" for each in [*told, *([row["note"]] if row["note"] else [])]]
    lines.append("")
    for goal in result["goals"]:
        lines.append(f"{'met' if goal['met'] else 'MISSED'}: {goal['name']}: {goal['found']}")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    command = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_where(command)
    command.add_argument("--only", action="append", choices=EXPERIMENTS, help="may be repeated")
    command.add_argument("--quick", action="store_true", help="a minute: few samples, one text")
    command.add_argument(
        "--rounds", type=int, metavar="N", help=f"samples of most things (default: {FULL.rounds})"
    )
    command.add_argument(
        "--rate", type=float, metavar="N", help=f"tokens a second (default: {FULL.per_s:g})"
    )
    command.add_argument(
        "--recogniser", metavar="PYTHON", help="an interpreter that has moonshine-voice"
    )
    command.add_argument(
        "--out", help="a path, or - for stdout (default: evidence/study.json; with --quick, -)"
    )
    command.add_argument("--html", help="the page (default: beside --out; none with -)")
    return command


def main(arguments: list[str]) -> int:
    """Measure, write the result and its page; see the module's text for the exit codes."""
    options = parser().parse_args(arguments)
    out = options.out or ("-" if options.quick else "evidence/study.json")
    html = options.html or (None if out == "-" else str(Path(out).with_suffix(".html")))
    try:
        plan = _plan(options)
        with contextlib.ExitStack() as stack:
            where: Where | tuple[str, str]
            if options.url is None and options.endpoint is None:
                if options.recogniser:
                    raise UsageError(
                        "tones are no words: give --recogniser an endpoint that speaks"
                    )
                where = stack.enter_context(_launched())
            else:
                where = Where.of(options)
                if options.recogniser:
                    # What is missing is told now, not after a quarter of an hour.
                    import served_speech  # noqa: F401
                    import word_errors  # noqa: F401
            result = asyncio.run(_run(options, plan, where))
        write(result, out)
        if html is not None:
            (ROOT / html).write_text(study_page(result), encoding="utf-8")
    except (UsageError, UtterwireError, NotMeasured, OSError, RuntimeError) as exc:
        print(f"study: {exc}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as exc:
        needed = "client,quality" if options.recogniser else "server,client,encoders"
        print(
            f"study: the package {exc.name} is missing: pip install 'utterwire[{needed}]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("study: interrupted", file=sys.stderr)
        return 130
    _tell(table(result))
    missed = any(not goal["met"] for goal in result["goals"])
    missed |= any(each["not_measured"] for each in result["experiments"])
    return int(missed and result["endpoint"]["engine"] is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
