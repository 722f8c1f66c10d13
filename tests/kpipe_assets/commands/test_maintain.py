"""`kpipe maintain` on tables that batches have filled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.maintenance.facts import Maintained
from resources.home import Home
from resources.testing.keyed import RULES, Write, begun, commit_of, contents
from tests.commandline import Kpipe
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace

RULE = RULES["replace"]
PLACES: dict[str, Any] = {"iceberg": IcebergPlace, "delta": DeltaPlace}


def saved(folder: Path, **into: Any) -> Kpipe:
    """A home with the pipeline `tweets` into that destination."""
    source = {"brokers": "127.0.0.1:1", "topic": "tweets"}
    Home.at(str(folder)).save(Pipeline.model_validate({"name": "tweets", "source": source, "into": {"table": "tweets", **into}}))
    return Kpipe(folder, "127.0.0.1:1")


@pytest.mark.parametrize("kind", PLACES)
def test_a_table_is_compacted_and_still_proven(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    place = PLACES[kind](folder)
    key = {"key": ["id"], "on_conflict": "replace", "on_null": "delete"}
    kpipe = saved(folder, type=kind, database=str(place.folder), **key)
    assert "nothing committed yet" in kpipe("maintain", "tweets", status=2).stderr
    destination = begun(place, RULE, 1)
    for at in range(6):
        writes = [Write(0, 4 * at + n, 3 * at + n, f"t{at}") for n in range(4)]
        destination.commit(commit_of(place, destination.ledger()[1], writes, RULE))
    before, proven = contents(place), kpipe.json("verify", "tweets")[-1]
    planned = kpipe.json("maintain", "tweets", "--dry-run")[-1]
    assert (planned["dry_run"], planned["rewritten"], planned["commits"]) == (True, 6, 0)
    assert "6 files of 6 to rewrite" in kpipe("maintain", "tweets", "--dry-run").stdout
    told = kpipe("maintain", "tweets", "--target-file-mb", "256", "--min-input-files", "3", "--delete-ratio", "0.5")
    assert "6 -> 1 file" in told.stdout and "proven to be the same" in told.stdout and "6 files rewritten as 1" in told.stderr
    done = kpipe.json("maintain", "tweets", "--retention-hours", "168")[-1]
    assert list(done) == ["event", "pipeline", "dry_run", *Maintained().to_dict()]
    assert (done["commits"], done["expired"], done["removed"]) == (0, 0, 0)
    assert contents(place) == before and kpipe.json("verify", "tweets")[-1] == proven


def test_other_destinations_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    kpipe = saved(folder)
    assert "not available for into.type duckdb" in kpipe("maintain", "tweets", status=2).stderr
    assert "no such option" in kpipe("maintain", "tweets", "--retention", status=2).stderr.lower()
