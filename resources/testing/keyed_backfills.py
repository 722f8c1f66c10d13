"""Test destinations with keys when older offsets are read after newer ones (docs/design.md, 11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kpipe.batch.batch import Commit
from kpipe.ledger import transitions
from kpipe.offsets import Range
from kpipe.topics import TopicId
from resources.testing.keyed import RULES, Write, begun, commit_of, contents
from resources.testing.place import Place, begin, live, source
from resources.testing.state import proof

__all__ = ["KeyedBackfills"]


class KeyedBackfills:
    """Tests of backfills into tables with keys. Needs a fixture `place`."""

    def test_an_older_range_does_not_overwrite_what_came_later(self, place: Place) -> None:
        """Commit a backfill behind the live lane."""
        rule = replace(RULES["replace"], deletes=False)
        destination = begun(place, rule, 1)
        where = source(0)
        destination.commit(Commit("j" * 32, "tweets", transitions.jump(destination.ledger()[1], where, 50), kind="jump"))
        destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 50, 1, "new"), Write(0, 51, 2, "new")], rule))
        ledger = destination.ledger()[1]
        destination.commit(Commit("b" * 32, "tweets", transitions.backfill(ledger, where, Range(10, 20)), kind="backfill"))
        ledger = destination.ledger()[1]
        lane = next(lane for lane in ledger.of(where) if lane.start == 10)
        late = [Write(0, 12, 1, "old"), Write(0, 13, 3, "old"), Write(0, 14, 3, "older range, last write")]
        done = destination.commit(commit_of(place, ledger, late, rule, lanes=[lane])).commit.totals
        assert {key: row[0] for key, row in contents(place).items()} == {1: "new", 2: "new", 3: "older range, last write"}
        assert (done.inserted, done.updated, done.ignored) == (1, 1, 1) and proof(destination).ok

    @pytest.mark.parametrize("named", [False, True])
    @pytest.mark.parametrize("other", [TopicId("cluster-1", "topic-id-0", "tweets"), TopicId("cluster-1", "topic-id-2", "a")])
    def test_offsets_of_another_topic_do_not_make_a_row_newer(self, place: Place, other: TopicId, named: bool) -> None:
        """After a topic was recreated or replaced, existing rows have larger offsets, but are older."""
        rule = replace(RULES["replace"], deletes=False)
        destination = begun(place, rule, 1)
        destination.commit(begin("tweets", [0], topic=other))
        first = [Write(0, at, at % 3, f"other {at}", topic=other.name if named else None) for at in range(12)]
        ledger = destination.ledger()[1]
        destination.commit(commit_of(place, ledger, first, rule, lanes=[live(ledger, 0, other)]))
        where, name = source(0), "tweets" if named else None
        destination.commit(Commit("j" * 32, "tweets", transitions.jump(destination.ledger()[1], where, 4), kind="jump"))
        newer = [Write(0, 4, 3, "new", topic=name), Write(0, 5, 4, "new", topic=name)]
        destination.commit(commit_of(place, destination.ledger()[1], newer, rule))
        ledger = destination.ledger()[1]
        destination.commit(Commit("b" * 32, "tweets", transitions.backfill(ledger, where, Range(0, 4)), kind="backfill"))
        ledger = destination.ledger()[1]
        late = [Write(0, at, at, f"backfill {at}", topic=name) for at in range(4)]
        done = destination.commit(commit_of(place, ledger, late, rule, lanes=[ledger.of(where)[0]])).commit.totals
        found = {key: row[0] for key, row in contents(place).items()}
        assert found == {0: "backfill 0", 1: "backfill 1", 2: "backfill 2", 3: "new", 4: "new"}
        assert (done.inserted, done.updated, done.ignored) == (0, 3, 1) and proof(destination, multi_topic=named).ok
