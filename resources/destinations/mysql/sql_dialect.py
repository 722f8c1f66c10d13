"""Find and create the ledger's tables, and define the SQL of MariaDB, MySQL and SingleStore."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kpipe.errors import LedgerMismatch, SchemaConflict
from resources.destinations.mysql.session import Session
from resources.destinations.sql.ledger import format_table, table_definitions, views
from resources.destinations.sql.sql_dialect import Dialect, quote

__all__ = ["DIALECT", "NOTES", "SINGLESTORE", "MySQLDialect", "create", "exists", "fitting", "key_alone", "lock", "present"]

# Characters of columns in a primary key, which may have 3,072 bytes: a topic's name has 249 at most, its id 22.
_CHARACTERS = {"topic": 249, "topic_id": 64}
_OTHERS = 128


@dataclass(frozen=True)
class MySQLDialect(Dialect):
    """The SQL that differs between these databases, in addition to `Dialect`.

    Attributes:
        collation: of the tables that kpipe creates: texts are equal if their bytes are, trailing spaces included.
        made: end of the CREATE TABLE statement of such a table, after the columns, with `{collation}`.
        json_rows: whether JSON_TABLE exists.
        keyed: whether rows with a key are supported, and the tables' engine is InnoDB.
    """

    collation: str = "utf8mb4_nopad_bin"
    made: str = " ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE {collation}"
    json_rows: bool = True
    keyed: bool = True

    def column(self, name: str, kind: str, key: bool) -> str:
        """See `Dialect`."""
        return f"VARCHAR({_CHARACTERS.get(name, _OTHERS)})" if key and kind == "VARCHAR" else self.types.get(kind, kind)

    def ending(self) -> str:
        """See `Dialect`."""
        return self.made.format(collation=self.collation)

    def add_column(self, connection: Any, table: str, name: str, kind: str) -> None:
        """See `Dialect`. MySQL commits DDL at once, so this is followed by a new transaction."""
        columns = "SELECT column_name FROM information_schema.columns WHERE table_schema = database() AND table_name = $1"
        if name not in {row[0] for row in connection.execute(columns, [table]).fetchall()}:
            connection.define(f"ALTER TABLE {quote(table)} ADD COLUMN {quote(name)} {self.column(name, kind, False)}")
            connection.begin()

    def rows(self, columns: Sequence[tuple[str, str]], first: int) -> str:
        """See `Dialect`: the rows are one parameter, a JSON array of arrays."""
        if not self.json_rows:  # SingleStore has no JSON_TABLE
            how = {"BIGINT": "JSON_EXTRACT_BIGINT", "INTEGER": "JSON_EXTRACT_BIGINT", "DOUBLE PRECISION": "JSON_EXTRACT_DOUBLE"}
            parts = [
                f"{how.get(kind, 'JSON_EXTRACT_STRING')}(table_col, {at}) AS {quote(n)}" for at, (n, kind) in enumerate(columns)
            ]
            return f"SELECT {', '.join(parts)} FROM TABLE(JSON_TO_ARRAY(${first})) AS j"  # noqa: S608
        parts = []
        for at, (name, kind) in enumerate(columns):
            text = f"VARCHAR(4096) CHARACTER SET utf8mb4 COLLATE {self.collation}"
            parts.append(
                f"{quote(name)} {text if kind == 'VARCHAR' else self.types.get(kind, kind)} PATH '$[{at}]' ERROR ON ERROR"
            )
        return f"SELECT * FROM JSON_TABLE(${first}, '$[*]' COLUMNS ({', '.join(parts)})) AS j"  # noqa: S608

    def given(self, rows: Sequence[Sequence[Any]], width: int) -> list[Any]:
        """See `Dialect`."""
        return [json.dumps([list(row) for row in rows], ensure_ascii=False)]

    def update(self, table: str, sets: Mapping[str, str], source: str, where: str) -> str:
        """See `Dialect`."""
        assigned = ", ".join(f"l.{quote(name)} = {value}" for name, value in sets.items())
        return f"UPDATE {table} AS l JOIN ({source}) AS c SET {assigned} WHERE {where}"  # noqa: S608

    def delete(self, table: str, source: str, where: str) -> str:
        """See `Dialect`."""
        return f"DELETE l FROM {table} AS l JOIN ({source}) AS c WHERE {where}"

    def change(self, connection: Any, statement: str, parameters: Sequence[Any] = ()) -> int:
        """See `Dialect`. The connection counts rows that are found, not rows that change."""
        return int(connection.execute(statement, parameters).rowcount)

    def insert(self, connection: Any, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
        """See `Dialect`."""
        one = len(columns)
        marks = ", ".join(f"({', '.join(f'${n * one + at + 1}' for at in range(one))})" for n in range(len(rows)))
        sql = f"INSERT INTO {table} ({', '.join(map(quote, columns))}) VALUES {marks}"  # noqa: S608
        connection.execute(sql, [value for row in rows for value in row])


DIALECT = MySQLDialect(
    schema="",  # a session sees one database
    create_view="CREATE OR REPLACE VIEW ",
    same_name="{0} = {1}",
    micros="TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {0})",
    # Ranges and rows in one order: a row is in the last range that begins at or before it. A join on both bounds would compare
    # every row with every range. Texts are compared in a fixed collation, as a user's table may have any.
    hits=(
        "SELECT b.id, x.at, x.n FROM (SELECT g.p, g.topic, g.at, g.n,"
        " max(g.begins) OVER (PARTITION BY g.p, g.topic ORDER BY g.at) AS begins"
        " FROM (SELECT t._kafka_partition AS p, CONVERT({of_row} USING utf8mb4) COLLATE utf8mb4_bin AS topic,"
        "    t._kafka_offset AS at, count(*) AS n, NULL AS begins FROM {table} AS t"
        "    WHERE t._kafka_offset IS NOT NULL GROUP BY 1, 2, 3"
        "  UNION ALL SELECT b.batch_source_partition_id, CONVERT({of_range} USING utf8mb4) COLLATE utf8mb4_bin,"
        "    b.batch_earliest_offset, 0, b.batch_earliest_offset FROM kpipe_ranges AS b) AS g) AS x"
        " JOIN kpipe_ranges AS b ON b.batch_source_partition_id = x.p AND b.batch_earliest_offset = x.begins"
        "  AND CONVERT({of_range} USING utf8mb4) COLLATE utf8mb4_bin = x.topic"
        " WHERE x.n > 0 AND x.at < b.batch_latest_offset"
    ),
    types={
        "HEADERS": "LONGTEXT", "VARCHAR": "LONGTEXT", "BYTEA": "LONGBLOB", "TIMESTAMPTZ": "DATETIME(6)",
        "DOUBLE PRECISION": "DOUBLE", "NUMERIC(38,0)": "DECIMAL(38,0)",
    },
    bigint="SIGNED",
    database="database()",
    instant="TIMESTAMPADD(MICROSECOND, CAST({0} * 1000000 AS SIGNED), CAST('1970-01-01' AS DATETIME(6)))",
    seconds="(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {0}) / 1e6)",
    same="{0} <=> {1}",
    xor="CAST({0} ^ {1} AS SIGNED)",
    lock=" FOR UPDATE",
    share=" LOCK IN SHARE MODE",
    place="concat('MySQL database ', database())",
    drop_temporary="DROP TEMPORARY TABLE",
)  # fmt: skip
#: Never run against a server. docs/how-to/destinations/mysql.md lists what is taken from SingleStore's documentation.
SINGLESTORE = replace(DIALECT, collation="utf8mb4_bin", made=" COLLATE {collation}", json_rows=False, keyed=False, share="")
#: kpipe's types of columns whose MySQL type is ambiguous (types.py). A column's comment is too short, and DDL is not in a
#: transaction.
NOTES = table_definitions.Table(
    "kpipe_columns", {"target_table": "VARCHAR", "column_name": "VARCHAR", "kind": "VARCHAR"}, ("target_table", "column_name")
)
_INDEXES = (
    ("kpipe_commits", "kpipe_commits_waiting", "pipeline_name(100), published_at, seq"),
    ("kpipe_batches", "kpipe_batches_order", "pipeline_name(100), seq"),
    ("kpipe_errors", "kpipe_errors_order", "pipeline_name(100), error_id"),
    ("kpipe_pipelines", "kpipe_pipelines_target", "target_table(100)"),
)
_LAST = "kpipe_cursors"  #: created last


def exists(session: Session, name: str, view: bool = False) -> bool:
    """Return whether the database has a table of that name, or a view.

    Raises:
        SchemaConflict: the name is another object, or a table without transactions.
    """
    if session.folds and name != name.lower():
        raise SchemaConflict(f"{name}: this server supports table names in lower case only", "write into.table in lower case")
    rows = session.execute(
        "SELECT table_name, table_type, engine FROM information_schema.tables"
        " WHERE table_schema = database() AND table_name = $1",
        [name],
    ).fetchall()
    found = next((row for row in rows if row[0] == name), None)  # information_schema compares names without case
    if found is None:
        return False
    _, kind, engine = found
    if view:
        return True
    if kind != "BASE TABLE":
        raise SchemaConflict(f"{name}: not a table: found {kind.lower()}", "set into.table to a table")
    if "singlestore" not in session.comment.lower() and (engine or "").lower() != "innodb":
        raise SchemaConflict(
            f"table {name}: storage engine {engine} has no transactions",
            f"ALTER TABLE `{name}` ENGINE=InnoDB",
        )
    return True


def present(session: Session) -> bool:
    """Return whether all of the ledger's tables exist: MySQL creates them one by one.

    Raises:
        LedgerMismatch: only some of them exist, and they contain rows.
        FormatTooNew: a newer kpipe has written them.
    """
    if not _tables_present(session):
        return False
    format_table.check(session, DIALECT, lambda name: exists(session, name))
    return True


def _tables_present(session: Session) -> bool:
    if exists(session, table_definitions.PIPELINES.name) and exists(session, _LAST, view=True):
        return True
    for table in (
        table_definitions.PIPELINES,
        table_definitions.LANES,
        table_definitions.COMMITS,
    ):  # if they are empty, a run was killed while it created them
        if exists(session, table.name) and session.execute(f"SELECT 1 FROM {table.sql} LIMIT 1").fetchone():  # noqa: S608
            if table is table_definitions.PIPELINES:
                return True
            raise LedgerMismatch(
                f"table {table_definitions.PIPELINES.name} is missing, but {table.name} exists", "restore a backup"
            )
    return False


def create(session: Session, dialect: MySQLDialect) -> None:
    """Create missing tables and views of the ledger. Each statement commits at once, and a run may die after any of them."""
    for table in (NOTES, *table_definitions.TABLES):
        session.define(table.ddl(dialect))
    for table_name, name, columns in _INDEXES if dialect.keyed else ():
        if name not in {row[2] for row in session.execute(f"SHOW INDEX FROM {quote(table_name)}").fetchall()}:
            session.define(f"CREATE INDEX {quote(name)} ON {quote(table_name)} ({columns})")
    for statement in views.views(dialect):
        session.define(statement)


def fitting(dialect: MySQLDialect, session: Session) -> MySQLDialect:
    """Return the dialect for this server: MySQL has another name for the binary collation than MariaDB."""
    if dialect.keyed and not session.maria:
        return replace(dialect, collation="utf8mb4_0900_bin")
    return dialect


def lock(session: Session, pipeline: str) -> None:
    """Wait until no other commit of the pipeline is in flight, and let none begin until the transaction ends.

    A commit whose response was lost has changed this row, and locks it until it ends.
    """
    session.execute(f"SELECT 1 FROM {table_definitions.PIPELINES.sql} WHERE pipeline_name = $1 FOR UPDATE", [pipeline])  # noqa: S608


def key_alone(session: Session, table: str) -> None:
    """Do the same as `lock` for all pipelines that write the table, so that a join by key stays valid.

    Other clients are blocked by the locks of the rows and gaps that the join reads.

    Raises:
        SchemaConflict: another table's name differs from this one in case only, so both would share one balance.
    """
    session.execute(
        f"SELECT 1 FROM {table_definitions.PIPELINES.sql} WHERE target_table = $1 ORDER BY pipeline_name FOR UPDATE",  # noqa: S608
        [table],
    )
    rows = session.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = database() AND lower(table_name) = lower($1)",
        [table],
    ).fetchall()
    other = next((row[0] for row in rows if row[0] != table), None)
    if other is not None:
        raise SchemaConflict(
            f"tables {table} and {other}: names differ in case only, which into.key does not support", "rename one"
        )
