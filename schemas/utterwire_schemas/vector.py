"""The test vectors."""

from collections.abc import Iterable, Mapping
from typing import Any

from utterwire_schemas.resource import names_in, read

__all__ = ["VECTOR_SETS", "octets", "vectors"]

#: The name of every set: that of its file in ``vectors/``, without ``.json``. The schema of the
#: set ``NAME`` is ``vectors-NAME``.
VECTOR_SETS: tuple[str, ...] = names_in("vectors")


def vectors(name: str) -> list[dict[str, Any]]:
    """The vectors of that set, in the order of the file, read anew.

    Raises ``KeyError`` where ``VECTOR_SETS`` has no such name.
    """
    if name not in VECTOR_SETS:
        raise KeyError(name)
    found: list[dict[str, Any]] = read(f"vectors/{name}.json")["vectors"]
    return found


def octets(parts: Iterable[Mapping[str, Any]]) -> bytes:
    """The octets that a list of parts stands for: their concatenation.

    A part is ``{"hex": digits}`` or ``{"utf8": text}``, repeated ``"times"`` times (once if
    absent), as ``common.json#/$defs/octets`` has it.
    """
    return b"".join(
        (bytes.fromhex(part["hex"]) if "hex" in part else part["utf8"].encode("utf-8"))
        * part.get("times", 1)
        for part in parts
    )
