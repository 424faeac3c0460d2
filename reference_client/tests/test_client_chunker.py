"""Sentences out of a text in fragments."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from utterwire_client import ExtraMissing, IncrementalSentenceChunker

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data"
#: The English Golden Rules of pragmatic_segmenter, which are not kept here.
GOLDEN = "UTTERWIRE_GOLDEN_RULES"
LIMIT = 40


def cut(text: str, size: int = 1, **options: Any) -> list[str]:
    chunker = IncrementalSentenceChunker(**options)
    pieces: list[str] = []
    for start in range(0, len(text), size):
        pieces += chunker.feed(text[start : start + size])
    return pieces + chunker.flush()


def speaks(text: str) -> bool:
    return any(map(str.isalnum, text))


# Words, stops and what stands around them, so that rules meet; and any text at all.
WORDS = """
    Hello world I A it It. Then Dr. St. U.S. e.g. etc. p.m. No. 5 3.14 1999 1. 2. a) b) ( ) [ ] ”
    " ' “ * ** _ ` # - • 🎉 👍🏽 . .. ... … ! ? ?! 。 ！ ？ 、 」 「 । ؟ ; : , — / @ 你好 はい नमस्ते
    डॉ. د. مرحبا 안녕하세요 été Ünder Node.js example.com http://a.b/?c=D.e""".split()
SPACES = [*"    \n\t\u00a0\u2028\u200d\ud800\u0301", "\n\n", "\r\n"]
PARTS = st.sampled_from([*WORDS, *SPACES])
TEXTS = st.one_of(
    st.lists(PARTS, max_size=60).map("".join),
    st.lists(PARTS, max_size=40).map(" ".join),
    st.text(max_size=80),
)
LANGUAGES = st.sampled_from(["en", "de", "fr", "hi", "ja", "el", "xx"])
OPTIONS = st.fixed_dictionaries(
    {
        "max_chars": st.sampled_from([20, LIMIT, 250]),
        "first_clause": st.booleans(),
        "language": LANGUAGES,
    }
)


class TestProperties:
    @given(TEXTS, OPTIONS)
    @example("\ud800. A", {})
    def test_pieces_joined_are_the_text(self, text: str, options: dict[str, Any]) -> None:
        assert "".join(cut(text, **options)) == text

    @given(TEXTS, OPTIONS, st.lists(st.integers(0, 200), max_size=12))
    def test_pieces_are_the_same_for_every_cutting(
        self, text: str, options: dict[str, Any], places: list[int]
    ) -> None:
        chunker = IncrementalSentenceChunker(**options)
        bounds = [0, *sorted(min(place, len(text)) for place in places), len(text)]
        pieces: list[str] = []
        for start, end in itertools.pairwise(bounds):
            pieces += chunker.feed(text[start:end])
        assert pieces + chunker.flush() == cut(text, **options)

    @given(TEXTS, OPTIONS, st.integers(0, 200))
    def test_what_was_returned_stays_true(
        self, text: str, options: dict[str, Any], length: int
    ) -> None:
        some = IncrementalSentenceChunker(**options).feed(text[:length])
        assert some == IncrementalSentenceChunker(**options).feed(text)[: len(some)]

    @given(TEXTS, OPTIONS)
    def test_every_piece_has_something_to_speak(self, text: str, options: dict[str, Any]) -> None:
        pieces = cut(text, **options)
        if speaks(text):
            assert all(map(speaks, pieces))
        else:
            assert pieces == ([text] if text else [])

    @given(st.lists(st.sampled_from(["word", "a", "7", ".", ",", " ", "é", "字"]), max_size=200))
    def test_no_piece_is_longer_than_the_limit(self, parts: list[str]) -> None:
        text = " ".join(parts)
        pieces = cut(text, max_chars=LIMIT)
        for piece in pieces:
            # What cannot be spoken is not cut for it.
            start = next((at for at, char in enumerate(piece) if char.isalnum()), 0)
            assert len(piece.rstrip(" .,")) - start <= LIMIT

    @given(TEXTS, OPTIONS)
    def test_a_flushed_chunker_is_as_new(self, text: str, options: dict[str, Any]) -> None:
        chunker = IncrementalSentenceChunker(**options)
        first = chunker.feed(text) + chunker.flush()
        assert chunker.feed(text) + chunker.flush() == first
        assert chunker.flush() == []


