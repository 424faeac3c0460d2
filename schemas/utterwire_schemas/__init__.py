"""The data of Utterwire: JSON Schemas, the registry of error codes, test vectors.

Everything here is plain JSON beside this module, for programs in any language; the functions only
find it, without any network. See ``schemas/README.md`` for the formats.
"""

from utterwire_schemas.error_code import ERROR_CODES, ErrorCode
from utterwire_schemas.registry import REGISTRY, SCHEMA_NAMES, asyncapi, schema, validator
from utterwire_schemas.state import Cell, session_states, utterance_states
from utterwire_schemas.vector import VECTOR_SETS, octets, vectors

__all__ = [
    "ERROR_CODES",
    "REGISTRY",
    "SCHEMA_NAMES",
    "VECTOR_SETS",
    "Cell",
    "ErrorCode",
    "asyncapi",
    "octets",
    "schema",
    "session_states",
    "utterance_states",
    "validator",
    "vectors",
]
