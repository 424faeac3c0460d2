"""The specification: its requirements as data, its prose, and the schemas beside it."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import utterwire_conformance.requirements as package
from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.oracle import Oracle
from utterwire_conformance.requirements import (
    LEVELS,
    PROFILES,
    Requirement,
    RequirementsError,
    catalogue,
    parse,
    requirement,
    requirements,
)
from utterwire_conformance.requirements.__main__ import main
from utterwire_conformance.requirements.prose import (
    BEGIN,
    END,
    NORMATIVE_FILES,
    disagreements,
    read_document,
    read_folder,
    slug,
    with_tables,
)
from utterwire_schemas import ERROR_CODES, schema, validator

SPEC = Path(__file__).resolve().parents[2] / "spec"

ROW = Requirement(
    id="audio.whole-samples",
    level="MUST",
    role="endpoint",
    profile="core",
    clause="protocol.md#audio",
    text="A PCM chunk holds a whole number of samples.",
    checks=("audio.whole_samples",),
    faults=("split-sample",),
    via=("websocket", "sagemaker"),
)

YAML_ROW = """\
  - id: audio.whole-samples
    level: MUST
    role: endpoint
    profile: core
    clause: protocol.md#audio
    text: "A PCM chunk holds a whole number of samples."
    checks: [audio.whole_samples]
    faults: [split-sample]
    via: [websocket, sagemaker]
"""
YAML = "version: 1\nrequirements:\n" + YAML_ROW
EXCLUDED = """\
    excluded: "Cannot be seen."
    covered_by: "a/tests/test_b.py::test_c"
