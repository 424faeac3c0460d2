"""Kokoro-82M in PyTorch, by the modules of the `kokoro` package; on CUDA where there is any."""

from __future__ import annotations

import importlib.util
import re
import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from utterwire_server.engines.engine import EngineError, Samples
from utterwire_server.engines.kokoro.acoustics import (
    CONTEXT_FRAMES,
    FRAME_SAMPLES,
    STYLE_SIZE,
    Interrupted,
    Prepared,
)
from utterwire_server.engines.kokoro.engine import DEFAULT_STREAMING, KokoroEngine, TextFrontEnd
from utterwire_server.engines.kokoro.onnx import sensible_threads
from utterwire_server.engines.kokoro.speech import Streaming
from utterwire_server.engines.kokoro.statistics import Statistics
from utterwire_server.engines.worker import WorkerEngine
from utterwire_server.logs import log_event
from utterwire_server.model.folder import ModelFolder

__all__ = [
    "DEVICES",
    "KokoroTorchEngine",
    "TorchAcoustics",
    "check_device",
    "device_of",
    "make_engine",
    "worker_engine",
]

#: Where the model may run; ``auto`` is CUDA where there is any.
DEVICES: Final = ("auto", "cpu", "cuda")
_DEVICE: Final = re.compile(r"auto|cpu|cuda(:[0-9]{1,4})?")
#: The noise in the source is the same each time, so that the same text sounds the same.
SEED: Final = 0
_SEEDED: Final = threading.Lock()

_ACOUSTIC_STYLE: Final = STYLE_SIZE // 2
#: The generator takes two steps of the trunk's and 120 of the source's spectrum a frame.
_TRUNK_STEPS: Final = 2
_SOURCE_STEPS: Final = 120
_FIRST_SLOPE: Final = 0.1


def check_device(name: str) -> None:
    """Look at the name of a device, without PyTorch.

    :raises ValueError: if it can be none on any machine.
    """
    if not _DEVICE.fullmatch(name):
        raise ValueError(f"no device {name!r}; there are {', '.join(DEVICES)}, cuda:0")


def device_of(name: str) -> str:
    """The device that ``name`` means here: one of `DEVICES`, or such as ``cuda:1``.

    :raises EngineError: if there is no such device, or no PyTorch.
    """
    torch = _torch()
    try:
        check_device(name)
    except ValueError as error:
        raise EngineError(str(error)) from None
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise EngineError(f"PyTorch sees no device {name}; --device cpu does without")
    return name


class KokoroTorchEngine(KokoroEngine):
    """Kokoro in PyTorch. `worker_engine` puts it into a process of its own, where it belongs.

    :param folder: where the model lies.
    :param front_end: as for `KokoroEngine`.
    :param device: as for `device_of`.
    :param threads: how many threads compute a block; None for `sensible_threads`.
    :param workers: how many blocks are made at once, each by a copy of the model.
    :raises ValueError: as `KokoroEngine`.
    """

    def __init__(
        self,
        folder: ModelFolder,
        *,
        front_end: TextFrontEnd | None = None,
        streaming: Streaming = DEFAULT_STREAMING,
        device: str = "auto",
        threads: int | None = None,
        workers: int = 1,
    ) -> None:
        # A copy that only measured voices goes when nobody needs it any more.
        self._made: list[weakref.ref[TorchAcoustics]] = []

        def make() -> TorchAcoustics:
            acoustics = TorchAcoustics(
                folder.file("config.json"),
                folder.file("kokoro.pth"),
                device=device_of(device),
                threads=sensible_threads(workers) if threads is None else threads,
            )
            self._made = [made for made in self._made if made() is not None]
            self._made.append(weakref.ref(acoustics))
            log_event("kokoro_torch_loaded", device=acoustics.device)
            return acoustics

        super().__init__(
            folder,
            name="kokoro-torch",
            weights="kokoro.pth",
            make_acoustics=make,
            front_end=front_end,
            streaming=streaming,
            workers=workers,
        )

    @property
    def healthy(self) -> bool:
        return not any((it := made()) is not None and it.broken for made in self._made)


def make_engine(
    directory: str, streaming: Streaming, device: str, threads: int | None, workers: int
) -> KokoroTorchEngine:
    """The engine, from what can be told another process."""
    return KokoroTorchEngine(
        ModelFolder(Path(directory)),
        streaming=streaming,
        device=device,
        threads=threads,
        workers=workers,
    )


