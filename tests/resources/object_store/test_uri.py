"""Names of objects: which store they are in, their parts, and which are not valid."""

from __future__ import annotations

import pytest

from resources.object_store.uri import account, expected_form, is_remote, kind, split

ABFSS = "abfss://lake@acme.dfs.core.windows.net/a/b"


@pytest.mark.parametrize(
    ("name", "of", "bucket", "key", "owner"),
    [
        ("s3://lake/a/b", "s3", "lake", "a/b", ""),
        ("gs://lake_1.example.com/a/b", "gs", "lake_1.example.com", "a/b", ""),
        ("az://lake/a/b", "azure", "lake", "a/b", ""),
        (ABFSS, "azure", "lake@acme.dfs.core.windows.net", "a/b", "acme"),
        ("gs://lake", "gs", "lake", "", ""),
    ],
)
def test_parts_of_a_name(name: str, of: str, bucket: str, key: str, owner: str) -> None:
    assert is_remote(name) and expected_form(name) is None
    assert (kind(name), *split(name), account(name)) == (of, bucket, key, owner)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("s3://UPPER/x", "s3://bucket/key"),
        ("gs://lake/a b", "gs://bucket/key"),
        ("gs://lake/../x", "gs://bucket/key"),
        ("gs://lake//x", "gs://bucket/key"),
        ("az://lake/x?sv=1&sig=2", "az://container/key"),
        ("az://a.b/x", "az://container/key"),
        ("abfss://lake/x", "abfss://container@account.dfs.core.windows.net/key"),
        ("abfss://lake@acme.example.com/x", "abfss://container@account.dfs.core.windows.net/key"),
    ],
)
def test_names_that_are_not_valid(name: str, form: str) -> None:
    assert expected_form(name) == form


@pytest.mark.parametrize("name", ["/data/s3://x", "file:///x", "wasbs://c@a.blob.core.windows.net/x", "hdfs://x", "S3://x", ""])
def test_other_names_are_files(name: str) -> None:
    assert not is_remote(name)
