"""`kpipe audit --key` on the table of a naive loader that forgets, repeats and alters on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import Producer

from tests.commandline import Kpipe
from website.reference.json_output import AUDIT_BY_KEY


@pytest.fixture
def command(tmp_path: Path, brokers: str) -> Kpipe:
    return Kpipe(tmp_path / "home", brokers)


def naive(path: Path, state: dict[int, int]) -> list[str]:
    """Write what a loader has kept: the last amount of each id."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE OR REPLACE TABLE orders (id BIGINT, amount DECIMAL(10,2), loaded TIMESTAMPTZ)")
        if state:
            connection.executemany("INSERT INTO orders VALUES (?, ? / 100.0, now())", [[n, v] for n, v in state.items()])
    return ["--type", "duckdb", "--database", str(path), "--table", "orders"]


@pytest.mark.broker
def test_an_upsert_loader(command: Kpipe, brokers: str, topic: Callable[..., str], tmp_path: Path) -> None:
    name, state = topic(partitions=3), dict[int, int]()
    producer = Producer({"bootstrap.servers": brokers, "transactional.id": f"of-{name}", "transaction.timeout.ms": 600_000})
    producer.init_transactions(120)
    for round_, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        for number in range(30):
            value = None if commits and round_ and number % 10 == 3 else number * 100 + round_
            text = None if value is None else json.dumps({"ID": number, "amount": f"{value / 100:.2f}", "note": "x"})
            producer.produce(name, text, str(number), partition=number % 3)
            if commits and value is None:
                state.pop(number, None)
            elif commits and value is not None:
                state[number] = value
        (producer.commit_transaction if commits else producer.abort_transaction)(120)

    def audit(*options: str, status: int = 0) -> dict[str, Any]:
        done = command("audit", name, "--brokers", command.brokers, "--key", "id", *options, "--json", status=status)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert list(found) == list(AUDIT_BY_KEY)
        return found

    found = audit(*naive(tmp_path / "good.duckdb", state))
    assert (found["verdict"], found["outcomes"]) == ("explained", {"matched": 27, "absent": 3})
    assert (found["compared"], found["not_compared"]) == (["amount"], ["loaded"])
    assert (found["fields_without_column"], found["records"]["records"]) == (["note"], 60)
    bad = {**state, 3: 300, 5: 501, 99: 1}
    del bad[7]
    options = naive(tmp_path / "bad.duckdb", bad)
    found = audit(*options, status=1)
    assert {item["key"]: (item["outcome"], item["columns"]) for item in found["findings"]} == {
        "7": ("missing", []), "5": ("differing", ["amount"]), "99": ("surplus", []), "3": ("undeleted", []),
    }  # fmt: skip
    shown = command("audit", name, "--brokers", command.brokers, "--key", "id", *options, status=1)
    assert "compared columns: amount" in shown.stdout and "not compared: loaded" in shown.stdout
    assert "a row that differs from its record in amount" in shown.stderr and "key 7, record 1:" in shown.stderr
    assert "NOT explained" in shown.stderr
    # With uncommitted records, the newest ones are the same, and there are more of them.
    assert audit(*naive(tmp_path / "good.duckdb", state), "--isolation", "read_uncommitted")["verdict"] == "explained"
    assert audit(*options, "--rows", "all", status=1)["outcomes"]["missing"] > 30


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--key", "id", "--partition-column", "p"], "--partition-column is not available with --key"),
        (["--key", "id", "--from", "log-start"], "--from is not available with --key"),
        (["--key", "id", "--to", "last-row"], "--to last-row is not available with --key"),
        (["--key", "id", "--filtered", "1"], "--filtered is not available with --key"),
        (["--rows", "all"], "--rows and --time-unit need --key"),
        (["--columns", "v"], "--columns needs --key"),
        (["--older-rows"], "--older-rows needs --key"),
    ],
)
def test_options_that_exclude_each_other(offline: Any, options: list[str], problem: str) -> None:
    done = offline("audit", "t", "--brokers", "b:1", "--type", "parquet", "--database", "x", *options, status=2)
    assert problem in done.stderr
