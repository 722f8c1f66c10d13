"""Derive a Protobuf schema from columns, and extend the schema that was derived before.

The message `Row` has a field for each column. Numbers of fields never change: a new column gets a new one. So readers with an
older schema skip the field, and a registry accepts the newer schema as compatible. The only import is
google/protobuf/timestamp.proto, which compilers and registries include.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns, ListOf, MapOf, Struct, Type

__all__ = ["derived", "is_derived", "text"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ROW, _TIMESTAMP, _IMPORT = "Row", ".google.protobuf.Timestamp", "google/protobuf/timestamp.proto"
# By protoc: numbers that it reserves, the largest one, and the deepest nesting of messages.
_RESERVED, _LARGEST, _DEEPEST = range(19_000, 20_000), 2**29 - 1, 30
_OPTIONAL, _REPEATED = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED
_MESSAGE = FieldDescriptorProto.TYPE_MESSAGE
_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER"), 5), **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER"), 13),
    "BOOLEAN": 8, "BIGINT": 3, "UBIGINT": 4, "FLOAT": 2, "DOUBLE": 1, "BLOB": 12,
    **dict.fromkeys(("VARCHAR", "JSON", "UUID", "DATE", "TIME", "TIMESTAMP", "HUGEINT"), 9),
}  # fmt: skip
_WORDS = {1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 8: "bool", 9: "string", 12: "bytes", 13: "uint32"}


def derived(columns: Columns, known: FileDescriptorProto | None = None) -> FileDescriptorProto:
    """Return the schema of rows with these columns.

    Args:
        columns: names and types.
        known: a schema that was derived before; the result has its fields with their numbers, and those of further columns.

    Raises:
        SchemaConflict: a name is not one of Protobuf's, or a type has no counterpart.
    """
    file = FileDescriptorProto(name="row.proto", syntax="proto3")
    if known is not None:
        file.CopyFrom(known)
    row = file.message_type[0] if known is not None else file.message_type.add(name=_ROW)
    _extend(row, f".{_ROW}", columns.items, "")
    del file.dependency[:]
    if any(field.type_name == _TIMESTAMP for message in _all(row) for field in message.field):
        file.dependency.append(_IMPORT)
    return file


def is_derived(file: FileDescriptorProto) -> bool:
    """Return whether a schema has only what `derived` writes: `text` writes it again without a loss."""
    plain = FileDescriptorProto(name=file.name, syntax="proto3", dependency=file.dependency, message_type=file.message_type)
    plain.ClearField("source_code_info")
    bare = FileDescriptorProto.FromString(file.SerializeToString())
    bare.ClearField("source_code_info")
    if bare != plain or [item.name for item in file.message_type] != [_ROW] or set(file.dependency) - {_IMPORT}:
        return False
    return _is_plain(file.message_type[0], f".{_ROW}", frozenset())


def text(file: FileDescriptorProto) -> str:
    """Return a schema of `derived` as the text of a .proto file."""
    imports = [f'import "{name}";' for name in file.dependency]
    return "\n".join(['syntax = "proto3";', *imports, "", *_lines(file.message_type[0], f".{_ROW}", ""), ""])


def _lines(message: DescriptorProto, path: str, indent: str) -> Iterator[str]:
    yield f"{indent}message {message.name} {{"
    entries = {f"{path}.{inner.name}": inner for inner in message.nested_type if inner.options.map_entry}
    for field in message.field:
        if field.type_name in entries:
            kind = f"map<string, {_word(entries[field.type_name].field[1], path)}>"
        elif field.label == _REPEATED:
            kind = f"repeated {_word(field, path)}"
        else:
            kind = _word(field, path) if field.type == _MESSAGE else f"optional {_word(field, path)}"
        yield f"{indent}  {kind} {field.name} = {field.number};"
    for inner in message.nested_type:
        if not inner.options.map_entry:
            yield from _lines(inner, f"{path}.{inner.name}", indent + "  ")
    yield f"{indent}}}"


def _word(field: FieldDescriptorProto, path: str) -> str:
    if field.type != _MESSAGE:
        return _WORDS[field.type]
    return field.type_name.removeprefix(f"{path}.").removeprefix(".")


def _all(message: DescriptorProto) -> Iterator[DescriptorProto]:
    yield message
    for inner in message.nested_type:
        yield from _all(inner)


def _is_plain(message: DescriptorProto, path: str, around: frozenset[str]) -> bool:
    """Return whether `text` can write a message: fields of known types, messages inside of it, and nothing else.

    Args:
        message: the message.
        path: its full name, with a dot first.
        around: full names of the messages beside it, which may be values of a map.
    """
    kept = DescriptorProto(name=message.name, field=message.field, nested_type=message.nested_type)
    # A oneof with one field, which the compiler makes for each optional field, has no text of its own.
    synthetic = [field.oneof_index for field in message.field if field.HasField("oneof_index") and field.proto3_optional]
    kept.oneof_decl.extend(message.oneof_decl)
    if message.options.map_entry:
        kept.options.map_entry = True
    if kept != message or sorted(synthetic) != list(range(len(message.oneof_decl))):
        return False
    if message.options.map_entry and message.field[0].type != _TYPES["VARCHAR"]:
        return False
    nested = frozenset(f"{path}.{inner.name}" for inner in message.nested_type)
    allowed = {_TIMESTAMP, *(around if message.options.map_entry else nested)}
    for field in message.field:
        bare = FieldDescriptorProto(
            name=field.name, number=field.number, label=field.label, type=field.type, type_name=field.type_name,
            json_name=field.json_name, oneof_index=field.oneof_index, proto3_optional=field.proto3_optional,
        )  # fmt: skip
        for name in ("type_name", "json_name", "oneof_index", "proto3_optional"):
            if not field.HasField(name):
                bare.ClearField(name)
        named = field.HasField("json_name") and field.json_name != _json_name(field.name)
        known = field.type_name in allowed if field.type == _MESSAGE else field.type in _WORDS
        implicit = field.label == _OPTIONAL and field.type != _MESSAGE and not field.proto3_optional
        if bare != field or named or not known or (implicit and not message.options.map_entry):
            return False
    return all(_is_plain(inner, f"{path}.{inner.name}", nested) for inner in message.nested_type)


def _extend(message: DescriptorProto, path: str, fields: tuple[tuple[str, Type], ...], above: str) -> None:
    """Add fields to a message, and to the messages of its fields, where they are missing.

    Args:
        message: the message.
        path: its full name, with a dot first.
        fields: names and types.
        above: names of the columns and fields around it, for errors.
    """
    if path.count(".") > _DEEPEST:
        raise SchemaConflict(
            f"into.format protobuf: column {above}: nested in more than {_DEEPEST} messages", "declare it as JSON in columns"
        )
    known = {field.name.lower(): field for field in message.field}
    for name, kind in fields:
        where = f"{above}.{name}" if above else name
        _check(name, where, known, message)
        field = known.get(name.lower())
        if field is None:
            field = message.field.add(name=name, number=_number(message), label=_OPTIONAL)
            known[name.lower()] = field
            _define(message, path, field, kind, where, {other.lower() for other, _ in fields})
        else:
            _grow(message, path, field, kind, where)


def _check(name: str, where: str, known: dict[str, FieldDescriptorProto], message: DescriptorProto) -> None:
    if not _NAME.fullmatch(name):
        raise SchemaConflict(
            f"into.format protobuf: column {where!r}: expected a name of letters, digits and _, not first a digit",
            "rename it in select, or set into.format: json",
        )
    if name.lower() in known:
        return
    other = next((field.name for field in known.values() if _json_name(field.name) == _json_name(name)), None)
    if other is not None:
        raise SchemaConflict(
            f"into.format protobuf: columns {other} and {where}: both are {_json_name(name)!r} in Protobuf's JSON",
            "rename one of them in select, or set into.format: json",
        )
    if any(inner.name == name for inner in message.nested_type):
        raise SchemaConflict(
            f"into.format protobuf: column {where}: the schema has a message of that name",
            "rename it in select, or set into.format: json",
        )


def _define(message: DescriptorProto, path: str, field: FieldDescriptorProto, kind: Type, where: str, taken: set[str]) -> None:
    """Set the type of a new field, and add the messages of it."""
    if isinstance(kind, ListOf):
        field.label = _REPEATED
        kind = kind.item
        if isinstance(kind, (ListOf, MapOf)):
            kind = Struct((("items", kind),))
    elif isinstance(kind, MapOf):
        entry = message.nested_type.add(name=_entry(message, field.name, where, taken))
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_OPTIONAL, type=9)
        value = entry.field.add(name="value", number=2, label=_OPTIONAL)
        field.label, field.type, field.type_name = _REPEATED, _MESSAGE, f"{path}.{entry.name}"
        item = Struct((("items", kind.item),)) if isinstance(kind.item, (ListOf, MapOf)) else kind.item
        _set(message, path, value, field.name, item, where, taken)
        return
    if _set(message, path, field, field.name, kind, where, taken) and field.label == _OPTIONAL:
        field.proto3_optional = True


def _set(
    message: DescriptorProto, path: str, field: FieldDescriptorProto, name: str, kind: Type, where: str, taken: set[str]
) -> bool:
    """Set the type of a field or of a map's value; return whether it is not a message."""
    if isinstance(kind, Struct):
        inner = message.nested_type.add(name=_free(message, path, name, taken))
        field.type, field.type_name = _MESSAGE, f"{path}.{inner.name}"
        _extend(inner, field.type_name, kind.fields, where)
        return False
    if str(kind) == "TIMESTAMP WITH TIME ZONE":
        field.type, field.type_name = _MESSAGE, _TIMESTAMP
        return False
    number = 9 if str(kind).startswith("DECIMAL") else _TYPES.get(str(kind))
    if number is None:
        raise SchemaConflict(
            f"into.format protobuf: column {where}: {kind} has no Protobuf type",
            "declare another type in columns, or leave it out",
        )
    field.type = number  # type: ignore[assignment]
    return True


