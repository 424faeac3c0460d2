"""TLS for the router: an authority of its own, made once and kept, and a certificate by it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import trustme

__all__ = ["CertificatesUnusable", "default_folder", "tls_files", "tls_server_context"]

_CA: Final = "ca.pem"
# The key, and the certificate as well: what is in one file cannot come to differ.
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
        if not key.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            made = trustme.CA(
                organization_name="Utterwire router", organization_unit_name="local, for tests only"
            )
            octets = made.private_key_pem.bytes() + made.cert_pem.bytes()
            # Of several routers that start together the first one's counts.
            with _written(folder, octets) as file, contextlib.suppress(FileExistsError):
                key.hardlink_to(file)
        octets = key.read_bytes()
        authority = trustme.CA.from_pem(octets, octets)
        pem = authority.cert_pem.bytes()
        if not certificate.exists() or certificate.read_bytes() != pem:
            with _written(folder, pem) as file:
                file.chmod(0o644)
                file.replace(certificate)
    except OSError as error:
        raise CertificatesUnusable(f"{error.filename or folder}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise CertificatesUnusable(
            f"{key} is no key with its certificate: remove it, and {certificate.name}"
        ) from error
    return certificate, authority


@contextlib.contextmanager
def _written(folder: Path, octets: bytes) -> Iterator[Path]:
    """A whole file, for its owner alone, to be linked or moved to its place."""
    descriptor, name = tempfile.mkstemp(dir=folder)
    file = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as writing:
            writing.write(octets)
        yield file
    finally:
        file.unlink(missing_ok=True)


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
