"""Where a sentence ends: the rules, over what stands between two words.

A *gap* is a longest run of characters that are no letters and no numbers. Sentences end in gaps
only, so that every piece has something to speak. Whether one ends there is told from the text
before the gap, the gap, and the word after it: its first letter, or all of it where that is needed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

from utterwire_client.abbreviations import (
    AFTER_TIME,
    ANNOUNCING,
    COUNTRIES,
    EXCLAIMING,
    HESITATIONS,
    HUMMED,
    LETTERED,
    OF_COUNTRY,
    PRONOUNS,
    SAINTS,
    SMALL_STARTERS,
    UNITS,
    abbreviations,
)

__all__ = ["LINE_BREAK", "Boundaries", "Undecided", "is_joined", "may_end"]

#: Cuts a text into sentences: language and text in, sentences out, which joined are the text.
Segmenter = Callable[[str, str], list[str]]


class Undecided(Enum):
    """No place, so far: there is ``NO`` boundary, or the whole ``WORD`` is needed to tell."""

    NO = "no"
    WORD = "word"


NO: Final = Undecided.NO
WORD: Final = Undecided.WORD

_MARKS: Final = ".!?…‥"
#: After these a sentence ends without a space: CJK, Devanagari, Arabic, Urdu, Armenian, Ethiopic,
#: Burmese, Khmer, Tibetan.
_FULL_STOPS: Final = "。！？｡．।॥؟۔։።፧။។།"
_STOPS: Final = _MARKS + _FULL_STOPS
_NEWLINES: Final = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_BULLETS: Final = "•⁃‣◦▪●∙"
_RIGHT: Final = "’”»›)]}」』）】》〉〕］｣"
_LEFT: Final = "‘“„«‹([{「『（【《〈〔［｢¿¡"
#: They open and close alike.
_EITHER: Final = "\"'*_`~"
_CONTINUING: Final = ",;:=<+/&|%，、；："
#: Lines of so many characters were wrapped by hand, where nothing else ends them.
_LONG_LINE: Final = 60

LINE_BREAK: Final = re.compile(rf"\r\n|[{_NEWLINES}]")
_LINE_END: Final = re.compile(
    rf"(?<![ \t])[ \t]*+(?:\r\n|[{_NEWLINES}])(?:[ \t]*(?:\r\n|[{_NEWLINES}]))*"
)
_STOP: Final = re.compile(f"[{re.escape(_STOPS)}]")
#: Dots may stand apart: "and so on . . .".
_STOP_RUN: Final = re.compile(
    rf"[{re.escape(_STOPS)}]"
    rf"(?:[{re.escape(_STOPS)}]|[ \u00a0]\.(?=[\s.{re.escape(_RIGHT + _EITHER)}]|\Z))*"
)
_TELLING: Final = re.compile(f"[{re.escape(_STOPS + _NEWLINES + _BULLETS)});\u037e]")
_BULLET: Final = re.compile(rf"(?:\A|(?<=\S\s))\s*+[{_BULLETS}]")

_LINE_MARKER: Final = re.compile(rf"\s*(?:[-+*–—]\s|[{_BULLETS}#>|]|\*\*|__|```|~~~)")
_NUMBER_MARKER: Final = re.compile(r"\s*[*_]{0,2}[(\[]?(?:\d{1,3}|[A-Za-z])[.)]")
#: A piece that is only this has not begun to speak.
_LIST_MARKER: Final = re.compile(r"[\W_]*(\d{1,3}|[A-Za-z]|[ivx]{2,5}|[IVX]{2,5})")
_COLON_MARKER: Final = re.compile(r"[:：]\s+[(*]*[1aA]\Z")
_STEP: Final = re.compile(
    r"[\W_]*(?:step|schritt|étape|paso|passo|stap|krok|шаг|adım)\s+\d{1,2}", re.IGNORECASE
)
_ITEM: Final = re.compile(r"(?:\A[\W_]*?|:\s+)(\(?)(\d{1,2}|[a-z])([.)]{1,2})\s")
_NEXT_ITEM: Final = re.compile(r"[^\s,;:]\s+(\(?)(\d{1,2}|[a-z])\Z")
_ITEM_END: Final = re.compile(r"([.)]{1,2})[ \t]+[^\w\n]*")
#: What is counted in mid-sentence: "use version 2. Then".
_COUNTED: Final = re.compile(
    r"\b(?:version|step|chapter|page|number|part|level|phase|section|of|to|at|in|by|than|is|are"
    r"|was|and|or|about|room|platform|gate|line|the)\Z",
    re.IGNORECASE,
)

_EMOTICON: Final = re.compile(r"[:;=][-'^]?[)(\]\[/|*]+(?!\S)")
_LETTER_STOP: Final = re.compile(r"[^\W\d_]\.")
_LETTERS: Final = re.compile(r"[^\W\d_](?:\.[^\W\d_])+")
#: "J.-P. Sartre", "H.-J. Vogel".
_HYPHENATED: Final = re.compile(r"[^\W\d_]\.-[^\W\d_]")
_DEGREE: Final = re.compile(r"[A-Z][a-z]{0,2}(?:\.[A-Z][a-z]{0,2})+")
_NUMERIC: Final = re.compile(r"[^\w\s]*\d[\d.,:/%–-]*")
_NUMBERED_STREET: Final = re.compile(r"\d+(?:st|nd|rd|th)")
_ROMAN: Final = re.compile(r"[IVXLC]+")
_ADDRESS: Final = re.compile(r"://|www\.|[@\\=&#_]|\w/\w")
_NO_VOWEL: Final = re.compile(r"[b-df-hj-np-tv-xzB-DF-HJ-NP-TV-XZ]{2,5}")
#: `sentencex` doesn't cut within quotes and brackets, and cannot take half characters.
_NOT_PLAIN: Final = re.compile(f"[{re.escape(_RIGHT + _LEFT + _EITHER)}\ud800-\udfff]")
#: What it is shown of the text before a stop, in characters.
_SHOWN: Final = 48


def may_end(gap: str) -> bool:
    """Whether a sentence, a line or an item of a list could end in ``gap``: a quick look."""
    return _TELLING.search(gap) is not None


def is_joined(char: str) -> bool:
    """Whether ``char`` belongs to the one before it, so that no cut goes between them."""
    return not char.isascii() and (
        unicodedata.category(char) in {"Mn", "Mc", "Me"}
        or char in "\u200c\u200d"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
    )


@dataclass(frozen=True)
class _Place:
    """A stop, and what stands around it."""

    #: From where the piece begins to the gap: ends in a letter or number.
    body: str
    #: What stands between ``body`` and the stop, closing marks mostly.
    before: str
    #: The stop: "." or "?!", and more that follow a closing mark.
    stops: str
    #: What closes the sentence after it, emoji too.
    closed: str
    #: The rest of the gap, spaces and what opens the next sentence.
    rest: str
    #: The next word, or its first character as long as ``follow`` is None.
    word: str
    #: What comes after the word.
    follow: str | None
    #: The line that ``body`` ends in.
    line: str

    @property
    def char(self) -> str:
        return self.word[0]

    @cached_property
    def glued(self) -> bool:
        return not any(map(str.isspace, self.rest))

    @property
    def apart(self) -> bool:
        """Whether a space stands before the stop: "Voilà !"."""
        return self.before[-1:].isspace()

    @property
    def rising(self) -> bool:
        """Whether the next word looks like a beginning."""
        return self.char.isupper() or self.char.istitle() or any(c in "¿¡" for c in self.rest)

    @property
    def quoted(self) -> bool:
        return any(char in "\"'’”»“‘«)]" for char in self.closed)

    @cached_property
    def token(self) -> str:
        """The last word of ``body`` with what is glued to it: "e.g", "192.168.0.1"."""
        return _last_token(self.body)

    @cached_property
    def lead(self) -> str:
        """What stands before ``token``."""
        return self.body[: len(self.body) - len(self.token)].rstrip()

    @cached_property
    def previous(self) -> str:
        return _last_token(self.lead)

    @property
    def alone(self) -> bool:
        """Whether ``token`` is the piece's first word."""
        return not any(map(str.isalnum, self.lead))


