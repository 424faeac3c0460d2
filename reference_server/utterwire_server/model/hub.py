"""Fetching Kokoro-82M from the hub, and its ONNX graph from where that was released."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from utterwire_server.model.download import Downloader, Fetched
from utterwire_server.model.folder import ModelError
from utterwire_server.model.parts import Part
from utterwire_server.model.source import Expected, Source

__all__ = ["ENDPOINT", "ENDPOINT_VARIABLE", "fetch_hub"]

ENDPOINT: Final = "https://huggingface.co"
#: The hub's own tools read another address of it, such as a mirror's, from here.
ENDPOINT_VARIABLE: Final = "HF_ENDPOINT"

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


def _wanted(source: Source, engines: Collection[str]) -> Iterable[str]:
    for name in source.hub_files:
        if name != "kokoro-v1_0.pth" or "kokoro-torch" in engines:
            yield name


def _placed(name: str) -> str:
    return "kokoro.pth" if name == "kokoro-v1_0.pth" else name


def fetch_hub(
    downloader: Downloader,
    folder: Path,
    source: Source,
    engines: Collection[str],
    *,
    revision: str,
    endpoint: str = ENDPOINT,
) -> tuple[str, list[Part]]:
    """The commit that was fetched, and its files.

    At the revision of `source` each file has to have the digest that is known of it. At another
    one, the digests are those that the hub tells, else they are only recorded. A branch is fetched
    at the commit that it is at first, whatever happens to it meanwhile.

    :param folder: where `downloader` puts files.
    :raises ModelError: if a file is not to be had, or not what it should be.
    """
    pinned = revision == source.revision
    commit = revision if _COMMIT.fullmatch(revision) else None
    parts = []
    for name in _wanted(source, engines):
        at = commit or revision
        fetched = downloader.fetch(
            f"{endpoint.rstrip('/')}/{source.repository}/resolve/{at}/{name}",
            f"hub/{at}/{name}",
            source.hub_files[name] if pinned else Expected(),
        )
        if fetched.commit is not None and commit is not None and fetched.commit != commit:
            raise ModelError(
                f"the hub sent {name} of {fetched.commit} instead of {commit}; "
                "run the command again, or name a commit with --revision"
            )
        parts.append(
            Part(
                _placed(name),
                folder / "hub" / at / name,
                f"{source.repository}@{fetched.commit or at}/{name}",
                fetched.confirmed,
            )
        )
        commit = commit or fetched.commit
    if "kokoro-onnx" in engines:
        parts.append(_graph(downloader, folder, source))
    return commit or revision, parts


def _graph(downloader: Downloader, folder: Path, source: Source) -> Part:
    name = "release/kokoro.onnx"
    fetched: Fetched = downloader.fetch(source.release_url, name, source.graph)
    return Part("kokoro.onnx", folder / name, source.release_url, fetched.confirmed)
