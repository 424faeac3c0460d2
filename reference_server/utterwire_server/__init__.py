"""The reference server of Utterwire: text-to-speech by WebSocket and HTTP.

Run it with ``utterwire-server``, or put `create_app` under a server of your own. Engines, the
interface included, are in `utterwire_server.engines`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from utterwire_server.app import create_app
    from utterwire_server.runner import Runner, listen, serve
    from utterwire_server.service import Service
    from utterwire_server.settings import Settings

__all__ = ["Runner", "Service", "Settings", "create_app", "listen", "serve"]

_HOMES = {
    "Runner": "runner",
    "Service": "service",
    "Settings": "settings",
    "create_app": "app",
    "listen": "runner",
    "serve": "runner",
}


def __getattr__(name: str) -> Any:
    # Only when asked for: the command says in one line what is not installed.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
