"""The clauses that schemas and vectors cite are there. (That fields and values agree with the prose
is held where the prose is tested.)"""

import json
import re
from importlib.resources import files
from pathlib import Path

from utterwire_schemas import SCHEMA_NAMES, VECTOR_SETS, schema, vectors

SPEC = Path(__file__).parents[2] / "spec"
CLAUSE = re.compile(r"\b([a-z]+\.md)#([a-z0-9-]+)")


def prose(name: str) -> str:
    return (SPEC / name).read_text("utf-8")


def anchors(name: str) -> set[str]:
    """The anchors that a Markdown file's headings get on GitHub."""
    headings = re.findall(r"^#+ +(.+?) *$", prose(name), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def test_clauses_exist() -> None:
    documents = [json.dumps(schema(name)) for name in SCHEMA_NAMES]
    documents += [
        (files("utterwire_schemas") / path).read_text("utf-8")
        for path in ("error-codes.json", "asyncapi.json")
    ]
    documents += [json.dumps(vectors(name)) for name in VECTOR_SETS]
    cited = {clause for document in documents for clause in CLAUSE.findall(document)}
    assert len(cited) > 20
    known = {name: anchors(name) for name, _ in cited}
    assert [clause for clause in sorted(cited) if clause[1] not in known[clause[0]]] == []
