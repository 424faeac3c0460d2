"""The conformance suite of Utterwire: it judges endpoints by the specification alone.

It shares data with the implementations (schemas, vectors), never code. See `conformance/README.md`.
This module imports nothing, so that the command can say in one line what is not installed.
"""

__all__: list[str] = []
