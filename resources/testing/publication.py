"""Test publication, views, states and errors, and that pipelines do not see each other's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kpipe.batch.dead_letter_page import LetterMark, LetterPages, StoredLetter
from kpipe.errors import DestinationError
from kpipe.interfaces import ErrorLog
from resources.testing.place import Place, batch
from resources.testing.state import begun, loaded, proof

__all__ = ["Publication"]


class Publication:
    """Tests of publication, views, states and errors. Needs a fixture `place`."""

    def test_pipelines_share_a_table_and_nothing_else(self, place: Place) -> None:
        a, b = begun(place), begun(place, pipeline="other")
        a.commit(batch(place, a.ledger()[1], {0: 10}, dead=[(0, 9)]))
        b.commit(batch(place, b.ledger()[1], {0: 10}))
        assert len(place.rows()) == 19
        assert a.ledger()[0] != b.ledger()[0] and (a.ledger()[1].dead_letters, b.ledger()[1].dead_letters) == (1, 0)
        assert proof(a).ok and proof(b).ok
        if place.rows_go:
            place.delete_row(0, 3)
            assert not proof(a).ok and not proof(b).ok
        assert {row["pipeline_name"] for row in a.view("batches")} == {"tweets"}

    def test_metadata_is_given_out_once(self, place: Place) -> None:
        a, b = loaded(place), place.open()
        second = batch(place, a.ledger()[1], {0: 12})
        a.commit(second)
        waiting = a.unpublished()
        assert [(p.seq, dict(p.metadata)) for p in waiting] == [
            (2, {"0": {"end_offset": 10, "rows": 10}, "1": {"end_offset": 5, "rows": 5}}),
            (3, {"0": {"end_offset": 12, "rows": 2}}),
        ]
        assert [p.seq for p in a.unpublished(limit=1)] == [2]
        ids = [p.batch for p in waiting]
        assert list(a.published([waiting[0], replace(waiting[1], batch="unknown")])) == ids[:1]
        assert list(b.published(waiting)) == ids[1:]
        assert not a.published(waiting) and not a.published([]) and not b.unpublished()

    def test_state_and_errors_are_shown(self, place: Place) -> None:
        destination = loaded(place)
        destination.record_state("needs_operator", "tweets/0: offsets were deleted", "OffsetsLost", stderr="boom")
        row = destination.view("pipelines")[0]
        assert (row["state"], row["last_error"], row["seq"]) == ("needs_operator", "tweets/0: offsets were deleted", 2)
        event = destination.view("errors")[0]
        assert (event["error_type"], event["error_code"], event["std_error"]) == ("Error", "OffsetsLost", "boom")
        destination.record_state("running")
        assert destination.view("pipelines")[0]["state"] == "running" and len(destination.view("errors")) == 1

    def test_errors_are_cleared_and_dead_letters_stay(self, place: Place) -> None:
        destination = begun(place)
        if not isinstance(destination, ErrorLog):
            pytest.skip("this destination cannot")
        destination.commit(batch(place, destination.ledger()[1], {0: 10}, dead=[(0, 3)]))
        for number in range(3):
            destination.record_state("error", f"it broke {number}", "TransformFailed")
        assert (len(destination.view("errors")), place.dead_letters()) == (4, 1)
        assert destination.clear_errors() == 3
        assert [row["dead_letter"] for row in destination.view("errors")] == [True]
        assert destination.clear_errors() == 0
        destination.record_state("error", "it broke again", "TransformFailed")
        assert len(destination.view("errors")) == 2
        assert proof(destination).ok

    def test_dead_letters_are_read_in_pages(self, place: Place) -> None:
        destination = begun(place)
        if not isinstance(destination, LetterPages):
            pytest.skip("this destination cannot")
        dead = [(0, 1), (0, 2), (0, 7), (1, 0)]
        for ends in ({0: 5}, {1: 2}, {0: 9}):
            destination.commit(batch(place, destination.ledger()[1], ends, dead=dead))
            destination.record_state("error", "it broke", "TransformFailed")
        everything = destination.letter_page(None, 10, 1 << 20)
        assert sorted((letter.partition, letter.offset) for letter in everything[:2]) == dead[:2]
        assert [(letter.partition, letter.offset) for letter in everything[2:]] == [(1, 0), (0, 7)]
        assert {(letter.topic, letter.stage) for letter in everything} == {("tweets", "parse")}
        paged, sizes = list[StoredLetter](), list[int]()
        while page := destination.letter_page(paged[-1].mark if paged else None, 3, 1 << 20 if paged else 1):
            sizes.append(len(page))
            paged += page
            assert destination.letters_behind(page[-1].mark) == 4 - len(paged)
        assert (sizes, paged) == ([1, 3], list(everything)) and destination.letters_behind(None) == 4
        other = LetterMark("another", paged[-1].mark.at, paged[-1].mark.within)
        with pytest.raises(DestinationError, match="the ledger lacks batch another"):
            destination.letter_page(other, 10, 1)
        nothing = place.open("nothing")
        assert isinstance(nothing, LetterPages) and not nothing.letter_page(None, 10, 1)

    def test_views_newest_first(self, place: Place) -> None:
        destination = loaded(place)
        destination.commit(batch(place, destination.ledger()[1], {0: 12}))
        assert [row["seq"] for row in destination.view("batches_summary")] == [3, 2]
        assert [row["seq"] for row in destination.view("batches")] == [3, 2, 2]
        assert len(destination.view("batches", limit=1)) == 1
        cursor = destination.view("cursors")[0]
        assert (cursor["source_type"], cursor["source_partition_id"], cursor["cursor_offset"], cursor["latest_offset"]) == (
            "KAFKA",
            0,
            12,
            19,
        )
        assert cursor["successful_cursor_offset"] == 12

    def test_describe_names_the_table(self, place: Place) -> None:
        assert "tweets" in place.open().describe()
