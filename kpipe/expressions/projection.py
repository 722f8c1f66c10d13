"""Read a pipeline's `where`, `set` and `select`: how decoded records become rows. Executes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kpipe.definition.formats import VARIABLE
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from kpipe.expressions.lookup_calls import Call, Calls
from kpipe.expressions.select import Unnest, parse_query

__all__ = ["COORDINATES", "Selection", "field_of", "lookups_of", "shown_field"]

#: Kafka's coordinates. Every expression may use them, with any value of `metadata`.
COORDINATES = (
    "_kafka_partition", "_kafka_offset", "_kafka_timestamp", "_kafka_topic", "_kafka_key", "_kafka_headers",
)  # fmt: skip


@dataclass(frozen=True)
class Selection:
    """The expressions of a pipeline. Each reads the record, never the result of another.

    Attributes:
        where: which records become rows; empty: all. It runs first; nothing else is computed for the others.
        assigned: column and the expression that gives its value.
        only: columns that are copied unchanged; None: all columns of the record.
        names: what the expressions read: columns, variables with their @, Kafka's coordinates.
        calls: lookups that they call; a call follows those that its key depends on.
        before: number of calls that `where` needs; these are the first.
        unnest: the list whose elements become rows; the other expressions then read one element at a time.
    """

    where: str = ""
    assigned: tuple[tuple[str, str], ...] = ()
    only: tuple[str, ...] | None = None
    names: frozenset[str] = frozenset()
    calls: tuple[Call, ...] = ()
    before: int = 0
    unnest: Unnest | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """Assigned columns."""
        return tuple(name for name, _ in self.assigned)

    @property
    def outputs(self) -> frozenset[str] | None:
        """Columns of the rows in lower case; None: all columns of the record, and the assigned ones."""
        return None if self.only is None else frozenset(name.lower() for name in (*self.only, *self.targets))

    @property
    def wanted(self) -> tuple[str, ...]:
        """Names that the record must contain, sorted, without duplicates that differ only in case."""
        by_lower_case = {name.lower(): name for name in sorted(self.names) if name.lower() not in COORDINATES}
        return tuple(by_lower_case[name] for name in sorted(by_lower_case))

    def documents(self) -> frozenset[str]:
        """Return variables that only MySQL expressions use: they are read as JSON, which keeps the type of the value."""
        from kpipe.expressions.languages import is_mysql, names_of

        mysql, others = (
            frozenset().union(*(names_of(text) for _, text in self.says() if is_mysql(text) is mine)) for mine in (True, False)
        )
        return frozenset(name for name in mysql - others if VARIABLE.fullmatch(name))

    def says(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """Return each expression with its field, as if written in `where` and `set`."""
        lists = ((("select", "UNNEST"), self.unnest.text),) if self.unnest is not None else ()
        first = (*lists, (("where",), self.where)) if self.where else lists
        keys = ((("lookups", call.name), key) for call in self.calls for key in call.keys)
        return (*first, *((("set", name), text) for name, text in self.assigned), *keys)

    def of_lookups(self) -> frozenset[str]:
        """Return the names of all columns that replace lookups."""
        return frozenset(call.column(member) for call in self.calls for member in call.members)

    @classmethod
    def of(cls, pipeline: Pipeline) -> Selection | None:
        """Read the pipeline's expressions; None if it has none.

        Raises:
            InvalidPipeline: one is not an expression, is unsupported, or reads a column that the record does not have.
        """
        if pipeline.where is None and not pipeline.set and pipeline.select is None:
            return None
        where, assigned, only, unnest = pipeline.where, pipeline.set, None, None
        if pipeline.select is not None:
            if where is not None or assigned:
                raise InvalidPipeline(
                    f"pipeline {pipeline.name}: select cannot be combined with where or set",
                    "write the whole query in select",
                ).about("select")  # fmt: skip
            if pipeline.format.type == "csv" and pipeline.format.fields is None:
                raise InvalidPipeline(
                    f"pipeline {pipeline.name}: select over CSV needs column names", "list them in format.fields"
                )
            try:
                query = parse_query(pipeline.select, pipeline.name)
            except InvalidPipeline as error:
                error.about("select")
                raise
            where, assigned, only, unnest = query.where, query.assigned, query.only, query.unnest
        if unnest is not None:  # elements that are copied unchanged
            own = {name.lower() for name in unnest.names}
            assigned = {**{name: _quoted(name) for name in only or () if name.lower() in own}, **assigned}
            only = None if only is None else tuple(name for name in only if name.lower() not in own)
            unnest = replace(unnest, text=_expression(pipeline, Calls({}), ("select", "UNNEST"), unnest.text))
        calls = Calls(pipeline.lookups)
        condition = _expression(pipeline, calls, ("where",), where) if where is not None else ""
        before = len(calls.found)
        selection = cls(
            condition,
            tuple(
                (_target(pipeline, name), _expression(pipeline, calls, ("set", name), text)) for name, text in assigned.items()
            ),
            tuple(_target(pipeline, name) for name in only) if only is not None else None,
            unnest=unnest,
        )
        columns = (*selection.targets, *(selection.only or ()))
        duplicate = len({name.lower() for name in columns}) < len(columns)
        if duplicate or len({name.lower() for name in selection.targets}) < len(selection.targets):
            what = f"pipeline {pipeline.name}: duplicate column (names are case-insensitive)"
            raise InvalidPipeline(what).about(*field_of(pipeline, ("set",)))
        from kpipe.expressions.languages import names_of

        selection = replace(selection, calls=tuple(calls.found), before=before)
        elements = {name.lower() for name in unnest.names} if unnest is not None else set()
        of_rows = frozenset().union(*(names_of(text) for _, text in selection.says()[unnest is not None :])) - calls.columns()
        of_lists = names_of(unnest.text) if unnest is not None else frozenset()
        selection = replace(selection, names=frozenset(name for name in of_rows if name.lower() not in elements) | of_lists)
        _check_names(pipeline, selection)
        return selection


def lookups_of(selections: Iterable[Selection | None]) -> Selection:
    """Return the lookups of all tables' expressions as those of one selection."""
    return Selection(calls=tuple(call for chosen in selections if chosen is not None for call in chosen.calls))


