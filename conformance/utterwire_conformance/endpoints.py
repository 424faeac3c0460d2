"""The endpoint file: which endpoints there are and what is known of them.

Its shape is the schema `endpoint-file`. Whatever is wrong with a file is told in one line that
names the file and the line in it.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from utterwire_schemas import validator

from .claims import EndpointClaims
from .redaction import (
    HIDDEN,
    LEAST_SECRET,
    public_command,
    public_url,
    redact,
    secret_words,
    secrets_of_command,
    secrets_of_url,
)
from .via import SAGEMAKER, SageMakerTarget

__all__ = [
    "ENVIRONMENT_VARIABLE",
    "FILE_NAME",
    "SESSION_PATH",
    "Budget",
    "Endpoint",
    "EndpointFileError",
    "Timeouts",
    "endpoint_at",
    "find_endpoint",
    "parse_header",
    "read_endpoints",
]

SESSION_PATH: Final = "/invocations-bidirectional-stream"
FILE_NAME: Final = "endpoints.toml"
ENVIRONMENT_VARIABLE: Final = "UTTERWIRE_ENDPOINTS"

_SAMPLES: Final = (
    "The train to the coast leaves at noon.",
    "A small boat drifted past the old lighthouse.",
    "See you there.",
    "Nobody could say where the music came from.",
)
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_TABLE_LINE: Final = re.compile(r"^\s*\[\s*(?P<path>[^\[\]]+?)\s*\]\s*(#.*)?$")
_KEY_LINE: Final = re.compile(r"^\s*(?P<path>[^=#\[\]]+?)\s*=")
_KEY_PART: Final = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|$)""")


class EndpointFileError(ValueError):
    """An endpoint file, or a name or URL given in its place, is wrong; the text is for people."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the suite waits, in seconds; None means that it goes by what it measures."""

    connect_s: float = 10.0
    first_byte_s: float | None = None
    stall_s: float | None = None
    ready_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Budget:
    """The most a run may cost; None means no bound."""

    characters: int | None = None
    sessions: int | None = None
    requests_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint to be judged.

    Either `url` (and `http_url`) say where it runs, or `launch` is the command that starts it.
    `headers` are secret: only their names may appear anywhere. So is what `hidden` holds: values
    that came from the environment into an address. `sagemaker` is it where SageMaker hosts it;
    `via` is `sagemaker`, too, where a router stands before an endpoint of another kind.
    `claims_known` is False where nobody said what it claims, so that it may claim more than
    `claims` has.
    `max_concurrent_sessions` is how many connections it takes at a time, None if that is not known.
    """

    name: str
    url: str | None = None
    http_url: str | None = None
    launch: tuple[str, ...] = ()
    ready_url: str | None = None
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    ca_file: Path | None = None
    voice: str | None = None
    language: str = "en"
    text_samples: tuple[str, ...] = _SAMPLES
    claims: EndpointClaims = field(default_factory=EndpointClaims)
    claims_known: bool = True
    timeouts: Timeouts = field(default_factory=Timeouts)
    budget: Budget = field(default_factory=Budget)
    hidden: tuple[str, ...] = field(default=(), repr=False)
    max_concurrent_sessions: int | None = None
    sagemaker: SageMakerTarget | None = None
    via: str = "websocket"

    def __post_init__(self) -> None:
        if bool(self.url) + bool(self.launch) + (self.sagemaker is not None) != 1:
            raise ValueError("an endpoint has a url, a command to launch it, or a name at AWS")
        if self.launch and not self.ready_url:
            raise ValueError("an endpoint that is launched needs a ready_url")

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not reach a report or a transcript, the longest first."""
        found = secret_words(self.headers) | secrets_of_command(self.launch)
        for url in (self.url, self.http_url, self.ready_url):
            found |= secrets_of_url(url or "")
        found |= {word for word in self.hidden if len(word) >= LEAST_SECRET}
        return tuple(sorted(found, key=lambda word: (-len(word), word)))

    @property
    def public_url(self) -> str | None:
        """`url` without user, password and query."""
        if self.url is None:
            return None
        shown: str = redact(public_url(self.url), self.secrets)
        return shown

    def configuration(self) -> dict[str, Any]:
        """What the report says of the endpoint: all that shaped the run, but no secret.

        Headers are named, their values masked. The claims stand apart.
        """
        table: dict[str, Any] = {"name": self.name.partition("?")[0]}
        addresses = {"url": self.url, "http_url": self.http_url, "ready_url": self.ready_url}
        table |= {name: public_url(url) for name, url in addresses.items() if url}
        if self.sagemaker is not None:
            target = self.sagemaker
            table["sagemaker"] = target.name
            for key in ("region", "variant", "endpoint_url"):
                if getattr(target, key) is not None:
                    table[key] = getattr(target, key)
        if self.via == SAGEMAKER:
            table["via"] = self.via
        if self.launch:
            table["launch"] = public_command(self.launch)
        if self.headers:
            table["headers"] = {name: HIDDEN for name, _ in self.headers}
        if self.ca_file is not None:
            table["ca_file"] = self.ca_file.name
        if self.voice is not None:
            table["voice"] = self.voice
        table |= {
            "language": self.language,
            "text_samples": list(self.text_samples),
            "claims_known": self.claims_known,
        }
        for name, part in (("timeouts", self.timeouts), ("budget", self.budget)):
            known = {key: value for key, value in asdict(part).items() if value is not None}
            if known:
                table[name] = known
        cleaned: dict[str, Any] = redact(table, self.secrets)
        return cleaned


