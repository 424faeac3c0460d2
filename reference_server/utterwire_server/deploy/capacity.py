"""From what one machine was measured to carry to how many of them there must be."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

from utterwire_server.deploy.failure import DeployFailed
from utterwire_server.deploy.scaling import CALM, Scaling, quiet

__all__ = ["Goals", "plan", "read_bench"]

#: Target tracking acts on three figures in a row, ten seconds each (Application Auto Scaling).
NOTICE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Goals:
    """What scaling has to reach.

    :param peak: listeners at once, at most; None where only ``most`` bounds it.
    :param least: instances at least.
    :param most: instances at most; None for as many as the peak needs.
    :param first_byte_s: p95 of the first byte; None for the one that was measured with.
    :param growth: listeners who come within a minute, at worst; None where it is not known.
    :param spare: share of what a machine carries that is kept free, for what comes while another
        one starts.
    :param start_s: until a new instance runs its container: not measured, it is AWS's affair.
    """

    peak: int | None = None
    least: int = 1
    most: int | None = None
    first_byte_s: float | None = None
    growth: float | None = None
    spare: float = 0.25
    start_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("peak", "least", "most", "first_byte_s", "growth"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise DeployFailed(f"{name} is {value:g}", "give a number above 0", status=2)
        if not 0 <= self.spare < 1:
            raise DeployFailed(f"spare is {self.spare:g}", "give 0 to below 1", status=2)
        if not 0 <= self.start_s < math.inf:
            raise DeployFailed(f"start is {self.start_s:g}", "give seconds, 0 or more", status=2)
        if self.peak is None and self.most is None:
            raise DeployFailed(
                "nothing says how many listeners there will be",
                "give --peak LISTENERS, or --max INSTANCES",
                status=2,
            )
        if self.most is not None and self.most < self.least:
            raise DeployFailed(
                f"at most {self.most} instances are fewer than {self.least} at least",
                "correct --min or --max",
                status=2,
            )


def read_bench(path: Path) -> dict[str, Any]:
    """The result of ``utterwire-server bench --json``.

    :raises DeployFailed: if the file is none.
    """
    next_step = f"make one: utterwire-server bench --json {path.name}, on the machine to be used"
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise DeployFailed(f"{path}: {error.strerror or error}", next_step, status=2) from None
    except (ValueError, RecursionError) as error:
        raise DeployFailed(f"{path} is not JSON: {error}", next_step, status=2) from None
    schema = json.loads(
        (resources.files("utterwire_server") / "bench.schema.json").read_text(encoding="utf-8")
    )
    wrong = next(iter(Draft202012Validator(schema).iter_errors(data)), None)
    if wrong is not None:
        raise DeployFailed(
            f"{path} is no result of bench: {wrong.json_path}: {wrong.message}", next_step, status=2
        )
    result: dict[str, Any] = data
    return result


def plan(bench: Mapping[str, Any], goals: Goals) -> tuple[Scaling, list[str]]:
    """Scaling that reaches the goals, and how it was computed, a line each.

    :raises DeployFailed: if no number of such machines reaches them.
    """
    how: list[str] = []
    carried = _carried(bench, goals, how)
    start_s = goals.start_s + _own_start_s(bench)
    lead_s = NOTICE_S + start_s
    how.append(
        f"a new instance helps after {lead_s:.0f} s: {NOTICE_S:.0f} s until it is noticed,"
        f" {goals.start_s:.0f} s until the container runs (--start, an assumption),"
        f" {start_s - goals.start_s:.1f} s until the server is ready (measured)"
    )
    target = _target(carried, goals, lead_s, how)
    most = _most(target, goals, how)
    below = quiet(target, goals.least)
    how.append(
        f"an instance is taken away below {below} at once each: of {goals.least + 1} instances the"
        f" other {goals.least} then have {CALM:.0%} of the target at most"
    )
    cooldown = math.ceil(start_s / 10) * 10
    calm = max(300, 2 * cooldown)
    how.append(
        f"cooldowns: out {cooldown} s, one start, so that what is on its way counts first;"
        f" in {calm} s, twice that, since what was taken away costs a start to get back"
    )
    scaling = Scaling(
        min_instances=goals.least,
        max_instances=most,
        target_requests=target,
        scale_in_requests=below,
        scale_out_cooldown_s=cooldown,
        scale_in_cooldown_s=calm,
        scale_in_minutes=min(1_440, math.ceil(calm / 60)),
    )
    return scaling, how


def _carried(bench: Mapping[str, Any], goals: Goals, how: list[str]) -> int:
    """Listeners at once that one machine carries within the goal for the first byte."""
    capacity = bench["capacity"]
    goal_s = goals.first_byte_s or capacity["goal_first_byte_p95_s"]
    best_s = min(one["first_byte_p95_s"] for one in bench["alone"])
    if best_s > goal_s:
        raise DeployFailed(
            f"first byte within {goal_s * 1_000:.0f} ms is out of reach: somebody who is alone with"
            f" this machine waits {best_s * 1_000:.0f} ms (p95)",
            "take a faster machine, or a larger --goal-first-byte; more instances do not help",
        )
    good: list[int] = [
        load["listeners"]
        for load in capacity["loads"]
        if not load["underruns"] and not load["refused"] and load["first_byte_p95_s"] <= goal_s
    ]
    if not good:
        raise DeployFailed(
            f"this machine carries nobody with a first byte within {goal_s * 1_000:.0f} ms"
            f" (real-time factor {bench['real_time_factor']:.2f})",
            "take a faster machine, or a larger --goal-first-byte; more instances do not help",
        )
    carried = max(good)
    if (sessions := bench["limits"].get("max_sessions")) is not None:
        carried = min(carried, int(sessions))
    machine = bench["machine"]
    how.append(
        f"one machine carries {carried} at once with p95 of the first byte within"
        f" {goal_s * 1_000:.0f} ms (measured: {bench['engine']['name']}, {machine['cores']} cores,"
        f" {machine['processor'] or machine['system']}; it holds for the instance type only if that"
        " is such a machine)"
    )
    if capacity["more_possible"] and carried == capacity["at_most"]:
        how.append(f"more than {carried} were not tried: bench with a larger --max-listeners")
    return carried


def _own_start_s(bench: Mapping[str, Any]) -> float:
    known = bench["process_start_s"]
    return float(bench["cold_start_s"] if known is None else known)


def _target(carried: int, goals: Goals, lead_s: float, how: list[str]) -> int:
    """Listeners at once that each instance is to have."""
    target = math.floor(carried * (1 - goals.spare))
    said = f"{goals.spare:.0%} of it kept free (--spare)"
    if goals.growth is not None:
        coming = goals.growth * lead_s / 60
        room = math.floor(carried - coming / goals.least)
        if room < target:
            target = room
            said = (
                f"{coming:.0f} more may come within {lead_s:.0f} s (--growth) and are shared by"
                f" {goals.least}"
            )
        if target < 1 <= carried * (1 - goals.spare):
            raise DeployFailed(
                f"{goals.growth:g} more listeners a minute are {coming:.0f} until a new instance"
                f" helps, and {goals.least} of these machines carry {goals.least * carried} in all",
                _enough(carried, coming),
            )
    if target < 1:
        raise DeployFailed(
            f"a machine that carries {carried} has no room to keep {goals.spare:.0%} free",
            "take a faster machine, or --spare 0 to have nothing free while an instance starts",
        )
    how.append(f"target {target} at once for each instance: {carried}, {said}")
    return target


def _enough(carried: int, coming: float) -> str:
    if carried < 2:
        return "take a faster machine, or expect slower growth"
    return f"start with --min {math.ceil(coming / (carried - 1))}, or take a faster machine"


def _most(target: int, goals: Goals, how: list[str]) -> int:
    """Instances at most."""
    if goals.peak is None:
        assert goals.most is not None
        how.append(
            f"at most {goals.most} instances (--max), which have {goals.most * target} at once"
        )
        return goals.most
    needed = max(goals.least, math.ceil(goals.peak / target))
    if goals.most is not None and needed > goals.most:
        raise DeployFailed(
            f"{goals.peak} listeners at once need {needed} instances with {target} each, and --max"
            f" is {goals.most}",
            f"give --max {needed}, or expect {goals.most * target} listeners at most",
        )
    how.append(f"at most {needed} instances: {goals.peak} at once (--peak), {target} each")
    return needed
