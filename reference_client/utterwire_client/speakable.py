"""What is to be heard of a text that was written to be seen."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["SpeakableState", "speakable"]

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
#: Quotes and lists that a block may stand in.
_INSIDE: Final = r"[ \t]*(?:(?:>|[-*+•]|\d{1,3}[.)])[ \t]+)*>?[ \t]*"
_FENCE: Final = re.compile(rf"{_INSIDE}(`{{3,}}|~{{3,}})([^`]*)\Z", re.DOTALL)
_FENCE_END: Final = re.compile(r"[ \t>]*(`{3,}|~{3,})\s*\Z")
_RULE: Final = re.compile(r"[ \t>]*([-*_=])(?:[ \t]*\1){2,}\s*\Z")
_ROW_RULE: Final = re.compile(r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?\s*\Z")
_QUOTE: Final = re.compile(r"(?:[ \t]*>)+[ \t]?")
_HEADING: Final = re.compile(r"[ \t]*#{1,6}(?:[ \t]+|\s*\Z)")
_HEADING_END: Final = re.compile(r"[ \t]+#+\s*\Z")
_BULLET: Final = re.compile(r"\s*[-*+•⁃‣◦▪●·][ \t]+(?:\[[ xX]\][ \t]+)?")
_NUMBERED_TASK: Final = re.compile(r"\A(\s*\d{1,3}[.)][ \t]+)\[[ xX]\][ \t]+")
_TARGET_LABEL: Final = r"\s*\[(?!\^)[^\]\n]+\]:"
_LABEL_ALONE: Final = re.compile(rf"{_TARGET_LABEL}\s*\Z")
_LABELLED: Final = r"\s*(?:<[^>\n]*>|[^\s/#]*[/#]\S*)(?:\s+(?:\"[^\"\n]*\"|'[^'\n]*'|\([^)\n]*\)))?"
_TARGET_LINE: Final = re.compile(rf"{_TARGET_LABEL}{_LABELLED}\s*\Z")
_FOOTNOTE_LINE: Final = re.compile(r"\A\s*\[\^[^\]\n]+\]:[ \t]*")

#: What no voice can say and no UTF-8 can carry, and the characters that stand for what is done.
_DROPPED: Final = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u200b\u2060\ufeff\ud800-\udfff"
    "\U000f0000-\U0010ffff]"
)
_FIRST_DONE: Final = 0xF0000
_DONE: Final = re.compile("[\U000f0000-\U0010ffff]")
_EXACT: Final = re.compile(r"\\([!-/:-@\[-`{-~])|(?<!`)(`+)(?!`)(.+?)(?<!`)\2(?!`)", re.DOTALL)
#: What opens and what closes a stretch that is not seen.
_UNSEEN: Final = tuple(
    (re.compile(opening, re.IGNORECASE), re.compile(closing, re.IGNORECASE))
    for opening, closing in (
        (r"<!--", r"-->"),
        (r"<\?", r"\?>"),
        (r"<script\b[^<>]*>", r"</script\s*>"),
        (r"<style\b[^<>]*>", r"</style\s*>"),
    )
)
_CITATION: Final = re.compile(r"[ \t]*【[^【】†\n]*†[^【】\n]*】|[ \t]*\[\^[^\[\]\n]+\]")
_URL: Final = r"[^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*"
_TARGET: Final = rf"\([ \t]*(?:<[^>\n]*>|{_URL})(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^)]*\)))?\s*\)"
_LABEL: Final = r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]"
_LINK: Final = re.compile(rf"!?{_LABEL}{_TARGET}|(?<![\w)\]])!?{_LABEL}\[[^\[\]\n]*\]")
_LINK_END: Final = re.compile(rf"\]{_TARGET}")
_OPEN_TARGET: Final = re.compile(r"(?:!?\[([^\[\]]*))?\]\([^\s()]*(?:\s+[\"'][^\"']*)?\Z")
_MANY_SPACES: Final = re.compile(r"[ \t]{9,}")
_NOT_IN_URL: Final = re.compile(r"[\s<>\"]")
_URL_BEGIN: Final = re.compile(r"\b(?:https?|ftp)://(?=.)", re.DOTALL)
_OPEN_LABEL: Final = re.compile(r"!?\[")
_REST_OF_TARGET: Final = re.compile(rf"{_URL}(?:\s+\"[^\"]*\")?\s*\)")
_AUTOLINK: Final = re.compile(r"<((?:https?|ftp)://[^\s<>]+|mailto:[^\s<>]+|[^\s<>@]+@[^\s<>@]+)>")
_BARE_URL: Final = re.compile(
    r"\b(?:https?|ftp)://[^\s<>\"“”«»]+|\bmailto:[^\s<>\"]+", re.IGNORECASE
)
_URL_PARTS: Final = re.compile(r"\w+://(?:[^/@\s]*@)?(?:www\.)?([^/?#]+)/?([^?#]*)(.*)", re.DOTALL)
_SHORT_PATH: Final = re.compile(r"[\w.-]{1,24}/?")
_TAGS: Final = "|".join(
    """
    a abbr address article aside audio b blockquote body br break button caption center cite
    code col dd del details dfn div dl dt em emphasis figcaption figure font footer form h1 h2
    h3 h4 h5 h6 head header hr html i iframe img input ins kbd label li link main mark meta nav
    ol option p phoneme picture pre prosody q s samp say-as script section select small source
    span speak strike strong style sub summary sup svg table tbody td textarea tfoot th thead
    title tr tt u ul var video voice wbr
    """.split()
)
_ATTRIBUTE: Final = r"\s+[\w:.-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+)"
_FLAG: Final = (
    r"\s+(?:open|controls|disabled|checked|hidden|autoplay|loop|muted|required|selected)\b"
)
_TAG: Final = re.compile(rf"<(/?)({_TAGS})\b(?:{_ATTRIBUTE}|{_FLAG})*\s*/?>", re.IGNORECASE)
#: A tag that the piece ends in; of one letter only with an attribute, or as a link.
_OPEN_TAG: Final = re.compile(
    rf"<(?:{_TAGS})(?:{_ATTRIBUTE})*\s+[\w:.-]+\s*=\s*(?:\"[^\"<>]*\"?|'[^'<>]*'?|[^\s<>]*)\s*\Z"
    rf"|<(?:{_TAGS})(?<![<][a-z])\s*\Z|(?<!\S)<a\s*\Z",
    re.IGNORECASE,
)
_APART: Final = frozenset(
    """br p div li tr td th h1 h2 h3 h4 h5 h6 hr ul ol dd dt blockquote table section summary
    details""".split()
)
_ENTITY: Final = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_STRUCK: Final = re.compile(r"(?<!\w)(~~|==)(?=\S)(.{1,300}?)(?<=\S)\1(?!\w)", re.DOTALL)
_EMPHASIS: Final = re.compile(r"\*+|_+|~~+")
_CLOSING: Final = ".,;:!?…)]}\"'”’»—–-"
_OPENING: Final = "([{\"'“‘«¿¡—–-/"
_SHORT_CODE: Final = re.compile(r"(?<!\S):[a-z][a-z0-9_+-]*:(?!\S)")
#: Emoji, dingbats, boxes and shapes, with what modifies and joins them.
_EMOJI: Final = (
    "(?:[\u231a-\u23ff\u2500-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001faff]|[\u2194-\u21aa]\ufe0f)"
    "[\ufe0e\ufe0f\u20e3\u200d\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"
)
_EMOJI_RUN: Final = re.compile(rf"(?:[ \t]*{_EMOJI})++[ \t]*")
_MODIFIER: Final = re.compile("[\ufe0e\ufe0f\u20e3]")
_EMPTY_BRACKETS: Final = re.compile(r"\(\s*\)|\[\s*\]")


@dataclass(slots=True)
class SpeakableState:
    """What one piece leaves open for the next. Each text has its own, new at its beginning."""

    #: The fence of the code block that is open.
    fence: str = ""
    #: What ends a stretch that is open and not heard: of HTML, the target of a link or label, an
    #: address.
    until: str = ""
    #: Whether the next piece begins a line.
    line_start: bool = True
    #: Whether the last piece ended in a label, right before the target of a link.
    label: bool = False
    #: Whether a table is open.
    table: bool = False
    #: Whether the line that is open is a row of a table.
    row: bool = False


def speakable(piece: str, state: SpeakableState | None = None) -> str:
    """What is to be heard of ``piece``; empty if that is nothing.

    Markdown and HTML go, and what they say stays: emphasis, headings, list bullets (numbers stay),
    quotes, tables (cells are separated by commas), code spans, links and images (their text stays),
    footnote marks, escapes, entities. Code blocks, link targets, comments and emoji are not heard;
    of a long bare address its host is. ``2 * 3``, ``5 < 6`` and ``snake_case`` stay as they are.

    A code block, a link or a table may go over several pieces: give all pieces of one text the same
    ``state``, in order. Without it a piece stands alone, and begins a line. Blocks become lines.
    The result can be encoded as UTF-8.
    """
    state = SpeakableState() if state is None else state
    text = _DROPPED.sub("", piece.replace("\r\n", "\n").replace("\r", "\n"))
    text = _MANY_SPACES.sub(" " * 8, text)
    text = _blocks(_rest_of_open(text, state), state)
    done: list[str] = []

    def keep(words: str) -> str:
        if len(done) > 0xFFFF:  # no character is left to stand for it
            return words
        done.append(words)
        return chr(_FIRST_DONE + len(done) - 1)

    def restored(match: re.Match[str]) -> str:
        return _DONE.sub(restored, done[ord(match[0]) - _FIRST_DONE])

    text = _EXACT.sub(lambda match: keep(match[1] or " ".join(match[3].split())), text)
    text = _inline(text, state, keep)
    text = _emphasis(_STRUCK.sub(r"\2", text.replace("`", "")))
    text = _MODIFIER.sub("", _EMOJI_RUN.sub(_gap_of_emoji, text))
    text = _EMPTY_BRACKETS.sub("", _DONE.sub(restored, text))
    lines = [" ".join(line.split()) for line in text.split("\n")]
    text = "\n".join(line for line in lines if line)
    return text if any(map(str.isalnum, text)) else ""


def _rest_of_open(text: str, state: SpeakableState) -> str:
    """``text`` after what an earlier piece left open."""
    if state.label and text.startswith("(") and not state.until:
        state.until, text = ")", text[1:]
    state.label = False
    if not state.until:
        return text
    until, state.until = state.until, ""
    if until == ")":
        rest = _REST_OF_TARGET.match(text)
        if rest is None and not re.search(r"\s", text):
            state.until = until
            return ""
        # A target has no spaces: it was left open for good.
        text = text[rest.end() :] if rest else re.sub(r"\A\S+", "", text)
    elif until == ":":  # the target of a label
        text = re.sub(rf"\A{_LABELLED}", "", text)
    elif until == " ":  # a bare address
        if not re.search(r"\s", text):
            state.until = until
            return ""
        text = re.sub(r"\A\S+", "", text)
    else:
        end = text.lower().find(until)
        if end < 0 and until == ">":
            return text  # it was no tag
        if end < 0:
            state.until = until
            return ""
        text = text[end + len(until) :]
    state.line_start = False
    return text


def _blocks(text: str, state: SpeakableState) -> str:
    """``text`` without code blocks, rules, and the marks of headings, quotes, lists and tables.

    What ends a block ends a line; within a paragraph lines are joined.
    """
    lines = _LINE.findall(text)
    kept: list[str] = []
    for index, line in enumerate(lines):
        begins, state.line_start = state.line_start, line.endswith("\n")
        if state.fence:
            end = _FENCE_END.match(line) if begins else None
            if end and end[1].startswith(state.fence):
                state.fence = ""
            continue
        following = lines[index + 1] if index + 1 < len(lines) else ""
        if begins:
            fence = _FENCE.match(line)
            if fence:
                state.fence = fence[1]
                kept.append("\n")
                continue
            if _RULE.match(line) or (_ROW_RULE.match(line) and re.search(r"\||---", line)):
                state.table = "|" in line
                kept.append("\n")
                continue
            if _TARGET_LINE.match(line):
                continue
            if _LABEL_ALONE.match(line):
                state.until = ":"
            if not line.strip():
                state.table = state.row = False
                kept.append("\n")
                continue
            line, block = _unmarked(line)
            state.row = _is_row(line, following, state)
        else:
            block = False
        if state.row:
            line, block = _cells(line) + "\n", True
        if block and kept:
            kept.append("\n")
        kept.append(line if block else line.replace("\n", " "))
    return "".join(kept)


def _unmarked(line: str) -> tuple[str, bool]:
    """A line without its marks, and whether it had any."""
    plain = _QUOTE.sub("", line, count=1) if _QUOTE.match(line) else line
    heading = _HEADING.match(plain)
    if heading:
        return _HEADING_END.sub("\n", plain[heading.end() :]) + "\n", True
    while bullet := _BULLET.match(plain):
        plain = plain[bullet.end() :]
    plain = _FOOTNOTE_LINE.sub("", _NUMBERED_TASK.sub(r"\1", plain))
    numbered = re.match(r"\s*[*_]{0,2}(?:\d{1,3}|[A-Za-z])[.)]\s", plain)
    return plain, plain != line or numbered is not None


def _is_row(line: str, following: str, state: SpeakableState) -> bool:
    stripped = line.strip()
    if stripped.startswith("| ") or (stripped[:1] == stripped[-1:] == "|" and len(stripped) > 3):
        return True
    return "|" in line and (
        state.table or ("|" in following and _ROW_RULE.match(following) is not None)
    )


def _cells(line: str) -> str:
    spoken = ""
    for cell in map(str.strip, re.split(r"(?<!\\)\|", line)):
        if cell:
            spoken += ("" if not spoken else " " if spoken[-1] in ".,;:!?" else ", ") + cell
    return spoken


def _gap_of_emoji(run: re.Match[str]) -> str:
    """What stays of a run of emoji: nothing before what closes, else a space."""
    after = run.string[run.end() : run.end() + 1]
    return "" if not after or after in ".,;:!?…)]\n" else " "


def _without(text: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> str:
    """``text`` without the stretches between the two, as far as they are closed."""
    kept, at = [], 0
    while (begin := opening.search(text, at)) and (end := closing.search(text, begin.end())):
        kept.append(text[at : begin.start()])
        at = end.end()
    return "".join(kept) + text[at:]


def _ends_in_url(text: str) -> bool:
    """Whether the last word is an address that may go on in the next piece."""
    word = _NOT_IN_URL.split(text)[-1]
    return word[-1:] not in (*".!?,;:)]", "") and _URL_BEGIN.search(word) is not None


def _inline(text: str, state: SpeakableState, keep: Callable[[str], str]) -> str:
    """``text`` without links' targets, tags, comments, citations and entities."""
    for unseen in _UNSEEN:
        text = _without(text, *unseen)
    for opening, closing in (("<!--", "-->"), ("<script", "</script>"), ("<style", "</style>")):
        at = text.lower().find(opening)
        if at >= 0:
            text, state.until = text[:at], closing
    text = _CITATION.sub("", text)
    for _ in range(3):  # an image may be in a link
        text = _LINK.sub(lambda match: match[1] if match[1] is not None else match[2], text)
    text = _LINK_END.sub("", text)
    text, cut = _OPEN_TARGET.subn(r"\1", text)
    if cut:
        state.until = ")"
    elif not state.until and _ends_in_url(text):
        state.until = " "
    state.label = text.endswith("]")
    closed = text.rfind("]") + 1
    text = text[:closed] + _OPEN_LABEL.sub("", text[closed:])
    text = _AUTOLINK.sub(lambda match: keep(_spoken_address(match[1])), text)
    text = _BARE_URL.sub(lambda match: _kept_address(match[0], keep), text)
    text = _TAG.sub(lambda match: "\n" if match[2].lower() in _APART else "", text)
    text, cut = _OPEN_TAG.subn("", text)
    if cut:
        state.until = ">"
    text = _ENTITY.sub(lambda match: keep(html.unescape(match[0])), text)
    return _SHORT_CODE.sub("", text)


