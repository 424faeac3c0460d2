"""``utterwire-server``: flags, environment, and one line for whatever is wrong with them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from utterwire_server.parser import Parser

if TYPE_CHECKING:
    import ssl

    from utterwire_server.access import Access
    from utterwire_server.observer import Observer
    from utterwire_server.service import Service
    from utterwire_server.settings import Settings

__all__ = ["main"]

_PROGRAM = "utterwire-server"
_PREFIX = "UTTERWIRE_"
_NEEDED = ("httptools", "numpy", "starlette", "uvicorn", "websockets")


def _whole(text: str) -> int:
    try:
        return int(text, 10)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _host(text: str) -> str:
    if not text:
        # A variable that is set but empty must not open the server to every network.
        raise argparse.ArgumentTypeError("it is empty; 0.0.0.0 is every address")
    return text


def _port(text: str) -> int:
    if text.startswith("tcp://"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is Kubernetes's, for a Service of that name; enableServiceLinks: false in"
            " the pod's specification keeps it out"
        )
    value = _whole(text)
    if not 0 <= value <= 65_535:
        raise argparse.ArgumentTypeError(f"{value} is not a port; ports are 0 to 65535")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _formats(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _nothing() -> None:
    return


def _switch(text: str) -> bool:
    switches = {"on": True, "off": False}
    if text not in switches:
        raise argparse.ArgumentTypeError(f"{text!r} is neither on nor off")
    return switches[text]


class _Added(argparse.Action):
    """Adds to what was given before."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, getattr(namespace, self.dest) | values)


def _shown(default: object) -> str:
    """A default as a person would write it."""
    match default:
        case bool():
            return "on" if default else "off"
        case frozenset():
            return ",".join(sorted(default)) or "none"
        case float():
            return f"{default:g}"
    return "none" if default is None else str(default)


# Flag, type, default, help. A Settings field of the same name takes the value where there is one.
_Flag = tuple[str, Callable[[str], Any], Any, str]


def _flags() -> tuple[_Flag, ...]:
    from utterwire_server.encoders import FORMATS
    from utterwire_server.engines import ENGINE_NAMES
    from utterwire_server.engines.kokoro.engine import DEFAULT_STREAMING
    from utterwire_server.engines.kokoro.speech import STREAMING
    from utterwire_server.settings import PROFILES, Settings

    s = Settings()
    engines = ", ".join(ENGINE_NAMES)
    profiles = ",".join(sorted(PROFILES))
    return (
        ("host", _host, "127.0.0.1", "address to listen on; 0.0.0.0 for every one"),
        ("port", _port, 8080, "port to listen on; 0 takes a free one and logs it"),
        (
            "engine",
            str,
            None,
            f"{engines}, or package.module:factory; without it kokoro-onnx where a model is",
        ),
        ("model-dir", str, None, "folder of the model; without it /opt/ml/model"),
        (
            "streaming",
            str,
            DEFAULT_STREAMING,
            f"{' or '.join(STREAMING)}: what Kokoro makes before the first sound leaves",
        ),
        ("threads", _whole, None, "threads that compute a block; without it up to 4 of the cores"),
        ("device", str, "auto", "where kokoro-torch computes: auto, cpu, cuda, or such as cuda:1"),
        ("workers", _whole, 1, "blocks that a model makes at once, each with a copy of it"),
        ("rtf", _number, 0.0, "seconds of computing for a second of audio (built-in engines)"),
        ("fail-after", _whole, 0, "blocks that `faulty` and `hanging` make before they give up"),
        ("profiles", _names, s.profiles, f"profiles to claim, of {profiles}"),
        (
            "formats",
            _formats,
            s.formats,
            f"formats to offer, of {','.join(FORMATS)}; without it all that are installed",
        ),
        ("max-text-chars", _whole, s.max_text_chars, "longest text, in code points"),
        ("max-message-bytes", _whole, s.max_message_bytes, "largest message or request body"),
        ("max-request-id-chars", _whole, s.max_request_id_chars, "longest request_id"),
        ("max-waiting", _whole, s.max_waiting, "utterances that may wait in one session"),
        ("max-sessions", _whole, s.max_sessions, "sessions and requests at once"),
        ("max-queued-chars", _whole, s.max_queued_chars, "characters that may wait, in all"),
        (
            "max-queued-work",
            _number,
            s.max_queued_work_s,
            "seconds of work that may wait, of a session and in all",
        ),
        ("idle-timeout", _number, s.idle_timeout_s, "seconds until an idle session is ended"),
        ("stall-timeout", _number, s.stall_timeout_s, "seconds a client may read nothing"),
        ("shutdown-timeout", _number, s.shutdown_timeout_s, "seconds to finish after SIGTERM"),
        ("block-timeout", _number, s.block_timeout_s, "seconds one block of audio may take"),
        ("body-timeout", _number, s.body_timeout_s, "seconds a request body may take"),
        ("send-buffer-bytes", _whole, s.send_buffer_bytes, "kernel send buffer of a connection"),
        ("metrics", _switch, s.metrics, "whether /metrics is served, on or off"),
        ("ui", _switch, s.ui, "whether the page at / is served, on or off; --no-ui turns it off"),
        (
            "allow-endpoint",
            _names,
            frozenset(),
            "address of another endpoint that the page may speak through; may be given repeatedly",
        ),
        ("tracing", _switch, False, "whether spans are sent, on or off; where to is for OTEL_*"),
        ("token-file", str, None, "bearer tokens, one a line, of which a client needs one"),
        ("allowed-origins", _names, frozenset(), "sites whose pages are let in; * for any"),
        ("max-sessions-per-address", _whole, 0, "sessions and requests of one address; 0: any"),
        ("tls-cert", str, None, "PEM file of the certificate and its chain, for wss and https"),
        ("tls-key", str, None, "PEM file of its key, if it is not in the same file"),
    )


