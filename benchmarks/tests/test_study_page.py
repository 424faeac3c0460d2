"""The page of the study, of results made by hand."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from finding import Finding, Goal, Row
from jsonschema import Draft202012Validator
from spread import Spread
from study import SCHEMA, table
from study_page import Line, plot, study_page

VOID = {"meta", "br", "img", "link"}


def result(*experiments: dict[str, Any], engine: str | None = "tone") -> dict[str, Any]:
    return {
        "utterwire_study": 1,
        "command": ["python", "benchmarks/study.py"],
        "commit": None,
        "started": "2026-11-30T12:00:00+00:00",
        "duration_s": 7,
        "machine": {"python": "3.11.7", "system": "Linux x86_64", "cores": 2},
        "versions": {"websockets": "17.4"},
        "load_average": 0.1,
        "endpoint": {"name": "<mine>", "engine": engine, "first_block_ms": 1.6},
        "plan": {"rounds": 3, "interruptions": 5, "tokens_per_s": 30.0},
        "goals": [
            Goal("Gaps", "none", "0 in 4 texts", True).document(),
            Goal("Left", "nothing", "2 tasks", False).document(),
        ],
        "experiments": list(experiments),
    }


def experiment(finding: Finding, *, not_measured: str | None = None) -> dict[str, Any]:
    return {
        "id": "links",
        "title": "From <afar>",
        "not_measured": not_measured,
        **finding.document(),
    }


def links() -> Finding:
    finding = Finding(
        "How soon?",
        measures={"here_ms": "last byte, ms", "first_byte_ms": "first byte, ms"},
        facts={"sentences": "sentences", "words": "word errors, %"},
        published="a & b",
        note="Each way.",
    )
    alone = Row("alone", expected={"here_ms": 400.0}, facts={"sentences": 4, "words": "not heard"})
    for value in (100.0, 200.0, 300.0):
        alone.add(here_ms=value, first_byte_ms=value / 10)
    piped = Row("piped", facts={"sentences": 4, "words": 12.5}, note="one text only")
    piped.add(here_ms=50.0)
    finding.rows = [alone, piped]
    return finding


class Reader(HTMLParser):
    """Tags that are closed in order, and what is in them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words += data.split()


def check(document: dict[str, Any]) -> None:
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(document)


class TestPage:
    def test_holds_what_was_found_and_loads_nothing(self) -> None:
        document = result(experiment(links()))
        check(document)
        page = study_page(document)
        words = " ".join(Reader(page).words)
        for told in (
            "<mine>", "From <afar>", "Published: a & b", "200 150 to 250 expected 400",
            "20.0 15.0 to 25.0", "12.5", "not heard", "one text only", "Each way.",
            "Met : Gaps", "Missed : Left", "last byte, ms",
        ):  # fmt: skip
            assert told in words, told
        assert "<mine>" not in page
        assert not re.search(r"(?:src|href)=|url\(|<script|@import", page)
        assert "prefers-color-scheme: dark" in page
        assert "max-width" in page

    def test_what_was_not_measured_says_why(self) -> None:
        document = result(experiment(Finding(""), not_measured="no <proxy>"), engine=None)
        check(document)
        page = study_page(document)
        assert "Not measured: no &lt;proxy&gt;" in page
        assert "<figure" not in page
        assert "<table" not in page
        Reader(page)

    def test_measures_of_a_single_row_stand_side_by_side(self) -> None:
        finding = links()
        del finding.rows[1]
        page = study_page(result(experiment(finding)))
        assert page.count("<figure") == 1
        assert page.count("<svg") == 2

    def test_without_any_samples_there_is_no_picture(self) -> None:
        page = study_page(
            result(experiment(Finding("?", measures={"x_ms": "x"}, rows=[Row("none")])))
        )
        assert "<figure" not in page
        Reader(page)

    @pytest.mark.parametrize(
        "broken",
        [
            {"utterwire_study": 2},
            {"experiments": []},
            {"endpoint": {"name": "user@host", "engine": None, "first_block_ms": 1.0}},
            {"more": 1},
        ],
    )
    def test_the_schema_holds(self, broken: dict[str, Any]) -> None:
        schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
        Draft202012Validator.check_schema(schema)
        document = {**result(experiment(links())), **broken}
        assert not Draft202012Validator(schema).is_valid(document)


def test_the_table_for_a_terminal() -> None:
    unmeasured = experiment(Finding(""), not_measured="no proxy")
    lines = table(result(experiment(links()), unmeasured)).splitlines()
    assert lines[1:5] == [
        "From <afar>",
        "  alone",
        "    last byte, ms: 200 (150 to 250, 3 samples; expected 400)",
        "    first byte, ms: 20 (15 to 25, 3 samples)",
    ]
    assert "    one text only" in lines
    assert "  not measured: no proxy" in lines
    assert lines[-2:] == ["met: Gaps: 0 in 4 texts", "MISSED: Left: 2 tasks"]


class TestPlot:
    def xs(self, picture: str, kind: str) -> list[tuple[float, float]]:
        found = re.findall(rf'<line class="{kind}" x1="([-\d.]+)" x2="([-\d.]+)"', picture)
        return [(float(first), float(second)) for first, second in found]

    def ticks(self, picture: str) -> list[str]:
        axis = picture[picture.index('class="axis') :]
        return re.findall(r"<span>([^<]*)</span>", axis)

    def test_everything_is_where_its_value_is(self) -> None:
        spread = Spread.of([100.0, 200.0, 300.0]).rounded()
        picture = plot("t", [Line("a", spread, 400.0)])
        assert self.ticks(picture) == ["0", "100", "200", "300", "400"]
        assert self.xs(picture, "whisker") == [(250.0, 750.0)]
        assert self.xs(picture, "median") == [(500.0, 500.0)]
        assert self.xs(picture, "expected") == [(1000.0, 1000.0)]
        assert '<rect class="box" x="375.0" y="5" width="250.0"' in picture
        assert 'aria-label="median 200, half of all from 150 to 250, expected 400"' in picture

    @pytest.mark.parametrize(
        ("values", "ticks"),
        [
            ([0.0], ["0", "1"]),
            ([0.03], ["0", "0.01", "0.02", "0.03"]),
            ([1.0, 1.2], ["0", "0.5", "1", "1.5"]),
            ([3081.0], ["0", "1,000", "2,000", "3,000", "4,000"]),
            ([-3.0, 7.0], ["-5", "-2.5", "0", "2.5", "5", "7.5"]),
        ],
    )
    def test_axes_are_round_and_hold_all(self, values: list[float], ticks: list[str]) -> None:
        spread = Spread.of(values).rounded()
        picture = plot("t", [Line("a", spread)])
        assert self.ticks(picture) == ticks
        drawn = [x for kind in ("whisker", "median", "grid") for x in self.xs(picture, kind)]
        assert all(0 <= x <= 1000 for pair in drawn for x in pair)


def test_the_page_in_the_evidence_is_of_the_result_beside_it() -> None:
    evidence = SCHEMA.parent.parent / "evidence" / "study.json"
    if not evidence.is_file():
        pytest.skip("there is no evidence/study.json")
    document = json.loads(evidence.read_text(encoding="utf-8"))
    check(document)
    assert study_page(document) == evidence.with_suffix(".html").read_text(encoding="utf-8")
