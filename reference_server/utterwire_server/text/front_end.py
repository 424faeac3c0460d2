"""From a request's text to segments of phonemes, in the language of a voice."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from utterwire_server.text.languages import LANGUAGES, Language
from utterwire_server.text.packing import CRUMB, length, made_into_segments, speaks
from utterwire_server.text.phonemes import Phonemizer, Sound, within
from utterwire_server.text.segment import Segment
from utterwire_server.text.sentences import sentences

__all__ = ["FrontEnd", "LanguageError"]

#: Silence between two sentences, and between two paragraphs, in seconds.
SENTENCE_PAUSE_S: Final = 0.25
PARAGRAPH_PAUSE_S: Final = 0.5


class LanguageError(Exception):
    """A language cannot be spoken; the message says why and what to install, in one line."""


class FrontEnd:
    """Text to segments, for a model that knows the phonemes of ``vocabulary``.

    What a language needs is loaded when it is first asked for, or by `warm_up`. Any number of
    threads may use one front end; one sentence is phonemized at a time for each language.
    """

    def __init__(self, vocabulary: Collection[str]) -> None:
        self._vocabulary = frozenset(vocabulary)
        self._loading = threading.Lock()
        self._locks = {code: threading.Lock() for code in LANGUAGES}
        self._phonemizers: dict[str, Phonemizer] = {}
        self._tagger: object | None = None

    def languages(self) -> Mapping[str, str | None]:
        """Each language code, with None if it can be spoken here, else why not."""
        return {code: language.missing() for code, language in LANGUAGES.items()}

    def warm_up(self, language: str) -> None:
        """Load what ``language`` needs, and speak a word, so that the first request need not wait.

        :raises LanguageError: if there is no such language, or something is missing for it.
        """
        phonemizer = self._phonemizer(language)
        with self._locks[language]:
            phonemizer("A1", 0, 2)

    def segments(self, text: str, language: str) -> Iterator[Segment]:
        """What goes through the model for ``text``, one segment after the other.

        Lazy: the first costs no more than the first sentences. Blocking: call it in a thread. A
        sentence is a segment; short ones are taken together, long ones cut. Symbols that cannot be
        spoken are left out, so that a text may give no segment at all. No text raises anything.

        :raises LanguageError: if there is no such language, or something is missing for it.
        """
        phonemizer = self._phonemizer(language)
        return self._segments(text, LANGUAGES[language], phonemizer)

    def _segments(self, text: str, language: Language, phonemizer: Phonemizer) -> Iterator[Segment]:
        held: Segment | None = None  # its pause depends on whether anything follows
        pause_s = 0.0
        for sounds, paragraph in self._packed(text, language, phonemizer):
            if held is not None:
                yield replace(held, pause_s=pause_s)
                held = None
            for segment in made_into_segments(sounds):
                if held is not None:
                    yield held
                held = segment
            pause_s = PARAGRAPH_PAUSE_S if paragraph else SENTENCE_PAUSE_S
            if held is not None and _has_more(text, held.char_end):
                # Told now, before the next sentence is worked out.
                yield replace(held, pause_s=pause_s)
                held = None
        if held is not None:
            yield held

    def _packed(
        self, text: str, language: Language, phonemizer: Phonemizer
    ) -> Iterator[tuple[list[Sound], bool]]:
        """The sounds of each sentence, short ones taken together; and if a paragraph ends there."""
        waiting: list[Sound] = []
        for sentence in sentences(text, language.iso):
            with self._locks[language.code]:
                found = phonemizer(text, sentence.start, sentence.end)
            sounds = within(found, self._vocabulary)
            if not speaks(sounds):
                if sentence.paragraph and waiting:
                    yield waiting, True
                    waiting = []
                continue
            if waiting and not waiting[-1].phonemes.endswith(" "):
                waiting.append(Sound(" ", sounds[0].char_start, sounds[0].char_start, word=False))
            waiting += sounds
            if sentence.paragraph or length(waiting) >= CRUMB:
                yield waiting, sentence.paragraph
                waiting = []
        if waiting:
            yield waiting, False

    def _phonemizer(self, language: str) -> Phonemizer:
        loaded = self._phonemizers.get(language)
        if loaded is not None:
            return loaded
        if language not in LANGUAGES:
            raise LanguageError(f"no language {language!r}: choose one of {', '.join(LANGUAGES)}")
        with self._loading:
            if language not in self._phonemizers:
                missing = LANGUAGES[language].missing()
                if missing is not None:
                    raise LanguageError(missing)
                try:
                    self._phonemizers[language] = self._load(LANGUAGES[language])
                except ImportError as error:
                    name = LANGUAGES[language].name
                    raise LanguageError(f"{name} cannot be loaded: {error}") from error
            return self._phonemizers[language]

    def _load(self, language: Language) -> Phonemizer:
        # Imported late: each needs packages that another language does without.
        if language.espeak:
            from utterwire_server.text.espeak import EspeakPhonemizer

            return EspeakPhonemizer(language.espeak)
        if language.code == "j":
            from utterwire_server.text.japanese import JapanesePhonemizer

            return JapanesePhonemizer()
        if language.code == "z":
            from utterwire_server.text.mandarin import MandarinPhonemizer

            return MandarinPhonemizer()
        from utterwire_server.text.english import EnglishPhonemizer, load_tagger

        if self._tagger is None:
            self._tagger = load_tagger()
            # One tagger serves both Englishes, and one call at a time.
            self._locks["b"] = self._locks["a"]
        return EnglishPhonemizer(language.code == "b", self._tagger)


def _has_more(text: str, start: int) -> bool:
    """Whether a letter or digit stands in ``text`` from ``start`` on; found at the first one."""
    return any(text[at].isalnum() for at in range(start, len(text)))
