"""Whether measurements of the same answers agree: their medians, figure by figure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from utterwire_schemas import validator

from utterwire_client.errors import RequestInvalid
from utterwire_client.listening.figures import Spread

__all__ = ["AGREED", "Compared", "compare", "read_measurement"]

#: Medians agree if the largest and the smallest lie no further apart than this share of the middle.
AGREED: Final = 0.10

#: What is not compared: how long the audio is has nothing to do with how late it came.
_LEFT_ALONE: Final = frozenset({"heard_to_s"})

_SAME: Final = ("pieces_per_s", "repeat", "lead_s")


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of an answer in a way, in each measurement.

    ``apart`` is the distance of the outermost medians, as a share of the one in the middle (of the
    mean of two); infinite if that is 0 and they are not.
    """

    answer: str
    way: str
    figure: str
    spreads: tuple[Spread, ...]

    @property
    def medians(self) -> tuple[float, ...]:
        """Of each measurement, in order."""
        return tuple(spread["median"] for spread in self.spreads)

    @property
    def apart(self) -> float:
        ordered = sorted(self.medians)
        half = len(ordered) // 2
        middle = (ordered[half] + ordered[-1 - half]) / 2
        distance = ordered[-1] - ordered[0]
        if distance == 0:
            return 0.0
        return distance / middle if middle else float("inf")

    @property
    def agrees(self) -> bool:
        return self.apart <= AGREED


def read_measurement(path: Path) -> dict[str, Any]:
    """A document of the schema ``latency`` with answers that were repeated. Raises
    :class:`RequestInvalid` with one line that says what is wrong."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise RequestInvalid(f"cannot read {path}: {exc.strerror}") from None
    except (ValueError, RecursionError):
        raise RequestInvalid(f"{path} is not JSON") from None
    problem = next(iter(validator("latency").iter_errors(document)), None)
    if problem is not None or "heard" not in document:
        what = "one conversation" if problem is None else "no measurement"
        raise RequestInvalid(
            f"{path} holds {what}; compare what `utterwire latency --browser --json` wrote"
        )
    return dict(document)


def compare(documents: Sequence[Mapping[str, Any]]) -> list[Compared]:
    """Figures that all of them know, in their order. Raises :class:`RequestInvalid` if they did not
    measure the same, or have nothing in common."""
    first = documents[0]
    for number, other in enumerate(documents[1:], 2):
        if other["answers"] != first["answers"]:
            raise RequestInvalid(f"measurement 1 and measurement {number} are of different answers")
        for name in _SAME:
            if other["options"].get(name) != first["options"].get(name):
                raise RequestInvalid(f"measurement 1 and measurement {number} differ in {name}")
    tables = [{_key(group): group["figures"] for group in it["heard"]} for it in documents]
    found = []
    for key in tables[0]:
        if not all(key in table for table in tables):
            continue
        for figure in tables[0][key]:
            spreads = [table[key].get(figure) for table in tables]
            if figure not in _LEFT_ALONE and all(spread is not None for spread in spreads):
                found.append(Compared(*key, figure, tuple(spreads)))
    if not found:
        raise RequestInvalid("the measurements have no figure in common")
    return found


def _key(group: Mapping[str, Any]) -> tuple[str, str]:
    return group["answer"], f"{group['way']['ask']}-{group['way']['transport']}"