class Boundaries:
    """The rules of one language.

    ``segment`` is asked about words that end in a period and stand in no table.
    """

    def __init__(self, language: str, segment: Segmenter) -> None:
        self._language = language
        self._segment = segment
        self._words = abbreviations(language)

    def find(
        self, body: str, gap: str, word: str, follow: str | None, line: str
    ) -> int | Undecided:
        """Where the piece ``body + gap`` ends: an offset from the start of ``body``.

        ``body`` begins where the last piece ended, and ends in a letter or number. ``word`` is the
        first character after the gap while ``follow`` is None; then it is the whole word, and
        ``follow`` is what comes after it ("" at the end of the text, or of a very long word).
        ``line`` is the line that ``body`` ends in, with what earlier pieces had of it.
        """
        gap = gap.replace("\u037e", "?")  # the Greek question mark, which is often a semicolon
        if self._language == "el":
            gap = gap.replace(";", "?")
        item = _before_next_item(body, gap, word)
        if item is not None:
            return item
        line_end = _LINE_END.search(gap)
        if line_end is not None:
            place = self._at_line_end(body, gap, word, follow, line, line_end)
        elif _STOP.search(gap):
            place = self._at_stop(body, gap, word, follow, line)
        else:
            bullet = _BULLET.search(gap) if len(gap) > 1 else None
            place = NO if bullet is None else bullet.start()
        return place if isinstance(place, Undecided) else len(body) + place

    def _at_line_end(
        self,
        body: str,
        gap: str,
        word: str,
        follow: str | None,
        line: str,
        line_end: re.Match[str],
    ) -> int | Undecided:
        before, after = gap[: line_end.start()], gap[line_end.end() :]
        end = line_end.end()
        if len(LINE_BREAK.findall(gap)) > 1 or _LINE_MARKER.match(after + word):
            return end
        if _LIST_MARKER.fullmatch(body):
            return NO
        char = word[0]
        if _STOP.search(before):
            place = self._at_stop(body, f"{before} {after}", word, follow, line)
            if place is not NO:
                return WORD if place is WORD else end
            named = _last_token(body).lower() in self._words.titles | self._words.going_on
            if char.islower() or char.isdigit() or named:
                return NO
        tail = before.rstrip()[-1:]
        if tail and tail in ":：":
            return end
        if char.islower():
            return end if len(line.split()) <= 2 and not tail else NO
        marked = _LINE_MARKER.match(line) or _NUMBER_MARKER.match(line)
        if tail == "-" or (len(line) >= _LONG_LINE and not marked):
            if not char.isdigit():
                return NO
            if follow is None:
                return WORD
            return end if follow in (".", ")") and len(word) <= 2 else NO
        return end

    def _at_stop(
        self, body: str, gap: str, word: str, follow: str | None, line: str
    ) -> int | Undecided:
        run = _STOP_RUN.search(gap)
        assert run is not None
        before = gap[: run.start()]
        if before and before[-1] in "([{<#@$\\/=¿¡":  # "[...]", "#!/bin/sh"
            return NO
        end = _closed(body, gap, run.end())
        closed = gap[run.end() : end]
        stops = run[0] + "".join(char for char in closed if char in _STOPS)
        place = _Place(body, before, stops, closed, gap[end:], word, follow, line)
        following = place.rest.lstrip()[:1]
        if following and following in _CONTINUING:
            return NO
        if any(char in _FULL_STOPS for char in stops):
            return NO if stops == "．" and place.char.isdigit() and place.glued else end
        if place.apart and place.glued and not stops.strip(". "):  # ".NET", ".5"
            return NO
        if "!" in stops or "?" in stops:
            ends = self._after_mark(place)
        elif stops == ".":
            ends = self._after_period(place)
        else:
            ends = self._after_ellipsis(place)
            if ends is True and not place.apart and stops.startswith(". "):
                end = run.start() + 1  # "compounds. . . . The": the first is the sentence's own
        if isinstance(ends, Undecided):
            return ends
        return end if ends else NO

    def _after_mark(self, at: _Place) -> bool | Undecided:
        exclaiming = at.token.lower() in EXCLAIMING
        if at.glued:
            if _ADDRESS.search(at.token) or not _opens(at.rest):
                return False
            if _is_caseless(at.char):
                return not exclaiming
            if _is_caseless(at.body[-1]) and at.char.isalpha():
                return True
            if not at.rising or at.follow is None:
                return WORD if at.rising else False
            return _is_sentence_word(at.word) and at.follow not in ("=", "@", "/", "_", "(", "&")
        if at.char.islower():
            if at.quoted or _is_lower_style(at.body):
                return not at.quoted
            if at.follow is None:
                return WORD
            starts = at.word in SMALL_STARTERS or not at.word.islower()  # "iPhones"
            return starts and not exclaiming
        if exclaiming and "?" not in at.stops and not at.quoted:
            return self._starts(at)
        return True

    def _after_ellipsis(self, at: _Place) -> bool | Undecided:
        if not at.rising:
            return False
        if at.follow is None:
            return WORD
        if at.glued:
            return _is_sentence_word(at.word)
        if at.stops.startswith(". ") and not at.apart:
            return True
        hesitating = at.apart or at.body.strip("\"'“‘«(*_ ").lower() in HESITATIONS
        return not (hesitating and at.word == "I")

    def _after_period(self, at: _Place) -> bool | Undecided:
        if (not at.before.strip() or at.before[0] == ")") and _is_marker(at.body, at.line):
            return False
        if at.glued:
            return self._after_glued(at)
        char = at.char
        if at.before.strip():  # "(and coffee).", "3%.", "**bold**.": no abbreviation
            if char.islower():
                return not at.quoted and at.before[0] != "°"
            return at.before.strip() != "°" or not char.isdigit()
        if char.islower() and at.quoted:
            return False
        kind = self._kind(at)
        if kind is not None:
            return self._after_abbreviation(at, kind)
        token = at.token
        if _NUMERIC.fullmatch(token):
            return self._after_number(at)
        if self._words.ordinals and _ROMAN.fullmatch(token) and char.islower():
            return False
        whole = token.lower() in self._words.words or (token.isupper() and len(token) > 1)
        splits = whole or _splits(self._segment, self._language, at.body, at.word)
        if char.islower():
            return splits and not _looks_short(token, at.alone)
        short = _NO_VOWEL.fullmatch(token) is not None and token.lower() not in HUMMED
        if char.isdigit():
            return splits and not short
        if splits and not (short and token.istitle()):
            return True
        return self._starts(at)

    def _after_glued(self, at: _Place) -> bool | Undecided:
        """After a period with no space: two texts were joined, or it is "Node.js"."""
        token = at.token
        if not _opens(at.rest) or (at.body + at.before).count("`") % 2:
            return False
        if _is_caseless(at.char):
            return _is_caseless(at.body[-1]) or is_joined(at.body[-1]) or bool(at.before)
        if not at.rising:
            return False
        if at.follow is None:
            return WORD
        if not _is_sentence_word(at.word) or at.follow in ("@", "_", "/", "(", "=", "-", "\\"):
            return False
        known = at.word.lower() in self._words.starters or at.word.lower() in self._words.titles
        number = _NUMERIC.fullmatch(token) is not None or (
            "." not in token and any(map(str.isdigit, token))  # "72°F", "B4"
        )
        if _ADDRESS.search(token) or ("." in token and not number):
            # "report.pdf.It has", but neither "e.g.This" nor "a.The.b".
            return known and at.follow != "." and token.lower() not in self._words.going_on
        if at.follow == "." and not known and (not token.islower() or token == "www"):
            return False
        if number:
            return len(at.word) > 1
        if at.before.strip() or _is_caseless(token[-1]):
            return True
        return (token.islower() and len(token) > 1) or (known and len(token) > 2)

    def _kind(self, at: _Place) -> str | None:
        """Which table the word before the period is in, if it is a shortened one."""
        words, token = self._words, at.token
        key = token.lower()
        if len(token) == 1 and _LETTER_STOP.fullmatch(at.previous):  # "p. m.", "z. B."
            key = at.previous.lower() + key
        if key in ("a.m", "p.m"):
            return "time"
        if at.alone and key in ANNOUNCING:
            return "going on"
        if _HYPHENATED.fullmatch(token):
            return "letter"
        if key in words.going_on:
            return "going on"
        if len(token) == 1 and key in words.open and len(key) > 1:
            return "open"
        if len(token) == 1 and token.isalpha():
            # A syllable of Korean or a Chinese character is a word.
            cased = token.isupper() or token.islower()
            return "letter" if cased or "\u0590" <= token < "\u0e00" else None
        counted = at.previous[-1:].isdigit()
        if token.islower() and key in words.words and not counted:
            return "everyday" if key in words.counting else None  # "no. 5", but "no."
        if key in ("st", "dr") and token.istitle():
            return "street"
        if key in words.titles and (not token.islower() or "." in key):
            return "title"
        if counted and key in UNITS:
            return "unit"
        if key in words.counting or (words.ordinals and key.endswith("str") and len(key) > 3):
            return "counting"
        if key in COUNTRIES:
            return "country"
        if key in words.open or _LETTERS.fullmatch(token) or _DEGREE.fullmatch(token):
            return "open"
        return None

    def _after_abbreviation(self, at: _Place, kind: str) -> bool | Undecided:
        char, token = at.char, at.token.lower()
        if kind == "going on":
            return False
        if kind == "everyday":
            return not char.isdigit()
        if char.islower():
            return False
        closing = token in ("etc", "ecc", "enz", "itd", "itp", "osv", "usw")
        if char.isdigit():
            return closing and kind == "open"
        if kind == "letter":
            return self._after_letter(at)
        if kind == "title":
            return self._after_title(at) if at.rising else False
        if kind == "street":
            return self._after_street(at)
        if kind == "unit":
            return self._starts(at) if self._words.capital_nouns else True
        if kind == "time":
            return WORD if at.follow is None else at.word.lower() not in AFTER_TIME
        if kind == "country" and at.rising:
            return WORD if at.follow is None else at.word.lower() not in OF_COUNTRY
        if kind == "counting":
            if at.alone and token in self._words.words:  # "No. Really."
                return True
            return False if _is_caseless(char) else self._starts(at)
        if _is_caseless(char) or (closing and not self._words.capital_nouns):
            return True
        return self._starts(at)

    def _after_letter(self, at: _Place) -> bool | Undecided:
        """After a single letter: an initial, a unit, "plan B", or "you and I"."""
        token, previous = at.token, at.previous
        if token.islower() or _is_caseless(token):
            if not previous[-1:].isdigit():
                return False
            return self._starts(at) if self._words.capital_nouns else True
        if token == "I" and previous.islower():
            return True
        if previous.lower() in LETTERED:
            return True
        if previous.rstrip("°")[-1:].isdigit() and token not in ("N", "E", "S", "W"):
            return True  # "20° C.", but "12 W. Elm St."
        # "M. Il" begins a name, "World War I. It" does not.
        return self._starts(at) if previous else False

    def _after_title(self, at: _Place) -> bool | Undecided:
        if at.follow is None:
            return WORD
        return at.word.lower() in PRONOUNS and not at.alone

    def _after_street(self, at: _Place) -> bool | Undecided:
        """After "St.", a street or a saint, or "Dr.", a drive or a doctor."""
        if at.follow is None:
            return WORD
        street = at.token == "St"
        if street and _NUMBERED_STREET.fullmatch(at.previous):
            return True
        if street and at.word.lower() in SAINTS:
            return False
        name = at.previous[:1].isupper() and at.previous.isalpha() and len(at.previous) > 1
        if name and any(map(str.isalnum, at.lead[: len(at.lead) - len(at.previous)])):
            # "Main St. Springfield, IL"
            place = at.rising and at.follow == "," and at.word.lower() not in self._words.starters
            return not place if street else at.word.lower() in self._words.starters
        return self._after_title(at)

    def _after_number(self, at: _Place) -> bool | Undecided:
        digits = at.token.lstrip("+-([#")
        if not self._words.ordinals or not digits.isdigit() or len(digits) > 2:
            return True
        if at.char.islower() or at.char.isdigit():
            return False
        return self._starts(at) if self._words.capital_nouns else True

    def _starts(self, at: _Place) -> bool | Undecided:
        """Whether the next word begins sentences."""
        if at.follow is None:
            return WORD
        if len(at.word) == 1 and at.follow == ".":  # one more initial
            return False
        return at.word.lower() in self._words.starters


