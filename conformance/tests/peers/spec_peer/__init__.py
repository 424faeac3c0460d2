"""An endpoint of version 1 that shares no code with anything else here.

It was written from `spec/` alone, by somebody who had seen neither the suite nor the reference
server, so that it shows where they read the specification in a way that others do not. It keeps
other limits than the reference, cuts its audio into odd little chunks, and bounds what waits unsent
by a queue of its own.

Run it with this folder's parent on the path: `python -m spec_peer --port 8080`.
"""

__all__: list[str] = []
