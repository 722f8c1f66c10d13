"""What a task decodes, and what it makes of that: decided once on the driver, for all tasks of a batch."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from kpipe.definition.formats import VARIABLE, Format, Mapped
from kpipe.definition.json_path import write_path
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import SchemaConflict
from kpipe.expressions.projection import Selection
from kpipe.schema.columns import BLOB, JSON, VARCHAR, Columns, Type

__all__ = ["Shape", "shaped"]


@dataclass(frozen=True)
class Shape:
    """How decoded records become rows of the table.

    Attributes:
        format: the pipeline's, with its fields spelt out.
        reads: what the decoder gives: columns of the table that are taken as they are, and what expressions need besides.
        selection: the expressions.
        required: columns that take no NULL.
        no_nul: whether the table's texts cannot hold the character NUL.
        guessed: names that expressions take values from, of which only a sample says their types.
    """

    format: Format
    reads: Columns
    selection: Selection
    required: tuple[str, ...] = ()
    no_nul: bool = False
    guessed: frozenset[str] = frozenset()


def shaped(
    pipeline: Pipeline,
    selection: Selection | None,
    columns: Columns,
    sample: Callable[[], Columns],
    required: Collection[str] = (),
    no_nul: bool = False,
) -> Shape | None:
    """The shape of a batch; None where records are decoded to the table's columns and nothing else happens to them.

    Types of what expressions take values from: the table's, where the column is taken as it is; else the declared one; else, for
    a member of a JSON record that is to become a column, that of a sample. Everything else is text, as the record has it.

    Args:
        pipeline: the definition.
        selection: its expressions.
        columns: the table's payload columns.
        sample: columns of the first records, as they are without expressions.
        required: columns of the table that take no NULL, if rows are to be looked at for that.
        no_nul: the table's texts cannot hold the character NUL, and rows are to be looked at for that.

    Raises:
        SchemaConflict: a column is assigned that the table lacks, and the table is not to be widened.
    """
    if selection is None and not required and not no_nul and pipeline.format.mapping is None:
        return None
    chosen = selection or Selection()
    kind, assigned = pipeline.format, {name.lower() for name in chosen.targets}
    lacking = [name for name in chosen.targets if name not in columns]
    if lacking and pipeline.evolution != "evolve":
        raise SchemaConflict(
            f"set.{lacking[0]}: table {pipeline.into.table} has no such column, and schema is {pipeline.evolution}",
            "add the column, or set schema: evolve",
        )
    if kind.type == "csv" and kind.fields is None:
        kind = kind.model_copy(update={"fields": list(columns.names())})
    only = None if chosen.only is None else {name.lower() for name in chosen.only}
    if only is not None and kind.type == "json" and kind.mapping is None:  # other members are not even looked at
        names = {name.lower(): name for name in (*chosen.wanted, *(chosen.only or ()))}
        paths = {name: Mapped(path=write_path((name,)), default=None) for name in names.values()}
        kind = kind.model_copy(update={"mapping": paths})
    given = {name.lower() for name in (kind.mapping or ())} if kind.mapping is not None else None
    if given is not None and pipeline.key_format is not None:  # which columns the key gives is seen when it is read
        given |= {name.lower() for name in columns.names()}
    taken = [
        (name, type_)
        for name, type_ in columns
        if name.lower() not in assigned and (given is None or name.lower() in given) and (only is None or name.lower() in only)
    ]
    known = Columns(tuple(taken))
    declared = Columns.of({name: text for name, text in pipeline.columns.items() if name.lower() not in assigned})
    extra: list[tuple[str, Type]] = []
    guessed: set[str] = set()
    by_name = kind.type in ("json", "avro", "protobuf") and kind.mapping is None and pipeline.evolution != "ignore"
    for name in chosen.wanted:
        if name in known:
            continue
        source = pipeline.format_of(name)
        found = BLOB if source.type == "raw" else declared.get(name)
        if found is None and by_name and name.lower() not in assigned:
            found = sample().get(name)
            guessed.add(name)
        # MySQL's rules for a JSON value (`true` is '1') need to know which kind of value it was.
        extra.append((name, found or (JSON if source.type == "json" and name in chosen.documents() else VARCHAR)))
    if kind.mapping is not None:  # columns that the table lacks are looked for only if they may be added
        wanted = {name.lower() for name, _ in (*taken, *extra)}
        unused = [name for name in kind.mapping if name.lower() not in wanted]
        # A path that leads nowhere is no row, whether anything takes the value or not.
        extra += [(name, VARCHAR) for name in unused if VARIABLE.fullmatch(name) or name.lower() in assigned]
        wanted |= {name.lower() for name, _ in extra}
        free = () if pipeline.evolution == "ignore" else kind.mapping
        spare = [name for name in free if name.lower() not in assigned and (only is None or name.lower() in only)]
        left = {n: p for n, p in kind.mapping.items() if n.lower() in wanted or n in spare}
        kind = kind.model_copy(update={"mapping": left})
    if by_name:  # members that are replaced are no new columns: they are read, so that the decoder knows them
        there = {name.lower() for name, _ in extra}
        types = Columns() if kind.type == "json" else sample()  # of JSON, VARCHAR takes anything
        extra += [(name, types.get(name) or VARCHAR) for name in chosen.targets if name.lower() not in there]
    never_null = tuple(name for name in columns.names() if name in required)
    return Shape(kind, Columns((*taken, *extra)), chosen, never_null, no_nul, frozenset(guessed))