def read_endpoints(path: Path) -> dict[str, Endpoint]:
    """All the endpoints of a file, by name.

    Raises:
        EndpointFileError: the file cannot be read or is wrong.
    """
    text = _text(path)
    tables = _tables(text, str(path))
    return {name: _endpoint(name, table, text, path) for name, table in tables.items()}


def find_endpoint(name: str, *, file: Path | None = None, cwd: Path | None = None) -> Endpoint:
    """The endpoint of that name: from `file`, else the file the environment names, else the one
    in the working directory; last from those built in.

    Raises:
        EndpointFileError: there is no such endpoint, or its file is wrong.
    """
    path = file
    if path is None and os.environ.get(ENVIRONMENT_VARIABLE):
        path = Path(os.environ[ENVIRONMENT_VARIABLE])
    if path is None and ((cwd or Path.cwd()) / FILE_NAME).is_file():
        path = (cwd or Path.cwd()) / FILE_NAME
    known: dict[str, str] = {}
    for source in (path, _built_in()):
        if source is None:
            continue
        text = _text(source)
        tables = _tables(text, str(source))
        if name in tables:
            return _endpoint(name, tables[name], text, source)
        known |= dict.fromkeys(tables, str(source))
    where = f"in {path} and " if path is not None else ""
    raise EndpointFileError(
        f"no endpoint is called {name!r} ({where}built in: {', '.join(sorted(known))});"
        f" add [endpoint.{name}] to {path or FILE_NAME}, or give --endpoint-url URL"
    )


def endpoint_at(
    url: str,
    *,
    profiles: Sequence[str] = (),
    headers: Sequence[tuple[str, str]] = (),
) -> Endpoint:
    """An endpoint known by its address alone; the profile `core` is always claimed.

    Without `profiles` what else it claims is not known.

    Raises:
        EndpointFileError: the URL or a profile is not one.
    """
    table = {
        "url": url,
        "profiles": ["core", *sorted(set(profiles) - {"core"})],
        "headers": dict(headers),
    }
    for fault in validator("endpoint-file").iter_errors({"endpoint": {"url": table}}):
        best = _deepest(fault)
        part = ".".join(str(step) for step in list(best.absolute_path)[2:]) or "url"
        raise EndpointFileError(f"--endpoint-url {url}: {part}: {_message(best)}")
    _check_url(url, f"--endpoint-url {url}")
    endpoint = _build("url", table, Path())
    name = endpoint.public_url or "url"
    return replace(endpoint, name=name, claims_known=bool(profiles))


