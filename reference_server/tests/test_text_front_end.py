"""The front end as an engine uses it: real text and dictionaries, every language that is there."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_server.text import (
    LANGUAGES,
    MAX_PHONEMES,
    FrontEnd,
    LanguageError,
    Segment,
)
from utterwire_server.text import front_end as module
from utterwire_server.text.phonemes import Sound
from utterwire_server.text.spelling import sound_out

#: The symbols of Kokoro-82M's config.json.
VOCABULARY = (
    ';:,.!?—…"()“”\u0303 ʣʥʦʨᵝꭧAIOQSTWYᵊabcdefhijklmnopqrstuvwxyzɑɐɒæβɔɕçɖðʤəɚɛɜɟɡɥɨɪʝɯɰŋɳɲɴøɸ'
    "θœɹɾɻʁɽʂʃʈʧʊʋʌɣɤχʎʒʔˈˌːʰʲ↓→↗↘ᵻ"
)


#: pyopenjtalk-plus opens its second dictionary so.
pytestmark = pytest.mark.filterwarnings("ignore:Dictionary.create:DeprecationWarning")


@pytest.fixture(scope="module")
def front_end() -> FrontEnd:
    return FrontEnd(VOCABULARY)


def needs(front_end: FrontEnd, language: str) -> None:
    missing = front_end.languages()[language]
    if missing is not None:
        pytest.skip(missing)


def check(text: str, segments: Sequence[Segment]) -> None:
    """What holds for every text."""
    at = 0
    for segment in segments:
        assert set(segment.phonemes) <= set(VOCABULARY)
        assert 0 < len(segment.phonemes) <= MAX_PHONEMES
        for word in segment.words:
            assert word.char_start >= at
            at = word.char_end
            assert text[word.char_start : word.char_end].strip()
            said = segment.phonemes[word.phoneme_start : word.phoneme_end]
            assert said.strip() == said != ""
    assert at <= len(text)
    if segments:
        assert segments[-1].pause_s == 0 or not text[segments[-1].char_end :].isspace()


def words(text: str, segments: Sequence[Segment]) -> list[str]:
    return [text[w.char_start : w.char_end] for s in segments for w in s.words]


def said(segments: Sequence[Segment]) -> str:
    return " ".join(segment.phonemes for segment in segments)


# Languages


def test_the_vocabulary_is_kokoros() -> None:
    assert len(set(VOCABULARY)) == 114


def test_each_language_has_a_letter() -> None:
    assert sorted(LANGUAGES) == list("abefhijpz")


def test_an_unknown_language_is_refused_in_one_line(front_end: FrontEnd) -> None:
    with pytest.raises(LanguageError, match="no language 'q': choose one of a, b"):
        front_end.segments("Hello", "q")


@pytest.mark.parametrize("code", sorted(LANGUAGES))
def test_a_missing_phonemizer_is_one_line(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    front_end = FrontEnd(VOCABULARY)
    told = front_end.languages()[code]
    assert told is not None
    assert "\n" not in told
    assert "pip install 'utterwire[kokoro" in told or "ignore-requires-python" in told
    for use in (front_end.warm_up, lambda language: front_end.segments("x", language)):
        with pytest.raises(LanguageError, match="needs"):
            use(code)


def test_new_python_without_misaki_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("sys.version_info", (3, 13, 0))
    told = LANGUAGES["a"].missing()
    assert told is not None
    assert "\n" not in told
    assert told.startswith("American English needs misaki, which is not declared for Python 3.13")
    assert "--ignore-requires-python" in told


SENTENCES = {
    "a": ("The tomato costs $3.50 at 3:30 pm.", 6),
    "b": ("The tomato costs £3.50 at 3:30 pm.", 6),
    "e": ("Hola, el precio es 25 euros.", 6),
    "f": ("Bonjour, il est quinze heures.", 5),
    "h": ("नमस्ते दुनिया, कैसे हो?", 4),
    "i": ("Ciao, come stai oggi?", 4),
    "p": ("Olá, tudo bem? São 25 reais.", 6),
    "j": ("こんにちは、今日は3月4日です。", 4),
    "z": ("你好，今天是2025年3月4日。", 5),
}


@pytest.mark.parametrize("code", sorted(SENTENCES))
def test_each_language_speaks_a_sentence(code: str, front_end: FrontEnd) -> None:
    needs(front_end, code)
    front_end.warm_up(code)
    text, count = SENTENCES[code]
    segments = list(front_end.segments(text, code))
    check(text, segments)
    assert len(words(text, segments)) >= count
    assert len(said(segments)) > 15


@pytest.mark.parametrize("code", sorted(SENTENCES))
def test_each_language_lives_through_odd_text(code: str, front_end: FrontEnd) -> None:
    needs(front_end, code)
    for text in ODD:
        check(text, list(front_end.segments(text, code)))


# English


def test_words_and_what_stands_in_the_text(front_end: FrontEnd) -> None:
    needs(front_end, "a")
    text = "On 3/4/2025, Dr. Smith’s GPUs cost $1,234.50 — really!\n\nSee https://example.com/a."
    segments = list(front_end.segments(text, "a"))
    check(text, segments)
    assert words(text, segments) == [
        "On", "3/4/2025", "Dr.", "Smith’s", "GPUs", "cost", "$1,234.50", "really", "See",
        "https://example.com/a",
    ]  # fmt: skip
    assert [segment.pause_s for segment in segments] == [module.PARAGRAPH_PAUSE_S, 0.0]
    assert segments[0].phonemes.endswith("!")


@pytest.mark.parametrize(
    ("text", "american", "british"),
    [
        ("tomato", "təmˈATO", "təmˈɑːtQ"),
        ("GPU", "ʤˌipˌijˈu", "ʤˌiːpˌiːjˈuː"),
        ("a cat", "ɐ kˈæt", "ɐ kˈat"),
        ("Plan A.", "plˈæn ˈA.", "plˈan ˈA."),
        ("the 3/4/2025", "ðə mˈɑɹʧ fˈɔɹθ twˈɛnti twˈɛnti fˈIv", None),
        ("Zorblatt's", "zˈɔɹblæts", "zˈɔːblats"),
        ("websocket", "wˈɛbsˌɑkət", "wˈɛbsˌɒkɪt"),
        ("naïve café", None, None),
    ],
)
def test_english_phonemes(
    front_end: FrontEnd, text: str, american: str | None, british: str | None
) -> None:
    needs(front_end, "a")
    for code, expected in (("a", american), ("b", british)):
        segments = list(front_end.segments(text, code))
        check(text, segments)
        assert words(text, segments) == text.rstrip(".").split(" ")
        if expected is not None:
            assert said(segments) == expected


def test_the_tagger_tells_verbs_from_nouns(front_end: FrontEnd) -> None:
    needs(front_end, "a")
    text = "They record a record."
    first, second = (
        w for w in next(front_end.segments(text, "a")).words if w.char_end - w.char_start == 6
    )
    phonemes = next(front_end.segments(text, "a")).phonemes
    assert phonemes[first.phoneme_start : first.phoneme_end] == "ɹəkˈɔɹd"
    assert phonemes[second.phoneme_start : second.phoneme_end] == "ɹˈɛkəɹd"


@pytest.mark.parametrize(
    "word",
    [
        "Blorgification",
        "Zzyzx",
        "Xiaoqing",
        "Kubernetes",
        "Москва",
        "Łódź",
        "αβγ",
        "brrr",
        "x-ray",
        "foo'bar",
        "zz-the",
        "Theto",
    ],
)
def test_words_of_no_dictionary_are_spoken_all_the_same(front_end: FrontEnd, word: str) -> None:
    needs(front_end, "a")
    for code in "ab":
        segments = list(front_end.segments(f"{word} now", code))
        assert len(words(f"{word} now", segments)) >= 2
        assert any(char in "AIOQWYaæɑɒʌɔəɛɜɪiʊu" for char in segments[0].phonemes)


@pytest.mark.parametrize(
    "text", ["", " ", "...", "😀🎉", "\u200b", "\u0301", "—", "()[]{}", "\x00\x1b", "***"]
)
def test_text_with_nothing_to_speak_gives_nothing(front_end: FrontEnd, text: str) -> None:
    needs(front_end, "a")
    assert list(front_end.segments(text, "a")) == []


ODD = (
    "", "\x00\x07", "\u202eabc\u202c", "a\u0301\u0301\u0301\u0301", "👨‍👩‍👧‍👦 ok", "ﷺ", "٣٤ عربي",
    "𝓗𝓮𝓵𝓵𝓸", "\ud800 lone",
    "x" * 3_000, "9" * 700, "word " * 300, "?" * 500, "A1" * 300, "1/2/" * 100,
    "'" * 300, "https://" * 40,
    "(" * 300, "你好 hello नमस्ते こんにちは", "\n" * 300, "𒐫", "a" + "\u0489" * 300,
)  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(
    st.text(st.one_of(st.sampled_from(list("aeT 19.,'$-/:\n“(é")), st.characters()), max_size=80)
)
def test_any_text_keeps_the_rules(text: str) -> None:
    needs(SHARED, "a")
    check(text, list(SHARED.segments(text, "a")))


SHARED = FrontEnd(VOCABULARY)


# Packing and laziness, without a dictionary


class Letters:
    """Each word is spoken as it is written."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str, start: int, end: int) -> list[Sound]:
        self.calls += 1
        sounds: list[Sound] = []
        at = start
        for word in text[start:end].split(" "):
            stop = at + len(word)
            if word.strip(".!?\n"):
                core = word.strip(".!?\n")
                sounds.append(Sound(core, at, at + len(core)))
                if stop > at + len(core):
                    sounds.append(
                        Sound(word[len(core) :].strip("\n"), at + len(core), stop, word=False)
                    )
                sounds.append(Sound(" ", stop, stop, word=False))
            at = stop + 1
        return sounds


