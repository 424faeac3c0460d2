"""Every fault against the checks that must find it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from utterwire_conformance.check import CHECKS
from utterwire_conformance.endpoints import SESSION_PATH, Endpoint
from utterwire_conformance.proxy import FaultProxy, Tampers
from utterwire_conformance.runner import Options, Results, run_checks
from utterwire_conformance.stage import Pace
from utterwire_conformance.target import Instance, Target
from utterwire_conformance.verdict import Judgement, Verdict

from .fault import Fault

__all__ = ["Matrix", "ProxiedTarget", "checks_of", "run_behind", "run_matrix"]

_RED: Final = frozenset({Verdict.FAIL, Verdict.WEAK})
# The endpoint of a matrix is known to be quick: who is silent for so long stays silent. It is less
# than the idle limit of the built-in endpoints, which would end the silence.
_PACE: Final = Pace(connect=10.0, first=3.5, stall=3.5)


@dataclass(slots=True)
class _ProxiedInstance(Instance):
    """An instance behind a proxy, which learns when the instance is told to stop.

    Proxy and instance are one endpoint: what the proxy writes or keeps, the endpoint does.
    """

    proxy: FaultProxy | None = None
    upstream: Instance | None = None

    def memory(self) -> int | None:
        held = self.upstream.memory() if self.upstream is not None else None
        return held if held is None or self.proxy is None else held + len(self.proxy.shared.kept)

    def terminate(self) -> None:
        if self.proxy is not None:
            self.proxy.shared.shutting_down = True
        Instance.terminate(self)

    def output(self) -> bytes:
        written = self.proxy.shared.written if self.proxy is not None else b""
        return Instance.output(self) + written


class ProxiedTarget(Target):
    """An endpoint seen through a faulty proxy; `upstream` is an instance that runs already.

    What a scenario launches for itself gets a proxy of its own, with the same fault.
    """

    def __init__(self, endpoint: Endpoint, upstream: Instance, tampers: Tampers | None) -> None:
        super().__init__(endpoint)
        self._upstream = upstream
        self._tampers = tampers
        self._proxies: list[FaultProxy] = []

    async def start(self) -> Instance:
        return await self._behind_proxy(self._upstream)

    async def launch(self) -> Instance:
        return await self._behind_proxy(await super().launch())

    async def close(self) -> None:
        proxies, self._proxies = self._proxies, []
        for proxy in proxies:
            await proxy.__aexit__(None, None, None)
        await super().close()

    async def _behind_proxy(self, instance: Instance) -> Instance:
        proxy = FaultProxy(instance.http_url, self._tampers)
        await proxy.__aenter__()
        self._proxies.append(proxy)
        return _ProxiedInstance(
            f"{proxy.ws_url}{SESSION_PATH}",
            proxy.http_url,
            instance.process,
            instance.log,
            proxy,
            instance,
        )


@dataclass(slots=True)
class Matrix:
    """Judgements by fault and check; `survivors` are the pairs that stayed green.

    Where a requirement has several checks, each looks at a part of it: a fault is found by one.
    """

    judgements: dict[str, dict[str, Judgement]] = field(default_factory=dict)

    @property
    def survivors(self) -> dict[str, dict[str, Judgement]]:
        """By fault, the checks that should have found it and did not."""
        return {
            fault: left for fault, row in self.judgements.items() if (left := self._missed_by(row))
        }

    @staticmethod
    def _missed_by(row: dict[str, Judgement]) -> dict[str, Judgement]:
        broken = {CHECKS[check].requirement for check, j in row.items() if j.verdict in _RED}
        return {check: j for check, j in row.items() if CHECKS[check].requirement not in broken}

    @property
    def found(self) -> frozenset[str]:
        """The checks that found at least one fault."""
        return frozenset(
            check
            for row in self.judgements.values()
            for check, judgement in row.items()
            if judgement.verdict in _RED
        )

    def to_json(self) -> dict[str, Any]:
        """By fault and check: the verdict and its reason."""
        return {
            fault: {
                check: {"verdict": judgement.verdict.value, "reason": judgement.reason}
                for check, judgement in row.items()
            }
            for fault, row in self.judgements.items()
        }


def checks_of(fault: Fault) -> tuple[str, ...]:
    """The ids of the checks that must find a fault: those of the requirements it breaks."""
    return tuple(check.id for check in CHECKS.values() if check.requirement in fault.breaks)


async def run_matrix(
    endpoints: Sequence[Endpoint], faults: Iterable[Fault], *, at_a_time: int = 4
) -> Matrix:
    """Run every fault against its checks.

    A fault is put before the first of `endpoints` that it can be seen on; of each one instance is
    launched for all.

    Raises:
        LaunchFailed: an endpoint cannot be launched.
        ValueError: a fault can be seen on none of them.
    """
    matrix = Matrix()
    places = asyncio.Semaphore(at_a_time)
    queues: dict[int, list[Fault]] = {}
    for fault in faults:
        matrix.judgements[fault.name] = {}
        queues.setdefault(_place_of(fault, endpoints), []).append(fault)

    async def one(fault: Fault, endpoint: Endpoint, upstream: Instance) -> None:
        async with places:
            results = await run_behind(endpoint, upstream, fault, checks_of(fault))
        matrix.judgements[fault.name] = results.judgements

    for place, queue in queues.items():
        endpoint = endpoints[place]
        async with Target(endpoint) as target, asyncio.TaskGroup() as tasks:
            assert target.main is not None
            for fault in queue:
                tasks.create_task(one(fault, endpoint, target.main))
    return matrix


def _place_of(fault: Fault, endpoints: Sequence[Endpoint]) -> int:
    for place, endpoint in enumerate(endpoints):
        if not fault.lacks & endpoint.claims.profiles:
            return place
    raise ValueError(f"the fault {fault.name} can be seen on none of the endpoints")


async def run_behind(
    endpoint: Endpoint,
    upstream: Instance,
    tampers: Tampers | None,
    checks: Iterable[str],
    *,
    pace: Pace = _PACE,
) -> Results:
    """Run some checks on an instance that stands behind a proxy."""
    target = ProxiedTarget(endpoint, upstream, tampers)
    return await run_checks(target, checks, Options(pace=pace))
