"""`python -m spec_peer`."""

from .server import main

__all__: list[str] = []

main()
