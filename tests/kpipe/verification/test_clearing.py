"""What clearing a table means for ledger and proof: random histories against tables of numbers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kpipe.batch.counts import Counts
from kpipe.ledger import transitions
from kpipe.ledger.ledger import READ, SKIPPED, Lane, LaneChange, Ledger, Step
from kpipe.offsets import Range, RangeSet
from kpipe.topics import PartitionId, TopicId
from kpipe.verification.clearing import CLEARED, take_back
from kpipe.verification.recount import Entry
from kpipe.verification.verify import Recount, TableRecount, audit

SOURCE = PartitionId(TopicId("c", "i", "t"), 0)


class World:
    """One partition, each record a row; two tables, of which one is written at a time."""

    def __init__(self) -> None:
        self.ledger = Ledger("p").after(transitions.begin(SOURCE, 0, 0))
        self.history: list[Entry] = []
        self.tables: dict[str, Counter[int]] = {"a": Counter(), "B": Counter()}
        self.table = "a"

    def read(self, number: int, loose: bool = False) -> None:
        """Read so many offsets of every lane that waits. `loose`: the rows land, and the ledger does not move."""
        for lane in self.ledger.of(SOURCE):
            if lane.finished:
                continue
            end = lane.next + number if lane.end is None else min(lane.end, lane.next + number)
            step = Step(lane, end)
            count = len(step.range)
            counts = Counts(messages=count, rows=count, inserted=count)
            self.history.append(Entry("b", SOURCE, step.range, counts, loose=loose, table=self.table))
            self.tables[self.table].update(range(lane.next, end))
            if not loose:
                self.ledger = self.ledger.after((step.change,))

    def again(self, to: int) -> None:
        """As SET OFFSETS ... REREAD."""
        changes, done = transitions.reread(self.ledger, SOURCE, to)
        self.ledger = self.ledger.after(changes)
        self.history += [Entry("r", SOURCE, item, Counts(), reread=True, table=self.table) for item in done]

    def clear(self, table: str) -> None:
        found = take_back(self.ledger, self.history, [table.lower()])
        rows, self.tables[table] = self.tables[table], Counter()
        if found is None:
            assert not rows
            return
        assert -found.counts.rows == rows.total(), "all rows are taken back"
        assert found.counts.messages == 0, "what was read stays read"
        self.ledger = self.ledger.after(found.changes)
        for name, items in found.parts.items():
            assert name == table and all(step.closed_by == CLEARED for step, _ in items)
            self.history += [Entry("c", SOURCE, step.range, counts, cleared=True, table=name) for step, counts in items]

    def prove(self) -> None:
        number = sum(rows.total() for rows in self.tables.values())
        found = audit(self.ledger, self.history, Recount({"a": TableRecount({0: number}, {0: number})}))
        assert found.ok, (found.problems, self.history, self.ledger.of(SOURCE))
        assert found.span == found.counts.rows == number, "a proof speaks of the rows that are there"
        assert sum(item.counts.rows for item in self.history) == number, "and so does the sum of the history"


@given(
    st.lists(
        st.tuples(st.sampled_from(["read", "loose", "again", "clear a", "clear B", "table"]), st.integers(1, 12)), max_size=12
    )
)
def test_after_any_history_the_proof_is_of_the_rows_that_are_left(steps: list[tuple[str, int]]) -> None:
    world = World()
    for verb, number in steps:
        if verb in ("read", "loose"):
            world.read(number, loose=verb == "loose")
        elif verb == "again":
            live = world.ledger.live(SOURCE)
            if live is not None and number < live.next:
                world.again(number)
        elif verb == "table":
            world.table = "B" if world.table == "a" else "a"
        else:
            world.clear(verb.split()[1])
        world.prove()


def test_lanes_are_cut_where_rows_were_cleared() -> None:
    lanes = [Lane(SOURCE, 0, 4, 4), Lane(SOURCE, 4, 4, 6, SKIPPED), Lane(SOURCE, 6, 20)]
    ledger = Ledger("p").after(LaneChange(None, lane) for lane in lanes)
    after = ledger.after(transitions.clear(ledger, SOURCE, RangeSet((Range(2, 8), Range(10, 30)))))
    assert [(x.start, x.next, x.end, x.kind) for x in after.of(SOURCE)] == [
        (0, 2, 2, READ), (2, 4, 4, SKIPPED), (4, 4, 6, SKIPPED), (6, 8, 8, SKIPPED), (8, 10, 10, READ), (10, 20, 20, SKIPPED),
        (20, 20, None, READ),
    ]  # fmt: skip
    assert after.begun(SOURCE) >= ledger.begun(SOURCE), "a bounded pipeline is still known by where it was begun"
