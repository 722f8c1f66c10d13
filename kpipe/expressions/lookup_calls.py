"""Lookups in expressions: `countries(code).name` becomes a column of that name, which is filled in before the expression runs."""

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

# Marks a call of a lookup, so that no function of that name is taken for it.
_MARK = "kpipe_lookup__"
_LONGEST = 80  # of what a message shows of a call


@dataclass(frozen=True)
class Call:
    """A lookup asked with a key.

    Attributes:
        name: as it is shown: `countries(code)`.
        lookup: the lookup's name.
        keys: expressions of the key, as DuckDB runs them.
        members: columns that are asked for, each once.
    """

    name: str
    lookup: str
    keys: tuple[str, ...]
    members: tuple[str, ...] = ()

    def column(self, member: str) -> str:
        """What a column of the row that is found is called in expressions."""
        return f"{self.name}.{member.lower()}"


class Calls:
    """Takes the lookups out of expressions.

    Args:
        lookups: those of the definition.

    Attributes:
        found: calls so far, each behind those that its own key needs.
    """

    def __init__(self, lookups: Mapping[str, Lookup]) -> None:
        self._names = {name.lower(): name for name in lookups}
        self._lookups = lookups
        self.found: list[Call] = []

    def replace(self, text: str) -> str:
        """The expression with a column in place of each lookup: as DuckDB runs it, or in MySQL's language as before.

        Raises:
            Untranslated: no expression, or a lookup is asked in another way than `name(key).column`.
        """
        if is_mysql(text):
            return self._replaced(text)
        marked = self._marked(text)
        if marked is None:
            return to_duckdb(text)
        tree = parsed(to_duckdb(marked))
        return str(self._without(tree).sql(dialect="duckdb", comments=False))

    def columns(self) -> frozenset[str]:
        """Names of all columns that stand for lookups."""
        return frozenset(call.column(member) for call in self.found for member in call.members)

    def _replaced(self, text: str) -> str:
        """An expression of MySQL's: its calls of lookups are taken out of the text by their places."""
        body = body_of(text)
        found = of_mysql(self._cut(body, parse(body), 0))
        checked(found)
        return found

    def _cut(self, text: str, node: Node, start: int) -> str:
        """The text of a node, which begins there, with a column in place of each lookup."""
        if node.kind == "member" and str(node.args[0].value).lower() in self._names:
            call = node.args[0]
            keys = [of_mysql(self._cut(text[item.start : item.end], item, item.start)) for item in call.args]
            return quoted_name(self._asked(self._names[str(call.value).lower()], tuple(keys), str(node.value)))
        if node.kind == "call" and str(node.value).lower() in self._names:
            raise self._no_value(self._names[str(node.value).lower()])
        out, at = [], start
        for item in sorted(node.args, key=lambda item: item.start):
            if item.end > item.start >= at:  # a default that nobody has written has no place
                out += [
                    text[at - start : item.start - start],
                    self._cut(text[item.start - start : item.end - start], item, item.start),
                ]
                at = item.end
        return "".join([*out, text[at - start :]])

    def _marked(self, text: str) -> str | None:
        """The text with every call marked; None where there is none."""
        found = list(words(text))
        out: list[str] = []
        at = 0
        for here, word in enumerate(found):
            after = found[here + 1].text if here + 1 < len(found) else ""
            if word.kind == "name" and after == "(" and word.text.lower() in self._names:
                out += [text[at : word.start], _MARK + word.text.lower()]
                at = word.end
        return "".join([*out, text[at:]]) if out else None

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
                raise Untranslated("a lookup stands inside of a lambda", "its key is of the record, not of an item of a list")
        for node in tree.find_all(exp.Dot):
            if self._is_call(node.this) and type(node.expression) is exp.Identifier:
                self._note(node.this, str(node.expression.name))
        return tree.transform(rule)

    def _is_call(self, node: Any) -> bool:
        from sqlglot import exp

        return isinstance(node, exp.Anonymous) and str(node.this).lower().startswith(_MARK)

    def _note(self, node: Any, member: str) -> Call:
        """The call, with that column among those that are asked for."""
        name = self._names[str(node.this).lower()[len(_MARK) :]]
        keys = tuple(str(self._without(item.copy()).sql(dialect="duckdb", comments=False)) for item in node.expressions)
        return self._noted(name, keys, member)

    def _asked(self, name: str, keys: tuple[str, ...], member: str) -> str:
        """The column that stands for a member of the row that a lookup finds."""
        return self._noted(name, keys, member).column(member)

    def _noted(self, name: str, keys: tuple[str, ...], member: str) -> Call:
        wanted = self._lookups[name].keys
        if len(keys) != len(wanted):
            raise Untranslated(
                f"{name} takes {len(wanted)} key{'s' if len(wanted) > 1 else ''}, {len(keys)} given",
                f"write {name}({', '.join(wanted)}).COLUMN: values of the record, in the order of lookups.{name}.key",
            )
        at = next((n for n, known in enumerate(self.found) if (known.lookup, known.keys) == (name, keys)), None)
        if at is None:
            at = len(self.found)
            self.found.append(Call(self._shown(name, keys), name, keys))
        call = self.found[at]
        if member and member.lower() not in map(str.lower, call.members):
            call = self.found[at] = replace(call, members=(*call.members, member))
        return call

    def _call(self, node: Any) -> Call:
        return self._note(node, "")

    def _shown(self, name: str, keys: tuple[str, ...]) -> str:
        text = ", ".join(body_of(key) for key in keys).replace('"', "").replace("`", "")
        shown = f"{name}({text if len(text) <= _LONGEST else text[:_LONGEST] + '...'})"
        taken = {call.name.lower() for call in self.found}
        while shown.lower() in taken:  # columns of a block are told apart without regard to case
            shown += "'"
        return shown

    def _wrong(self, node: Any) -> Untranslated:
        return self._no_value(self._names[str(node.this).lower()[len(_MARK) :]])

    def _no_value(self, name: str) -> Untranslated:
        key = ", ".join(self._lookups[name].keys)
        return Untranslated(
            f"{name}(...) is a row of a lookup, and no value", f"write {name}({key}).COLUMN; its key is NULL where there is none"
        )
