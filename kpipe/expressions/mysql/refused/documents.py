"""Functions of JSON and BSON documents that are refused by name, each with the reason and what to write instead."""

from __future__ import annotations

__all__ = ["DOCUMENTS"]

_AGGREGATE = "it is an aggregate, and an expression sees one record"
_PARAMS = (
    "BIGINT BIGINT_STRICT BOOL BOOL_STRICT DOUBLE DOUBLE_STRICT JSON JSON_STRICT STRING STRING_STRICT BSON "
    "DATETIME DATETIME_STRICT"
)
_PREDICATE = (
    "predicates of MATCH_PARAM are not available",
    "JSON_MATCH_ANY_EXISTS(value, 'a', 'b'), or value::a::$b = 'x'",
)
_BSON = "there is no BSON type"

_BSON_NAMES = (
    "ARRAY_PUSH ARRAY_SLICE BUILD_ARRAY BUILD_OBJECT COMPARE EXCLUDE_MASK EXTRACT_BIGINT EXTRACT_BOOL EXTRACT_BSON "
    "EXTRACT_DATETIME EXTRACT_DOUBLE EXTRACT_STRING GET_TYPE INCLUDE_MASK LENGTH MATCH_ANY MATCH_ANY_EXISTS MERGE SET_BSON UNWIND"
)

DOCUMENTS: dict[str, tuple[str, str]] = {
    "JSON_AGG": (_AGGREGATE, "JSON_BUILD_ARRAY(a, b) of one record's values"),
    "JSON_ARRAYAGG": (_AGGREGATE, "JSON_ARRAY(a, b) of one record's values"),
    "JSON_OBJECTAGG": (_AGGREGATE, "JSON_OBJECT('a', a, 'b', b) of one record's values"),
    "JSON_TABLE": ("an expression gives one value, no rows", "UNNEST behind FROM, docs/guide/several-tables.md"),
    "JSON_TO_ARRAY": ("there is no ARRAY type", "JSON_EXTRACT_JSON(value, 0), or UNNEST behind FROM for one row an element"),
    **dict.fromkeys(("JSON_MATCH_ANY", *(f"MATCH_PARAM_{name}" for name in _PARAMS.split())), _PREDICATE),
    "JSON_QUERY": ("it is MariaDB's", "JSON_EXTRACT(value, '$.a')"),
    "JSON_EQUALS": ("it is MariaDB's", "CAST(a AS JSON) = CAST(b AS JSON)"),
    "JSON_COMPACT": ("it is MariaDB's", "CAST(value AS JSON), which is printed without spaces"),
    "JSON_LOOSE": ("it is MariaDB's", "CAST(value AS JSON)"),
    "JSON_DETAILED": ("it is MariaDB's", "JSON_PRETTY(value)"),
    "JSON_NORMALIZE": ("it is MariaDB's", "CAST(a AS JSON) = CAST(b AS JSON) compares without regard to the order of keys"),
    "JSON_SCHEMA_VALID": ("there are no JSON schemas in expressions", "JSON_TYPE(value->'$.a') = 'INTEGER'"),
    "JSON_SCHEMA_VALIDATION_REPORT": ("there are no JSON schemas in expressions", "JSON_TYPE(value->'$.a') = 'INTEGER'"),
    "JSON_STORAGE_SIZE": ("a record is not stored", "LENGTH(value)"),
    "JSON_STORAGE_FREE": ("a record is not stored", "LENGTH(value)"),
    **{
        f"BSON_{name}": (_BSON, "the JSON function of that name, as JSON_EXTRACT_STRING(value, 'a')")
        for name in _BSON_NAMES.split()
    },
}
