"""Engines: the interface, the ones that need no model, and how one is found by name."""

from __future__ import annotations

import importlib
import importlib.util
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from utterwire_server.engines.engine import (
    Block,
    Engine,
    EngineError,
    Samples,
    SpeechRequest,
    WordMark,
)
from utterwire_server.engines.tone import ToneEngine
from utterwire_server.engines.trial import BraceEngine, FaultyEngine, LoudEngine

if TYPE_CHECKING:
    from utterwire_server.model import ModelFolder

__all__ = [
    "ENGINE_NAMES",
    "Block",
    "BraceEngine",
    "Engine",
    "EngineError",
    "FaultyEngine",
    "LoudEngine",
    "ModelOptions",
    "Samples",
    "SpeechRequest",
    "ToneEngine",
    "WordMark",
    "load_engine",
]

ENGINE_NAMES: tuple[str, ...] = (
    "kokoro-onnx",
    "kokoro-torch",
    "tone",
    "brace",
    "loud",
    "faulty",
    "hanging",
)

# Beyond these no machine has a use for them; each worker is a copy of the model.
_MOST_THREADS = 1_024
_MOST_WORKERS = 256


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How an engine with a model is made. None is the engine's own choice.

    ``directory`` is looked for as `find_model_folder` tells. ``streaming`` is "window" or
    "sentence". ``workers`` make a block each at once, every one with ``threads`` threads.
    ``device`` is where PyTorch computes, and ``block_timeout_s`` how long a process of its own may
    take for a block before it is killed.

    :raises ValueError: if a value cannot be, whichever engine it is for.
    """

    directory: str | None = None
    streaming: str | None = None
    threads: int | None = None
    workers: int = 1
    device: str = "auto"
    block_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        from utterwire_server.engines.kokoro.engine import streaming_of
        from utterwire_server.engines.kokoro.torch import check_device

        if self.streaming is not None:
            streaming_of(self.streaming)
        for name, most in (("threads", _MOST_THREADS), ("workers", _MOST_WORKERS)):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                raise ValueError(f"{name} is {value}; it must be 1 to {most}")
        check_device(self.device)


def load_engine(
    name: str | None = None,
    *,
    real_time_factor: float = 0.0,
    blocks: int = 0,
    model: ModelOptions | None = None,
) -> Engine:
    """Make the engine called ``name``: one of `ENGINE_NAMES`, or ``package.module:factory``.

    Without a name it is `kokoro-onnx` if a model folder is named, or a container has one that it
    can serve; else `tone`. ``real_time_factor`` is seconds of waiting for a second of audio, for
    the built-in engines without a model. ``blocks`` is how many blocks ``faulty`` and ``hanging``
    make before they give up. A factory is called without arguments and returns an `Engine`.

    :raises ValueError: if there is no such engine, or it cannot be made; the message is one line
        for the operator.
    """
    model = model or ModelOptions()
    if name is None:
        name = "kokoro-onnx" if _has_model(model) else "tone"
    match name:
        case "kokoro-onnx":
            return _kokoro_onnx(model)
        case "kokoro-torch":
            return _kokoro_torch(model)
        case "tone":
            return ToneEngine(real_time_factor)
        case "brace":
            return BraceEngine(real_time_factor)
        case "loud":
            return LoudEngine(real_time_factor)
        case "faulty":
            return FaultyEngine(blocks, real_time_factor=real_time_factor)
        case "hanging":
            return FaultyEngine(blocks, hang=True, real_time_factor=real_time_factor)
    module, colon, attribute = name.partition(":")
    if not colon or module.startswith("."):
        known = ", ".join(ENGINE_NAMES)
        raise ValueError(f"no engine {name!r}; choose {known}, or package.module:factory")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise ValueError(f"engine {name!r} cannot be imported: {_words(error)}") from error
    try:
        engine = factory()
    except Exception as error:
        raise ValueError(f"engine {name!r} cannot be made: {_words(error)}") from error
    if not isinstance(engine, Engine):
        raise ValueError(f"engine {name!r} made a {type(engine).__name__}, not an Engine")
    return engine


def _words(error: Exception) -> str:
    """What went wrong in somebody's module, in one line."""
    words = " ".join(str(error).split())
    return (
        words if isinstance(error, ImportError | ValueError) else f"{type(error).__name__}: {words}"
    )


def _has_model(options: ModelOptions) -> bool:
    """Whether there is a model that speaks without being asked for by the engine's name.

    A folder that is named is meant to be used: if it cannot be, that is told, not passed over.
    """
    from utterwire_server.model.folder import MODEL_DIR_VARIABLE, find_model_folder

    if options.directory or os.environ.get(MODEL_DIR_VARIABLE):
        return True
    folder = find_model_folder(None, os.environ)
    return (
        folder is not None
        and "kokoro-onnx" in folder.engines
        and importlib.util.find_spec("onnxruntime") is not None
    )


def _kokoro_onnx(options: ModelOptions) -> Engine:
    from utterwire_server.engines.kokoro.engine import DEFAULT_STREAMING, streaming_of
    from utterwire_server.engines.kokoro.onnx import KokoroOnnxEngine

    return KokoroOnnxEngine(
        _model_folder(options, "kokoro-onnx"),
        streaming=streaming_of(options.streaming or DEFAULT_STREAMING),
        threads=options.threads,
        workers=options.workers,
    )


def _kokoro_torch(options: ModelOptions) -> Engine:
    from utterwire_server.engines.kokoro.engine import DEFAULT_STREAMING, streaming_of
    from utterwire_server.engines.kokoro.torch import worker_engine

    return worker_engine(
        _model_folder(options, "kokoro-torch"),
        streaming=streaming_of(options.streaming or DEFAULT_STREAMING),
        device=options.device,
        threads=options.threads,
        workers=options.workers,
        block_timeout_s=options.block_timeout_s,
    )


def _model_folder(options: ModelOptions, engine: str) -> ModelFolder:
    """The folder that ``engine`` is to serve.

    :raises ValueError: if there is none, or files are missing in it.
    """
    from utterwire_server.model.folder import MODEL_DIR_VARIABLE, find_model_folder

    folder = find_model_folder(options.directory, os.environ)
    if folder is None:
        raise ValueError(
            f"{engine} needs a model: name its folder by --model-dir or {MODEL_DIR_VARIABLE};"
            " utterwire-server model fetch makes one"
        )
    if missing := folder.missing(engine):
        raise ValueError(f"{engine} cannot be served from {folder.path}: no {', '.join(missing)}")
    return folder