def _kept_address(url: str, keep: Callable[[str], str]) -> str:
    address = url.rstrip(".,;:!?'\")]}*_~…")
    if "(" in address and url[len(address) :].startswith(")"):
        address += ")"
    return keep(_spoken_address(address)) + url[len(address) :]


def _spoken_address(url: str) -> str:
    """The host of a URL, with its path if that is one short word; an e-mail address."""
    if url.lower().startswith("mailto:"):
        return url[len("mailto:") :].partition("?")[0]
    parts = _URL_PARTS.fullmatch(url)
    if parts is None:
        return url
    host, path, query = parts.groups()
    return f"{host}/{path.rstrip('/')}" if not query and _SHORT_PATH.fullmatch(path) else host


def _emphasis(text: str) -> str:
    """``text`` without the marks of emphasis, which may open or close in another piece.

    A run between spaces is no mark ("2 * 3"), nor is one within a word, unless it ends what was
    opened (``snake_case``, "2**8").
    """
    opened: list[str] = []
    kept: list[str] = []
    at = 0
    for match in _EMPHASIS.finditer(text):
        start, end = match.span()
        if _is_mark(text, match, opened, text[max(0, start - 1) : start], text[end : end + 1]):
            kept.append(text[at:start])
            at = end
    return "".join(kept) + text[at:]


def _is_mark(text: str, match: re.Match[str], opened: list[str], before: str, after: str) -> bool:
    run = match[0]
    left, right = before.strip(), after.strip()
    if run == "~":  # "~5 minutes"
        return False
    if not left and not right:
        return not (before and after) or len(run) > 2
    if left.isalnum() and right.isalnum():
        if run[0] != "_" and run in opened:
            opened.remove(run)
            return True
        return False
    if right and right not in ".,;:!?)" and (not left or left in _OPENING):
        number = (
            right.isdigit()
            and text[max(0, match.start() - 8) : match.start()].rstrip()[-1:].isdigit()
        )
        if number and run == "*":  # "2 *3"
            return False
        opened.append(run)
        return True
    if run in opened:
        opened.remove(run)
        return True
    return left != "" and (not right or right in _CLOSING)
