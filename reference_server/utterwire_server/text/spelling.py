"""How an English word sounds that no dictionary has: rules from its letters.

The rules are few and of the common kind (final e, digraphs, soft c and g), for names, coinages
and typing errors: what comes out can be understood, and nothing is left unspoken.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["sound_out"]

_VOWEL: Final = "[aeiouy]"
_CONSONANT: Final = "[bcdfghjklmnpqrstvwxz]"

#: Letters (a pattern), and their sounds in misaki's American phonemes. The first that matches wins.
#: "|" separates the sounds of one letter group from the next where stress could fall.
_RULES: Final = tuple(
    (re.compile(pattern), sounds)
    for pattern, sounds in (
        # Beginnings
        (r"(?<![a-z])kn", "n"),
        (r"(?<![a-z])gn", "n"),
        (r"(?<![a-z])wr", "ɹ"),
        (r"(?<![a-z])ps(?=[aeiouy])", "s"),
        (r"(?<![a-z])pn", "n"),
        (r"(?<![a-z])x", "z"),
        (r"(?<![a-z])mc(?=[a-z])", "mək"),
        (r"(?<![a-z])wh", "w"),
        (r"(?<![a-z])y(?=[aeiou])", "j"),
        # Endings
        (r"tion(?=s?$)", "ʃən"),
        (r"ssion(?=s?$)", "ʃən"),
        (r"sion(?=s?$)", "ʒən"),
        (r"cian(?=s?$)", "ʃən"),
        (r"cious$", "ʃəs"),
        (r"tious$", "ʃəs"),
        (r"ous$", "əs"),
        (r"ture(?=s?$)", "ʧəɹ"),
        (r"tial$", "ʃəl"),
        (r"cial$", "ʃəl"),
        (r"able(?=s?$)", "əbəl"),
        (r"ible(?=s?$)", "əbəl"),
        (rf"(?<={_CONSONANT})le(?=s?$)", "əl"),
        (r"ology$", "ɑləʤi"),
        (r"ment(?=s?$)", "mənt"),
        (r"ness$", "nəs"),
        (r"less$", "ləs"),
        (r"ful$", "fəl"),
        (r"ing(?=s?$)", "ɪŋ"),
        (r"(?<=[td])ed$", "əd"),
        (r"(?<=[pkfsxc])ed$", "t"),
        (rf"(?<={_CONSONANT})ed$", "d"),
        (r"(?<=[sxz])es$", "əz"),
        (r"(?<=ch)es$", "əz"),
        (r"(?<=sh)es$", "əz"),
        (rf"(?<={_VOWEL}{_CONSONANT})e(?=s?$)", ""),
        (rf"(?<={_CONSONANT}{_CONSONANT})e(?=s?$)", ""),
        (rf"(?<={_CONSONANT})ers?$", "əɹ"),
        (rf"(?<={_CONSONANT})y$", "i"),
        (r"ey$", "i"),
        (r"ie$", "i"),
        (r"mb$", "m"),
        (r"mn$", "m"),
        (rf"(?<={_CONSONANT})a$", "ə"),
        (r"ia$", "iə"),
        (rf"(?<={_CONSONANT})o$", "O"),
        (rf"(?<={_CONSONANT})i$", "i"),
        # Groups of letters
        (r"tch", "ʧ"),
        (r"sch", "ʃ"),
        (r"chr", "kɹ"),
        (r"ch", "ʧ"),
        (r"ck", "k"),
        (r"sh", "ʃ"),
        (r"th", "θ"),
        (r"ph", "f"),
        (r"rh", "ɹ"),
        (r"gh(?=[aeiou])", "ɡ"),
        (r"dge", "ʤ"),
        (r"dg", "ʤ"),
        (r"qu", "kw"),
        (r"q", "k"),
        (r"ngu(?=[aeiou])", "ŋɡw"),
        (r"ng$", "ŋ"),
        (r"ng(?=[sk])", "ŋ"),
        (r"nk", "ŋk"),
        (r"nx", "ŋks"),
        (r"sc(?=[eiy])", "s"),
        (r"cc(?=[eiy])", "ks"),
        (r"eigh", "A"),
        (r"igh", "I"),
        (r"augh", "ɔ"),
        (r"ough", "O"),
        (r"eau", "O"),
        (r"oo(?=k)", "ʊ"),
        (r"oor", "ɔɹ"),
        (r"oo", "u"),
        (r"oar", "ɔɹ"),
        (r"oa", "O"),
        (r"ou(?=r)", "ɔ"),
        (r"ou", "W"),
        (r"ow$", "O"),
        (r"ow", "W"),
        (r"oi|oy", "Y"),
        (r"oe(?=s?$)", "O"),
        (r"air|aire", "ɛɹ"),
        (r"ai|ay", "A"),
        (r"au|aw", "ɔ"),
        (r"aa", "ɑ"),
        (r"ear", "ɪɹ"),
        (r"eer", "ɪɹ"),
        (r"ee|ea", "i"),
        (r"ei|ey", "A"),
        (r"eu|ew", "u"),
        (r"ier", "ɪɹ"),
        (r"ie(?=[a-z])", "i"),
        (r"ui", "u"),
        (r"ue$", "u"),
        (r"io", "iO"),
        (r"ia", "iə"),
        # Vowels before r
        (r"arr(?=[aeiouy])", "ɛɹ"),
        (r"are(?=s?$)", "ɛɹ"),
        (r"ar", "ɑɹ"),
        (r"ere(?=s?$)", "ɪɹ"),
        (r"err(?=[aeiouy])", "ɛɹ"),
        (r"er$", "əɹ"),
        (r"er(?=[aeiouy])", "ɛɹ"),
        (r"er|ir|ur", "ɜɹ"),
        (r"or$", "əɹ"),
        (r"or", "ɔɹ"),
        (r"yr", "ɪɹ"),
        # Long vowels: an e, or another vowel, after one consonant
        (rf"a(?={_CONSONANT}e(?:s|d)?$)", "A"),
        (rf"e(?={_CONSONANT}e(?:s|d)?$)", "i"),
        (rf"[iy](?={_CONSONANT}e(?:s|d)?$)", "I"),
        (rf"o(?={_CONSONANT}e(?:s|d)?$)", "O"),
        (rf"u(?={_CONSONANT}e(?:s|d)?$)", "u"),
        (rf"a(?={_CONSONANT}[iouy])", "A"),
        (rf"o(?={_CONSONANT}[aeiouy])", "O"),
        (rf"u(?={_CONSONANT}[aeiouy])", "u"),
        # Single letters
        (r"a", "æ"),
        (r"e", "ɛ"),
        (r"i", "ɪ"),
        (r"o", "ɑ"),
        (r"u", "ʌ"),
        (r"y", "ɪ"),
        (r"c(?=[eiy])", "s"),
        (r"g(?=[eiy])", "ʤ"),
        (r"(?<=[aeiou])s(?=e)", "z"),
        (r"(?<=[bdgvmnlrwaeiouy])s$", "z"),
        (r"bb?", "b"),
        (r"cc?", "k"),
        (r"dd?", "d"),
        (r"ff?", "f"),
        (r"gg?", "ɡ"),
        (r"(?<=[aeiou])h(?![aeiouy])", ""),
        (r"hh?", "h"),
        (r"jj?", "ʤ"),
        (r"kk?", "k"),
        (r"ll?", "l"),
        (r"mm?", "m"),
        (r"nn?", "n"),
        (r"pp?", "p"),
        (r"rr?", "ɹ"),
        (r"ss?", "s"),
        (r"tt?", "t"),
        (r"vv?", "v"),
        (r"ww?", "w"),
        (r"xx?", "ks"),
        (r"zz?", "z"),
    )
)
_RUN: Final = re.compile(r"([a-z])\1{2,}")
_NUCLEUS: Final = "AIOWYæɑʌɔəɛɜɪiʊu"
_LONE_VOWELS: Final = re.compile("[AIOWYæɑʌɔɛɜɪiʊu]|ə")
#: Endings that draw the stress to the syllable before them.
_DRAWING: Final = re.compile(r"(?:tion|sion|cian|ic|ics|ity|ial|ious|ology|ian)s?$")

#: America to Britain, one after the other.
_BRITISH: Final = (
    ("O", "Q"),
    ("æ", "a"),
    ("ɛɹ", "ɛː"),
    ("ɪɹ", "ɪə"),
    ("ɜɹ", "ɜː"),
    ("ɑɹ", "ɑː"),
    ("ɔɹ", "ɔː"),
    ("əɹ", "ə"),
    ("ɑ(?!ː)", "ɒ"),
    ("ɔ(?!ː)", "ɔː"),
    ("u", "uː"),
    ("i(?!$|ə|Q)", "iː"),
)
#: A British r is heard before a vowel only.
_LINKING: Final = re.compile(r"(ɛː|ɪə|ɜː|ɑː|ɔː|ə)R(?=[ˈˌ]?[AIQWYæɑʌɒɔəɛɜɪiʊu])")


def sound_out(word: str, british: bool) -> str:
    """The phonemes of ``word``, which is made of the letters a to z in lower case.

    The work is linear in its length. A word without a vowel, and no word, gives "".
    """
    word = _RUN.sub(r"\1\1", word)
    if not re.search(_VOWEL, word):
        return ""
    sounds = []
    at = 0
    while at < len(word):
        for pattern, sound in _RULES:
            match = pattern.match(word, at)
            if match is not None and match.end() > at:
                sounds.append(sound)
                at = match.end()
                break
        else:  # not a letter
            at += 1
    phonemes = _stressed("".join(sounds), word)
    return _in_britain(phonemes) if british else phonemes


def _stressed(phonemes: str, word: str) -> str:
    nuclei = [match.start() for match in _LONE_VOWELS.finditer(phonemes)]
    if not nuclei:
        return phonemes
    if _DRAWING.search(word) and len(nuclei) > 1:
        at = nuclei[-2] if not word.endswith(("ity", "ology")) else nuclei[max(0, len(nuclei) - 3)]
    elif len(nuclei) <= 2:
        at = nuclei[0]
    else:
        at = nuclei[-3]
    if phonemes[at] == "ə":  # a neutral vowel takes no stress
        strong = [n for n in nuclei if phonemes[n] != "ə"]
        at = strong[0] if strong else at
    return f"{phonemes[:at]}ˈ{phonemes[at:]}"


def _in_britain(phonemes: str) -> str:
    # The r goes, except before a vowel.
    vowel = f"[ˈˌ]?[{_NUCLEUS}]"
    phonemes = re.sub(rf"([ɛɪɜɑɔə])ɹ(?={vowel})", r"\1ɹR", phonemes)
    for american, british in _BRITISH:
        phonemes = re.sub(american, british, phonemes)
    return phonemes.replace("R", "ɹ")
