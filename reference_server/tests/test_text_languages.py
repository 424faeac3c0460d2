"""Japanese and the languages of espeak-ng, with their dictionaries stood in for."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from utterwire_server.text.espeak import EspeakPhonemizer
from utterwire_server.text.japanese import JapanesePhonemizer
from utterwire_server.text.phonemes import Sound


def spoken(text: str, sounds: list[Sound]) -> list[tuple[str, str]]:
    return [(text[s.char_start : s.char_end], s.phonemes) for s in sounds if s.word]


# Japanese


def japanese(monkeypatch: pytest.MonkeyPatch, *words: tuple[str, str]) -> JapanesePhonemizer:
    """A phonemizer whose dictionary knows ``words`` (as it writes them, and their readings)."""

    def run_frontend(text: str) -> list[dict[str, str]]:
        found = []
        rest = text
        while rest:
            for written, reading in words:
                plain = written.split("/")[0]
                if rest.startswith(plain):
                    surfaces = written.split("/")[1:] or [plain]
                    found += [
                        {"string": surface, "pron": pron}
                        for surface, pron in zip(surfaces, reading.split("/"), strict=True)
                    ]
                    rest = rest[len(plain) :]
                    break
            else:
                found.append({"string": rest[0], "pron": "、"})
                rest = rest[1:]
        return found

    monkeypatch.setitem(sys.modules, "pyopenjtalk", SimpleNamespace(run_frontend=run_frontend))
    return JapanesePhonemizer()


@pytest.mark.parametrize(
    ("kana", "sounds"),
    [
        ("コンニチワ", "koɴɲiʨiβa"),
        ("キョー", "kʲoː"),
        ("シャシン", "ɕaɕiɴ"),
        ("チャ", "ʨa"),
        ("ファン", "ɸaɴ"),
        ("ウィ", "βi"),
        ("ガッコー", "ɡaʔkoː"),
        ("ツ’カウ", "ʦɨkaɯ"),
        ("ァ", "a"),
        ("、", ""),
    ],
)
def test_kana(monkeypatch: pytest.MonkeyPatch, kana: str, sounds: str) -> None:
    phonemizer = japanese(monkeypatch, ("語", kana))
    found = [sound.phonemes for sound in phonemizer("語", 0, 1)]
    assert found == ([sounds] if sounds else [])


def test_japanese_words_and_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    phonemizer = japanese(
        monkeypatch, ("今日", "キョー"), ("は", "ワ"), ("ＡＩ", "エーアイ"), ("AI/ＡＩ", "エーアイ")
    )
    text = "今日は、AI 😀。"
    sounds = list(phonemizer(text, 0, len(text)))
    assert spoken(text, sounds) == [("今日", "kʲoː"), ("は", "βa"), ("AI", "eːai")]
    assert "".join(sound.phonemes for sound in sounds) == "kʲoː βa, eːai. "


def test_japanese_numbers_keep_their_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    phonemizer = japanese(monkeypatch, ("1,500/千/五/百", "セン/ゴ/ヒャク"), ("円", "エン"))
    text = "1,500円"
    sounds = list(phonemizer(text, 0, len(text)))
    assert spoken(text, sounds) == [("1,500", "seɴɡoçakɯ"), ("円", "eɴ")]


# espeak-ng


class Backend:
    """Says each word in capitals, and may join two words into one."""

    def __init__(self, joins: tuple[str, str] | None = None) -> None:
        self.joins = joins
        self.asked: list[list[str]] = []

    def phonemize(self, words: list[str], strip: bool) -> list[str]:
        self.asked.append(words)
        found = [word.upper() for word in words]
        if self.joins is not None:
            found = [text.replace(*self.joins) for text in found]
        return found


def espeak(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> EspeakPhonemizer:
    def g2p(language: str) -> SimpleNamespace:
        assert language == "fr-fr"
        return SimpleNamespace(backend=backend, e2m=[("X^", "x")])

    monkeypatch.setitem(sys.modules, "misaki.espeak", SimpleNamespace(EspeakG2P=g2p))
    monkeypatch.setitem(sys.modules, "misaki", SimpleNamespace())
    return EspeakPhonemizer("fr-fr")


def test_a_clause_is_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend()
    text = "ab cd, ef (gh) 25 ij!"
    sounds = list(espeak(monkeypatch, backend)(text, 0, len(text)))
    assert backend.asked == [["ab cd"], ["ef"], ["gh"], ["25"], ["ij"]]
    assert spoken(text, sounds) == [
        (word, word.upper()) for word in ("ab", "cd", "ef", "gh", "25", "ij")
    ]
    assert "".join(sound.phonemes for sound in sounds) == "AB CD, EF (GH) 25 IJ!"


def test_words_that_run_together_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend(joins=("AB CD", "ABCD"))
    text = "ab cd ef"
    sounds = list(espeak(monkeypatch, backend)(text, 0, len(text)))
    assert backend.asked == [["ab cd ef"], ["ab", "cd", "ef"]]
    assert spoken(text, sounds) == [("ab", "AB"), ("cd", "CD"), ("ef", "EF")]


def test_what_espeak_writes_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    sounds = list(espeak(monkeypatch, Backend())("x^-a 5 € 😀", 0, 9))
    assert [sound.phonemes for sound in sounds if sound.word] == ["xA", "5", "€"]


def test_a_very_long_word_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a" * 150
    sounds = list(espeak(monkeypatch, Backend())(text, 0, len(text)))
    assert [len(part) for part, _ in spoken(text, sounds)] == [60, 60, 30]
