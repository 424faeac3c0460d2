"""The pytest plugin: options, collection, the run in the background, summary and exit status.

It is loaded by `conformance/conftest.py` in a checkout and by `utterwire-conformance` elsewhere,
never by an entry point: nobody else's pytest should know `--endpoint`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Generator, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from .deployed_client import findings
from .endpoints import (
    ENVIRONMENT_VARIABLE,
    FILE_NAME,
    Endpoint,
    EndpointFileError,
    endpoint_at,
    find_endpoint,
    parse_header,
)
from .report import Report, judgeable, results_of
from .requirements import PROFILES, RequirementsError, requirements
from .runner import Results, run_checks
from .suite import PROFILES_KEY, RUN_KEY, HarnessError, Judged, RequirementItem, SuiteFile
from .target import Target
from .verdict import Judgement, worst

__all__ = [
    "pytest_addoption",
    "pytest_collect_file",
    "pytest_collection_finish",
    "pytest_configure",
    "pytest_ignore_collect",
    "pytest_report_header",
    "pytest_report_teststatus",
    "pytest_runtestloop",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_unconfigure",
]

_PACKAGE: Final = Path(__file__).resolve().parent
_SUITE_FILE: Final = _PACKAGE / "suite.py"
_NOT_JUDGED: Final = 2
_TO_START_S: Final = 5.0
_TO_STOP_S: Final = 15.0
_USAGE: Final = (
    "which endpoint is to be judged? Give --endpoint NAME or --endpoint-url URL"
    " (the suite's own tests: pytest conformance/tests)"
)


class Run(Judged):
    """The scenarios, played in a thread of their own while pytest goes through its items."""

    def __init__(self, endpoint: Endpoint, profiles: tuple[str, ...]) -> None:
        self.endpoint = endpoint
        self.profiles = profiles
        self.selected: tuple[str, ...] = ()
        self.results: Results | None = None
        self.report: Report | None = None
        self.saved: Path | None = None
        self.save_failed: str | None = None
        self.asked = False
        """Whether pytest went through all its items, or stopped of its own accord."""
        self.started = datetime.now(UTC)
        self._began = time.monotonic()
        self._thread: threading.Thread | None = None
        self._ready, self._done = threading.Event(), threading.Event()
        self._target: Target | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Results] | None = None
        self._failure: BaseException | None = None

    @property
    def duration_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def start(self, checks: Iterable[str]) -> None:
        """Begin to play what these checks need."""
        wanted = tuple(dict.fromkeys(checks))
        self.started, self._began = datetime.now(UTC), time.monotonic()
        target = self._target = Target(self.endpoint)

        async def main() -> Results:
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.current_task()
            self._ready.set()
            return await run_checks(target, wanted)

        def work() -> None:
            try:
                self.results = asyncio.run(main())
            except BaseException as error:
                self._failure = error
            finally:
                self._ready.set()
                self._done.set()

        self._thread = threading.Thread(target=work, name="utterwire-conformance", daemon=True)
        self._thread.start()
        self._ready.wait()

    def wait(self) -> Results:
        """Wait until all is judged.

        Raises:
            HarnessError: the run broke off before that.
        """
        if self._thread is not None:
            # An event, since a `join` that is interrupted may take a live thread for a dead one
            # (CPython 3.11); in slices, so that an interrupt from the keyboard is heard.
            while not self._done.wait(0.2):
                pass
        if self.results is None:
            why = repr(self._failure) if self._failure is not None else "it was broken off"
            raise HarnessError(f"the run did not come to its end: {why}")
        return self.results

    def stop(self) -> None:
        """Break the run off, if it is not over, and wait until all it started is gone."""
        thread, self._thread = self._thread, None
        if thread is None or self._done.is_set():
            return
        try:
            if self._ready.wait(_TO_START_S) and self._loop is not None and self._task is not None:
                with contextlib.suppress(RuntimeError):  # The loop has just ended by itself.
                    self._loop.call_soon_threadsafe(self._task.cancel)
            over = self._done.wait(_TO_STOP_S)
        except KeyboardInterrupt:
            over = False
        if not over and self._target is not None:
            self._target.kill()

    def judgement(self, checks: Iterable[str]) -> Judgement:
        """The judgement that decides for these checks."""
        results = self.wait()
        return worst(results.judgements[name] for name in checks)

    def options(self) -> dict[str, Any]:
        """What shaped the run, for the report; `selected` is None where nothing was left out."""
        every = {
            row.id
            for row in requirements()
            if row.role == "endpoint" and row.profile in self.profiles
        }
        chosen = set(self.selected)
        return {"selected": sorted(chosen) if chosen != every else None}

    def conclude(self, folder: Path, *, strict: bool) -> Report:
        """Make the report and save it."""
        results = self.wait()
        self.report = Report(
            self.endpoint,
            self.profiles,
            results_of(results, self.endpoint, self.profiles, selected=self.selected),
            results,
            strict=strict,
            started=self.started,
            duration_s=self.duration_s,
            deployed_client=_deployed(results),
            options=self.options(),
        )
        try:
            self.report.save(folder)
            self.saved = folder
        except OSError as error:
            self.save_failed = f"the report cannot be written to {folder}: {error.strerror}"
        return self.report


def _deployed(results: Results) -> list[dict[str, Any]]:
    return [finding for t in results.transcripts.values() for finding in findings(t)]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("utterwire", "Utterwire conformance suite")
    group.addoption("--endpoint", metavar="NAME", help="judge the endpoint of this name")
    group.addoption("--endpoint-url", metavar="URL", help="judge the endpoint at this ws(s):// URL")
    group.addoption(
        "--endpoints",
        metavar="FILE",
        help=f"endpoint file (else ${ENVIRONMENT_VARIABLE}, else {FILE_NAME} in the working"
        " directory; `reference` is built in)",
    )
    group.addoption(
        "--profile",
        metavar="PROFILE",
        action="append",
        default=[],
        help="with --endpoint: judge this profile only; with --endpoint-url: what it claims"
        " (default core); may be given several times",
    )
    group.addoption(
        "--header",
        metavar="'NAME: VALUE'",
        action="append",
        default=[],
        help="header for every request; ${NAME} stands for an environment variable",
    )
    group.addoption(
        "--report",
        metavar="DIR",
        default="utterwire-report",
        help="where report.json and transcripts go (default: utterwire-report)",
    )
    group.addoption(
        "--strict-recommendations",
        action="store_true",
        help="fail on a SHOULD that is not met, too",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Find the endpoint, if one was asked for."""
    name, url = config.getoption("endpoint", None), config.getoption("endpoint_url", None)
    if not name and not url:
        if _asks_for_suite(config):
            raise pytest.UsageError(_USAGE)
        return
    if name and url:
        raise pytest.UsageError("give either --endpoint or --endpoint-url, not both")
    if config.getoption("numprocesses", None):
        raise pytest.UsageError("the suite plays its scenarios side by side itself; leave -n away")
    try:
        endpoint = _endpoint(config, name, url)
        profiles = _profiles(config, endpoint, by_name=bool(name))
        requirements()
    except (EndpointFileError, RequirementsError) as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[PROFILES_KEY] = profiles
    config.stash[RUN_KEY] = Run(endpoint, profiles)
    if config.getoption("tbstyle", "auto") == "auto":
        # The summary below says all of it, and more.
        config.option.tbstyle = "no"
    if config.getoption("reportchars", None) in (None, "fE"):
        config.option.reportchars = ""


