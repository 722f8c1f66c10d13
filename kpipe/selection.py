"""What becomes of decoded records before they are rows: `where`, `set`, `select`, as DuckDB runs them. Executes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kpipe.errors import InvalidPipeline
from kpipe.formats import VARIABLE
from kpipe.pipeline import Pipeline
from kpipe.query import parse_query

__all__ = ["COORDINATES", "Selection"]

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
    """

    where: str = ""
    assigned: tuple[tuple[str, str], ...] = ()
    only: tuple[str, ...] | None = None
    names: frozenset[str] = frozenset()

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

    def says(self) -> tuple[tuple[str, str], ...]:
        """Each expression with the field that holds it, for messages."""
        first = (("where", self.where),) if self.where else ()
        return (*first, *((f"set.{name}", text) for name, text in self.assigned))

    @classmethod
    def of(cls, pipeline: Pipeline) -> Selection | None:
        """The pipeline's expressions; None if it has none.

        Raises:
            InvalidPipeline: one is none, calls what is not translated, or takes values from what the record does not give.
        """
        if pipeline.where is None and not pipeline.set and pipeline.select is None:
            return None
        where, assigned, only = pipeline.where, pipeline.set, None
        if pipeline.select is not None:
            if where is not None or assigned:
                raise InvalidPipeline(f"pipeline {pipeline.name}: select beside where or set", "say all of it in select")
            if pipeline.format.type == "csv" and pipeline.format.fields is None:
                raise InvalidPipeline(
                    f"pipeline {pipeline.name}: select over CSV without names", "name the fields: format.fields"
                )
            query = parse_query(pipeline.select, pipeline.name)
            where, assigned, only = query.where, query.assigned, query.only
        made = cls(
            _expression(pipeline, "where", where) if where is not None else "",
            tuple((_target(pipeline, name), _expression(pipeline, f"set.{name}", text)) for name, text in assigned.items()),
            tuple(_target(pipeline, name) for name in only) if only is not None else None,
        )
        twice = len({name.lower() for name in (*made.targets, *(made.only or ()))}) < len((*made.targets, *(made.only or ())))
        if twice or len({name.lower() for name in made.targets}) < len(made.targets):
            raise InvalidPipeline(f"pipeline {pipeline.name}: a column is given twice (upper and lower case are the same)")
        from kpipe.sql.expressions import columns_of

        made = replace(made, names=frozenset().union(*(columns_of(text) for _, text in made.says())))
        _check_names(pipeline, made)
        return made


def _target(pipeline: Pipeline, name: str) -> str:
    if name.startswith("@") or name.lower().startswith("_kafka_") or not name or "\0" in name or len(name) > 255:
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: set.{name}: that is no column of the table",
            "set takes columns; variables come from format.mapping or format.fields, and _kafka_ names are Kafka's own",
        )
    return name


def _expression(pipeline: Pipeline, field: str, text: str) -> str:
    from kpipe.sql.expressions import Untranslated, to_duckdb

    try:
        return to_duckdb(text)
    except Untranslated as error:
        raise InvalidPipeline(f"pipeline {pipeline.name}: {field}: {error.what}", error.hint) from error


def _check_names(pipeline: Pipeline, made: Selection) -> None:
    kind = pipeline.format
    given = ["key", "value"] if kind.type == "raw" else list(kind.mapping or kind.fields or ())
    closed = kind.type == "raw" or kind.mapping is not None or (kind.type == "csv" and kind.fields is not None)
    folded = {name.lower() for name in given}
    for name in sorted({*made.names, *(made.only or ())}):
        where = f"pipeline {pipeline.name}: an expression uses {name}"
        if name.lower().startswith("_kafka_"):
            if name.lower() not in COORDINATES:
                raise InvalidPipeline(f"{where}, which is none of Kafka's coordinates", f"there are {', '.join(COORDINATES)}")
        elif name.lower() not in folded and (closed or VARIABLE.fullmatch(name)):
            said = ", ".join(given) if given else "none is given by format.mapping or format.fields"
            hint = "name it in format.mapping or format.fields" if kind.type != "raw" else "FORMAT RAW gives key and value"
            raise InvalidPipeline(f"{where}, which the record does not give ({said})", hint)
