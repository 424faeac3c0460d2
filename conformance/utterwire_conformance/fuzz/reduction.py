"""Making a failing program small: fewer steps, fewer sessions, plainer frames, shorter messages.

It works on the program itself, where half of it can be left out in one try. (What Hypothesis
shrinks are the choices that led to a program, and to leave out a step changes all that follow.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from .program import Exchange, Program, Say, Step

__all__ = ["reduced"]

_GRAIN: Final = 64
"""No part smaller than this share of a message is cut out of it."""


def reduced(
    program: Program,
    fails: Callable[[Program], bool],
    rewrite: Callable[[Say | Exchange, bytes], Say | Exchange | None],
    plain: Sequence[bytes] = (b"{",),
) -> Program:
    """The smallest program found that still fails.

    `fails` plays a program and tells whether it fails in the same way; whatever it raises ends the
    search, and is raised. `rewrite` gives a step other octets, or None where they are not to be
    sent. `plain` are messages to try in place of any other, the simplest first.
    """
    search = _Search(program, fails)
    while search.round(rewrite, plain):
        pass
    return search.best


class _Search:
    def __init__(self, program: Program, fails: Callable[[Program], bool]) -> None:
        self.best = program
        self._fails = fails
        self._tried: set[Program] = {program}

    def round(
        self,
        rewrite: Callable[[Say | Exchange, bytes], Say | Exchange | None],
        plain: Sequence[bytes],
    ) -> bool:
        """Everything once; whether anything got smaller."""
        before = self.best
        self._drop_steps()
        self._merge_sessions()
        self._unframe()
        for number in range(len(self.best.steps)):
            step = self.best.steps[number]
            if isinstance(step, Say | Exchange):
                self._shorten(number, rewrite, plain)
        return self.best != before

    def _try(self, steps: Sequence[Step]) -> bool:
        program = replace(self.best, steps=tuple(steps))
        if not steps or program in self._tried:
            return False
        self._tried.add(program)
        if not self._fails(program):
            return False
        self.best = program
        return True

    def _drop_steps(self) -> None:
        size = max(1, len(self.best.steps) // 2)
        while True:
            start = 0
            while start < len(self.best.steps):
                steps = self.best.steps
                if not self._try(steps[:start] + steps[start + size :]):
                    start += size
            if size == 1:
                return
            size //= 2

    def _merge_sessions(self) -> None:
        steps = self.best.steps
        numbers = {number: place for place, number in enumerate(self.best.sessions)}
        if len(numbers) > 1:
            self._try([_moved(step, 0) for step in steps])
        steps = self.best.steps
        numbers = {number: place for place, number in enumerate(self.best.sessions)}
        if any(number != place for number, place in numbers.items()):
            self._try([_moved(step, None, numbers) for step in steps])

    def _unframe(self) -> None:
        if self._try([_unframed(step) for step in self.best.steps]):
            return
        for number, step in enumerate(self.best.steps):
            self._put(number, _unframed(step))

    def _put(self, number: int, step: Step) -> bool:
        steps = list(self.best.steps)
        if steps[number] == step:
            return False
        steps[number] = step
        return self._try(steps)

    def _shorten(
        self,
        number: int,
        rewrite: Callable[[Say | Exchange, bytes], Say | Exchange | None],
        plain: Sequence[bytes],
    ) -> None:
        def put(octets: bytes) -> bool:
            step = self.best.steps[number]
            assert isinstance(step, Say | Exchange)
            other = rewrite(step, octets)
            return other is not None and self._put(number, other)

        def now() -> bytes:
            return _octets(self.best.steps[number])

        for octets in plain:
            if len(octets) < len(now()) and put(octets):
                return
        while any(put(other) for other in _simpler(now())):
            pass
        if _is_object(now()):
            return
        size = len(now()) // 2
        # What is long stays a little longer than it must: every try costs a session.
        while size > len(now()) // _GRAIN:
            start = 0
            while start < len(now()):
                octets = now()
                if not put(octets[:start] + octets[start + size :]):
                    start += size
            size //= 2


def _octets(step: Step) -> bytes:
    if isinstance(step, Say):
        return step.octets
    assert isinstance(step, Exchange)
    return step.body


def _moved(step: Step, to: int | None, numbers: dict[int, int] | None = None) -> Step:
    if isinstance(step, Exchange):
        return step
    return replace(step, session=to if to is not None else (numbers or {})[step.session])


def _unframed(step: Step) -> Step:
    if not isinstance(step, Say):
        return step
    try:
        step.octets.decode("utf-8")
    except UnicodeDecodeError:
        return replace(step, cuts=(), pings=False)
    return replace(step, kind="text", cuts=(), pings=False)


def _is_object(octets: bytes) -> bool:
    return isinstance(_parsed(octets), dict)


def _parsed(octets: bytes) -> Any:
    try:
        return json.loads(octets)
    except (ValueError, RecursionError):
        return None


def _simpler(octets: bytes) -> Iterator[bytes]:
    """The same object with less in it."""
    value = _parsed(octets)
    if not isinstance(value, dict):
        return
    for name in value:
        less = {key: item for key, item in value.items() if key != name}
        yield json.dumps(less).encode()
    for name, item in value.items():
        plain: tuple[Any, ...] = (None, 0, "a", [], {})
        for other in plain:
            text = json.dumps(other)
            if len(text) < len(json.dumps(item)):
                yield json.dumps(value | {name: other}).encode()
    compact = json.dumps(value).encode()
    if len(compact) < len(octets):
        yield compact
