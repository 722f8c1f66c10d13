"""Bound the evaluations that validating a value against a JSON Schema takes, before a validator is given either.

Validators evaluate a subschema once for each way that leads to it (`allOf` with the same `$ref` twice: twice), so that 30 nested
definitions take 2 ** 30 evaluations of one value. No validator can be interrupted or counts (measured on jsonschema-rs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from resources.decode.payload_schemas import Unfit

__all__ = ["MOST_EVALUATIONS", "Cost"]

MOST_EVALUATIONS = 10**9
"""Evaluations for one record, as an upper bound: some ten seconds."""

# Keywords by what they apply their subschemas to (JSON Schema 2020-12, sections 10 and 11, and those of older drafts).
_SAME_LISTS = ("allOf", "anyOf", "oneOf")
_SAME = ("not", "if", "then", "else")
_SAME_BY_NAME = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_CHILDREN = (
    "additionalProperties",
    "unevaluatedProperties",
    "items",
    "additionalItems",
    "contains",
    "unevaluatedItems",
    "propertyNames",
)
Resolve = Callable[[Any, str], "tuple[Any, Any] | None"]
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")


class Cost:
    """Evaluations of a schema, by the depth of the value.

    Args:
        root: the schema.
        resolve: returns the document and the subschema that a `$ref` in a document means; None: it is not known.

    Raises:
        Unfit: the schema refers to itself without a step into the value.
    """

    def __init__(self, root: Any, resolve: Resolve) -> None:
        self._root = id(root)
        self._parts: dict[int, _Part] = {}  # each behind those that apply to the same value
        self._collect(root, resolve)
        self._levels: list[dict[int, int]] = []
        self._steady = False  # deeper values take no more
        self.per_value(0)

    def per_value(self, depth: int) -> int:
        """Return the evaluations for a value of that depth and its members on one path down; at most `MOST_EVALUATIONS` + 1.

        Args:
            depth: 0 for a scalar, 1 for `[1]`.
        """
        while len(self._levels) <= depth and not self._steady:
            below = self._levels[-1] if self._levels else None
            level: dict[int, int] = {}
            for key, part in self._parts.items():
                found = part.times * (1 + sum(level[other] for other in part.same))
                if below is not None:  # members of one group are different parts of the value: the dearest counts for a path
                    found += sum(max(below[child] for child in group) for group in part.children if group)
                level[key] = min(found, MOST_EVALUATIONS + 1)
            self._steady = level == below
            self._levels.append(level)
        return self._levels[min(depth, len(self._levels) - 1)][self._root]

    def is_too_much(self, value: Any, size: int) -> bool:
        """Return whether validating a record could take more than `MOST_EVALUATIONS`.

        Args:
            value: the record.
            size: bytes of its text: each value takes one at least.
        """
        if self._steady and size * self._levels[-1][self._root] <= MOST_EVALUATIONS:
            return False
        depth, values = _measured(value)
        return values * self.per_value(depth) > MOST_EVALUATIONS

    def _collect(self, root: Any, resolve: Resolve) -> None:
        members: list[tuple[Any, Any]] = [(root, root)]
        while members:
            opened: set[int] = set()  # all apply to the same value
            waiting: list[tuple[Any, Any, _Part | None]] = [(*members.pop(), None)]
            while waiting:
                schema, document, part = waiting.pop()
                key = id(schema)
                if part is not None:  # all that applies to the same value has been collected
                    opened.discard(key)
                    self._parts[key] = part
                    continue
                if key in self._parts:
                    continue
                if key in opened:
                    raise Unfit("the schema refers to itself without a step into the value")
                opened.add(key)
                same, groups = list(_same(schema, document, resolve)), list(_children(schema))
                made = _Part(
                    [id(other) for other, _ in same], [[id(x) for x in group] for group in groups], 1 + _looks_again(schema)
                )
                waiting.append((schema, document, made))
                waiting += [(other, of, None) for other, of in same]
                members += [(child, document) for group in groups for child in group]


@dataclass
class _Part:
    """A subschema: which others apply to the same value, which to its members, and how often it is evaluated itself."""

    same: list[int]
    children: list[list[int]]
    times: int


def _looks_again(schema: Any) -> bool:
    """Return whether a subschema evaluates again what its other keywords have evaluated."""
    return isinstance(schema, dict) and any(word in schema for word in _UNEVALUATED)


def _same(schema: Any, document: Any, resolve: Resolve) -> Iterator[tuple[Any, Any]]:
    """Subschemas that apply to the same value, with the documents that they are in."""
    if not isinstance(schema, dict):
        return
    for word in _SAME_LISTS:
        if isinstance(schema.get(word), list):
            yield from ((part, document) for part in schema[word])
    for word in _SAME:
        if isinstance(schema.get(word), dict):
            yield schema[word], document
    for word in _SAME_BY_NAME:
        if isinstance(schema.get(word), dict):
            yield from ((part, document) for part in schema[word].values())
    for word in _REFERENCES:
        found = resolve(document, schema[word]) if isinstance(schema.get(word), str) else None
        if found is not None:
            yield found[1], found[0]


def _children(schema: Any) -> Iterator[list[Any]]:
    """Subschemas that apply to members, in groups that apply to different members each."""
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("properties"), dict):
        yield list(schema["properties"].values())
    if isinstance(schema.get("patternProperties"), dict):  # a name may match several
        yield from ([part] for part in schema["patternProperties"].values())
    for word in ("prefixItems", "items"):
        if isinstance(schema.get(word), list):
            yield schema[word]
    for word in _CHILDREN:
        if isinstance(schema.get(word), dict):
            yield [schema[word]]


def _measured(value: Any) -> tuple[int, int]:
    """Return the depth of a value, and the number of values in it."""
    depth, count, level = -1, 0, [value]
    while level:
        depth += 1
        count += len(level)
        level = [
            inner
            for item in level
            if isinstance(item, (dict, list))
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return max(depth, 0), count
