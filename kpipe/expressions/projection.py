"""What becomes of decoded records before they are rows: `where`, `set`, `select`. Executes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kpipe.definition.formats import VARIABLE
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from kpipe.expressions.lookup_calls import Call, Calls
from kpipe.expressions.select import Unnest, parse_query

__all__ = ["COORDINATES", "Selection", "field_of", "shown_field"]

#: Kafka's coordinates, which every expression may use, whatever `metadata` says.
COORDINATES = (
    "_kafka_partition", "_kafka_offset", "_kafka_timestamp", "_kafka_topic", "_kafka_key", "_kafka_headers",
)  # fmt: skip


@dataclass(frozen=True)
class Selection:
    """Expressions of a pipeline. All of them take values from the record, never from each other.

    Attributes:
        where: which records become rows; empty: all. It is asked first: nothing is computed for the others.
        assigned: column and the expression that gives its value.
        only: columns that are taken as they are; None: all that the record gives.
        names: what the expressions take values from: columns, variables with their @, Kafka's coordinates.
        calls: lookups that they ask, each behind those that its own key needs.
        before: how many of these `where` needs: they come first.
        unnest: the list of which each element gives a row; the other expressions then see one element at a time.
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
        """Columns that are assigned."""
        return tuple(name for name, _ in self.assigned)

    @property
    def outputs(self) -> frozenset[str] | None:
        """Columns that rows have, in lower case; None: all that the record gives, and those that are assigned."""
        return None if self.only is None else frozenset(name.lower() for name in (*self.only, *self.targets))

    @property
    def wanted(self) -> tuple[str, ...]:
        """Names that the record must give, sorted; each once, however it is written."""
        found = {name.lower(): name for name in sorted(self.names) if name.lower() not in COORDINATES}
        return tuple(found[name] for name in sorted(found))

    def documents(self) -> frozenset[str]:
        """Return the variables that only expressions of MySQL's name: they are read as JSON, with their kind of value."""
        from kpipe.expressions.languages import is_mysql, names_of

        mysql, others = (
            frozenset().union(*(names_of(text) for _, text in self.says() if is_mysql(text) is mine)) for mine in (True, False)
        )
        return frozenset(name for name in mysql - others if VARIABLE.fullmatch(name))

    def says(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """Each expression with the field that holds it, as it stands beside `where` and `set`."""
        lists = ((("select", "UNNEST"), self.unnest.text),) if self.unnest is not None else ()
        first = (*lists, (("where",), self.where)) if self.where else lists
        keys = ((("lookups", call.name), key) for call in self.calls for key in call.keys)
        return (*first, *((("set", name), text) for name, text in self.assigned), *keys)

    def of_lookups(self) -> frozenset[str]:
        """Return the names of all columns that stand for lookups."""
        return frozenset(call.column(member) for call in self.calls for member in call.members)

    @classmethod
    def of(cls, pipeline: Pipeline) -> Selection | None:
        """The pipeline's expressions; None if it has none.

        Raises:
            InvalidPipeline: one is none, calls what is not translated, or takes values from what the record does not give.
        """
        if pipeline.where is None and not pipeline.set and pipeline.select is None:
            return None
        where, assigned, only, unnest = pipeline.where, pipeline.set, None, None
        if pipeline.select is not None:
            if where is not None or assigned:
                raise InvalidPipeline(
                    f"pipeline {pipeline.name}: select beside where or set", "say all of it in select"
                ).about("select")  # fmt: skip
            if pipeline.format.type == "csv" and pipeline.format.fields is None:
                raise InvalidPipeline(
                    f"pipeline {pipeline.name}: select over CSV without names", "name the fields: format.fields"
                )
            try:
                query = parse_query(pipeline.select, pipeline.name)
            except InvalidPipeline as error:
                error.about("select")
                raise
            where, assigned, only, unnest = query.where, query.assigned, query.only, query.unnest
        if unnest is not None:  # an element that is taken as it is
            own = {name.lower() for name in unnest.names}
            assigned = {**{name: _quoted(name) for name in only or () if name.lower() in own}, **assigned}
            only = None if only is None else tuple(name for name in only if name.lower() not in own)
            unnest = replace(unnest, text=_expression(pipeline, Calls({}), ("select", "UNNEST"), unnest.text))
        calls = Calls(pipeline.lookups)
        condition = _expression(pipeline, calls, ("where",), where) if where is not None else ""
        before = len(calls.found)
        made = cls(
            condition,
            tuple(
                (_target(pipeline, name), _expression(pipeline, calls, ("set", name), text)) for name, text in assigned.items()
            ),
            tuple(_target(pipeline, name) for name in only) if only is not None else None,
            unnest=unnest,
        )
        twice = len({name.lower() for name in (*made.targets, *(made.only or ()))}) < len((*made.targets, *(made.only or ())))
        if twice or len({name.lower() for name in made.targets}) < len(made.targets):
            what = f"pipeline {pipeline.name}: a column is given twice (upper and lower case are the same)"
            raise InvalidPipeline(what).about(*field_of(pipeline, ("set",)))
        from kpipe.expressions.languages import names_of

        made = replace(made, calls=tuple(calls.found), before=before)
        own = {name.lower() for name in unnest.names} if unnest is not None else set()
        of_rows = frozenset().union(*(names_of(text) for _, text in made.says()[unnest is not None :])) - calls.columns()
        of_lists = names_of(unnest.text) if unnest is not None else frozenset()
        made = replace(made, names=frozenset(name for name in of_rows if name.lower() not in own) | of_lists)
        _check_names(pipeline, made)
        return made


def shown_field(field: tuple[str, ...]) -> str:
    """Return how messages call an expression: `set.total`, `where`, the call of a lookup."""
    return field[-1] if field[0] == "lookups" else (": " if field[0] == "select" else ".").join(field)


def field_of(pipeline: Pipeline, field: tuple[str, ...]) -> tuple[str, ...]:
    """Return the field of the definition in which an expression of `where` or `set` is written: `select` holds both."""
    return ("select",) if pipeline.select is not None and field[0] in ("where", "set", "select") else field


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _target(pipeline: Pipeline, name: str) -> str:
    if name.startswith("@") or name.lower().startswith("_kafka_") or not name or "\0" in name or len(name) > 255:
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: set.{name}: that is no column of the table",
            "set takes columns; variables come from format.mapping or format.fields, and _kafka_ names are Kafka's own",
        ).about(*field_of(pipeline, ("set", name)))
    return name


