"""What SingleStore's documentation shows runs as it stands there, or is refused in a sentence that says what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError
from kpipe.sql import statements as s
from kpipe.sql.parser import read, read_all
from kpipe.sql.renderer import to_sql
from kpipe_assets.statements.execute import Session
from kpipe_assets.validation import Needs, validate
from resources.home import Home
from tests.kpipe.sql.corpus import DEFINED, REFUSED, TABLES, Published
from tests.kpipe.sql.corpus_statements import ALTERED, MEANT

BASE: dict[str, Any] = {
    "name": "p",
    "source": {"brokers": "k:9092", "topic": "t"},
    "format": {"type": "csv"},
    "into": {"table": "t"},
}


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(base)
    for key, value in more.items():
        inner = both.get(key)
        both[key] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return both


def named(value: object) -> str:
    return f"{value.page}: {value.text[-60:]}" if isinstance(value, Published) else ""


def in_mysql(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with what statements mean: their expressions are MySQL's, `true` and `false` in JSON are 1 and 0."""
    found = dict(fields)
    if "set" in found:
        found["set"] = {name: f"mysql: {text}" for name, text in found["set"].items()}
    if "where" in found:
        found["where"] = f"mysql: {found['where']}"
    if "update" in found.get("into", {}):
        found["into"] = {**found["into"], "update": {name: f"mysql: {text}" for name, text in found["into"]["update"].items()}}
    for group in ("format", "key_format"):
        part = found.get(group, {})
        if "mapping" in part and part["type"] == "json":
            found[group] = {**part, "booleans": "number"}
    return found


@pytest.mark.parametrize("published", DEFINED, ids=named)
def test_a_pipeline_is_what_its_statement_says(published: Published, tmp_path: Path) -> None:
    found = read(published.text)
    assert isinstance(found, s.Create)
    assert found.pipeline == Pipeline.model_validate(merged(BASE, in_mysql(published.fields)))
    again = read(to_sql(found.pipeline))
    assert isinstance(again, s.Create)
    assert again.pipeline == found.pipeline
    if found.pipeline.transform is None:  # programs are looked for where they lie
        validate(found.pipeline, Home(tmp_path), Needs.FILES)


@pytest.mark.parametrize(("text", "changes"), ALTERED, ids=lambda value: value if isinstance(value, str) else "")
def test_alter_pipeline_changes_what_it_says(text: str, changes: tuple[s.Change, ...]) -> None:
    assert read(f"ALTER PIPELINE p {text}") == s.Alter("p", changes)


@pytest.mark.parametrize(("text", "meant"), MEANT, ids=lambda value: value if isinstance(value, str) else "")
def test_statements_mean_what_they_say(text: str, meant: s.Statement) -> None:
    assert read(text) == meant


@pytest.mark.parametrize("published", REFUSED, ids=named)
def test_what_is_refused_says_why_and_what_to_do(published: Published, tmp_path: Path) -> None:
    with pytest.raises(KpipeError) as raised, Session(Home(tmp_path)) as session:
        for statement in read_all(published.text):
            for _ in session.execute(statement):
                pytest.fail(f"it is taken: {published.text}")
    assert published.said in raised.value.what
    assert raised.value.hint, "and what to do instead"
    assert published.instead in raised.value.hint
    assert "\n" not in str(raised.value)
    if "nope" in published.text:
        shown, marks = getattr(raised.value, "excerpt", "\n").split("\n")
        assert shown[marks.index("^") :].startswith("nope") and marks.count("^") == len("nope")


@pytest.mark.parametrize("published", TABLES, ids=named)
def test_a_table_has_the_columns_that_its_statement_says(published: Published, tmp_path: Path) -> None:
    with Session(Home(tmp_path)) as session:
        for statement in read_all(f"CREATE DATABASE shop; USE shop; {published.text}"):
            assert [result.message for result in session.execute(statement)]
        name = published.text.split("(")[0].split()[-1].strip("`")
        rows = [row for shown in session.execute(s.Query(f"DESCRIBE {name}")) for row in shown.rows]
        found = [f"{row[0]}{'!' if row[3] == 'PRI' else ''} {row[1]}" for row in rows]
    assert ", ".join(found) == published.said
