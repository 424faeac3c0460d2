"""A local stand-in for the SageMaker runtime (`sagemaker.md`): `utterwire-router`.

Needs Python 3.12 and the extra `aws`. `server.Router` is the router, `cli.main` the command.
"""

from __future__ import annotations

__all__: list[str] = []
