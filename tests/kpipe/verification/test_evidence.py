"""What is read for the proof is of one state, also where a destination cannot read it in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kpipe.errors import DestinationBusy
from kpipe.ledger.ledger import Ledger
from kpipe.verification.evidence import gather
from kpipe.verification.recount import Entry, Recount


class Busy:
    """A destination that another run commits to, so many times, each during a recount."""

    def __init__(self, commits: int) -> None:
        self.commits, self.seq, self.counted_at = commits, 1, 0

    def ledger(self) -> tuple[str, Ledger]:
        return "id", Ledger("tweets", self.seq)

    def history(self) -> Sequence[Entry]:
        return ()

    def recount(self) -> Recount:
        self.counted_at = self.seq
        if self.commits:
            self.commits, self.seq = self.commits - 1, self.seq + 1
        return Recount()

    def describe(self) -> str:
        return "a busy place"


@pytest.mark.parametrize("commits", [0, 1, 9])
def test_it_is_read_again_until_no_commit_came_between(commits: int) -> None:
    destination: Any = Busy(commits)
    found = gather(destination)
    assert found.ledger.seq == destination.counted_at == commits + 1


def test_a_destination_that_never_rests_is_named_with_what_to_do() -> None:
    destination: Any = Busy(1000)
    with pytest.raises(DestinationBusy, match="tweets: a busy place: commits came during each of 10 counts") as caught:
        gather(destination)
    assert "kpipe stop" in caught.value.hint and destination.commits == 990