def _before_next_item(body: str, gap: str, word: str) -> int | None:
    """The end of an item before the next in the same line: "1) Tea 2) Coffee"."""
    label_end = _ITEM_END.fullmatch(gap)
    if label_end is None or not word[0].isupper():
        return None
    tail = max(0, len(body) - 16)
    following = _NEXT_ITEM.search(body, tail)
    first = _ITEM.match(body) or _ITEM.search(body)
    if following is None or first is None or first.end() > following.start():
        return None
    (parenthesis, label), end = following.groups(), following.start() + 1
    if (parenthesis, label_end[1]) != (first[1], first[3]) or not _is_next(first[2], label):
        return None
    if label.isdigit() and _COUNTED.search(body[max(0, tail - 16) : end]):
        return None
    return end


def _is_next(label: str, following: str) -> bool:
    if label.isdigit() != following.isdigit():
        return False
    if label.isdigit():
        return int(following) == int(label) + 1
    return ord(following) == ord(label) + 1


def _is_marker(body: str, line: str) -> bool:
    """Whether ``body`` is what an item of a list begins with, and its period belongs to that."""
    if _COLON_MARKER.search(body, max(0, len(body) - 16)) or _STEP.fullmatch(body):
        return True
    marker = _LIST_MARKER.fullmatch(body)
    if marker is None or not marker[1].isdigit() or int(marker[1]) < 2:
        return marker is not None
    # In mid-line only the one after another: "1. Open it. 2. Go in.", but not "How many? 12. So".
    earlier = line[: len(line) - len(body.lstrip())]
    if not any(map(str.isalnum, earlier)):
        return True
    return re.search(rf"(?<!\w){int(marker[1]) - 1}[.)]", earlier) is not None


