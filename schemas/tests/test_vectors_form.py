"""The vector files as data: their schemas, their ids, the requirements they serve."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from utterwire_schemas import VECTOR_SETS, validator, vectors

REQUIREMENTS = Path(__file__).parents[2] / "spec" / "requirements.yaml"


@pytest.fixture(scope="module")
def requirement_ids() -> set[str]:
    document: dict[str, Any] = yaml.safe_load(REQUIREMENTS.read_text("utf-8"))
    return {row["id"] for row in document["requirements"]}


@pytest.mark.parametrize("name", VECTOR_SETS)
def test_schema(name: str) -> None:
    text = (files("utterwire_schemas") / "vectors" / f"{name}.json").read_text("utf-8")
    validator(f"vectors-{name}").validate(json.loads(text))


@pytest.mark.parametrize("name", VECTOR_SETS)
def test_ids_are_unique(name: str) -> None:
    ids = [vector["id"] for vector in vectors(name)]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", VECTOR_SETS)
def test_no_vector_repeats_another(name: str) -> None:
    seen: dict[str, str] = {}
    for vector in vectors(name):
        told = {"id", "why", "requirement"}
        content = json.dumps({k: v for k, v in vector.items() if k not in told}, sort_keys=True)
        assert content not in seen, (vector["id"], seen.get(content))
        seen[content] = vector["id"]


@pytest.mark.parametrize("name", VECTOR_SETS)
def test_requirements_exist(name: str, requirement_ids: set[str]) -> None:
    named = {
        requirement
        for vector in vectors(name)
        for requirement in [vector["requirement"], *vector.get("breaks", [])]
    }
    assert named <= requirement_ids, named - requirement_ids
