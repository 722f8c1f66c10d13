"""Validate records against a JSON Schema, and derive column types from it.

Types: integer BIGINT, number DOUBLE, boolean BOOLEAN, string VARCHAR. A string with `format` date-time is TIMESTAMP WITH TIME
ZONE, date DATE, uuid UUID. An object with `properties` is STRUCT, an array a list of the type of its `items`; T or null is T.
All others are JSON.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from kpipe.schema.columns import BIGINT, BOOLEAN, DOUBLE, INSTANT, JSON, VARCHAR, Columns, ListOf, Scalar, Struct, Type
from kpipe.schema.inference import nameable
from kpipe.schema.nesting import shallow
from resources.decode.json_schema.cost import MOST_EVALUATIONS, Cost
from resources.decode.payload_schemas import Unfit
from resources.extras import missing
from resources.schema_registry.client import Schema

__all__ = ["JsonSchema"]

_TEXTS = {"date-time": INSTANT, "date": Scalar("DATE"), "uuid": Scalar("UUID")}
_PLAIN: dict[str, Type] = {"integer": BIGINT, "number": DOUBLE, "boolean": BOOLEAN}
# Objects with more members are JSON, as where types are inferred (design.md 4.6).
_MOST_MEMBERS = 200
_DEEPEST = 20
# A schema is a stranger's: what it refers to in several places counts in each of them.
_MOST_COLUMNS = 20_000


class JsonSchema:
    """A schema. References to addresses are never fetched; only the registry's references are used.

    Args:
        schema: with its references.

    Raises:
        Unfit: it is not a JSON Schema.
        NotAvailable: the validator is not installed.
    """

    def __init__(self, schema: Schema) -> None:
        try:
            import jsonschema_rs
        except ImportError:
            raise missing("format.validate", "jsonschema-rs", "jsonschema") from None
        self._root, given = _parsed(schema.text), {name: _parsed(text) for name, text in schema.references}

        def known(uri: str) -> Any:
            for name, content in given.items():
                if uri == name or uri.endswith(f"/{name}"):
                    return content
            raise ValueError("it is not fetched, and not among the references")

        try:
            self._validator = jsonschema_rs.validator_for(self._root, retriever=known)
        except (ValueError, jsonschema_rs.ValidationError) as error:  # that is: the schema does not conform to its own
            raise Unfit(f"the schema cannot be used: {str(error).splitlines()[0][:300]}") from None
        self._given = given
        self._cost = Cost(self._root, self._meant)
        self._open: list[str] = []
        self._columns = 0
        root = self._type(self._root, 0)
        fields = root.fields if isinstance(root, Struct) else ()
        self.columns = Columns(tuple((name, shallow(kind)) for name, kind in fields))

    def reason(self, value: Any, size: int) -> str | None:
        """Return why a record does not conform; None: it does.

        Args:
            value: the record.
            size: bytes of its text.
        """
        if self._cost.is_too_much(value, size):
            return f"the record cannot be validated: its schema could take more than {MOST_EVALUATIONS:,} evaluations of it"
        try:
            if self._validator.is_valid(value):
                return None
            found = next(iter(self._validator.iter_errors(value)))
        except (ValueError, RecursionError, StopIteration) as error:
            return f"the record cannot be validated: {str(error)[:200]}"
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found.instance_path).lstrip(".")
        return f"{path[:200] or 'the record'}: {found.message[:300]} (JSON Schema: {found.kind.name})"

    def _type(self, schema: Any, depth: int) -> Type:
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return JSON
        for word in ("anyOf", "oneOf"):
            if isinstance(schema.get(word), list):
                others = [item for item in schema[word] if not isinstance(item, dict) or item.get("type") != "null"]
                return self._type(others[0], depth + 1) if len(others) == 1 and len(schema[word]) == 2 else JSON
        if "$ref" in schema:
            return self._referred(str(schema["$ref"]), depth)
        if any(word in schema for word in ("allOf", "not", "if", "$dynamicRef", "$recursiveRef")):
            return JSON
        kinds = schema.get("type")
        names = [item for item in (kinds if isinstance(kinds, list) else [kinds]) if item != "null"]
        if len(names) != 1:
            return JSON
        if names[0] == "string":
            return _TEXTS.get(str(schema.get("format")), VARCHAR)
        if names[0] == "array":
            item = self._type(schema.get("items"), depth + 1) if isinstance(schema.get("items"), dict) else JSON
            return ListOf(item)
        return self._object(schema, depth) if names[0] == "object" else _PLAIN.get(str(names[0]), JSON)

    def _object(self, schema: dict[str, Any], depth: int) -> Type:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties or len(properties) > _MOST_MEMBERS:
            return JSON
        if depth and (isinstance(schema.get("additionalProperties"), dict) or schema.get("patternProperties")):
            return JSON
        names = [name for name in properties if nameable(name)]
        if len({name.lower() for name in names}) < len(names) or len(names) < len(properties):
            return JSON if depth else Struct(())
        self._columns += len(names)
        if self._columns > _MOST_COLUMNS:
            raise Unfit(f"the schema makes more than {_MOST_COLUMNS:,} columns and members")
        return Struct(tuple((name, self._type(properties[name], depth + 1)) for name in names))

    def _referred(self, where: str, depth: int) -> Type:
        """Derive the type of a reference inside the same schema; a recursive one is JSON."""
        found = pointed(self._root, where)
        if found is None or where in self._open:
            return JSON
        self._open.append(where)
        try:
            return self._type(found[0], depth + 1)
        finally:
            self._open.pop()

    def _meant(self, document: Any, reference: str) -> tuple[Any, Any] | None:
        """Return the document and the subschema of a reference; the whole document if the subschema is unclear."""
        name, _, fragment = reference.partition("#")
        for known, content in self._given.items() if name else ():
            if name == known or name.endswith(f"/{known}"):
                document = content
        found = pointed(document, f"#{fragment}") if fragment.startswith("/") else None
        return document, found[0] if found is not None else document


def pointed(document: Any, reference: str) -> tuple[Any] | None:
    """Resolve a JSON Pointer (`#/$defs/a`, RFC 6901); None if it leads nowhere or is another form of reference."""
    if not reference.startswith("#/"):
        return None
    found = document
    for part in reference[2:].split("/"):
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return (found,)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Unfit("the schema is not JSON") from None
