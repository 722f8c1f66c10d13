"""Objects in a real store as a source: listed with one request, read in ranges, refused by name when they change."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.definition.source import Files, SourceLake
from kpipe.errors import ReadFailed
from kpipe.offsets import Range
from resources.object_store.clients import client
from resources.object_store.config import StoreAccess
from resources.object_store.store import Store
from resources.sources.files.connector import FileConnector
from resources.sources.lakes.connector import LakeConnector
from tests.servers.s3 import BUCKET, CREDENTIALS, S3Server

ACCESS = StoreAccess(None, "", tuple(sorted(CREDENTIALS.items())), "s3")


@pytest.fixture
def store(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return client(ACCESS)


def connector(path: str, **fields: object) -> FileConnector:
    return FileConnector(Files.model_validate({"path": f"s3://{BUCKET}/{path}", **fields}), ACCESS)


def values(source: FileConnector | LakeConnector, name: str, identity: str, span: Range) -> list[bytes | None]:
    return [value for block in source.read(name, identity, span) for value in block.values]


def test_objects_are_complete_files(store: Store) -> None:
    store.put(f"s3://{BUCKET}/in/a.jsonl", b"one\ntwo\nthree")
    store.put(f"s3://{BUCKET}/in/empty.jsonl", b"")
    store.put(f"s3://{BUCKET}/in/day/b.csv", b"x\n")
    source = connector("in/*.jsonl")
    (split,) = source.splits()
    assert (split.name, split.end, split.complete) == (f"s3://{BUCKET}/in/a.jsonl", 13, True)
    assert values(source, split.name, split.identity, Range(0, 13)) == [b"one", b"two", b"three"]
    assert values(source, split.name, split.identity, Range(1, 8)) == [b"two"]
    store.put(f"s3://{BUCKET}/in/a.jsonl", b"one\nTWO\nthree")
    assert source.splits()[0].identity != split.identity
    with pytest.raises(ReadFailed, match="was replaced while it was read"):
        values(source, split.name, split.identity, Range(0, 13))


def test_other_formats_and_missing_objects_are_refused_by_name(store: Store) -> None:
    store.put(f"s3://{BUCKET}/other/a.gz", b"\x1f\x8b....")
    source = connector("other/*")
    (split,) = source.splits()
    with pytest.raises(ReadFailed, match=r"other/a\.gz: expected lines of UTF-8 text, found gzip"):
        values(source, split.name, split.identity, Range(0, 6))
    store.remove(split.name)
    with pytest.raises(ReadFailed, match=r"other/a\.gz: the object does not exist"):
        values(source, split.name, split.identity, Range(0, 6))


def test_rows_of_parquet_objects(store: Store) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": range(7)}), sink, row_group_size=2)
    store.put(f"s3://{BUCKET}/rows/a.parquet", sink.getvalue().to_pybytes())
    source = connector("rows/*.parquet", type="parquet")
    (split,) = source.splits()
    assert values(source, split.name, split.identity, Range(3, 5)) == [b'{"id":3}', b'{"id":4}']


def test_rows_of_a_delta_table(store: Store, s3: S3Server) -> None:
    deltalake = pytest.importorskip("deltalake")
    options = {**CREDENTIALS, "AWS_ENDPOINT_URL": s3.environment["AWS_ENDPOINT_URL"], "AWS_ALLOW_HTTP": "true"}
    for first in (0, 3):
        block = pa.table({"id": range(first, first + 3)})
        deltalake.write_deltalake(f"s3://{BUCKET}/lake/orders", block, mode="append", storage_options=options)
    lake = SourceLake.model_validate({"type": "delta", "database": f"s3://{BUCKET}/lake", "name": "orders"})
    source = LakeConnector(lake, dict(CREDENTIALS), ACCESS)
    splits = source.splits()
    assert [split.end for split in splits] == [3, 3]
    found = [values(source, split.name, split.identity, Range(0, 3)) for split in splits]
    assert sorted(value for part in found for value in part if value) == [b'{"id":%d}' % number for number in range(6)]
