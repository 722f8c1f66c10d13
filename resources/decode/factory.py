"""Create the decoder of a format."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

from kpipe.column_growth import names_in
from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from kpipe.schema.growth_limits import Room
from kpipe.schema.inference import infer
from kpipe.schema.timestamps import with_timestamps
from resources.decode import confluent_wire
from resources.decode.block import Decoder, Payloads, in_parts
from resources.decode.csv.decoder import CsvDecoder
from resources.decode.growth_guard import Bound, Bounded
from resources.decode.json.decoder import JsonDecoder
from resources.decode.json.divided import DividedDecoder, Division
from resources.decode.json.rows import Reject, load
from resources.decode.key_columns import KeyedDecoder
from resources.decode.paths.json_decoder import MappedJsonDecoder, sampled_paths
from resources.decode.paths.timestamps import TimestampDecoder, members
from resources.decode.raw import RawDecoder
from resources.decode.registry_framed import FramedDecoder
from resources.schema_registry.config import Access

__all__ = ["decoder", "key_decoder", "sampled"]

# Sampled records whose new columns are judged together: a few columns each stay below the limits of one record.
_TOGETHER = 32


def decoder(
    kind: Format,
    columns: Columns,
    key: Format | None = None,
    access: Access | None = None,
    bound: Bound | None = None,
    unique: Columns | None = None,
    keeps: bool = True,
) -> Decoder:
    """Create the decoder of a format. It is not thread-safe.

    Args:
        kind: the format and its options.
        columns: the payload columns.
        key: the format of keys, if they become columns, too.
        access: settings of the schema registry.
        bound: limits on a record's new columns; None: no limits.
        unique: columns of the table's key, for formats whose records may delete rows.
        keeps: whether the destination keeps values that an update left out.

    Raises:
        InvalidPipeline: the format's schema or registry is invalid.
    """
    if kind.type == "debezium":
        from resources.decode.debezium.decoder import DebeziumDecoder

        made: Decoder = DebeziumDecoder(kind, columns, unique, keeps, access, bound is not None and bound.rejects)
    elif key is None:
        made = _decoder(kind, columns, access, "value", bound)
    else:
        value = _decoder(kind, _own_columns(kind, columns), access, "value")
        made = KeyedDecoder(value, _decoder(key, _own_columns(key, columns), access, "key"), columns)
    checks = key is None and kind.type != "debezium" and (kind.type in ("avro", "protobuf") or _judges(kind))
    return made if bound is None else Bounded(made, bound, checks)


def _judges(kind: Format) -> bool:
    """Return whether the decoder of JSON objects rejects records with too many new columns: an object is a whole record."""
    return kind.type == "json" and kind.mapping is None and not (kind.validated or kind.divided or kind.schemas_enable)


def _own_columns(kind: Format, columns: Columns) -> Columns:
    """Return the columns that a format lists in `mapping` or `fields`; without these, all columns."""
    names = {name.lower() for name in kind.mapping or kind.fields or ()}
    return Columns(tuple(item for item in columns if item[0].lower() in names)) if names else columns


def key_decoder(kind: Format, columns: Columns, access: Access | None = None) -> Decoder:
    """Create a decoder of keys; see `decoder`."""
    return _decoder(kind, columns, access, "key")


def _decoder(kind: Format, columns: Columns, access: Access | None, name: str, bound: Bound | None = None) -> Decoder:
    if kind.type == "raw":
        return RawDecoder()
    if kind.type == "csv":
        return CsvDecoder(kind, columns, keys=name == "key")
    if kind.type == "avro":
        from resources.decode.avro.decoder import AvroDecoder

        return AvroDecoder(kind, columns, access, name, bound)
    if kind.type == "protobuf":
        from resources.decode.protobuf.decoder import ProtobufDecoder

        return ProtobufDecoder(kind, columns, access, bound)
    read: Decoder = (
        JsonDecoder(columns, bound if _judges(kind) else None)
        if kind.mapping is None
        else MappedJsonDecoder(kind.mapping, columns, kind.booleans == "number", bound is None or not bound.ignored)
    )
    if kind.infer_timestamps and (bound is None or bound.rejects):  # without growth, new columns are only counted
        read = TimestampDecoder(kind, read)
    if kind.divided:
        read = DividedDecoder(Division(kind), read, sum(names_in(item) for _, item in columns))
    if kind.schemas_enable:
        from resources.decode.debezium.connect_decoder import ConnectDecoder

        return ConnectDecoder(kind, columns, read)
    if kind.validated:
        from resources.decode.json_schema.decoder import ValidatedDecoder

        return ValidatedDecoder(kind, columns, read, access)
    return read if kind.registry is None else FramedDecoder(read)


def sampled(
    kind: Format,
    payloads: Sequence[bytes],
    key: Format | None = None,
    keys: Sequence[bytes] = (),
    access: Access | None = None,
    named: Collection[str] = (),
    destination: str = "",
    room: Room | None = None,
    table: Columns | None = None,
) -> Columns:
    """Infer columns from payloads and keys, for a table that does not exist yet.

    Records that cannot be decoded are ignored, as are records whose new columns would be rejected by `Bound`.

    Args:
        kind: the format of payloads.
        payloads: the payloads.
        key: the format of keys, if they become columns, too.
        keys: the keys.
        access: settings of the schema registry.
        named: columns of the definition, in lower case, which do not count as new.
        destination: type of the destination, whose rules apply to column names.
        room: the destination's limits.
        table: columns of the table; None: none.

    Raises:
        RegistryFailed, CredentialsRefused: the registry did not return the schema of an id.
    """
    bound = Bound(free=frozenset(named), destination=destination, room=room, table=table or Columns())
    columns = Columns().joined(_sampled(kind, payloads, access, "value", bound))
    return columns if key is None else columns.joined(_sampled(key, keys, access, "key", bound))


def _sampled(kind: Format, payloads: Sequence[bytes], access: Access | None, name: str, bound: Bound) -> Columns:
    if kind.type != "json" or kind.schemas_enable or (kind.validated and kind.mapping is None):
        if kind.type == "debezium":
            return decoder(kind, Columns(), access=access, bound=bound).decode(Payloads.of(payloads)).new_columns
        reads, block, found = Bounded(_decoder(kind, Columns(), access, name, bound), bound), Payloads.of(payloads), Columns()
        for _, _, part in in_parts(len(block), lambda start, end: reads.decode(block.part(start, end))):
            found = found.joined(part.new_columns, apart=True)
        return bound.report(found)
    if kind.registry is not None:
        block = Payloads.of(payloads)
        payloads = [
            payload[confluent_wire.LENGTH :]
            for payload, good in zip(payloads, confluent_wire.framed(block)[1], strict=True)
            if good
        ]
    records = list(Division(kind).good(payloads)) if kind.divided else [[payload] for payload in payloads]
    objects: list[list[dict[str, Any]]] = []
    for record in records if kind.mapping is None or kind.infer_timestamps else ():
        with suppress(Reject):
            objects.append([load(item) for item in record])
    if kind.mapping is not None:
        columns = sampled_paths(kind.mapping, [item for record in records for item in record])
    else:
        objects = list(_fitting(objects, bound))
        columns = infer(item for record in objects for item in record)
    if not kind.infer_timestamps:
        return columns
    return with_timestamps(columns, map(members(kind), (item for record in objects for item in record)))


def _fitting(records: Sequence[list[dict[str, Any]]], bound: Bound) -> Iterator[list[dict[str, Any]]]:
    """Yield the records that add no more columns than the limits allow; most are judged together, which is faster.

    Args:
        records: objects of each record.
        bound: the limits.
    """
    for start in range(0, len(records), _TOGETHER):
        some = records[start : start + _TOGETHER]
        if bound.beyond(infer((item for record in some for item in record), apart=True)):
            some = [record for record in some if not bound.beyond(infer(record, apart=True), alone=True)]
        yield from some
