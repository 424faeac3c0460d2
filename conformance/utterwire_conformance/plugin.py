"""The pytest plugin: options, collection, the run in the background, summary and exit status.

It is loaded by `conformance/conftest.py` in a checkout and by `utterwire-conformance` elsewhere,
never by an entry point: nobody else's pytest should know `--endpoint`.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from .baseline import Baseline, BaselineError
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
from .fuzz import FuzzWish
from .interruption import Interruption
from .number import natural_number, positive_number, whole_number
from .progress import Progress
from .report import Report, judgeable, results_of
from .requirements import PROFILES, RequirementsError, requirements
from .runner import Options, Results, run_checks
from .selection import Selection
from .suite import (
    KNOWN_KEY,
    PROFILES_KEY,
    RUN_KEY,
    STRICT_KEY,
    HarnessError,
    Judged,
    RequirementItem,
    SuiteFile,
)
from .target import Target
from .verdict import Judgement, worst

__all__ = [
    "pytest_addoption",
    "pytest_collect_file",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_ignore_collect",
    "pytest_report_header",
    "pytest_report_teststatus",
    "pytest_runtestloop",
    "pytest_sessionfinish",
    "pytest_sessionstart",
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

    def __init__(
        self,
        endpoint: Endpoint,
        profiles: tuple[str, ...],
        selection: Selection,
        baseline: Baseline | None,
        wish: FuzzWish | None = None,
        max_s: float | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.profiles = profiles
        self.selection = selection
        self.baseline = baseline
        self.wish = wish or FuzzWish()
        self.max_s = max_s
        self.selected: tuple[str, ...] = ()
        self.results: Results | None = None
        self.report: Report | None = None
        self.saved: Path | None = None
        self.save_failed: str | None = None
        self.baseline_note: str | None = None
        self.sifted = False
        """Whether pytest came so far as to know what is selected."""
        self.asked = False
        """Whether pytest went through all its items, or stopped of its own accord."""
        self.started = datetime.now(UTC)
        self.progress = Progress()
        self.interruption = Interruption(self.hurry)
        self._began = time.monotonic()
        self._thread: threading.Thread | None = None
        self._ready, self._done = threading.Event(), threading.Event()
        self._target: Target | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Results] | None = None
        self._failure: BaseException | None = None

    @property
    def headline(self) -> str:
        """What is judged."""
        target = self.endpoint.sagemaker
        named = f"sagemaker:{target.name}" if target is not None else None
        where = self.endpoint.public_url or named or "launched by the suite"
        if self.endpoint.via == "sagemaker" and target is None:
            where += ", through a router"
        # By --endpoint-url, the address is the name.
        told = "" if where == self.endpoint.name else f" ({where})"
        return f"utterwire: {self.endpoint.name}{told}, profiles {', '.join(self.profiles)}"

    @property
    def duration_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def start(self, checks: Iterable[str]) -> None:
        """Begin to play what these checks need."""
        wanted = tuple(dict.fromkeys(checks))
        self.started, self._began = datetime.now(UTC), time.monotonic()
        target = self._target = Target(self.endpoint)
        plan = self.wish.plan() if self.unfuzzed is None else None

        async def main() -> Results:
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.current_task()
            self._ready.set()
            options = Options(
                selection=self.selection, progress=self.progress, fuzz=plan, max_s=self.max_s
            )
            return await run_checks(target, wanted, options)

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

    def wait(self, tell: Callable[[str], None] | None = None) -> Results:
        """Wait until all is judged; `tell` is given a line on the progress, now and then.

        Raises:
            HarnessError: the run broke off before that.
        """
        if self._thread is not None:
            # An event, since a `join` that is interrupted may take a live thread for a dead one
            # (CPython 3.11); in slices, so that an interrupt from the keyboard is heard.
            while not self._done.wait(0.2):
                if tell is not None:
                    tell(self.progress.line(shutil.get_terminal_size().columns - 1))
        if self.results is None:
            why = repr(self._failure) if self._failure is not None else "it was broken off"
            raise HarnessError(f"the run did not come to its end: {why}")
        return self.results

    def hurry(self) -> None:
        """End what was launched at once, without waiting for it."""
        if self._target is not None:
            self._target.kill()

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

    @property
    def unfuzzed(self) -> str | None:
        """Why there is no fuzzing, or None if there is."""
        claimed = {p for p in self.endpoint.claims.profiles if judgeable(p)}
        narrowed = not claimed.issubset(self.profiles) or self.options()["selected"] is not None
        quick = narrowed or self.selection.quick
        return self.wish.reluctance(self.endpoint, narrowed=quick)

    def options(self) -> dict[str, Any]:
        """What shaped the run, for the report; `selected` is None where nothing was left out."""
        every = {
            row.id
            for row in requirements()
            if row.role == "endpoint" and row.profile in self.profiles
        }
        chosen = set(self.selected)
        return {
            "selected": sorted(chosen) if chosen != every else None,
            "quick": self.selection.quick,
            "requirement": list(self.selection.patterns),
        }

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
            baseline=self.baseline,
            fuzzed=results.fuzz,
            unfuzzed=self.unfuzzed,
        )
        try:
            self.report.save(folder)
            self.saved = folder
        except OSError as error:
            self.save_failed = f"the report cannot be written to {folder}: {error.strerror}"
        return self.report

    def write_baseline(self, path: Path) -> None:
        """Write what failed as known failures, and remember what to say of it."""
        if self.report is None or self.report.exit_code == _NOT_JUDGED:
            self.baseline_note = f"{path.name} was not written: not all could be judged"
            return
        failures = [
            (result.requirement.id, result.reason)
            for result in self.report.results
            if self.report.fails(result)
        ]
        try:
            Baseline.of_failures(failures, self.baseline or Baseline()).save(path)
        except OSError as error:
            self.baseline_note = f"{path} cannot be written: {error.strerror}"
            return
        self.baseline_note = f"known failures: {path.name} ({len(failures)}); say why of each"


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
        "--via",
        choices=("websocket", "sagemaker"),
        default="websocket",
        help="what carries the sessions: with sagemaker, a local stand-in for SageMaker stands"
        " before the endpoint (Python 3.12, extra aws), and what cannot be seen through it is not"
        " exercised",
    )
    group.addoption(
        "--report",
        metavar="DIR",
        default="utterwire-report",
        help="where report.json and transcripts go (default: utterwire-report)",
    )
    group.addoption(
        "--requirement",
        metavar="ID",
        action="append",
        default=[],
        help="judge this requirement only; a glob such as 'audio.*'; may be given several times",
    )
    group.addoption(
        "--quick",
        action="store_true",
        help="a first look, in seconds: few scenarios, no more than 500 characters",
    )
    group.addoption(
        "--baseline",
        metavar="FILE",
        help="known failures: they do not fail the run, but one that is met now does"
        " (--strict: a SHOULD that is not met fails the run, too)",
    )
    group.addoption(
        "--write-baseline", metavar="FILE", help="write what fails now as known failures"
    )
    for name, kind, words in (
        (
            "--max-characters",
            whole_number,
            "ask for no more than N characters to be spoken, in all",
        ),
        ("--max-sessions", whole_number, "open no more than N sessions, in all"),
        ("--max-rate", positive_number, "make no more than N requests a second"),
        ("--max-concurrent", whole_number, "open no more than N sessions at a time"),
    ):
        group.addoption(name, metavar="N", type=kind, help=words)
    group.addoption(
        "--max-minutes",
        metavar="M",
        type=positive_number,
        help="take no longer than M minutes; what was not played by then is not exercised",
    )

    group.addoption(
        "--fuzz",
        action="store_true",
        help="fuzz, also where that is left out unasked: far endpoints, and those with a budget",
    )
    group.addoption("--no-fuzz", action="store_true", help="do not fuzz")
    for name, kind, unit, words in (
        ("--fuzz-examples", whole_number, "N", "fuzz with N programs of each kind"),
        ("--fuzz-minutes", positive_number, "M", "fuzz for M minutes, by a seed of its own"),
        ("--fuzz-seed", natural_number, "S", "the seed by which to fuzz (default: 0)"),
    ):
        group.addoption(name, metavar=unit, type=kind, help=words)


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
        selection = _selection(config, endpoint, profiles)
        baseline = _baseline(config)
        wish = _wish(config)
    except (BaselineError, EndpointFileError, RequirementsError) as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[PROFILES_KEY] = profiles
    config.stash[STRICT_KEY] = _strict(config)
    config.stash[KNOWN_KEY] = baseline.reasons if baseline is not None else {}
    minutes = config.getoption("max_minutes")
    max_s = None if minutes is None else 60.0 * minutes
    run = config.stash[RUN_KEY] = Run(endpoint, profiles, selection, baseline, wish, max_s)
    # What a project asks of its own tests is nothing to the endpoint's: no warning of some
    # library may fail a requirement. The last line counts.
    config.addinivalue_line("filterwarnings", "default")
    # Nor is it of interest that plugins which a project configures are not installed here.
    config.addinivalue_line(
        "filterwarnings", "ignore:Unknown config option:pytest.PytestConfigWarning"
    )
    run.interruption.begin()
    if config.getoption("tbstyle", "auto") == "auto":
        # The summary below says all of it, and more.
        config.option.tbstyle = "no"
    if config.getoption("reportchars", None) in (None, "fE"):
        config.option.reportchars = ""


def _strict(config: pytest.Config) -> bool:
    # pytest knows the option as well, and makes of it what does no harm here.
    return "--strict" in config.invocation_params.args


def _selection(config: pytest.Config, endpoint: Endpoint, profiles: tuple[str, ...]) -> Selection:
    selection = Selection(tuple(config.getoption("requirement")), config.getoption("quick"))
    rows = [row for row in requirements() if row.role == "endpoint"]
    unknown = selection.idle(rows)
    if unknown:
        raise EndpointFileError(f"--requirement {unknown[0]}: no requirement of endpoints matches")
    unjudged = selection.idle(row for row in rows if row.profile in profiles)
    if unjudged:
        matching = Selection((unjudged[0],))
        of = sorted({row.profile for row in rows if matching.admits(row)})
        raise EndpointFileError(
            f"--requirement {unjudged[0]}: of the profile {', '.join(of)}, which is not judged"
            f" ({endpoint.name}: {', '.join(profiles)})"
        )
    return selection


def _baseline(config: pytest.Config) -> Baseline | None:
    name = config.getoption("baseline")
    return Baseline.load(Path(config.invocation_params.dir) / name) if name else None


def _wish(config: pytest.Config) -> FuzzWish:
    try:
        return FuzzWish(
            config.getoption("fuzz"),
            config.getoption("no_fuzz"),
            config.getoption("fuzz_examples"),
            config.getoption("fuzz_minutes"),
            config.getoption("fuzz_seed"),
        )
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


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
    endpoint = _named(config, name, url)
    for option, key in (
        ("max_characters", "characters"),
        ("max_sessions", "sessions"),
        ("max_rate", "requests_per_second"),
    ):
        most = config.getoption(option)
        if most is not None:
            endpoint = replace(endpoint, budget=replace(endpoint.budget, **{key: most}))
    at_once = config.getoption("max_concurrent")
    if at_once is not None:
        endpoint = replace(endpoint, max_concurrent_sessions=at_once)
    if config.getoption("via") == "sagemaker":
        endpoint = replace(endpoint, via="sagemaker")
    return endpoint


def _named(config: pytest.Config, name: str | None, url: str | None) -> Endpoint:
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
    return run.headline if run is not None else None


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Say it, too, where pytest's own header is not wanted."""
    run, config = _run(session.config), session.config
    if run is not None and config.option.no_header and config.option.verbose >= 0:
        config.pluginmanager.getplugin("terminalreporter").write_line(run.headline)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave away what `--requirement` does not name."""
    run = _run(config)
    if run is None:
        return
    run.sifted = True
    left = [i for i in items if isinstance(i, RequirementItem) and run.selection.admits(i.row)]
    config.hook.pytest_deselected(items=[item for item in items if item not in left])
    items[:] = left


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin to play as soon as it is known what was selected."""
    run = _run(session.config)
    if run is None or not run.sifted or session.config.option.collectonly:
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
        if run is not None and run.selected and not session.config.option.collectonly:
            # The items would wait as well, but in the middle of a line of theirs.
            with contextlib.suppress(HarnessError):
                _await(run, session.config)
        result = yield
    except Exception:
        if run is not None:
            run.asked = True
        raise
    if run is not None:
        run.asked = True
    return result