def parse_header(text: str) -> tuple[str, str]:
    """A header as given on the command line, `Name: value`; `${NAME}` stands for the environment.

    Raises:
        EndpointFileError: it has no colon, or a variable is not set.
    """
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise EndpointFileError("--header: write it as 'Name: value'")
    return name.strip(), _expand(value.strip(), f"--header {name.strip()}")


def _built_in() -> Path:
    return Path(str(files("utterwire_conformance") / FILE_NAME))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise EndpointFileError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise EndpointFileError(f"{path}: is not UTF-8") from error


def _tables(text: str, source: str) -> dict[str, dict[str, Any]]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+)", str(error))
        line = found.group(1) if found else str(text.count("\n") + 1)
        fault = str(error).partition(" (at ")[0]
        raise EndpointFileError(f"{source}:{line}: not TOML: {fault}") from error
    faults = sorted(
        (_deepest(fault) for fault in validator("endpoint-file").iter_errors(document)),
        key=lambda fault: _line_of(text, [str(step) for step in fault.absolute_path]),
    )
    if faults:
        worst = faults[0]
        steps = [str(step) for step in worst.absolute_path]
        unknown = _unknown_key(worst)
        if unknown is not None:
            steps.append(unknown)
        place = ".".join(steps) or "the file"
        raise EndpointFileError(f"{source}:{_line_of(text, steps)}: {place}: {_message(worst)}")
    tables: dict[str, dict[str, Any]] = document["endpoint"]
    return tables


def _deepest(error: Any) -> Any:
    """The most telling of the errors behind a failed `oneOf`."""
    while error.context:
        error = max(error.context, key=lambda inner: len(inner.absolute_path))
    return error


def _unknown_key(error: Any) -> str | None:
    if error.validator != "additionalProperties" or not isinstance(error.instance, dict):
        return None
    extra = set(error.instance) - set(error.schema.get("properties", ()))
    return min(extra) if extra else None


def _message(error: Any) -> str:
    unknown = _unknown_key(error)
    if unknown is not None:
        known = ", ".join(sorted(error.schema.get("properties", ())))
        return f"unknown key; known are: {known}"
    if error.validator == "required":
        # `oneOf` asks for an address or a command; its branches each miss the other's keys.
        missing = [key for key in error.validator_value if key not in error.instance]
        if set(missing) & {"url", "launch", "ready_url", "sagemaker"}:
            return "give one of `url`, `sagemaker`, and `launch` with `ready_url`"
    if error.schema is False or error.validator is None:
        return "give one of `url`, `sagemaker`, and `launch` with `ready_url`, not two"
    if error.validator == "pattern" and "headers" in error.absolute_path:
        if list(error.absolute_path)[-1] == "headers":
            return f"{error.instance!r} is not the name of a header"
        return "a header value holds a line end"
    if error.validator == "pattern" and list(error.absolute_path)[-1:] == ["url"]:
        return (
            f"{error.instance!r} is not the address of a WebSocket: write ws://HOST or wss://HOST"
        )
    if error.validator == "contains":
        return f"must hold {error.schema['contains'].get('const', '{port}')!r}"
    if error.validator == "pattern":
        return f"{error.instance!r} is not of the form {error.validator_value}"
    return str(error.message)


def _split_key(path: str) -> list[str]:
    parts = []
    position = 0
    while position < len(path):
        found = _KEY_PART.match(path, position)
        if found is None:
            return [path]
        parts.append(next(group for group in found.groups() if group is not None))
        position = found.end()
    return parts


