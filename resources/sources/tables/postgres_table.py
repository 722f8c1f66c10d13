"""A table of PostgreSQL as a source."""

# ruff: noqa: S608 - names are quoted
from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from kpipe.definition.source import SourceTable
from kpipe.errors import DestinationBusy, DestinationError, ReadFailed, ReadStalled
from kpipe.offsets import Range
from kpipe.schema.columns import DOUBLE, Columns, ListOf, Type
from resources.destinations.sql.sql_dialect import quote
from resources.kafka.record_block import RecordBlock
from resources.secrets import Secret
from resources.sources.block_size import FIRST, following
from resources.sources.exact_numbers import decimal
from resources.sources.json_rows import json_records
from resources.sources.tables.open_table import OpenSource, TableState

__all__ = ["open_postgres"]

# Oids of types.
_NUMERIC, _BYTEA = 1700, 17
#: Others whose values may begin as integers: float4, float8, their arrays, and arrays of numeric.
_FLOATS: dict[int, Type] = {700: DOUBLE, 701: DOUBLE, **dict.fromkeys((1021, 1022, 1231), ListOf(DOUBLE))}
#: An INSERT takes one of these locks before its row gets a value of a sequence, and keeps it until its transaction ends.
_WRITES = "'RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'"
#: Oids of a table, its partitions, and the tables that it is a partition of.
_FAMILY = (
    "(SELECT $1::oid UNION SELECT relid FROM pg_partition_tree($1::oid) UNION SELECT relid FROM pg_partition_ancestors($1::oid))"
)
#: The column ($2) of these tables, with its default.
_COLUMN = (
    "pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
    f" WHERE a.attrelid IN {_FAMILY} AND a.attname = $2 AND NOT a.attisdropped"
)
#: Sequences of a column: its defaults use them, or it owns them. Everybody may read these catalogues; only the last value of a
#: sequence needs a privilege.
_SEQUENCES = (
    "SELECT s.seqrelid::regclass::text, s.seqcache, s.seqincrement > 0 AND NOT s.seqcycle, CASE WHEN bool_or(u.owner = $1::oid)"
    " AND has_sequence_privilege(s.seqrelid, 'SELECT') THEN pg_sequence_last_value(s.seqrelid) END"
    f" FROM (WITH c AS (SELECT a.attrelid, a.attnum, d.oid FROM {_COLUMN})"
    " SELECT p.refobjid AS sequence, NULL::oid AS owner FROM c JOIN pg_depend p ON p.classid = 'pg_attrdef'::regclass"
    " AND p.objid = c.oid AND p.refclassid = 'pg_class'::regclass"
    " UNION SELECT p.objid, c.attrelid FROM c JOIN pg_depend p ON p.classid = 'pg_class'::regclass"
    " AND p.refclassid = 'pg_class'::regclass AND p.refobjid = c.attrelid AND p.refobjsubid = c.attnum) AS u"
    " JOIN pg_sequence s ON s.seqrelid = u.sequence GROUP BY s.seqrelid, s.seqcache, s.seqincrement, s.seqcycle"
)
_DEFAULTS = f"SELECT DISTINCT pg_get_expr(d.adbin, d.adrelid) FROM {_COLUMN} AND d.adbin IS NOT NULL"
#: A call whose sequence is among the dependencies of its default.
_RESOLVED = re.compile(r"nextval\(E?'(?:[^']|'')+'::regclass\)")
#: A task may take its time between two blocks of rows: its program may be slow.
_IDLE_S = 3600


