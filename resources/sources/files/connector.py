"""The connector of files: each file is a split."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kpipe.definition.source import Files
from kpipe.errors import ReadFailed
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from resources.kafka.record_block import RecordBlock
from resources.object_store.config import StoreAccess
from resources.sources.connector import Split
from resources.sources.exact_numbers import of_arrow
from resources.sources.files.content import Content, Facts, opened
from resources.sources.files.lines import check_text, first_lines, inspected, read_lines
from resources.sources.files.listing import listed, regex
from resources.sources.files.parquet_rows import inspect_rows, read_rows, schema_of

__all__ = ["FileConnector"]


@dataclass(eq=False)
class FileConnector:
    """See `Connector`. A file is inspected again only when its size, inode or time of change differs.

    Attributes:
        files: which files, and their type.
        access: to the object store; None: files on a disk.
        skip_lines: lines before the first record.
        delimiter: between the names of fields in the first line.
    """

    noun: ClassVar = "file"
    on_removal: ClassVar = ""
    unchanging: ClassVar = True

    files: Files
    access: StoreAccess | None = field(default=None, repr=False)
    skip_lines: int = 0
    delimiter: str = ","
    _known: dict[str, tuple[Facts, Split | None]] = field(default_factory=dict, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need."""
        return {**vars(self), "_known": {}}

    @property
    def _skip(self) -> int:
        return max(self.skip_lines, int(self.files.header))

    @property
    def place(self) -> str:
        """The folder that contains all files."""
        return self.files.root

    @property
    def pattern(self) -> str:
        """See `Connector`."""
        return regex(self.files.path)

    @property
    def secrets(self) -> Sequence[str]:
        """Credentials of the object store."""
        return [value for _, value in self.access.secrets] if self.access is not None else []

    def splits(self) -> Sequence[Split]:
        """See `Connector`. Files without a record are left out."""
        found = listed(self.files.path, self.files.root, self.files.max_files, self.access)
        self._known = {name: self._seen(name, facts) for name, facts in found}
        return [split for _, split in self._known.values() if split is not None]

    def _seen(self, name: str, facts: Facts) -> tuple[Facts, Split | None]:
        known = self._known.get(name)
        if known is not None and known[0] == facts:
            return known
        if self.access is not None and self.files.type == "lines":  # objects never change: no request for each
            return facts, _of_object(name, facts)
        with opened(name, self.access) as content:
            return content.facts, self._inspected(name, content)

    def _inspected(self, name: str, content: Content) -> Split | None:
        if self.files.type == "parquet":
            return inspect_rows(name, content)
        if self.access is not None:
            check_text(name, content)
            return _of_object(name, content.facts)
        return inspected(name, content, self._skip, self.files.growing)

    def header(self, name: str) -> tuple[str, ...] | None:
        """Return the names in the first line; instead of a name that begins with `_kafka_` a variable, which is in no column.

        Raises:
            ReadFailed: a name is empty or duplicate, or begins with @, which would be a variable; or the line is not UTF-8.
        """
        if not self.files.header:
            return None
        with opened(name, self.access) as content:
            line = next(iter(first_lines(content, 1)), b"")
        names: tuple[str, ...] = ()
        with suppress(UnicodeDecodeError):
            names = tuple(part.strip().strip('"') for part in line.decode().split(self.delimiter))
        if not all(names) or len({part.lower() for part in names}) < len(names) or not names:
            raise ReadFailed(
                f"file {name}: its first line does not name the fields: expected distinct names between"
                f" {self.delimiter!r}, found {line[:200]!r}",
                "fix the line, or list the fields in format.fields and set source.files.header: false",
            )
        variable = next((part for part in names if part.startswith("@")), None)
        if variable is not None:
            raise ReadFailed(
                f"file {name}: its first line names the field {variable[:40]!r}: names with @ are variables, not columns",
                "list the fields in format.fields under other names, with format.skip_lines: 1 and source.files.header: false",
            )
        return tuple(f"@kafka_{at}" if part.lower().startswith("_kafka_") else part for at, part in enumerate(names))

    def columns(self, name: str) -> Columns:
        """See `Connector`: lines have no types."""
        if self.files.type != "parquet":
            return Columns()
        with opened(name, self.access) as content:
            return of_arrow(schema_of(name, content))

    def read(self, name: str, identity: str, span: Range) -> Iterator[RecordBlock]:
        """See `Connector`."""
        with opened(name, self.access) as content:
            found = self._inspected(name, content)
            if found is None or found.identity != identity:
                raise self._changed(name)
            if found.end < span.end:
                raise ReadFailed(f"file {name}: truncated: expected {span}, found its end at {found.end}", "run it again")
            if self.files.type == "parquet":
                yield from read_rows(name, content, span)
            else:
                yield from read_lines(name, content, span, self._skip, self.files.growing)
        with opened(name, self.access) as after:
            again = self._inspected(name, after) if after.facts != content.facts else found
        if again is None or again.identity != identity or again.end < span.end:
            raise self._changed(name)

    def _changed(self, name: str) -> ReadFailed:
        return ReadFailed(f"file {name} was replaced while it was read", "run it again: the next run names what changed")


def _of_object(name: str, facts: Facts) -> Split | None:
    """Return the split of an object of lines; its ETag is different for each content."""
    identity = hashlib.blake2b(f"{facts.size} {facts.tag}".encode(), digest_size=8).hexdigest()
    return Split(name, identity, facts.size, complete=True) if facts.size else None
