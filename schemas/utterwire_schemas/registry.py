"""The JSON Schemas (2020-12) and the AsyncAPI document."""

from copy import deepcopy
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from utterwire_schemas.resource import names_in, read

__all__ = ["REGISTRY", "SCHEMA_NAMES", "asyncapi", "schema", "validator"]

#: The name of every schema: that of its file in ``json/``, without ``.json``.
SCHEMA_NAMES: tuple[str, ...] = names_in("json")

_SCHEMAS: dict[str, dict[str, Any]] = {name: read(f"json/{name}.json") for name in SCHEMA_NAMES}

#: All the schemas under their ``$id``; resolving a ``$ref`` among them needs no network.
REGISTRY: Registry[Any] = (
    Registry()
    .with_resources(
        (document["$id"], DRAFT202012.create_resource(document)) for document in _SCHEMAS.values()
    )
    .crawl()
)


def schema(name: str) -> dict[str, Any]:
    """The schema of that name, a copy of its own.

    Raises ``KeyError`` where ``SCHEMA_NAMES`` has no such name.
    """
    return deepcopy(_SCHEMAS[name])


@cache
def validator(name: str) -> Draft202012Validator:
    """A validator for the schema of that name, formats (``date-time``) not asserted.

    Raises ``KeyError`` where ``SCHEMA_NAMES`` has no such name.
    """
    return Draft202012Validator(_SCHEMAS[name], registry=REGISTRY)


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI 3.0 document; its ``$ref`` are relative to the package's folder."""
    document: dict[str, Any] = read("asyncapi.json")
    return document
