"""Read CSV, JSON and Parquet files of lookups into Arrow tables of the requested columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from kpipe.definition.formats import Format
from kpipe.definition.lookups import Lookup
from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import VARCHAR, Columns, Scalar
from resources.decode.block import Payloads
from resources.decode.factory import decoder, sampled
from resources.decode.json.divided import items
from resources.duckdb_engine import in_memory
from resources.sources.json_rows import problem_of

__all__ = ["chosen", "read_texts", "too_large", "unpacked"]


def unpacked(name: str, lookup: Lookup, kind: str, data: bytes, wanted: Sequence[str], file: str) -> pa.Table:
    """Return the requested columns of a file's content.

    Args:
        name: of the lookup, for messages.
        lookup: the definition.
        kind: `csv`, `json` or `parquet`.
        data: the content.
        wanted: names of columns, case-insensitive.
        file: its name; the delimiter depends on its ending.

    Raises:
        InvalidPipeline: the content is malformed, lacks a column, or a value does not have its declared type.
    """
    where = f"lookups.{name}: {lookup.describe()}"
    declared = Columns.of(lookup.columns)
    try:
        if kind == "csv":
            return _csv(where, data, lookup.delimiter_of(file), wanted, declared)
        if kind == "json":
            return _json(where, data, wanted, declared)
        found = _parquet(where, data, wanted, lookup.max_mb)
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError) as error:
        reason = str(error).split("\n", 1)[0][:200]
        raise InvalidPipeline(
            f"{where} cannot be read as {kind}: {reason}", f"fix it, or set its format: lookups.{name}.format"
        ) from None
    if declared:
        raise InvalidPipeline(
            f"lookups.{name}: columns is not for parquet, which has types", "remove it, and CAST in the expression"
        )
    return found


def chosen(where: str, names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the requested columns in the file's own spelling.

    Raises:
        InvalidPipeline: a column is missing or ambiguous.
    """
    found = []
    for name in wanted:
        same = [known for known in names if known.lower() == name.lower()]
        if len(same) > 1:
            raise InvalidPipeline(f"{where}: {len(same)} columns named {name}: expected one", "rename the others")
        if not same:
            existing = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise InvalidPipeline(f"{where} has no column {name}", f"there are {existing}" if existing else "it has no columns")
        found.append(same[0])
    return found


def too_large(name: str, lookup: Lookup) -> InvalidPipeline:
    """Return the error for a lookup that exceeds its size limit."""
    return InvalidPipeline(
        f"lookups.{name}: {lookup.describe()} is larger than {lookup.max_mb} MiB, and every worker process keeps a copy",
        f"raise lookups.{name}.max_mb, or read less: fewer columns or rows; a large table is joined in the destination",
    )


def read_texts(where: str, texts: pa.Table, kinds: Columns, hint: str, *, numbered: bool = False) -> pa.Table:
    """Return the values of columns of text, in staged types.

    Args:
        where: the lookup, for messages.
        texts: the columns; null is NULL.
        kinds: their names and scalar types.
        hint: of the error.
        numbered: whether the rows have an order, so that a number finds one.

    Raises:
        InvalidPipeline: a text is not a value of its column's type, or would become another value.
    """
    table = in_memory.parsed(texts, kinds)
    for at, (name, kind) in enumerate(kinds):
        rows = in_memory.lost(texts.column(at), table.column(at))
        if rows:
            row = f"row {rows[0] + 1:,}: " if numbered else ""
            value = str(texts.column(at)[rows[0]].as_py())[:40]
            raise InvalidPipeline(f"{where}: {row}{name}: {value!r} is not a {kind}", hint)
    return table


def _csv(where: str, data: bytes, delimiter: str, wanted: Sequence[str], declared: Columns) -> pa.Table:
    if not data.strip():
        raise InvalidPipeline(f"{where} is empty", "its first line names the columns")
    nested = [name for name, kind in declared if not isinstance(kind, Scalar)]
    if nested:
        raise InvalidPipeline(f"{where}: columns.{nested[0]}: type not supported in CSV", "declare JSON or VARCHAR")
    # One block: a line may be as long as the file. One thread, so that an error contains its line.
    reading = pc.ReadOptions(use_threads=False, block_size=len(data) + 1)
    parsing = pc.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    names = pc.open_csv(pa.BufferReader(data), reading, parsing).schema.names
    picked = chosen(where, names, wanted)
    converting = pc.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""],
        quoted_strings_can_be_null=False, include_columns=picked,
    )  # fmt: skip
    texts = pc.read_csv(pa.BufferReader(data), reading, parsing, converting).combine_chunks()
    kinds = Columns(tuple((name, declared.get(name) or VARCHAR) for name in picked))
    if not any(kind != VARCHAR for _, kind in kinds):
        return texts
    return read_texts(where, texts, kinds, "fix it, or declare another type under columns", numbered=True)


def _json(where: str, data: bytes, wanted: Sequence[str], declared: Columns) -> pa.Table:
    """Read an array of objects, or one object a line; types are inferred as for records (docs/design.md 4.6)."""
    text = data.removeprefix(b"\xef\xbb\xbf").strip()
    if text.startswith(b"["):
        try:
            payloads = [item.encode() for item in items(text.decode())]
        except (ValueError, RecursionError):
            raise InvalidPipeline(f"{where}: invalid JSON", "write an array of objects, or one object a line") from None
    else:
        payloads = [line for line in text.split(b"\n") if line.strip()]
    kind = Format()
    seen = sampled(kind, payloads)
    spelt = {name.lower(): name for name in seen.names()}
    names = [spelt.get(name.lower(), name) for name in wanted]
    columns = Columns(tuple((name, declared.get(name) or seen.get(name) or VARCHAR) for name in names))
    done = decoder(kind, columns).decode(Payloads.of(payloads))
    if done.rejects:
        at, why = done.rejects[0]
        raise InvalidPipeline(f"{where}: item {at + 1:,}: {why}", "write an array of objects, or one object a line")
    if payloads:  # a declared member may be null in all objects
        chosen(where, (*seen.names(), *declared.without(seen.names()).names()), wanted)
    return done.table


def _parquet(where: str, data: bytes, wanted: Sequence[str], max_mb: int) -> pa.Table:
    """Decompress in pieces, so that a small file with huge content is detected in time."""
    file = pq.ParquetFile(pa.BufferReader(data))
    picked = chosen(where, file.schema_arrow.names, wanted)
    parts, size = [], 0
    for batch in file.iter_batches(batch_size=8192, columns=picked, use_threads=False):
        size += batch.nbytes
        if size > max_mb << 20:
            raise OverflowError
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if problem := problem_of(column):
                raise InvalidPipeline(f"{where}: column {name}: {problem}", "fix the file")
        parts.append(batch)
    schema = pa.schema([file.schema_arrow.field(name) for name in picked])
    return pa.Table.from_batches(parts, schema).select(picked) if parts else schema.empty_table()
