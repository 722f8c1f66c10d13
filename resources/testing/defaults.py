"""Test that destinations with keys apply the database's defaults to columns that records do not contain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kpipe.errors import SchemaConflict
from kpipe.interfaces import Destination
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from resources.testing.kept_values import RULE, Change, changed
from resources.testing.keyed import Write, begun, commit_of
from resources.testing.place import Place, batch, begin, source
from resources.testing.state import proof

__all__ = ["Defaults"]

#: The update expression reads the existing row; `excluded.c` is the default that an inserted row would have.
ADD = KeyRule(("id",), "update", {"c": "c + 1", "e": "concat(e, excluded.e)", "n": "coalesce(n, 0) + excluded.n"}, deletes=True)
_COLUMNS = "id BIGINT, text TEXT, n BIGINT, c INTEGER DEFAULT 7 NOT NULL, e VARCHAR(20) DEFAULT (upper('x'))"


def _table(place: Place) -> None:
    """Create the user's table: constant and expression as defaults, a time, a counter, a computed column."""
    for statement in place.tables_with_defaults:
        place.sql(statement.format(columns=_COLUMNS))


def _rows(place: Place) -> dict[int, tuple[Any, ...]]:
    found = place.rows()
    assert all(row["made"] is not None for row in found), found
    assert len({row["number"] for row in found} - {None}) == len(found), found
    assert all(row["computed"] == row["n"] * 2 for row in found), found
    return {row["id"]: (row["text"], row["n"], row["c"], row["e"]) for row in found}


def _commit(place: Place, destination: Destination, rule: KeyRule, *writes: Write) -> None:
    destination.commit(commit_of(place, destination.ledger()[1], writes, rule))


class Defaults:
    """Tests of columns with defaults. Needs a fixture `place`."""

    def test_an_inserted_row_has_the_defaults_and_an_update_sees_them(self, place: Place) -> None:
        _table(place)
        destination = begun(place, ADD, 1)
        _commit(place, destination, ADD, Write(0, 0, 1, "a", 1), Write(0, 1, 2, "b", 1), Write(0, 2, 2, "c", 1))
        assert _rows(place) == {1: ("a", 1, 7, "X"), 2: ("b", 2, 8, "XX")}
        number = {row["id"]: row["number"] for row in place.rows()}
        _commit(place, destination, ADD, Write(0, 3, 1, "d", 1), Write(0, 4, 1, "e", 1), Write(0, 5, 3, "f", 1))
        assert _rows(place) == {1: ("a", 3, 9, "XXX"), 2: ("b", 2, 8, "XX"), 3: ("f", 1, 7, "X")}
        assert number.items() <= {row["id"]: row["number"] for row in place.rows()}.items()
        # A key that is deleted and written again gives a new row with defaults.
        gone = [Write(0, 6, 1, None), Write(0, 7, 1, "g", 5), Write(0, 8, 1, "h", 1), Write(0, 9, 3, None)]
        _commit(place, destination, ADD, *gone)
        assert _rows(place) == {1: ("g", 6, 8, "XX"), 2: ("b", 2, 8, "XX")}
        audit = proof(destination)
        assert audit.ok, audit.problems

    @pytest.mark.parametrize("name", ["replace", "ignore", "update", "skip"])
    def test_without_expressions(self, place: Place, name: str) -> None:
        """REPLACE creates a new row with defaults; the other rules keep columns that records do not contain."""
        _table(place)
        rule = KeyRule(("id",), "error", duplicates="skip") if name == "skip" else KeyRule(("id",), name)  # type: ignore[arg-type]
        destination = begun(place, rule, 1)
        _commit(place, destination, rule, Write(0, 0, 1, "a", 1), Write(0, 1, 2, "b", 1), Write(0, 2, 2, "c", 2))
        place.sql("UPDATE tweets SET c = 20, e = 'other' WHERE id = 1")
        _commit(place, destination, rule, Write(0, 3, 1, "d", 3), Write(0, 4, 3, "e", 3))
        first = {"replace": ("d", 3, 7, "X"), "update": ("d", 3, 20, "other")}.get(name, ("a", 1, 20, "other"))
        second = ("c", 2, 7, "X") if name in ("replace", "update") else ("b", 1, 7, "X")
        assert _rows(place) == {1: first, 2: second, 3: ("e", 3, 7, "X")}
        audit = proof(destination)
        assert audit.ok, audit.problems

    def test_rows_without_a_key(self, place: Place) -> None:
        _table(place)
        destination = begun(place, ADD, 1)
        plain = place.open()
        commit = commit_of(place, destination.ledger()[1], [Write(0, 0, 1, "a", 1), Write(0, 1, 1, "b", 1)], ADD)
        counts = {lane: replace(count, inserted=count.rows) for lane, count in commit.counts.items()}
        plain.commit(commit.stored(counts))
        assert sorted((row["text"], row["c"], row["e"], row["computed"]) for row in place.rows()) == [
            ("a", 7, "X", 2), ("b", 7, "X", 2)
        ]  # fmt: skip
        assert proof(plain).ok

    def test_a_field_named_as_a_computed_column_is_refused_by_name(self, place: Place) -> None:
        _table(place)
        destination = place.open()
        destination.commit(begin("tweets", (0,)))
        wanted = Columns.of({"id": "BIGINT", "Computed": "BIGINT"})
        with pytest.raises(SchemaConflict, match=r"column 'computed' is computed by the database.*declare `columns`"):
            destination.commit(batch(place, destination.ledger()[1], {0: 1}, wanted, {"id": 1, "Computed": 2}))
        assert place.rows() == []

    def test_a_check_that_reads_a_default_names_no_other_records(self, place: Place) -> None:
        """A staged row does not have the default yet."""
        for statement in place.tables_with_defaults:
            # `number` has a default, and its name is a part of the name of the second column.
            more = "CHECK (c IS NOT NULL), numbers BIGINT, CHECK (n < 5 AND coalesce(numbers, 0) = 0)"
            place.sql(statement.format(columns=f"{_COLUMNS}, {more}"))
        destination = begun(place, ADD, 1)
        with pytest.raises(SchemaConflict) as caught:
            _commit(place, destination, ADD, *(Write(0, at, at, "a", 9 if at == 2 else 1) for at in range(4)))
        assert {where: list(found) for where, found in caught.value.refused.items()} == {source(0): [2]}

    def test_a_value_that_an_update_keeps_is_not_missing(self, place: Place) -> None:
        """A staged row has NULL in its place."""
        if not place.keeps:
            pytest.skip(f"{type(place).__name__}: keeps no values")
        place.sql("CREATE TABLE tweets (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, CHECK (n > 0 OR n IS NULL AND id < 0))")
        destination, row = begun(place, RULE, 1), {"Big Text": "a", "raw": None, "n": 1}
        destination.commit(changed(place, destination.ledger()[1], [(0, 0, 1, row, set())]))
        update: Change = (0, 1, 1, {**row, "Big Text": "b"}, {"n"})
        for other, named in (((0, 2, 7, row, {"n"}), {}), ((0, 2, 7, {**row, "n": None}, set[str]()), {source(0): [2]})):
            with pytest.raises(SchemaConflict) as caught:
                destination.commit(changed(place, destination.ledger()[1], [update, other]))
            assert {where: list(found) for where, found in caught.value.refused.items()} == named, caught.value
        destination.commit(changed(place, destination.ledger()[1], [update]))
        assert [(found["id"], found["Big Text"], found["n"]) for found in place.rows()] == [(1, "b", 1)]
        assert proof(destination).ok