class _Table:
    def __init__(self, session: Any, table: SourceTable) -> None:
        self._session, self._table = session, table
        self._name, self._column = ".".join(map(quote, table.name.split("."))), quote(table.column)

    def _row(self, statement: str, *parameters: Any) -> Any:
        return self._session.execute(statement, parameters).fetchone()

    def state(self) -> TableState:
        """See `OpenSource`. The highest value is read before the writers: a later writer gets a higher value."""
        found = self._row("SELECT to_regclass($1)::oid::bigint", self._name)
        if found[0] is None:
            raise self._failed("the table does not exist", "create it, or change source.table.name")
        oid = found[0]
        self._check(oid)
        lowest, highest = self._row(f"SELECT min({self._column}), max({self._column}) FROM {self._name}")
        if lowest is not None and lowest < 0:
            raise self._failed(f"column {self._table.column}: expected values of 0 or more, found {lowest}", "change the column")
        end = max(-1 if highest is None else highest, self._given(oid)) + 1
        writers = self._session.execute(
            "SELECT DISTINCT virtualtransaction, pid IS NULL FROM pg_locks WHERE locktype = 'relation' AND granted"
            f" AND mode IN ({_WRITES}) AND pid IS DISTINCT FROM pg_backend_pid()"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            # An INSERT into a partitioned table locks a partition only when its row has a value.
            f" AND relation IN {_FAMILY}",
            [oid],
        ).fetchall()
        if any(is_prepared for _, is_prepared in writers):  # its locks have another owner than before, as if it had ended
            what = f"table {self._table.name}: prepared transactions have written it (PREPARE TRANSACTION)"
            raise ReadStalled(what, "commit or roll them back: SELECT * FROM pg_prepared_xacts")
        return TableState(str(oid), end, frozenset(row[0] for row in writers))

    def _given(self, oid: int) -> int:
        """Return the last value of the column's sequence; -1 if it owns none, has several, or this one cannot be read."""
        found = self._session.execute(_SEQUENCES, [oid, self._table.column]).fetchall()
        for sequence, cached, rising, _ in found:
            if cached > 1:
                what = (
                    f"sequence {sequence} gives each session {cached} values at once: rows may appear below others that were read"
                )
                raise self._failed(what, f"ALTER SEQUENCE {sequence} CACHE 1")
            if not rising:
                what = f"sequence {sequence} descends or starts again: rows may appear below others that were read"
                raise self._failed(what, f"ALTER SEQUENCE {sequence} INCREMENT 1 NO CYCLE")
        for (default,) in self._session.execute(_DEFAULTS, [oid, self._table.column]).fetchall():
            if "nextval(" in _RESOLVED.sub("", default):  # such as nextval('s'::text)
                what = f"column {self._table.column}: its default finds its sequence at run time: it cannot be checked: {default}"
                hint = f"ALTER TABLE {self._name} ALTER COLUMN {self._column} SET DEFAULT nextval('SEQUENCE'::regclass)"
                raise self._failed(what, hint)
        last = found[0][3] if len(found) == 1 else None  # with several, later rows may have values below the last one of each
        return -1 if last is None else int(last)

    def _check(self, oid: int) -> None:
        """Check kind of table, type and uniqueness of the column."""
        kind = self._row("SELECT relkind::text FROM pg_class WHERE oid = $1::oid", oid)[0]
        if kind not in ("r", "p"):
            raise self._failed("expected a table, found a view or another relation", "name a table: source.table.name")
        if kind == "r" and self._row("SELECT EXISTS (SELECT FROM pg_inherits WHERE inhparent = $1::oid)", oid)[0]:
            raise self._failed("other tables inherit from it, so its values are not unique", "read each table of its own")
        # A subscription names partitions, unless the publication has publish_via_partition_root.
        if self._row(f"SELECT EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid IN {_FAMILY})", oid)[0]:
            what = "a subscription fills it: rows arrive in the order of commits, not of their values"
            raise self._failed(what, "read the table on the publisher: source.table.database")
        found = self._row(
            "SELECT a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype), a.attnotnull,"
            " EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid"
            " AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum AND i.indpred IS NULL), format_type(a.atttypid, a.atttypmod)"
            " FROM pg_attribute a WHERE a.attrelid = $1::oid AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped",
            oid,
            self._table.column,
        )
        if found is None:
            raise self._failed(f"column {self._table.column} does not exist", "change source.table.column")
        for fits, wanted in zip(found[:3], ("an integer", "NOT NULL", "unique, by a primary key or an index"), strict=True):
            if not fits:
                what = f"column {self._table.column}: expected {wanted}, found {found[3]}"
                raise self._failed(what, "choose another column: source.table.column")

    @property
    def _given_rows(self) -> str:
        return f"({self._table.query}\n) AS g" if self._table.query else self._name

    def columns(self) -> Columns:
        """See `OpenSource`."""
        types = (
            (item.name, decimal(item.precision, item.scale) if item.type_code == _NUMERIC else _FLOATS.get(item.type_code))
            for item in self._described()
        )
        return Columns(tuple((name, kind) for name, kind in types if kind is not None))

    def _described(self) -> Any:
        return self._session.execute(f"SELECT * FROM {self._given_rows} LIMIT 0").description

    def _listed(self) -> str:
        """Return the columns of the rows, bytes as base64."""
        columns = [(quote(item.name), item.type_code == _BYTEA) for item in self._described()]
        if not any(is_bytes for _, is_bytes in columns):
            return "*"
        # encode() breaks its lines.
        return ", ".join(
            f"translate(encode({name}, 'base64'), E'\\n', '') AS {name}" if is_bytes else name for name, is_bytes in columns
        )

    def records(self, span: Range) -> Iterator[RecordBlock]:
        """See `OpenSource`."""
        # Without a query, the condition is inside, where it finds the index in each version of PostgreSQL.
        given = self._given_rows
        rows = f"SELECT {self._listed()} FROM {given} WHERE {self._column} >= $1::bigint AND {self._column} < $2::bigint"
        # A column may have the name of the alias: q alone would be the column, q.* is the row.
        self._session.execute(
            f"DECLARE kpipe_rows NO SCROLL CURSOR FOR SELECT q.{self._column}::bigint, row_to_json(q.*)::text FROM ({rows}) AS q"
            f" ORDER BY q.{self._column}",
            [span.start, span.end],
        )
        number = FIRST
        while found := self._session.execute(f"FETCH {number} FROM kpipe_rows").fetchall():
            offsets, values = zip(*found, strict=True)
            number = following(len(found), sum(map(len, values)))
            yield json_records(list(values), pa.array(offsets, pa.int64()))

    def _failed(self, what: str, hint: str) -> ReadFailed:
        return ReadFailed(f"table {self._table.name}: {what}", hint)


