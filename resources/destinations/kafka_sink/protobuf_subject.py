"""Find the Protobuf schema of a topic's rows: the newest version of its subject, with further columns if kpipe wrote it."""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor

from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns
from resources.decode.payload_schemas import Unfit
from resources.decode.protobuf.descriptors import Files
from resources.destinations.kafka_sink.protobuf_schema import derived, is_derived, text
from resources.schema_registry.client import Registry, UnknownSchema

__all__ = ["message_of"]

# Each attempt ends with a version that has all columns, unless another writer registers one without them in between.
_MOST = 5


def message_of(registry: Registry, subject: str, columns: Columns) -> tuple[int, Descriptor]:
    """Return the id of the schema, and the message type of rows with these columns.

    The schema is always read from the registry, also after it was registered: so two pipelines that add columns at the same
    time cannot use one field number for two columns.

    Args:
        registry: the registry.
        subject: the subject.
        columns: all columns of the topic's rows.

    Raises:
        SchemaConflict: the subject's schema cannot be used, or a column has no counterpart in Protobuf.
        SourceError: as `Registry.register` and `Registry.latest`.
        NotAvailable: the registry returns schemas as text, and the compiler is not installed.
    """
    for _ in range(_MOST):
        try:
            found = registry.latest(subject, "serialized")
            if found is None:
                registry.register(subject, "PROTOBUF", text(derived(columns)))
                continue
            number, schema = found
            if schema.kind != "PROTOBUF":
                raise _unusable(subject, f"expected PROTOBUF, found {schema.kind[:40]}")
            files = Files(schema.text, schema.references, alone=False)
            known = files.root
            if is_derived(known):
                wanted = text(derived(columns, known))
                if wanted != text(known):
                    registry.register(subject, "PROTOBUF", wanted)
                    continue
            return number, files.named(None)
        except (UnknownSchema, Unfit) as error:
            raise _unusable(subject, str(error)) from None
    raise SchemaConflict(
        f"subject {subject}: its newest version still lacks columns after {_MOST} attempts to add them",
        "stop other writers that register versions of the subject",
    )


def _unusable(subject: str, why: str) -> SchemaConflict:
    return SchemaConflict(
        f"subject {subject}: the newest version cannot be used for into.format protobuf: {why}",
        "register a version that can be used, or write to another topic",
    )