def _grow(message: DescriptorProto, path: str, field: FieldDescriptorProto, kind: Type, where: str) -> None:
    """Add the fields of a STRUCT that its message lacks; other types are compared when values are encoded."""
    inner = _inside(message, path, field)
    if isinstance(kind, (ListOf, MapOf)):
        if isinstance(kind, MapOf) and inner is not None and inner.options.map_entry:
            inner = _inside(message, path, inner.field[1])
        kind = kind.item
        if isinstance(kind, (ListOf, MapOf)):
            kind = Struct((("items", kind),))
    if isinstance(kind, Struct) and inner is not None and not inner.options.map_entry:
        _extend(inner, f"{path}.{inner.name}", kind.fields, where)


def _inside(message: DescriptorProto, path: str, field: FieldDescriptorProto) -> DescriptorProto | None:
    return next((inner for inner in message.nested_type if field.type_name == f"{path}.{inner.name}"), None)


def _free(message: DescriptorProto, path: str, name: str, taken: set[str]) -> str:
    """Return the name of a new message: no field, message or enclosing message has it, which Java's classes need."""
    made = _camel(name)
    made = made if _NAME.fullmatch(made) else f"T{made}"
    used = {field.name.lower() for field in message.field} | taken
    if made != name:
        used.discard(name.lower())
    used |= {inner.name.lower() for inner in message.nested_type} | {part.lower() for part in path.split(".")}
    while made.lower() in used:
        made += "_"
    return made


def _entry(message: DescriptorProto, name: str, where: str, taken: set[str]) -> str:
    """Return the name of a map's message, which the compiler sets."""
    made = f"{_camel(name)}Entry"
    if made.lower() in taken or any(inner.name == made for inner in message.nested_type):
        raise SchemaConflict(
            f"into.format protobuf: column {where}: its map needs the name {made}, which is used",
            "rename it in select, or set into.format: json",
        )
    return made


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _number(message: DescriptorProto) -> int:
    found = max((field.number for field in message.field), default=0) + 1
    found = _RESERVED.stop if found in _RESERVED else found
    if found > _LARGEST:
        raise SchemaConflict(f"into.format protobuf: message {message.name} has no number left", "write to another topic")
    return found


def _json_name(name: str) -> str:
    """Return a field's default name in Protobuf's JSON, as the compiler makes it: two fields of one name are an error."""
    return re.sub(r"_+(.?)", lambda part: part[1].upper(), name)
