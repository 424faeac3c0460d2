"""The reference server of Utterwire: text-to-speech by WebSocket and HTTP.

Run it with ``utterwire-server``. Engines, the interface included, are in
`utterwire_server.engines`.
"""

__all__: list[str] = []
