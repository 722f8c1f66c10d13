"""Definitions that two statements, or a statement and a rebuild, change at the same time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import to_yaml
from kpipe.errors import InvalidStatement
from kpipe.rebuild.definitions import rebuilding, renamed
from kpipe.sql.statements import Alter, Create, Drop, SetField, StartMany
from kpipe_assets import validation
from kpipe_assets.runs import rebuilt
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.statements import definitions, seek, start_stop
from kpipe_assets.statements.execute import Session
from resources.home import Home

FIELDS: dict[str, Any] = {
    "name": "orders", "source": {"brokers": "127.0.0.1:1", "topic": "orders"}, "columns": {"id": "BIGINT"},
    "into": {"table": "orders"},
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr(seek, "validate", lambda *_, **__: [])  # no broker is running
    made = Home.at(tmp_path / "home")
    made.save(Pipeline.model_validate(FIELDS))
    return made


def set_interval(value: int) -> Alter:
    return Alter("orders", (SetField(("batch", "interval_ms"), value),))


def test_of_two_alters_at_once_one_is_refused_and_none_is_lost(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile(*_: object, **__: object) -> list[str]:
        monkeypatch.setattr(seek, "validate", lambda *_, **__: [])
        seek.alter(home, Alter("orders", (SetField(("batch", "max_retries"), 7),)))
        return []

    monkeypatch.setattr(seek, "validate", meanwhile)
    with pytest.raises(InvalidStatement, match=r"orders was changed at the same time.*repeat the statement"):
        seek.alter(home, set_interval(9))
    assert home.pipeline("orders").batch.max_retries == 7
    seek.alter(home, set_interval(9))
    assert (home.pipeline("orders").batch.max_retries, home.pipeline("orders").batch.interval_ms) == (7, 9)


def test_a_replaced_definition_outlives_an_exchange_that_was_interrupted(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exchange is completed first; else the next run would do that, and write the rebuilt definition over this one."""
    live = home.pipeline("orders")
    pending = [live.model_copy(update={"where": "id > 1"})]
    monkeypatch.setattr(validation, "validate_case", lambda *_: [])
    monkeypatch.setattr(rebuilt, "finish", lambda home, _: home.save(pending.pop()) if pending else None)
    wanted = live.model_copy(update={"where": "id > 2"})
    definitions.create(home, Create(wanted, or_replace=True))
    rebuilt.finish(home, "orders")
    assert home.pipeline("orders") == wanted


@pytest.mark.parametrize("other", ["dropped", "created"])
def test_a_pipeline_that_appears_or_goes_meanwhile(home: Home, other: str) -> None:
    before = home.pipeline("orders")
    if other == "dropped":
        home.remove("orders")
    with (
        pytest.raises(InvalidStatement, match="at the same time"),
        definitions.changing(home, before if other == "dropped" else None, before),
    ):
        pass
    assert ("orders" in home.names()) == (other == "created")


@pytest.mark.parametrize("exchange", ["", "x"])
def test_a_pipeline_whose_rebuild_has_begun_is_not_dropped(home: Home, exchange: str) -> None:
    """Its record would exchange the tables of the next pipeline of that name."""
    live = home.pipeline("orders")
    home.save(rebuilding(live, "earliest"))
    rebuilt.Rebuild(to_yaml(live), to_yaml(live), exchange).save(home, "orders")
    with SensorStates(home) as states:
        with pytest.raises(InvalidStatement, match=r"its rebuild has begun.*--cancel.*DROP PIPELINE orders_rebuild"):
            definitions.drop(home, states, Drop("orders", if_exists=False))
        definitions.drop(home, states, Drop("orders_rebuild", if_exists=False))
        assert (rebuilt.load(home, "orders") is None) == (not exchange)  # it may be committed
        definitions.drop(home, states, Drop("orders", if_exists=False))
    assert home.names() == () and rebuilt.load(home, "orders") is None


