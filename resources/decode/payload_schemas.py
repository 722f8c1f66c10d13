"""Group a block's payloads by writer's schema: the format's own schema, or the schema of the id in the payload's prefix."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode import confluent_wire
from resources.decode.block import Decoded, Payloads
from resources.decode.growth_guard import Bound
from resources.duckdb_engine.arrow_types import schema
from resources.schema_registry.client import Schema, UnknownSchema, registry
from resources.schema_registry.config import Access

__all__ = ["Missing", "Part", "Unfit", "Written", "assembled"]

Reader = TypeVar("Reader")

# Limit of requests for unknown ids in one block: records can contain any id. Ids of most records are requested first. Records
# with further unknown ids become dead letters without a request. Ids that the registry has do not count.
_MOST_UNKNOWN = 16
_MOST_MADE = 1_000  # limit of cached readers; beyond it, the least recently used one is dropped


class Unfit(Exception):
    """A schema that cannot be read or has no table columns: the reason why all of its records are rejects."""


class Missing(str):
    """Reason for records whose schema the registry does not have: it may have it later."""


@dataclass
class Part:
    """The result of some payloads of a block.

    Attributes:
        table: rows in staged types.
        kept: index of the payload of each row.
        rejects: (index, reason) of the other payloads.
        new: fields of the schema without a column.
        found: members of values that a column's type lacks (`Fitting.found`).
    """

    table: pa.Table | None
    kept: np.ndarray[Any, Any]
    rejects: list[tuple[int, str]]
    new: Columns
    found: Columns = field(default_factory=Columns)


class Written(Generic[Reader]):
    """Groups payloads by writer's schema, and caches a reader for each schema.

    Args:
        kind: the format, with a `registry` or a schema of its own.
        name: the registry's name for the type of schema: AVRO, PROTOBUF or JSON; or those that are read.
        make: creates the reader of a schema; raises Unfit.
        access: settings of the registry.

    Raises:
        InvalidPipeline: the registry's address is invalid.
    """

    def __init__(
        self, kind: Format, name: str | tuple[str, ...], make: Callable[[Schema], Reader], access: Access | None
    ) -> None:
        self._names = (name,) if isinstance(name, str) else name
        self._make, self._schema = make, kind.definition
        self._registry = registry(kind.registry, access or Access()) if kind.registry is not None else None
        self._made: OrderedDict[int, Reader | Unfit] = OrderedDict()

    def groups(self, payloads: Payloads) -> Iterator[tuple[np.ndarray[Any, Any], int, Reader | str]]:
        """Return for each schema the indices of payloads, the number of bytes before the datum, and the reader or a reason.

        The reason is a `Missing` if the registry does not have the schema.

        Raises:
            RegistryFailed, CredentialsRefused: the registry did not return the schema of an id.
        """
        if self._registry is None:
            yield np.arange(len(payloads)), 0, self._reader(0)[0]
            return
        ids, good = confluent_wire.framed(payloads)
        for at in np.flatnonzero(~good):
            yield np.array([at]), 0, confluent_wire.unframed(payloads[int(at)])
        unknown, read = 0, []
        for number, chosen in _by_id(ids, good):
            reader, exists = self._reader(number, fetch=unknown < _MOST_UNKNOWN)
            unknown += not exists
            read.append((number, chosen, reader))
        for _, chosen, reader in sorted(read, key=lambda one: one[0]):  # new columns are added in the order of ids
            yield chosen, confluent_wire.LENGTH, reader

    def _reader(self, number: int, fetch: bool = True) -> tuple[Reader | str, bool]:
        """Return the reader of an id, or a reason, and whether the registry has the id."""
        if number not in self._made:
            try:
                self._made[number] = self._make(self._fetch(number, fetch))
            except UnknownSchema as error:  # not cached: it may be registered later
                limit = "" if fetch else f": {_MOST_UNKNOWN} other ids of this block are not in the registry"
                return Missing(f"{error}{limit}"), False
            except Unfit as error:
                where = f"schema {number}: " if self._registry is not None else ""
                self._made[number] = Unfit(f"{where}{error}")
            if len(self._made) > _MOST_MADE:
                self._made.popitem(last=False)
        self._made.move_to_end(number)
        made = self._made[number]
        return (str(made) if isinstance(made, Unfit) else made), True

    def _fetch(self, number: int, fetch: bool) -> Schema:
        if self._registry is None:
            return Schema(self._names[0], self._schema or "")
        # Descriptors need no compiler. A registry that cannot serialize them returns the text of the .proto file.
        schema = self._registry.schema(number, "serialized" if self._names == ("PROTOBUF",) else "", fetch)
        if schema.kind not in self._names:
            raise Unfit(f"wrong type of schema: expected {' or '.join(self._names)}, found {schema.kind[:40]}")
        if schema.kind == "PROTOBUF" and len(self._names) > 1:
            schema = self._registry.schema(number, "serialized")
        return schema


def _by_id(ids: np.ndarray[Any, Any], good: np.ndarray[Any, Any]) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """Yield ids with the indices of their payloads, ids of most payloads first, so that invented ids do not displace real ones.

    It sorts once: a block can have as many ids as payloads.
    """
    where = np.flatnonzero(good)
    order = np.argsort(ids[where], kind="stable")
    where = where[order]
    numbers, starts, counts = np.unique(ids[where], return_index=True, return_counts=True)
    for at in np.argsort(-counts, kind="stable").tolist():
        yield int(numbers[at]), where[starts[at] : starts[at] + counts[at]]


def assembled(parts: list[Part], columns: Columns, count: int, bound: Bound | None = None) -> Decoded:
    """Join parts to one block, in the order of the payloads.

    Args:
        parts: one part for each schema; each payload is in one part.
        columns: the table's columns.
        count: number of payloads.
        bound: limits on a schema's new columns; None: no limits.
    """
    if bound is not None:
        parts = [_bounded(part, bound.beyond(part.new, alone=True)) for part in parts]
    rejects = sorted(item for part in parts for item in part.rejects)
    new, found = Columns(), Columns()
    for part in parts:
        new, found = new.joined(part.new, apart=True), found.joined(part.found, apart=True)
    new = new.joined(found, apart=True)
    filled = [part for part in parts if part.table is not None and len(part.kept)]
    if not filled:
        return Decoded(schema(columns).empty_table(), 0, [], rejects, new, found=found)
    kept = np.concatenate([part.kept for part in filled])
    tables = [part.table for part in filled if part.table is not None]
    if len(tables) == 1:
        whole = tables[0]
    else:
        order = np.argsort(kept, kind="stable")
        kept, whole = kept[order], pa.concat_tables(tables).take(pa.array(order))
    each = len(kept) == count and bool((kept == np.arange(count)).all())  # one payload may give several rows
    return Decoded(whole, len(kept), None if each else kept.tolist(), rejects, new, found=found)


def _bounded(part: Part, why: str) -> Part:
    """Reject all rows of a part if there is a reason against its schema."""
    return Part(None, part.kept[:0], [*part.rejects, *((int(at), why) for at in part.kept)], Columns()) if why else part
