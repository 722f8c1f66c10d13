"""Test rows: staged files match their reports, columns are created and widened, and values are read back unchanged."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kpipe.batch.batch import Batch, Commit
from kpipe.errors import DestinationError, LedgerMismatch, SchemaConflict, StagingFailed
from kpipe.schema.columns import Columns, Scalar
from resources.testing.place import COLUMNS, DEAD_LETTERS, Place, batch, source
from resources.testing.state import begun, loaded, proof

HOSTILE = [
    'd"; drop table tweets; --', "'; DELETE FROM kpipe_ledger; --", "ünïcödé 日本 🎉", "x" * 200, "a\nb\tc", "$1 ? %s {0}",
    "select", "order", "\\", "a.b", "%2e%2e/", "../../etc/passwd",
]  # fmt: skip


__all__ = ["Tables"]


class Tables:
    """Tests of staged files and columns. Needs a fixture `place`."""

    @pytest.mark.parametrize("what", ["missing", "truncated", "other bytes", "garbage", "rows", "columns", "counts"])
    @pytest.mark.parametrize("which", ["files", "dead_letters"])
    def test_file_that_is_not_what_was_reported(self, place: Place, what: str, which: str) -> None:
        destination = loaded(place)
        ledger, rows = destination.ledger()[1], place.rows()
        commit = batch(place, ledger, {0: 20, 1: 20}, dead=[(0, 15)])
        files = commit.only.files if which == "files" else commit.dead_letters
        file = files[-1]
        path, data = Path(file.path), Path(file.path).read_bytes()
        if what == "missing":
            path.unlink()
        elif what == "truncated":
            path.write_bytes(data[:-1])
        elif what == "other bytes":
            path.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
        elif what == "garbage":
            path.write_bytes(b"\x00" * len(data))
        elif what == "rows":
            more = (*files[:-1], replace(file, rows=file.rows + 1))
            commit = commit.writing(files=more) if which == "files" else replace(commit, dead_letters=more)
        elif what == "counts":
            fewer = files[:-1]
            commit = commit.writing(files=fewer) if which == "files" else replace(commit, dead_letters=fewer)
        elif which == "files":
            odd = place.staged(
                [{"id": 1, "odd": "x", "_kafka_partition": 1}] * file.rows, Columns.of({"id": "BIGINT", "odd": "VARCHAR"})
            )
            commit = commit.writing(files=(*files[:-1], odd))
        else:
            pytest.skip("dead letters have one shape")
        with pytest.raises(StagingFailed):
            destination.commit(commit)
        assert (destination.ledger()[1], place.rows(), place.dead_letters()) == (ledger, rows, 0)
        assert proof(destination).ok

    def test_every_type_comes_back_as_it_went_in(self, place: Place) -> None:
        columns = Columns.of(
            {
                "b": "BOOLEAN", "i": "INTEGER", "d": "DOUBLE", "n": "DECIMAL(20,4)", "t": "TIMESTAMP WITH TIME ZONE", "j": "JSON",
                "s": 'STRUCT(a BIGINT, "order" VARCHAR, j JSON, deep STRUCT(x DOUBLE)[])', "l": "VARCHAR[]", "y": "BLOB",
            }
        )  # fmt: skip
        values: dict[str, Any] = {
            "b": True, "i": -(2**31), "d": 0.1, "n": Decimal("1234567890123456.7891"),
            "t": datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc),
            "j": '{"k":[1,null]}', "s": {"a": 2**63 - 1, "order": "", "j": "null", "deep": [{"x": 1.5}, None]},
            "l": ["a", None, ""], "y": b"\x00\xff",
        }  # fmt: skip
        if not place.null_json:
            values["s"]["j"] = "0"
        destination = begun(place)
        destination.commit(batch(place, destination.ledger()[1], {0: 1}, columns, values))
        destination.commit(batch(place, destination.ledger()[1], {0: 2}, columns, dict.fromkeys(values)))
        assert destination.columns() == columns
        found, empty = place.rows()
        assert {name: found[name] for name in values} == values
        assert {name: empty[name] for name in values} == dict.fromkeys(values)

    def test_table_is_widened(self, place: Place) -> None:
        first = Columns.of({"id": "BIGINT", "s": "STRUCT(a BIGINT)", "l": "STRUCT(x BIGINT)[]"})
        added = Columns.of({"s": "STRUCT(b VARCHAR, deep STRUCT(c DATE))", "l": 'STRUCT("y z" JSON)[]', "New": "VARCHAR[]"})
        destination = begun(place)
        destination.commit(batch(place, destination.ledger()[1], {0: 1}, first, {"id": 1, "s": {"a": 1}, "l": [{"x": 1}]}))
        wide = first.merged(added)
        values = {"id": 2, "s": {"a": 1, "b": "b", "deep": {"c": None}}, "l": [{"x": 1, "y z": "[]"}], "New": ["n"]}
        place.fail_next("before")
        commit = batch(place, destination.ledger()[1], {0: 2}, wide, values)
        with pytest.raises(DestinationError):
            destination.commit(commit)
        wider = destination.columns()
        assert wider == first if place.ddl_in_transaction else wider is not None and wider.get("s") == first.get("s")
        destination.commit(commit)
        assert destination.columns() == wide
        found = next(row for row in place.rows() if row["id"] == 2)
        assert {name: found[name] for name in values} == values
        # A batch that was staged before the table was widened is still committed; its missing columns are NULL.
        destination.commit(batch(place, destination.ledger()[1], {1: 1}, first, {"id": 3, "s": {"a": 7}, "l": [None]}))
        found = next(row for row in place.rows() if row["id"] == 3)
        assert found["s"]["a"] == 7 and found["New"] is None and proof(destination).ok

    @pytest.mark.parametrize("kind", ["VARCHAR", "BIGINT[]", "STRUCT(a BIGINT)", "JSON"])
    def test_type_that_does_not_fit(self, place: Place, kind: str) -> None:
        destination = loaded(place)
        ledger, rows = destination.ledger()[1], place.rows()
        with pytest.raises(SchemaConflict, match="column id"):
            destination.commit(batch(place, ledger, {0: 12}, Columns.of({"id": kind, "new": "BIGINT"}), {"id": None, "new": 1}))
        assert (destination.ledger()[1], place.rows(), destination.columns()) == (ledger, rows, COLUMNS)

    def test_hostile_text_is_data(self, place: Place) -> None:
        names = [name for name in HOSTILE if place.holds(name)]
        columns = Columns(tuple((name, Scalar("VARCHAR")) for name in names))
        inner = Columns.of({"s": "STRUCT(" + ", ".join('"' + n.replace('"', '""') + '" VARCHAR' for n in names) + ")"})
        columns = Columns((*columns.items, *inner.items))
        values = {**{name: name for name in names}, "s": {name: name for name in names}}
        destination = begun(place)
        destination.commit(batch(place, destination.ledger()[1], {0: 1}, columns, values))
        assert destination.columns() == columns
        assert {name: place.rows()[0][name] for name in values} == values
        letters = [place.dead(source(0), 1 + n, text.encode(), text) for n, text in enumerate(HOSTILE)]
        base = batch(place, destination.ledger()[1], {0: 1 + len(letters)}, dead=[(0, 1 + n) for n in range(len(letters))])
        destination.commit(
            replace(
                base.writing(columns=Columns()),
                dead_letters=(place.file(letters, DEAD_LETTERS),),
                note=HOSTILE[0],
                version=HOSTILE[1],
            )
        )
        assert {row["reason"] if "reason" in row else row["error_message"] for row in destination.view("errors")} == set(HOSTILE)
        destination.record_state(
            "error", HOSTILE[0] + "\ud800", "TransformFailed", Batch(base.id, base.pipeline, base.steps), HOSTILE[1]
        )
        assert destination.view("errors", limit=1)[0]["error_message"].startswith(HOSTILE[0])
        assert proof(destination).ok

    def test_rows_go_to_the_table_that_an_edited_definition_names(self, place: Place) -> None:
        """The pipeline's ledger continues with a table that does not exist yet; the previous table is still verified."""
        loaded(place)
        edited = place.open(table="renamed")
        if place.ledger_in_table:
            assert edited.ledger()[0] == "", "the ledger is part of the table; kpipe/run_events.py detects it"
            return
        assert edited.columns() is None
        edited.commit(Commit("d" * 32, "tweets", (), kind="accept_ledger", note="a decision that writes no row"))
        assert edited.columns() is None and proof(edited).ok
        edited.commit(batch(place, edited.ledger()[1], {0: 12, 1: 8}))
        assert [len(place.rows(table)) for table in ("tweets", "renamed")] == [15, 5]
        report = proof(edited)
        assert report.ok, report.problems
        assert report.targets == {place.name("tweets"): {"rows": 15, "rows_found": 15}}
        if place.rows_go:
            place.delete_row(0, 3)
            assert any("tweets: partition" in problem and "expected 10 rows" in problem for problem in proof(edited).problems)
        place.drop_table()
        assert any("expected 10 rows, found 0 in the table" in problem for problem in proof(edited).problems)
        edited.commit(batch(place, edited.ledger()[1], {0: 13}))
        assert len(place.rows("renamed")) == 6
        if place.rows_go:
            with pytest.raises(LedgerMismatch, match="the ledger records 15 rows"):
                place.open().columns()