def _expression(pipeline: Pipeline, calls: Calls, field: tuple[str, ...], text: str) -> str:
    from kpipe.expressions.errors import Untranslated

    try:
        return calls.replace(text)
    except Untranslated as error:
        what = f"pipeline {pipeline.name}: {shown_field(field)}: {error.what}"
        raise InvalidPipeline(what, error.hint).about(*field_of(pipeline, field)) from error


def _check_names(pipeline: Pipeline, made: Selection) -> None:
    from kpipe.expressions.languages import names_of

    own = {name.lower() for name in made.unnest.names} if made.unnest is not None else set()
    for field, text in made.says():
        hidden = own if field[0] != "select" else set()
        for name in sorted(names_of(text) - made.of_lookups()):
            if name.lower() not in hidden:
                _check_name(pipeline, name, field)
    for name in sorted(set(made.only or ())):
        _check_name(pipeline, name, ("select",))


def _check_name(pipeline: Pipeline, name: str, field: tuple[str, ...]) -> None:
    """Whether the record gives a column, or a variable, of that name."""
    kind, lists = pipeline.format, [pipeline.format.listed]
    if pipeline.key_format is not None:  # columns of the key stand beside those of the value
        lists.append(pipeline.key_format.listed)
    given, closed = [item for names in lists for item in names or ()], None not in lists
    lookup = next((key for key in pipeline.lookups if key.lower() == name.lower()), None)
    where, at = f"pipeline {pipeline.name}: an expression uses {name}", field_of(pipeline, field)
    if lookup is not None:
        key = ", ".join(pipeline.lookups[lookup].keys)
        raise InvalidPipeline(
            f"{where} as a column, and lookups.{name} is a lookup",
            f"write {name}({key}).COLUMN; or call the lookup something else, if a column of the record is meant",
        ).about(*at, word=name)
    if name.lower().startswith("_kafka_"):
        if name.lower() not in COORDINATES:
            raise InvalidPipeline(
                f"{where}, which is none of Kafka's coordinates", f"there are {', '.join(COORDINATES)}"
            ).about(*at, word=name)  # fmt: skip
    elif name.lower() not in map(str.lower, given) and (closed or VARIABLE.fullmatch(name)):
        said = ", ".join(given) if given else "none is given by format.mapping or format.fields"
        hint = "name it in format.mapping or format.fields; a text stands in single quotes"
        raise InvalidPipeline(
            f"{where}, which the record does not give ({said})", hint if kind.type != "raw" else "FORMAT RAW gives key and value"
        ).about(*at, word=name)
