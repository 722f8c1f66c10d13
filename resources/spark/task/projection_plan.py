"""Plan decoding and projection on the driver, once for all tasks of a batch."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from kpipe.definition.formats import VARIABLE, Format, Mapped, Member
from kpipe.definition.json_path import write_path
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import SchemaConflict
from kpipe.expressions.projection import Selection
from kpipe.schema.columns import BLOB, JSON, VARCHAR, Columns, Type

__all__ = ["Shape", "shaped"]


@dataclass(frozen=True)
class Shape:
    """Plan of decoding records and of projecting them to rows of the table.

    Attributes:
        format: the pipeline's, with all its fields.
        reads: columns that the decoder returns: those of the table that are used unchanged, and inputs of expressions.
        selection: the expressions.
        required: NOT NULL columns.
        no_nul: types whose values cannot contain the character NUL.
        headers: whether rows contain the record's headers.
        guessed: inputs of expressions whose types come from a sample.
    """

    format: Format
    reads: Columns
    selection: Selection
    required: tuple[str, ...] = ()
    no_nul: frozenset[Type] = frozenset()
    guessed: frozenset[str] = frozenset()
    headers: bool = False


def shaped(
    pipeline: Pipeline,
    selection: Selection | None,
    columns: Columns,
    sample: Callable[[], Columns],
    required: Collection[str] = (),
    no_nul: frozenset[Type] = frozenset(),
) -> Shape | None:
    """Return the plan of a batch; None if records are decoded to the table's columns without changes.

    An input of an expression has the column's type in the table, if the column is used unchanged; else the declared type;
    else, for a member of a JSON record that may become a column, the type in a sample. Everything else is text.

    Args:
        pipeline: the definition.
        selection: its expressions.
        columns: the table's payload columns.
        sample: returns columns of the first records before expressions are applied.
        required: NOT NULL columns of the table, if rows are to be checked for NULL.
        no_nul: types whose values are to be checked for the character NUL, which the table cannot store.

    Raises:
        SchemaConflict: a column is assigned that the table lacks, and the schema policy does not allow adding it.
    """
    if selection is None and not required and not no_nul and pipeline.format.mapping is None:
        return None
    chosen = selection or Selection()
    kind, assigned = pipeline.format, {name.lower() for name in chosen.targets}
    lacking = [name for name in chosen.targets if name not in columns]
    if lacking and pipeline.evolution != "evolve":
        raise SchemaConflict(
            f"set.{lacking[0]}: table {pipeline.into.table} has no such column, and its schema policy is {pipeline.evolution}",
            "add the column, or set schema: evolve",
        )
    if kind.type == "csv" and kind.fields is None:
        kind = kind.model_copy(update={"fields": list(columns.names())})
    only = None if chosen.only is None else {name.lower() for name in chosen.only}
    if only is not None and kind.type == "json" and kind.mapping is None:  # other members are skipped by the decoder
        names = {name.lower(): name for name in (*chosen.wanted, *(chosen.only or ()))}
        paths = {name: Member(path=write_path((name,)), default=None) for name in names.values()}
        kind = kind.model_copy(update={"mapping": paths})
    mapped = {name.lower() for name in (kind.mapping or ())} if kind.mapping is not None else None
    if mapped is not None and pipeline.key_format is not None:  # the key's columns are unknown until keys are read
        mapped |= {name.lower() for name in columns.names()}
    taken = [
        (name, type_)
        for name, type_ in columns
        if name.lower() not in assigned and (mapped is None or name.lower() in mapped) and (only is None or name.lower() in only)
    ]
    unchanged = Columns(tuple(taken))
    declared = Columns.of({name: text for name, text in pipeline.columns.items() if name.lower() not in assigned})
    extra: list[tuple[str, Type]] = []
    guessed: set[str] = set()
    by_name = (
        kind.type in ("json", "avro", "protobuf", "arrow", "debezium") and kind.mapping is None and pipeline.evolution != "ignore"
    )
    for name in chosen.wanted:
        if name in unchanged:
            continue
        source = pipeline.format_of(name)
        input_type = BLOB if source.type == "raw" else declared.get(name)
        if input_type is None and by_name and name.lower() not in assigned:
            input_type = sample().get(name)
            guessed.add(name)
        # MySQL's rules for a JSON value (`true` is '1') depend on the value's JSON type.
        extra.append((name, input_type or (JSON if source.type == "json" and name in chosen.documents() else VARCHAR)))
    if kind.mapping is not None:  # columns that the table lacks are read only if they may be added
        wanted = {name.lower() for name, _ in (*taken, *extra)}
        unused = [name for name in kind.mapping if name.lower() not in wanted]
        # A path without a value rejects the record, even if no column uses the value.
        extra += [(name, VARCHAR) for name in unused if VARIABLE.fullmatch(name) or name.lower() in assigned]
        wanted |= {name.lower() for name, _ in extra}
        free = () if pipeline.evolution == "ignore" else kind.mapping
        spare = [name for name in free if name.lower() not in assigned and (only is None or name.lower() in only)]
        left = {n: p for n, p in kind.mapping.items() if n.lower() in wanted or n in spare or not isinstance(p, Mapped)}
        kind = kind.model_copy(update={"mapping": left})
    if (
        by_name and chosen.targets
    ):  # the decoder reads members that expressions replace, so that it does not report them as new columns
        present = {name.lower() for name, _ in extra}
        types = Columns() if kind.type == "json" else sample()  # of JSON, VARCHAR accepts any value
        extra += [(name, types.get(name) or VARCHAR) for name in chosen.targets if name.lower() not in present]
    never_null = tuple(name for name in columns.names() if name in required)
    return Shape(
        kind, Columns((*taken, *extra)), chosen, never_null, no_nul, frozenset(guessed), "headers" in pipeline.coordinates
    )
