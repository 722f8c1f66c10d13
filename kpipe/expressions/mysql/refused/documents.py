"""Functions of JSON and BSON documents that are rejected by name, each with the reason and an alternative."""

from __future__ import annotations

__all__ = ["DOCUMENTS"]

_AGGREGATE = "it is an aggregate, but an expression sees one record"
_PARAMS = (
    "BIGINT BIGINT_STRICT BOOL BOOL_STRICT DOUBLE DOUBLE_STRICT JSON JSON_STRICT STRING STRING_STRICT BSON "
    "DATETIME DATETIME_STRICT"
)
_PREDICATE = (
    "predicates of MATCH_PARAM are not available",
    "JSON_MATCH_ANY_EXISTS(value, 'a', 'b'), or value::a::$b = 'x'",
)
_BSON = "kpipe has no BSON type"

_BSON_NAMES = (
    "ARRAY_PUSH ARRAY_SLICE BUILD_ARRAY BUILD_OBJECT COMPARE EXCLUDE_MASK EXTRACT_BIGINT EXTRACT_BOOL EXTRACT_BSON "
    "EXTRACT_DATETIME EXTRACT_DOUBLE EXTRACT_STRING GET_TYPE INCLUDE_MASK LENGTH MATCH_ANY MATCH_ANY_EXISTS MERGE SET_BSON UNWIND"
)

DOCUMENTS: dict[str, tuple[str, str]] = {
    "JSON_AGG": (_AGGREGATE, "write JSON_BUILD_ARRAY(a, b) for values of one record"),
    "JSON_ARRAYAGG": (_AGGREGATE, "write JSON_ARRAY(a, b) for values of one record"),
    "JSON_OBJECTAGG": (_AGGREGATE, "write JSON_OBJECT('a', a, 'b', b) for values of one record"),
    "JSON_TABLE": ("an expression returns one value, not rows", "write UNNEST after FROM: docs/how-to/several-tables.md"),
    "JSON_TO_ARRAY": ("kpipe has no ARRAY type", "write JSON_EXTRACT_JSON(value, 0), or UNNEST after FROM for more rows"),
    **dict.fromkeys(("JSON_MATCH_ANY", *(f"MATCH_PARAM_{name}" for name in _PARAMS.split())), _PREDICATE),
    "JSON_QUERY": ("it is a function of MariaDB", "write JSON_EXTRACT(value, '$.a')"),
    "JSON_EQUALS": ("it is a function of MariaDB", "write CAST(a AS JSON) = CAST(b AS JSON)"),
    "JSON_COMPACT": ("it is a function of MariaDB", "write CAST(value AS JSON), which is printed without spaces"),
    "JSON_LOOSE": ("it is a function of MariaDB", "write CAST(value AS JSON)"),
    "JSON_DETAILED": ("it is a function of MariaDB", "write JSON_PRETTY(value)"),
    "JSON_NORMALIZE": ("it is a function of MariaDB", "write CAST(a AS JSON) = CAST(b AS JSON), which ignores the order of keys"),
    "JSON_SCHEMA_VALID": ("expressions do not support JSON schemas", "write JSON_TYPE(value->'$.a') = 'INTEGER'"),
    "JSON_SCHEMA_VALIDATION_REPORT": ("expressions do not support JSON schemas", "write JSON_TYPE(value->'$.a') = 'INTEGER'"),
    "JSON_STORAGE_SIZE": ("a record is not stored in a table yet", "write LENGTH(value)"),
    "JSON_STORAGE_FREE": ("a record is not stored in a table yet", "write LENGTH(value)"),
    **{
        f"BSON_{name}": (_BSON, "the JSON function of that name, as JSON_EXTRACT_STRING(value, 'a')")
        for name in _BSON_NAMES.split()
    },
}
