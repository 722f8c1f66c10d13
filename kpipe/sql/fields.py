"""Collect the fields that a statement sets, with the clause and the position of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from lark import Token, Tree
from pydantic import ValidationError

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.secret_values import problems
from kpipe.expressions.errors import Untranslated
from kpipe.expressions.languages import read_expression
from kpipe.sql import clauses
from kpipe.sql.ast import Node, children, names, span, token, wrong
from kpipe.sql.source_positions import Spans

__all__ = ["Fields"]

# Fields whose value is a dictionary, not a group of fields.
_VALUES = ("set", "source.start", "source.end", "columns", "format.mapping", "key_format.mapping", "into.update")
# Clauses that would be parsed as part of an expression before them.
_EARLY = re.compile(
    r"\b(?:SKIP(?=\s+(?:ALL|CONSTRAINT|DUPLICATE|PARSER)\b)|(?:CONFIG|CREDENTIALS|RETRY_OPTIONS|OPTIONS)(?=\s*['\"])"
    r"|(?:BATCH_INTERVAL|MAX_\w+_PER_BATCH\w*)(?=\s+\d)|STOP_ON_ERROR(?=\s+O)|WITH(?=\s+TRANSFORM\b))",
    re.IGNORECASE,
)


class Fields:
    """Collects the fields of a definition.

    Args:
        text: the whole statement; expressions are copied from it unchanged.

    Attributes:
        text: the whole statement.
        values: fields, as in YAML.
        format: the format that the next clauses set, `format` or `key_format`.
        skips_all: whether SKIP ALL ERRORS was given.
        rule: the clause that defines what happens to rows with the same key.
        endpoint: the text of KAFKA, and its node.
        options: the clause OPTIONS.
        keyed: whether columns of the key follow those of the value; then both have the same format.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._places: dict[tuple[str, ...], tuple[Node, str]] = {}
        self._parts: dict[tuple[str, ...], Node] = {}
        self.values: dict[str, Any] = {}
        self.format = "format"
        self.skips_all = False
        self.rule = ""
        self.endpoint: tuple[str, Tree[Token]] | None = None
        self.options: Tree[Token] | None = None
        self.keyed = False

    def set(self, path: tuple[str, ...], value: Any, node: Node, clause: str) -> None:
        """Set a field by a clause.

        Raises:
            Wrong: another clause has set it.
        """
        if path in self._places and self._places[path][1] == clause:
            wrong(node, f"duplicate clause: {clause}")
        if path in self._places:
            wrong(node, f"{clause} sets the same field as {self._places[path][1]}", "remove one of them")
        self._places[path] = node, clause
        group = self.values
        for part in path[:-1]:
            group = group.setdefault(part, {})
        group[path[-1]] = value

    def option(self, field: str, value: Any, node: Node, clause: str) -> None:
        """Set an option of the current format."""
        self.set((self.format, field), value, node, clause)

    def forget(self, *path: str) -> None:
        """Allow the next clause to set a field again."""
        self._places.pop(path, None)

    def place(self, *path: str) -> Node:
        """Return the node that set a field."""
        return self._places[path][0]

    def part(self, path: tuple[str, ...], node: Node) -> None:
        """Record the node of a part of a field that one clause sets as a whole."""
        self._parts[path] = node

    def nodes(self) -> Iterator[tuple[tuple[str, ...], Node]]:
        """Yield path and node of each field that a clause has set, and of each part."""
        yield from ((path, node) for path, (node, _) in self._places.items())
        yield from self._parts.items()
        if self.options is not None:
            yield ("options",), self.options

    def spans(self) -> Spans:
        """Return path, position and length of the same in the text."""
        return {path: span(node) for path, node in self.nodes()}

    def slice(self, tree: Tree[Token]) -> str:
        """Return the text of a node."""
        return self.text[tree.meta.start_pos : tree.meta.end_pos].strip()

    def expression(self, tree: Tree[Token]) -> str:
        """Return the expression of a clause as definitions store it.

        Raises:
            Wrong: it is not an expression, or uses something unsupported.
        """
        node = next(children(tree, "expression"))
        try:
            return read_expression(self.slice(node))
        except Untranslated as error:
            early = _EARLY.search(self.slice(node))
            if early is not None:
                wrong(node, f"{early[0].upper()} must precede SET, WHERE and ON DUPLICATE KEY UPDATE", "move it")
            wrong(node, error.what, error.hint)

    def assignments(self, tree: Tree[Token], clause: str, path: tuple[str, ...]) -> dict[str, str]:
        """Return `column = expression, ...` as the field at this path."""
        assigned: dict[str, str] = {}
        for item in children(tree, "assignment"):
            target = self.target(next(children(item, "target")))
            if target.startswith("@"):
                wrong(item, f"{clause} cannot set the variable {target}", "variables come from the list of columns")
            if target.lower() in map(str.lower, assigned):
                wrong(item, f"{clause}: duplicate column {target}")
            assigned[target] = self.expression(item)
            self.part((*path, target), item)
        return assigned

    def target(self, tree: Tree[Token]) -> str:
        """Return a column, without the name of the pipeline's table, or a @variable."""
        variable = token(tree, "VARIABLE")
        if variable is not None:
            return str(variable)
        written = names(next(children(tree, "qualified")))
        if len(written) == 2:
            table = str(self.values.get("into", {}).get("table", ""))
            if written[0].lower() != table.lower():
                wrong(tree, f"{written[0]}.{written[1]} is not a column of {table}, the pipeline's table")
        return written[-1]

    def merge_options(self, tree: Tree[Token]) -> None:
        """Merge OPTIONS, which may set fields that no clause has set.

        Raises:
            Wrong: a clause has set the field, or the field has its own clause because it may contain secrets.
        """
        options = clauses.json_object(tree, "OPTIONS")
        for field in ("credentials", "config"):
            if isinstance(options.get("source"), dict) and field in options["source"]:
                wrong(tree, f"OPTIONS: source.{field} has its own clause", f"write {field.upper()} '{{...}}'")

        if "lookups" in options:
            wrong(tree, "OPTIONS: lookups have their own clause", "write LOOKUP name KEY (column) FROM ...")
        into = options.get("into")
        if isinstance(into, dict) and isinstance(into.get("credentials"), dict):
            into["credentials"] = {key: clauses.credential(tree, key, value) for key, value in into["credentials"].items()}

        def clash(path: str) -> None:
            wrong(tree, f"OPTIONS: another clause sets {path}, too", "remove one of them")

        self.values = _merged(self.values, options, clash)

    def pipeline(self, tree: Tree[Token]) -> Pipeline:
        """Validate the fields, and return the definition.

        Raises:
            Wrong: a field is invalid, or is a literal secret; the error points at its clause.
        """
        for path, (what, hint) in problems(self.values):
            self._wrong(tree, path, what, hint)
        try:
            return Pipeline.model_validate(self.values)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            path = tuple(str(part) for part in first["loc"])
            text = first["msg"].removeprefix("Value error, ")
            self._wrong(tree, path, text[:1].lower() + text[1:])

    def _wrong(self, tree: Tree[Token], path: tuple[str, ...], text: str, hint: str = "") -> NoReturn:
        """Raise an error about a field at the clause that set it, or near it."""
        exact = next((path[:end] for end in range(len(path), 0, -1) if path[:end] in self._places), None)
        near = next((place for place in self._places if place[:1] == path[:1]), None) if self.options is None else None
        if exact or near is None:
            node, clause = self._places[exact] if exact else (self.options or tree, "OPTIONS" if self.options else "")
        else:
            node, clause = self._places[near][0], ""
        rest = ".".join(path[len(exact) :] if exact else path)
        wrong(node, ": ".join(part for part in (clause, rest, text) if part), hint)


def _merged(fields: Mapping[str, Any], more: Mapping[str, Any], clash: Callable[[str], None], path: str = "") -> dict[str, Any]:
    """Merge both, group by group; a field that is in both is passed to `clash`."""
    result = dict(fields)
    for key, value in more.items():
        here = f"{path}{key}"
        if key not in result:
            result[key] = value
        elif isinstance(result[key], dict) and isinstance(value, dict) and here not in _VALUES:
            result[key] = _merged(result[key], value, clash, f"{here}.")
        else:
            clash(here)
    return result
