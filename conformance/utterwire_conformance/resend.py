"""`utterwire-conformance replay`: what a transcript recorded is sent again and judged anew."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .archive import store
from .check import CHECKS
from .command import PROGRAM, Parser, complain, show
from .driver import ConnectFailed
from .endpoints import Endpoint, EndpointFileError, endpoint_at, find_endpoint, parse_header
from .judging import Moments
from .number import positive_number
from .offline import exit_status, failure_lines, judge_transcripts, load_transcripts
from .playback import Playback, PlaybackError, needs_launch
from .stage import Meter, Pace, play
from .target import LaunchFailed, Target
from .transcript import Transcript
from .verdict import Judgement, Verdict

__all__ = ["Again", "main_replay", "replay"]

_RED = (Verdict.FAIL, Verdict.WEAK, Verdict.HARNESS_ERROR)


@dataclass(frozen=True, slots=True)
class Again:
    """A transcript that was sent again: what is found in the old one and in the new one."""

    recorded: Transcript
    now: Transcript
    before: dict[str, Judgement]
    after: dict[str, Judgement]

    @property
    def exit_status(self) -> int:
        """0 nothing is wrong now, 1 something is, 2 it cannot be told, not even whether what was
        wrong then is mended."""
        status = exit_status(self.after)
        wrong = {name for name, j in self.before.items() if j.verdict is Verdict.FAIL}
        return 2 if status == 0 and not wrong <= self.after.keys() else status

    def lines(self) -> list[str]:
        """What came of it, for a person."""
        bad = {name: j for name, j in self.after.items() if j.verdict in _RED}
        gone = [n for n, j in self.before.items() if j.verdict in _RED and n not in bad]
        moments = Moments([self.now])
        many = len(self.now.sessions())
        lines = [f"{self.recorded.scenario}: {many} connection{'' if many == 1 else 's'}"]
        notes = (("broken", self.now.broken), ("unfinished", self.now.unfinished))
        lines += [f"   {label}: {text}" for label, text in notes if text is not None]
        for name, judgement in bad.items():
            known = self.before.get(name)
            word = "again" if known is not None and known.verdict in _RED else "new"
            first, *rest = failure_lines(name, judgement, moments.of(CHECKS[name], judgement))
            lines += [f"{first}  [{word}]", *rest]
        for name in gone:
            found = self.after.get(name)
            rule = CHECKS[name].requirement
            told = f"no more: {rule} ({found.verdict.value} now)" if found is not None else None
            lines.append(told or f"not seen again, so that it cannot be told: {rule}")
        good = sum(j.verdict is Verdict.PASS for j in self.after.values())
        lines.append(f"   {good} of {len(self.after)} checks that it exercises pass.")
        return lines


async def replay(
    recorded: Sequence[Transcript], endpoint: Endpoint, *, patience: float = 15.0
) -> list[Again]:
    """Send what was recorded to an endpoint, one transcript after the other, and judge.

    What the recorded endpoint was known to claim holds for the live one if it is the same.

    Raises:
        PlaybackError: a transcript cannot be sent again, or not to this endpoint.
        LaunchFailed: the endpoint cannot be started.
        ConnectFailed: its certificates cannot be used.
    """
    playbacks = [Playback(transcript, patience=patience) for transcript in recorded]
    if not endpoint.launch and any(needs_launch(transcript) for transcript in recorded):
        raise PlaybackError("it tells of a shutdown, which needs an endpoint with `launch`")
    waits = endpoint.timeouts
    pace = Pace(waits.connect_s, waits.first_byte_s or patience, waits.stall_s or patience)
    found = []
    async with Target(endpoint) as target:
        assert target.main is not None
        for playback in playbacks:
            then = playback.recorded
            same = then.endpoint == endpoint.name or not endpoint.claims_known
            target.endpoint = replace(endpoint, claims=then.claims) if same else endpoint
            meter = Meter(endpoint.budget)
            now = await play(playback.scenario, target, target.main, pace, meter)
            found.append(Again(then, now, judge_transcripts([then]), judge_transcripts([now])))
    return found


def main_replay(arguments: Sequence[str]) -> int:
    """`replay FILE… --endpoint NAME`: the exit status is 0 if nothing is wrong now, 1 if
    something is, 2 if it cannot be told."""
    parser = Parser(
        prog=f"{PROGRAM} replay",
        description="Send what transcripts recorded to a live endpoint again, and judge what comes"
        " back.",
        epilog="Exit status: 0 nothing is wrong now, 1 something is, 2 it could not be told.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a transcript, compressed or not")
    parser.add_argument("--endpoint", metavar="NAME", help="the endpoint of this name")
    parser.add_argument("--endpoint-url", metavar="URL", help="the endpoint at this URL")
    parser.add_argument("--endpoints", metavar="FILE", help="the endpoint file")
    parser.add_argument("--header", metavar="'NAME: VALUE'", action="append", default=[])
    parser.add_argument(
        "--patience",
        metavar="S",
        type=positive_number,
        default=15.0,
        help="seconds to wait for what the recorded endpoint did (default: 15)",
    )
    parser.add_argument("--output", metavar="DIR", help="save what comes back as transcripts there")
    try:
        options = parser.parse_args(list(arguments))
        if bool(options.endpoint) == bool(options.endpoint_url):
            parser.error("give --endpoint NAME or --endpoint-url URL")
        recorded = load_transcripts(options.files)
        found = asyncio.run(_replay(recorded, _endpoint(options), options.patience))
        saved = _save(found, options.output)
    except SystemExit as stop:
        return int(stop.code or 0)
    except (EndpointFileError, PlaybackError, LaunchFailed, ConnectFailed, ValueError) as error:
        return complain(str(error))
    except OSError as error:
        return complain(f"{options.output}: {error.strerror or error}")
    except KeyboardInterrupt:
        return complain("interrupted")
    except asyncio.CancelledError:
        return complain("terminated")
    lines = [line for again in found for line in [*again.lines(), ""]]
    show([*lines[:-1], *(f"saved: {path}" for path in saved)])
    return max(again.exit_status for again in found)


async def _replay(
    recorded: Sequence[Transcript], endpoint: Endpoint, patience: float
) -> list[Again]:
    """`replay`, ended by SIGTERM and SIGHUP together with the endpoint that it launched."""
    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
        for each in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(each, task.cancel)
    return await replay(recorded, endpoint, patience=patience)


def _endpoint(options: Any) -> Endpoint:
    headers = [parse_header(text) for text in options.header]
    if options.endpoint_url:
        return endpoint_at(options.endpoint_url, headers=headers)
    file = Path(options.endpoints) if options.endpoints else None
    endpoint = find_endpoint(options.endpoint, file=file)
    return replace(endpoint, headers=(*endpoint.headers, *headers))


def _save(found: Sequence[Again], folder: str | None) -> list[str]:
    if folder is None:
        return []
    # Several may be of one name.
    named = {
        again.now.scenario if number == 0 else f"{again.now.scenario}-{number + 1}": again.now
        for number, again in enumerate(found)
    }
    stored = store(Path(folder), "transcripts", named)
    return [str(Path(folder) / file.file) for file in stored.values()]
