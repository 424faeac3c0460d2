"""English text as it is read out: numbers, dates, money, units, symbols and code in words.

The number words come from `num2words`; which words a piece of text needs is decided here, since
each token has to keep the stretch of the text that it speaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from utterwire_server.text.folding import JOINING_SPACE, FoldedText
from utterwire_server.text.numbers import MONTHS, NumberWords, roman_value
from utterwire_server.text.vocabulary_en import (
    ABBREVIATIONS,
    CURRENCIES,
    HTML_TAGS,
    LABELLED,
    MAGNITUDES,
    MONTH_NAMES,
    NUMBERED,
    REGNAL,
    ROMAN_LEADERS,
    STREETS,
    SYMBOLS,
    TITLES,
    TOP_DOMAINS,
    UNITS,
    VERSIONED,
    WEEKDAYS,
)

__all__ = ["LETTER_NAMES", "EnglishNormaliser", "Token", "spelled"]

#: Capitals of full width, in a token's words, are letters to be named: "ＧＰＵ" is "gee pee you".
#: (No such capital comes through from the text: folding makes them plain.)
LETTER_NAMES: Final = {chr(0xFF21 + i): chr(ord("A") + i) for i in range(26)}
_TO_LETTER_NAMES: Final = {ord(plain): wide for wide, plain in LETTER_NAMES.items()}


def spelled(letters: str) -> str:
    """``letters`` (a to z, either case) so that each is spoken by its name."""
    return letters.upper().translate(_TO_LETTER_NAMES)


@dataclass(frozen=True, slots=True)
class Token:
    """A word of the text, or a mark of punctuation, and how it is read.

    ``spoken`` is one word or more, or one mark. ``char_start`` and ``char_end`` are the stretch of
    the text that it speaks. ``glued`` says that no space stands before it; ``mark`` that it is
    punctuation and no word.
    """

    spoken: str
    char_start: int
    char_end: int
    glued: bool = False
    mark: bool = False


#: Longer words are read in parts: nothing after this is quick with a word of 10,000 letters.
_LONGEST_WORD: Final = 40

_END: Final = r"(?![\w])"
_AMOUNT: Final = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:\xa0\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+"
_CURRENCY: Final = "|".join(
    re.escape(sign) for sign in sorted(CURRENCIES, key=len, reverse=True) if not sign.isalpha()
)
_CODES: Final = "|".join(code for code in CURRENCIES if code.isalpha())
_MAGNITUDE: Final = "|".join(sorted(MAGNITUDES, key=len, reverse=True))
_LARGE: Final = "thousand|million|billion|trillion"
#: "in" is one only with a point after it.
_UNIT: Final = "|".join(
    re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True) if unit != "in"
)
_MONTH: Final = "|".join(sorted(MONTH_NAMES, key=len, reverse=True))
_AM_PM: Final = r"(?P<half>[AaPp])(?:\.\s?[Mm]\.|\.?[Mm](?![\w]))"
_HOUR: Final = r"(?:[01]?\d|2[0-4])"

#: Units only where they are close to the number; after a space they are words too often.
_CLOSE_ONLY: Final = frozenset({"pp", "max", "cc", "ha"})

#: Abbreviations that may be a sentence's last word.
_ENDING: Final = frozenset(
    {"etc", "Inc", "Ltd", "Corp", "Co", "Jr", "Sr", "al", "Bros", "Ave", "Rd"}
)
_EMERGENCY: Final = frozenset({"911", "999", "112", "101", "111", "988"})
#: After these a lone "A" is the letter, and no article.
_GRADED: Final = frozenset(
    "vitamin plan grade section class type appendix team group point".split()
)

_UNIT_IN_BRITAIN: Final = re.compile(r"(met|lit)er(s?)\b")

_FRACTIONS: Final = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5),
    "⅗": (3, 5), "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅐": (1, 7), "⅛": (1, 8), "⅜": (3, 8),
    "⅝": (5, 8), "⅞": (7, 8), "⅑": (1, 9), "⅒": (1, 10),
}  # fmt: skip
_FRACTION: Final = "".join(_FRACTIONS)

_MARKS: Final = frozenset(';:,.!?—…"()“”')
_GREEK: Final = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "θ": "theta",
    "λ": "lambda", "π": "pie", "σ": "sigma", "τ": "tau", "φ": "phi", "ω": "omega", "Δ": "delta",
    "Σ": "sigma", "Ω": "omega",
}  # fmt: skip
#: Any letter. (Python counts raised digits and fractions among the characters of words.)
_LETTERS: Final = rf"[^\W\d_²³¹⁰⁴⁵⁶⁷⁸⁹{_FRACTION}]"
_RUNS: Final = re.compile(rf"\d+|{_LETTERS}+")
_HUMPS: Final = re.compile(r"[^\W\d_a-z]+(?![a-z])|[^\W\d_a-z]?[a-z]+|[^\W\d_]+?")
_STOPS: Final = frozenset(".!?:…")
_STATEMENT: Final = re.compile(r" [a-z][^.!?\n]{0,400}(?P<end>[.!?\n]|\Z)")
_WORD: Final = re.compile(rf"{_LETTERS}+(?:'{_LETTERS}+)*")


class _Scan:
    """Where one pass over a stretch of text is, and what it has found so far."""

    __slots__ = ("at", "folded", "last", "source", "tokens")

    def __init__(self, source: FoldedText) -> None:
        self.source = source
        self.folded = source.folded
        self.at = 0
        self.last = ""  # the word before, as it stands in the text
        self.tokens: list[Token] = []

    def say(self, words: str, start: int, end: int) -> None:
        """Speak ``words`` for ``folded[start:end]``; no words, no token."""
        if words:
            char_start, char_end = self.source.span(start, end)
            if self.tokens and self.tokens[-1].char_end > char_start:
                # Two halves of one character (a ligature): the second is spoken by the first.
                before = self.tokens.pop()
                words = words if before.mark else f"{before.spoken} {words}"
                char_start = before.char_start
            self.tokens.append(Token(words, char_start, char_end, self._glued(start)))
        self.last = self.folded[start:end]

    def mark(self, mark: str, start: int, end: int) -> None:
        """A mark of punctuation, unless the same stands just before it."""
        if self.tokens and self.tokens[-1].mark and self.tokens[-1].spoken == mark:
            return
        char_start, char_end = self.source.span(start, end)
        if self.tokens and self.tokens[-1].char_end > char_start:
            return
        self.tokens.append(Token(mark, char_start, char_end, self._glued(start), mark=True))

    def before(self, count: int = 1) -> str:
        return self.folded[max(0, self.at - count) : self.at]

    def line_begins(self) -> bool:
        line = self.folded.rfind("\n", 0, self.at) + 1
        return not self.folded[line : self.at].strip(" >#-*+\xa0")

    def _glued(self, start: int) -> bool:
        return bool(self.tokens) and not self.folded[start - 1 : start].isspace()


_Handler = Callable[["EnglishNormaliser", _Scan, "re.Match[str]"], bool]


class EnglishNormaliser:
    """Reads English text as tokens, in the manner of America, or of Britain.

    ``known`` says whether a word (in lower case) is in a dictionary of pronunciations; it decides
    what is spelled, what is split, and what is left whole.
    """

    def __init__(self, british: bool, known: Callable[[str], bool] = lambda _: True) -> None:
        self._british = british
        self._known = known
        self._numbers = NumberWords(british)

    def __call__(self, text: str, start: int = 0, end: int | None = None) -> list[Token]:
        """The tokens of ``text[start:end]``, in order, none overlapping. Nothing is raised."""
        scan = _Scan(FoldedText(text, start, end))
        folded = scan.folded
        shouted = sum(map(str.isupper, folded)) > 12 and folded.upper() == folded
        if shouted:
            # A text in capitals is loud, not an acronym.
            scan.folded = folded = folded.lower() if len(folded.lower()) == len(folded) else folded
        while scan.at < len(folded):
            char = folded[scan.at]
            if char.isspace():
                scan.at += 1
                continue
            for pattern, handler in _rules(char):
                match = pattern.match(folded, scan.at)
                if match is not None and handler(self, scan, match):
                    scan.at = max(match.end(), scan.at)
                    break
            else:
                self._symbol(scan)
        return scan.tokens

    # Addresses

    def _url(self, scan: _Scan, match: re.Match[str]) -> bool:
        address = match["address"].rstrip(".,;:!?'\")")
        if not address:
            return False
        start = match.start("address")
        end = start + len(address)
        scan.say(self._address(address), match.start(), end)
        self._punctuate(scan, end, match.end())
        return True

    def _domain(self, scan: _Scan, match: re.Match[str]) -> bool:
        if match["top"].lower() not in TOP_DOMAINS:
            return False
        if match["top"].lower() not in ("com", "org", "net") and match["top"][0].isupper():
            return False
        return self._url(scan, match)

    def _email(self, scan: _Scan, match: re.Match[str]) -> bool:
        scan.say(self._address(match[0]), match.start(), match.end())
        return True

    def _address(self, address: str) -> str:
        names = {
            ".": "dot", "/": "slash", "@": "at", "-": "dash", "_": "underscore",
            "?": "question mark", "=": "equals", "&": "and", "#": "hash", ":": "colon",
            "+": "plus", "%": "percent", "~": "tilde",
        }  # fmt: skip
        spoken = []
        for part in re.findall(r"[A-Za-z]+|\d+|[^\W\d_]+|.", address.rstrip("/")):
            if part.isdigit():
                spoken.append(self._numbers.label(part) if part.isascii() else "")
            elif part.isalpha():
                spoken.append(self._part(part))
            else:
                spoken.append(names.get(part, ""))
        return " ".join(word for word in spoken if word)

    def _part(self, letters: str) -> str:
        """A run of letters in an address or a name: a word that is known, else its letters."""
        lower = letters.lower()
        if not letters.isascii():
            return letters
        if lower == "www":
            return spelled(lower)
        if len(letters) == 1 or (len(letters) <= 3 and not self._known(lower)):
            return spelled(letters)
        if not set(lower) & set("aeiouy"):
            return spelled(letters)
        return lower if self._known(lower) or letters.islower() else letters

    def _address_ip(self, scan: _Scan, match: re.Match[str]) -> bool:
        if any(int(part) > 255 for part in match["ip"].split(".")):
            return False
        words = " dot ".join(self._numbers.digits(part) for part in match["ip"].split("."))
        if match["port"]:
            words += f" colon {self._numbers.digits(match['port'])}"
        scan.say(words, match.start(), match.end())
        return True

    # Dates and times

    def _date_iso(self, scan: _Scan, match: re.Match[str]) -> bool:
        words = self._date(match["year"], int(match["month"]), int(match["day"]))
        if words is None:
            return False
        scan.say(words, match.start(), match.end("day"))
        if match["hour"] is not None:
            clock = self._clock(match["hour"], match["minute"])
            if (match["second"] or "00") != "00":
                clock += f" and {self._numbers.cardinal(match['second'])} seconds"
            scan.say(clock, match.start("hour"), match.end())
        return True

    def _date_numeric(self, scan: _Scan, match: re.Match[str]) -> bool:
        first, second, year = int(match["first"]), int(match["second"]), match["year"]
        day, month = (first, second) if self._british else (second, first)
        if match["separator"] == ".":  # no American writes a date so
            day, month = first, second
        if month > 12:
            day, month = month, day
        if len(year) == 2:
            year = ("19" if int(year) > 49 else "20") + year
        words = self._date(year, month, day)
        if words is None:
            return False
        scan.say(words, match.start(), match.end())
        return True

    def _date_short(self, scan: _Scan, match: re.Match[str]) -> bool:
        if scan.last.lower() not in ("on", "since", "until", "till", "by", "before", "dated"):
            return False
        first, second = int(match["first"]), int(match["second"])
        day, month = (first, second) if self._british else (second, first)
        if month > 12:
            day, month = month, day
        words = self._date("", month, day)
        if words is None:
            return False
        scan.say(words, match.start(), match.end())
        return True

    def _date(self, year: str, month: int, day: int) -> str | None:
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        ordinal = self._numbers.ordinal(str(day))
        name = MONTHS[month - 1]
        words = f"the {ordinal} of {name}" if self._british else f"{name} {ordinal}"
        return f"{words} {self._numbers.year(year)}" if year else words

    def _month_first(self, scan: _Scan, match: re.Match[str]) -> bool:
        if int(match["day"]) not in range(1, 32):
            return False
        scan.say(MONTHS[MONTH_NAMES[match["month"]] - 1], *match.span("month"))
        the = "the " if self._british else ""
        scan.say(the + self._numbers.ordinal(match["day"]), *match.span("day"))
        if match["until"]:
            words = f"to {the}{self._numbers.ordinal(match['until'])}"
            scan.say(words, match.start("until"), match.end("until"))
        if match["year"]:
            scan.say(self._numbers.year(match["year"]), *match.span("year"))
        return True

    def _day_first(self, scan: _Scan, match: re.Match[str]) -> bool:
        if int(match["day"]) not in range(1, 32):
            return False
        the = "" if scan.last.lower() == "the" else "the "
        words = f"{the}{self._numbers.ordinal(match['day'])} of"
        scan.say(words, match.start("day"), match.end("day"))
        scan.say(MONTHS[MONTH_NAMES[match["month"]] - 1], *match.span("month"))
        if match["year"]:
            scan.say(self._numbers.year(match["year"]), *match.span("year"))
        return True

    def _month_short(self, scan: _Scan, match: re.Match[str]) -> bool:
        scan.say(MONTHS[MONTH_NAMES[match["month"]] - 1], match.start(), match.end())
        return True

    def _weekday(self, scan: _Scan, match: re.Match[str]) -> bool:
        scan.say(WEEKDAYS[match["day"]], match.start(), match.end())
        return True

    def _time(self, scan: _Scan, match: re.Match[str]) -> bool:
        half = match["half"]
        words = self._clock(match["hour"], match["minute"], bool(half))
        if match["second"]:
            words += f" and {self._numbers.cardinal(match['second'])} seconds"
        scan.say(
            words, match.start(), match.end("second") if match["second"] else match.end("minute")
        )
        return self._half(scan, match)

    def _time_range(self, scan: _Scan, match: re.Match[str]) -> bool:
        scan.say(
            self._clock(match["hour"], match["minute"] or "00", True),
            match.start(),
            match.start("dash"),
        )
        words = self._clock(match["hour2"], match["minute2"] or "00", True)
        end = match.end("minute2") if match["minute2"] else match.end("hour2")
        scan.say(f"to {words}", match.start("hour2"), end)
        return self._half(scan, match)

    def _hour(self, scan: _Scan, match: re.Match[str]) -> bool:
        words = self._clock(match["hour"], match["minute"] or "00", True)
        scan.say(
            words, match.start(), match.end("minute") if match["minute"] else match.end("hour")
        )
        return self._half(scan, match)

    def _half(self, scan: _Scan, match: re.Match[str]) -> bool:
        """The "a.m." of a time, and the end of the sentence if it is one."""
        if match["half"]:
            start = match.start("half")
            scan.say(spelled(match["half"] + "m"), start, match.end())
            self._stop_after(scan, match.end())
        return True

    def _clock(self, hour: str, minute: str, half: bool = False) -> str:
        numbers = self._numbers
        if minute == "00":
            if half:
                return numbers.cardinal(hour)
            if int(hour) in range(1, 13) and not (hour.startswith("0")):
                return f"{numbers.cardinal(hour)} o'clock"
            return f"{numbers.cardinal(hour)} hundred"
        tail = f"oh {numbers.cardinal(minute)}" if minute[0] == "0" else numbers.cardinal(minute)
        return f"{numbers.cardinal(hour)} {tail}"

    # Money

    def _money(self, scan: _Scan, match: re.Match[str]) -> bool:
        sign = _group(match, "code") or match["sign"]
        words = self._amount(
            CURRENCIES[sign], match["amount"], _group(match, "magnitude"), _group(match, "until")
        )
        if _group(match, "minus"):
            words = f"minus {words}"
        if _group(match, "per"):
            scan.say(words, match.start(), match.start("per"))
            scan.say("per", match.start("per"), match.end("per"))
            return True
        scan.say(words, match.start(), match.end())
        return True

    def _pence(self, scan: _Scan, match: re.Match[str]) -> bool:
        names = ("penny", "pence") if match["sign"] == "p" else ("cent", "cents")
        words = f"{self._numbers.decimal(match['amount'])} {names[match['amount'] != '1']}"
        scan.say(words, match.start(), match.end())
        return True

    def _amount(
        self,
        currency: tuple[str, str, str, str],
        amount: str,
        magnitude: str | None,
        until: str | None,
    ) -> str:
        numbers = self._numbers
        one, several, hundredth, hundredths = (self._letters(name) for name in currency)
        plain = _plain(amount)
        if until:
            words = f"{numbers.decimal(plain)} to {numbers.decimal(_plain(until))}"
            if magnitude:
                words += f" {MAGNITUDES[magnitude]}"
            return f"{words} {several}"
        if magnitude:
            return f"{numbers.decimal(plain)} {MAGNITUDES[magnitude]} {several}"
        whole, _, fraction = plain.partition(".")
        if not fraction or not fraction.strip("0"):
            return f"{numbers.cardinal(whole)} {one if whole == '1' else several}"
        if len(fraction) > 2 or not hundredth:
            return f"{numbers.decimal(plain)} {several}"
        cents = str(int(fraction.ljust(2, "0")))
        small = f"{numbers.cardinal(cents)} {hundredth if cents == '1' else hundredths}"
        if not whole.strip("0"):
            return small
        return f"{numbers.cardinal(whole)} {one if whole == '1' else several} and {small}"

    @staticmethod
    def _letters(words: str) -> str:
        """``words`` with its single capitals named ("U S dollars")."""
        return " ".join(spelled(w) if len(w) == 1 and w.isupper() else w for w in words.split())

    # Quantities

    def _range(self, scan: _Scan, match: re.Match[str]) -> bool:
        first, second, unit = match["first"], match["second"], match["unit"]
        if unit and not self._is_unit(unit, match["gap"]):
            return False
        year = len(first) == 4 and first.isdigit() and not unit
        if year and len(second) == 2 and 10 <= int(first[:2]) <= 20:
            words = f"{self._numbers.year(first)} to {self._numbers.label(second)}"
        else:
            read = self._plain_number if not unit else self._numbers.decimal
            words = f"{read(_plain(first))} to {read(_plain(second))}"
        scan.say(words, match.start(), match.end("second"))
        if unit:
            scan.say(self._unit(unit, several=True), match.start("unit"), match.end("unit"))
        return True

    def _quantity(self, scan: _Scan, match: re.Match[str]) -> bool:
        unit, amount, gap = match["unit"], match["amount"], match["gap"]
        if not self._is_unit(unit, gap):
            return False
        plain = _plain(amount)
        several = plain != "1" and gap != "-"
        words = self._numbers.decimal(plain)
        if _group(match, "magnitude"):
            words += f" {match['magnitude']}"
        if _group(match, "minus"):
            words = f"minus {words}"
        scan.say(
            words, match.start(), match.end("magnitude" if _group(match, "magnitude") else "amount")
        )
        scan.say(self._unit(unit, several), match.start("unit"), match.end("unit"))
        return True

    @staticmethod
    def _is_unit(unit: str, gap: str) -> bool:
        return not (gap and unit in _CLOSE_ONLY)

    def _unit(self, unit: str, several: bool) -> str:
        words = self._letters(UNITS[unit][several])
        return _UNIT_IN_BRITAIN.sub(r"\1re\2", words) if self._british else words

    def _feet(self, scan: _Scan, match: re.Match[str]) -> bool:
        feet, inches = match["feet"], _group(match, "inches")
        if inches:
            words = f"{self._numbers.cardinal(feet)} foot {self._numbers.cardinal(inches)}"
        else:
            words = f"{self._numbers.cardinal(feet)} {'foot' if feet == '1' else 'feet'}"
        scan.say(words, match.start(), match.end())
        return True

    def _inches(self, scan: _Scan, match: re.Match[str]) -> bool:
        if scan.folded.count('"', 0, match.start()) % 2:
            return False  # it closes a quotation
        amount = match["amount"]
        words = f"{self._numbers.decimal(amount)} {'inch' if amount == '1' else 'inches'}"
        scan.say(words, match.start(), match.end())
        return True

    def _lines(self, scan: _Scan, match: re.Match[str]) -> bool:
        """The height of a picture ("1080p")."""
        words = f"{self._numbers.label(match['lines'])} {spelled('p')}"
        scan.say(words, match.start(), match.end())
        return True

    def _times(self, scan: _Scan, match: re.Match[str]) -> bool:
        between = " times " if "×" in match[0] and " " in match[0] else " by "
        sizes = re.split(r"\s?[x×]\s?", match[0])
        words = between.join(self._label(size) for size in sizes)
        scan.say(words, match.start(), match.end())
        return True

    def _product(self, scan: _Scan, match: re.Match[str]) -> bool:
        scan.say(self._numbers.decimal(_plain(match["amount"])), *match.span("amount"))
        scan.say("times", *match.span("sign"))
        return True

    # Numbers

    def _ordinal(self, scan: _Scan, match: re.Match[str]) -> bool:
        scan.say(self._numbers.ordinal(match["number"]), match.start(), match.end())
        return True

    def _decade(self, scan: _Scan, match: re.Match[str]) -> bool:
        digits = match["decade"]
        words = self._numbers.year(digits) if len(digits) == 4 else self._numbers.cardinal(digits)
        scan.say(self._numbers.plural(words), match.start(), match.end())
        return True

    def _fraction(self, scan: _Scan, match: re.Match[str]) -> bool:
        numerator, denominator = int(match["numerator"]), int(match["denominator"])
        numbers = self._numbers
        above, below = (numbers.cardinal(match[name]) for name in ("numerator", "denominator"))
        if _group(match, "whole") is None and (
            (numerator, denominator) in ((24, 7), (9, 11), (7, 7)) or numerator == denominator != 10
        ):
            words = f"{above} {below}"
        elif numerator < denominator and denominator > 1:
            words = numbers.fraction(numerator, denominator)
            if _group(match, "whole") is not None:
                words = f"{numbers.cardinal(match['whole'])} and {_article(words)}"
        elif numerator == denominator:
            words = f"{above} out of {below}"
        elif _group(match, "whole") is None and denominator > 0:
            words = f"{above} over {below}"
        else:
            return False
        scan.say(words, match.start(), match.end())
        return True

    def _fraction_sign(self, scan: _Scan, match: re.Match[str]) -> bool:
        words = self._numbers.fraction(*_FRACTIONS[match["fraction"]])
        if _group(match, "whole"):
            words = f"{self._numbers.cardinal(match['whole'])} and {_article(words)}"
        scan.say(words, match.start(), match.end())
        return True

    def _phone(self, scan: _Scan, match: re.Match[str]) -> bool:
        groups = re.findall(r"\d+", match[0])
        if not 7 <= sum(map(len, groups)) <= 15:
            return False
        plus = "plus " if match[0].startswith("+") else ""
        words = ", ".join(self._numbers.digits(group) for group in groups)
        scan.say(plus + words, match.start(), match.end())
        return True

    def _code(self, scan: _Scan, match: re.Match[str]) -> bool:
        """ "978-3-16-148410-0", "123-45-6789": groups of digits that count nothing."""
        groups = match[0].split("-")
        scan.say(", ".join(map(self._numbers.digits, groups)), match.start(), match.end())
        return True

    def _short_year(self, scan: _Scan, match: re.Match[str]) -> bool:
        words = self._numbers.cardinal(match["year"])
        if match["year"][0] == "0":
            words = f"oh {words}"
        scan.say(words, match.start(), match.end())
        return True

    def _version(self, scan: _Scan, match: re.Match[str]) -> bool:
        parts = re.split(r"\.", match["number"])
        named = scan.last.lower() in VERSIONED or _group(match, "v")
        if len(parts) < 3 and not named:
            return False
        words = " dot ".join(self._numbers.label(part) if part else "" for part in parts)
        if _group(match, "v"):
            words = f"version {words}"
        scan.say(words, match.start(), match.end("number"))
        if match["tail"]:
            start, end = match.span("tail")
            scan.say(self._mixed(match["tail"].lstrip("-")), start, end)
        return True

    def _scientific(self, scan: _Scan, match: re.Match[str]) -> bool:
        sign = "minus " if match["sign"] == "-" else ""
        words = f"{self._numbers.decimal(match['number'])} times ten to the power of "
        words += sign + self._numbers.cardinal(match["exponent"])
        scan.say(("minus " if _group(match, "minus") else "") + words, match.start(), match.end())
        return True

    def _power(self, scan: _Scan, match: re.Match[str]) -> bool:
        digits = "".join(str("⁰¹²³⁴⁵⁶⁷⁸⁹".index(digit)) for digit in match["power"])
        named = {"2": "squared", "3": "cubed"}
        words = named.get(digits, f"to the power of {self._numbers.cardinal(digits)}")
        scan.say(words, match.start(), match.end())
        return True

    def _score(self, scan: _Scan, match: re.Match[str]) -> bool:
        words = f"{self._numbers.cardinal(match[1])} to {self._numbers.cardinal(match[2])}"
        scan.say(words, match.start(), match.end())
        return True

    def _number(self, scan: _Scan, match: re.Match[str]) -> bool:
        number = match["number"]
        before = scan.last.lower()
        if number in _EMERGENCY and before in ("call", "dial", "ring", "phone"):
            words = self._numbers.digits(number)
        elif before in LABELLED and number.isdigit():
            words = self._numbers.label(number)
        else:
            words = self._plain_number(number)
        if _group(match, "minus"):
            words = f"minus {words}"
        elif _group(match, "about"):
            words = f"about {words}"
        scan.say(words, match.start(), match.end())
        return True

    def _plain_number(self, number: str) -> str:
        plain = _plain(number)
        if "," in number or JOINING_SPACE in number or "." in plain:
            return self._numbers.decimal(plain)
        if len(plain) == 4 and "1100" <= plain <= "2099":
            return self._numbers.year(plain)
        if len(plain) > 1 and plain[0] == "0":
            return self._numbers.digits(plain)
        return self._numbers.cardinal(plain)

    def _label(self, number: str) -> str:
        return self._numbers.label(number) if number.isdigit() else self._numbers.decimal(number)

    # Words

    def _numbered(self, scan: _Scan, match: re.Match[str]) -> bool:
        words = NUMBERED.get(match["word"].lower())
        if words is None:
            return False
        scan.say(words, match.start(), match.end())
        return True

    def _title(self, scan: _Scan, match: re.Match[str]) -> bool:
        """ "Dr." and the like: a title before a name, or a street after one."""
        word = match["word"]
        after_name = scan.last[:1].isupper() and scan.last not in TITLES
        if word in STREETS and after_name and not match["period"] and match["name"] is None:
            words: str | None = STREETS[word] if word not in ("Ct", "Sq") else None
        elif word in STREETS and after_name and match["period"]:
            words = STREETS[word]
        elif match["name"] is not None:
            words = TITLES.get(word)
        else:
            words = TITLES.get(word) if match["period"] else None
            if word in ("Rep", "Gen", "Col", "Pres", "Hon", "Ms"):
                words = None
        if words is None:
            return False
        end = match.end("period") if match["period"] else match.end("word")
        scan.say(words, match.start(), end)
        if match["period"] and match["name"] is None:
            self._stop_after(scan, end)
        scan.at = end
        return True

    def _abbreviation(self, scan: _Scan, match: re.Match[str]) -> bool:
        words = ABBREVIATIONS.get(match["word"])
        if words is None:
            return False
        if match["word"] in ("Co", "Inc", "Ltd", "Corp") and not scan.last[:1].isupper():
            return False
        scan.say(words, match.start(), match.end())
        if match["word"] in _ENDING:
            self._stop_after(scan, match.end())
        return True

    def _versus(self, scan: _Scan, match: re.Match[str]) -> bool:
        scan.say("versus", match.start(), match.end())
        return True

    def _with(self, scan: _Scan, match: re.Match[str]) -> bool:
        words = {
            "w/": "with",
            "w/o": "without",
            "b/c": "because",
            "c/o": "care of",
            "n/a": "not applicable",
        }
        scan.say(words[match[0].lower()], match.start(), match.end())
        return True

    def _initials(self, scan: _Scan, match: re.Match[str]) -> bool:
        """ "J. R. R.", "U.S.", "Ph.D.": each letter by its name."""
        letters = "".join(char for char in match[0] if char.isalpha())
        if match[0] in ("Ph.D.", "Ph.D"):
            words = f"{spelled('p')} {spelled('h')} {spelled('d')}"
        else:
            words = spelled(letters)
        if letters in ("A", "I") and not scan.folded[match.end() :].lstrip()[:1].isupper():
            return False  # "Vitamin A." and "So do I." end a sentence
        scan.say(words, match.start(), match.end())
        if len(letters) > 1:
            self._stop_after(scan, match.end())
        return True

    def _roman(self, scan: _Scan, match: re.Match[str]) -> bool:
        value = roman_value(match[0])
        if value is None:
            return False
        if scan.last.lower() in ROMAN_LEADERS:
            scan.say(self._numbers.cardinal(str(value)), match.start(), match.end())
        elif scan.last in REGNAL and match[0] != "I":
            scan.say(f"the {self._numbers.ordinal(str(value))}", match.start(), match.end())
        else:
            return False
        return True

    def _named_language(self, scan: _Scan, match: re.Match[str]) -> bool:
        signs = {"+": "plus", "#": "sharp", "*": "star"}
        words = [spelled(match["letter"]), *(signs[sign] for sign in match["signs"])]
        scan.say(" ".join(words), match.start(), match.end())
        return True

    def _dot_name(self, scan: _Scan, match: re.Match[str]) -> bool:
        if scan.before().isalnum():
            return False
        scan.say(f"dot {self._part(match['name'])}", match.start(), match.end())
        return True

    def _dotted(self, scan: _Scan, match: re.Match[str]) -> bool:
        """ "config.json", "os.path.join": words with points between, no end of a sentence."""
        scan.say(self._address(match[0]), match.start(), match.end())
        return True

    def _hashtag(self, scan: _Scan, match: re.Match[str]) -> bool:
        if scan.before().isalnum():
            return False
        if match["number"]:
            words = f"number {self._numbers.cardinal(match['number'])}"
        else:
            words = f"hashtag {self._mixed(match['tag'])}"
        scan.say(words, match.start(), match.end())
        return True

    def _mention(self, scan: _Scan, match: re.Match[str]) -> bool:
        scan.say(f"at {self._mixed(match['name'])}", match.start(), match.end())
        return True

    def _link_target(self, scan: _Scan, match: re.Match[str]) -> bool:
        return True  # the link's text was read

    def _tag(self, scan: _Scan, match: re.Match[str]) -> bool:
        return match["name"].lower() in HTML_TAGS

    def _entity(self, scan: _Scan, match: re.Match[str]) -> bool:
        words = {"amp": "and", "lt": "less than", "gt": "greater than", "copy": "copyright"}
        scan.say(words.get(match["name"].lower(), ""), match.start(), match.end())
        return True

    def _bound(self, scan: _Scan, match: re.Match[str]) -> bool:
        words = "more than" if match["sign"] == ">" else "less than"
        scan.say(words, match.start(), match.end())
        return True

    def _compare(self, scan: _Scan, match: re.Match[str]) -> bool:
        words = {
            "<": "is less than", ">": "is greater than", "<=": "is at most", ">=": "is at least",
            "==": "equals", "===": "equals", "!=": "is not equal to", "&&": "and", "||": "or",
            "-": "minus", "*": "times", "/": "divided by", "^": "to the power of",
        }  # fmt: skip
        if match[0] in "-*/^<>" and not (
            re.search(r"[\w)]\s?$", scan.folded[max(0, scan.at - 2) : scan.at])
            and re.match(r"\s?[\w(]", scan.folded[match.end() : match.end() + 2])
        ):
            return False
        spaced = scan.before().isspace() and scan.folded[match.end() : match.end() + 1].isspace()
        counted = scan.last[-1:].isdigit() or (len(scan.last) == 1 and scan.last != "I")
        if match[0] in "-*/^<>" and not ((spaced and counted) or match[0] == "^"):
            return False
        scan.say(words[match[0]], match.start(), match.end())
        return True

    def _alphanumeric(self, scan: _Scan, match: re.Match[str]) -> bool:
        scan.say(self._mixed(match[0]), match.start(), match.end())
        return True

    def _mixed(self, text: str) -> str:
        """Letters and digits in one word ("MP3", "221B", "H2O", "IPv6", "fooBar2")."""
        spoken = []
        for part in _RUNS.findall(text):
            if part.isdigit():
                spoken.append(self._numbers.label(part) if part.isascii() else "")
            else:
                if len(part) <= 4 and not part.istitle() and not self._known(part.lower()):
                    spoken.append(spelled(part) if part.isascii() else part)
                    continue
                for word in self._humps(part):
                    short = len(word) <= 3 and text != part and not word.istitle()
                    known = self._known(word.lower()) and not short
                    if word.isascii() and (word.isupper() or not known) and len(word) <= 4:
                        spoken.append(spelled(word))
                    else:
                        spoken.append(word)
        return " ".join(word for word in spoken if word)

    @staticmethod
    def _humps(word: str) -> list[str]:
        """``"camelCase"`` as "camel", "Case"; capitals in a row stay together."""
        return _HUMPS.findall(word) or [word]

    def _word(self, scan: _Scan, match: re.Match[str]) -> bool:
        word = match[0]
        start = match.start()
        if len(word) > _LONGEST_WORD:
            for at in range(0, len(word), _LONGEST_WORD):
                part = word[at : at + _LONGEST_WORD]
                scan.say(part.strip("'"), start + at, start + at + len(part))
            return True
        around = scan.before() + scan.folded[match.end() : match.end() + 1]
        if word == "A" and (scan.last.lower() in _GRADED or set(around) & set("/&+=")):
            word = spelled(word)
            scan.say(word, start, match.end())
        elif word == "WHO" and self._states(scan, match.end()):
            scan.say(spelled(word), start, match.end())
        else:
            scan.say(self._read(word), start, match.end())
        return True

    @staticmethod
    def _states(scan: _Scan, end: int) -> bool:
        """Whether a sentence begins here, goes on in small letters and asks nothing: nobody who is
        asked for is the subject then, which a tagger cannot tell."""
        begins = not scan.tokens or scan.tokens[-1].spoken in _STOPS
        goes_on = _STATEMENT.match(scan.folded, end)
        return begins and goes_on is not None and goes_on["end"] != "?"

    def _read(self, word: str) -> str:
        if not word.isascii():
            return " ".join(_GREEK.get(word, word).split())
        if len(word) > 2 and word.endswith("s") and word[:-1].isalpha() and word[:-1].isupper():
            return (
                word if self._known(word.lower()) and len(word) > 4 else f"{spelled(word[:-1])}'s"
            )
        if len(word) > 3 and word[:-2].isupper() and word.endswith("'s"):
            stem = word[:-2]
            spell = not (self._known(stem) or self._known(stem.lower()))
            return word if not spell else f"{spelled(word[:-2])}'s"
        if word.isupper() and len(word) >= 2 and not self._known(word):
            if not self._known(word.lower()):
                return spelled(word) if len(word) <= 5 else word
            # Short ones may be acronyms: "US", "IT". That is told by their part in the sentence.
            return word.lower() if len(word) > 3 else word
        inner = word[1:]
        if inner != inner.lower() and not word.isupper() and "'" not in word:
            if self._known(word.lower()):
                return word.lower()
            humps = self._humps(word)
            if len(humps) > 1:
                return " ".join(
                    spelled(hump)
                    if hump.isupper() and (len(hump) <= 2 or not self._known(hump.lower()))
                    else hump
                    for hump in humps
                )
        return word

    # Marks and symbols

    def _marks(self, scan: _Scan, match: re.Match[str]) -> bool:
        run = match[0]
        if run[0] == ".":
            scan.mark("…" if len(run) > 1 else ".", match.start(), match.end())
        elif run[0] in "!?":
            for sign in "?!":
                if sign in run:
                    at = match.start() + run.index(sign)
                    scan.mark(sign, at, at + 1)
                    break
        else:
            scan.mark(run[0], match.start(), match.start() + 1)
        return True

    def _dash(self, scan: _Scan, match: re.Match[str]) -> bool:
        run = match[0]
        if not run.strip("-") and len(run) == 1:
            spaced = (
                scan.before().isspace() and scan.folded[match.end() : match.end() + 1].isspace()
            )
            if spaced and not scan.line_begins():
                scan.mark("—", match.start(), match.end())
        elif scan.tokens and not scan.line_begins():
            scan.mark("—", match.start(), match.end())
        return True

    def _bar(self, scan: _Scan, match: re.Match[str]) -> bool:
        if scan.tokens and not scan.tokens[-1].mark:
            scan.mark(",", match.start(), match.end())
        return True

    def _symbol(self, scan: _Scan) -> None:
        """One character that no rule took: a mark, a symbol with a name, or nothing."""
        char = scan.folded[scan.at]
        if char == '"':
            opens = not scan.before().strip(" \n\xa0(“—-")
            scan.mark("“" if opens else "”", scan.at, scan.at + 1)
        elif char in _MARKS:
            scan.mark(char, scan.at, scan.at + 1)
        elif char in SYMBOLS:
            scan.say(SYMBOLS[char], scan.at, scan.at + 1)
        scan.at += 1

    def _punctuate(self, scan: _Scan, start: int, end: int) -> None:
        """The marks at the end of an address, which are no part of it."""
        for at in range(start, end):
            if scan.folded[at] in _MARKS:
                scan.mark(scan.folded[at], at, at + 1)

    def _stop_after(self, scan: _Scan, end: int) -> None:
        """A stop, where a period both shortens a word and ends a sentence."""
        if scan.folded[end - 1 : end] != ".":
            return
        rest = scan.folded[end : end + 40].lstrip("\"'”)*_ ")
        if rest and not (scan.folded[end : end + 1] in " \n\"'”)" and rest[0].isupper()):
            return
        if rest and scan.last.lower().rstrip(".") in (
            "u.s",
            "u.k",
            "u.n",
            "e.u",
            "d.c",
            "ph.d",
            "jr",
        ):
            return
        char_end = scan.tokens[-1].char_end
        scan.tokens.append(Token(".", char_end, char_end, glued=True, mark=True))


def _plain(number: str) -> str:
    return number.replace(",", "").replace(JOINING_SPACE, "").replace(" ", "")


def _group(match: re.Match[str], name: str) -> str | None:
    """A group that only some of a handler's patterns have."""
    return match.groupdict().get(name)


