"""What the generator's instance norms subtract and divide by, held fixed for a voice."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["Statistics", "StatisticsStore", "cache_folder", "pooled"]


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Mean and variance of every channel at every instance norm of the generator.

    ``means`` and ``variances`` are float32 of shape ``(channels,)``: the channels of all norms one
    after the other, in the order in which the norms run. ``frames`` is how many frames they were
    taken over.

    :raises ValueError: if they do not fit together.
    """

    means: npt.NDArray[np.float32]
    variances: npt.NDArray[np.float32]
    frames: int

    def __post_init__(self) -> None:
        if self.means.ndim != 1 or self.means.shape != self.variances.shape or self.frames < 1:
            raise ValueError("means and variances are one value for each channel, of some frames")

    @property
    def channels(self) -> int:
        """How many channels all norms have together."""
        return self.means.size


def pooled(parts: Iterable[Statistics]) -> Statistics:
    """The statistics of several segments taken as one.

    :raises ValueError: if there are none, or they are of different models.
    """
    every = list(parts)
    if len({part.channels for part in every}) != 1:
        raise ValueError("statistics are pooled of one segment at least, and of one model")
    frames = sum(part.frames for part in every)
    mean = np.zeros(every[0].channels)
    square = np.zeros(every[0].channels)
    for part in every:
        mean += part.frames / frames * part.means
        square += part.frames / frames * (part.variances + np.square(part.means, dtype=np.float64))
    variance = np.maximum(square - np.square(mean), 0.0)
    return Statistics(mean.astype(np.float32), variance.astype(np.float32), frames)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where what can be made again is kept: ``UTTERWIRE_CACHE_DIR``, else by the XDG rules.

    For who has no home, as in a container under any number for a user, it is among the temporary
    files.
    """
    if named := environment.get("UTTERWIRE_CACHE_DIR"):
        return Path(named).expanduser()
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser() / "utterwire"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"utterwire-{os.getuid()}"


class StatisticsStore:
    """Statistics of voices in files, ``NAME.npz``.

    What is stored belongs to a fingerprint, of the weights and the voice: under another one it is
    as if it were not there.

    :param folders: where they may lie, the preferred one first. They need not exist.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)

    def load(self, voice: str, fingerprint: str) -> Statistics | None:
        """The statistics of ``voice``; None if there are none that fit, or none can be read."""
        for folder in self._folders:
            try:
                with (
                    (folder / f"{voice}.npz").open("rb") as file,
                    np.load(file, allow_pickle=False) as stored,
                ):
                    if str(stored["fingerprint"]) == fingerprint:
                        return Statistics(
                            stored["means"].astype(np.float32),
                            stored["variances"].astype(np.float32),
                            int(stored["frames"]),
                        )
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
                continue
        return None

    def save(self, voice: str, fingerprint: str, statistics: Statistics) -> Path | None:
        """Store them in the first folder that can be written, whole or not at all.

        Returns the file; None if no folder can be written.
        """
        for folder in self._folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                handle, name = tempfile.mkstemp(prefix=f".{voice}.", suffix=".npz", dir=folder)
            except OSError:
                continue
            try:
                with os.fdopen(handle, "wb") as file:
                    np.savez(
                        file,
                        fingerprint=np.array(fingerprint),
                        means=statistics.means,
                        variances=statistics.variances,
                        frames=np.array(statistics.frames),
                    )
                os.chmod(name, 0o644)
                target = folder / f"{voice}.npz"
                os.replace(name, target)
            except OSError:
                with suppress(OSError):
                    os.unlink(name)
                continue
            return target
        return None
