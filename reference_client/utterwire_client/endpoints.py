"""The file that names endpoints, ``endpoints.toml``: the same that the conformance suite reads.

Of an endpoint the client reads ``url`` (or ``http_url``), or ``sagemaker`` with ``region``,
``profile``, ``variant`` and ``endpoint_url``; ``headers``, ``ca_file``, ``voice`` and ``timeouts``.
The schema is ``endpoint-file`` of :mod:`utterwire_schemas`.
"""

import os
import re
import ssl
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utterwire_schemas import validator

from utterwire_client.address import SageMakerAddress, is_sagemaker
from utterwire_client.errors import RequestInvalid

__all__ = ["ENDPOINTS_VARIABLE", "Endpoint", "find_endpoint", "tls_context"]

#: Environment variable with the path of the file.
ENDPOINTS_VARIABLE = "UTTERWIRE_ENDPOINTS"

_FILE_NAME = "endpoints.toml"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an endpoint is and what it wants; times in seconds, None for the default.

    The header fields are left out of ``repr``: they hold credentials.
    """

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: Path | None = None
    voice: str | None = None
    connect_s: float | None = None
    first_byte_s: float | None = None
    stall_s: float | None = None


_REFERENCE = Endpoint(name="reference", url="ws://127.0.0.1:8080")


def find_endpoint(
    name: str, *, file: Path | None = None, environ: Mapping[str, str] | None = None
) -> Endpoint:
    """The endpoint of that name.

    Looked for in ``file``, else in the file that ``UTTERWIRE_ENDPOINTS`` names, else in
    ``endpoints.toml`` of the working directory. ``reference`` needs no file: it is then the
    reference server on its default port of this machine. Nor does ``sagemaker:NAME`` (see
    :class:`~utterwire_client.address.SageMakerAddress`). Raises :class:`RequestInvalid` with one
    line that says what is wrong and where.
    """
    if is_sagemaker(name):
        address = SageMakerAddress.parse(name)
        return Endpoint(name=str(address), url=address.url)
    environ = os.environ if environ is None else environ
    named = file is not None or bool(environ.get(ENDPOINTS_VARIABLE))
    path = file or Path(environ.get(ENDPOINTS_VARIABLE) or _FILE_NAME)
    document = _read(path, must_exist=named)
    if document is None:
        if name == _REFERENCE.name:
            return _REFERENCE
        raise RequestInvalid(
            f"no endpoint {name!r}: there is no {_FILE_NAME} here; "
            f"write one, or name it with --endpoints-file or {ENDPOINTS_VARIABLE}, or give --url"
        )
    table = document["endpoint"].get(name)
    if table is None:
        if name == _REFERENCE.name:
            return _REFERENCE
        known = ", ".join(sorted(document["endpoint"]))
        raise RequestInvalid(f"no endpoint {name!r} in {path}: it has {known}")
    return _endpoint(name, table, path, environ)


def _read(path: Path, *, must_exist: bool) -> dict[str, Any] | None:
    try:
        with path.open("rb") as stream:
            document = tomllib.load(stream)
    except FileNotFoundError:
        if must_exist:
            raise RequestInvalid(f"there is no endpoint file {path}") from None
        return None
    except OSError as exc:
        raise RequestInvalid(f"cannot read the endpoint file {path}: {exc.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise RequestInvalid(f"{path} is not TOML: {exc}") from None
    except RecursionError:
        raise RequestInvalid(f"{path} is nested too deeply") from None
    problems = sorted(
        validator("endpoint-file").iter_errors(document), key=lambda problem: problem.json_path
    )
    if problems:
        where = ".".join(str(part) for part in problems[0].absolute_path) or "the file"
        reason = problems[0].message if problems[0].validator != "oneOf" else _ONE_OF
        raise RequestInvalid(f"{path}: {where}: {' '.join(reason.split())}")
    return document


_ONE_OF = "give one of url, sagemaker, or launch and ready_url"


def _endpoint(
    name: str, table: Mapping[str, Any], path: Path, environ: Mapping[str, str]
) -> Endpoint:
    def filled(key: str, value: str) -> str:
        def variable(match: re.Match[str]) -> str:
            found = environ.get(match[1])
            if found is None:
                raise RequestInvalid(
                    f"{path}: endpoint.{name}.{key} needs the environment variable {match[1]}, "
                    "which is not set"
                )
            return found

        return _VARIABLE.sub(variable, value)

    ca_file = None if "ca_file" not in table else path.parent / table["ca_file"]
    for key in ("url", "http_url"):
        if key in table:
            url = filled(key, table[key])
            break
    else:
        if "sagemaker" in table:
            url, ca_file = _sagemaker(table, ca_file).url, None
        else:
            raise RequestInvalid(
                f"{path}: endpoint.{name} has no url: it is one that the conformance suite starts "
                "for itself; start it by hand and give --url"
            )
    timeouts = table.get("timeouts", {})
    return Endpoint(
        name=name,
        url=url,
        headers={
            key: filled(f"headers.{key}", value) for key, value in table.get("headers", {}).items()
        },
        ca_file=ca_file,
        voice=table.get("voice"),
        connect_s=timeouts.get("connect_s"),
        first_byte_s=timeouts.get("first_byte_s"),
        stall_s=timeouts.get("stall_s"),
    )


def _sagemaker(table: Mapping[str, Any], ca_file: Path | None) -> SageMakerAddress:
    return SageMakerAddress(
        name=table["sagemaker"],
        region=table.get("region"),
        profile=table.get("profile"),
        variant=table.get("variant"),
        endpoint_url=table.get("endpoint_url"),
        ca_file=ca_file,
    )


def tls_context(ca_file: Path) -> ssl.SSLContext:
    """TLS settings that trust the authorities in ``ca_file`` (PEM) and no others.

    Raises :class:`RequestInvalid`.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as exc:
        raise RequestInvalid(
            f"{ca_file} is not a PEM file of certificates ({exc.reason})"
        ) from None
    except OSError as exc:
        raise RequestInvalid(f"cannot read {ca_file}: {exc.strerror}") from None
