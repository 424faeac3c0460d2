"""Fuzzing: programs that Hypothesis writes, played on an endpoint and judged like all else."""

from .campaign import fuzz
from .finding import KINDS, Finding, FuzzResults, KindResult
from .grammar import Ground
from .machine import CELLS, session_machine
from .plan import DEFAULT_S, FuzzPlan
from .player import perform
from .program import Exchange, Leave, Pause, Ping, Program, Resume, Say, Stall, Wait
from .reduction import reduced
from .verdicts import broken
from .wish import FuzzWish

__all__ = [
    "CELLS",
    "DEFAULT_S",
    "KINDS",
    "Exchange",
    "Finding",
    "FuzzPlan",
    "FuzzResults",
    "FuzzWish",
    "Ground",
    "KindResult",
    "Leave",
    "Pause",
    "Ping",
    "Program",
    "Resume",
    "Say",
    "Stall",
    "Wait",
    "broken",
    "fuzz",
    "perform",
    "reduced",
    "session_machine",
]