def _article(fraction: str) -> str:
    """``"one half"`` as "a half", for after a whole number."""
    return "a " + fraction[4:] if fraction.startswith("one ") else fraction


def _compiled(*rules: tuple[str, _Handler]) -> tuple[tuple[re.Pattern[str], _Handler], ...]:
    return tuple((re.compile(_letters(pattern)), handler) for pattern, handler in rules)


def _letters(pattern: str) -> str:
    return pattern.replace(r"[^\W\d_]", _LETTERS)


_N = EnglishNormaliser
_URL: Final = r"[^\s<>\"“”]"
_LABEL: Final = r"[A-Za-z0-9-]{1,63}"
_CLOCK: Final = rf"(?P<hour>{_HOUR})(?::(?P<minute>[0-5]\d))?"
_TO_CLOCK: Final = rf"(?P<hour2>{_HOUR})(?::(?P<minute2>[0-5]\d))?"
_YEAR_AFTER: Final = r"(?:,? (?P<year>[12]\d{3})(?![\w-]))?"
_SUFFIX: Final = r"(?:st|nd|rd|th)?"
_PRE_RELEASE: Final = r"(?P<tail>-?(?:rc|alpha|beta|dev|post|a|b)\.?\d{0,4})?(?![\w]|\.\d)"
_OF_UNIT: Final = (
    rf"(?P<gap>[ \xa0-]?)(?P<unit>{_UNIT}|in(?=\.,?(?: [a-z]|$)))(?!['’]?[\w/²³])"
    r"(?:(?<=lb|oz|ft|in|yd|hr|sp)\.|(?<=lbs|hrs|min|sec|yrs|bsp)\.)?"
)
_EXPONENT: Final = r"(?P<number>\d+(?:\.\d+)?)[eE](?P<sign>[+-]?)(?P<exponent>\d{1,4})(?![\w])"

