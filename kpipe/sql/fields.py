"""The fields that a statement sets, each with the clause that set it and its place in the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lark import Token, Tree
from pydantic import ValidationError

from kpipe.definition.pipeline import Pipeline
from kpipe.expressions.errors import Untranslated
from kpipe.expressions.languages import read_expression
from kpipe.sql import clauses
from kpipe.sql.ast import Node, children, names, span, token, wrong
from kpipe.sql.source_positions import Spans

__all__ = ["Fields"]

# Dictionaries that are one value, not a group of fields.
_VALUES = ("set", "source.start", "source.end", "columns", "format.mapping", "key_format.mapping", "into.update")
# Clauses behind an expression, where they would be read as part of it.
_EARLY = re.compile(
    r"\b(?:SKIP(?=\s+(?:ALL|CONSTRAINT|DUPLICATE|PARSER)\b)|(?:CONFIG|CREDENTIALS|RETRY_OPTIONS|OPTIONS)(?=\s*['\"])"
    r"|(?:BATCH_INTERVAL|MAX_\w+_PER_BATCH\w*)(?=\s+\d)|STOP_ON_ERROR(?=\s+O)|WITH(?=\s+TRANSFORM\b))",
    re.IGNORECASE,
)


class Fields:
    """Collects the attributes of a definition.

    Args:
        text: the whole statement: expressions are taken from it as they are written.

    Attributes:
        text: the same.
        values: as in YAML.
        format: which format the next clauses belong to, `format` or `key_format`.
        skips_all: whether SKIP ALL ERRORS was given.
        rule: the clause that says how rows of the same key are treated.
        endpoint: the text of KAFKA, and its place.
        options: the clause OPTIONS.
        keyed: whether the key's columns were given behind those of the value: both have one format.
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
        """A clause sets a field.

        Raises:
            Wrong: another one has.
        """
        if path in self._places and self._places[path][1] == clause:
            wrong(node, f"{clause} is given twice")
        if path in self._places:
            wrong(node, f"{clause} says again what {self._places[path][1]} says", "leave out one of them")
        self._places[path] = node, clause
        group = self.values
        for part in path[:-1]:
            group = group.setdefault(part, {})
        group[path[-1]] = value

    def option(self, field: str, value: Any, node: Node, clause: str) -> None:
        """A clause sets an option of the format at hand."""
        self.set((self.format, field), value, node, clause)

    def forget(self, *path: str) -> None:
        """The next clause may set it again."""
        self._places.pop(path, None)

    def place(self, *path: str) -> Node:
        """Where a field was set."""
        return self._places[path][0]

    def part(self, path: tuple[str, ...], node: Node) -> None:
        """Remember where a part of a field stands that one clause sets as a whole."""
        self._parts[path] = node

    def nodes(self) -> Iterator[tuple[tuple[str, ...], Node]]:
        """Yield where each field stands that a clause has set, and each part of one."""
        yield from ((path, node) for path, (node, _) in self._places.items())
        yield from self._parts.items()
        if self.options is not None:
            yield ("options",), self.options

    def spans(self) -> Spans:
        """Return places and lengths of the same in the statement's text."""
        return {path: span(node) for path, node in self.nodes()}

    def slice(self, tree: Tree[Token]) -> str:
        """The text of a node as it is written."""
        return self.text[tree.meta.start_pos : tree.meta.end_pos].strip()

    def expression(self, tree: Tree[Token]) -> str:
        """The expression in a clause, as definitions hold it.

        Raises:
            Wrong: it calls something that is refused, or is no expression.
        """
        node = next(children(tree, "expression"))
        try:
            return read_expression(self.slice(node))
        except Untranslated as error:
            early = _EARLY.search(self.slice(node))
            if early is not None:
                wrong(node, f"{early[0].upper()} stands before SET, WHERE and ON DUPLICATE KEY UPDATE", "move it there")
            wrong(node, error.what, error.hint)

    def assignments(self, tree: Tree[Token], clause: str, path: tuple[str, ...]) -> dict[str, str]:
        """`column = expression, ...`, as the field of that path."""
        found: dict[str, str] = {}
        for item in children(tree, "assignment"):
            target = self.target(next(children(item, "target")))
            if target.startswith("@"):
                wrong(item, f"{clause} sets columns, {target} is a variable", "variables come from the list of columns")
            if target.lower() in map(str.lower, found):
                wrong(item, f"{clause} sets {target} twice")
            found[target] = self.expression(item)
            self.part((*path, target), item)
        return found

    def target(self, tree: Tree[Token]) -> str:
        """A column, or a @variable. Before a column the pipeline's table may stand."""
        variable = token(tree, "VARIABLE")
        if variable is not None:
            return str(variable)
        written = names(next(children(tree, "qualified")))
        if len(written) == 2:
            table = str(self.values.get("into", {}).get("table", ""))
            if written[0].lower() != table.lower():
                wrong(tree, f"{written[0]}.{written[1]} is no column of {table}, the pipeline's table")
        return written[-1]

    def merge_options(self, tree: Tree[Token]) -> None:
        """OPTIONS: fields that no clause has set.

        Raises:
            Wrong: one has, or the field has a clause of its own because it may hold secrets.
        """
        given = clauses.json_object(tree, "OPTIONS")
        for field in ("credentials", "config"):
            if isinstance(given.get("source"), dict) and field in given["source"]:
                wrong(tree, f"OPTIONS: source.{field} has a clause of its own", f"write {field.upper()} '{{...}}'")

        if "lookups" in given:
            wrong(tree, "OPTIONS: lookups have a clause of their own", "write LOOKUP name KEY (column) FROM ...")
        into = given.get("into")
        if isinstance(into, dict) and isinstance(into.get("credentials"), dict):
            into["credentials"] = {key: clauses.credential(tree, key, value) for key, value in into["credentials"].items()}

        def clash(path: str) -> None:
            wrong(tree, f"OPTIONS: {path} is said by another clause, too", "leave out one of them")

        self.values = _merged(self.values, given, clash)

    def pipeline(self, tree: Tree[Token]) -> Pipeline:
        """The definition.

        Raises:
            Wrong: a field is wrong, at the place of its clause.
        """
        try:
            return Pipeline.model_validate(self.values)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            path = tuple(str(part) for part in first["loc"])
            text = first["msg"].removeprefix("Value error, ")
            known = next((path[:end] for end in range(len(path), 0, -1) if path[:end] in self._places), None)
            near = next((place for place in self._places if place[:1] == path[:1]), None) if self.options is None else None
            if known or near is None:
                node, clause = self._places[known] if known else (self.options or tree, "OPTIONS" if self.options else "")
            else:
                node, clause = self._places[near][0], ""
            rest = ".".join(path[len(known) :] if known else path)
            wrong(node, ": ".join(part for part in (clause, rest, text[:1].lower() + text[1:]) if part))


def _merged(fields: Mapping[str, Any], more: Mapping[str, Any], clash: Callable[[str], None], path: str = "") -> dict[str, Any]:
    """Both, group by group; `clash` is told what stands in both."""
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