def _bench_flags() -> tuple[_Flag, ...]:
    return (
        ("voice", str, None, "voice that speaks; without it the engine's first"),
        ("max-listeners", _whole, 64, "listeners at once that are tried at most"),
        ("step-seconds", _number, 20.0, "seconds that each number of listeners is held"),
        ("goal-first-byte", _number, 0.5, "seconds within which p95 of the first byte must be"),
        ("json", str, None, "file to write the result to as JSON; - is stdout, without the table"),
    )


def _parse(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    flags: Sequence[_Flag],
    command: str = "serve",
) -> argparse.Namespace:
    serves = command == "serve"
    parser = Parser(
        prog=_PROGRAM if serves else f"{_PROGRAM} {command}",
        description="Serve text-to-speech over Utterwire."
        if serves
        else "Measure first byte, real-time factor and capacity of an engine on this machine.",
        epilog=f"Other commands: {_PROGRAM} bench, {_PROGRAM} model. "
        f"Each flag may also be set in the environment: --idle-timeout is "
        f"{_PREFIX}IDLE_TIMEOUT. A flag wins.",
        allow_abbrev=False,
    )
    if serves:
        parser.add_argument(
            "command",
            nargs="?",
            choices=("serve", "bench"),
            default="serve",
            help="serve is the same as without it, and what SageMaker AI passes to a container;"
            f" bench measures this machine (see {_PROGRAM} bench --help)",
        )
    for name, kind, default, text in flags:
        parser.add_argument(
            f"--{name}",
            type=kind,
            action=_Added if name == "allow-endpoint" else "store",
            default=default,
            metavar=name.rpartition("-")[2].upper(),
            help=f"{text} (default {_shown(default)})".replace("%", "%%"),
        )
    parser.add_argument(
        "--no-ui", dest="ui", action="store_false", default=argparse.SUPPRESS, help="as --ui off"
    )
    from_environment = []
    for name, kind, _, _ in flags:
        variable = _PREFIX + name.upper().replace("-", "_")
        if variable in environment:
            try:
                kind(environment[variable])
            except argparse.ArgumentTypeError as error:
                parser.error(f"environment {variable}: {error}")
            from_environment.append(f"--{name}={environment[variable]}")
    return parser.parse_args([*from_environment, *arguments])


def _settings(values: argparse.Namespace) -> Settings:
    from utterwire_server.settings import Settings
    from utterwire_server.ui import relay_address

    allowed = {relay_address(url) for url in values.allow_endpoint}
    fields: dict[str, Any] = {"allowed_endpoints": frozenset(allowed)}
    for name, value in vars(values).items():
        field = name if name in Settings.__dataclass_fields__ else f"{name}_s"
        if field in Settings.__dataclass_fields__:
            fields[field] = value
    return Settings(**fields)


def _access(values: argparse.Namespace, environment: Mapping[str, str]) -> Access:
    """Who is let in: a token is given in a file or in the environment, never on the command line,
    where everybody on the machine could read it."""
    from utterwire_server.access import Access, read_tokens

    tokens = () if values.token_file is None else read_tokens(values.token_file)
    # One that is empty (a secret that is missing, say) must not open the door: it is refused.
    token = environment.get(f"{_PREFIX}TOKEN")
    if token is not None:
        tokens += (token.strip(),)
    return Access(
        tokens=tokens,
        origins=values.allowed_origins,
        sessions_per_address=values.max_sessions_per_address,
    )


def _tls(values: argparse.Namespace) -> ssl.SSLContext | None:
    from utterwire_server.access import tls_context

    if values.tls_cert is not None:
        return tls_context(values.tls_cert, values.tls_key)
    if values.tls_key is not None:
        raise ValueError("--tls-key without --tls-cert; a server needs a certificate")
    return None


def _renewal(
    values: argparse.Namespace,
    environment: Mapping[str, str],
    tls: ssl.SSLContext | None,
    service: Service,
) -> Callable[[], None] | None:
    """Reads the token file and the certificate again; None where there are none."""
    if values.token_file is None and tls is None:
        return None

    def renew() -> None:
        from utterwire_server.access import renew_tls

        access = _access(values, environment)
        if tls is not None:
            renew_tls(tls, values.tls_cert, values.tls_key)
        service.access = access

    return renew