def worker_engine(
    folder: ModelFolder,
    *,
    streaming: Streaming = DEFAULT_STREAMING,
    device: str = "auto",
    threads: int | None = None,
    workers: int = 1,
    block_timeout_s: float = 60.0,
) -> WorkerEngine:
    """`KokoroTorchEngine` in a process of its own; the parameters are its and `WorkerEngine`'s.

    Here PyTorch is not imported, only looked for.

    :raises ValueError: as `KokoroEngine`, or if something is not installed; in one line.
    """
    for name in ("torch", "kokoro"):
        if importlib.util.find_spec(name) is None:
            raise ValueError(_missing(name))
    return WorkerEngine(
        f"{__name__}:make_engine",
        {
            "directory": str(folder.path.absolute()),
            "streaming": streaming,
            "device": device,
            "threads": threads,
            "workers": workers,
        },
        like=KokoroTorchEngine(folder, streaming=streaming, workers=workers),
        block_timeout_s=block_timeout_s,
    )


class TorchAcoustics:
    """`Acoustics` in PyTorch.

    The generator's norms are replaced, in this one model, by some whose statistics can be given.
    `interrupt` takes hold between two layers of the generator.

    :param config: Kokoro's own ``config.json``.
    :param weights: its ``kokoro.pth``.
    :param device: as `device_of` gives it.
    :param threads: how many of the processor's threads one call uses; 0 leaves it to PyTorch. It
        holds for the whole process.
    :raises EngineError: if the package `kokoro` or PyTorch is missing, or the files do not fit.
    """

    def __init__(
        self, config: Path, weights: Path, *, device: str = "cpu", threads: int = 0
    ) -> None:
        torch = self._torch = _torch()
        if threads:
            torch.set_num_threads(threads)
        self._device = torch.device(device)
        self._model = _load(config, weights).to(self._device)
        self._decoder = self._model.decoder
        self._generator = self._decoder.generator
        #: In the order in which they run.
        self._norms = _take_over(self._generator)
        #: Whether the device failed in a way that only another process mends.
        self.broken = False
        self._lock = threading.Lock()
        self._busy = False
        self._interrupted = False

    @property
    def device(self) -> str:
        """Where the model is, such as ``cuda:0``."""
        return str(self._device)

    def prepare(
        self, tokens: Sequence[int], style: npt.NDArray[np.float32], speed: float
    ) -> Prepared:
        """As `Acoustics.prepare`."""
        torch, model = self._torch, self._model
        with self._computing():
            ids = torch.tensor([list(tokens)], device=self._device)
            styles = torch.from_numpy(np.array(style, np.float32)[None]).to(self._device)
            voice, manner = styles[:, :_ACOUSTIC_STYLE], styles[:, _ACOUSTIC_STYLE:]
            lengths = torch.tensor([len(tokens)])
            nothing = torch.zeros_like(ids, dtype=torch.bool)
            hidden = model.bert_encoder(model.bert(ids, attention_mask=(~nothing).int()))
            coded = model.predictor.text_encoder(hidden.transpose(-1, -2), manner, lengths, nothing)
            timed = model.predictor.duration_proj(model.predictor.lstm(coded)[0])
            seconds = torch.sigmoid(timed).sum(dim=-1) / speed
            durations = torch.round(seconds).clamp(min=1).long()[0]
            places = torch.repeat_interleave(
                torch.arange(len(tokens), device=self._device), durations
            )
            pitch, energy = model.predictor.F0Ntrain(coded.transpose(-1, -2)[:, :, places], manner)
            text = model.text_encoder(ids, lengths, nothing)[:, :, places]
            handle = _Handle(
                trunk=self._trunk(text, pitch, energy, voice),
                source=self._source(pitch),
                style=voice,
            )
            return Prepared(durations.cpu().numpy(), handle)

    def render(
        self, prepared: Prepared, start: int, stop: int, statistics: Statistics | None
    ) -> Samples:
        """As `Acoustics.render`."""
        handle: _Handle = prepared.handle
        first = max(0, start - CONTEXT_FRAMES)
        last = min(prepared.frames, stop + CONTEXT_FRAMES)
        with self._computing():
            self._set_norms(handle, statistics)
            sound = self._generate(
                handle.trunk[:, :, _TRUNK_STEPS * first : _TRUNK_STEPS * last],
                handle.source[:, :, _SOURCE_STEPS * first : _SOURCE_STEPS * last + 1],
                handle.style,
            )
            wanted = sound[(start - first) * FRAME_SAMPLES : (stop - first) * FRAME_SAMPLES]
            samples: Samples = wanted.float().cpu().numpy()
            return samples

    def measure(self, prepared: Prepared) -> Statistics:
        """As `Acoustics.measure`."""
        torch, handle = self._torch, prepared.handle
        with self._computing():
            self._set_norms(handle, None)
            for norm in self._norms:
                norm.keeps = True
            try:
                self._generate(handle.trunk, handle.source, handle.style)
                means = torch.cat([norm.mean.flatten() for norm in self._norms])
                variances = torch.cat([norm.variance.flatten() for norm in self._norms])
            finally:
                for norm in self._norms:
                    norm.keeps = False
                    norm.mean = norm.variance = None
            return Statistics(means.cpu().numpy(), variances.cpu().numpy(), prepared.frames)

    def interrupt(self) -> None:
        """As `Acoustics.interrupt`."""
        with self._lock:
            self._interrupted = self._busy

    @contextmanager
    def _computing(self) -> Iterator[None]:
        with self._lock:
            self._busy, self._interrupted = True, False
        try:
            with self._torch.inference_mode():
                yield
        except self._torch.AcceleratorError:
            self.broken = True
            raise
        finally:
            with self._lock:
                self._busy = False

    def _trunk(self, text: Any, pitch: Any, energy: Any, style: Any) -> Any:
        """The decoder up to the generator: shape (1, 512, 2 * frames)."""
        torch, decoder = self._torch, self._decoder
        curves = [decoder.F0_conv(pitch.unsqueeze(1)), decoder.N_conv(energy.unsqueeze(1))]
        x = decoder.encode(torch.cat([text, *curves], dim=1), style)
        again: list[Any] | None = [decoder.asr_res(text), *curves]
        for block in decoder.decode:
            if again is not None:
                x = torch.cat([x, *again], dim=1)
            x = block(x, style)
            if block.upsample_type != "none":
                again = None
        return x

    def _source(self, pitch: Any) -> Any:
        """Spectrum and phase of the harmonic source: shape (1, 22, 120 * frames + 1).

        Its phase is a running sum over the segment, so that it cannot be made by the window.
        """
        torch, generator = self._torch, self._generator
        on_cuda = [self._device] if self._device.type == "cuda" else []
        # The generator of random numbers is one for all threads of the process.
        with _SEEDED, torch.random.fork_rng(devices=on_cuda):
            torch.manual_seed(SEED)
            raised = generator.f0_upsamp(pitch[:, None]).transpose(1, 2)
            wave, _, _ = generator.m_source(raised)
        return torch.cat(generator.stft.transform(wave.transpose(1, 2).squeeze(1)), dim=1)

    def _generate(self, x: Any, source: Any, style: Any) -> Any:
        """From the trunk and the source of some frames to their samples."""
        torch, generator = self._torch, self._generator
        act = torch.nn.functional.leaky_relu
        each = generator.num_kernels
        for stage in range(generator.num_upsamples):
            beside = self._block(
                generator.noise_res[stage], generator.noise_convs[stage](source), style
            )
            x = generator.ups[stage](act(x, _FIRST_SLOPE))
            if stage == generator.num_upsamples - 1:
                x = generator.reflection_pad(x)
            x = x + beside
            blocks = generator.resblocks[each * stage : each * (stage + 1)]
            total = self._block(blocks[0], x, style)
            for block in blocks[1:]:
                total += self._block(block, x, style)
            x = total / each
        x = generator.conv_post(act(x))
        half = generator.post_n_fft // 2 + 1
        wave = generator.stft.inverse(torch.exp(x[:, :half]), torch.sin(x[:, half:]))
        return wave.flatten()

    def _block(self, block: Any, x: Any, style: Any) -> Any:
        if self._interrupted:
            raise Interrupted
        return block(x, style)

    def _set_norms(self, handle: _Handle, statistics: Statistics | None) -> None:
        if statistics is None:
            for norm in self._norms:
                norm.fixed = None
            return
        if handle.fixed_for is not statistics:
            handle.fixed = self._fixed(handle.style, statistics)
            handle.fixed_for = statistics
        for norm, fixed in zip(self._norms, handle.fixed, strict=True):
            norm.fixed = fixed

    def _fixed(self, style: Any, statistics: Statistics) -> list[Any]:
        """What each norm comes to with its statistics given: a factor and an offset a channel."""
        channels = [norm.channels for norm in self._norms]
        if statistics.channels != sum(channels):
            raise EngineError(
                f"the voice has statistics for {statistics.channels} channels; the model has"
                f" {sum(channels)}"
            )
        torch = self._torch
        means = torch.from_numpy(statistics.means).to(self._device).split(channels)
        variances = torch.from_numpy(statistics.variances).to(self._device).split(channels)
        return [
            norm.affine(style, mean[None, :, None], variance[None, :, None])
            for norm, mean, variance in zip(self._norms, means, variances, strict=True)
        ]


