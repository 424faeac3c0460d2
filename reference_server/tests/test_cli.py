"""The command line: one line and a status for whatever is wrong."""

from __future__ import annotations

import builtins
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from utterwire_server import bench, cli, engines, runner, tracing
from utterwire_server.access import Access
from utterwire_server.engines import Engine, ModelOptions, ToneEngine
from utterwire_server.service import Service
from utterwire_server.settings import Settings

Served = list[tuple[Settings, Engine]]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """What would have been served; nothing is."""
    for variable in [name for name in os.environ if name.startswith("UTTERWIRE_")]:
        monkeypatch.delenv(variable)
    calls: Served = []

    def serve(service: Service, sock: socket.socket, **_: object) -> int:
        sock.close()
        calls.append((service.settings, service.engine))
        return 0

    monkeypatch.setattr(runner, "serve", serve)
    return calls


@pytest.mark.parametrize("command", [[], ["serve"]])
def test_defaults(served: Served, command: list[str]) -> None:
    assert cli.main([*command, "--port", "0"]) == 0
    settings, engine = served[0]
    assert settings == Settings()
    assert engine.name == "tone"


def test_a_model_folder_that_is_named_is_meant(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setenv("UTTERWIRE_MODEL_DIR", str(tmp_path))
    assert cli.main(["--port", "0"]) == 2
    problem = capsys.readouterr().err
    assert "kokoro-onnx cannot be served from" in problem
    assert "no kokoro.onnx, kokoro-front.onnx, kokoro-generator.onnx, voices/*.bin" in problem
    assert cli.main(["--port", "0", "--engine", "tone"]) == 0


def test_flags_reach_the_engine_with_a_model(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def load_engine(name: str | None, *, model: ModelOptions, **others: object) -> Engine:
        made.append((name, model))
        return ToneEngine()

    monkeypatch.setattr(engines, "load_engine", load_engine)
    flags = ["--model-dir", "m", "--streaming", "window", "--threads", "3", "--workers", "2"]
    flags += ["--device", "cuda:1", "--block-timeout", "7"]
    assert cli.main(["--port", "0", *flags]) == 0
    assert made == [(None, ModelOptions("m", "window", 3, 2, "cuda:1", 7.0))]


def test_flags_reach_the_settings(served: Served) -> None:
    flags = {
        "--max-text-chars": "5000",
        "--max-message-bytes": "70000",
        "--max-request-id-chars": "200",
        "--max-waiting": "9",
        "--max-queued-chars": "7000",
        "--max-queued-work": "12.5",
        "--max-sessions": "3",
        "--idle-timeout": "1.5",
        "--stall-timeout": "2.5",
        "--shutdown-timeout": "0",
        "--block-timeout": "4",
        "--body-timeout": "5",
        "--send-buffer-bytes": "8192",
        "--metrics": "off",
        "--profiles": "core, http",
        "--engine": "faulty",
        "--fail-after": "2",
        "--rtf": "0.5",
        "--port": "0",
    }
    assert cli.main([part for flag in flags.items() for part in flag]) == 0
    settings, engine = served[0]
    assert settings == Settings(
        profiles=frozenset({"core", "http"}),
        max_text_chars=5_000,
        max_message_bytes=70_000,
        max_request_id_chars=200,
        max_waiting=9,
        max_queued_chars=7_000,
        max_queued_work_s=12.5,
        max_sessions=3,
        idle_timeout_s=1.5,
        stall_timeout_s=2.5,
        shutdown_timeout_s=0.0,
        block_timeout_s=4.0,
        body_timeout_s=5.0,
        send_buffer_bytes=8_192,
        metrics=False,
    )
    assert (engine.name, vars(engine)["blocks"], vars(engine)["real_time_factor"]) == (
        "faulty",
        2,
        0.5,
    )


def test_the_environment_sets_what_no_flag_does(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UTTERWIRE_PORT", "0")
    monkeypatch.setenv("UTTERWIRE_IDLE_TIMEOUT", "7")
    monkeypatch.setenv("UTTERWIRE_MAX_WAITING", "11")
    assert cli.main(["--max-waiting", "12"]) == 0
    assert (served[0][0].idle_timeout_s, served[0][0].max_waiting) == (7.0, 12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "eighty"], "argument --port: 'eighty' is not a whole number"),
        (["--port", "65536"], "65536 is not a port"),
        (["--port", "-1"], "-1 is not a port"),
        (["--rtf", "fast"], "'fast' is not a number"),
        (["--rtf", "-1"], "real-time factor"),
        (["--metrics", "maybe"], "'maybe' is neither on nor off"),
        (["--token-file", "/no/such/file"], "token file /no/such/file: No such file"),
        (["--allowed-origins", "app.example.com"], "'app.example.com' is not an origin"),
        (["--max-sessions-per-address", "-1"], "max_sessions_per_address is -1"),
        (["--tls-cert", "/no/such/file"], "TLS file /no/such/file: No such file"),
        (["--tls-key", "/no/such/file"], "--tls-key without --tls-cert"),
        (["--tls-cert", ""], "TLS file : "),
        (["--host", ""], "argument --host: it is empty; 0.0.0.0 is every address"),
        (["--workers", "0"], "workers is 0; it must be 1 to"),
        (["--device", "auto:1"], "no device 'auto:1'"),
        (["--model-dir", "~no-such-user/x"], "there is no such user"),
        (["--model-dir", "x" * 5_000], "File name too long"),
        (["bench", "--json", "/"], "--json /: it cannot be written"),
        (["--idle-timeout", "0"], "idle_timeout_s is 0"),
        (["--max-queued-work", "inf"], "max_queued_work_s is inf; it must be above 0"),
        (["--max-waiting", "1"], "max_waiting is 1; it must be 8 to"),
        (["--engine", "festival"], "no engine 'festival'"),
        (["--engine", "kokoro-onnx"], "kokoro-onnx needs a model: name its folder by --model-dir"),
        (["--model-dir", "/nonexistent"], "/nonexistent is no folder; make one with"),
        (["--engine", "no_such_module:make"], "cannot be imported"),
        (["--engine", "faulty", "--fail-after", "-1"], "cannot fail after -1"),
        (["--engine", "utterwire_server.engines:EngineError"], "made a EngineError, not an Engine"),
        (["--profiles", "telepathy"], "no profile 'telepathy'"),
        (["--profiles", "http"], "without core"),
        (["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["--por=1"], "unrecognized arguments"),
        (["sing"], "invalid choice"),
    ],
)
def test_a_mistake_is_one_line(
    served: Served, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert cli.main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("utterwire-server: ")
    assert told.err.count("\n") == 1
    assert words in told.err
    assert not served


def test_access_comes_from_flags_file_and_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, served: Served
) -> None:
    services: list[Service] = []

    def serve(service: Service, sock: socket.socket, **_: object) -> int:
        sock.close()
        services.append(service)
        return 0

    monkeypatch.setattr(runner, "serve", serve)
    monkeypatch.setenv("UTTERWIRE_TOKEN", "from-the-environment")
    monkeypatch.setenv("UTTERWIRE_ALLOWED_ORIGINS", "https://a.example, https://b.example:8443")
    path = tmp_path / "tokens"
    path.write_text("from-the-file\n")
    flags = ["--token-file", str(path), "--max-sessions-per-address", "3", "--port", "0"]
    assert cli.main(["--port", "0", *flags]) == 0
    assert services[0].access == Access(
        tokens=("from-the-file", "from-the-environment"),
        origins=frozenset({"https://a.example", "https://b.example:8443"}),
        sessions_per_address=3,
    )


def test_a_token_that_cannot_be_is_told_without_it(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # An empty one, from a secret that is missing, must not let everybody in.
    for token in ("two words", "", " "):
        monkeypatch.setenv("UTTERWIRE_TOKEN", token)
        assert cli.main(["--port", "0"]) == 2
        told = capsys.readouterr().err
        assert "token 1 is none that a header can carry" in told
        assert "two words" not in told


def test_tracing_sends_spans_and_what_is_left_at_the_end(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = []
    monkeypatch.setattr(tracing, "export_spans", lambda: lambda: finished.append(True))
    assert cli.main(["--tracing", "on", "--port", "0"]) == 0
    assert finished == [True]


def test_tracing_without_its_extra_is_one_line(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [it for it in sys.modules if it.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert cli.main(["--tracing", "on", "--port", "0"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "pip install 'utterwire[tracing]'" in told


def test_a_mistake_in_the_environment_names_the_variable(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UTTERWIRE_PORT", "eighty")
    assert cli.main([]) == 2
    assert "environment UTTERWIRE_PORT: 'eighty' is not a whole number" in capsys.readouterr().err
    monkeypatch.setenv("UTTERWIRE_PORT", "tcp://10.96.0.7:8080")
    assert cli.main([]) == 2
    told = capsys.readouterr().err
    assert "is Kubernetes's, for a Service of that name; enableServiceLinks: false" in told


def test_an_interrupt_before_it_serves_is_one_line(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load_engine(*_: object, **named: object) -> Engine:
        raise KeyboardInterrupt

    monkeypatch.setattr(engines, "load_engine", load_engine)
    assert cli.main(["--port", "0"]) == 130
    assert capsys.readouterr().err == "utterwire-server: interrupted before it served\n"


def test_an_address_in_use_is_one_line(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["--port", str(port)]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"cannot listen on 127.0.0.1 port {port}: " in told


@pytest.mark.parametrize("host", ["not a host", "x" * 300, "999.1.1.1"])
def test_a_host_that_cannot_be(
    served: Served, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    assert cli.main(["--host", host, "--port", "0"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_help_names_each_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    told = capsys.readouterr().out
    assert "the same as without it" in told
    for flag in ("--host", "--port", "--engine", "--idle-timeout", "UTTERWIRE_"):
        assert flag in told


def _without(missing: str) -> Callable[..., Any]:
    real = builtins.__import__

    def find(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("utterwire_server."):
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return real(name, *rest, **named)

    return find


@pytest.mark.parametrize(
    "missing", ["starlette", "uvicorn", "numpy", "websockets.server", "httptools"]
)
def test_a_missing_extra_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    monkeypatch.setattr(builtins, "__import__", _without(missing))
    assert cli.main([]) == 2
    told = capsys.readouterr().err
    assert (
        told == f"utterwire-server: {missing} is not installed; pip install 'utterwire[server]'\n"
    )


def test_a_fault_of_our_own_is_not_called_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "__import__", _without("utterwire_server.gone"))
    with pytest.raises(ModuleNotFoundError):
        cli.main([])


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")
def test_an_ipv6_address_can_be_listened_on(served: Served) -> None:
    assert cli.main(["--host", "::1", "--port", "0"]) == 0


def test_a_measurement_that_cannot_be_written_is_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class Measured:
        def __init__(self, *_: object, **named: object) -> None:
            pass

        async def run(self) -> dict[str, int]:
            (tmp_path / "bench.json").mkdir()  # as a disk that is full by now
            return {"capacity": 7}

    monkeypatch.setattr(bench, "Bench", Measured)
    monkeypatch.setattr(bench, "table", str)
    flags = ["--engine", "tone", "--json", str(tmp_path / "bench.json")]
    assert cli.main(["bench", *flags]) == 1
    told = capfd.readouterr()
    assert told.out == "{'capacity': 7}\n"
    assert told.err.endswith("bench.json: Is a directory\n")
