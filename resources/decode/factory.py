"""Which decoder reads which format."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from kpipe.schema.growth_limits import Room
from kpipe.schema.inference import infer
from resources.decode import confluent_wire
from resources.decode.block import Decoder, Payloads
from resources.decode.csv.decoder import CsvDecoder
from resources.decode.growth_guard import Bound, Bounded
from resources.decode.json.decoder import JsonDecoder
from resources.decode.json.rows import Reject, load
from resources.decode.key_columns import KeyedDecoder
from resources.decode.paths.json_decoder import MappedJsonDecoder, sampled_paths
from resources.decode.raw import RawDecoder
from resources.decode.registry_framed import FramedDecoder
from resources.schema_registry.config import Access

__all__ = ["decoder", "key_decoder", "sampled"]


def decoder(
    kind: Format, columns: Columns, key: Format | None = None, access: Access | None = None, bound: Bound | None = None
) -> Decoder:
    """The decoder of a format. Not for two threads at once.

    Args:
        kind: the format and its options.
        columns: the payload columns.
        key: the format of keys, if they become columns, too.
        access: to the schema registry.
        bound: which new columns a record may hold; None: any.

    Raises:
        InvalidPipeline: the format's schema or registry is none.
    """
    if key is None:
        found = _decoder(kind, columns, access, "value", bound)
    else:
        value = _decoder(kind, _given(kind, columns), access, "value")
        found = KeyedDecoder(value, _decoder(key, _given(key, columns), access, "key"), columns)
    looks = key is None and (kind.type in ("avro", "protobuf") or (kind.type == "json" and not kind.validated))
    return found if bound is None else Bounded(found, bound, looks)


def _given(kind: Format, columns: Columns) -> Columns:
    """The columns that a format gives beside another one."""
    names = {name.lower() for name in kind.mapping or kind.fields or ()}
    return Columns(tuple(item for item in columns if item[0].lower() in names)) if names else columns


def key_decoder(kind: Format, columns: Columns, access: Access | None = None) -> Decoder:
    """The decoder of keys alone; see `decoder`."""
    return _decoder(kind, columns, access, "key")


def _decoder(kind: Format, columns: Columns, access: Access | None, name: str, bound: Bound | None = None) -> Decoder:
    if kind.type == "raw":
        return RawDecoder()
    if kind.type == "csv":
        return CsvDecoder(kind, columns)
    if kind.type == "avro":
        from resources.decode.avro.decoder import AvroDecoder

        return AvroDecoder(kind, columns, access, name, bound)
    if kind.type == "protobuf":
        from resources.decode.protobuf.decoder import ProtobufDecoder

        return ProtobufDecoder(kind, columns, access, bound)
    read: Decoder = (
        JsonDecoder(columns, bound if not kind.validated else None)
        if kind.mapping is None
        else MappedJsonDecoder(kind.mapping, columns, kind.booleans == "number")
    )
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
    """The columns that payloads and keys hold, for a table that is yet to be made; those that cannot be decoded are left out.

    So are those with more columns than a record may bring, beside the ones that the definition names (`named`, in lower case),
    to a table with the columns `table` that takes what `room` leaves, and those with names that columns of the `destination`
    cannot have.

    Raises:
        RegistryFailed, CredentialsRefused: the registry did not say what an id is.
    """
    bound = Bound(free=frozenset(named), destination=destination, room=room, table=table or Columns())
    found = Columns().joined(_sampled(kind, payloads, access, "value", bound))
    return found if key is None else found.joined(_sampled(key, keys, access, "key", bound))


def _sampled(kind: Format, payloads: Sequence[bytes], access: Access | None, name: str, bound: Bound) -> Columns:
    if kind.type != "json" or (kind.validated and kind.mapping is None):
        return Bounded(_decoder(kind, Columns(), access, name, bound), bound).decode(Payloads.of(payloads)).new_columns
    if kind.registry is not None:
        block = Payloads.of(payloads)
        payloads = [
            payload[confluent_wire.LENGTH :]
            for payload, good in zip(payloads, confluent_wire.framed(block)[1], strict=True)
            if good
        ]
    if kind.mapping is not None:
        return sampled_paths(kind.mapping, payloads)
    objects = []
    for payload in payloads:
        try:
            value = load(payload)
        except Reject:
            continue
        if not bound.beyond(infer([value], apart=True), alone=True):
            objects.append(value)
    return infer(objects)
