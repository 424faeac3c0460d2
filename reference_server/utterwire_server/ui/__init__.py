"""The page at `/`: speak in a browser, and measure what is heard there.

Its files are in `static/`: HTML, CSS and ES modules as they are, without a build step. Beside them
it serves those of `utterwire_player`, which pages of one's own can use, too.
"""

from __future__ import annotations

from utterwire_server.ui.page import PAGE_PATHS, page_routes
from utterwire_server.ui.relay import Relay, relay_address

__all__ = ["PAGE_PATHS", "Relay", "page_routes", "relay_address"]
