"""The page: complete, harmless whatever an endpoint says, bounded, and good in a browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_conformance import cli
from utterwire_conformance.baseline import Baseline
from utterwire_conformance.check import CHECKS
from utterwire_conformance.endpoints import endpoint_at
from utterwire_conformance.page import render_page, write_page
from utterwire_conformance.page.plot import Strip, duration, strip_plot
from utterwire_conformance.page.steps import steps
from utterwire_conformance.page.visible import cut, visible
from utterwire_conformance.report import Report, results_of
from utterwire_conformance.report_file import ReportError
from utterwire_conformance.runner import Results
from utterwire_conformance.transcript import Case, Entry, Transcript
from utterwire_conformance.verdict import Judgement, Verdict, fail, not_exercised, passed

HOSTILE = (
    "<script>window.hacked = 1</script></style></script><img src=x onerror='window.hacked = 1'>"
    "\x00\x07\x1b[31m\x7f\x9b\u202egnp.exe\u2066\u200f\ufeff\u2028{{ 7 * 7 }}{% raw %}&lt;\"'"
    "\U000e0041" + "Z\u0351\u0352\u0353\u0354\u0355\u0356\u0357"
)
LONG = HOSTILE + "x" * 65_536


def told(text: str = "It is broken.") -> Judgement:
    return fail(
        text,
        sent=f"sent {text}",
        received=f"received {text}",
        legal=f"`legal` {text}",
        advice=f"Mend {text}",
        scenarios=["order"],
    )


def transcript(text: str = "", *, chunks: int = 3) -> Transcript:
    made = Transcript("order", "x")
    made.add(Entry(0.0, "out", "open", 1, method="GET", target="/"))
    made.add(Entry(0.01, "in", "open", 1, status=101))
    made.add(Entry(0.02, "note", "note", 1, text=Case("one", "order.fifo", "reject").to_note()))
    body = json.dumps({"text": text}).encode()
    made.add(Entry(0.03, "out", "text", 1, data=body))
    for number in range(chunks):
        made.add(Entry(0.04 + number / 1000, "in", "binary", 1, data=b"\x01\x02" * 500))
    made.add(Entry(1.0, "in", "text", 1, data=text.encode("utf-8", "replace")))
    made.add(Entry(1.1, "note", "note", 1, text="in vain: 1"))
    made.add(Entry(1.2, "in", "close", 1, code=1000, reason=text[:100]))
    made.add(Entry(1.3, "in", "eof", 1, reason=text))
    return made


def saved(
    folder: Path,
    changes: dict[str, Judgement],
    *,
    text: str = "Hello.",
    name: str | None = None,
    baseline: Baseline | None = None,
    options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    run = Results(dict.fromkeys(CHECKS, passed()) | changes, {"order": transcript(text)})
    where = endpoint_at("wss://h/x", profiles=["http", "interrupt"])
    found = results_of(run, where, ("core", "http"))
    made = Report(where, ("core", "http"), found, run, baseline=baseline, options=options or {})
    made.save(folder)
    document: dict[str, Any] = json.loads((folder / "report.json").read_text("utf-8"))
    if name is not None:
        document["subject"]["name"] = name
        (folder / "report.json").write_text(json.dumps(document), encoding="utf-8")
        write_page(folder)
    return document


class Reader(HTMLParser):
    """What a browser would make of the page, as far as it matters here."""

    VOID = frozenset({"meta", "link", "input", "br", "img", "rect", "line", "hr", "col", "wbr"})

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(key, value or "") for key, value in attrs]
        self.ids += [value or "" for key, value in attrs if key == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag, f"</{tag}> is out of place"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def harmless(page: str) -> Reader:
    reader = read(page)
    assert reader.tags.count("script") == reader.tags.count("style") == 1
    assert "img" not in reader.tags
    assert not [key for key, _ in reader.attributes if key.startswith("on") or key == "style"]
    for key, value in reader.attributes:
        if key in ("href", "src"):
            assert value.startswith(("#", "data:,")), value
    assert len(reader.ids) == len(set(reader.ids))
    outside = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f]", outside
    )
    return reader


def test_a_failure_is_told_with_its_ladder_and_the_moment(tmp_path: Path) -> None:
    document = saved(tmp_path, {"order.fifo": told()})
    for row in document["results"]:
        for check in row["checks"]:
            if check["verdict"] == "fail":
                check["at"] = {"transcript": "order", "session": 1, "line": 9, "t": 1.0}
    page = render_page(document, tmp_path)
    harmless(page)
    for part in (
        "Does not conform",
        "1 requirement broken",
        "It is broken.",
        "received It is broken.",
        "<code>legal</code>",
        "Mend It is broken.",
        "the rule broke here",
        "waited in vain for the end of message 1",
        "transcripts/order.jsonl",
        "spec/protocol.md#order",
        "What the clause says",
    ):
        assert part in page, part


@pytest.mark.parametrize("text", [HOSTILE, LONG], ids=["short", "long"])
def test_nothing_an_endpoint_says_does_harm(tmp_path: Path, text: str) -> None:
    changes = dict.fromkeys(list(CHECKS)[:20], told(text))
    changes["order.fifo"] = Judgement(Verdict.HARNESS_ERROR, text)
    changes["queue.full"] = not_exercised(text)
    saved(tmp_path, changes, text=text, name=text, baseline=Baseline({"ws.path": text}, text))
    page = (tmp_path / "report.html").read_text("utf-8")
    harmless(page)
    assert "window.hacked" in page
    assert "<script>window" not in page
    assert "\\u202e" in page
    assert "{{ 7 * 7 }}" in page


def test_a_page_of_a_hundred_long_failures_is_bounded(tmp_path: Path) -> None:
    saved(tmp_path, dict.fromkeys(list(CHECKS)[:120], told(LONG)), text=LONG)
    assert (tmp_path / "report.html").stat().st_size < 2_000_000
    harmless((tmp_path / "report.html").read_text("utf-8"))


GONE = Judgement(Verdict.HARNESS_ERROR, "Nobody is there.")


@pytest.mark.parametrize(
    ("changes", "known", "options", "word"),
    [
        ({}, None, {}, "Conforms"),
        ({}, None, {"quick": True}, "Looks right so far"),
        ({}, None, {"selected": ["order.fifo"]}, "Conforms in what was selected"),
        ({"order.fifo": told()}, None, {}, "Does not conform"),
        ({"order.fifo": told()}, ["order.fifo"], {}, "Does not conform, as is known"),
        ({}, ["order.fifo"], {}, "Better than its baseline"),
        (dict.fromkeys(CHECKS, GONE), None, {}, "Could not be judged"),
        ({"order.fifo": told(), "ws.path": GONE}, None, {}, "Could not be judged"),
        (dict.fromkeys(CHECKS, not_exercised("no")), None, {}, "Could not be judged"),
        ({"audio.speed": told().weakened()}, None, {}, "Conforms"),
    ],
)
def test_the_headline_is_honest(
    tmp_path: Path,
    changes: dict[str, Judgement],
    known: list[str] | None,
    options: dict[str, Any],
    word: str,
) -> None:
    baseline = Baseline(dict.fromkeys(known, "It may."), "known.toml") if known else None
    saved(tmp_path, changes, baseline=baseline, options=options)
    page = (tmp_path / "report.html").read_text("utf-8")
    harmless(page)
    assert f'<h2 id="verdict">{word}</h2>' in page
    assert ("known failure</span>" in page) == (word == "Does not conform, as is known")


def test_fuzzing_and_its_findings_are_shown(tmp_path: Path) -> None:
    document = saved(tmp_path, {})
    document["fuzz"] = {"left_out": HOSTILE}
    page = render_page(document, tmp_path)
    harmless(page)
    assert "Not done: " in page
    document["fuzz"] = {
        "seed": 7,
        "programs": 1200,
        "duration_s": 30.0,
        "sessions": 5,
        "characters": 6,
        "stopped": "the time was over",
        "kinds": {"sessions": {"verdict": "fail", "reason": HOSTILE, "programs": 3}},
    }
    document["findings"] = [
        {
            "file": "findings/x.jsonl",
            "requirement": "order.fifo",
            "reason": HOSTILE,
            "sent": HOSTILE,
            "also": ["ws.path"],
            "steps": 2,
            "seen": "2 of 3",
            "flaky": True,
        }
    ]
    page = render_page(document, tmp_path)
    harmless(page)
    for part in ("1,200 made-up conversations", "Seed 7", "2 steps", "seen 2 of 3", "also ws.path"):
        assert part in page


def test_latency_is_drawn_and_written_by_kind(tmp_path: Path) -> None:
    document = saved(tmp_path, {})
    document["latency"]["samples"] = [
        {"alone": alone, "first_byte_s": value, "first_sound_s": None, "gaps_s": [value, 2 * value]}
        for alone, value in ((True, 0.0125), (False, 0.25), (False, 0.3))
    ]
    page = render_page(document, tmp_path)
    reader = harmless(page)
    # Of the first sound nothing was measured, so that there is no picture of it.
    assert reader.tags.count("figure") == 2
    for part in ("First byte", "Gaps", "12.5 ms", "300 ms", "by itself"):
        assert part in page
    assert "First sound" not in page


def test_one_cause_of_many_is_one_finding(tmp_path: Path) -> None:
    saved(tmp_path, dict.fromkeys(CHECKS, GONE))
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.count("<article") == 1


def test_a_missing_or_foreign_transcript_is_no_harm(tmp_path: Path) -> None:
    document = saved(tmp_path, {"order.fifo": told()})
    for file in ("../../etc/passwd", "/etc/passwd", "transcripts/none.jsonl", "report.json"):
        document["transcripts"]["order"]["file"] = file
        assert "How it went" not in render_page(document, tmp_path)


def test_the_page_is_rendered_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path, {"order.fifo": told()})
    first = (tmp_path / "report.html").read_text("utf-8")
    (tmp_path / "report.html").unlink()
    assert cli.main(["page", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").read_text("utf-8") == first
    assert cli.main(["page", str(tmp_path / "report.json"), "-o", str(tmp_path / "o.html")]) == 0
    assert (tmp_path / "o.html").read_text("utf-8") == first
    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / "report.html"),
        str(tmp_path / "o.html"),
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        (b"\xff", "not UTF-8"),
        (b"", "the file is empty"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "is no report"),
        (b'{"utterwire_report": 99}', "of format 99"),
    ],
)
def test_what_is_no_report_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "report.json").write_bytes(content)
    assert cli.main(["page", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("utterwire-conformance: ")
    assert said.count("\n") == 1
    assert words in said
    with pytest.raises(ReportError):
        write_page(tmp_path)


@pytest.mark.parametrize("name", ["run-7.json", "a report", "0.1.0", "レポート.json"])
def test_a_report_of_any_name_is_shown_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    saved(tmp_path, {"order.fifo": told("Findable.")})
    (tmp_path / "report.html").unlink()
    report = (tmp_path / "report.json").rename(tmp_path / name)
    assert cli.main(["page", str(report)]) == 0
    page = Path(capsys.readouterr().out.removesuffix("\n"))
    assert page == report.with_suffix(".html")
    text = page.read_text("utf-8")
    # Also what stands in its transcripts.
    assert "Findable." in text
    assert "How it went" in text


def test_a_report_is_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path, {})
    report = (tmp_path / "report.json").rename(tmp_path / "report.html")
    before = report.read_bytes()
    assert cli.main(["page", str(report)]) == 2
    assert "it is the report itself" in capsys.readouterr().err
    assert cli.main(["page", str(report), "-o", str(report)]) == 2
    assert report.read_bytes() == before


def test_many_findings_begin_with_an_index(tmp_path: Path) -> None:
    names = list(CHECKS)[:8]
    few = saved(tmp_path, dict.fromkeys(names[:3], told()))
    assert 'class="index"' not in render_page(few, tmp_path)
    many = saved(tmp_path, dict.fromkeys(names, told()))
    page = render_page(many, tmp_path)
    index = page.partition('<ol class="index"')[2].partition("</ol>")[0]
    assert index.count("<li") == len(names)
    assert all(f'id="finding-{number}"' in page for number in range(1, len(names) + 1))


def test_why_nothing_was_judged_is_told_once(tmp_path: Path) -> None:
    found = saved(tmp_path, {})
    why = "nobody answers at all"
    for row in found["results"]:
        row |= {"verdict": "harness-error", "reason": why}
    found |= {"unreachable": why, "exit_code": 2}
    assert render_page(found, tmp_path).count(why) == 2  # The headline and the finding.


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["page"]) == 2
    assert cli.main(["page", "--help"]) == 0
    saved(tmp_path, {})
    assert cli.main(["page", str(tmp_path), "-o", str(tmp_path / "no" / "o.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err


# --- parts ----------------------------------------------------------------------------------------


@given(st.text(st.characters(), max_size=60))
@settings(derandomize=True, max_examples=200, deadline=None)
def test_visible_text_hides_nothing_and_stays_as_it_is_once_visible(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    shown.encode("utf-8")  # No lone surrogate is left.
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028]", shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 語 🙂", "plain é 語 🙂"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[0m", "\\u001b[0m"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("مرحبا", "مرحبا"),
        ("क्\u200dष", "क्\u200dष"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_cut() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "abc… (1 more character)"
    assert cut("abcdef", 3) == "abc… (3 more characters)"


def test_steps_show_the_beginning_and_what_led_to_the_moment() -> None:
    long = transcript("x", chunks=0)
    for number in range(200):
        long.add(Entry(2 + number, "in", "text", 1, data=b"{}"))
        long.add(Entry(2 + number, "in", "text", 2, data=b"other"))
    line = len(long.entries)  # The last entry but one: of session 1.
    found = steps(long, line, 20)
    assert len([step for step in found if step.way != "left out"]) == 20 - 3 + 1
    assert sum(step.broke for step in found) == 1
    assert not [step for step in found if step.text == "other"]
    assert any(step.way == "left out" for step in found)
    assert [step.way for step in found[:2]] == ["sent", "received"]


@pytest.mark.parametrize("line", [None, 0, 1, 10_000])
def test_without_a_moment_the_beginning_is_shown(line: int | None) -> None:
    found = steps(transcript("x"), line, 10)
    assert not any(step.broke for step in found)
    assert found[-1].way == "left out"


def test_a_run_of_audio_is_one_step() -> None:
    found = steps(transcript("x", chunks=50), 4 + 50 + 2)
    runs = [step for step in found if step.size == 50_000]
    assert len(runs) == 1


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=40))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_plots_stay_inside_their_frame(values: list[float]) -> None:
    picture = strip_plot("<&>", [Strip("a<b", tuple(values)), Strip("empty", ())])
    reader = read(str(picture))
    width = 720
    for key, value in reader.attributes:
        if key in ("x", "x1", "x2"):
            assert 0 <= float(value) <= width
    assert "empty" not in picture
    assert "a&lt;b" in picture


def test_no_plot_without_values() -> None:
    assert str(strip_plot("x", [Strip("a", ())])) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00034, "340 µs"), (0.0125, "12.5 ms"), (0.25, "250 ms"), (1.3, "1.30 s"), (0.001, "1 ms")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# --- in a browser ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("needs Chromium")
    options = ["no-sandbox", "disable-gpu", "disable-background-networking", "disable-sync"]
    options += ["disable-component-update", "no-first-run", "disable-quic"]
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=path, args=[f"--{each}" for each in options]
        )
        try:
            yield running
        finally:
            running.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_in_chromium(tmp_path: Path, browser: Any, width: int, scheme: str) -> None:
    changes = dict.fromkeys(list(CHECKS)[:12], told(LONG)) | {"order.fifo": told("Findable.")}
    saved(tmp_path, changes, text=LONG, name="w" * 300)
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    address = (tmp_path / "report.html").as_uri()
    page.goto(address)
    try:
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.evaluate("window.hacked") is None
        # Nothing of the summary has to be scrolled for.
        wider = (
            "(e => e.scrollWidth - e.clientWidth)(document.querySelector('.profiles').parentNode)"
        )
        assert page.evaluate(wider) <= 0
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.click("#theme")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != paper
        # By keyboard alone.
        page.keyboard.press("/")
        page.keyboard.type("findable.")
        shown = "[...document.querySelectorAll('.finding')].filter(e => !e.hidden).map(e => e.id)"
        assert len(page.evaluate(shown)) == 1
        named = "[...document.querySelectorAll('.index li')].filter(e => !e.hidden).length"
        assert page.evaluate(named) == 1
        page.keyboard.press("Escape")
        page.wait_for_function("document.getElementById('filter-text').value === ''")
        page.wait_for_function("[...document.querySelectorAll('.finding')].every(e => !e.hidden)")
        page.select_option("#filter-verdict", "fail")
        rows = "[...document.querySelectorAll('tr.row')].filter(e => !e.hidden)"
        assert page.evaluate(f"{rows}.every(e => e.dataset.verdict === 'fail')")
        assert page.evaluate(f"{rows}.length") >= 13
        page.select_option("#filter-profile", "http")
        assert page.evaluate(f"{rows}.every(e => e.dataset.profile === 'http')")
        assert complaints == []
        assert {url for url in asked if not url.startswith("data:")} == {address}
    finally:
        context.close()


@pytest.mark.slow
def test_in_chromium_without_scripts_all_can_be_read(tmp_path: Path, browser: Any) -> None:
    saved(tmp_path, {"order.fifo": told("Findable.")})
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    try:
        assert "Findable." in page.inner_text("main")
        assert not page.is_visible("#filter")
        assert page.is_visible("#requirements")
    finally:
        context.close()
