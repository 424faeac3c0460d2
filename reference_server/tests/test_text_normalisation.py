"""English as it is read out: what stands in the text, and what is said for it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from utterwire_server.text.normalisation import LETTER_NAMES, EnglishNormaliser, spelled

pytest.importorskip("num2words", reason="needs the extra kokoro")

#: A few words, so that these tests need no dictionary.
WORDS = frozenset(
    "a and at the to is it us who open tube you port go case snake camel read me file config main "
    "path join example smith bob mail path stop now this text is loud enough for all of home "
    "works page code bold item link please".split()
)
US = EnglishNormaliser(british=False, known=WORDS.__contains__)
GB = EnglishNormaliser(british=True, known=WORDS.__contains__)


def read(normaliser: EnglishNormaliser, text: str) -> str:
    """The words that are said, letters that are named in capitals with points ("G.P.U.")."""
    spoken = " ".join(token.spoken for token in normaliser(text) if not token.mark)
    named = {wide: f"{plain}." for wide, plain in LETTER_NAMES.items()}
    return "".join(named.get(char, char) for char in spoken)


#: The same on both sides of the Atlantic.
SAME = [
    # Numbers
    ("0", "zero"),
    ("7", "seven"),
    ("42", "forty two"),
    ("1,000,000", "one million"),
    ("3.14", "three point one four"),
    (".5", "zero point five"),
    ("-5", "minus five"),
    ("minus 3", "minus three"),
    ("~20", "about twenty"),
    ("10\N{NO-BREAK SPACE}000", "ten thousand"),
    (">10", "more than ten"),
    ("takes <5 s, costs >$3", "takes less than five seconds costs more than three dollars"),
    ("x->10", "x ten"),
    ("2 s", "two seconds"),
    ("2 s's", "two s's"),
    ("wait 5 min.", "wait five minutes"),
    ("1 h 30 min", "one hour thirty minutes"),
    ("100 W at 12 V", "one hundred watts at twelve volts"),
    ("1080p or 720p", "ten eighty P. or seven twenty P."),
    ("1e6", "one times ten to the power of six"),
    ("2.5e-3", "two point five times ten to the power of minus three"),
    ("2³", "two cubed"),
    ("x²", "x squared"),
    ("12345678901234567890",
     " ".join(["one two three four five six seven eight nine {0}"] * 2)),
    # Ordinals, fractions, decades
    ("1st", "first"),
    ("22nd", "twenty second"),
    ("1/2", "one half"),
    ("3/4", "three quarters"),
    ("2 1/2", "two and a half"),
    ("½", "one half"),
    ("1½", "one and a half"),
    ("24/7", "twenty four seven"),
    ("50/50", "fifty fifty"),
    ("10/10", "ten out of ten"),
    ("the 1990s", "the nineteen nineties"),
    ("the '80s", "the eighties"),
    ("the 60s", "the sixties"),
    # Years
    ("1984", "nineteen eighty four"),
    ("1900", "nineteen hundred"),
    ("1905", "nineteen oh five"),
    ("2000", "two thousand"),
    ("2025", "twenty twenty five"),
    ("2020-21", "twenty twenty to twenty one"),
    # Ranges
    ("3-5", "three to five"),
    ("10–20", "ten to twenty"),
    ("10-20%", "ten to twenty percent"),
    ("3-5 kg", "three to five kilograms"),
    ("1914-1918", "nineteen fourteen to nineteen eighteen"),
    # Per cent, money
    ("50%", "fifty percent"),
    ("3.5 %", "three point five percent"),
    ("$1", "one dollar"),
    ("$3.50", "three dollars and fifty cents"),
    ("$0.99", "ninety nine cents"),
    ("$0.01", "one cent"),
    ("-$5", "minus five dollars"),
    ("$1.5 million", "one point five million dollars"),
    ("$2bn", "two billion dollars"),
    ("$10k", "ten thousand dollars"),
    ("$3-5", "three to five dollars"),
    ("€20–€30", "twenty to thirty euros"),
    ("$5/month", "five dollars per month"),
    ("£1.01", "one pound and one penny"),
    ("£2.50", "two pounds and fifty pence"),
    ("50p", "fifty pence"),
    ("20€", "twenty euros"),
    ("¥500", "five hundred yen"),
    ("20 USD", "twenty U. S. dollars"),
    ("5 million EUR", "five million euros"),
    # Units
    ("1 kg", "one kilogram"),
    ("3.5 GB", "three point five gigabytes"),
    ("60 mph", "sixty miles per hour"),
    ("25 °C", "twenty five degrees Celsius"),
    ("-5°F", "minus five degrees Fahrenheit"),
    ("90°", "ninety degrees"),
    ("100ms", "one hundred milliseconds"),
    ("24 kHz", "twenty four kilohertz"),
    ("5-inch", "five inch"),
    ("6 ft", "six feet"),
    ("5'10\"", "five foot ten"),
    ("2 lbs", "two pounds"),
    ("5 in the room", "five in the room"),
    ("5 in. long", "five inches long"),
    ("2 lbs. of it", "two pounds of it"),
    ("2 tbsp. of it", "two tablespoons of it"),
    ("10x", "ten times"),
    ("4x4", "four by four"),
    ("1920x1080", "nineteen twenty by ten eighty"),
    ("7 × 8", "seven times eight"),
    # Times
    ("3:30 pm", "three thirty P.M."),
    ("3:05", "three oh five"),
    ("15:45", "fifteen forty five"),
    ("3:00", "three o'clock"),
    ("9 a.m. now", "nine A.M. now"),
    ("9-11am", "nine to eleven A.M."),
    ("7.30pm", "seven thirty P.M."),
    ("2:1", "two to one"),
    # Telephone, addresses in the net, versions
    ("1.2.3", "one dot two dot three"),
    ("v2.1", "version two dot one"),
    ("Python 3.11", "Python three dot eleven"),
    ("1.0.0-rc1", "one dot zero dot zero R.C. one"),
    ("bob@example.com", "bob at example dot C.O.M."),
    ("https://example.com", "example dot C.O.M."),
    ("www.example.org/path", "W.W.W. dot example dot O.R.G. slash path"),
    ("example.co.uk", "example dot C.O. dot U.K."),
    # Letters, acronyms, names
    ("WHO is it at the tube", "W.H.O. is it at the tube"),
    ("Stop. WHO is at home.", "Stop W.H.O. is at home"),
    ("WHO is it?", "WHO is it"),
    ("Stop! WHO is it? Stop.", "Stop WHO is it Stop"),
    ("stop WHO is at home", "stop WHO is at home"),
    ("WHO. Stop.", "WHO Stop"),
    ("5G", "five G."),
    ("GPU", "G.P.U."),
    ("GPUs", "G.P.U.'s"),
    ("CPU's", "C.P.U.'s"),
    ("MP3", "M.P. three"),
    ("IPv6", "I.P.V. six"),
    ("H2O", "H. two O."),
    ("221B", "two twenty one B."),
    ("B-52", "B. fifty two"),
    ("HTTP/2", "H.T.T.P. two"),
    ("C++", "C. plus plus"),
    ("C#", "C. sharp"),
    (".NET", "dot N.E.T."),
    ("YouTube", "You Tube"),
    ("OpenAI", "Open A.I."),
    ("snake_case", "snake case"),
    ("camelCase", "camel Case"),
    ("config.main", "config dot main"),
    ("J. R. R. Tolkien", "J. R. R. Tolkien"),
    ("U.S. troops", "U.S. troops"),
    ("THIS TEXT IS LOUD ENOUGH FOR ALL OF US", "this text is loud enough for all of us"),
    # Abbreviations
    ("Dr. Smith", "doctor Smith"),
    ("Mr. Smith and Mrs. Bob", "mister Smith and missus Bob"),
    ("Baker St.", "Baker street"),
    ("St. Bob", "saint Bob"),
    ("Elm Dr.", "Elm drive"),
    ("e.g. this", "for example this"),
    ("i.e. this", "that is this"),
    ("etc.", "et cetera"),
    ("this vs. it", "this versus it"),
    ("No. 5", "number five"),
    ("No.", "No"),
    ("pp. 10-20", "pages ten to twenty"),
    ("Fig. 3", "figure three"),
    ("w/o it", "without it"),
    # Roman numerals
    ("Chapter IV", "Chapter four"),
    ("Henry VIII", "Henry the eighth"),
    ("World War II", "World War two"),
    ("I am", "I am"),
    # Symbols
    ("Tom & Bob", "Tom and Bob"),
    ("2 + 2 = 4", "two plus two equals four"),
    ("5 - 3", "five minus three"),
    ("6 / 2", "six divided by two"),
    ("x > 3", "x is greater than three"),
    ("a <= b", "a is at most b"),
    ("#1", "number one"),
    ("#OpenTube", "hashtag Open Tube"),
    ("@bob", "at bob"),
    ("§ 5", "section five"),
    ("© 2025", "copyright twenty twenty five"),
    ("Room 101", "Room one oh one"),
    ("call 911", "call nine one one"),
    ("the class of '05", "the class of oh five"),
    ("A/B port", "A. B port"),
    ("Vitamin A is it", "Vitamin A. is it"),
    # What is left of markup
    ("**bold** and `code`", "bold and code"),
    ("# Page", "Page"),
    ("- item", "item"),
    ("[link](https://example.com/page)", "link"),
    ("| a | b |", "a b"),
    ("<b>bold</b><br>", "bold"),
    ("Tom &amp; Bob", "Tom and Bob"),
    ("> please", "please"),
    # Odd characters
    ("ｈｏｍｅ １２", "home twelve"),
    ("ho\N{SOFT HYPHEN}me", "home"),
    ("home\N{ZERO WIDTH SPACE}", "home"),
    ("cafe\N{COMBINING ACUTE ACCENT}", "café"),
    ("\N{COMBINING ACUTE ACCENT}", ""),
    ("😀 home 🇬🇧", "home"),
    ("\x00\x1bhome", "home"),
    ("don’t", "don't"),
    ("100 ℃", "one hundred degrees Celsius"),
    ("λ", "lambda"),
    ("٣٤", "thirty four"),
]  # fmt: skip
DIFFERENT = [
    ("3/4/2025", "March fourth twenty twenty five", "the third of April twenty twenty five"),
    ("25/12/2024", "December twenty fifth twenty twenty four",
     "the twenty fifth of December twenty twenty four"),
    ("12/25/24", "December twenty fifth twenty twenty four",
     "the twenty fifth of December twenty twenty four"),
    ("on 3/4", "on March fourth", "on the third of April"),
    ("2025-03-04", "March fourth twenty twenty five", "the fourth of March twenty twenty five"),
    ("2024-12-31T09:05:08Z",
     "December thirty first twenty twenty four nine oh five and eight seconds",
     "the thirty first of December twenty twenty four nine oh five and eight seconds"),
    ("2025-03-04T15:30:00Z", "March fourth twenty twenty five fifteen thirty",
     "the fourth of March twenty twenty five fifteen thirty"),
    ("04.03.2025", "March fourth twenty twenty five", "the fourth of March twenty twenty five"),
    ("March 4, 2025", "March fourth twenty twenty five", "March the fourth twenty twenty five"),
    ("Jan. 5th", "January fifth", "January the fifth"),
    ("March 4-6", "March fourth to sixth", "March the fourth to the sixth"),
    ("4 March 2025", "the fourth of March twenty twenty five",
     "the fourth of March twenty twenty five"),
    ("101 men", "one hundred one men", "one hundred and one men"),
    ("2005", "two thousand five", "two thousand and five"),
    ("1,234", "one thousand two hundred thirty four", "one thousand two hundred and thirty four"),
    ("5 km", "five kilometers", "five kilometres"),
    ("2 L", "two liters", "two litres"),
    ("2 ml", "two milliliters", "two millilitres"),
    ("007", "zero zero seven", "oh oh seven"),
    ("978-3-16", "nine seven eight, three, one six", "nine seven eight, three, one six"),
    ("555-1234", "five five five, one two three four", "five five five, one two three four"),
    ("(555) 123-4567", "five five five, one two three, four five six seven",
     "five five five, one two three, four five six seven"),
    ("020 7946 0958", "zero two zero, seven nine four six, zero nine five eight",
     "oh two oh, seven nine four six, oh nine five eight"),
    ("+44 20 7946 0958", "plus four four, two zero, seven nine four six, zero nine five eight",
     "plus four four, two oh, seven nine four six, oh nine five eight"),
    ("10.0.0.1:80", "one zero dot zero dot zero dot one colon eight zero",
     "one oh dot oh dot oh dot one colon eight oh"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "spoken"), SAME)
def test_read_alike(text: str, spoken: str) -> None:
    assert read(US, text) == spoken.format("zero")
    assert read(GB, text) == spoken.format("oh")


@pytest.mark.parametrize(("text", "american", "british"), DIFFERENT)
def test_read_apart(text: str, american: str, british: str) -> None:
    assert read(US, text) == american
    assert read(GB, text) == british


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "It costs $3.50, or £2 on 3/4/2025.",
            ["It", "costs", "$3.50", "or", "£2", "on", "3/4/2025"],
        ),
        ("At 3:30 p.m. on March 4, 2025", ["At", "3:30", "p.m.", "on", "March", "4", "2025"]),
        ("OpenAI’s GPUs—really?", ["OpenAI’s", "GPUs", "really"]),
        ("cafe\N{COMBINING ACUTE ACCENT} \N{LATIN SMALL LIGATURE FI}ne", ["cafe\u0301", "ﬁne"]),
        ("mail bob@example.com.", ["mail", "bob@example.com"]),
    ],
)
def test_a_token_keeps_what_stands_in_the_text(text: str, words: list[str]) -> None:
    tokens = [token for token in US(text) if not token.mark]
    assert [text[token.char_start : token.char_end] for token in tokens] == words


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("Stop! Now?!", "!?"),
        ("a, b; c: d.", ",;:."),
        ("wait... what", "…"),
        ("this -- that - it", "——"),
        ("(a) “b” \"c\"", "()“”“”"),
        ("it vs. Bob", ""),
        ("He left at 5 p.m.", "."),
        ("ham, eggs, etc.", ",,."),
        ("a.m. and so on", ""),
        ("!!!!!!", "!"),
        ("- item", ""),
    ],
)  # fmt: skip
def test_marks_of_punctuation(text: str, marks: str) -> None:
    assert "".join(token.spoken for token in US(text) if token.mark) == marks


def test_a_part_of_a_text() -> None:
    tokens = US("one 2 three 4", 4, 11)
    assert [(t.spoken, t.char_start, t.char_end) for t in tokens] == [
        ("two", 4, 5),
        ("three", 6, 11),
    ]


def test_letters_that_are_named_are_told_from_words() -> None:
    assert spelled("gpu") == "ＧＰＵ"
    assert US("ＧＯ")[0].spoken == "GO", "capitals of full width in a text are plain ones"


TRICKY = st.text(
    st.one_of(
        st.sampled_from(list("0123456789.,:/-–'\"$£€%°@#&+=*_()[]<>~^ \n\u00a0½²ﬁ️\u0301\u200d")),
        st.sampled_from(list("aAbBmMpPsSxXIVdDrRt")),
        st.characters(),
    ),
    max_size=60,
)


@given(text=TRICKY, british=st.booleans())
def test_any_text_gives_tokens_in_order(text: str, british: bool) -> None:
    tokens = (GB if british else US)(text)
    at = 0
    for token in tokens:
        assert token.spoken.strip() == token.spoken != ""
        assert token.char_start >= at
        assert token.char_end > token.char_start or token.mark
        at = token.char_end
    assert at <= len(text)


@pytest.mark.parametrize(
    "text",
    [
        "1b" + "1" * 60 + "_",
        "1b" * 60 + "_",
        "1bbb111111" * 40 + "'",
        "1.000.000× faster",
        "3.11.2x",
        "1,5,5x1,5,5x",
        "9" * 400 + "x" * 400,
    ],
)
def test_a_text_that_fits_no_rule_costs_no_more_than_another(text: str) -> None:
    for read in (US, GB):
        tokens = read(text)
        assert "".join(text[t.char_start : t.char_end] for t in tokens if not t.mark)


@given(st.text(st.sampled_from("abcdefgh"), min_size=1, max_size=12), st.integers(0, 10**7))
def test_no_word_and_no_number_is_lost(word: str, number: int) -> None:
    text = f"{word} {number} {word}"
    stood = [text[t.char_start : t.char_end] for t in US(text) if not t.mark]
    assert " ".join(stood) == text


@given(st.text(max_size=40))
def test_digits_never_reach_the_dictionary(text: str) -> None:
    for token in US(text):
        assert not any(char.isdecimal() and char.isascii() for char in token.spoken)
        assert unicodedata.category(token.spoken[0])[0] != "C"