_ADDRESS_RULES: Final = (
    (rf"(?:https?|ftp|wss?|file)://(?P<address>{_URL}{{1,500}})", _N._url),
    (rf"(?P<address>www\.{_URL}{{1,500}})", _N._url),
    (
        rf"[A-Za-z0-9][A-Za-z0-9._%+-]{{0,63}}@{_LABEL}(?:\.{_LABEL}){{0,4}}\.[A-Za-z]{{2,24}}",
        _N._email,
    ),
    (
        rf"(?P<address>(?:{_LABEL}\.){{1,4}}(?P<top>[A-Za-z]{{2,5}})(?![\w-]|\.\w)(?:/{_URL}{{0,300}})?)",
        _N._domain,
    ),
)
_DIGIT_RULES: Final = _compiled(
    (
        (
            r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?:[T ](?P<hour>\d\d):(?P<minute>\d\d)"
            r"(?::(?P<second>\d\d)(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?(?![\w-])"
        ),
        _N._date_iso,
    ),
    (r"(?P<ip>\d{1,3}(?:\.\d{1,3}){3})(?![\w.]*\d)(?::(?P<port>\d{1,5}))?", _N._address_ip),
    (
        (
            r"(?P<first>\d{1,2})(?P<separator>[/.-])(?P<second>\d{1,2})(?P=separator)"
            r"(?P<year>(?:1[0-9]|20)\d\d|\d\d)(?![\w/-]|\.\d)"
        ),
        _N._date_numeric,
    ),
    (r"(?P<first>\d{1,2})/(?P<second>\d{1,2})(?![\w/%-])", _N._date_short),
    (rf"{_CLOCK}\s?(?P<dash>[-–])\s?{_TO_CLOCK}\s?{_AM_PM}", _N._time_range),
    (
        rf"(?P<hour>{_HOUR}):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?(?![\d:])(?:\s?{_AM_PM})?",
        _N._time,
    ),
    (rf"(?P<hour>{_HOUR})(?:\.(?P<minute>[0-5]\d))?\s?{_AM_PM}", _N._hour),
    (r"(\d{1,2}):(\d{1,2})(?![\d:])", _N._score),
    (
        (
            r"(?:1[ .-])?\d{3}[ .-]\d{3}[ .-]\d{4}(?![\w-])|\d{3}-\d{4}(?![\w-])"
            r"|0\d{2,4} \d{3,4} \d{3,4}(?! ?\d)|0\d{4} \d{6}(?!\d)|0\d{9,10}(?!\d)"
        ),
        _N._phone,
    ),
    (r"\d{1,6}(?:-\d{1,7}){2,6}(?![\w-])", _N._code),
    (rf"(?P<day>\d{{1,2}}){_SUFFIX} (?P<month>{_MONTH})\b\.?{_YEAR_AFTER}", _N._day_first),
    (r"(?P<number>\d[\d,]*)(?:st|nd|rd|th)(?![A-Za-z0-9])", _N._ordinal),
    (r"(?P<decade>(?:1[1-9]|20)\d0|[2-9]0)'?s(?![\w])", _N._decade),
    (rf"(?P<amount>{_AMOUNT})\s?(?:(?P<sign>[€£¥₹₩₽])|(?P<code>{_CODES})(?!\w))", _N._money),
    (
        rf"(?P<amount>{_AMOUNT}) (?P<magnitude>{_LARGE}) (?P<code>{_CODES})(?!\w)",
        _N._money,
    ),
    (r"(?P<lines>144|240|360|480|540|720|1080|1440|2160|4320)p(?![\w])", _N._lines),
    (r"(?P<amount>\d+)(?P<sign>p|¢)(?![\w])", _N._pence),
    (r"\d+(?:\.\d+)?(?:\s?[x×]\s?\d+(?:\.\d+)?){1,3}(?![\w])", _N._times),
    (rf"(?P<amount>{_AMOUNT})(?P<sign>[x×])(?![\w])", _N._product),
    (rf"(?P<whole>\d+)?[ \xa0]?(?P<fraction>[{_FRACTION}])", _N._fraction_sign),
    (
        r"(?:(?P<whole>\d{1,3})[ -])?(?P<numerator>\d{1,3})/(?P<denominator>\d{1,3})(?![\w/]|\.\d)",
        _N._fraction,
    ),
    (r"(?P<feet>\d{1,2})'\s?(?:(?P<inches>\d{1,2})(?:\"|''|“|”))", _N._feet),
    (r"(?P<feet>\d{1,3})'(?= (?:tall|long|wide|high|deep|by|x))", _N._feet),
    (r"(?P<amount>\d+(?:\.\d+)?)\"", _N._inches),
    (_EXPONENT, _N._scientific),
    (rf"(?P<number>\d{{1,6}}(?:\.\d{{1,6}}){{1,5}}){_PRE_RELEASE}", _N._version),
    (
        (
            rf"(?P<first>{_AMOUNT})%?(?:-|\s?–\s?)(?P<second>{_AMOUNT})"
            rf"(?![\d:]|[-–/]\d|[,.]\d)(?:{_OF_UNIT})?"
        ),
        _N._range,
    ),
    (
        rf"(?P<amount>{_AMOUNT})(?:[ \xa0](?P<magnitude>{_LARGE}))?{_OF_UNIT}",
        _N._quantity,
    ),
    (
        # Digits and letters take turns strictly: a run that could be cut in two takes for ever.
        r"\d{1,6}[^\W\d_]{1,3}(?:\d{1,6}[^\W\d_]{1,3})*\d{0,6}(?![\w'])|\d+(?:[^\W\d_]+\d*)+",
        _N._alphanumeric,
    ),
    (rf"(?P<number>{_AMOUNT})", _N._number),
)
_LETTER_RULES: Final = _compiled(
    *_ADDRESS_RULES,
    (
        (
            rf"(?P<month>{_MONTH})\.? (?P<day>\d{{1,2}}){_SUFFIX}(?![\w:%/]|[.,]\d)"
            rf"(?:\s?[-–]\s?(?P<until>\d{{1,2}}){_SUFFIX}(?![\w:%]))?{_YEAR_AFTER}"
        ),
        _N._month_first,
    ),
    (
        r"(?P<month>Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)(?:\.(?= ?[\w,])|(?= \d))",
        _N._month_short,
    ),
    (
        r"(?P<day>Mon|Tues|Tue|Wed|Thurs|Thur|Thu|Fri|Sat|Sun)(?:\.,|\.(?= [A-Z\d])|,(?= [A-Z\d]))",
        _N._weekday,
    ),
    (r"(?:w/o|w/|b/c|c/o|n/a|N/A)(?![\w])", _N._with),
    (r"(?P<word>[A-Za-z]{1,5})\.(?= ?\d)", _N._numbered),
    (r"(?P<word>[A-Z][a-z]{1,5})(?P<period>\.)?(?![\w'])(?P<name>(?= ?[A-Z][\w']*))?", _N._title),
    (r"(?P<word>i\.e|e\.g|[A-Za-z]{2,6})\.(?![\w])", _N._abbreviation),
    (r"(?:vs|Vs|VS)(?![\w'])", _N._versus),
    (
        r"Ph\.D\.?(?![\w])|(?:[A-Za-z]\.){2,8}(?![\w])|[A-Z]\.(?:-[A-Z]\.)?(?= ?[\w(]|,)",
        _N._initials,
    ),
    (r"[IVXLC]{1,7}(?![\w'])", _N._roman),
    (r"(?P<letter>[A-Za-z])(?P<signs>\+\+|#|\*)(?![\w])", _N._named_language),
    (rf"(?P<v>[vV])\.?(?P<number>\d{{1,6}}(?:\.\d{{1,6}}){{0,5}}){_PRE_RELEASE}", _N._version),
    (r"[^\W\d_]{1,40}(?:-?\d{1,12})(?:[^\W_]{0,20})(?![\w'])", _N._alphanumeric),
    (r"[A-Za-z]\w{0,39}(?:\.[A-Za-z_]\w{0,39}){1,6}(?![\w])", _N._dotted),
    (_WORD.pattern, _N._word),
)
_SYMBOL_RULES: Final = _compiled(
    (r"\]\((?:https?://|/|#|\.|www)[^\s()]{0,500}\)", _N._link_target),
    (r"</?(?P<name>[A-Za-z][A-Za-z0-9]{0,9})(?: [^<>]{0,200})?/?>", _N._tag),
    (r"&(?P<name>amp|lt|gt|nbsp|quot|apos|copy|mdash|ndash|hellip|#\d{1,6});", _N._entity),
    (
        (
            rf"(?P<minus>-)?(?P<sign>{_CURRENCY})\s?(?P<amount>{_AMOUNT})"
            rf"(?:\s?[-–]\s?(?:{_CURRENCY})?(?P<until>{_AMOUNT}))?"
            rf"(?:[ \xa0-]?(?P<magnitude>{_MAGNITUDE})(?![\w]))?(?:(?P<per>/)(?=[A-Za-z]))?"
        ),
        _N._money,
    ),
    (r"'(?P<decade>[2-9]0)s(?![\w])", _N._decade),
    (r"(?<![\w])'(?P<year>\d\d)(?![\w'])", _N._short_year),
    (
        r"\+(?:\d{1,3})(?:[ .-]?\(?\d{1,4}\)?){2,6}(?![\w])|\(\d{3}\) ?\d{3}[ .-]\d{4}(?![\w])",
        _N._phone,
    ),
    (rf"(?P<minus>-){_EXPONENT}", _N._scientific),
    (rf"(?<![\w)])(?P<minus>-)(?P<amount>{_AMOUNT}){_OF_UNIT}", _N._quantity),
    (rf"(?<![\w)])(?:(?P<minus>-)|(?P<about>~)\s?)(?P<number>{_AMOUNT})(?![\w])", _N._number),
    (r"(?P<number>\.\d+)(?![\w])", _N._number),
    (rf"(?P<fraction>[{_FRACTION}])", _N._fraction_sign),
    (r"(?P<power>[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,6})", _N._power),
    (r"#(?:(?P<number>\d{1,12})(?![\w])|(?P<tag>[^\W\d_]\w{0,60}))", _N._hashtag),
    (r"(?<![\w])@(?P<name>[A-Za-z_]\w{0,60})", _N._mention),
    (r"\.(?P<name>[A-Za-z]{2,8})(?![\w])", _N._dot_name),
    (r"(?<![\w)\]<>=-])(?P<sign>[<>])(?=[.$€£]?\d)", _N._bound),
    (r"===?|!=|<=|>=|&&|\|\||[-*/^<>](?![-*/^<>=])", _N._compare),
    (r"[-–—]{1,200}>?", _N._dash),
    (r"[|]{1,200}|[•·‣▪◦]", _N._bar),
    (r"\.{1,200}|[!?]{1,200}|,{1,200}|;{1,200}|:{1,200}", _N._marks),
)


def _rules(char: str) -> tuple[tuple[re.Pattern[str], _Handler], ...]:
    if char.isdecimal() and char.isascii():
        return _DIGIT_RULES
    return _LETTER_RULES if char.isalpha() else _SYMBOL_RULES
