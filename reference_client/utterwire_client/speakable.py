"""What is to be heard of a text that was written to be seen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["SpeakableState", "speakable"]

_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)


@dataclass(slots=True)
class SpeakableState:
    """What one piece leaves open for the next: one of it for each text, new at its beginning."""

    fence: str = ""


def speakable(piece: str, state: SpeakableState | None = None) -> str:
    """``piece`` without what is only to be seen: Markdown, code blocks, link targets, emoji.

    Pieces of one text share a ``state``, in order, so that a code block or a link that is cut
    is never read out. Empty if there is nothing to speak.
    """
    state = state or SpeakableState()
    kept = []
    for line in piece.splitlines(keepends=True):
        fence = _FENCE.match(line)
        if state.fence:
            if fence and fence[1].startswith(state.fence):
                state.fence = ""
        elif fence:
            state.fence = fence[1]
        else:
            kept.append(line)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", "".join(kept))
    text = re.sub(r"(?m)^ {0,3}(?:#{1,6} +|[-*+] +|> ?)", "", text)
    text = re.sub(r"(\*\*|__|`)(?=\S)(.+?)(?<=\S)\1", r"\2", text)
    text = text.strip()
    return text if any(map(str.isalnum, text)) else ""
