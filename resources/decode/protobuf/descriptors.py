"""Protobuf schemas as descriptors: from a descriptor set, from a registry's serialized form, or from .proto text."""

from __future__ import annotations

import binascii
import importlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from resources.decode.payload_schemas import Unfit
from resources.decode.protobuf.proto_compiler import compiled

__all__ = ["Files"]

_BUNDLED = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in ("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
                 "wrappers")
}  # fmt: skip


class Files:
    """A schema's file, and those that it imports.

    Args:
        text: a FileDescriptorSet in base64, whose last file is the schema, one FileDescriptorProto in base64, or the text of
            a .proto file.
        references: (import name, text) of imported files, each after its own imports.
        alone: whether base64 is a set; otherwise it is one file.

    Raises:
        Unfit: it is not one of these.
    """

    def __init__(self, text: str, references: Iterable[tuple[str, str]] = (), alone: bool = True) -> None:
        given = dict(references)
        raw = _raw(text)
        if raw is None:
            data, root = compiled(text, _texts(given))
            files = {item.name: item for item in _set(data).file}
        elif alone:
            files = {item.name: item for item in _set(raw).file}
            root = next(reversed(files), "")
        else:
            files = {name: _file(item) for name, item in given.items()}
            for name, item in files.items():
                item.name = name
            top = _parsed(raw)
            root = top.name = "kpipe.schema.proto"
            files[root] = top
        if root not in files:
            raise Unfit("the descriptor set is empty: expected a file")
        self._root, self._files = files[root], files
        self._pool, self._added = DescriptorPool(), set[str]()
        for name in files:
            self._add(name, ())

    @property
    def root(self) -> FileDescriptorProto:
        """The schema's own file."""
        return self._root

    def written(self) -> str:
        """Return a descriptor set of the files, in base64."""
        return b64encode(FileDescriptorSet(file=self._files.values()).SerializeToString()).decode()

    def named(self, name: str | None) -> Descriptor:
        """Return the message type of a full name; None means the only one of the file."""
        if name is None:
            found = [item.name for item in self._root.message_type]
            if len(found) != 1:
                shown = ", ".join(found[:5]) or "none"
                raise Unfit(f"the schema has {len(found)} messages ({shown}): expected one, or `message` with a name")
            name = ".".join(filter(None, (self._root.package, found[0])))
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            raise Unfit(f"the schema has no message {name[:80]}") from None

    def at(self, indexes: Sequence[int]) -> str:
        """Return the full name of the message type at an index path: an index into the file's messages, then into nested ones.

        Confluent's clients do not count the entry types of maps; clients that use descriptors do. If the results differ, the
        path is ambiguous.

        Raises:
            Unfit: it does not exist, or is ambiguous.
        """
        either = {_at(self._root, indexes, counted) for counted in (False, True)} - {None}
        if len(either) == 1:
            return str(either.pop())
        if not either:
            raise Unfit(f"it has no message at {list(indexes)}")
        raise Unfit(
            f"message {list(indexes)} can be {' or '.join(sorted(map(str, either)))}: clients count differently where a map "
            "precedes a nested message"
        )

    def _add(self, name: str, above: tuple[str, ...]) -> None:
        if name in self._added:
            return
        if name in above or len(above) > 100:
            raise Unfit(f"{name[:80]} imports itself")
        item = self._files.get(name) or _bundled(name)
        if item is None:
            raise Unfit(f"import {name[:80]!r} is missing")
        for other in item.dependency:
            self._add(other, (*above, name))
        try:
            self._pool.AddSerializedFile(item.SerializeToString())
        except TypeError as error:
            raise Unfit(f"the schema is invalid: {str(error).splitlines()[0][:300]}") from None
        self._added.add(name)


def _at(root: FileDescriptorProto, indexes: Sequence[int], counted: bool) -> str | None:
    names, level = [root.package] if root.package else [], list(root.message_type)
    for index in indexes:
        if not counted:
            level = [item for item in level if not item.options.map_entry]
        if not 0 <= index < len(level):
            return None
        found: DescriptorProto = level[index]
        if found.options.map_entry:
            return None
        names.append(found.name)
        level = list(found.nested_type)
    return ".".join(names)


def _raw(text: str) -> bytes | None:
    """Decode base64; None if the text is not base64. A .proto file never is: it has spaces and quotes."""
    try:
        return b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None


def _set(data: bytes) -> FileDescriptorSet:
    try:
        return FileDescriptorSet.FromString(data)
    except DecodeError:
        raise Unfit("the schema is not a descriptor set") from None


def _parsed(data: bytes) -> FileDescriptorProto:
    try:
        return FileDescriptorProto.FromString(data)
    except DecodeError:
        raise Unfit("the schema is not a file descriptor") from None


def _file(text: str) -> FileDescriptorProto:
    raw = _raw(text)
    if raw is None:
        raise Unfit("the schema is a descriptor, but a reference is text")
    return _parsed(raw)


def _texts(given: dict[str, str]) -> dict[str, str]:
    if any(_raw(item) is not None for item in given.values()):
        raise Unfit("the schema is text, but a reference is a descriptor")
    return {name: item for name, item in given.items() if name not in _BUNDLED}


def _bundled(name: str) -> FileDescriptorProto | None:
    """Return a file that compilers include."""
    if name in _BUNDLED:
        return FileDescriptorProto.FromString(importlib.import_module(_BUNDLED[name]).DESCRIPTOR.serialized_pb)
    from resources.decode.protobuf.proto_compiler import KNOWN

    if name not in KNOWN:
        return None
    found = _set(compiled(KNOWN[name], {})[0]).file[-1]
    found.name = name
    return found
