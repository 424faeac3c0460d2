"""The suite as people run it: as a process of its own, on peers good, plain, dead and stuck."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from utterwire_schemas import validator

ROOT = Path(__file__).resolve().parents[2]
PEERS = Path(__file__).parent / "peers"
CLI = (sys.executable, "-m", "utterwire_conformance")
# Whole runs of the suite, on machines of any speed; a suite that hangs is found all the same.
pytestmark = pytest.mark.timeout(900)


def run(*command: str, cwd: Path, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(_paths())}
    environment.pop("PYTEST_ADDOPTS", None)
    environment.pop("UTTERWIRE_ENDPOINTS", None)
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=timeout, env=environment
    )


def _paths() -> list[str]:
    # The page that the server serves has its player from the client's folder.
    names = ("schemas", "protocol", "reference_server", "reference_client", "conformance")
    return [*(str(ROOT / name) for name in names), str(PEERS)]


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port where nobody listens, and nobody else can either."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


def verdicts(folder: Path) -> dict[str, str]:
    document = json.loads((folder / "utterwire-report" / "report.json").read_text("utf-8"))
    assert list(validator("report").iter_errors(document)) == []
    return {row["requirement"]: row["verdict"] for row in document["results"]}


@pytest.fixture
def plain_peer() -> Iterator[str]:
    # It listens before the peer is there, who takes it over: nobody else gets the port meanwhile.
    with socket.create_server(("127.0.0.1", 0)) as sock:
        command = [sys.executable, "-m", "uvicorn", "plain_peer:app", "--fd", str(sock.fileno())]
        command += ["--ws", "websockets-sansio", "--ws-per-message-deflate", "false"]
        command += ["--log-level", "error"]
        with subprocess.Popen(
            command, cwd=PEERS, start_new_session=True, pass_fds=[sock.fileno()]
        ) as process:
            try:
                yield f"ws://127.0.0.1:{sock.getsockname()[1]}"
            finally:
                process.kill()


@pytest.mark.slow
def test_the_reference_conforms(tmp_path: Path) -> None:
    done = run(*CLI, "--endpoint", "reference", "--no-fuzz", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = verdicts(tmp_path)
    document = json.loads((tmp_path / "utterwire-report" / "report.json").read_text("utf-8"))
    unseen = {
        row["requirement"]
        for row in document["results"]
        if row["checks"] and row["verdict"] != "pass"
    }
    # It claims every profile that has messages of its own.
    assert unseen == {"reject.unclaimed-types", "message.unclaimed-marks"}
    assert found["ws.path"] == "pass"
    verified = run(*CLI, "verify", "utterwire-report", cwd=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    told = "core, negotiate, interrupt, formats, timing, http, sse, sagemaker, load"
    assert f"reference CONFORMS ({told})" in done.stdout


def _children(marker: str) -> set[int]:
    """The processes whose command line holds the marker."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
        except OSError:
            continue
    return found