def _asks_for_suite(config: pytest.Config) -> bool:
    """Whether the folder of the suite itself was named on the command line."""
    if config.getoption("help", False) or config.getoption("version", 0):
        return False
    folder = _PACKAGE.parent
    return any(
        (config.invocation_params.dir / arg.partition("::")[0]).resolve()
        in (folder, _PACKAGE, _SUITE_FILE)
        for arg in config.invocation_params.args
        if isinstance(arg, str) and not arg.startswith("-")
    )


def _endpoint(config: pytest.Config, name: str | None, url: str | None) -> Endpoint:
    headers = [parse_header(text) for text in config.getoption("header")]
    if url:
        return endpoint_at(url, profiles=config.getoption("profile"), headers=headers)
    file = config.getoption("endpoints")
    endpoint = find_endpoint(
        name or "",
        file=Path(file) if file else None,
        cwd=Path(config.invocation_params.dir),
    )
    return replace(endpoint, headers=(*endpoint.headers, *headers)) if headers else endpoint


def _profiles(config: pytest.Config, endpoint: Endpoint, *, by_name: bool) -> tuple[str, ...]:
    asked = config.getoption("profile")
    unknown = [profile for profile in asked if profile not in PROFILES]
    if unknown:
        raise EndpointFileError(f"--profile {unknown[0]}: known are {', '.join(PROFILES)}")
    claimed = endpoint.claims.profiles
    if by_name and asked:
        missing = [profile for profile in asked if profile not in claimed]
        if missing:
            raise EndpointFileError(
                f"--profile {missing[0]}: {endpoint.name} does not claim it (it claims"
                f" {', '.join(sorted(claimed))})"
            )
        return tuple(profile for profile in PROFILES if profile in asked)
    return tuple(p for p in PROFILES if p in claimed and (judgeable(p) or p == "core"))