"""


def test_exported_names() -> None:
    assert package.__all__ == [
        "LEVELS",
        "PROFILES",
        "ROLES",
        "TRANSPORTS",
        "Requirement",
        "RequirementsError",
        "parse",
        "requirement",
        "requirements",
    ]
    assert all(hasattr(package, name) for name in package.__all__)


# --- the catalogue -----------------------------------------------------------------------------


def test_a_row_is_read_whole() -> None:
    assert parse(YAML) == (ROW,)
    assert not ROW.todo
    assert ROW.mandatory


def test_todo_and_excluded() -> None:
    todo = YAML.replace("[audio.whole_samples]", "todo")
    (row,) = parse(todo)
    assert row == replace(ROW, checks=())
    assert row.todo
    excluded = YAML.replace("[audio.whole_samples]", "[]") + EXCLUDED
    (row,) = parse(excluded)
    assert row.excluded == "Cannot be seen."
    assert row.covered_by == "a/tests/test_b.py::test_c"
    assert not row.todo


@pytest.mark.parametrize(
    ("level", "mandatory"), list(zip(LEVELS, [True, True, False, False], strict=True))
)
def test_mandatory(level: str, mandatory: bool) -> None:
    assert replace(ROW, level=level).mandatory is mandatory


@pytest.mark.parametrize(
    ("old", "new", "line", "fault"),
    [
        ("version: 1", "version: 2", 1, "version must be 1"),
        ("version: 1\n", "", 1, "missing field version"),
        ("version: 1", "version: [1]", 1, "version must be 1"),
        (YAML_ROW, "", 2, "requirements must be a list"),
        (YAML, "", 1, "the file is empty"),
        (YAML, "- 1\n", 1, "expected a mapping"),
        (YAML, "a: [", 2, "not YAML"),
        (YAML, "a: \x00", 1, "not YAML"),
        (YAML_ROW, YAML_ROW + YAML_ROW, 12, "'audio.whole-samples' is used twice"),
        ("    level: MUST\n", "", 3, "missing field level"),
        ("    level: MUST\n", "    level: MUST\n    level: MUST\n", 5, "'level' is given twice"),
        ("    level: MUST\n", "    level: MUST\n    note: x\n", 5, "unknown field 'note'"),
        ("level: MUST", "level: MAY", 3, "level 'MAY' is none of"),
        ("level: MUST", "level: 1", 4, "expected a string"),
        ("level: MUST", "level: [MUST]", 4, "expected a string"),
        ("role: endpoint", "role: server", 3, "role 'server' is none of"),
        ("profile: core", "profile: hub", 3, "profile 'hub' is none of"),
        ("id: audio.whole-samples", "id: Audio", 3, "id 'Audio' is not of the form"),
        ("protocol.md#audio", "protocol.md", 3, "clause 'protocol.md' is not of the form"),
        ("samples.", "samples", 3, "text must be a statement"),
        ("whole number", "whole  number", 3, "text must be a statement"),
        ("[audio.whole_samples]", "[]", 9, "checks is empty"),
        ("[audio.whole_samples]", "maybe", 9, "expected a list"),
        ("[audio.whole_samples]", "[Audio]", 3, "checks 'Audio' is not of the form"),
        ("[split-sample]", "[split-sample, split-sample]", 3, "faults names something twice"),
        ("[split-sample]", "[split_sample]", 3, "faults 'split_sample' is not of the form"),
        ("[websocket, sagemaker]", "[]", 3, "via must name at least one"),
        ("[websocket, sagemaker]", "[pigeon]", 3, "via 'pigeon' is none of"),
        ("via:", "excluded: Because.\n    via:", 3, "an excluded requirement can have no checks"),
        (
            "checks: [audio.whole_samples]",
            "checks: []\n    excluded: ' '",
            3,
            "excluded must give the reason",
        ),
        (
            "checks: [audio.whole_samples]",
            "checks: todo\n    excluded: Because.\n    covered_by: a/test_b.py::test_c",
            9,
            "an excluded row has `checks: []`",
        ),
        (
            "checks: [audio.whole_samples]",
            "checks: []\n    excluded: Because.",
            3,
            "names the test that covers it",
        ),
        (
            "checks: [audio.whole_samples]",
            "checks: []\n    excluded: Because.\n    covered_by: somewhere",
            3,
            "covered_by 'somewhere' is not of the form",
        ),
        ("via:", "covered_by: a/test_b.py::test_c\n    via:", 3, "goes with excluded"),
    ],
)
def test_each_fault_is_told_with_its_line(old: str, new: str, line: int, fault: str) -> None:
    assert old in YAML
    with pytest.raises(RequirementsError) as caught:
        parse(YAML.replace(old, new, 1), "r.yaml")
    assert str(caught.value).startswith(f"r.yaml:{line}: ")
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_real_file_is_found() -> None:
    rows = requirements()
    assert len({row.id for row in rows}) == len(rows) >= 200
    assert requirement("audio.whole-samples").clause == "protocol.md#audio"
    with pytest.raises(KeyError):
        requirement("no.such")
    assert {row.profile for row in rows} == set(PROFILES)


def test_little_is_excluded_and_a_test_covers_it() -> None:
    root = SPEC.parent
    binding = [row for row in requirements() if row.mandatory]
    assert 10 * sum(row.excluded is not None for row in binding) <= len(binding)
    for row in requirements():
        if row.covered_by is not None:
            path, _, name = row.covered_by.partition("::")
            assert f"def {name}(" in (root / path).read_text(encoding="utf-8"), row.id


@pytest.fixture
def fresh_catalogue() -> Iterator[None]:
    """Let `requirements()` read anew, in the test and after it."""
    requirements.cache_clear()
    yield
    requirements.cache_clear()


@pytest.mark.usefixtures("fresh_catalogue")
def test_packaged_data_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "requirements.yaml").write_text(YAML, encoding="utf-8")
    monkeypatch.setattr("importlib.resources.files", lambda name: tmp_path)
    assert requirements() == (ROW,)


@pytest.mark.usefixtures("fresh_catalogue")
def test_no_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.resources.files", lambda name: tmp_path)
    monkeypatch.setattr(catalogue, "__file__", str(tmp_path / "a" / "b" / "c" / "d.py"))
    with pytest.raises(RequirementsError, match="no requirements file: reinstall utterwire"):
        requirements()


# --- prose against requirements, on small examples -----------------------------------------------

PROSE = with_tables(
    "protocol.md",
    f"""\
# Protocol

## Audio

Words before it. A PCM chunk **MUST** hold whole samples. [`audio.whole-samples`] Words after it.

```
a MUST inside a fence, and ## no heading
```

