"""Conditions on the coordinates of rows, executed over rows of which some name no topic."""

from __future__ import annotations

import sqlite3

from kpipe.batch.counts import Counts
from kpipe.definition.pipeline import Pipeline
from kpipe.ledger.ledger import Lane, Ledger
from kpipe.offsets import Range
from kpipe.provenance.facts import RowSources
from kpipe.provenance.row_conditions import Naming, beyond, by_history, naming, within
from kpipe.topics import PartitionId, TopicId
from kpipe.verification.recount import Entry

WEB, SHOP = (PartitionId(TopicId("c", f"id-{name}", name), 0) for name in ("web", "shop"))
BOTH = Pipeline.model_validate({"name": "p", "source": {"brokers": "b:1", "topics": ["web", "shop"]}, "into": {"table": "t"}})
#: Topic and offset of the rows. A definition with the topic `web` only has written the first ones.
ROWS = [(None, 0), (None, 1), (None, 2), ("web", 3), ("web", 4), ("shop", 0), ("shop", 1), ("shop", 2)]


def ledger(*sources: PartitionId) -> Ledger:
    lanes = [Lane(source, 0, 9) for source in sources]
    return Ledger("p", 1, {lane.key: lane for lane in lanes})


def selected(condition: str) -> list[tuple[str | None, int]]:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (_kafka_topic, _kafka_partition, _kafka_offset)")
        connection.executemany("INSERT INTO t VALUES (?, 0, ?)", ROWS)
        found = connection.execute(f"SELECT _kafka_topic, _kafka_offset FROM t WHERE {condition} ORDER BY rowid")
        return found.fetchall()


def test_rows_that_name_no_topic_are_of_the_topic_that_was_alone() -> None:
    names = naming(BOTH, ledger(WEB, SHOP), RowSources(unnamed=True, owner="web"))
    for web, shop in ((2, 1), (4, 0), (0, 2), (5, 3)):
        expected = [(topic, at) for topic, at in ROWS if at < (shop if topic == "shop" else web)]
        assert selected(within(names, {WEB: [(0, web)], SHOP: [(0, shop)]})) == expected
        assert selected(beyond(names, {WEB: web, SHOP: shop})) == expected


def test_without_such_rows_the_condition_is_plain() -> None:
    names = naming(BOTH, ledger(WEB, SHOP), RowSources())
    assert within(names, {WEB: [(0, 5)]}) == "(_kafka_topic = 'web' AND _kafka_partition = 0 AND _kafka_offset < 5)"


def test_no_condition_if_several_topics_may_own_them() -> None:
    names = naming(BOTH, ledger(WEB, SHOP), RowSources(unnamed=True))
    assert "several topics may have given them" in names.refusal
    assert within(names, {WEB: [(0, 5)]}) == beyond(names, {WEB: 5}) == ""


def test_a_table_that_has_no_topics_yet() -> None:
    """A topic was added, and nothing is committed since."""
    names = naming(BOTH, ledger(WEB), RowSources(topic_column=False))
    assert within(names, {WEB: [(0, 5)]}) == "(_kafka_partition = 0 AND _kafka_offset < 5)"
    assert naming(BOTH, ledger(WEB, SHOP), RowSources(topic_column=False)).refusal


def test_the_history_tells_which_topic_was_alone() -> None:
    def entry(seq: int, source: PartitionId) -> Entry:
        return Entry(f"b{seq}", source, Range(0, 2), Counts(), seq=seq)

    unknown = RowSources(unnamed=None)
    assert by_history(unknown, [entry(2, WEB), entry(3, WEB), entry(3, SHOP)]) == RowSources(unnamed=True, owner="web")
    assert by_history(unknown, [entry(2, WEB), entry(2, SHOP)]) == RowSources()
    assert by_history(unknown, []) == RowSources()
    assert by_history(RowSources(), [entry(2, WEB)]) == RowSources()
    assert naming(BOTH, ledger(WEB), by_history(unknown, [])) == Naming(by_topic=True)
