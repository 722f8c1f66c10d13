"""Asset checks of a table: complete, published, lag, schema and dead letters."""

from __future__ import annotations

import dagster as dg
import pytest

from kpipe.adoption.judge import judge
from kpipe.adoption.positions import Positions
from kpipe.planning.seek import set_offsets
from kpipe.run_events import ledger_only
from kpipe.testing.memory import MemoryDestination
from kpipe.testing.memory_store import MemoryStore
from kpipe_assets.assets.table_checks import Bounds, table_checks
from kpipe_assets.publishing.publisher import Publisher
from tests.kpipe_assets.fakes import KEY, World, _ingest_without_dagster


def check(world: World, bounds: Bounds = Bounds()) -> dict[str, dg.AssetCheckEvaluation]:  # noqa: B008
    checks = table_checks(world.pipeline, world.home, bounds)
    result = dg.materialize(
        [checks],
        resources=world.resources,
        instance=world.instance,
        raise_on_error=False,
        selection=dg.AssetSelection.all_asset_checks(),
    )
    return {item.check_name: item for item in result.get_asset_check_evaluations()}


def test_all_checks_pass_on_a_good_table(world: World) -> None:
    world.run()
    found = check(world)
    assert set(found) == {"complete", "published", "lag", "schema", "dead_letters"}
    assert all(item.passed for item in found.values()), {name: item.description for name, item in found.items()}
    table = found["complete"].metadata["kpipe/partitions"].value
    assert [record.data["rows_found"] for record in table.records] == [4, 4, 4]


def test_complete_fails_when_a_row_is_gone(world: World) -> None:
    world.run()
    world.store.tables["tweets"].rows.pop()
    item = check(world)["complete"]
    assert not item.passed and item.severity == dg.AssetCheckSeverity.ERROR
    assert "expected 4 rows, found 3 in the table" in (item.description or "")


def test_complete_names_the_offsets_of_another_loader(world: World) -> None:
    adoption = judge(Positions("group old", {("tweets", 0): 3}), world.topics.snapshot())
    world.destination.commit(ledger_only("tweets", "adopt", adoption.changes, adoption.note, (), "adopt", ""))
    world.run()
    item = check(world)["complete"]
    assert item.passed, item.description
    assert "; adopted, not counted: tweets/0 [0, 3)" in (item.description or "")
    assert item.metadata["kpipe/adopted"].value == "tweets/0 [0, 3)"


def test_published_fails_when_dagster_lacks_what_was_marked_as_shown(world: World) -> None:
    list(_ingest_without_dagster(world))
    assert check(world)["published"].passed, "what waits is no fault"
    world.destination.published(world.destination.unpublished())
    item = check(world)["published"]
    assert not item.passed and "is marked as published" in (item.description or "")


def test_published_passes_after_a_decision_to_read_offsets_again(world: World) -> None:
    """The decision records ranges, but nothing to publish."""
    world.run()
    (source, *_), ledger = sorted(world.topics.snapshot().partitions), world.destination.ledger()[1]
    (decision,) = set_offsets(ledger, world.topics.snapshot(), {source: 1}, reread=True)
    commit = ledger_only("tweets", decision.kind, decision.changes, decision.note, decision.steps, "sql", "")
    assert commit.steps and not commit.metadata
    world.destination.commit(commit)
    item = check(world)["published"]
    assert item.passed, item.description
    world.run()
    item = check(world)["published"]
    assert item.passed, item.description


@pytest.mark.parametrize("read", ["unpublished", "view"])
@pytest.mark.parametrize("publishes", [False, True])
def test_published_passes_while_a_successor_commits(
    world: World, monkeypatch: pytest.MonkeyPatch, read: str, publishes: bool
) -> None:
    world.run()
    real, left = getattr(MemoryDestination, read), [1]

    def racing(self: MemoryDestination, *arguments: object) -> object:
        found = real(self, *arguments)
        if left and arguments[:1] in ((), ("batches",)):
            left.clear()
            world.topics.produce(0, {"id": 99})
            list(_ingest_without_dagster(world))
            if publishes:
                assert Publisher(world.instance, KEY, world.destination, world.home, "tweets").publish()
        return found

    monkeypatch.setattr(MemoryDestination, read, racing)
    found = check(world)["published"]
    assert not left and found.passed, found.description


def edited(world: World, group: str, **fields: object) -> None:
    whole = world.pipeline.to_dict()
    source = {key: value for key, value in whole["source"].items() if key != "topic"} if "topics" in fields else whole["source"]
    changed = {**(source if group == "source" else whole["into"]), **fields}
    world.pipeline = type(world.pipeline).model_validate({**whole, "source": source, group: changed})


def test_published_passes_after_an_edit_of_the_table(world: World) -> None:
    """What was committed before was published for the asset of the former table."""
    world.run()
    edited(world, "into", table="other")
    assert check(world)["published"].passed
    world.topics.produce(1, {"id": 1})
    list(_ingest_without_dagster(world))
    world.destination.published(world.destination.unpublished())
    item = check(world)["published"]
    assert not item.passed and "partition 1: commit" in (item.description or "") and "partition 0" not in (item.description or "")


def test_published_passes_after_an_edit_of_topic_to_topics(world: World) -> None:
    world.run()
    edited(world, "source", topics=["tweets", "more"])
    item = check(world)["published"]
    assert item.passed, item.description


def test_lag_fails_above_its_bound_and_when_an_operator_is_needed(world: World) -> None:
    world.run()
    world.topics.produce(2, *({"id": n} for n in range(9)))
    item = check(world, Bounds(lag=5))["lag"]
    assert not item.passed and item.severity == dg.AssetCheckSeverity.WARN and "9 offsets behind" in (item.description or "")
    world.topics.recreate(3)
    item = check(world)["lag"]
    assert not item.passed and item.severity == dg.AssetCheckSeverity.ERROR and "was recreated" in (item.description or "")


def test_schema_fails_when_a_declared_column_is_missing(world: World) -> None:
    world.run()
    world.pipeline = world.pipeline.model_copy(update={"columns": {"id": "BIGINT", "extra": "DATE"}})
    item = check(world)["schema"]
    assert not item.passed and "column extra: expected DATE, found no such column" in (item.description or "")


def test_dead_letters_fail_above_their_share(world: World) -> None:
    world.run()
    item = check(world, Bounds(dead_letters=-1.0))["dead_letters"]
    assert not item.passed and item.severity == dg.AssetCheckSeverity.WARN


def test_checks_fail_when_the_ledger_is_not_the_one_that_the_home_has_seen(world: World) -> None:
    world.run()
    seen, kept = world.home.seen("tweets"), world.store
    uid, seq = seen.uid, seen.seq
    seen.note(uid, seq + 1)  # a backup was restored
    found = check(world)
    for name in ("complete", "published", "lag"):
        assert not found[name].passed and "is too old: expected commit" in (found[name].description or ""), name
    seen.note(uid, seq)
    world.store = MemoryStore()
    found = check(world)
    for name in ("complete", "published", "lag"):
        assert not found[name].passed and "is missing" in (found[name].description or ""), name
    world.store = kept
    assert all(item.passed for item in check(world).values())
