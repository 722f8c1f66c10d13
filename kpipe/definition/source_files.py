"""Fields of `source.files`: which files are read, and how their bytes become records."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from kpipe.definition.base import Model
from kpipe.definition.store_paths import check_store_path

__all__ = ["Files"]

_ROW_BITS = 8  # a row is assumed to have 256 bytes
_OBJECT = re.compile(r"(s3|gs|az|abfss)://[^/*?\[]+/.+")


class Files(Model):
    """Files as a source. Text in place of the group is its `path`.

    Attributes:
        path: absolute path or `s3://bucket/key` of the files. In the last parts `*`, `?` and `[...]` match within a name,
            `**` matches folders.
        type: `lines`: a record is a line, in the pipeline's `format`; `parquet`: a record is a row.
        grows: whether lines are appended to files; false: a file is complete when it appears. null: true for lines on a disk.
        header: whether the first line of each file names the fields, with `format: csv`.
        max_files: most files that the pipeline can have read; the ledger names each of them.
        max_batch_mb: most megabytes of lines in one batch, over all files.
    """

    path: str
    type: Literal["lines", "parquet"] = "lines"
    grows: bool | None = None
    header: bool = False
    max_files: int = Field(default=10_000, ge=1, le=15_000)
    max_batch_mb: int = Field(default=64, ge=1, le=4096)

    @property
    def remote(self) -> bool:
        """True if the files are objects in an object store."""
        return "://" in self.path

    @property
    def growing(self) -> bool:
        """True if a file may become longer."""
        return self.grows if self.grows is not None else self.type == "lines" and not self.remote

    @property
    def most_offsets(self) -> int:
        """Most offsets of one batch: bytes of lines, or rows of Parquet."""
        return self.max_batch_mb << 20 if self.type == "lines" else max(1, self.max_batch_mb << 20 >> _ROW_BITS)

    @property
    def root(self) -> str:
        """Folder, or prefix of objects, that contains all files: the path up to the first part with a wildcard."""
        scheme, slashes, rest = self.path.rpartition("://")
        fixed: list[str] = []
        for part in rest.split("/")[:-1]:
            if re.search(r"[*?\[]", part):
                break
            fixed.append(part)
        return f"{scheme}{slashes}{'/'.join(fixed)}" or "/"

    @field_validator("path")
    @classmethod
    def _path(cls, value: str) -> str:
        check_store_path(("source", "files", "path"), value)
        parts = value.partition("://")[2].split("/") if "://" in value else value.split("/")
        if not (_OBJECT.fullmatch(value) if "://" in value else value.startswith("/")):
            msg = f"{value!r} is not an absolute path or an object's name: expected /folder/*.jsonl or s3://bucket/folder/*.jsonl"
            raise ValueError(msg)
        if not parts[-1] or {".", ".."} & {*parts} or not value.isprintable():
            msg = f"{value!r}: expected the names of files, without '.', '..' and control characters"
            raise ValueError(msg)
        if parts[-1] == "**":
            msg = f"{value!r}: ** as the last part matches folders only: expected {value}/*"
            raise ValueError(msg)
        if "://" not in value and "" in parts[1:]:
            msg = f"{value!r}: two slashes in a row match no file: expected one"
            raise ValueError(msg)
        for inner in re.findall(r"\[(.[^\]]*)\]", value):
            try:
                re.compile("[" + inner.replace("\\", "\\\\").replace("[", "\\[") + "]")
            except re.error:
                msg = f"{value!r}: [{inner}] is not a set of characters: expected such as [0-9] or [!a]"
                raise ValueError(msg) from None
        return value

    @model_validator(mode="after")
    def _complete(self) -> Files:
        if self.grows and (self.type == "parquet" or self.remote):
            msg = "grows: only files of lines on a disk can grow"
            raise ValueError(msg)
        if self.header and self.type == "parquet":
            msg = "header: only files of lines have a first line"
            raise ValueError(msg)
        return self