def _closed(body: str, gap: str, at: int) -> int:
    """Past what belongs to a sentence after its stop: closing marks, more stops, emoji."""
    while at < len(gap):
        char, following = gap[at], gap[at + 1 : at + 2]
        if char in _EITHER:
            run = _past(gap, at, char.__eq__) - at
            following = gap[at + run : at + run + 1]
            ends = following.isspace() or (following and following in _RIGHT + _EITHER + _STOPS)
            # Before a word it closes what is open, or opens something.
            if not ends and (body + gap[:at]).count(char) // run % 2 == 0:
                break
            at += run - 1
        elif char.isspace():
            ahead = _past(gap, at, str.isspace)
            emoticon = _EMOTICON.match(gap, ahead)
            if emoticon is not None:
                at = emoticon.end()
                continue
            if ahead == len(gap) or not (gap[ahead] in "»›" or _is_symbol(gap[ahead])):
                break
            if gap[ahead] in "»›" and ahead + 1 == len(gap) and not _quoting(body):
                break  # »the other way round«
            at = ahead
        elif char in "“‘«":  # „German“ and »the other way round«
            if not following.isspace():
                break
        elif not (char in _RIGHT or char in _STOPS or _is_symbol(char)):
            break
        at += 1
    return at


def _quoting(body: str) -> bool:
    """Whether a quote « or ‹ is open at the end of ``body``."""
    return body.count("«") > body.count("»") or body.count("‹") > body.count("›")


