"""Test that a lost row is noticed beside a doubled one: numbers of rows do not show it."""

from __future__ import annotations

from dataclasses import replace

from kpipe.batch.batch import Mark
from kpipe.interfaces import Destination
from resources.testing.place import Place, batch, begin
from resources.testing.state import begun, loaded, proof, reread

__all__ = ["ExchangedRows"]


class ExchangedRows:
    """Tests of offsets and records. Needs a fixture `place`."""

    def test_one_row_for_another_where_two_pipelines_have_read_a_topic(self, place: Place) -> None:
        destination, two = loaded(place), place.open("other")
        two.commit(begin("other", (0,)))
        two.commit(replace(batch(place, two.ledger()[1], {0: 8}), pipeline="other"))
        assert proof(destination).ok and proof(two).ok, (proof(destination).problems, proof(two).problems)
        if not place.fingerprints:
            return
        place.double_row(0, 9)
        if place.rows_go:
            place.delete_row(0, 8)
        assert not proof(destination).ok
        if place.rows_go:  # in a topic, each row names its pipeline
            assert not proof(two).ok

    def test_one_row_for_another_where_two_pipelines_have_read_different_records(self, place: Place) -> None:
        """Each offset may have two rows, and has one: only the sum of the offsets shows a lost one beside a doubled one."""
        destination, two = loaded(place, {0: 10}, gaps=[(0, at) for at in range(1, 10, 2)]), place.open("other")
        two.commit(begin("other", (0,)))
        odd = batch(place, two.ledger()[1], {0: 10}, gaps=[(0, at) for at in range(0, 10, 2)])
        two.commit(replace(odd, pipeline="other"))
        _check(place, destination, two)

    def test_one_row_for_another_where_dead_letters_were_read_again(self, place: Place) -> None:
        destination = loaded(place, {0: 10}, dead=[(0, at) for at in range(10)])
        reread(destination, 0)
        destination.commit(batch(place, destination.ledger()[1], {0: 10}))
        _check(place, destination)

    def test_a_range_with_gaps_that_was_read_again_is_proven(self, place: Place) -> None:
        destination = loaded(place, {0: 10}, gaps=[(0, 3)])
        reread(destination, 0)
        destination.commit(batch(place, destination.ledger()[1], {0: 10}, gaps=[(0, 3)]))
        found = proof(destination)
        assert found.ok and not (place.fingerprints and found.unproven), (found.problems, found.unproven)

    def test_an_exchanged_row_is_found_where_a_record_may_give_several(self, place: Place) -> None:
        """As of CSV: the number of records and the sum of offsets are compared, not only the number of rows."""
        destination = begun(place)
        base = batch(place, destination.ledger()[1], {0: 8})
        key = base.steps[0].lane.key
        where = {"_kafka_partition": 0, "_kafka_timestamp": None}
        offsets = [0, 0, 1, 2, 3, 4, 5]
        rows = [{"id": at, "text": "x", "_kafka_offset": offset, **where} for at, offset in enumerate(offsets)]
        counts = replace(base.counts[key], rows=7, given=6, filtered=2, inserted=7)
        marks = {key: Mark(6, sum(offsets))}
        destination.commit(base.writing(table="tweets", files=(place.staged(rows),), marks=marks).stored({key: counts}))
        assert proof(destination).ok, proof(destination).problems
        if not place.rows_go or not place.fingerprints:
            return
        place.delete_row(0, 4)
        place.double_row(0, 3)
        found = proof(destination)
        assert not found.ok and found.counts.rows == 7


def _check(place: Place, *destinations: Destination) -> None:
    """Exchange a row of table `tweets` for another one, and check that no destination proves it."""
    for destination in destinations:
        found = proof(destination)
        assert found.ok and not (place.fingerprints and found.unproven), (found.problems, found.unproven)
    place.double_row(0, 9)
    if place.rows_go and place.fingerprints:
        place.delete_row(0, 8)
    if place.rows_go:
        for destination in destinations:
            assert not proof(destination).ok
    else:  # in a topic, each row names its pipeline
        assert not all(proof(destination).ok for destination in destinations)