def _run(config: pytest.Config) -> Run | None:
    run = config.stash.get(RUN_KEY, None)
    return run if isinstance(run, Run) else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """While the suite runs, its own tests do not."""
    if _run(config) is not None and collection_path == _PACKAGE.parent / "tests":
        return True
    return None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the requirements where the suite's file is met."""
    if _run(parent.config) is not None and file_path == _SUITE_FILE:
        return SuiteFile.from_parent(parent, path=file_path)
    return None


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what is judged."""
    run = _run(config)
    if run is None:
        return None
    where = run.endpoint.public_url or "launched by the suite"
    return f"utterwire: {run.endpoint.name} ({where}), profiles {', '.join(run.profiles)}"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin to play as soon as it is known what was selected."""
    run = _run(session.config)
    if run is None or session.config.option.collectonly:
        return
    items = [item for item in session.items if isinstance(item, RequirementItem)]
    run.selected = tuple(item.row.id for item in items)
    if items:
        run.start(name for item in items for name in item.checks)


def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, str] | None:
    """Show a recommendation that is not met as such."""
    called = isinstance(report, pytest.TestReport) and report.when == "call" and report.passed
    if called and ("verdict", "weak") in report.user_properties:
        return "weak", "w", "WEAK"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Note whether it was interrupted: of two interrupts the second may hit pytest before that
    has made a note of the first."""
    run = _run(session.config)
    try:
        result = yield
    except Exception:
        if run is not None:
            run.asked = True
        raise
    if run is not None:
        run.asked = True
    return result


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Write the report and set the exit status of the suite."""
    run = _run(session.config)
    if run is not None and run.selected and run.asked and session.shouldstop is False:
        interrupted = session.exitstatus in (pytest.ExitCode.INTERRUPTED,)
        if not interrupted and not session.config.option.collectonly:
            folder = session.config.invocation_params.dir / session.config.getoption("report")
            strict = session.config.getoption("strict_recommendations")
            try:
                session.exitstatus = run.conclude(Path(folder), strict=strict).exit_code
            except KeyboardInterrupt:
                session.exitstatus = pytest.ExitCode.INTERRUPTED
            except HarnessError:
                session.exitstatus = _NOT_JUDGED
    yield


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show the summary."""
    run = _run(config)
    if run is None or config.option.collectonly:
        return
    if run.report is None:
        if run.selected:
            terminalreporter.write_line("The run was broken off; nothing was judged or saved.")
        return
    terminalreporter.section(f"Utterwire conformance: {run.endpoint.name}")
    for line in run.report.lines(_shown(run.saved)):
        terminalreporter.write_line(line)
    if run.save_failed is not None:
        terminalreporter.write_line(run.save_failed)


def _shown(folder: Path | None) -> Path | None:
    if folder is None:
        return None
    try:
        return folder.relative_to(Path.cwd())
    except ValueError:
        return folder


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave nothing running."""
    run = _run(config)
    if run is not None:
        run.stop()