{BEGIN}
{END}
""",
    [ROW],
)


def test_agreement() -> None:
    assert disagreements({"protocol.md": PROSE}, [ROW]) == ()
    assert "| `audio.whole-samples` | MUST | endpoint | `core` | A PCM chunk" in PROSE


def test_tables_are_made_anew_from_nothing_else() -> None:
    assert with_tables("protocol.md", PROSE, [ROW]) == PROSE
    other = replace(ROW, text="One | two.")
    assert "| One \\| two. |" in with_tables("protocol.md", PROSE, [other])
    assert "audio.whole-samples` |" not in with_tables("websocket.md", PROSE, [ROW])


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (" [`audio.whole-samples`]", "", "MUST has no id after it"),
        (" [`audio.whole-samples`]", "", "audio.whole-samples is nowhere in the prose"),
        ("**MUST**", "MUST", "MUST has no id after it, is not bold"),
        ("**MUST**", "MUST", "[audio.whole-samples] needs one bold keyword, has 0"),
        ("**MUST**", "**MUST** and **MUST**", "needs one bold keyword, has 2"),
        ("**MUST**", "**MAY**", "MAY has no id after it, is not bold, or is not one of the four"),
        ("**MUST**", "**SHALL**", "SHALL has no id after it"),
        ("**MUST**", "**SHOULD**", "says SHOULD, requirements.yaml MUST"),
        ("**MUST**", "**MUST NOT**", "says MUST NOT, requirements.yaml MUST"),
        ("Words after it.", "It **SHOULD** not.", "SHOULD has no id after it"),
        ("Words after it.", "\n\n- It is OPTIONAL.", "OPTIONAL has no id after it"),
        ("[`audio.whole-samples`]", "[`audio.half`]", "[audio.half] is not in requirements.yaml"),
        (
            "Words after it.",
            "It **MUST**. [`audio.whole-samples`]",
            "stands already at protocol.md:5",
        ),
        ("## Audio", "## Sound", "stands in protocol.md#sound, requirements.yaml says"),
        (f"{BEGIN}\n", "", "#audio has 0 tables, needs 1"),
        ("# Protocol\n", f"# Protocol\n\n{BEGIN}\n{END}\n", "#protocol has 1 tables, needs 0"),
        ("# Protocol\n", "# Protocol\n\n## Audio\n", "the anchor #audio is used twice"),
        ("| `audio.whole-samples` | MUST |", "| `audio.whole-samples` | MAY |", "out of date"),
    ],
)
def test_each_disagreement_is_found(old: str, new: str, fault: str) -> None:
    assert old in PROSE
    found = disagreements({"protocol.md": PROSE.replace(old, new, 1)}, [ROW])
    assert any(fault in line for line in found), found
    assert all(re.match(r"[a-z]+\.(md|yaml):\d+: ", line) for line in found)


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Synthesis start", "synthesis-start"),
        ("`session_closed`: why?", "session_closed-why"),
        ("Control or audio", "control-or-audio"),
        ("Größe & Maß", "größe--maß"),
    ],
)
def test_slug(heading: str, anchor: str) -> None:
    assert slug(heading) == anchor


def test_blocks_hold_a_keyword_and_its_id_together() -> None:
    rows = "| a | it **MUST** |\n| b | other [`x.y`] |\n\n1. one **MUST**\n2. [`x.z`]\n"
    document = read_document("protocol.md", "# A\n\n" + rows)
    assert [keyword for _, keyword in document.stray] == ["MUST", "MUST"]
    assert all(statement.levels == () for statement in document.statements)


def test_marker_before_any_heading_is_no_clause() -> None:
    assert read_document("protocol.md", f"{BEGIN}\n{END}\n").clauses == ()


# --- the command -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A specification of one clause."""
    (tmp_path / "requirements.yaml").write_text(YAML, encoding="utf-8")
    for name in NORMATIVE_FILES:
        text = PROSE if name == "protocol.md" else f"# {name}\n"
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_check_and_write(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--folder", str(folder)]) == 0
    stale = PROSE.replace("| MUST |", "| SHOULD |")
    (folder / "protocol.md").write_text(stale, encoding="utf-8")
    assert main(["--check", "--folder", str(folder)]) == 1
    assert "out of date: run --write" in capsys.readouterr().err
    assert (folder / "protocol.md").read_text(encoding="utf-8") == stale
    assert main(["--write", "--folder", str(folder)]) == 0
    assert (folder / "protocol.md").read_text(encoding="utf-8") == PROSE


def test_write_does_not_hide_a_disagreement(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "protocol.md").write_text(PROSE.replace("**MUST**", "must"), encoding="utf-8")
    assert main(["--write", "--folder", str(folder)]) == 1
    assert "needs one bold keyword" in capsys.readouterr().err


def test_unreadable_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "http.md").unlink()
    assert main(["--check", "--folder", str(folder)]) == 2
    (folder / "requirements.yaml").write_text("version: 3\nrequirements: []\n", encoding="utf-8")
    assert main(["--check", "--folder", str(folder)]) == 2
    (folder / "requirements.yaml").write_bytes(b"\xff\xfe")
    assert main(["--check", "--folder", str(folder)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "http.md: No such file or directory" in lines[0]
    assert lines[1].endswith("requirements.yaml:1: version must be 1")
    assert "a file is not UTF-8" in lines[2]


# --- the specification itself ------------------------------------------------------------------


def test_prose_and_requirements_agree() -> None:
    """As CI runs it: the command, in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-m", "utterwire_conformance.requirements", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_links_resolve() -> None:
    documents = {
        path.name: read_document(path.name, path.read_text(encoding="utf-8"))
        for path in SPEC.glob("*.md")
    }
    assert {*NORMATIVE_FILES, "README.md", "CHANGELOG.md"} <= documents.keys()
    links = 0
    for name, document in documents.items():
        for link in document.links:
            links += 1
            where = f"{name}:{link.line}: {link.target}"
            file, _, anchor = link.target.partition("#")
            target = (SPEC / (file or name)).resolve()
            assert target.exists(), where
            if anchor:
                assert anchor in documents[target.name].anchors(), where
    assert links > 50


VAGUE = re.compile(
    r"\b(appropriate|reasonabl[ey]|normally|usually|typically|timely|prompt(ly)?|soon|quickly|"
    r"as needed|if (possible|needed)|etc|and so on|suitabl[ey]|adequate|sufficient|"
    r"generally|might)\b",
    re.IGNORECASE,
)


def test_statements_are_exact() -> None:
    vague = [row.id for row in requirements() if VAGUE.search(row.text) or len(row.text) > 200]
    assert vague == []


def _section(name: str, anchor: str) -> list[str]:
    """The lines of a clause, up to the next heading, without its generated table."""
    lines: list[str] = []
    inside = generated = False
    for line in (SPEC / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            inside = slug(line.lstrip("#").strip()) == anchor
        generated = (generated or line == BEGIN) and line != END
        if inside and not generated:
            lines.append(line)
    assert lines, f"no clause {name}#{anchor}"
    return lines


def _tables(name: str, anchor: str) -> list[list[dict[str, str]]]:
    """The tables of a clause, each a list of rows by column; code marks are taken off."""
    tables: list[list[dict[str, str]]] = []
    header: list[str] | None = None
    for line in _section(name, anchor):
        if not line.startswith("|"):
            header = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if header is None:
            header = [cell.replace("`", "") for cell in cells]
            tables.append([])
        elif set(line) - set("|- "):
            tables[-1].append(dict(zip(header, cells, strict=True)))
    return tables


def _names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def _properties(name: str) -> dict[str, Any]:
    """The properties of a schema, those of the schemas it builds on included."""
    document = schema(name)
    found = dict(document["properties"])
    for part in document.get("allOf", ()):
        if "$ref" in part:
            found = {**_properties(part["$ref"].removesuffix(".json")), **found}
    return found


def test_error_codes_are_those_of_the_registry() -> None:
    (table,) = _tables("protocol.md", "error-codes")
    assert [
        (
            row["code"].strip("`"),
            row["retryable"] == "yes",
            int(row["HTTP status"]),
            row["rejected"],
        )
        for row in table
    ] == [
        (code.code, code.retryable, code.http_status, code.rejection)
        for code in ERROR_CODES.values()
    ]
    assert all(row["retryable"] in ("yes", "no") for row in table)
    assert all(row["meaning"] and row["what a client does"] for row in table)


def test_client_messages_have_the_fields_of_their_schemas() -> None:
    (table,) = _tables("protocol.md", "client-messages")
    types = {_names(row["type"])[0]: row for row in table}
    assert set(types) == {"synthesize", "close", "keepalive", "cancel", "hello"}
    for name, row in types.items():
        assert {*_names(row["fields"]), "type"} == set(_properties(name)), name
        assert row["profile"].strip("`") in PROFILES


@pytest.mark.parametrize(
    ("anchor", "name"),
    [("synthesize", "synthesize"), ("cancel-message", "cancel"), ("hello", "hello")],
)
def test_fields_of_client_messages(anchor: str, name: str) -> None:
    table = _tables("protocol.md", anchor)[0]
    fields = {_names(row["field"])[0]: row["type"] for row in table}
    properties = _properties(name)
    assert {*fields, "type"} == set(properties)
    common = schema("common")["$defs"]
    for field, type_ in fields.items():
        definition = properties[field]
        if "$ref" in definition:
            definition = common[definition["$ref"].rpartition("/")[2]]
        if field in ("type", "request_timestamp"):
            continue
        kinds = definition["type"]
        kinds = {kinds} if isinstance(kinds, str) else set(kinds) - {"null"}
        assert kinds == {type_.split()[0].rstrip(",")}, field


def test_control_messages_have_the_fields_of_their_schemas() -> None:
    by_type, by_field = _tables("protocol.md", "control-messages")
    alternatives = schema("control-message")["properties"]["type"]["anyOf"][0]["enum"]
    assert {row["type"].strip("`") for row in by_type} == set(alternatives)
    described = {name for row in by_field for name in _names(row["field"])}
    own = {"marks": {"words"}, "session": {row["field"].strip("`") for row in _session_fields()}}
    for row in by_type:
        name = row["type"].strip("`")
        fields = set(_names(row["fields"]))
        assert fields == set(_properties(name.replace("_", "-"))) - {"type"}, name
        assert fields <= described | own.get(name, set()), name


def _session_fields() -> list[dict[str, str]]:
    return _tables("protocol.md", "session")[0]


def test_fields_of_session() -> None:
    fields = {row["field"].strip("`") for row in _session_fields()}
    assert fields == set(_properties("session")) - {"type", "seq"}


def test_limits_and_their_floors() -> None:
    (table,) = _tables("protocol.md", "limits")
    limits = schema("common")["$defs"]["limits"]
    assert [row["key in limits"].strip("`") for row in table] == limits["required"]
    words = {"minimum": "{} or more", "exclusiveMinimum": "more than {}", "maximum": "{} or less"}
    for row in table:
        definition = limits["properties"][row["key in limits"].strip("`")]
        bounds = {words[key].format(definition[key]) for key in words if key in definition}
        assert set(row["floor"].split(", ")) == bounds


def test_fields_of_a_mark() -> None:
    (table,) = _tables("protocol.md", "marks")
    fields = {name for row in table for name in _names(row["field of a word"])}
    assert fields == set(_properties("marks")["words"]["items"]["properties"])


@pytest.mark.parametrize(
    ("anchor", "column", "definition"),
    [
        ("session-closed", "reason", "closeReason"),
        ("profiles", "profile", "profile"),
        ("encoded-audio", "format", "format"),
    ],
)
def test_registries(anchor: str, column: str, definition: str) -> None:
    table = _tables("protocol.md", anchor)[0]
    names = [name for row in table for name in _names(row[column])]
    assert names == schema("common")["$defs"][definition]["enum"]


def test_profiles_of_the_catalogue() -> None:
    assert list(PROFILES) == schema("common")["$defs"]["profile"]["enum"]


def test_blank_text_is_the_same_in_prose_and_schema() -> None:
    section = " ".join(" ".join(_section("protocol.md", "synthesize")).split())
    listed = re.search(r"White_Space: (.*?)\. These 25", section)
    assert listed is not None
    points: set[int] = set()
    for first, last in re.findall(r"U\+([0-9A-F]{4})(?: to U\+([0-9A-F]{4}))?", listed[1]):
        points |= set(range(int(first, 16), int(last or first, 16) + 1))
    assert len(points) == 25
    judge = validator("synthesize")
    refused = {point for point in range(0xD800) if not judge.is_valid({"text": chr(point)})}
    assert refused == points


def test_http_names_a_content_type_for_each_format() -> None:
    table = _tables("http.md", "response")[0]
    formats = [name for row in table for name in _names(row["format"])]
    assert formats == schema("common")["$defs"]["format"]["enum"]


# --- the examples of the prose -----------------------------------------------------------------


def _fences(name: str) -> list[tuple[int, str, str]]:
    text = (SPEC / name).read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start()) + 1, match[1], match[2])
        for match in re.finditer(r"^```([\w ]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def _examples() -> Iterator[tuple[str, str, str, bool]]:
    """Each whole message in the examples: place, who sends it, JSON, and whether it is valid.

    Shortened ones (…) are left out. One that is meant to be invalid says so in its comment.
    """
    for line, language, body in _fences("protocol.md"):
        if language == "json":
            yield f"protocol.md:{line}", "", body, True
            continue
        for number, text in enumerate(body.splitlines(), line + 1):
            said = re.fullmatch(r"([CE])  ?(\{.*\}) *(#.*)?", text)
            if said is not None and not re.search(r"…[,}]|\} …", text):
                yield f"protocol.md:{number}", said[1], said[2], "invalid" not in (said[3] or "")


CLIENT_TYPES = {"synthesize", "close", "keepalive", "cancel", "hello"}


@pytest.mark.parametrize(("place", "sender", "text", "valid"), [*_examples()])
def test_examples_are_valid(place: str, sender: str, text: str, valid: bool) -> None:
    message = json.loads(text)
    from_client = message.get("type", "synthesize") in CLIENT_TYPES
    assert sender in ("", "C" if from_client else "E")
    judge = validator("client-message" if from_client else "control-message")
    faults = [error.message for error in judge.iter_errors(message)]
    assert (not faults) is valid, (place, faults)


def _transcripts() -> list[tuple[int, str, str]]:
    return [
        (line, words.removeprefix("transcript "), body)
        for line, words, body in _fences("protocol.md")
        if words.startswith("transcript ")
    ]


@pytest.mark.parametrize(("line", "profiles", "body"), _transcripts())
def test_example_sessions_are_legal(line: int, profiles: str, body: str) -> None:
    """Each whole session of the examples, judged by the suite's model of a session."""
    claims = EndpointClaims(profiles=frozenset(profiles.split()), voices=frozenset({"af_heart"}))
    oracle = Oracle(claims)
    clock = 0.0
    for step in body.splitlines():
        said = re.fullmatch(r"([CE])  (.*?) *(?:# .*)?", step)
        assert said is not None, step
        sender, what = said.groups()
        clock += 0.2
        if audio := re.fullmatch(r"\(audio, (\d+) bytes\)", what):
            oracle.received(bytes(int(audio[1])), "binary", t=clock)
        elif silence := re.fullmatch(r"\(says nothing for (\d+) s\)", what):
            clock += float(silence[1])
        elif what == "(the endpoint is told to stop)":
            oracle.shutdown_told()
            clock += 19.0
        elif what == "(closes the transport)":
            oracle.client_closed(clock)
            oracle.closed(1000, clock)
        elif sender == "C":
            oracle.sent(what.encode(), t=clock)
        else:
            oracle.received(what.encode(), "text", t=clock)
    assert oracle.finish(quiet="(closes the transport)" not in body) == (), line


def test_there_are_example_sessions() -> None:
    assert len(_transcripts()) >= 7


def test_there_are_examples() -> None:
    assert sum(1 for _ in _examples()) >= 25


@pytest.mark.parametrize(
    ("line", "body"),
    [(line, body) for line, _, body in _fences("http.md") if "Content-Length:" in body],
)
def test_http_examples_are_true(line: int, body: str) -> None:
    head, _, content = body.partition("\n\n")
    length = re.search(r"^Content-Length: (\d+)$", head, re.MULTILINE)
    assert length is not None
    content = content.rstrip("\n")
    assert int(length[1]) == len(content.encode()), line
    name = "http-request" if head.startswith("POST") else "http-error"
    validator(name).validate(json.loads(content))


def test_sse_example_is_true() -> None:
    ((_, _, body),) = _fences("sse.md")
    assert body.endswith("\n\n")
    event, data = body.splitlines()[:2]
    assert event == "event: audio_chunk"
    fields = json.loads(data.removeprefix("data: "))
    assert len(base64.b64decode(fields["data"], validate=True)) % 2 == 0


def test_percent_encoding_example() -> None:
    text = (SPEC / "http.md").read_text(encoding="utf-8")
    said = re.search(r"`([^`]+)`\s+is\s+`(h%[^`]+)`", text)
    assert said is not None
    assert (
        "".join(
            chr(byte)
            if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "-._~")
            else f"%{byte:02X}"
            for byte in said[1].encode()
        )
        == said[2]
    )


def test_the_folder_is_read_whole() -> None:
    assert tuple(read_folder(SPEC)) == NORMATIVE_FILES