def _line_of(text: str, steps: Sequence[str]) -> int:
    """The line of the key that `steps` lead to, or of the nearest one above it."""
    best, best_depth = 1, 0
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        header = _TABLE_LINE.match(line)
        key = None if header else _KEY_LINE.match(line)
        if header:
            table = path = _split_key(header.group("path"))
        elif key:
            path = [*table, *_split_key(key.group("path"))]
        else:
            continue
        if len(path) > best_depth and list(steps[: len(path)]) == path:
            best, best_depth = number, len(path)
    return best


def _expand(value: str, place: str) -> str:
    def substitute(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in os.environ:
            raise EndpointFileError(f"{place}: the environment variable {name} is not set")
        return os.environ[name]

    return _VARIABLE.sub(substitute, value)


def _check_url(url: str, place: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise EndpointFileError(f"{place}: {str(error)[:1].lower()}{str(error)[1:]}") from error
    if not parts.hostname or port == 0:
        raise EndpointFileError(f"{place}: is not a URL with a host and, if any, a port")
    if parts.scheme not in ("ws", "wss", "http", "https"):
        raise EndpointFileError(f"{place}: the scheme is {parts.scheme or 'missing'}")


def _endpoint(name: str, table: Mapping[str, Any], text: str, source: Path) -> Endpoint:
    expanded = dict(table)
    hidden: list[str] = []
    for key in ("url", "http_url"):
        if key in expanded:
            names = _VARIABLE.findall(expanded[key])
            place = f"{source}:{_line_of(text, ['endpoint', name, key])}: {key}"
            expanded[key] = _expand(expanded[key], place)
            hidden += [os.environ[name] for name in names]
            _check_url(expanded[key], place)
    headers = {}
    for header, value in table.get("headers", {}).items():
        line = _line_of(text, ["endpoint", name, "headers", header])
        headers[header] = _expand(value, f"{source}:{line}: header {header}")
    expanded["headers"] = headers
    return replace(_build(name, expanded, source.parent), hidden=tuple(hidden))


def _build(name: str, table: Mapping[str, Any], folder: Path) -> Endpoint:
    url = table.get("url")
    waits = {
        key: value for key, value in table.get("timeouts", {}).items() if key in Timeouts.__slots__
    }
    target = _sagemaker(table, folder) if "sagemaker" in table else None
    return Endpoint(
        name=name,
        sagemaker=target,
        via="websocket" if target is None else SAGEMAKER,
        url=_session_url(url) if url else None,
        http_url=table.get("http_url") or (_http_base(url) if url else None),
        launch=tuple(arg.replace("{python}", sys.executable) for arg in table.get("launch", ())),
        ready_url=table.get("ready_url"),
        headers=tuple(table.get("headers", {}).items()),
        ca_file=folder / table["ca_file"] if "ca_file" in table else None,
        voice=table.get("voice"),
        language=table.get("language", "en"),
        text_samples=tuple(table.get("text_samples", _SAMPLES)),
        claims=EndpointClaims.from_table(table),
        timeouts=Timeouts(**waits),
        budget=Budget(**table.get("budget", {})),
        max_concurrent_sessions=table.get("max_concurrent_sessions"),
    )


def _sagemaker(table: Mapping[str, Any], folder: Path) -> SageMakerTarget:
    return SageMakerTarget(
        table["sagemaker"],
        region=table.get("region"),
        profile=table.get("profile"),
        variant=table.get("variant"),
        endpoint_url=table.get("endpoint_url"),
        ca_file=folder / table["ca_file"] if "ca_file" in table else None,
    )


def _session_url(url: str) -> str:
    """A base gets the path of the session; an address that has it stays."""
    parts = urlsplit(url)
    if parts.path.rstrip("/").endswith(SESSION_PATH):
        return url
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + SESSION_PATH))


def _http_base(url: str) -> str:
    parts = urlsplit(url)
    path = parts.path.rstrip("/").removesuffix(SESSION_PATH)
    scheme = {"ws": "http", "wss": "https"}[parts.scheme]
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))
