"""Who watches the watchmen: the oracle finds what is falsified, and the tests fail where the code is broken."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from resources.dev_broker.broker import LocalBroker
from tests.survival import variants
from tests.survival.site import CANARY, Site
from tests.survival.variants import VARIANTS, Variant


@pytest.fixture(scope="module")
def good(site: Callable[..., Site]) -> Site:
    """A home where everything is right, with aborted transactions behind it."""
    made = site("good")
    while len(made.writer.truth.aborted) < 20:
        made.writer.round(90)
        made.exact()  # the oracle finds nothing, so what it finds in a copy is what was done to the copy
    return made


# What is done by hand, and the beginning of what the oracle must say.
FALSE = {
    "a row is gone": ("DELETE FROM good WHERE _kafka_offset = 5 AND _kafka_partition = 1", "O1 rows that are missing: 1"),
    "a row is twice": ("INSERT INTO good FROM good WHERE _kafka_offset = 5", "O1 rows that are too many"),
    "a row has another's place": ("UPDATE good SET _kafka_offset = 6 WHERE _kafka_offset = 5", "O1 rows that are missing"),
    "an id is another": ("UPDATE good SET id = -1 WHERE _kafka_offset = 5", "O1 rows that are missing"),
    "a dead letter is gone": ("DELETE FROM kpipe_errors WHERE dead_letter", "O1 dead letters that are missing"),
    "the ledger went on": ("UPDATE kpipe_ledger SET next_offset = next_offset + 1", "O4 partition 0"),
    "the ledger went back": ("UPDATE kpipe_ledger SET next_offset = next_offset - 1", "O3 partition 0: the ledger stands at"),
    "history has a hole": ("DELETE FROM kpipe_batches WHERE seq = 2", "O3 partition 0: commit 3 holds"),
    "history overlaps": ("UPDATE kpipe_batches SET batch_earliest_offset = 0 WHERE seq = 3", "O3 partition 0: commit 3 holds"),
    "a batch came twice": ("INSERT INTO kpipe_batches FROM kpipe_batches WHERE seq = 3", "O3 batch"),
    "a commit is missing": ("DELETE FROM kpipe_commits WHERE seq = 2", "O3 commits are numbered"),
    "counts are wrong": ("UPDATE kpipe_batches SET rows = rows + 1, gaps = gaps - 1 WHERE seq = 2", "O1 partition 0: counted"),
    "the mirror lags": ("UPDATE kpipe_commits SET metadata = '{}' WHERE seq = 2", "O6 commit 2"),
}


@pytest.mark.parametrize("what", FALSE)
def test_falsified(good: Site, tmp_path: Path, what: str) -> None:
    statement, sentence = FALSE[what]
    home = tmp_path / "home"
    shutil.copytree(good.kpipe.home, home)
    oracle = replace(good.oracle, home=home)
    with duckdb.connect(str(oracle.path)) as connection:
        for (name,) in connection.execute("SELECT index_name FROM duckdb_indexes()").fetchall():
            connection.execute(f'DROP INDEX "{name}"')
        connection.execute(statement)
    found = oracle.problems()
    assert any(problem.startswith(sentence) for problem in found), found


def test_what_the_database_does_not_show(good: Site, tmp_path: Path) -> None:
    home, truth = tmp_path / "home", good.writer.truth
    shutil.copytree(good.kpipe.home, home)
    oracle = replace(good.oracle, home=home)
    with duckdb.connect(str(oracle.path)) as connection:
        number = min(truth.aborted)
        connection.execute("INSERT INTO good (id, _kafka_partition, _kafka_offset) VALUES (?, 0, 1000000)", [number])
        (landed,) = connection.execute("SELECT batch_id FROM kpipe_commits WHERE seq = 3").fetchone() or ("",)
    (home / "staging" / landed).mkdir()
    (home / "logs" / "spark.log").write_text(f"password={CANARY}")
    found = oracle.problems()
    for sentence in (
        "O2 aborted and in the table: 1",
        f"O5 staged files of batch {landed} are left",
        "O9 the canary is in logs/spark.log",
    ):
        assert any(problem.startswith(sentence) for problem in found), found
    acked = max(truth.committed)
    wrong = replace(truth, committed={**truth.committed, acked + 1000: (0, 3)}, aborted=truth.aborted | {acked},
                    unknown=[{acked, acked + 1000}])  # fmt: skip
    found = replace(good.oracle, truth=wrong).problems()
    for sentence in ("O2 acknowledged and not in the topic: 1", "O2 aborted and in the topic: 1", "O2 half of a transaction"):
        assert any(problem.startswith(sentence) for problem in found), found


def test_lost_file_of_a_batch_that_may_still_land(good: Site, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(good.kpipe.home, home)
    oracle = replace(good.oracle, home=home)
    waiting = home / "staging" / ("0" * 32)
    waiting.mkdir()
    assert oracle.problems() == []
    waiting.rmdir()
    assert oracle.problems() == [f"O5 staged files of batch {'0' * 32} are gone, which nobody has committed"]


@pytest.mark.chaos
def test_the_code_as_it_is_passes(tmp_path: Path, kafka_broker: LocalBroker) -> None:
    """What fails below fails because of the variant: each names its reason, and the same tests pass beside this one."""
    done = variants.tested(variants.pristine(tmp_path), variants.CONTROL, kafka_broker.folder)
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.parametrize(
    "variant",
    [pytest.param(v, marks=[] if v.quick else pytest.mark.chaos, id=v.name.replace(" ", "-").replace(",", "")) for v in VARIANTS],
)
def test_broken_code_is_noticed(tmp_path: Path, kafka_broker: LocalBroker, variant: Variant) -> None:
    done = variants.tested(variant.make(tmp_path), variant.tests, kafka_broker.folder)
    assert done.returncode == 1, f"{variant.name}: nothing failed\n{done.stdout[-5000:]}"
    reasons = "\n".join(line for line in done.stdout.splitlines() if line.startswith("E "))
    assert re.search(variant.reason, reasons), f"{variant.name}: failed for another reason\n{reasons}"