def _tracing() -> tuple[list[Observer], Callable[[], None]]:
    from utterwire_server.tracing import Tracing, export_spans

    try:
        finish = export_spans()
        return [Tracing()], finish
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise ValueError(
            "--tracing on: OpenTelemetry is not installed; pip install 'utterwire[tracing]'"
        ) from None


#: Flags that say how an engine is run, and so belong to what was measured of it.
_ENGINE_FLAGS = ("rtf", "fail_after", "threads", "streaming", "device", "workers")


def _bench(service: Service, values: argparse.Namespace) -> int:
    import asyncio
    import json
    import logging
    from pathlib import Path

    from utterwire_server.bench import Bench, BenchFailed, table
    from utterwire_server.logs import logging_to

    voices = service.engine.voices
    voice = voices[0] if values.voice is None else values.voice
    if voice not in voices:
        return _complain(f"engine {service.engine.name!r} has no voice {voice!r}", 2)
    if values.max_listeners < 1:
        return _complain(f"--max-listeners is {values.max_listeners}; it must be 1 or more", 2)
    for name in ("step_seconds", "goal_first_byte"):
        if not 0 < getattr(values, name) < float("inf"):
            flag = name.replace("_", "-")
            return _complain(f"--{flag} is {getattr(values, name):g}; it must be above 0", 2)
    out = None if values.json in (None, "-") else Path(values.json)
    if out is not None and not out.parent.is_dir():
        return _complain(f"--json {out}: there is no folder {out.parent}", 2)
    if out is not None and (
        out.is_dir() or not os.access(out if out.exists() else out.parent, os.W_OK)
    ):
        return _complain(f"--json {out}: it cannot be written", 2)
    options = {name: getattr(values, name) for name in _ENGINE_FLAGS if hasattr(values, name)}
    bench = Bench(
        service,
        voice,
        options=options,
        step_s=values.step_seconds,
        most=values.max_listeners,
        goal_s=values.goal_first_byte,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    try:
        with logging_to(level=logging.ERROR):
            result = asyncio.run(bench.run())
    except BenchFailed as error:
        return _complain(error, 1)
    except KeyboardInterrupt:
        return _complain("stopped before the end; nothing was written", 130)
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    if out is not None:
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            # What took minutes to be measured is not lost for that.
            print(table(result))
            return _complain(f"--json {out}: {error.strerror or error}", 1)
    print(text if values.json == "-" else table(result) + "\n", end="")
    return 0


def _complain(problem: object, status: int) -> int:
    print(f"{_PROGRAM}: {problem}", file=sys.stderr)
    return status


def _model(arguments: Sequence[str]) -> int:
    try:
        from utterwire_server.model import commands
    except ModuleNotFoundError as error:
        return _complain(f"{error.name} is not installed; pip install 'utterwire[model]'", 2)
    return commands.main(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server until a signal ends it, measure what it can do, or see to the model's files.

    Returns the exit status: 0 after an orderly end, 1 if the server cannot run, 2 for a mistake
    in flags or environment, 128 plus the signal's number if a second signal cut the end short.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["model"]:
        return _model(given[1:])
    try:
        return _serve(given)
    except KeyboardInterrupt:
        # Once it serves, SIGINT is an orderly end.
        return _complain("interrupted before it served", 130)


def _serve(given: list[str]) -> int:
    try:
        flags = _flags()
        from utterwire_server import runner, service
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        print(
            f"{_PROGRAM}: {error.name} is not installed; pip install 'utterwire[server]'",
            file=sys.stderr,
        )
        return 2
    benches = given[:1] == ["bench"]
    try:
        if benches:
            values = _parse(given[1:], os.environ, (*flags, *_bench_flags()), "bench")
        else:
            values = _parse(given, os.environ, flags)
            if values.command == "bench":
                return _complain("bench comes before its flags", 2)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2

    from utterwire_server.engines import ModelOptions, load_engine

    if ":" in (values.engine or ""):
        sys.path.append(os.getcwd())
    observers: list[Observer] = []
    finish = _nothing
    try:
        settings = _settings(values)
        access = _access(values, os.environ)
        tls = _tls(values)
        if values.tracing:
            observers, finish = _tracing()
        engine = load_engine(
            values.engine,
            real_time_factor=values.rtf,
            blocks=values.fail_after,
            model=ModelOptions(
                directory=values.model_dir,
                streaming=values.streaming,
                threads=values.threads,
                workers=values.workers,
                device=values.device,
                block_timeout_s=settings.block_timeout_s,
            ),
        )
        made = service.Service(settings, engine, access=access, observers=observers)
    except ValueError as error:
        return _complain(error, 2)
    if benches:
        try:
            return _bench(made, values)
        finally:
            finish()
    try:
        sock = runner.listen(values.host, values.port, send_buffer_bytes=settings.send_buffer_bytes)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        return _complain(f"cannot listen on {values.host} port {values.port}: {reason}", 1)
    try:
        return runner.serve(made, sock, tls=tls, renew=_renewal(values, os.environ, tls, made))
    finally:
        finish()
