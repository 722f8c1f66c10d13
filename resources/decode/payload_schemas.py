"""Which schema each payload of a block was written with: one for all, or the one whose id stands before it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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

__all__ = ["Part", "Unfit", "Written", "assembled"]

Reader = TypeVar("Reader")

# Records may name any id. Of a block, so many ids that the registry does not have are looked up, those of most records first.
# Each record of the others is a dead letter, too, without a request. Ids that the registry has do not count.
_MOST_UNKNOWN = 16
_MOST_MADE = 1_000  # readers that are kept; beyond, the least recently used one is dropped


class Unfit(Exception):
    """A schema that cannot be read, or that no table fits: a reason for each record that was written with it."""


@dataclass
class Part:
    """What became of some payloads of a block.

    Attributes:
        table: rows in staged types.
        kept: index of the payload of each row.
        rejects: (index, reason) of the others.
        new: what the schema has beyond the columns.
    """

    table: pa.Table | None
    kept: np.ndarray[Any, Any]
    rejects: list[tuple[int, str]]
    new: Columns


class Written(Generic[Reader]):
    """Groups payloads by the schema that they were written with, and keeps what was made of each schema.

    Args:
        kind: with a `registry`, or with the schema itself.
        name: of the schema's kind as a registry says it: AVRO, PROTOBUF.
        make: the reader of a schema; raises Unfit.
        access: to the registry.

    Raises:
        InvalidPipeline: the registry's address is none.
    """

    def __init__(self, kind: Format, name: str, make: Callable[[Schema], Reader], access: Access | None) -> None:
        self._name, self._make, self._schema = name, make, kind.definition
        self._registry = registry(kind.registry, access or Access()) if kind.registry is not None else None
        self._made: OrderedDict[int, Reader | Unfit] = OrderedDict()

    def groups(self, payloads: Payloads) -> Iterator[tuple[np.ndarray[Any, Any], int, Reader | str]]:
        """Indices of payloads, bytes before the datum, and the reader of it, or why there is none.

        Raises:
            RegistryFailed, CredentialsRefused: the registry did not say what an id is.
        """
        if self._registry is None:
            yield np.arange(len(payloads)), 0, self._reader(0)[0]
            return
        ids, good = confluent_wire.framed(payloads)
        for at in np.flatnonzero(~good):
            yield np.array([at]), 0, confluent_wire.unframed(payloads[int(at)])
        unknown, read = 0, []
        for number, chosen in _by_id(ids, good):
            reader, found = self._reader(number, ask=unknown < _MOST_UNKNOWN)
            unknown += not found
            read.append((number, chosen, reader))
        for _, chosen, reader in sorted(read, key=lambda one: one[0]):  # new columns come in the order of ids
            yield chosen, confluent_wire.LENGTH, reader

    def _reader(self, number: int, ask: bool = True) -> tuple[Reader | str, bool]:
        """Return the reader of an id, or why there is none, and whether the registry has that id."""
        if number not in self._made:
            try:
                self._made[number] = self._make(self._found(number, ask))
            except UnknownSchema as error:  # not kept: it may be registered any moment
                return str(
                    error
                ) if ask else f"{error}: {_MOST_UNKNOWN} other ids of this block are unknown to the registry", False
            except Unfit as error:
                where = f"schema {number}: " if self._registry is not None else ""
                self._made[number] = Unfit(f"{where}{error}")
            if len(self._made) > _MOST_MADE:
                self._made.popitem(last=False)
        self._made.move_to_end(number)
        made = self._made[number]
        return (str(made) if isinstance(made, Unfit) else made), True

    def _found(self, number: int, ask: bool) -> Schema:
        if self._registry is None:
            return Schema(self._name, self._schema or "")
        # A .proto file as text would have to be compiled; a registry that cannot give it otherwise gives it so all the same.
        found = self._registry.schema(number, "serialized" if self._name == "PROTOBUF" else "", ask)
        if found.kind != self._name:
            raise Unfit(f"it is of kind {found.kind[:40]}, not {self._name}")
        return found


def _by_id(ids: np.ndarray[Any, Any], good: np.ndarray[Any, Any]) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """Ids with the indices of their payloads: those of most payloads first, so that a made-up id does not displace a real one.

    One sort: a block may have as many ids as payloads.
    """
    where = np.flatnonzero(good)
    order = np.argsort(ids[where], kind="stable")
    where = where[order]
    numbers, starts, counts = np.unique(ids[where], return_index=True, return_counts=True)
    for at in np.argsort(-counts, kind="stable").tolist():
        yield int(numbers[at]), where[starts[at] : starts[at] + counts[at]]


def assembled(parts: list[Part], columns: Columns, count: int, bound: Bound | None = None) -> Decoded:
    """The parts as one block, in the order of the payloads.

    Args:
        parts: each payload in one of them, those of one schema together.
        columns: the table's.
        count: number of payloads.
        bound: which new columns a schema may bring; None: any.
    """
    if bound is not None:
        parts = [_bounded(part, bound.beyond(part.new, alone=True)) for part in parts]
    rejects = sorted(item for part in parts for item in part.rejects)
    new = Columns()
    for part in parts:
        new = new.joined(part.new, apart=True)
    filled = [part for part in parts if part.table is not None and len(part.kept)]
    if not filled:
        return Decoded(schema(columns).empty_table(), 0, [], rejects, new)
    kept = np.concatenate([part.kept for part in filled])
    tables = [part.table for part in filled if part.table is not None]
    if len(tables) == 1:
        whole = tables[0]
    else:
        order = np.argsort(kept, kind="stable")
        kept, whole = kept[order], pa.concat_tables(tables).take(pa.array(order))
    return Decoded(whole, len(kept), None if len(kept) == count else kept.tolist(), rejects, new)


def _bounded(part: Part, why: str) -> Part:
    """The part, without rows where there is a reason against its schema."""
    return Part(None, part.kept[:0], [*part.rejects, *((int(at), why) for at in part.kept)], Columns()) if why else part
