"""`utterwire-conformance client` as people run it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from utterwire_conformance.cli import main
from utterwire_conformance.client_half.script import SCRIPTS, Script, add
from utterwire_schemas import validator

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = Path(__file__).parent / "peers" / "clients"
FOLDERS = ("schemas", "protocol", "reference_client", "conformance")


def run(*arguments: str, cwd: Path, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / f) for f in FOLDERS)}
    return subprocess.run(
        (sys.executable, "-m", "utterwire_conformance", "client", *arguments),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
    )


def verdicts(folder: Path) -> dict[str, str]:
    document = json.loads((folder / "report.json").read_text("utf-8"))
    assert list(validator("report").iter_errors(document)) == []
    assert document["role"] == "client"
    return {row["requirement"]: row["verdict"] for row in document["results"]}


def command(name: str, *words: str) -> str:
    return " ".join((sys.executable, str(CLIENTS / f"{name}.py"), *words))


# --- usage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "which client?"),
        (("--command", "say"), "has no {url}"),
        (("--command", "say {url}", "--profile", "load"), "profile load"),
        (("--command", "say {url}", "--deadline-s", "0.5"), "1 to 600 seconds"),
        (("--command", "say {url}", "--deadline-s", "soon"), "invalid float"),
        (("--command", "say {url}", "--players", "0"), "--players"),
        (("--command", "say {url}", "-k", "nothing"), "-k nothing"),
        (("--command", "/no/such/client {url}"), "cannot run /no/such/client"),
        (("--com", "say {url}"), "unrecognized"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: tuple[str, ...],
    reason: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["client", *arguments]) == 2
    captured = capsys.readouterr()
    said = captured.err + captured.out
    assert reason in said
    assert "Traceback" not in said


def test_the_scripts_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["client", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if not line.split()[2:]] == []
    assert {line.split()[0] for line in lines} == set(SCRIPTS)


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="two scripts"):
        add(Script("client-plain", "core", ()))


# --- clients that are no clients ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("pass", "the client never connected; it ended with status 0"),
        ("raise SystemExit('no luck')", "never connected; it ended with status 1"),
        ("import os; os.abort()", "the client never connected"),
        ("while True: print('x' * 65536)", "bytes to stdout"),
        ('print(\'{"event": "complete"}\', file=__import__("sys").stderr)', "keep the contract"),
    ],
)
def test_what_cannot_be_judged_says_so(
    code: str, reason: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = tmp_path / "client.py"
    script.write_text(code, encoding="utf-8")
    given = f"{sys.executable} {script} {{url}}"
    assert main(["client", "--command", given, "--report", str(tmp_path / "report")]) == 2
    out = capsys.readouterr().out
    assert reason in out
    assert "COULD NOT BE JUDGED" in out.splitlines()[-1]
    assert set(verdicts(tmp_path / "report").values()) == {"harness-error", "not-claimed"}


def test_a_client_that_only_speaks_http_is_judged_by_that(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = command("good_client", "{url}", "{profile}", "{deadline_s}")
    options = ("--profile", "http", "--report", str(tmp_path / "report"), "-v", "--name", "mine")
    assert main(["client", "--command", given, *options]) == 0
    out = capsys.readouterr().out
    assert "client-http-cut-length: " in out
    assert out.splitlines()[-1] == "mine CONFORMS (http), as far as it was judged."
    found = verdicts(tmp_path / "report")
    assert found["client.http-truncation"] == "pass"
    assert found["client.classifies"] == "not-exercised"


@pytest.mark.slow
def test_a_profile_that_it_cannot_even_begin_with_spoils_no_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = command("good_client", "{url}", "core", "{deadline_s}")
    options = ("--profile", "http", "--profile", "core", "-k", "t", "-q")
    where = ("--report", str(tmp_path / "report"))
    assert main(["client", "--command", given, *options, *where]) == 2
    assert len(capsys.readouterr().out.splitlines()) == 1
    found = verdicts(tmp_path / "report")
    assert found["client.http-truncation"] == "harness-error"
    assert found["client.tolerates-no-start"] == "pass"


def test_a_report_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "report").write_text("", encoding="utf-8")
    given = command("good_client", "{url}", "{profile}", "{deadline_s}")
    options = ("-k", "no-start", "--report", str(tmp_path / "report"))
    assert main(["client", "--command", given, *options]) == 0
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_it_is_interrupted(number: signal.Signals, tmp_path: Path) -> None:
    """The client writes down who it is, ignores what it can, and would run for minutes."""
    client = tmp_path / "client.py"
    client.write_text(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True, file=open(sys.argv[2], 'w'))\n"
        "time.sleep(300)\n",
        encoding="utf-8",
    )
    os.mkfifo(tmp_path / "pid")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / f) for f in FOLDERS)}
    given = f"{sys.executable} {client} {{url}} {tmp_path / 'pid'}"
    with subprocess.Popen(
        (sys.executable, "-m", "utterwire_conformance", "client", "--command", given),
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has these ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            pid = int((tmp_path / "pid").read_text("utf-8"))
            process.send_signal(number)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 2, out + err
    assert err.count("\n") == 1
    assert "nothing was judged" in err
    for _ in range(6_000):
        try:
            status = Path(f"/proc/{pid}/status").read_text("utf-8")
        except (FileNotFoundError, ProcessLookupError):
            break
        if "\nState:\tZ" in status:
            break
        time.sleep(0.01)
    else:
        pytest.fail("the client is still there")


# --- clients that are ---------------------------------------------------------------------------


def node() -> list[str]:
    """How to start Node with a WebSocket, or nothing."""
    path = shutil.which("node")
    if path is None:
        return []
    said = subprocess.run((path, "--version"), capture_output=True, text=True, timeout=60).stdout
    major = said.strip().removeprefix("v").partition(".")[0]
    if not major.isdigit() or int(major) < 20:
        return []
    return [path, "--experimental-websocket"] if int(major) < 22 else [path]


REFERENCE = (
    f"{sys.executable} -m utterwire_client lines --url {{url}} --profile {{profile}}"
    " --timeout {deadline_s} --events {events} --retries 2"
)
REAL = {
    "naive": ("--command", command("naive_client", "{url}"), "--deadline-s", "1"),
    "node": (
        "--command",
        " ".join((*node(), str(CLIENTS / "node_client.mjs"), "{url} {deadline_s}")),
    ),
    "reference": (
        *("--command", REFERENCE),
        *(f"--profile={p}" for p in ("core", "interrupt", "negotiate", "http", "sse")),
    ),
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, Path]]:
    """Each real client, judged: exit status, output, folder of the report. All at once, since most
    of the time is spent waiting."""

    def judge(name: str) -> tuple[int, str, Path]:
        folder = tmp_path_factory.mktemp(name)
        done = run(*REAL[name], "--name", name, cwd=folder)
        return done.returncode, done.stdout + done.stderr, folder / "utterwire-client-report"

    names = [name for name in REAL if name != "node" or node()]
    with ThreadPoolExecutor() as threads:
        return dict(zip(names, threads.map(judge, names), strict=True))


def by_verdict(folder: Path) -> dict[str, set[str]]:
    found = verdicts(folder)
    return {v: {name for name in found if found[name] == v} for v in set(found.values())}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_naive_client_fails_on_the_right_rules(
    judged: dict[str, tuple[int, str, Path]],
) -> None:
    status, said, folder = judged["naive"]
    assert status == 1, said
    found = by_verdict(folder)
    assert found["fail"] == {
        "client.classifies",
        "client.follows-start",
        "client.error-ends",
        "client.incomplete-told",
        "client.last-seq",
    }
    assert found["weak"] == {
        "client.carries-odd-chunks",
        "client.deadline",
        "client.offers-no-compression",
    }
    assert found["not-exercised"] == {
        "client.backs-off",
        "client.correlates-by-seq",
        "client.keeps-sending-side",
        "client.no-message-after-close",
        "client.reads-always",
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not node(), reason="there is no Node of version 20 or later")
def test_a_client_in_another_language_is_judged_alike(
    judged: dict[str, tuple[int, str, Path]],
) -> None:
    status, said, folder = judged["node"]
    assert status == 0, said
    odd = {name: v for name, v in verdicts(folder).items() if v not in ("pass", "not-claimed")}
    # The WebSocket of browsers offers compression, and cannot be told not to.
    assert odd == {"client.offers-no-compression": "weak", "client.backs-off": "not-exercised"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_reference_client_passes_everything(
    judged: dict[str, tuple[int, str, Path]],
) -> None:
    status, said, folder = judged["reference"]
    assert status == 0, said
    assert set(verdicts(folder).values()) == {"pass"}
    verified = subprocess.run(
        (sys.executable, "-m", "utterwire_conformance", "verify", str(folder / "report.json")),
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / f) for f in FOLDERS)},
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