class TestData:
    """What listeners expect, met exactly; white space between pieces is on either side."""

    def missed(self, path: Path) -> tuple[int, list[str]]:
        items = json.loads(path.read_text(encoding="utf-8"))["items"]
        missed = []
        for item in items:
            pieces = cut(item["in"], language=item.get("language", "en"))
            if self.plain(pieces) != self.plain(item["out"]):
                missed.append(f"{item['in']!r}: {pieces}")
        return len(items), missed

    def plain(self, pieces: list[str]) -> list[str]:
        return [" ".join(piece.split()) for piece in pieces]

    def test_voice_sentences(self) -> None:
        count, missed = self.missed(DATA / "voice_sentences.json")
        assert count >= 150
        assert not missed

    def test_sentences_that_the_rules_were_not_written_for(self) -> None:
        count, missed = self.missed(DATA / "voice_sentences_held_out.json")
        assert len(missed) <= count * 0.05, missed

    def test_golden_rules(self) -> None:
        path = Path(os.environ.get(GOLDEN, ROOT.parent / "shared/data/golden_rules_en.json"))
        if not path.is_file():
            pytest.skip(f"{GOLDEN} names no file, and there is none beside the checkout")
        count, missed = self.missed(path)
        assert count - len(missed) >= 51, missed


class TestEvidence:
    """`benchmarks/chunkers.py`, what it found, and what the README shows of it."""

    def benchmark(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location("chunkers", ROOT / "benchmarks/chunkers.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def test_the_table_in_the_readme_is_of_the_evidence(self) -> None:
        evidence = ROOT / "evidence/chunkers.json"
        if not evidence.is_file():
            pytest.skip("the source distribution has no evidence")
        found = json.loads(evidence.read_text(encoding="utf-8"))
        readme = (ROOT / "reference_client/README.md").read_text(encoding="utf-8")
        assert self.benchmark().table(found["chunkers"]) in readme
        ours = found["chunkers"]["utterwire"]
        assert ours["same_for_every_cutting"]["same"] == ours["same_for_every_cutting"]["items"]
        assert ours["delay_characters"]["median"] <= 3
        assert ours["ms_for_4000_unpunctuated"] < 10

    @pytest.mark.slow
    def test_the_benchmark_runs(self) -> None:
        chosen = ["--only", "utterwire", "--only", "regex", "--only", "pysbd", "--out", "-"]
        done = subprocess.run(
            [sys.executable, ROOT / "benchmarks/chunkers.py", *chosen],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        chunkers = json.loads(done.stdout)["chunkers"]
        assert chunkers["utterwire"]["hangs"] == chunkers["utterwire"]["failures"] == 0
        assert chunkers["utterwire"]["exact"]["voice"]["streamed"] > 150
        assert chunkers["regex"]["exact"]["voice"]["streamed"] < 150
        assert "pysbd" in chunkers or "pysbd is left out" in done.stderr


class TestDelay:
    """After how many characters a piece is returned, counted from its end."""

    @pytest.mark.parametrize(
        ("text", "delay"),
        [
            ("Good morning. How", 2),
            ("Is it you? Yes", 2),
            ("Is it you?! Yes", 2),
            ("It was 1999. Then", 2),
            ("So do it. Then", 2),
            ("He said no. Then", 2),
            ("你好。我", 1),
            ("「はい。」と", 1),
            ("ठीक है। मैं", 2),
            ("ما اسمك؟ اسمي", 2),
            ("안녕하세요. 무엇", 2),
            ("One line\nTwo", 1),
            ("Done! 🎉 Now", 2),
            ("At 5 p.m. Then we", 6),  # the whole word tells
            ("It ended.Then we", 5),
            ("At 5 p.m. E\u0301te\u0301 fut", 7),  # accents are of the word
        ],
    )
    def test_delay(self, text: str, delay: int) -> None:
        chunker = IncrementalSentenceChunker()
        for at, char in enumerate(text):
            pieces = chunker.feed(char)
            if pieces:
                assert at + 1 - len(pieces[0].rstrip(" ")) == delay, pieces
                return
        pytest.fail("nothing came before the end")

    def test_a_word_that_never_ends_is_not_waited_for(self) -> None:
        chunker = IncrementalSentenceChunker()
        assert chunker.feed("At 5 p.m. T" + "h" * 22) == []
        assert chunker.feed("hh") == ["At 5 p.m."]


class TestOptions:
    def test_a_long_sentence_is_cut_after_a_clause(self) -> None:
        text = "We could take the early train, or the bus that leaves at noon and takes longer."
        assert cut(text, max_chars=60) == [
            "We could take the early train,",
            " or the bus that leaves at noon and takes longer.",
        ]

    def test_or_after_a_word(self) -> None:
        text = "we could take the early train or the bus that leaves at noon"
        assert cut(text, max_chars=40) == [
            "we could take the early train or the bus",
            " that leaves at noon",
        ]

    def test_or_anywhere_but_within_a_character(self) -> None:
        assert [len(piece) for piece in cut("字" * 100, max_chars=40)] == [40, 40, 20]
        pieces = cut("e\u0301" * 50, max_chars=41)
        assert not [piece for piece in pieces if piece.startswith("\u0301")]

    def test_a_limit_that_is_met_while_a_word_is_waited_for(self) -> None:
        assert cut("We meet at the old station at 5 p.m. Thenceforth.", max_chars=40) == [
            "We meet at the old station at 5 p.m.",
            " Thenceforth.",
        ]
        assert cut("We meet at the station, then at 5 p.m. Thenceforth.", max_chars=40) == [
            "We meet at the station,",
            " then at 5 p.m.",
            " Thenceforth.",
        ]

    def test_a_character_that_cannot_be_cut_is_longer_than_the_limit(self) -> None:
        text = "e" + "\u0301" * 50 + "a"
        assert cut(text, max_chars=20) == [text[:-1], "a"]
        joined = "a\u200d" * 1000
        assert max(map(len, cut(joined, max_chars=20))) < 30

    def test_first_clause(self) -> None:
        text = "As far as I can see, it is open, and so on. One, two, three."
        assert cut(text, first_clause=True) == [
            "As far as I can see,",
            " it is open, and so on.",
            " One, two, three.",
        ]

    @pytest.mark.parametrize(
        "text",
        [
            "Yes, it is.",
            "The total is 1,000,000 euro.",
            "It was on Monday, 5 May.",
            "Some fruit, e.g., pears.",
        ],
    )
    def test_what_is_no_first_clause(self, text: str) -> None:
        assert cut(text, first_clause=True) == [text]

    def test_first_clause_of_a_script_without_spaces(self) -> None:
        assert cut("如果明天下雨，我们就不去。", first_clause=True) == [
            "如果明天下雨，",
            "我们就不去。",
        ]
        assert cut("是，我们去。", first_clause=True) == ["是，我们去。"]

    def test_a_limit_that_is_too_low_is_refused(self) -> None:
        with pytest.raises(ValueError, match="max_chars must be at least 20, not 19"):
            IncrementalSentenceChunker(max_chars=19)

    def test_without_the_extra_it_is_one_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "sentencex", None)
        with pytest.raises(ExtraMissing, match=r"sentencex: pip install 'utterwire\[client\]'"):
            IncrementalSentenceChunker()


class TestUnspeakable:
    @pytest.mark.parametrize("text", ["", "...", "🎉🎉", " \n\n ", "!?", "—", "***\n---"])
    def test_a_text_with_nothing_to_speak_is_one_piece(self, text: str) -> None:
        assert cut(text) == ([text] if text else [])

    @pytest.mark.parametrize(
        ("text", "pieces"),
        [
            ("... Hello. 🎉", ["... Hello. 🎉"]),
            ("One. ... Two.", ["One.", " ... Two."]),
            ("One.\n\n---\n\nTwo.", ["One.\n\n", "---\n\nTwo."]),
            ("👍 Fine! 👍 Really. 👍", ["👍 Fine! 👍", " Really. 👍"]),
        ],
    )
    def test_it_joins_its_neighbour(self, text: str, pieces: list[str]) -> None:
        assert cut(text) == pieces

    @pytest.mark.parametrize("unit", [" \t", " ", "\n ", "• ", "'\"", "🎉"])
    def test_a_long_run_is_gone_through_once(self, unit: str) -> None:
        # Where each of its characters is looked from to its end, this takes minutes.
        text = "One." + unit * (60_000 // len(unit)) + "Two."
        assert "".join(cut(text)) == text

    def test_a_long_run_is_kept_but_not_without_end(self) -> None:
        assert [len(piece) for piece in cut("." * 60_000, 60_000)] == [60_000]
        chunker = IncrementalSentenceChunker()
        assert chunker.feed("a" + "." * 70_000)
