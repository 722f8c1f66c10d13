"""Compare the rows of a table with the committed ranges, by the rows' offsets."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from kpipe.topics import Part, part
from kpipe.verification.clearing import CLEARED
from kpipe.verification.verify import Entry
from resources.destinations.sql.ledger.multi_table import ENTRY, WRITTEN, entry_of
from resources.destinations.sql.ledger.partition_bounds import bounds, topics_of
from resources.destinations.sql.ledger.row_balance import TOPIC
from resources.destinations.sql.sql_dialect import Connection, Dialect

__all__ = ["Compared", "check_ranges", "only_topic"]

# The same order in every statement that numbers the ranges.
_ORDER = "seq, cluster_id, topic_id, topic, batch_source_partition_id, batch_earliest_offset, batch_id"
_MOST_NAMED = 2000  # partitions of topics in a statement
# What rows name of their source: `named_topic` is the topic if they name it.
_SOURCE = "named_topic, batch_source_partition_id"
# Overlapping ranges form one group, whose number is that of its first range: offsets that were read again, with `at_least_once`,
# by another pipeline, or of a topic that was recreated. A group is cut at the ends of its ranges into pieces, which do not
# overlap; `cover` is the number of ranges of a piece.
_GROUPS = f"""
 kpipe_marked AS (SELECT r.*, max(batch_latest_offset) OVER (PARTITION BY {_SOURCE}
   ORDER BY batch_earliest_offset, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached FROM kpipe_read AS r),
 kpipe_grouped AS (SELECT m.*, sum(CASE WHEN batch_earliest_offset < reached THEN 0 ELSE 1 END)
   OVER (PARTITION BY {_SOURCE} ORDER BY batch_earliest_offset, id) AS nth FROM kpipe_marked AS m),
 kpipe_members AS (SELECT g.*, min(id) OVER (PARTITION BY {_SOURCE}, nth) AS of_group FROM kpipe_grouped AS g),
 kpipe_bounds AS (SELECT of_group, topic, batch_source_partition_id, place, sum(delta) AS delta FROM (
   SELECT of_group, named_topic AS topic, batch_source_partition_id, batch_earliest_offset AS place, 1 AS delta FROM kpipe_members
   UNION ALL SELECT of_group, named_topic, batch_source_partition_id, batch_latest_offset, -1 FROM kpipe_members) AS u
   GROUP BY of_group, topic, batch_source_partition_id, place),
 kpipe_pieces AS (SELECT of_group, topic, batch_source_partition_id, place AS batch_earliest_offset,
   lead(place) OVER (PARTITION BY of_group ORDER BY place) AS batch_latest_offset,
   sum(delta) OVER (PARTITION BY of_group ORDER BY place) AS cover FROM kpipe_bounds AS e),
 kpipe_ranges AS (SELECT row_number() OVER (ORDER BY of_group, batch_earliest_offset) AS id, p.* FROM kpipe_pieces AS p
   WHERE batch_latest_offset IS NOT NULL)"""


@dataclass
class Compared:
    """List differences between the rows of a table and the committed ranges.

    Attributes:
        wrong: ranges with another number of rows, each with this number.
        exchanged: ranges with the right number of rows, but other offsets.
        repeated: rows that repeat an offset, in ranges that overlap no other, by partition.
        problems: of offsets that were read several times, one sentence each.
        unproven: ranges with offsets in common of which only the numbers of rows could be compared: the ledger has no sum of
            their offsets, or rows of the partition have no offset.
    """

    wrong: list[tuple[Entry, int]] = field(default_factory=list)
    exchanged: list[Entry] = field(default_factory=list)
    repeated: dict[Part, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)

    def joined(self, other: Compared) -> Compared:
        """Return the differences of both."""
        repeated = {
            name: self.repeated.get(name, 0) + other.repeated.get(name, 0) for name in {**self.repeated, **other.repeated}
        }
        return Compared(
            self.wrong + other.wrong,
            self.exchanged + other.exchanged,
            repeated,
            self.problems + other.problems,
            self.unproven + other.unproven,
        )


def only_topic(
    connection: Connection, dialect: Dialect, table: str, names: Collection[str], rows: Mapping[Part, int]
) -> str | None:
    """Return the topic of the rows that name none: that of a pipeline that read one topic before it read several.

    None: all rows name their topic, or several topics are possible.

    Args:
        connection: inside a read transaction.
        dialect: of the database.
        table: name of the table.
        names: its columns, in lower case.
        rows: rows of the table, by partition; a number: the rows do not name their topic.
    """
    unnamed = {number: count for number, count in rows.items() if isinstance(number, int) and count}
    if TOPIC not in names or not unnamed:
        return None
    found = connection.execute(
        'SELECT pipeline_name, cluster_id, topic_id, topic, batch_source_partition_id, seq, "rows"'
        f' FROM {WRITTEN} AS w WHERE {dialect.same_name.format("target_table", "$1")} AND "rows" > 0 ORDER BY seq',
        [table],
    ).fetchall()
    if not found or len({row[0] for row in found}) > 1:
        return None
    first = found[0][1:4]
    later = min((row[5] for row in found if row[1:4] != first), default=None)
    early: dict[int, int] = {}
    for *_, number, seq, count in found:
        if later is None or seq < later:
            early[number] = early.get(number, 0) + count
    return str(first[2]) if all(count <= early.get(number, 0) for number, count in unnamed.items()) else None


def check_ranges(
    connection: Connection,
    dialect: Dialect,
    pipeline: str,
    table: str,
    names: Collection[str],
    only: str | None,
    adopted: bool = False,
) -> Compared:
    """Compare the rows of each committed range with the table.

    Of overlapping ranges, all rows and the sum of their offsets are compared together. An offset must not have more rows than
    ranges that contain it. So are ranges of several readers that rows do not distinguish: another pipeline, or a topic that was
    recreated.
    A partition may have rows without an offset (of a program, or from before the column was added); then a range may have no row
    with an offset at all. Rows without a topic, beside rows with one, are those of ranges below the lowest offset that rows with
    the range's topic have.

    Args:
        connection: inside a read transaction.
        dialect: of the database.
        pipeline: its name.
        table: name of the table.
        names: its columns, in lower case.
        only: see `only_topic`.
        adopted: whether rows without a topic may be those of another loader, which are in no range.
    """
    same = dialect.same_name.format
    row = connection.execute(
        "SELECT count(*) FROM (SELECT DISTINCT pipeline_name, cluster_id, topic_id, topic"
        f" FROM {WRITTEN} AS w WHERE {same('target_table', '$1')}) AS readers",
        [table],
    ).fetchone()
    assert row is not None
    name = dialect.name(table)
    if row[0] == 1 or TOPIC not in names:
        return _compare(connection, dialect, pipeline, table, _Rows(name))
    if only is not None:
        return _compare(connection, dialect, pipeline, table, _Rows(name, True, only))
    named, unnamed = _named(connection, name)
    if not named:
        return _compare(connection, dialect, pipeline, table, _Rows(name))
    if not unnamed or adopted or len(named) > _MOST_NAMED:
        return _compare(connection, dialect, pipeline, table, _Rows(name, True))
    rest = f"(SELECT t.* FROM {name} AS t WHERE t.{TOPIC} IS NULL)"
    return _compare(connection, dialect, pipeline, table, _Rows(name, True, None, named, True)).joined(
        _compare(connection, dialect, pipeline, table, _Rows(rest, False, None, named, False))
    )


def _named(connection: Connection, name: str) -> tuple[list[tuple[str, int, int]], bool]:
    """Return topic, partition and lowest offset of the rows that name their topic, and whether others with a partition do not.

    The lowest offset is 0 where rows of the partition have no offset.
    """
    found = connection.execute(
        f"SELECT t.{TOPIC}, t._kafka_partition,"
        " CASE WHEN count(*) > count(t._kafka_offset) THEN 0 ELSE min(t._kafka_offset) END"
        f" FROM {name} AS t WHERE t._kafka_partition IS NOT NULL GROUP BY t.{TOPIC}, t._kafka_partition"
    ).fetchall()
    named = sorted((topic, int(number), int(lowest)) for topic, number, lowest in found if topic is not None)
    return named, len(named) < len(found)


@dataclass(frozen=True)
class _Rows:
    """Rows of a table, and the ranges with which they are compared.

    Attributes:
        relation: the rows, as SQL.
        by_topic: whether they name their topic.
        only: see `only_topic`.
        named: see `_named`; empty: all ranges.
        behind: whether the ranges are those that end behind the lowest named offset of their topic and partition, or the others.
    """

    relation: str
    by_topic: bool = False
    only: str | None = None
    named: Sequence[tuple[str, int, int]] = ()
    behind: bool = False


def _compare(connection: Connection, dialect: Dialect, pipeline: str, table: str, rows: _Rows) -> Compared:
    """Compare rows with ranges. For arguments see `check_ranges`."""
    by_topic, only, same = rows.by_topic, rows.only, dialect.same_name.format
    topic = f"t.{TOPIC}" if only is None else f"coalesce(t.{TOPIC}, $3)"
    unplaced = f"SELECT t._kafka_partition AS number FROM {rows.relation} AS t WHERE t._kafka_offset IS NULL" + (
        f" OR {topic} IS NULL" if by_topic else ""
    )
    parameters = [pipeline, table, *([only] if only is not None and by_topic else [])]
    named, among = "", ""
    if rows.named:
        lines, source = bounds(rows.named, "topic", len(parameters) + 1)
        parameters += topics_of(rows.named)
        named = f" LEFT JOIN ({lines}) AS o ON o.number = batch_source_partition_id AND o.source = {source}"
        among = f" AND coalesce(batch_latest_offset > o.bound, false) = {str(rows.behind).lower()}"
    # Pieces never overlap: only the last piece that begins at or before an offset can contain it.
    hits = dialect.hits.format(
        table=rows.relation,
        topic=f"AND {topic} = b.topic" if by_topic else "",
        of_row=topic if by_topic else "''",
        of_range="b.topic" if by_topic else "''",
    )
    if not dialect.sums:
        hits = (
            "SELECT h.id, n, CASE WHEN n > cover THEN n - cover ELSE 0 END AS again, n * CAST(h.at AS DECIMAL(38,0)) AS summed"
            f" FROM ({hits}) AS h JOIN kpipe_ranges AS r ON r.id = h.id"
        )
    big, named_topic = dialect.bigint, "topic" if by_topic else "''"
    # These names do not hide a table of the user.
    found = connection.execute(
        # Ranges from before the table was cleared have no rows in it.
        "WITH kpipe_cleared AS (SELECT pipeline_name AS reader, max(seq) AS since"
        f"   FROM {WRITTEN} AS g WHERE closed_by = '{CLEARED}' AND {same('target_table', '$2')} GROUP BY pipeline_name),"
        f" kpipe_read AS (SELECT row_number() OVER (ORDER BY {_ORDER}, pipeline_name) AS id, {ENTRY}, seq, records, twice,"
        f"   {named_topic} AS named_topic, CASE WHEN pipeline_name = $1 THEN 1 ELSE 0 END AS own"
        f"   FROM {WRITTEN} AS w LEFT JOIN kpipe_cleared AS c ON c.reader = pipeline_name{named}"
        f"   WHERE {same('target_table', '$2')}"
        "   AND seq > coalesce(since, 0) AND coalesce(closed_by, '') <> 'reread'"
        f"   AND batch_latest_offset > batch_earliest_offset{among}),{_GROUPS},"
        f" kpipe_unplaced AS ({unplaced}),"
        f" kpipe_hits AS ({hits}),"
        f" kpipe_held AS (SELECT of_group, CAST(sum(n) AS {big}) AS held, CAST(sum(again) AS {big}) AS again,"
        "  sum(summed) AS summed"
        "  FROM kpipe_hits AS x JOIN kpipe_ranges AS p ON p.id = x.id GROUP BY of_group),"
        f' kpipe_groups AS (SELECT of_group, count(*) AS readings, CAST(sum("rows") AS {big}) AS written,'
        f"  CASE WHEN count(records) = count(*) THEN CAST(sum(records) AS {big}) END AS records,"
        "  CASE WHEN count(twice) = count(*) THEN sum(twice) END AS twice, max(batch_latest_offset) AS latest,"
        "  max(CASE WHEN closed_by = 'given_up' THEN 1 ELSE 0 END) AS unsure, max(own) AS own"
        "  FROM kpipe_members AS m GROUP BY of_group),"
        f" kpipe_compared AS (SELECT {', '.join(f'b.{name}' for name in ENTRY.split(', '))}, b.seq, readings, latest, written,"
        "  coalesce(held, 0) AS held, coalesce(again, 0) - (written - g.records) AS again,"
        "  coalesce(summed, 0) + coalesce(summed, 0) - g.twice AS off,"
        "  CASE WHEN written = g.records THEN coalesce(again, 0) ELSE 0 END AS doubled,"
        "  CASE WHEN b.batch_source_partition_id IN (SELECT number FROM kpipe_unplaced WHERE number IS NOT NULL)"
        "   THEN 1 ELSE 0 END AS loose"
        "  FROM kpipe_read AS b JOIN kpipe_groups AS g ON g.of_group = b.id LEFT JOIN kpipe_held AS h ON h.of_group = b.id"
        "  WHERE unsure = 0 AND g.own = 1),"
        " kpipe_judged AS (SELECT c.*, CASE"
        "  WHEN (loose = 0 AND (held <> written OR off <> 0)) OR (loose = 1 AND held > written)"
        "  OR (loose = 1 AND readings = 1 AND again IS NOT NULL AND held <> 0 AND held <> written)"
        "  OR (readings = 1 AND held <> 0 AND again <> 0) OR (readings > 1 AND doubled > 0) THEN 'wrong'"
        "  WHEN readings > 1 AND (loose = 1 OR off IS NULL) THEN 'unproven'"
        f"  WHEN {int(rows.behind)} = 1 AND loose = 1 AND held = 0 AND written > 0 THEN 'unproven'"  # rows without a topic
        " ELSE '' END AS judged FROM kpipe_compared AS c)"
        f" SELECT {ENTRY}, judged, readings, latest, written, held, again, doubled FROM kpipe_judged AS j WHERE judged <> ''"
        " ORDER BY seq, topic, batch_source_partition_id, batch_earliest_offset",
        parameters,
    ).fetchall()
    compared = Compared()
    for *values, judged, readings, latest, written, held, again, doubled in found:
        entry = entry_of(values)
        if judged == "wrong":
            _add(compared, entry, by_topic, readings, latest, written, held, again, doubled)
        else:
            compared.unproven.append(_group(entry, latest))
    return compared


def _group(entry: Entry, latest: int) -> str:
    """Return the offsets of a group of overlapping ranges that begins with this one."""
    return f"{entry.source} [{entry.range.start}, {latest})"


def _add(
    compared: Compared, entry: Entry, by_topic: bool, readings: int, latest: int, written: int, held: int,
    again: int | None, doubled: int,
) -> None:  # fmt: skip
    """Add the difference of a range, or of a group of overlapping ranges that begins with it."""
    if readings == 1:
        if held != written:
            compared.wrong.append((entry, held))
        if again is not None and again > 0:  # not counting rows of one record; None: the number of records is unknown
            name = part(entry.source, by_topic)
            compared.repeated[name] = compared.repeated.get(name, 0) + again
        if held == written and (again is None or again <= 0):  # below 0: fewer rows of one record than committed
            compared.exchanged.append(entry)
        return
    where = _group(entry, latest)
    if held != written:
        compared.problems.append(f"{where}: {held} rows found, {written} committed by {readings} batches with offsets in common")
    elif not doubled:
        compared.problems.append(f"{where}: the {written} rows found are not those of {readings} batches with offsets in common")
    if doubled:
        compared.problems.append(f"{where}: an offset has more rows than batches that have read it")
