"""How many instances there are to be: what the template of scaling is given."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from utterwire_server.deploy.deployment import Deployment
from utterwire_server.deploy.failure import DeployFailed

__all__ = ["CALM", "FORMAT", "Scaling", "quiet", "read_scaling"]

#: Of the file that `plan --json` writes.
FORMAT: Final = 1
#: Taking an instance away must leave this share of the target at most to each that stays.
CALM: Final = 0.8


@dataclass(frozen=True, slots=True)
class Scaling:
    """Scaling of one endpoint; counts are of instances, or of sessions and requests at once.

    :param target_requests: that each instance is to have.
    :param scale_in_requests: below which an instance is taken away.
    :param scale_out_cooldown_s: after adding, before more are added; likewise for taking away.
    :param scale_in_minutes: in a row that must have been quiet.
    :raises DeployFailed: if a value cannot be.
    """

    min_instances: int
    max_instances: int
    target_requests: int
    scale_in_requests: int
    scale_out_cooldown_s: int = 300
    scale_in_cooldown_s: int = 600
    scale_in_minutes: int = 10

    def __post_init__(self) -> None:
        least = {"scale_in_requests": 0, "scale_out_cooldown_s": 0, "scale_in_cooldown_s": 0}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise _wrong(f"{field.name} is {value!r}; it must be a whole number")
            if value < least.get(field.name, 1):
                raise _wrong(
                    f"{field.name} is {value}; it must be {least.get(field.name, 1)} or more"
                )
        if self.max_instances < self.min_instances:
            raise _wrong(
                f"at most {self.max_instances} instances are fewer than"
                f" {self.min_instances} at least"
            )
        if self.scale_in_requests > self.target_requests:
            raise _wrong(
                f"instances would be taken away below {self.scale_in_requests} at once each, and"
                f" added above {self.target_requests}"
            )
        if self.scale_in_minutes > 1_440:
            raise _wrong(f"scale_in_minutes is {self.scale_in_minutes}; a day, 1440, is the most")

    def parameters(self, deployment: Deployment) -> dict[str, str]:
        """Parameters of the template of scaling."""
        return {
            "EndpointName": deployment.name,
            "MinInstances": str(self.min_instances),
            "MaxInstances": str(self.max_instances),
            "TargetRequests": str(self.target_requests),
            "ScaleInRequests": str(self.scale_in_requests),
            "ScaleOutCooldown": str(self.scale_out_cooldown_s),
            "ScaleInCooldown": str(self.scale_in_cooldown_s),
            "ScaleInMinutes": str(self.scale_in_minutes),
        }

    def as_json(self, how: list[str]) -> str:
        """The file that `read_scaling` reads, with the reasons."""
        data: Mapping[str, Any] = {"format": FORMAT, "scaling": asdict(self), "how": how}
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def quiet(target: int, least: int) -> int:
    """Sessions and requests at once, each, below which an instance is taken away.

    :param target: that each instance is to have.
    :param least: instances that there always are: those that stay, where one more was there.
    """
    return max(1, math.floor(CALM * target * least / (least + 1)))


def read_scaling(path: Path) -> Scaling:
    """What `plan --json` wrote.

    :raises DeployFailed: if it is not such a file.
    """
    try:
        data = json.loads(path.read_bytes())
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']!r}, and this version reads {FORMAT}")
        return Scaling(**data["scaling"])
    except OSError as error:
        problem = error.strerror or str(error)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error}"
    raise DeployFailed(
        f"{path} is no plan: {problem}",
        f"utterwire-deploy plan --from bench.json --json {path}",
        status=2,
    )


def _wrong(problem: str) -> DeployFailed:
    return DeployFailed(problem, "correct the flags, or the plan's file", status=2)
