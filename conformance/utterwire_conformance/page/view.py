"""What the page shows, made from `report.json` and the transcripts beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from markupsafe import Markup

from utterwire_conformance.requirements import PROFILES
from utterwire_conformance.transcript import Transcript

from .plot import Strip, duration, strip_plot
from .steps import Step, steps

__all__ = ["Finding", "Headline", "Profile", "View"]

_RED: Final = ("fail", "harness-error", "weak")
_LADDER_CHARACTERS: Final = 600_000
"""How much text all ladders of a page may hold, so that its size has a bound."""
_LADDERS: Final = 150
_MARKUP_OF_A_STEP: Final = 220
_WORDS: Final = {
    "pass": "pass",
    "fail": "fail",
    "weak": "weak",
    "not-exercised": "not exercised",
    "not-claimed": "not claimed",
    "harness-error": "not judged",
}


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict on the whole: `tone` is `good`, `bad`, `known`, `quick` or `unknown`."""

    tone: str
    word: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Profile:
    """The counts of one profile; `bar` pictures them."""

    name: str
    judged: bool
    claimed: bool
    counts: Mapping[str, int]
    bar: Markup


@dataclass(frozen=True, slots=True)
class Finding:
    """One result, with the check that decided it and, where it is red, its ladder."""

    number: int
    row: Mapping[str, Any]
    check: Mapping[str, Any]
    transcript: str | None = None
    ladder: Sequence[Step] = ()
    line: int | None = None