def shown_field(field: tuple[str, ...]) -> str:
    """Return the name of an expression in messages: `set.total`, `where`, the call of a lookup."""
    return field[-1] if field[0] == "lookups" else (": " if field[0] == "select" else ".").join(field)


def field_of(pipeline: Pipeline, field: tuple[str, ...]) -> tuple[str, ...]:
    """Return the definition's field that contains an expression of `where` or `set`: `select` may contain both."""
    return ("select",) if pipeline.select is not None and field[0] in ("where", "set", "select") else field


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _target(pipeline: Pipeline, name: str) -> str:
    if name.startswith("@") or name.lower().startswith("_kafka_") or not name or "\0" in name or len(name) > 255:
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: set.{name}: not a column of the table",
            "set assigns columns; variables come from format.mapping or format.fields, and _kafka_ names are reserved",
        ).about(*field_of(pipeline, ("set", name)))
    return name


def _expression(pipeline: Pipeline, calls: Calls, field: tuple[str, ...], text: str) -> str:
    from kpipe.expressions.errors import Untranslated

    try:
        return calls.replace(text)
    except Untranslated as error:
        what = f"pipeline {pipeline.name}: {shown_field(field)}: {error.what}"
        raise InvalidPipeline(what, error.hint).about(*field_of(pipeline, field)) from error


def _check_names(pipeline: Pipeline, selection: Selection) -> None:
    from kpipe.expressions.languages import names_of

    elements = {name.lower() for name in selection.unnest.names} if selection.unnest is not None else set()
    for field, text in selection.says():
        available = elements if field[0] != "select" else set()
        for name in sorted(names_of(text) - selection.of_lookups()):
            if name.lower() not in available:
                _check_name(pipeline, name, field)
    for name in sorted(set(selection.only or ())):
        _check_name(pipeline, name, ("select",))


def _check_name(pipeline: Pipeline, name: str, field: tuple[str, ...]) -> None:
    """Check that the record has a column or variable of that name.

    Raises:
        InvalidPipeline: it has none, or the name is a lookup.
    """
    lists = [pipeline.format.listed]
    if pipeline.key_format is not None:  # the record has columns of its key, too
        lists.append(pipeline.key_format.listed)
    columns, closed = [item for names in lists for item in names or ()], None not in lists
    lookup = next((key for key in pipeline.lookups if key.lower() == name.lower()), None)
    where, field_path = f"pipeline {pipeline.name}: an expression uses {name}", field_of(pipeline, field)
    if lookup is not None:
        key = ", ".join(pipeline.lookups[lookup].keys)
        raise InvalidPipeline(
            f"{where} as a column, but lookups.{name} is a lookup",
            f"write {name}({key}).COLUMN, or rename the lookup if you mean a column of the record",
        ).about(*field_path, word=name)
    if name.lower().startswith("_kafka_"):
        if name.lower() not in COORDINATES:
            raise InvalidPipeline(
                f"{where}, which is not a Kafka coordinate", f"available: {', '.join(COORDINATES)}"
            ).about(*field_path, word=name)  # fmt: skip
    elif name.lower() not in map(str.lower, columns) and (closed or VARIABLE.fullmatch(name)):
        available = f"columns: {', '.join(columns)}" if columns else "format.mapping and format.fields list none"
        hint = "list it in format.mapping or format.fields; write texts in single quotes"
        raise InvalidPipeline(
            f"{where}, which the record does not have ({available})",
            hint if pipeline.format.type != "raw" else "FORMAT RAW has the columns key and value",
        ).about(*field_path, word=name)
