"""Numbers in English words, as each side of the Atlantic says them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

__all__ = ["MONTHS", "NumberWords", "roman_value"]

MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)

_DIGITS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
#: From here on a number is read digit by digit: nobody follows quadrillions.
_LONGEST: Final = 15
_ROMAN: Final = re.compile(r"(?=[IVXLC])C{0,3}(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})")
_ROMAN_DIGITS: Final = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}


@lru_cache(maxsize=4096)
def _words(number: int, to: str) -> str:
    # Imported late: it loads every language it knows.
    from num2words import num2words

    speak: Any = num2words
    return str(speak(number, lang="en", to=to)).replace(",", "").replace("-", " ")


class NumberWords:
    """English number words: ``british`` says "and" before the tens, and "oh" in long numbers."""

    __slots__ = ("british",)

    def __init__(self, british: bool) -> None:
        self.british = british

    def cardinal(self, digits: str) -> str:
        """``"1234"`` as words; thousands may be grouped by commas. Long numbers go by the digit."""
        plain = re.sub(r"\D", "", digits)
        if len(plain) > _LONGEST:
            return self.digits(plain)
        return self._spoken(int(plain or "0"), "cardinal")

    def ordinal(self, digits: str) -> str:
        """``"21"`` as "twenty first"."""
        plain = re.sub(r"\D", "", digits)
        if len(plain) > _LONGEST:
            return self.digits(plain)
        return self._spoken(int(plain or "0"), "ordinal")

    def decimal(self, digits: str) -> str:
        """``"3.14"`` as "three point one four"; without a point as a cardinal."""
        whole, point, fraction = digits.partition(".")
        words = self.cardinal(whole) if whole else "zero"
        if not point or not fraction:
            return words
        return f"{words} point {' '.join(_DIGITS[int(digit)] for digit in fraction)}"

    def digits(self, digits: str) -> str:
        """Each digit by itself, as a telephone number or a code is read."""
        zero = "oh" if self.british else "zero"
        return " ".join(_DIGITS[int(d)] if d != "0" else zero for d in digits if d.isdigit())

    def year(self, digits: str) -> str:
        """``"1984"`` as "nineteen eighty four", four digits."""
        number = int(digits)
        high, low = divmod(number, 100)
        if number < 1000 or (low == 0 and high % 10 == 0) or 2000 <= number < 2010:
            return self.cardinal(digits)
        if low == 0:
            return f"{self._spoken(high, 'cardinal')} hundred"
        tail = f"oh {_DIGITS[low]}" if low < 10 else self._spoken(low, "cardinal")
        return f"{self._spoken(high, 'cardinal')} {tail}"

    def label(self, digits: str) -> str:
        """A number in a name ("Boeing 747", "A4", "x86"): short, and by the digit from four up."""
        if len(digits) <= 2 and not (len(digits) == 2 and digits[0] == "0"):
            return self.cardinal(digits)
        if len(digits) == 3 and digits[0] != "0":
            if digits.endswith("00"):
                return self.cardinal(digits)
            tail = (
                f"oh {_DIGITS[int(digits[2])]}" if digits[1] == "0" else self.cardinal(digits[1:])
            )
            return f"{_DIGITS[int(digits[0])]} {tail}"
        if len(digits) == 4 and digits[0] != "0":
            return self.year(digits)
        return self.digits(digits)

    def fraction(self, numerator: int, denominator: int) -> str:
        """``1, 2`` as "one half"; the denominator from 2 up."""
        if denominator == 2:
            name = "half" if numerator == 1 else "halves"
        elif denominator == 4:
            name = "quarter" if numerator == 1 else "quarters"
        else:
            name = self._spoken(denominator, "ordinal") + ("" if numerator == 1 else "s")
        return f"{self._spoken(numerator, 'cardinal')} {name}"

    def plural(self, words: str) -> str:
        """``"nineteen eighty"`` as "nineteen eighties"."""
        if words.endswith("y"):
            return words[:-1] + "ies"
        return words + ("es" if words.endswith("x") else "s")

    def _spoken(self, number: int, to: str) -> str:
        words = _words(number, to)
        return words if self.british else words.replace(" and ", " ")


def roman_value(numeral: str) -> int | None:
    """The value of a Roman numeral below 400 in capitals, or None if it is none."""
    if not _ROMAN.fullmatch(numeral):
        return None
    total = 0
    for here, following in zip(numeral, numeral[1:] + " ", strict=True):
        value = _ROMAN_DIGITS[here]
        total += -value if value < _ROMAN_DIGITS.get(following, 0) else value
    return total
