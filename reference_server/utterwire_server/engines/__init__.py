"""Engines: the interface, the ones that need no model, and how one is found by name."""

from __future__ import annotations

import importlib

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

__all__ = [
    "ENGINE_NAMES",
    "Block",
    "BraceEngine",
    "Engine",
    "EngineError",
    "FaultyEngine",
    "LoudEngine",
    "Samples",
    "SpeechRequest",
    "ToneEngine",
    "WordMark",
    "load_engine",
]

ENGINE_NAMES: tuple[str, ...] = ("tone", "brace", "loud", "faulty", "hanging")


def load_engine(name: str, *, real_time_factor: float = 0.0, blocks: int = 0) -> Engine:
    """Make the engine called ``name``: one of `ENGINE_NAMES`, or ``package.module:factory``.

    ``real_time_factor`` is seconds of waiting for a second of audio, for the built-in engines.
    ``blocks`` is how many blocks ``faulty`` and ``hanging`` make before they give up. A factory is
    called without arguments and returns an `Engine`.

    :raises ValueError: if there is no such engine; the message is one line for the operator.
    """
    match name:
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
    if not colon:
        known = ", ".join(ENGINE_NAMES)
        raise ValueError(f"no engine {name!r}; choose {known}, or package.module:factory")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"engine {name!r} cannot be imported: {error}") from error
    try:
        engine = factory()
    except Exception as error:
        raise ValueError(f"engine {name!r} cannot be made: {error}") from error
    if not isinstance(engine, Engine):
        raise ValueError(f"engine {name!r} made a {type(engine).__name__}, not an Engine")
    return engine
