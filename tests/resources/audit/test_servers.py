"""Tables of servers, of which the server shows only a part."""

from __future__ import annotations

import pytest

from kpipe.audit.coordinates import find_coordinates
from kpipe.errors import DestinationError
from resources.audit.source_servers import _parsed
from resources.audit.sources import open_table
from resources.audit.table_address import TableAddress
from tests.servers.postgres import PASSWORD, ROLE, PostgresServer


def rows(server: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("PG", PASSWORD)
    address = TableAddress("postgres", server.address(schema), "landed", credentials={"password": "{{ env('PG') }}"})
    with open_table(address) as table:
        return sum(len(batch[0]) for batch in table.batches(find_coordinates(table.fields())))


def test_rows_that_a_policy_hides_are_an_error(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy hides a duplicate: without it, the audit would call the table complete."""
    schema = postgres.schema()
    for statement in (
        f"CREATE TABLE {schema}.landed (_partition int, _offset bigint, hidden boolean)",
        f"INSERT INTO {schema}.landed VALUES (0, 0, false), (0, 1, false), (0, 1, true)",
        f"GRANT SELECT ON {schema}.landed TO {ROLE}",
    ):
        postgres.sql(statement)
    assert rows(postgres, schema, monkeypatch) == 3
    postgres.sql(f"ALTER TABLE {schema}.landed ENABLE ROW LEVEL SECURITY")
    postgres.sql(f"CREATE POLICY visible ON {schema}.landed FOR SELECT TO {ROLE} USING (NOT hidden)")
    with pytest.raises(DestinationError, match="row-level security"):
        rows(postgres, schema, monkeypatch)
    postgres.sql(f"ALTER ROLE {ROLE} BYPASSRLS")
    try:
        assert rows(postgres, schema, monkeypatch) == 3
    finally:
        postgres.sql(f"ALTER ROLE {ROLE} NOBYPASSRLS")


@pytest.mark.parametrize(("block", "expected"), [
    (b"1\n\n2\n\n", [["1", None, "2", None]]), (b"\n\n", [[None, None]]), (b'""\n', [[""]]),
    (b'"a\n\nb"\n\n', [["a\n\nb", None]]), (b'1,\n,\n2,""\n', [["1", None, "2"], [None, None, ""]]),
])  # fmt: skip
def test_copied_rows_of_null_are_read(block: bytes, expected: list[list[str | None]]) -> None:
    """PostgreSQL writes a row whose only column is NULL as an empty line."""
    assert [column.to_pylist() for column in _parsed(block, len(expected))] == expected