SERVED = """
[endpoint.served]
launch = [
  "{python}", "-m", "utterwire_server", "--host", "127.0.0.1", "--port", "{port}",
  "--shutdown-timeout", "3", "--idle-timeout", "MARKER",
]
ready_url = "http://127.0.0.1:{port}/READY"
profiles = ["core"]
timeouts = { shutdown_s = 3 }
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("ready", "processes", "signals"),
    [
        ("ping", 2, [signal.SIGINT]),
        ("ping", 1, [signal.SIGINT] * 3),
        ("never", 1, [signal.SIGINT]),
        ("ping", 2, [signal.SIGTERM]),
        ("ping", 1, [signal.SIGTERM, signal.SIGINT]),
    ],
    ids=["in the middle", "again and again", "before it is ready", "by SIGTERM", "by both"],
)
def test_an_interrupt_leaves_no_process_behind(
    tmp_path: Path, dead_port: int, ready: str, processes: int, signals: list[signal.Signals]
) -> None:
    marker = f"{1000 + dead_port}.25"
    text = SERVED.replace("MARKER", marker).replace("READY", ready)
    (tmp_path / "endpoints.toml").write_text(text)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(_paths())}
    with (tmp_path / "out").open("w+b") as out:
        suite = subprocess.Popen(
            [*CLI, "--endpoint", "served"],
            cwd=tmp_path,
            env=environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            # The shutdown scenario has an instance of its own beside the main one.
            while len(_children(marker)) < processes:
                assert suite.poll() is None, (tmp_path / "out").read_text()
            for each in signals:
                suite.send_signal(each)
            code = suite.wait(60)
            left = _children(marker)
        finally:
            suite.kill()
            for pid in _children(marker):
                os.kill(pid, signal.SIGKILL)
        said = (tmp_path / "out").read_text()
    assert left == set(), said
    assert code == 2, said
    assert "Traceback" not in said
    assert "broken off" in said


SPEC_PEER = """
[endpoint.peer]
launch = [
  "{python}", "-m", "spec_peer", "--host", "127.0.0.1", "--port", "{port}",
  "--idle-timeout", "2", "--shutdown-timeout", "3",
]
ready_url = "http://127.0.0.1:{port}/ping"
profiles = ["core", "http", "interrupt", "negotiate"]
timeouts = { shutdown_s = 3 }
"""


@pytest.mark.slow
def test_an_endpoint_written_from_the_text_alone_conforms(tmp_path: Path) -> None:
    (tmp_path / "endpoints.toml").write_text(SPEC_PEER)
    done = run(*CLI, "--endpoint", "peer", "--no-fuzz", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "utterwire-report" / "report.json").read_text("utf-8"))
    claimed = ("core", "http", "interrupt", "negotiate")
    judged = [row for row in document["results"] if row["profile"] in claimed and row["checks"]]
    # Its limits, which its file does not tell, are learned from `session`.
    unseen = {row["requirement"] for row in judged if row["verdict"] != "pass"}
    assert unseen == {"reject.unclaimed-types"}


def test_the_reference_with_nothing_more_conforms_too(tmp_path: Path) -> None:
    options = ("--endpoint", "reference-core", "-k", "unclaimed", "-q")
    done = run(*CLI, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert verdicts(tmp_path)["reject.unclaimed-types"] == "pass"


SLOW = """
[endpoint.slow]
launch = ["{python}", "-m", "utterwire_server", "serve", "--rtf", "0.2", "--idle-timeout", "1",
          "--port", "{port}"]
ready_url = "http://127.0.0.1:{port}/ping"
profiles = ["core", "load"]
timeouts = { idle_s = 1 }
"""


@pytest.mark.slow
def test_a_session_beside_stalled_ones_does_not_become_idle_while_a_slow_engine_fills_their_buffers(
    tmp_path: Path,
) -> None:
    (tmp_path / "endpoints.toml").write_text(SLOW)
    options = ("--endpoint", "slow", "--requirement", "load.stalled-reader", "-q")
    done = run(*CLI, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert verdicts(tmp_path)["load.stalled-reader"] == "pass"


@pytest.mark.slow
def test_the_plain_peer_fails_on_what_it_does_wrong_and_on_nothing_else(
    tmp_path: Path, plain_peer: str
) -> None:
    done = run(*CLI, "--endpoint-url", plain_peer, "--no-fuzz", cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    found = verdicts(tmp_path)
    assert {name for name, verdict in found.items() if verdict == "fail"} == {
        # It reads text frames only.
        "message.frame-kinds-alike",
        # It ends the session after one utterance.
        "session.stays-open",
        # It drops the connection on bad JSON.
        "reject.session-survives",
        "reject.invalid-json",
        "reject.empty-frame",
        "reject.odd-json-survives",
    }
    assert set(found.values()) <= {"pass", "fail", "not-exercised", "not-claimed"}
    assert list(found.values()).count("pass") > 70
    for words in (
        "Read binary frames exactly as you read text frames.",
        "After an utterance read the next message; leave the closing to the client.",
        "Answer a bad message with an `error` and read the next; never close because of it.",
        "spec/protocol.md#order",
    ):
        assert words in done.stdout


FEW = """
[endpoint.few]
launch = [
  "{python}", "-m", "utterwire_server", "--host", "127.0.0.1", "--port", "{port}",
  "--profiles", "core", "--max-sessions", "1",
]
ready_url = "http://127.0.0.1:{port}/ping"
profiles = ["core"]
"""


@pytest.mark.slow
@pytest.mark.parametrize("told", [True, False], ids=["told", "found out"])
def test_an_endpoint_with_one_place_is_judged_all_the_same(tmp_path: Path, told: bool) -> None:
    (tmp_path / "endpoints.toml").write_text(FEW)
    chosen = ("order.*", "reject.*", "disconnect.isolated")
    options = [part for each in chosen for part in ("--requirement", each)]
    options += ["--max-concurrent", "1"] if told else []
    done = run(*CLI, "--endpoint", "few", "--no-fuzz", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "utterwire-report" / "report.json").read_text("utf-8"))
    chosen_rows = {row["requirement"]: row for row in document["results"] if row["checks"]}
    alone = chosen_rows.pop("disconnect.isolated")
    assert alone["verdict"] == "not-exercised"
    assert (
        alone["reason"] == "it needs 2 connections at a time, and the endpoint takes 1 connection"
    )
    for name in ("order.fifo", "reject.invalid-json", "reject.duplicate-request-id"):
        assert chosen_rows[name]["verdict"] == "pass"
    assert ("only 1 connection at a time let in" in done.stdout) is not told
    assert document["environment"]["most_connections"] == (None if told else 1)


@pytest.fixture
def far_server(tmp_path: Path) -> Iterator[str]:
    """The reference server, 300 ms away in each direction."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(_paths())}
    server = [sys.executable, "-m", "utterwire_server", "--host", "127.0.0.1", "--port", "0"]
    with (
        (tmp_path / "server").open("wb") as log,
        subprocess.Popen(server, env=environment, stderr=log) as one,
    ):
        try:
            near = _told_port(tmp_path / "server", one)
            proxy = [sys.executable, str(PEERS / "far_proxy.py"), str(near), "0.3"]
            with subprocess.Popen(proxy, stdout=subprocess.PIPE) as other:
                try:
                    assert other.stdout is not None
                    yield f"ws://127.0.0.1:{int(other.stdout.readline())}"
                finally:
                    other.kill()
        finally:
            one.kill()


