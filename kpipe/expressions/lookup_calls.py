"""Replace lookups in expressions: `countries(code).name` becomes a column that is filled in before the expression runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kpipe.definition.lookups import Lookup
from kpipe.expressions.duckdb_dialect import parsed, to_duckdb
from kpipe.expressions.errors import Untranslated
from kpipe.expressions.languages import body_of, checked, is_mysql, of_mysql
from kpipe.expressions.mysql.syntax.parser import parse
from kpipe.expressions.mysql.syntax.tree import Node
from kpipe.expressions.quoting import quoted_name
from kpipe.expressions.tokens import words

__all__ = ["Call", "Calls"]

# Prefix of lookup calls while sqlglot parses them, so that they differ from functions of the same name.
_MARK = "kpipe_lookup__"
_LONGEST = 80  # characters of a call in messages


@dataclass(frozen=True)
class Call:
    """A lookup with the expressions of its key.

    Attributes:
        name: as messages show it: `countries(code)`.
        lookup: the lookup's name.
        keys: expressions of the key.
        members: requested columns, without duplicates.
    """

    name: str
    lookup: str
    keys: tuple[str, ...]
    members: tuple[str, ...] = ()

    def column(self, member: str) -> str:
        """Return the column name that replaces this member of the lookup's row in expressions."""
        return f"{self.name}.{member.lower()}"


class Calls:
    """Collects the lookup calls of a pipeline's expressions.

    Args:
        lookups: those of the definition.

    Attributes:
        found: calls so far; a call follows those that its key depends on.
    """

    def __init__(self, lookups: Mapping[str, Lookup]) -> None:
        self._names = {name.lower(): name for name in lookups}
        self._lookups = lookups
        self.found: list[Call] = []

    def replace(self, text: str) -> str:
        """Return the expression with a column in place of each lookup, in DuckDB's SQL or, as before, in MySQL's dialect.

        Raises:
            Untranslated: not an expression, or a lookup is not called as `name(key).column`.
        """
        if is_mysql(text):
            return self._replaced(text)
        marked = self._marked(text)
        if marked is None:
            return to_duckdb(text)
        tree = parsed(to_duckdb(marked))
        return str(self._without(tree).sql(dialect="duckdb", comments=False))

    def columns(self) -> frozenset[str]:
        """Return the names of all columns that replace lookups."""
        return frozenset(call.column(member) for call in self.found for member in call.members)

    def _replaced(self, text: str) -> str:
        """Replace the lookups of a MySQL expression by their positions in the text."""
        body = body_of(text)
        replaced = of_mysql(self._cut(body, parse(body), 0))
        checked(replaced)
        return replaced

    def _cut(self, text: str, node: Node, start: int) -> str:
        """Return the text of a node, which starts at `start`, with a column in place of each lookup."""
        if node.kind == "member" and str(node.args[0].value).lower() in self._names:
            call = node.args[0]
            keys = [of_mysql(self._cut(text[item.start : item.end], item, item.start)) for item in call.args]
            return quoted_name(self._asked(self._names[str(call.value).lower()], tuple(keys), str(node.value)))
        if node.kind == "call" and str(node.value).lower() in self._names:
            raise self._no_value(self._names[str(node.value).lower()])
        out, copied = [], start
        for item in sorted(node.args, key=lambda item: item.start):
            if item.end > item.start >= copied:  # a default argument that the text does not contain has no position
                out += [
                    text[copied - start : item.start - start],
                    self._cut(text[item.start - start : item.end - start], item, item.start),
                ]
                copied = item.end
        return "".join([*out, text[copied - start :]])

    def _marked(self, text: str) -> str | None:
        """Return the text with `_MARK` before each lookup call; None without lookups."""
        tokens = list(words(text))
        out: list[str] = []
        copied = 0
        for index, word in enumerate(tokens):
            after = tokens[index + 1].text if index + 1 < len(tokens) else ""
            if word.kind == "name" and after == "(" and word.text.lower() in self._names:
                out += [text[copied : word.start], _MARK + word.text.lower()]
                copied = word.end
        return "".join([*out, text[copied:]]) if out else None

    def _without(self, tree: Any) -> Any:
        from sqlglot import exp

        def rule(node: Any) -> Any:
            if isinstance(node, exp.Dot) and self._is_call(node.this):
                if type(node.expression) is not exp.Identifier:
                    raise self._wrong(node.this)
                call = self._call(node.this)
                return exp.column(exp.to_identifier(call.column(str(node.expression.name)), quoted=True))
            if self._is_call(node):
                raise self._wrong(node)
            return node

        for node in tree.find_all(exp.Lambda):
            if any(self._is_call(item) for item in node.find_all(exp.Anonymous)):
                raise Untranslated(
                    "a lookup is not allowed inside a lambda", "compute its key from columns of the record, not from list items"
                )
        for node in tree.find_all(exp.Dot):
            if self._is_call(node.this) and type(node.expression) is exp.Identifier:
                self._note(node.this, str(node.expression.name))
        return tree.transform(rule)

    def _is_call(self, node: Any) -> bool:
        from sqlglot import exp

        return isinstance(node, exp.Anonymous) and str(node.this).lower().startswith(_MARK)

    def _note(self, node: Any, member: str) -> Call:
        """Record a call and its member."""
        name = self._names[str(node.this).lower()[len(_MARK) :]]
        keys = tuple(str(self._without(item.copy()).sql(dialect="duckdb", comments=False)) for item in node.expressions)
        return self._noted(name, keys, member)

    def _asked(self, name: str, keys: tuple[str, ...], member: str) -> str:
        """Return the column that replaces a member of the lookup's row."""
        return self._noted(name, keys, member).column(member)

    def _noted(self, name: str, keys: tuple[str, ...], member: str) -> Call:
        wanted = self._lookups[name].keys
        if len(keys) != len(wanted):
            raise Untranslated(
                f"lookup {name}: expected {len(wanted)} key{'s' if len(wanted) > 1 else ''}, found {len(keys)}",
                f"write {name}({', '.join(wanted)}).COLUMN, with the keys in the order of lookups.{name}.key",
            )
        index = next((n for n, call in enumerate(self.found) if (call.lookup, call.keys) == (name, keys)), None)
        if index is None:
            index = len(self.found)
            self.found.append(Call(self._shown(name, keys), name, keys))
        call = self.found[index]
        if member and member.lower() not in map(str.lower, call.members):
            call = self.found[index] = replace(call, members=(*call.members, member))
        return call

    def _call(self, node: Any) -> Call:
        return self._note(node, "")

    def _shown(self, name: str, keys: tuple[str, ...]) -> str:
        text = ", ".join(body_of(key) for key in keys).replace('"', "").replace("`", "")
        shown = f"{name}({text if len(text) <= _LONGEST else text[:_LONGEST] + '...'})"
        taken = {call.name.lower() for call in self.found}
        while shown.lower() in taken:  # column names of a block are case-insensitive
            shown += "'"
        return shown

    def _wrong(self, node: Any) -> Untranslated:
        return self._no_value(self._names[str(node.this).lower()[len(_MARK) :]])

    def _no_value(self, name: str) -> Untranslated:
        key = ", ".join(self._lookups[name].keys)
        return Untranslated(
            f"{name}(...) is a row of a lookup, not a value",
            f"write {name}({key}).COLUMN; without a matching row, its key is NULL",
        )
