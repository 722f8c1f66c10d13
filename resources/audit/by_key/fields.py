"""Choose the columns of a key and of the contents, and find their fields in JSON records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from kpipe.audit.canonical import DOCUMENT, EXACT, TEXT
from kpipe.errors import InvalidPipeline

__all__ = ["Field", "Finder", "Plan", "plan"]

_LAYOUTS, _NAMES = 1024, 1000
_UNMAPPED, _LONGEST = 100, 200


@dataclass(frozen=True)
class Field:
    """A column, and the field of a record that it is compared with.

    Attributes:
        column: name of the column.
        path: name of the field; after dots, those inside of it.
        kind: of the column, see `kpipe.audit.canonical`.
    """

    column: str
    path: str
    kind: str


@dataclass(frozen=True)
class Plan:
    """Fields and columns that are compared.

    Attributes:
        keys: columns of the key.
        contents: other columns that are compared.
        chosen: whether the user named them; otherwise only those are compared that a record has a field for.
        excluded: columns whose type cannot be compared.
    """

    keys: tuple[Field, ...]
    contents: tuple[Field, ...]
    chosen: bool
    excluded: tuple[str, ...]


def plan(kinds: Mapping[str, str], keys: Sequence[str], columns: Sequence[str]) -> Plan:
    """Return what is compared.

    Args:
        kinds: of the table's columns.
        keys: `COLUMN` or `COLUMN=FIELD`.
        columns: the same; empty: all other columns; `none`: only keys.

    Raises:
        InvalidPipeline: a column does not exist, is named twice, or its type cannot be compared.
    """
    key = tuple(_exact(_field(kinds, text, "--key")) for text in keys)
    names = {item.column for item in key}
    if list(columns) == ["none"]:
        contents: tuple[Field, ...] = ()
    elif columns:
        contents = tuple(_field(kinds, text, "--columns") for text in columns)
    else:
        contents = tuple(Field(name, name, kind) for name, kind in kinds.items() if kind and name not in names)
    every = [*(item.column for item in key), *(item.column for item in contents)]
    twice = [name for at, name in enumerate(every) if name in every[:at]]
    if twice:
        raise InvalidPipeline(f"column {twice[0]} is named twice", "name each column once, in --key or in --columns")
    excluded = () if columns else tuple(name for name, kind in kinds.items() if not kind and name not in names)
    return Plan(key, contents, bool(columns), excluded)


def _exact(item: Field) -> Field:
    if item.kind == DOCUMENT:
        raise InvalidPipeline(f"--key: column {item.column} contains documents", "name columns of numbers or texts")
    return replace(item, kind=EXACT) if item.kind == TEXT else item


def _field(kinds: Mapping[str, str], text: str, option: str) -> Field:
    name, equals, path = text.partition("=")
    near = [known for known in kinds if known.lower() == name.lower()]
    column = name if name in kinds else near[0] if len(near) == 1 else None
    if column is None:
        raise InvalidPipeline(f"{option}: column {name!r} does not exist: found {', '.join(list(kinds)[:30])}", "name a column")
    if not kinds[column]:
        raise InvalidPipeline(f"{option}: values of column {column} cannot be compared with JSON", "use a view that casts it")
    if equals and not path:
        raise InvalidPipeline(f"{option}: {text}: the field is missing", "write COLUMN=FIELD")
    return Field(column, path or column, kinds[column])


@dataclass
class Finder:
    """Find fields in records.

    A field is that of the same name, else the only one whose name differs in case. Dots lead into objects, unless a name
    has them.

    Attributes:
        paths: of the fields.
        found: numbers of the paths that at least one record has a field for.
        unmapped: names of first fields that no path names.
    """

    paths: Sequence[str]
    found: set[int] = field(default_factory=set)
    unmapped: set[str] = field(default_factory=set)
    _layouts: dict[tuple[str, ...], list[str | None]] = field(default_factory=dict)

    def values(self, record: Mapping[str, Any]) -> list[Any]:
        """Return the value of each path; None: no such field."""
        names = tuple(record)
        layout = self._layouts.get(names)
        if layout is None:
            layout = self._layout(names)
        return [
            record[name] if name is not None else self._inside(record, at, path)
            for at, (name, path) in enumerate(zip(layout, self.paths, strict=True))
        ]

    def _layout(self, names: tuple[str, ...]) -> list[str | None]:
        """Return the name of the first field of each path that is one; records of the same names have the same layout."""
        if len(self._layouts) >= _LAYOUTS:  # records may have names without end
            self._layouts.clear()
        found = [_match(names, path) for path in self.paths]
        self.found.update(at for at, name in enumerate(found) if name is not None)
        if len(self.unmapped) < _UNMAPPED:
            used = {*found, *(_match(names, path.partition(".")[0]) for path in self.paths)}
            others = (name[:_LONGEST] for name in names if name not in used)
            self.unmapped.update(islice(others, _UNMAPPED - len(self.unmapped)))
        if len(names) <= _NAMES:
            self._layouts[names] = found
        return found

    def _inside(self, record: Mapping[str, Any], at: int, path: str) -> Any:
        value: Any = record
        if "." not in path:
            return None
        for part in path.split("."):
            name = _match(tuple(value), part) if isinstance(value, dict) else None
            if name is None:
                return None
            value = value[name]
        self.found.add(at)
        return value


def _match(names: Sequence[str], wanted: str) -> str | None:
    if wanted in names:
        return wanted
    near = [name for name in names if name.lower() == wanted.lower()]
    return near[0] if len(near) == 1 else None
