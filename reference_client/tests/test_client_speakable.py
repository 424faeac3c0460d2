"""What is to be heard of a piece."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from utterwire_client import IncrementalSentenceChunker, SpeakableState, speakable

CASES = {
    "plain": [
        ("Hello.", "Hello."),
        ("  two   spaces \n", "two spaces"),
        ("one line\nand the next", "one line and the next"),
        ("Voilà !", "Voilà !"),
        ("$5 and £10, ~5 minutes", "$5 and £10, ~5 minutes"),
        ("C# and F#, #1, 50%", "C# and F#, #1, 50%"),
        ("It's 72.5°F → hot, ½ ©", "It's 72.5°F → hot, ½ ©"),
        ("ls | grep x", "ls | grep x"),
        ("|x| is absolute", "|x| is absolute"),
        ("array[0][1] and [sic]", "array[0][1] and [sic]"),
        ("-5 degrees", "-5 degrees"),
        ("C:\\Users\\me", "C:\\Users\\me"),
    ],
    "arithmetic and names": [
        ("2 * 3 * 4 = 24", "2 * 3 * 4 = 24"),
        ("2*3*4, 2**8 and x*y*z", "2*3*4, 2**8 and x*y*z"),
        ("5*(3+2) and (2+3)*4", "5*(3+2) and (2+3)*4"),
        ("5 < 6 and 7 > 3, a == b", "5 < 6 and 7 > 3, a == b"),
        ("if a<b and c>d", "if a<b and c>d"),
        ("List<String>", "List<String>"),
        ("snake_case_name, x_1 and _private_name", "snake_case_name, x_1 and private_name"),
        ("all *.txt files", "all *.txt files"),
    ],
    "emphasis": [
        ("*a* _b_ **c** __d__ ***e*** ~~f~~ ==g==", "a b c d e f g"),
        ("**Note:** this", "Note: this"),
        ('He said **"hi"**.', 'He said "hi".'),
        ("**bold *and italic* text**", "bold and italic text"),
        ("**b**old", "bold"),
        ("**This is it.", "This is it."),
        (" And that.**", "And that."),
    ],
    "blocks": [
        ("# Title", "Title"),
        ("### Title ###\n\nText", "Title\nText"),
        ("Title\n=====\nText", "Title\nText"),
        ("One.\n\n---\n\nTwo.", "One.\nTwo."),
        ("> quoted\n> > twice", "quoted\ntwice"),
        ("- one\n* two\n+ three\n  - four", "one\ntwo\nthree\nfour"),
        ("1. one\n2) two", "1. one\n2) two"),
        ("- [ ] open\n- [x] done\n1. [ ] first", "open\ndone\n1. first"),
        ("* item *em* x", "item em x"),
        ("| a | b |\n|---|:-:|\n| 1 | **2** |", "a, b\n1, 2"),
        ("a | b\n--- | ---\n1 | 2", "a, b\n1, 2"),
        ("| Yes. | no |", "Yes. no"),
        ("```python\nprint()\n```\nDone.", "Done."),
        ("~~~\ncode\n```\nstill\n~~~\nDone.", "Done."),
        ("- so:\n  ```sh\n  ls\n  ```\n- next", "so:\nnext"),
        ("```\nnever closed", ""),
        ("[ref]: https://example.com 'Title'\n", ""),
        ("[Note]: well.", "[Note]: well."),
    ],
    "inline": [
        ("Run `pip install foo_bar`.", "Run pip install foo_bar."),
        ("`a*b*c`, ``x`y`` and `__init__`", "a*b*c, x`y and __init__"),
        ("[the guide](https://example.com/a_(b)?c=d).", "the guide."),
        ('[the guide](<https://example.com/> "Title")', "the guide"),
        ("[the guide][ref], [ref][]", "the guide, ref"),
        ("![A cat](cat.png) and [![alt](i.png)](https://example.com)", "A cat and alt"),
        ("It rains[^1].\n\n[^1]: In May.", "It rains.\nIn May."),
        ("It rains【4†source】.", "It rains."),
        (r"\*no emphasis\*, 5 \< 6, \# and \\", "*no emphasis*, 5 < 6, # and \\"),
        ("Tom &amp; Ann &#42;&lt;b&gt;", "Tom & Ann *<b>"),
        (":tada: at 10:30:45", "at 10:30:45"),
        ("(🎉) done", "done"),
    ],
    "addresses": [
        ("See https://www.example.com/docs/page?x=1.", "See example.com."),
        ("See http://example.com/help, or ask.", "See example.com/help, or ask."),
        ("**https://localhost:8080/**", "localhost:8080"),
        ("(https://en.wikipedia.org/wiki/A_(b))", "(en.wikipedia.org)"),
        ("<https://example.com/x> <a@example.com>", "example.com/x a@example.com"),
        ("mailto:b@example.com?subject=hi", "b@example.com"),
        ("example.com and a_b@example.com", "example.com and a_b@example.com"),
    ],
    "HTML": [
        ("a <b>bold</b> word", "a bold word"),
        ("one<br>two<br/>three", "one\ntwo\nthree"),
        ('<a href="https://example.com" target=_blank>here</a>', "here"),
        ("Hello <!-- not\nheard -->world", "Hello world"),
        ("<script>let a = 1;</script>Hello<style>b {}</style>", "Hello"),
        ("<?a?>Hello<SCRIPT>b</Script > you<!---->", "Hello you"),
        ("<details open><summary>More</summary>Text</details>", "More\nText"),
    ],
    "emoji": [
        ("🎉", ""),
        ("Great job! 🎉 Let's go 👍🏽.", "Great job! Let's go."),
        ("Bye!😀See you", "Bye! See you"),
        ("👩‍👩‍👧 🇩🇪 ✅ ❤️ ▶️ ↔️ ok", "ok"),
        ("1️⃣ first ©️", "1 first ©"),
        ("क्‍ष and می‌خواهم", "क्‍ष and می‌خواهم"),
    ],
    "in the middle of a line": [
        ("It is so[^1]: it has to be.", "It is so: it has to be."),
        ("Take exit 5. [x] is there.", "Take exit 5. [x] is there."),
    ],
    "nothing": [("", ""), ("...", ""), ("***", ""), ("\ud800\u200b", ""), ("()", "")],
}  # fmt: skip


@pytest.mark.parametrize(("piece", "heard"), [case for cases in CASES.values() for case in cases])
def test_speakable(piece: str, heard: str) -> None:
    assert speakable(piece) == heard


@pytest.mark.parametrize(
    "pieces",
    [
        [("Run:\n", "Run:"), ("```\nmake.\n", ""), ("all.\n", ""), ("```\nDone.", "Done.")],
        [("```py", ""), ("thon\nx = 1\n", ""), ("  ```\n", ""), ("Done.", "Done.")],
        [("````\n```\n", ""), ("x\n```\n", ""), ("````\nDone.", "Done.")],
        [("[Read it.", "Read it."), (" Then go](https://example.com/).", "Then go.")],
        [("See [it](https://example.com/a", "See it"), ("/b?c=", ""), ("d) now.", "now.")],
        [("See [it](https://example.com/a", "See it"), (" and go on.", "and go on.")],
        [("See [the guide]", "See [the guide]"), ("(https://example.com) now.", "now.")],
        [("[ref]:", "[ref]:"), (" https://example.com\nOk.", "Ok.")],
        [("[Note]:", "[Note]:"), (" well.", "well.")],
        [("See [1]", "See [1]"), (" (or not).", "(or not).")],
        [("See https://example.com/a", "See example.com/a"), ("b-c", ""), ("d now.", "now.")],
        [("See https://example.com.", "See example.com."), ("Then go.", "Then go.")],
        [("Hello <!-- one.", "Hello"), (" Two.", ""), (" Three. --> there.", "there.")],
        [('A <a href="https://example.com/', "A"), ('x">link</a>.', "link.")],
        [('A <a href="https://example.com/', "A"), ("so it was no tag", "so it was no tag")],
        [("<script>let a;", ""), ("b;</script>Hi.", "Hi.")],
        [("| a | b |\n", "a, b"), ("|---|---|\n| One.", "One."), (" Two. | 3 |\n", "Two. 3")],
        [("a | b\n--- | ---\n", "a, b"), ("1 | 2\n", "1, 2"), ("\n3 | 4", "3 | 4")],
        [("That is 2", "That is 2"), (" * 3 of them.", "* 3 of them.")],
        [("# One", "One"), (" # two\n", "# two"), ("# Three", "Three")],
    ],
)  # fmt: skip
def test_what_goes_over_several_pieces(pieces: list[tuple[str, str]]) -> None:
    state = SpeakableState()
    assert [speakable(piece, state) for piece, _ in pieces] == [heard for _, heard in pieces]


WORDS = ["Alpha", "bravo.", "Charlie", "delta", "echo,", "Foxtrot!", "golf?", "hotel"]
UNHEARD = [
    "```\nSECRET one. Two\n```\n",
    "~~~sh\nSECRET --now. Then SECRET\n\nSECRET\n~~~\n",
    "<!-- SECRET. Is SECRET -->\n",
    "[ref]: https://example.com/SECRET\n",
    "word [link](https://example.com/SECRET/a.b?c=SECRET) word\n",
    "word ![image. It is](SECRET.png) word\n",
    '<img src="SECRET"> word\n',
]


PARTS = st.one_of(
    st.sampled_from(WORDS).map(lambda word: word + " "),
    st.sampled_from(UNHEARD).map(lambda block: f"\n{block}\n"),
)


@given(st.lists(PARTS, max_size=30), st.sampled_from([40, 80, 250]))
def test_what_is_not_to_be_heard_never_is(parts: list[str], max_chars: int) -> None:
    chunker, state = IncrementalSentenceChunker(max_chars=max_chars), SpeakableState()
    text = "".join(parts)
    heard = " ".join(speakable(piece, state) for piece in chunker.feed(text) + chunker.flush())
    assert "SECRET" not in heard
    said = [part.strip(" .,!?") for part in parts if part.strip() in WORDS]
    assert [word for word in re.findall(r"\w+", heard) if word in map(str.strip, said)] == said


@given(st.text(max_size=200))
def test_any_text_gives_text_that_can_be_sent(text: str) -> None:
    heard = speakable(text)
    heard.encode()
    assert heard == "" or any(map(str.isalnum, heard))


@given(st.lists(st.from_regex(r"[a-zà-ÿ0-9]+[.,;:!?]?", fullmatch=True), min_size=1, max_size=20))
def test_plain_text_stays_as_it_is(words: list[str]) -> None:
    text = "so " + " ".join(words)
    assert speakable(text) == text


@pytest.mark.parametrize(
    "unit", ["🎉", "🎉 ", "[", "[^", "<!--", "<?", "<script>", "http://", "【", "](", "`"]
)
def test_a_long_run_of_marks_is_gone_through_once(unit: str) -> None:
    # Where each mark is looked from to the end of the run, this takes minutes.
    assert speakable("Hello. " + unit * 60_000 + " ! Bye").startswith("Hello.")
