"""The commit of given offsets, against a model that keeps every offset of every commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from kpipe.batch.counts import Counts
from kpipe.offsets import Range, RangeSet
from kpipe.provenance.as_of import Content, content_at, find, first_covering
from kpipe.topics import PartitionId, TopicId
from kpipe.verification.recount import Entry

SOURCES = [PartitionId(TopicId("c", "t", "web"), number) for number in (0, 1)]
A, B = SOURCES


def entry(seq: int, start: int, end: int, source: PartitionId = A, kind: str = "batch", table: str = "t") -> Entry:
    return Entry(
        f"b{seq}", source, Range(start, end), Counts(), reread=kind == "reread", cleared=kind == "clear", table=table, seq=seq
    )


def ranges(found: Mapping[PartitionId, RangeSet], source: PartitionId = A) -> list[str]:
    return [str(item) for item in found.get(source, ())]


def test_a_commit_that_ends_there_is_exact() -> None:
    history = [entry(2, 0, 5), entry(3, 5, 9), entry(3, 0, 4, B), entry(5, 9, 12)]
    found = find(history, {A: 9}, {A: 0})
    assert (found.content.seq, found.content.batch, found.exact) == (3, "b3", True)
    assert ranges(found.content.ranges, B) == ["[0, 4)"], "partitions that are not named are listed"
    assert find(history, {A: 9, B: 4}, {A: 0, B: 0}).exact
    late = find(history, {A: 12, B: 3}, {A: 0, B: 0})
    assert (late.content.seq, late.exact) == (2, False), "commit 3 has offset 3 of B"
    assert ranges(late.missing) == ["[5, 12)"] and ranges(late.missing, B) == ["[0, 3)"]


def test_between_two_commits_the_missing_offsets_are_listed() -> None:
    history = [entry(2, 3, 5), entry(4, 5, 9)]
    found = find(history, {A: 7}, {A: 3})
    assert (found.content.seq, ranges(found.missing), ranges(found.beyond), found.exact) == (2, ["[5, 7)"], [], False)
    cover = first_covering(history, {A: 7}, {A: 3})
    assert cover is not None and (cover.content.seq, ranges(cover.beyond)) == (4, ["[7, 9)"])
    before = find(history, {A: 4}, {A: 3})
    assert (before.content, before.exact, ranges(before.missing)) == (Content(), False, ["[3, 4)"])
    assert first_covering(history, {A: 10}, {A: 3}) is None
    beyond = find(history, {A: 20}, {A: 3})
    assert (beyond.content.seq, ranges(beyond.missing)) == (4, ["[9, 20)"])


def test_a_reread_does_not_take_rows_out() -> None:
    history = [entry(2, 0, 5), entry(3, 0, 5, kind="reread"), entry(4, 0, 3), entry(5, 3, 8)]
    found = find(history, {A: 5}, {A: 0})
    assert (found.content.seq, found.exact) == (2, True), "later, offsets 0 to 2 are in twice"
    again = find(history, {A: 8}, {A: 0})
    assert (again.content.seq, again.exact, ranges(again.repeated)) == (5, False, ["[0, 5)"])


def test_a_clearing_takes_all_ranges_of_its_table_out() -> None:
    history = [entry(2, 0, 5), entry(2, 0, 2, B), entry(3, 0, 0, kind="clear", table="T"), entry(4, 0, 2)]
    assert ranges(content_at(history, 3).ranges) == [] and ranges(content_at(history, 3).ranges, B) == ["[0, 2)"]
    assert find(history, {A: 5}, {A: 0}).content.seq == 2
    assert find(history, {A: 2}, {A: 0}).exact and find(history, {A: 2}, {A: 0}).content.seq == 4


steps = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 9), st.integers(0, 5), st.sampled_from(["batch"] * 5 + ["reread", "clear"]),
        st.sampled_from(["t", "t", "u"]), st.booleans(),
    ),
    max_size=10,
)  # fmt: skip


def history_of(items: Sequence[tuple[int, int, int, str, str, bool]]) -> list[Entry]:
    result, seq = [], 0
    for number, start, length, kind, table, same in items:
        seq += not same or not seq
        result.append(entry(seq, start, start + length, SOURCES[number], kind, table))
    return result


def modeled(history: Sequence[Entry]) -> dict[int, Counter[tuple[PartitionId, int, str]]]:
    """How often each offset is in each table after each commit."""
    states: dict[int, Counter[tuple[PartitionId, int, str]]] = {0: Counter()}
    now: Counter[tuple[PartitionId, int, str]] = Counter()
    for item in history:
        if item.cleared:
            now = Counter({key: n for key, n in now.items() if (key[0], key[2]) != (item.source, item.table)})
        elif not item.reread:
            now = now + Counter((item.source, offset, item.table) for offset in range(item.range.start, item.range.end))
        states[item.seq] = Counter(now)
    return states


@given(steps, st.integers(0, 14), st.one_of(st.none(), st.integers(0, 14)))
def test_as_the_model(items: list[tuple[int, int, int, str, str, bool]], first: int, second: int | None) -> None:
    history = history_of(items)
    states = modeled(history)
    wanted = {A: first} | ({} if second is None else {B: second})

    def of(state: Counter[tuple[PartitionId, int, str]], source: PartitionId) -> Counter[int]:
        found: Counter[int] = Counter()
        for (where, offset, _), n in state.items():
            if where == source:
                found[offset] += n
        return found

    for seq, state in states.items():
        content = content_at(history, seq)
        for source in SOURCES:
            offsets = {offset for item in content.ranges.get(source, ()) for offset in range(item.start, item.end)}
            again = {offset for item in content.repeated.get(source, ()) for offset in range(item.start, item.end)}
            assert offsets == set(of(state, source)) and again == {offset for offset, n in of(state, source).items() if n > 1}
    scores = {
        seq: (
            sum(offset < to for source, to in wanted.items() for offset in of(state, source)),
            -sum(offset < to and n > 1 for source, to in wanted.items() for offset, n in of(state, source).items()),
            seq,
        )
        for seq, state in states.items()
        if not seq or any(item.seq == seq and not item.reread for item in history)
        if not any(offset >= to for source, to in wanted.items() for offset in of(state, source))
    }
    found = find(history, wanted, {A: 0, B: 0})
    assert found.content.seq == max(scores, key=scores.__getitem__)
    state = states[found.content.seq]
    assert found.exact == all(of(state, source) == Counter(range(to)) for source, to in wanted.items())
    covering = [seq for seq, state in states.items() if seq and all({*range(to)} <= {*of(state, s)} for s, to in wanted.items())]
    cover = first_covering(history, wanted, {A: 0, B: 0})
    assert (cover.content.seq if cover else None) == min(covering, default=None)
