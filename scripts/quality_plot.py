"""Pictures of the same sentence spoken in two ways, to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import log_mel
import numpy as np
from served_speech import RATE, Samples

__all__ = ["plot"]


def plot(
    path: Path, title: str, recordings: Mapping[str, Samples], seams: Sequence[float] = ()
) -> None:
    """Write a PNG: waveforms, log-mel spectra, and the difference of the first two recordings.

    ``seams`` are times in seconds of the second recording that are marked in it. The second is
    moved to where the first agrees with it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    (first_name, first), (second_name, second) = recordings.items()
    late = log_mel.lag(first, second)
    first, second = first[max(0, -late) :], second[max(0, late) :]
    size = min(len(first), len(second))
    first, second = first[:size], second[:size]
    marked = [seam - max(0, late) / RATE for seam in seams]
    seconds = np.arange(size) / RATE
    figure = Figure(figsize=(14, 12), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(5, 1, sharex=True)
    figure.suptitle(title)
    for axis, name, samples in ((axes[0], first_name, first), (axes[1], second_name, second)):
        axis.plot(seconds, samples, linewidth=0.4)
        axis.set_ylabel(name)
        axis.set_ylim(-0.8, 0.8)
    spectra = [log_mel.log_mel(samples).T for samples in (first, second)]
    extent = (0, size / RATE, 0, spectra[0].shape[0])
    for axis, name, spectrum in (
        (axes[2], first_name, spectra[0]),
        (axes[3], second_name, spectra[1]),
    ):
        axis.imshow(spectrum, origin="lower", aspect="auto", extent=extent, vmin=-50, vmax=30)
        axis.set_ylabel(f"{name}, mel band")
    picture = axes[4].imshow(
        np.abs(spectra[1] - spectra[0]),
        origin="lower",
        aspect="auto",
        extent=extent,
        vmin=0,
        vmax=15,
        cmap="magma",
    )
    axes[4].set_ylabel("difference")
    axes[4].set_xlabel("s")
    figure.colorbar(picture, ax=axes[4], label="dB")
    for axis in (axes[1], axes[3], axes[4]):
        for seam in marked:
            axis.axvline(seam, color="red", linewidth=0.6, linestyle=":")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
