"""TLS for the router: an authority of its own, made once and kept, and a certificate by it."""

from __future__ import annotations

import ipaddress
import os
import ssl
from pathlib import Path
from typing import Final

import trustme

__all__ = ["CertificatesUnusable", "default_folder", "tls_files", "tls_server_context"]

_CA: Final = "ca.pem"
_CA_KEY: Final = "ca.key"
_NAMES: Final = ("localhost", "127.0.0.1", "::1")


class CertificatesUnusable(OSError):
    """The folder of certificates cannot be read or written, or holds something else."""


def default_folder() -> Path:
    """Where the authority is kept unless told otherwise."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "utterwire" / "router"


def tls_files(folder: Path) -> tuple[Path, trustme.CA]:
    """The file of the authority, to be trusted by who calls, and the authority itself.

    Raises:
        CertificatesUnusable: see there.
    """
    certificate, key = folder / _CA, folder / _CA_KEY
    try:
        if certificate.exists() and key.exists():
            return certificate, trustme.CA.from_pem(certificate.read_bytes(), key.read_bytes())
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = trustme.CA(
            organization_name="Utterwire router", organization_unit_name="local, for tests only"
        )
        descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(made.private_key_pem.bytes())
        # The certificate last: who finds it finds the key as well.
        made.cert_pem.write_to_path(str(certificate))
    except OSError as error:
        raise CertificatesUnusable(f"{error.filename or folder}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise CertificatesUnusable(
            f"{certificate} and {key.name} are no certificate and its key: remove them"
        ) from error
    return certificate, made


def tls_server_context(authority: trustme.CA, host: str) -> ssl.SSLContext:
    """TLS settings with a fresh certificate for this machine and `host`; HTTP/2 by ALPN."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    names = [*_NAMES, *([] if host in _NAMES or _is_any(host) else [host])]
    authority.issue_cert(*names).configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host