@pytest.fixture
def spelled(monkeypatch: pytest.MonkeyPatch) -> tuple[FrontEnd, Letters]:
    pytest.importorskip("sentencex", reason="needs the extra kokoro")
    letters = Letters()
    front_end = FrontEnd(VOCABULARY)
    monkeypatch.setattr(front_end, "_phonemizer", lambda _: letters)
    return front_end, letters


def test_short_sentences_are_spoken_together(spelled: tuple[FrontEnd, Letters]) -> None:
    segments = list(spelled[0].segments("no. yes. oh. this one is longer than a crumb. end.", "a"))
    assert [segment.phonemes for segment in segments] == [
        "no. yes. oh. this one is lonɡer than a crumb.".replace("ɡ", ""),
        "end.",
    ]
    assert [segment.pause_s for segment in segments] == [module.SENTENCE_PAUSE_S, 0.0]


def test_the_first_segment_is_there_before_the_rest_is_read(
    spelled: tuple[FrontEnd, Letters],
) -> None:
    front_end, letters = spelled
    text = "this is one sentence of some words. " * 500
    first = next(iter(front_end.segments(text, "a")))
    assert letters.calls == 1
    assert first.pause_s == module.SENTENCE_PAUSE_S


def test_parts_of_a_sentence_follow_without_a_pause(spelled: tuple[FrontEnd, Letters]) -> None:
    segments = list(spelled[0].segments("word " * 150 + "end.", "a"))
    assert len(segments) == 2
    assert [segment.pause_s for segment in segments] == [0.0, 0.0]


