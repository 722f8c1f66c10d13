"""Execute every example of the SQL tutorial and of the statements' reference, in order, and compare what it prints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kpipe.expressions.mysql.function_list import SPECIAL, known
from kpipe.expressions.mysql.refused.functions import REFUSED
from kpipe.sql.parser import read_all
from kpipe.sql.statements import Statement
from kpipe.sql.unsupported_clauses import _REASONS
from resources.dev_broker.broker import LocalBroker
from tests.commandline import Kpipe

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = "\n".join((DOCS / name).read_text(encoding="utf-8") for name in ("tutorial/sql.md", "reference/statements.md"))
FUNCTIONS = (DOCS / "reference" / "functions.md").read_text(encoding="utf-8")
GRAMMAR = (DOCS / "reference" / "grammar.md").read_text(encoding="utf-8")
_EXAMPLE = re.compile(r"(<!-- read, not executed -->\n)?^```sql\n(.*?)^```\n(?:```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
EXAMPLES = [(not found[1], found[2], found[3] or "") for found in _EXAMPLE.finditer(GUIDE)]


def words(line: str) -> str:
    """A line without the spaces that a table's width makes."""
    return " ".join(line.split())


def section_of(page: str, heading: str) -> str:
    return page.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def named(page: str, heading: str) -> set[str]:
    """Names in backticks in the first column of the table below a heading."""
    section = section_of(page, heading)
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    return set(re.findall(r"`([A-Z0-9_ .]+)`", " ".join(cells[1:])))


def test_every_example_can_be_read() -> None:
    kinds: set[type[Statement]] = {type(item) for _, text, _ in EXAMPLES for item in read_all(text)}
    assert {kind.__name__ for kind in kinds} == {
        "Alter", "Backfill", "ClearErrors", "Create", "Drop", "Extract", "Infer", "Query", "Replay", "Reset",
        "ShowCreate", "ShowPipelines", "Start", "Stop", "Test", "Truncate",
    }  # fmt: skip


def test_the_pages_name_what_is_translated_and_what_is_refused() -> None:
    operators = {"MEMBER OF"}  # compiled as a call, written between its operands
    taken = re.findall(r"`([A-Z0-9_]+)\b", section_of(FUNCTIONS, "Functions that are taken"))
    assert sorted(taken) == sorted({*known(), *SPECIAL} - operators)
    refused = named(FUNCTIONS, "Functions of other databases"), named(FUNCTIONS, "Functions that are rejected")
    assert refused[0] | refused[1] == set(REFUSED) and not refused[0] & refused[1]
    assert named(GRAMMAR, "Clauses that are rejected") == set(_REASONS)


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
def test_every_example_does_what_the_page_says(
    kpipe: Kpipe, kafka_broker: LocalBroker, write: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    kafka_broker.create_topic("orders", 2)
    try:
        for partition in range(2):
            orders = [{"id": 10 * partition + at, "city": "Köln", "cents": 100 + at + partition} for at in range(5)]
            write("orders", [json.dumps(order) for order in orders], partition)
        for executed, text, expected in EXAMPLES:
            if executed:
                said = kpipe("sql", text.replace("localhost:9092", kpipe.brokers)).stdout
                found = [words(line) for line in said.splitlines()]
                missing = [line for line in expected.splitlines() if words(line) not in found]
                assert not missing, f"{text}\nsays\n{said}"
    finally:
        kafka_broker.delete_topic("orders")
    assert len((tmp_path / "sample").read_text().splitlines()) == 3
    kpipe("verify", "orders")