def _past(text: str, at: int, belongs: Callable[[str], bool]) -> int:
    """The end of the run of such characters that begins at ``at``."""
    while at < len(text) and belongs(text[at]):
        at += 1
    return at


def _is_symbol(char: str) -> bool:
    """Whether ``char`` is an emoji, or a part of one: it follows what it comments."""
    return not char.isascii() and unicodedata.category(char) in {
        "So",
        "Sk",
        "Cf",
        "Mn",
        "Me",
        "Cn",
        "Co",
    }


def _splits(segment: Segmenter, language: str, body: str, word: str) -> bool:
    """Whether ``segment`` ends a sentence at a period between ``body`` and ``word``."""
    tail = body[-_SHOWN:]
    if len(body) > _SHOWN:
        tail = tail.partition(" ")[2] or tail
    tail = _NOT_PLAIN.sub(" ", tail).strip()
    wanted, end = len(tail) + 1, 0
    for sentence in segment(language, f"{tail}. {word}"):
        end += len(sentence)
        if end >= wanted:
            return end <= wanted + 1
    return False


def _last_token(text: str) -> str:
    parts = text[-128:].rsplit(None, 1)
    token = re.split("[—–…]", parts[-1])[-1] or parts[-1] if parts else ""
    return token.lstrip(_LEFT + _EITHER + _BULLETS + "#>-")


def _opens(rest: str) -> bool:
    return all(char in _LEFT + _EITHER + "—–-" for char in rest)


def _is_caseless(char: str) -> bool:
    return char.isalpha() and not (char.isupper() or char.islower() or char.istitle())


def _is_sentence_word(word: str) -> bool:
    """Whether ``word`` could begin a sentence that was joined to another."""
    return word.isalpha() and (word in ("I", "A") or word[1:].islower())


def _is_lower_style(body: str) -> bool:
    """Whether the piece begins in lower case, as people type in a hurry."""
    return next((char for char in body if char.isalpha()), "").islower()


def _looks_short(token: str, alone: bool) -> bool:
    """Whether an unknown word before a period and lower case may be an abbreviation."""
    if _NO_VOWEL.fullmatch(token):
        return token.lower() not in HUMMED
    return token.istitle() and len(token) <= 4 and not alone
