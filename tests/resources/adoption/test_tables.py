"""Positions in tables: highest offsets, txn actions of Delta, and which planned batch a table contains."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from kpipe.topics import PartitionId, TopicId
from resources.adoption.delta_transactions import delta_transactions, last_transaction
from resources.adoption.planned_batch import compared
from resources.adoption.sources import Loader, read
from resources.adoption.streaming_checkpoint import Batches
from resources.adoption.table_offsets import TableColumns, table_offsets
from resources.audit.table_address import TableAddress

NONE = TableColumns()


def sources(*topics: str, partitions: int = 2) -> list[PartitionId]:
    return [PartitionId(TopicId("c", "i", topic), number) for topic in topics for number in range(partitions)]


def parquet(folder: Path, rows: list[tuple[str, int, int | None]]) -> TableAddress:
    folder.mkdir(parents=True, exist_ok=True)
    topics, partitions, offsets = zip(*rows, strict=True) if rows else ((), (), ())
    block = {"topic": pa.array(topics, pa.string()), "partition": pa.array(partitions, pa.int32())}
    pq.write_table(pa.table({**block, "offset": pa.array(offsets, pa.int64())}), folder / "a.parquet")
    return TableAddress("parquet", str(folder))


def test_the_position_is_the_highest_offset_plus_one(tmp_path: Path) -> None:
    rows: list[tuple[str, int, int | None]] = [("web", 0, at) for at in (2, 0, 1)]
    rows += [("web", 1, 7), ("web", 1, 9), ("shop", 0, 40), ("web", 0, None)]
    found = table_offsets(parquet(tmp_path, rows), NONE, sources("web"))
    assert found.offsets == {("web", 0): 3, ("web", 1): 10}
    assert any("offsets [7, 10): expected 3 rows, found 2: rows are missing" in note for note in found.notes)
    assert any("1 rows identify no record" in note for note in found.notes)
    both = table_offsets(parquet(tmp_path, rows), NONE, sources("web", "shop"))
    assert both.offsets == {("web", 0): 3, ("web", 1): 10, ("shop", 0): 41}


def test_duplicates_are_noted(tmp_path: Path) -> None:
    found = table_offsets(parquet(tmp_path, [("web", 0, 0), ("web", 0, 0), ("web", 0, 1)]), NONE, sources("web"))
    assert any("expected 2 rows, found 3: offsets have more than one row" in note for note in found.notes)


def test_an_empty_table_gives_no_position(tmp_path: Path) -> None:
    assert table_offsets(parquet(tmp_path, []), NONE, sources("web")).offsets == {}


def test_several_topics_need_a_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"partition": [0], "offset": [1]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidPipeline, match="no column of topics"):
        table_offsets(TableAddress("parquet", str(tmp_path)), NONE, sources("web", "shop"))
    with pytest.raises(InvalidPipeline, match="--topic-value: the pipeline has 2 topics"):
        table_offsets(parquet(tmp_path, [("w", 0, 1)]), TableColumns(topic_value="w"), sources("web", "shop"))


def delta(folder: Path, **versions: int) -> TableAddress:
    """A table with `txn` actions; `_` in their names stands for `-`."""
    deltalake = pytest.importorskip("deltalake")
    actions = [deltalake.Transaction(name.replace("_", "-"), version) for name, version in versions.items()]
    said = deltalake.CommitProperties(app_transactions=actions)
    deltalake.write_deltalake(str(folder), pa.table({"id": [1]}), commit_properties=said)
    return TableAddress("delta", str(folder))


def test_txn_actions_of_a_loader_name_the_last_offset(tmp_path: Path) -> None:
    address = delta(tmp_path, loader_0=41, other_0=-5, query=7)
    found = delta_transactions("loader", address, sources("web"))
    assert found.offsets == {("web", 0): 42}
    with pytest.raises(InvalidPipeline, match=r"Structured Streaming's actions contain no offsets"):
        delta_transactions("query", address, sources("web"))
    with pytest.raises(InvalidPipeline, match="txn action other-0: version -5 is not an offset"):
        delta_transactions("other", address, sources("web"))
    with pytest.raises(InvalidPipeline, match="the pipeline has 2"):
        delta_transactions("loader", address, sources("web", "shop"))
    with pytest.raises(InvalidPipeline, match="expected --type delta"):
        delta_transactions("loader", TableAddress("parquet", str(tmp_path)), sources("web"))


PLANNED = Batches("query", 3, {("web", 0): 5, ("web", 1): 8}, 4, {("web", 0): 9, ("web", 1): 8})


AHEAD = "has batch 5 of the query, the checkpoint ends at batch 4: it is an older copy, or the query still runs"
BEHIND = "ends at batch 2 of the query, the checkpoint has committed batch 3: the table was restored"


@pytest.mark.parametrize(("version", "included", "problem"), [(3, False, ""), (4, True, ""), (2, None, BEHIND), (5, None, AHEAD)])
def test_the_sinks_own_log_decides_in_delta(tmp_path: Path, version: int, included: bool | None, problem: str) -> None:
    address = delta(tmp_path, query=version)
    assert last_transaction("query", address) == version
    found, why = compared(PLANNED, address, NONE, sources("web"))
    assert found is included and problem in why and bool(why) is bool(problem)


def test_without_the_querys_action_a_table_without_offsets_does_not_decide(tmp_path: Path) -> None:
    assert compared(PLANNED, delta(tmp_path, other=9), NONE, sources("web")) == (None, "")
    assert compared(PLANNED, delta(tmp_path / "b", other=9), NONE, sources("web"), True) == (True, "")


def file_sink(folder: Path, *names: str) -> TableAddress:
    (folder / "_spark_metadata").mkdir(parents=True)
    for name in names:
        (folder / "_spark_metadata" / name).write_text("v1\n")
    return TableAddress("parquet", str(folder))


@pytest.mark.parametrize(
    ("names", "included", "problem"),
    [
        (("0", "3"), False, ""),
        (("2.compact", "3", "4"), True, ""),
        (("4", "5"), None, AHEAD),
        (("0", "1.compact", "2"), None, BEHIND),
        ((), None, "has no batch of the query, the checkpoint has committed batch 3"),
    ],
)
def test_the_sinks_own_log_decides_in_files(tmp_path: Path, names: tuple[str, ...], included: bool | None, problem: str) -> None:
    found, why = compared(PLANNED, file_sink(tmp_path, *names), NONE, sources("web"))
    assert found is included and problem in why and bool(why) is bool(problem)


@pytest.mark.parametrize(
    ("committed", "last", "problem"),
    [
        (-1, "0", "has batch 0 of the query, the checkpoint has no batch"),
        (3, "3", ""),
        (3, "4", "has batch 4 of the query, the checkpoint ends at batch 3"),
        (3, "2", BEHIND),
    ],
)
def test_the_log_is_compared_without_a_planned_batch(tmp_path: Path, committed: int, last: str, problem: str) -> None:
    _, why = compared(Batches("query", committed, {("web", 0): 5}), file_sink(tmp_path, last), NONE, sources("web"))
    assert problem in why and bool(why) is bool(problem)


@pytest.mark.parametrize("stated", [None, True, False])
@pytest.mark.parametrize("planned", [True, False])
def test_a_checkpoint_behind_the_log_gives_a_problem(tmp_path: Path, planned: bool, stated: bool | None) -> None:
    folder = tmp_path / "checkpoint"
    for name in ("offsets/0", "commits/0", *(["offsets/1"] if planned else [])):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('v1\n{}\n{"web": {"0": 5}}')
    pipeline = Pipeline.model_validate(
        {"name": "p", "source": {"brokers": "b", "topic": "web"}, "into": {"type": "duckdb", "table": "t"}}
    )
    table = file_sink(tmp_path / "landed", "0", "1", "2")
    found = read(f"checkpoint:{folder}", Loader(pipeline, sources("web"), table, included=stated))
    (problem,) = found.problems
    assert f"has batch 2 of the query, the checkpoint ends at batch {int(planned)}" in problem


@pytest.mark.parametrize("stated", [True, False])
def test_an_operator_does_not_override_the_log(tmp_path: Path, stated: bool) -> None:
    for last in range(2, 6):
        found, why = compared(PLANNED, file_sink(tmp_path / str(last), str(last)), NONE, sources("web"), stated)
        right = last == (4 if stated else 3)
        assert (found is stated) is right and bool(why) is not right
        if last in (3, 4) and not right:
            assert f"ends at batch {last} of the query, which contradicts --planned-batch" in why


@pytest.mark.parametrize(("highest", "included"), [(8, True), (4, False), (3, False), (6, None)])
def test_the_highest_offsets_decide_elsewhere(tmp_path: Path, highest: int, included: bool | None) -> None:
    address = parquet(tmp_path, [("web", 0, at) for at in range(highest + 1)])
    assert compared(PLANNED, address, NONE, sources("web")) == (included, "")