@contextmanager
def open_postgres(table: SourceTable, secrets: dict[str, Secret]) -> Iterator[OpenSource]:
    """Open a table in a read-only transaction. Each of its statements sees what is committed then.

    Raises:
        ReadFailed: the server rejects a statement or the connection.
        ReadStalled: the server did not answer in time.
    """
    import psycopg

    from resources.destinations.postgres.connection import Server

    try:
        server = Server(table.database, secrets, "kpipe source", idle_timeout_s=_IDLE_S)
        with server.session() as session:
            session.begin("ISOLATION LEVEL READ COMMITTED READ ONLY")
            # With 'off', a query that would not see all rows is an error. Others: forms of values that JSON has as text.
            replica = session.execute(
                "SELECT pg_is_in_recovery(), set_config('row_security', 'off', true), set_config('bytea_output', 'hex', true),"
                " set_config('IntervalStyle', 'postgres', true)"
            ).fetchone()
            if replica is not None and replica[0]:
                what = f"table {table.name}: the server is a replica, which does not show open transactions of the primary"
                raise ReadFailed(what, "connect to the primary: source.table.database")
            yield _Table(session, table)
    except psycopg.Error as error:
        text = str(error).strip().partition("\n")[0]
        hint = "check the account's rights; run it again"
        if "row-level security" in text:
            hint = "connect as a role that sees all rows: one with BYPASSRLS, or the owner without FORCE ROW LEVEL SECURITY"
        raise ReadFailed(f"table {table.name}: PostgreSQL: {text}", hint) from None
    except DestinationBusy as error:
        raise ReadStalled(f"table {table.name}: {error.what}", "check the server; run it again") from None
    except DestinationError as error:
        raise ReadFailed(f"table {table.name}: {error.what}", "check source.table.database and source.credentials") from None