@dataclass(slots=True)
class View:
    """The data of the template; `document` is the report, `folder` where its files lie."""

    document: Mapping[str, Any]
    folder: Path
    clauses: Mapping[str, str] = field(default_factory=dict)
    """The text of clauses, by name, where it is that of the revision judged by."""

    @property
    def results(self) -> list[Mapping[str, Any]]:
        """All results."""
        return list(self.document["results"])

    @property
    def name(self) -> str:
        """What was judged."""
        subject: Mapping[str, Any] = self.document["subject"]
        return str(subject["name"])

    @property
    def unreachable(self) -> str | None:
        """Why nothing at all could be judged, if so."""
        why = self.document.get("unreachable")
        return None if why is None else str(why)

    def word(self, verdict: str) -> str:
        """A verdict in words."""
        return _WORDS.get(verdict, verdict)

    def headline(self) -> Headline:
        """How it came out, in a word and a sentence."""
        document = self.document
        code, options = document["exit_code"], document.get("options", {})
        known = [row for row in self.results if "known" in row]
        strict = options.get("strict", False)
        red = ("fail", "weak") if strict else ("fail",)
        new = [row for row in self.results if row["verdict"] in red and "known" not in row]
        errors = [row for row in self.results if row["verdict"] == "harness-error"]
        weak = [row for row in self.results if row["verdict"] == "weak"]
        judged = sum(c["applicable"] for c in document["summary"].values())
        passed = sum(c["passed"] for c in document["summary"].values())
        unseen = sum(c["not_exercised"] for c in document["summary"].values())
        counted = f"{passed} of {_count(judged, 'requirement')} judged are met"
        aside = f"; {_count(unseen, 'more requirement')} could not be exercised" if unseen else ""
        if code == 2:
            why = document.get("unreachable")
            if why:
                return Headline("unknown", "Could not be judged", f"Nothing was judged: {why}.")
            if errors:
                found = f" {_count(len(new), 'requirement')} broken all the same." if new else ""
                return Headline(
                    "unknown",
                    "Could not be judged",
                    f"{_count(len(errors), 'requirement')} could not be judged.{found}",
                )
            return Headline(
                "unknown",
                "Could not be judged",
                "Nothing was judged." if not judged else "No request was spoken to its end.",
            )
        if code == 1:
            stale = document.get("baseline", {}).get("stale", [])
            parts = [f"{_count(len(new), 'requirement')} broken"] if new else []
            parts += [_count(len(known), "known failure")] if known else []
            parts += [f"{len(stale)} of the known failures met now"] if stale else []
            word = "Does not conform" if new or known else "Better than its baseline"
            return Headline("bad", word, f"{'; '.join(parts).capitalize()}. {counted}{aside}.")
        if known:
            listed = document["baseline"]["file"]
            sentence = f"{_count(len(known), 'failure')}, all listed in {listed} as known."
            return Headline(
                "known", "Does not conform, as is known", f"{sentence} {counted}{aside}."
            )
        notes = f"; {_count(len(weak), 'recommendation')} not met" if weak else ""
        if options.get("quick"):
            sentence = f"{counted} at a quick glance{notes}{aside}."
            return Headline("quick", "Looks right so far", sentence)
        if options.get("selected") is not None:
            sentence = f"{counted}{notes}; the others were not selected."
            return Headline("quick", "Conforms in what was selected", sentence)
        return Headline("good", "Conforms", f"{counted}{notes}{aside}.")

    def profiles(self) -> list[Profile]:
        """The profiles, those judged first."""
        chosen = self.document["options"]["profiles"]
        claimed = self.document["claims"].get("profiles", chosen)
        summary: Mapping[str, Mapping[str, int]] = self.document["summary"]
        found = [
            Profile(name, name in chosen, name in claimed, summary[name], _bar(summary[name]))
            for name in PROFILES
            if name in summary
        ]
        return sorted(found, key=lambda profile: not profile.judged)

    def findings(self) -> list[Finding]:
        """What is not as it should be, the worst first; what one cause explains is one finding."""
        rows = [row for row in self.results if row["verdict"] in _RED]
        causes = [row for row in rows if row["verdict"] == "harness-error"]
        told: set[str] = set()
        kept = []
        for row in rows:
            if row in causes:
                if row.get("reason", "") in told:
                    continue
                told.add(row.get("reason", ""))
            kept.append(row)
        order = {row["requirement"]: place for place, row in enumerate(self._by_gravity(kept))}
        kept.sort(key=lambda row: order[row["requirement"]])
        return list(self._with_ladders(kept))

    def unjudged(self, reason: str) -> list[str]:
        """The requirements that could not be judged for this reason."""
        return [
            row["requirement"]
            for row in self.results
            if row["verdict"] == "harness-error" and row.get("reason", "") == reason
        ]

    @staticmethod
    def _by_gravity(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        # A MUST before a SHOULD, a new failure before a known one, then in the order of the
        # specification, which begins with what all the rest stands on.
        return sorted(
            rows,
            key=lambda row: (
                _RED.index(row["verdict"]),
                "known" in row,
                PROFILES.index(row["profile"]),
                row["level"].startswith("SHOULD"),
            ),
        )

    def _with_ladders(self, rows: Sequence[Mapping[str, Any]]) -> Iterable[Finding]:
        left = _LADDER_CHARACTERS
        loaded: dict[str, Transcript | None] = {}
        for number, row in enumerate(rows, 1):
            check = _deciding(row)
            at = check.get("at") or {}
            names = [at["transcript"]] if at else list(check.get("transcripts", ()))[:1]
            ladder: list[Step] = []
            line = at.get("line")
            if names and number <= _LADDERS and row["verdict"] != "harness-error":
                name = names[0]
                if name not in loaded:
                    loaded[name] = self._load(name)
                transcript = loaded[name]
                # The more there is to show, the shorter each ladder.
                most = 40 if len(rows) <= 40 else 24
                ladder = steps(transcript, line, most) if transcript is not None else []
                size = sum(len(step.text) + _MARKUP_OF_A_STEP for step in ladder)
                ladder = ladder if size <= left else []
                left -= size if ladder else 0
            file = self._file(names[0]) if names else None
            yield Finding(number, row, check, file, tuple(ladder), line)

    def _file(self, name: str) -> str | None:
        stored = self.document.get("transcripts", {}).get(name)
        return str(stored["file"]) if stored else None

    def _load(self, name: str) -> Transcript | None:
        file = self._file(name)
        if file is None:
            return None
        path = PurePosixPath(file)
        # A report may come from anywhere: it names files in its own folder, or none.
        if path.is_absolute() or ".." in path.parts:
            return None
        try:
            return Transcript.load(self.folder / path)
        except (OSError, ValueError, EOFError):
            return None

    def by_clause(self, claimed: bool = True) -> list[tuple[str, list[Mapping[str, Any]]]]:
        """The results of profiles claimed (or not), by clause, in the specification's order."""
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for row in self.results:
            if (row["verdict"] != "not-claimed") is claimed:
                groups.setdefault(row["clause"], []).append(row)
        return list(groups.items())

    def latency(self) -> list[dict[str, Any]]:
        """For each kind of time its picture and its numbers; nothing where none was measured."""
        samples: Sequence[Mapping[str, Any]] = self.document.get("latency", {}).get("samples", ())
        kinds = (
            ("First byte", "from a request to its first audio", "first_byte_s"),
            (
                "First sound",
                "first byte, and the silence at the start of the audio",
                "first_sound_s",
            ),
            ("Gaps", "a player that began at once would have run dry for so long", "gaps_s"),
        )
        found = []
        for title, meaning, key in kinds:
            strips = []
            for label, alone in (("by itself", True), ("beside others", False)):
                chosen = [s for s in samples if bool(s.get("alone")) is alone]
                strips.append(Strip(label, tuple(_values(chosen, key))))
            if any(strip.values for strip in strips):
                numbers = [
                    (
                        strip.label,
                        len(strip.values),
                        duration(strip.quantile(0.5)),
                        duration(strip.quantile(0.9)),
                        duration(max(strip.values)),
                    )
                    for strip in strips
                    if strip.values
                ]
                picture = strip_plot(f"{title}: how often which time was measured", strips)
                found.append(
                    {"title": title, "meaning": meaning, "picture": picture, "numbers": numbers}
                )
        return found

    def total(self, verdict: str) -> int:
        """How many requirements have this verdict."""
        return sum(row["verdict"] == verdict for row in self.results)

    def deployed(self) -> list[str]:
        """What clients in the field would run into, each told once."""
        found = self.document.get("deployed_client", ())
        return list(dict.fromkeys(str(each.get("finding", "")) for each in found))[:20]


def _values(samples: Iterable[Mapping[str, Any]], key: str) -> Iterable[float]:
    for sample in samples:
        value = sample.get(key)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, int | float) and each >= 0:
                yield float(each)


def _deciding(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The check whose verdict is that of the requirement."""
    checks: Sequence[Mapping[str, Any]] = row.get("checks", ())
    same = [check for check in checks if check["verdict"] == row["verdict"]]
    return (same or list(checks) or [{}])[0]


def _bar(counts: Mapping[str, int]) -> Markup:
    """The counts as a bar of coloured parts, in per cent of all."""
    total = counts["total"] or 1
    x = 0.0
    parts = []
    for key in ("passed", "failed", "weak", "harness_errors", "not_exercised", "not_claimed"):
        width = 100 * counts[key] / total
        if width:
            name = key.replace("_", "-")
            parts.append(
                f'<rect class="{name}" x="{x:.2f}" y="0" width="{width:.2f}" height="10"/>'
            )
        x += width
    return Markup(
        '<svg class="share" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        + "".join(parts)
        + "</svg>"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