@dataclass(slots=True)
class _Handle:
    """What is kept of a segment between its windows."""

    trunk: Any
    source: Any
    style: Any
    fixed_for: Statistics | None = None
    fixed: Sequence[Any] = ()


def _missing(name: str | None) -> str:
    return f"{name} is not installed; pip install 'utterwire[torch]'"


def _torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise EngineError(_missing(error.name)) from error
    return torch


def _load(config: Path, weights: Path) -> Any:
    """The stock model, weight norms folded into the weights."""
    torch = _torch()
    try:
        from kokoro import KModel
    except ModuleNotFoundError as error:
        raise EngineError(_missing(error.name)) from error
    for path in (config, weights):
        if not path.is_file():
            raise EngineError(f"no file {path}; utterwire-server model fetch gets it")
    try:
        with warnings.catch_warnings():
            # On how these modules are built; a later version of them is another matter.
            warnings.simplefilter("ignore")
            # The name of a repository keeps it from looking for one.
            model = KModel(repo_id="local", config=str(config), model=str(weights)).eval()
            for module in model.modules():
                if hasattr(module, "weight_g"):
                    torch.nn.utils.remove_weight_norm(module)
    except Exception as error:
        words = str(error).partition("\n")[0]
        raise EngineError(f"{weights} is no Kokoro model: {words}") from error
    return model.requires_grad_(False)


