"""How Hypothesis tries examples, in every folder of tests."""

from __future__ import annotations

import contextlib

# The environments of the plugins are without it, and so is who only runs the suite.
with contextlib.suppress(ModuleNotFoundError):
    from hypothesis import HealthCheck, settings

    # How long an example takes, or takes to be made, says more of the machine than of the code.
    settings.register_profile(
        "utterwire", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("utterwire")
