"""Kokoro-82M on ONNX Runtime, without torch."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from utterwire_server.engines.engine import EngineError, Samples
from utterwire_server.engines.kokoro.acoustics import (
    CONTEXT_FRAMES,
    FRAME_SAMPLES,
    Interrupted,
    Prepared,
)
from utterwire_server.engines.kokoro.engine import DEFAULT_STREAMING, KokoroEngine, TextFrontEnd
from utterwire_server.engines.kokoro.speech import Streaming
from utterwire_server.engines.kokoro.statistics import Statistics

if TYPE_CHECKING:
    import onnxruntime

    from utterwire_server.model.folder import ModelFolder

__all__ = ["KokoroOnnxEngine", "OnnxAcoustics", "sensible_threads"]

_FRONT: Final = "kokoro-front.onnx"
_GENERATOR: Final = "kokoro-generator.onnx"
_MOST_THREADS: Final = 4
# Of glibc's malloc.h.
_M_MMAP_THRESHOLD: Final = -3
_MMAP_BYTES: Final = 1 << 20

# Columns of what the front gives, for each frame.
_X_COLUMNS: Final = 2
_HAR_STEPS: Final = 120


def sensible_threads(workers: int) -> int:
    """How many threads each of ``workers`` computes with best: no more than there are cores.

    More than the cores make it slower, and beyond 4 little is won.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(_MOST_THREADS, cores // workers))


class KokoroOnnxEngine(KokoroEngine):
    """`kokoro-onnx`: the engine with `OnnxAcoustics`.

    :param folder: where the model lies.
    :param threads: how many threads compute a block; None for `sensible_threads`.
    :param streaming: "window" or "sentence"; see `KokoroEngine`.
    :param workers: how many blocks are made at once, each with a copy of the model.
    :raises ValueError: if it cannot be made; in one line.
    """

    def __init__(
        self,
        folder: ModelFolder,
        *,
        front_end: TextFrontEnd | None = None,
        streaming: Streaming = DEFAULT_STREAMING,
        threads: int | None = None,
        workers: int = 1,
    ) -> None:
        if importlib.util.find_spec("onnxruntime") is None:
            raise ValueError("onnxruntime is not installed; pip install 'utterwire[kokoro]'")
        if threads is not None and threads < 1:
            raise ValueError(f"{threads} threads; there must be 1 or more")
        _give_back_large_blocks()
        make = partial(OnnxAcoustics, folder.file(_FRONT), folder.file(_GENERATOR))
        super().__init__(
            folder,
            name="kokoro-onnx",
            weights=_GENERATOR,
            make_acoustics=partial(make, threads=threads or sensible_threads(max(1, workers))),
            # One thread computes in the thread that calls, whose priority then counts.
            make_spare_acoustics=partial(make, threads=1),
            front_end=front_end,
            streaming=streaming,
            workers=workers,
        )


class OnnxAcoustics:
    """`Acoustics` of the two graphs that `graph.cut` makes.

    :param front: path of `kokoro-front.onnx`.
    :param generator: path of `kokoro-generator.onnx`.
    :param threads: how many threads compute a call.
    :raises ModuleNotFoundError: if onnxruntime is not installed.
    :raises EngineError: if the files cannot be loaded.
    """

    def __init__(self, front: Path, generator: Path, *, threads: int = 2) -> None:
        self._front = _session(front, threads)
        self._generator = _session(generator, threads)
        shape = next(each.shape for each in self._generator.get_inputs() if each.name == "means")
        self._neutral = Statistics(np.zeros(shape, np.float32), np.ones(shape, np.float32), 1)
        self._running: onnxruntime.RunOptions | None = None

    def prepare(
        self, tokens: Sequence[int], style: npt.NDArray[np.float32], speed: float
    ) -> Prepared:
        row = style[np.newaxis]
        values: dict[str, npt.NDArray[Any]] = {
            "tokens": np.array([tokens], np.int64),
            "style": row,
            "speed": np.array([speed], np.float32),
        }
        x, har, durations = self._run(self._front, ["x", "har", "durations"], values)
        return Prepared(durations.reshape(-1), (x, har, row))

    def render(
        self, prepared: Prepared, start: int, stop: int, statistics: Statistics | None
    ) -> Samples:
        if statistics is None:
            (audio,) = self._generate(prepared, start, stop, None, ["audio"])
            return audio
        begin = max(0, start - CONTEXT_FRAMES)
        end = min(prepared.frames, stop + CONTEXT_FRAMES)
        (audio,) = self._generate(prepared, begin, end, statistics, ["audio"])
        return audio[(start - begin) * FRAME_SAMPLES : (stop - begin) * FRAME_SAMPLES]

    def measure(self, prepared: Prepared) -> Statistics:
        names = ["measured_means", "measured_variances"]
        means, variances = self._generate(prepared, 0, prepared.frames, None, names)
        return Statistics(means, variances, prepared.frames)

    def interrupt(self) -> None:
        running = self._running
        if running is not None:
            running.terminate = True

    def _generate(
        self,
        prepared: Prepared,
        begin: int,
        end: int,
        statistics: Statistics | None,
        names: list[str],
    ) -> list[npt.NDArray[np.float32]]:
        x, har, style = prepared.handle
        held = statistics or self._neutral
        values: dict[str, npt.NDArray[Any]] = {
            "x": np.ascontiguousarray(x[:, :, _X_COLUMNS * begin : _X_COLUMNS * end]),
            "har": np.ascontiguousarray(har[:, :, _HAR_STEPS * begin : _HAR_STEPS * end + 1]),
            "style": style,
            "fixed": np.array(statistics is not None),
            "means": held.means,
            "variances": held.variances,
        }
        made = self._run(self._generator, names, values)
        return [each.reshape(-1) for each in made]

    def _run(
        self,
        session: onnxruntime.InferenceSession,
        names: list[str],
        values: Mapping[str, npt.NDArray[Any]],
    ) -> list[npt.NDArray[Any]]:
        import onnxruntime

        options = onnxruntime.RunOptions()
        # Else what the longest sentence so far took, hundreds of MiB, is kept for good.
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._running = options
        try:
            made: list[npt.NDArray[Any]] = session.run(names, values, options)
        except Exception:
            if options.terminate:
                raise Interrupted from None
            raise
        finally:
            self._running = None
        return made


def _give_back_large_blocks() -> None:
    """Have malloc return blocks from 1 MiB upward to the system when they are freed.

    glibc raises that limit by itself up to 32 MiB, and then keeps what lies between blocks that are
    in use, in a heap for each thread: hundreds of MiB after some minutes (mallopt(3)).
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)


def _session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # One plan of memory is kept for each shape of inputs, and hardly two sentences have the same.
    options.enable_mem_pattern = False
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise EngineError(f"{path} cannot be loaded: {error}") from error
