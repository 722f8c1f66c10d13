"""Templates in the definitions of a rebuild: their values, which may be secrets, are written nowhere, and the templates stay."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import from_yaml
from kpipe.errors import InvalidPipeline
from kpipe.rebuild.definitions import rebuilding
from kpipe_assets.rebuild import steps
from kpipe_assets.runs import rebuilt
from resources.home import Home

LIVE = """\
type: kpipe_assets.KafkaPipeline
attributes:
  name: orders
  source: {brokers: "{{ env('B') }}", topic: orders, group: "{{ env('G', 'loader') }}"}
  lookups: {rates: {url: "https://h/r.csv?token={{ env('T') }}", key: id}}
  columns: {id: BIGINT}
  into: {table: "{{ env('TABLE', 'orders') }}"}
"""
NEW = LIVE.replace("id: BIGINT", "id: BIGINT, twice: BIGINT").replace("into:", "where: \"id > {{ env('FROM') }}\"\n  into:")
TEMPLATES = ("{{ env('B') }}", "token={{ env('T') }}")


class Destination:
    """Every exchange is committed at once."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._name = pipeline.name

    def exchanged(self, id: str) -> bool:
        return True

    def ledger(self) -> tuple[str, Any]:
        return f"of {self._name}", SimpleNamespace(seq=3, age=3)

    def pass_over(self, *_: Any) -> None:
        return None

    check_exchange = check_rebuild = exchange = discard = differences = pass_over


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name, value in {"B": "canary-broker:9092", "T": "canary-token", "FROM": "777"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(steps, "validate", lambda *_: [])
    monkeypatch.setattr(steps, "_exchanging", lambda live, _: Destination(live))
    monkeypatch.setattr(rebuilt, "open_destination", lambda pipeline, _: Destination(pipeline))
    made = Home.at(tmp_path / "home").make()
    (made.pipelines / "orders.yaml").write_text(LIVE)
    return made


def exchanged(home: Home) -> None:
    found = rebuilt.load(home, "orders")
    assert found is not None
    rebuilt.Rebuild(found.old, found.new, "id").save(home, "orders")
    assert rebuilt.finish(home, "orders") == home.pipeline("orders")


def has_no_value(home: Home) -> bool:
    files = [path for path in home.path.rglob("*") if path.is_file()]
    assert [path for path in files if b"canary" in path.read_bytes()] == []
    return True


@pytest.mark.parametrize("file", [True, False])
def test_no_file_of_the_home_has_the_value_of_a_template(home: Home, file: bool) -> None:
    before = home.pipeline("orders")
    new, document = (from_yaml(NEW), NEW) if file else (None, "")
    shadow = steps.begin(home, "orders", new, document=document)
    assert home.pipeline("orders_rebuild") == shadow and has_no_value(home)
    (home.pipelines / "orders_rebuild.yaml").unlink()  # killed before it was written
    assert steps.begin(home, "orders", None) == shadow and has_no_value(home)
    exchanged(home)
    assert has_no_value(home)
    assert home.pipeline("orders") == (before if new is None else new)
    texts = {name: home.document(name) for name in ("orders", "orders_replaced")}
    assert all(template in text for template in TEMPLATES for text in texts.values())
    assert ("id > {{ env('FROM') }}" in texts["orders"]) == file and "FROM" not in texts["orders_replaced"]


def test_the_values_are_those_of_the_process_that_reads_them(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.begin(home, "orders", from_yaml(NEW), document=NEW)
    monkeypatch.setenv("B", "other:9092")
    assert steps.begin(home, "orders", None).source.brokers == "other:9092"
    old = home.pipeline("orders")
    exchanged(home)
    monkeypatch.setenv("B", "third:9092")
    outdated = old.model_copy(update={"source": old.source.model_copy(update={"brokers": "third:9092"})})
    assert home.pipeline("orders").source.brokers == "third:9092"
    assert rebuilt.is_outdated(home, outdated, "of orders") and not rebuilt.is_outdated(home, old, "of orders")
    monkeypatch.delenv("B")
    assert not rebuilt.is_outdated(home, outdated, "of orders"), "a process without the variable has not read it"


def test_a_variable_that_is_not_set_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.begin(home, "orders", from_yaml(NEW), document=NEW)
    monkeypatch.delenv("FROM")
    with pytest.raises(InvalidPipeline, match=r"stored definition of the rebuild:\d+: where: .*FROM is not set"):
        exchanged(home)


def test_records_of_an_older_kpipe_are_read(home: Home) -> None:
    """They contain fields with the values of templates; the document of the pipeline has the templates."""
    live, new = home.pipeline("orders"), from_yaml(NEW)
    home.save(rebuilding(new, "earliest"))
    home.keep("orders", "rebuild", {"old": live.to_dict(), "new": new.to_dict(), "exchange": ""})
    assert steps.begin(home, "orders", None) == home.pipeline("orders_rebuild")
    exchanged(home)
    assert home.pipeline("orders") == new and has_no_value(home)
    assert all(template in home.document(name) for template in TEMPLATES for name in ("orders", "orders_replaced"))
    record = json.loads((home.state / "orders.replaced.json").read_text())
    home.keep("orders", "replaced", {**record, "definition": live.to_dict()})
    assert rebuilt.is_outdated(home, live, "of orders") and not rebuilt.is_outdated(home, new, "of orders")
