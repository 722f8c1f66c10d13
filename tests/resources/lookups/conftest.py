"""Lookups read as a run reads them, and a server that they may come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from resources.duckdb_engine.expression_checks import checked_selection
from resources.lookups.loader import Lookups, no_tables
from resources.lookups.reference_table import Reference
from tests.fileserver import FileServer


@pytest.fixture
def server() -> Iterator[FileServer]:
    """A web server."""
    found = FileServer()
    found.body = b"code,name\nDE,Germany\nFR,France\n"
    yield found
    found.stop()


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Reference]:
    """`read(members, ask=..., into=..., **fields)`: a lookup `l`, asked for these columns, in the current folder."""
    monkeypatch.chdir(tmp_path)

    def one(*members: str, ask: Any = no_tables, into: Any = None, environ: Any = None, **fields: Any) -> Reference:
        keys = [fields["key"]] if isinstance(fields["key"], str) else fields["key"]
        asked = ", ".join(f"k{at}" for at in range(len(keys)))
        definition = Pipeline.model_validate(
            {
                "name": "p", "source": {"brokers": "b", "topic": "t"}, "into": into or {"table": "t"}, "lookups": {"l": fields},
                "set": {f"c{at}": f'l({asked})."{member}"' for at, member in enumerate(members)},
            }
        )  # fmt: skip
        return Lookups(definition, checked_selection(definition), ask, environ).of_batch("b")["l"].value

    return one