def _told_port(log: Path, process: subprocess.Popen[bytes]) -> int:
    """The port at which a server says that it is ready."""
    while True:
        is_over = process.poll() is not None
        told = [
            json.loads(line) for line in log.read_bytes().splitlines(True) if line[-1:] == b"\n"
        ]
        if any(event["event"] == "ready" for event in told):
            return next(int(event["port"]) for event in told if event["event"] == "listening")
        assert not is_over, told
        time.sleep(0.05)


@pytest.mark.slow
def test_far_away_is_no_fault(tmp_path: Path, far_server: str) -> None:
    chosen = ("close.*", "ws.ping", "ws.close-echo", "order.fifo", "read.*", "cancel.prompt")
    options = [part for each in chosen for part in ("--requirement", each)]
    options += ["--profile", "interrupt", "--no-fuzz"]
    done = run(*CLI, "--endpoint-url", far_server, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = verdicts(tmp_path)
    for name in ("close.endpoint-gives-up", "ws.close-echo", "order.fifo", "cancel.prompt"):
        assert found[name] == "pass"


def test_a_dead_port_cannot_be_judged(tmp_path: Path, dead_port: int) -> None:
    done = run(*CLI, "--endpoint-url", f"ws://127.0.0.1:{dead_port}", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot connect: Connection refused" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert set(verdicts(tmp_path).values()) == {"harness-error", "not-exercised", "not-claimed"}


ENDPOINTS = """
[endpoint.broken]
launch = ["{python}", "-c", "import sys; sys.exit('no {port} for me')"]
ready_url = "http://127.0.0.1:{port}/ping"

[endpoint.absent]
launch = ["/nowhere/server", "{port}"]
ready_url = "http://127.0.0.1:{port}/ping"

[endpoint.silent]
launch = ["{python}", "SILENT", "{port}"]
ready_url = "http://127.0.0.1:{port}/ping"
timeouts = { ready_s = 20, first_byte_s = 0.3, stall_s = 0.3 }

[endpoint.failing]
launch = [
  "{python}", "-m", "utterwire_server", "--engine", "faulty",
  "--host", "127.0.0.1", "--port", "{port}",
]
ready_url = "http://127.0.0.1:{port}/ping"

[endpoint.poor]
launch = [
  "{python}", "-m", "utterwire_server", "--profiles", "core,interrupt,negotiate",
  "--host", "127.0.0.1", "--port", "{port}",
]
ready_url = "http://127.0.0.1:{port}/ping"
profiles = ["core", "interrupt", "negotiate"]
budget = { characters = 3000, requests_per_second = 30 }

[endpoint.never]
launch = ["{python}", "-c", "import time; time.sleep(60) # {port}"]
ready_url = "http://127.0.0.1:{port}/ping"
timeouts = { ready_s = 0.5 }

[endpoint.trust]
url = "wss://127.0.0.1:1"
ca_file = "none.pem"
"""


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("broken", 2, "for me"),
        ("absent", 2, "cannot start /nowhere/server"),
        ("never", 2, "did not answer /ping with 200"),
        ("trust", 2, "ca_file"),
        ("failing", 2, "failed on a first, plain request with `synthesis_failed`"),
        pytest.param("poor", 0, "the budget of 3000 characters is spent", marks=pytest.mark.slow),
        pytest.param("silent", 1, "A valid request never came to an end.", marks=pytest.mark.slow),
    ],
)
def test_endpoints_that_do_not_work(tmp_path: Path, name: str, code: int, words: str) -> None:
    text = ENDPOINTS.replace("SILENT", str(PEERS / "silent_peer.py"))
    (tmp_path / "endpoints.toml").write_text(text)
    done = run(*CLI, "--endpoint", name, "--no-fuzz", cwd=tmp_path)
    assert done.returncode == code, done.stdout
    assert words in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "which endpoint?"),
        (("--endpoint", "nobody"), "no endpoint is called 'nobody'"),
        (("--endpoint", "a", "--endpoint-url", "ws://h"), "not both"),
        (("--endpoint-url", "http://h"), "--endpoint-url http://h"),
        (("--endpoint", "reference", "--profile", "cor"), "--profile cor"),
        (("--endpoint", "reference-core", "--profile", "sse"), "does not claim it"),
        (("--endpoint-url", "ws://h", "--header", "nonsense"), "--header"),
        (("--endpoint", "reference", "--endpoints", "none.toml"), "cannot be read"),
        (("--nonsense",), "unrecognized"),
    ],
)
def test_wrong_usage_is_told_in_a_line(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    done = run(*CLI, *options, cwd=tmp_path)
    assert done.returncode == 2
    said = (done.stdout + done.stderr).strip()
    assert words in said
    assert "Traceback" not in said


def test_help_is_short(tmp_path: Path) -> None:
    done = run(*CLI, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "exit status: 0 it conforms, 1 it does not, 2 it could not be judged" in " ".join(
        done.stdout.split()
    )


def test_a_report_that_cannot_be_written_is_said(tmp_path: Path, dead_port: int) -> None:
    (tmp_path / "file").write_text("")
    where = ("--endpoint-url", f"ws://127.0.0.1:{dead_port}")
    done = run(*CLI, *where, "--report", "file", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout.splitlines()[0].count("ws://") == 1
    assert "cannot be written" in done.stdout


def test_no_run_without_its_report_is_a_success(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options = ("--endpoint", "reference-core", "-k", "audio.speed", "--report", "file")
    done = run(*CLI, *options, cwd=tmp_path)
    assert "1 passed" in done.stdout
    assert "cannot be written" in done.stdout
    assert done.returncode == 2


def test_the_command_of_the_checkout(tmp_path: Path) -> None:
    report = tmp_path / "report"
    done = run(
        sys.executable,
        "-m",
        "pytest",
        "conformance",
        "--endpoint",
        "reference",
        f"--report={report}",
        "-k",
        "audio.speed or audio.chunk-size or http.ping-post",
        "-v",
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout
    assert "suite.py::core::audio.speed PASSED" in done.stdout
    assert "suite.py::http::http.ping-post PASSED" in done.stdout
    assert (report / "report.json").is_file()


def test_the_checkout_without_an_endpoint_says_what_is_missing() -> None:
    done = run(sys.executable, "-m", "pytest", "conformance", cwd=ROOT)
    assert done.returncode == 4
    assert done.stderr.strip().count("\n") == 0
    assert "--endpoint NAME" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("conformance/tests/test_wire.py",), (".",)])
def test_other_runs_of_pytest_are_left_alone(arguments: tuple[str, ...]) -> None:
    done = run(
        sys.executable, "-m", "pytest", *arguments, "--collect-only", "-q", "-k", "test_wire",
        cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "test_wire.py" in done.stdout
    assert "suite.py" not in done.stdout


def test_listing_plays_nothing(tmp_path: Path) -> None:
    done = run(
        sys.executable,
        "-m",
        "pytest",
        "conformance",
        "--endpoint",
        "reference",
        "--collect-only",
        "-q",
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout
    assert "::core::order.fifo" in done.stdout
