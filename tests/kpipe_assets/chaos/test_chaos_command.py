"""`kpipe chaos` as people use it, with Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kpipe.failpoints import POINTS
from tests.kpipe_assets.chaos.conftest import RECORDS, Site
from website.reference.json_output import CHAOS

pytestmark = [pytest.mark.broker, pytest.mark.spark]

SAME = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line)\n"


def test_a_short_one(site: Site) -> None:
    site.define(transform={"program": site.program(SAME)})
    done = site.kpipe.outside("chaos", "orders", "--minutes", "0.1", "--seed", "7", "--json")
    (found,) = map(json.loads, done.stdout.splitlines())
    assert (found["verdict"], found["findings"]) == ("proven", [])
    assert list(found) == list(CHAOS)
    assert [copy["verify"]["rows"] for copy in found["copies"]][:2] == [2 * RECORDS - 4] * 2
    assert found["faults"]
    assert "never:  orders" in done.stderr
    assert not (Path(found["folder"]) / "home").exists()
    assert not site.kpipe.left_behind()


@pytest.mark.chaos
def test_minutes_of_it(site: Site) -> None:
    """Each kind of fault, on every process of a run."""
    site.define(transform={"program": site.program(SAME)})
    done = site.kpipe.outside("chaos", "orders", "--minutes", "4", "--json")
    (found,) = map(json.loads, done.stdout.splitlines())
    print(found["seed"], [fault["kind"] for fault in found["faults"]])
    assert (found["verdict"], found["findings"]) == ("proven", []), found
    assert {fault["point"] for fault in found["faults"] if "point" in fault} <= set(POINTS)