def test_a_drop_that_is_rejected_does_not_stop_the_pipeline(home: Home) -> None:
    live = home.pipeline("orders")
    home.save(rebuilding(live, "earliest"))
    rebuilt.Rebuild(live.to_dict(), live.to_dict(), "").save(home, "orders")
    with Session(home) as session, SensorStates(home) as states:
        states.turn("orders", on=True)
        with pytest.raises(InvalidStatement, match="its rebuild has begun"):
            list(session.execute(Drop("orders", if_exists=False)))
        assert states.on() == {"orders"}
        list(session.execute(Drop("orders_rebuild", if_exists=False)))
        list(session.execute(Drop("orders", if_exists=False)))
        assert states.on() == frozenset() and home.names() == ()


def test_start_all_leaves_the_pipeline_of_a_replaced_table(home: Home) -> None:
    home.save(renamed(home.pipeline("orders")))
    home.save(Pipeline.model_validate({**FIELDS, "name": "mine_replaced", "into": {"table": "mine"}}))
    home.save(Pipeline.model_validate({**FIELDS, "name": "other_replaced", "into": {"table": "other"}}))
    home.keep("orders", "replaced", {"old": "a", "uid": "b", "seq": 1})
    home.keep("other", "replaced", {"old": "c", "uid": "d", "seq": 1})  # its table was dropped since
    home.seen("orders_replaced").note("a", 1)
    with SensorStates(home) as states:
        rows = dict(start_stop.start_many(home, states, StartMany(failed=False)).rows)
        assert rows["orders_replaced"].startswith("has a replaced table: only START PIPELINE orders_replaced")
        assert states.on() == {"orders", "mine_replaced", "other_replaced"}


def test_an_edit_keeps_the_templates_of_other_fields(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The values of the process that executes the statement would replace those of the process that loads the table."""
    file = home.pipelines / "orders.yaml"
    template = "{{ env('B', 'x:1') }}"
    text = (
        file.read_text().replace("127.0.0.1:1", f'"{template}"').replace("table: orders", "table: \"{{ env('T', 'orders') }}\"")
    )
    file.write_text(text)
    seek.alter(home, set_interval(9))
    assert template in file.read_text() and "{{ env('T', 'orders') }}" in file.read_text()
    monkeypatch.setenv("B", "prod:9092")
    monkeypatch.setenv("T", "orders_prod")
    seek.alter(home, set_interval(10))
    live = home.pipeline("orders")
    assert (live.source.brokers, live.into.table, live.batch.interval_ms) == ("prod:9092", "orders_prod", 10)
    monkeypatch.delenv("B")
    seek.alter(home, set_interval(11))
    assert template in file.read_text() and "prod" not in file.read_text()


def test_a_field_that_is_given_another_value_loses_its_template(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home.pipelines / "orders.yaml"
    file.write_text(file.read_text().replace("127.0.0.1:1", "\"{{ env('B', 'x:1') }}\""))
    live = home.pipeline("orders")
    monkeypatch.setattr(validation, "validate_case", lambda *_: [])
    other = live.model_copy(update={"source": live.source.model_copy(update={"brokers": "y:1"})})
    definitions.create(home, Create(live.model_copy(update={"where": "id > 1"}), or_replace=True))
    assert "{{ env('B', 'x:1') }}" in file.read_text()
    definitions.create(home, Create(other, or_replace=True))
    assert "{{" not in file.read_text() and home.pipeline("orders") == other


def test_an_edit_between_two_environments_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home.pipelines / "orders.yaml"
    file.write_text(file.read_text().replace("127.0.0.1:1", "\"{{ env('B', 'x:1') }}\""))
    before, text = home.pipeline("orders"), file.read_text()
    monkeypatch.setenv("B", "y:1")
    with pytest.raises(InvalidStatement, match="at the same time"), definitions.changing(home, before, before):
        pass
    assert file.read_text() == text
