"""A real Prometheus scrapes kpipe, loads the alert rules of deploy/ and answers the queries of the dashboard."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import yaml
from starlette.responses import PlainTextResponse

from kpipe_assets.dagster_server.access import Access
from kpipe_assets.dagster_server.access_rules import Rules
from kpipe_assets.metrics import endpoint
from kpipe_assets.metrics.endpoint import with_metrics
from kpipe_assets.metrics.families import FAMILIES
from resources.kafka.record_times import RecordTimes
from tests.kpipe_assets.metrics.test_exposition import Brokers, World
from tests.patience import looks
from tests.servers.prometheus import PrometheusServer, promtool

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "kpipe.rules.yml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "kpipe.json").read_text())
TOKEN = "canary-31ab"


def queries() -> list[str]:
    """The dashboard's queries, as Grafana would send them for all pipelines."""
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return [text.replace("$pipeline", ".*").replace("$__rate_interval", "1m") for text in found]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_every_metric_that_rules_and_dashboard_name_exists() -> None:
    known = {family.name for family in FAMILIES} | {rule["record"] for rule in rules() if "record" in rule}
    named = [*queries(), *(rule["expr"] for rule in rules())]
    used = {name for text in named for name in re.findall(r"(?:pipeline:)?kpipe_\w+(?::\w+)?", text)}
    assert used <= known, used - known
    assert len(used) > 20


def test_promtool_accepts_configuration_and_rules(tmp_path: Path) -> None:
    assert "SUCCESS" in promtool("check", "rules", str(RULES))
    configuration = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (tmp_path / "token").write_text(TOKEN)
    configuration["scrape_configs"][0]["authorization"]["credentials_file"] = str(tmp_path / "token")
    configuration["rule_files"] = [str(RULES)]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    assert "SUCCESS" in promtool("check", "config", str(tmp_path / "prometheus.yml"))


def test_each_alert_has_series_that_raise_it() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(RULES.with_name("kpipe.rules.test.yml")))
    text = RULES.with_name("kpipe.rules.test.yml").read_text()
    raised = {
        case["alertname"]
        for test in yaml.safe_load(text)["tests"]
        for case in test.get("alert_rule_test", ())
        if case["exp_alerts"]
    }
    assert raised == {rule["alert"] for rule in rules() if "alert" in rule}


def test_promtool_finds_no_fault_in_the_names(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.commit({0: 10, 1: 4})
    text = world.exporter().render()[0].decode()
    assert promtool("check", "metrics", stdin=text).strip() == ""


@pytest.fixture
def scraped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, int]]:
    """A server with kpipe's access rules and metrics, and its port."""
    world = World(tmp_path)
    world.add("broken")
    (world.home.pipelines / "broken.yaml").write_text("name: broken")
    exporter = world.exporter()
    monkeypatch.setattr(endpoint, "answer", lambda _, accept: exporter.render(accept))
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    app = Access(with_metrics(PlainTextResponse("dagster"), world.home), Rules("127.0.0.1", port, (), TOKEN))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield world, port
    server.should_exit = True
    thread.join(300)


def eventually(found: Callable[[], Any]) -> Any:
    for _ in looks(300, 0.2):
        if result := found():
            return result
    raise AssertionError("did not happen")


def test_a_real_server_scrapes_evaluates_and_answers_the_dashboard(scraped: tuple[World, int], tmp_path: Path) -> None:
    world, port = scraped
    world.commit({0: 10, 1: 4}, dead=[(0, 3)])
    late = int(time.time() * 1000) - 60_000
    world.brokers = Brokers({0: 90, 1: 4}, {0: RecordTimes(late, late + 1), 1: RecordTimes(late)})
    folder = tmp_path / "prometheus"
    folder.mkdir()
    (folder / "token").write_text(TOKEN)
    configuration = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    configuration["global"] = {"scrape_interval": "3s", "scrape_timeout": "3s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(RULES)]
    configuration["scrape_configs"][0]["authorization"]["credentials_file"] = str(folder / "token")
    configuration["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    with PrometheusServer(folder, configuration) as server:
        eventually(lambda: server.query('kpipe_rows_total{pipeline="tweets",partition="0"} == 9'))
        world.commit({0: 20})
        eventually(lambda: server.query('kpipe_rows_total{pipeline="tweets",partition="0"} == 19'))
        for text in queries():
            assert eventually(lambda text=text: server.query(text)), text
        groups = eventually(lambda: _evaluated(server))
        assert {rule["name"] for rule in groups} == {rule.get("record") or rule["alert"] for rule in rules()}
        assert {rule["health"] for rule in groups} == {"ok"}, groups
        assert eventually(lambda: server.query('kpipe_up{pipeline="broken"} == 0'))
        eventually(lambda: _unreachable(server) == ["broken"])
        eventually(lambda: _target(server) == ("up", ""))


def _unreachable(server: PrometheusServer) -> list[str]:
    """Pipelines of an alert."""
    (pending,) = [rule for rule in _evaluated(server) if rule["name"] == "KpipeLedgerUnreachable"] or [{"alerts": []}]
    return [alert["labels"]["pipeline"] for alert in pending["alerts"]]


def _target(server: PrometheusServer) -> tuple[str, str]:
    """Health and error of the last scrape: one scrape of many may be late."""
    (target,) = server.get("targets")["activeTargets"]
    return target["health"], target["lastError"]


def _evaluated(server: PrometheusServer) -> list[dict[str, Any]]:
    """All rules, once each was evaluated."""
    found = [rule for group in server.get("rules")["groups"] for rule in group["rules"]]
    return found if found and all(rule["health"] != "unknown" for rule in found) else []