def _await(run: Run, config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not reporter.isatty or config.option.verbose < 0:
        run.wait()
        return
    try:
        run.wait(lambda line: reporter.write(f"\r{line}\x1b[K", flush=True))
    finally:
        reporter.write("\r\x1b[K", flush=True)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Write the report and set the exit status of the suite."""
    run = _run(session.config)
    if run is not None and run.selected and run.asked and session.shouldstop is False:
        interrupted = session.exitstatus in (pytest.ExitCode.INTERRUPTED,)
        if not interrupted and not session.config.option.collectonly:
            folder = session.config.invocation_params.dir / session.config.getoption("report")
            strict = session.config.stash[STRICT_KEY]
            written = session.config.getoption("write_baseline")
            try:
                session.exitstatus = run.conclude(Path(folder), strict=strict).exit_code
                if run.save_failed and session.exitstatus == pytest.ExitCode.OK:
                    # Who reads reports must not take one of another run for that of this one.
                    session.exitstatus = _NOT_JUDGED
                if written:
                    run.write_baseline(session.config.invocation_params.dir / written)
            except KeyboardInterrupt:
                session.exitstatus = pytest.ExitCode.INTERRUPTED
            except HarnessError:
                session.exitstatus = _NOT_JUDGED
    idle = run is not None and not run.selected and not session.config.option.collectonly
    if idle and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
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
        elif run.sifted and not run.interruption.came:
            terminalreporter.write_line(f"utterwire-conformance: {_unmatched(config)}")
        return
    terminalreporter.section(f"Utterwire conformance: {run.endpoint.name}")
    for line in run.report.lines(_shown(run.saved)):
        terminalreporter.write_line(line)
    for note in (run.save_failed, run.baseline_note):
        if note is not None:
            terminalreporter.write_line(note)


def _unmatched(config: pytest.Config) -> str:
    given = [f"-k {config.option.keyword!r}"] if config.option.keyword else []
    given += [f"--requirement {pattern}" for pattern in config.getoption("requirement")]
    return f"no requirement matches {' and '.join(given)}; nothing was judged"


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
        run.interruption.end()