def test_threads_may_share_a_front_end(front_end: FrontEnd) -> None:
    needs(front_end, "a")
    text = "The first sentence has words. The second one has some, too."
    found: list[list[Segment]] = []
    barrier = threading.Barrier(4)

    def speak(code: str) -> None:
        barrier.wait()
        found.append(list(front_end.segments(text, code)))

    threads = [threading.Thread(target=speak, args=("ab"[i % 2],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert sorted({said(segments) for segments in found}) == sorted(
        {said(list(front_end.segments(text, code))) for code in "ab"}
    )


# Letters to sounds


@pytest.mark.parametrize(
    ("word", "american"),
    [("blip", "blˈɪp"), ("nake", "nˈAk"), ("phonk", "fˈɑŋk"), ("shreet", "ʃɹˈit"),
     ("knarp", "nˈɑɹp"),
     ("cuzzle", "kˈʌzəl"), ("brrr", ""), ("", "")],
)  # fmt: skip
def test_sounding_out(word: str, american: str) -> None:
    assert sound_out(word, british=False) == american


@given(st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), max_size=60), st.booleans())
def test_every_word_with_a_vowel_has_a_sound(word: str, british: bool) -> None:
    phonemes = sound_out(word, british)
    assert set(phonemes) <= set(VOCABULARY)
    assert bool(phonemes) == any(char in "aeiouy" for char in word)