def _take_over(generator: Any) -> list[Any]:
    """Put `_controlled` norms into ``generator``; gives them in the order in which they run."""
    norms: list[Any] = []
    each = generator.num_kernels
    for stage in range(generator.num_upsamples):
        blocks = generator.resblocks[each * stage : each * (stage + 1)]
        for block in (generator.noise_res[stage], *blocks):
            for place in range(len(block.adain1)):
                for group in (block.adain1, block.adain2):
                    group[place] = _controlled(group[place])
                    norms.append(group[place])
    return norms


def _controlled(stock: Any) -> Any:
    """An adaptive instance norm like ``stock``, with its statistics under control."""
    torch = _torch()
    base: Any = torch.nn.Module

    class ControlledNorm(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.fc = stock.fc
            self.weight = stock.norm.weight
            self.bias = stock.norm.bias
            self.eps = stock.norm.eps
            self.channels = stock.norm.num_features
            #: Factor and offset, where the statistics are given.
            self.fixed: Any = None
            #: Whether to keep what it measures.
            self.keeps = False
            self.mean: Any = None
            self.variance: Any = None

        def forward(self, x: Any, style: Any) -> Any:
            if self.fixed is not None:
                factor, offset = self.fixed
            else:
                variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
                if self.keeps:
                    self.mean, self.variance = mean, variance
                factor, offset = self.affine(style, mean, variance)
            return torch.addcmul(offset, x, factor)

        def affine(self, style: Any, mean: Any, variance: Any) -> Any:
            """Norm and style as one factor and one offset a channel: shape (1, channels, 1)."""
            gain, shift = self.fc(style).unsqueeze(-1).chunk(2, dim=1)
            scale = self.weight[:, None] * torch.rsqrt(variance + self.eps)
            factor = (1 + gain) * scale
            return factor, (1 + gain) * (self.bias[:, None] - mean * scale) + shift

    return ControlledNorm()
