"""What becomes of a record that fails a stage: every stage with every policy, all counters, and the limit on dead letters."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kpipe.batch.batch import Counts, total
from kpipe.errors import DeadLettersExceeded, KpipeError, RecordRejected, SchemaConflict, TransformFailed
from kpipe_assets.runs.proof import prove
from resources.home import Home
from tests.survival.small import run

pytestmark = pytest.mark.broker

BAD = 3
GOOD = [json.dumps({"id": at, "text": str(at)}) for at in range(10)]
PROGRAM = "#!/usr/bin/env python3\nimport sys\nfor line in sys.stdin:\n    assert 'bad' not in line\n    print(line, end='')\n"
#: Per stage: the record that fails it, what the pipeline needs for that, and the error under `fail`.
STAGES: dict[str, tuple[str, dict[str, Any], type[KpipeError]]] = {
    "parse": ("{broken", {}, RecordRejected),
    "transform": ('{"id": 3, "text": "bad"}', {"transform": {"program": "PROGRAM"}}, TransformFailed),
    "constraint": ('{"id": 3, "text": "bad"}', {"set": {"n": "CAST(text AS BIGINT)"}}, RecordRejected),
    "duplicate_key": ('{"id": 0, "text": "again"}', {"into": {"key": ["id"]}}, SchemaConflict),
}
#: Per policy: what differs from ten rows.
COUNTS = {
    "dead_letter": Counts(rows=9, inserted=9, dead_letters=1),
    "skip": Counts(rows=9, inserted=9, filtered=1),
}


@pytest.fixture
def begun(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> Any:
    """Defines the pipeline `p` of a stage, over a topic with its bad record among nine good ones."""
    name = topic(1)

    def define(stage: str, **errors: Any) -> Home:
        bad, fields, _ = STAGES[stage]
        write(name, [*GOOD[:BAD], bad, *GOOD[BAD + 1 :]])
        program = tmp_path / "program.py"
        program.write_text(PROGRAM)
        program.chmod(0o755)
        fields = json.loads(json.dumps(fields).replace('"PROGRAM"', json.dumps(str(program))))
        into = {"table": "p", **fields.pop("into", {})}
        kpipe.define("p", name, errors=errors, into=into, batch={"max_retries": 0}, **fields)
        return Home.at(kpipe.home)

    return define


@pytest.mark.crossed
@pytest.mark.parametrize("policy", ["fail", "dead_letter", "skip"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_record_that_fails(begun: Any, kpipe: Any, stage: str, policy: str) -> None:
    home = begun(stage, **{stage: policy})
    if policy == "fail":
        with pytest.raises(STAGES[stage][2], match=r"offset 3|offsets \[3"):
            list(run(home.path, "p"))
        assert not prove(home.pipeline("p"), home).span
        return
    done = total(item.commit.totals for item in run(home.path, "p"))
    expected = COUNTS[policy]
    if (stage, policy) == ("duplicate_key", "skip"):  # it was a row, for which there was no place
        expected = Counts(rows=10, inserted=9, ignored=1)
    names = ("rows", "inserted", "updated", "ignored", "dead_letters", "filtered", "gaps")
    assert {name: getattr(done, name) for name in names} == {name: getattr(expected, name) for name in names}
    proof = prove(home.pipeline("p"), home)
    assert proof.ok and proof.span == 10 == done.messages
    assert kpipe.sql("SELECT id FROM p ORDER BY id") == [(at,) for at in range(10) if at != BAD]
    letters = kpipe.sql('SELECT stage, "offset", load_data_line, length(error_message) > 0 FROM kpipe_errors')
    assert letters == ([(stage, BAD, STAGES[stage][0].encode(), True)] if policy == "dead_letter" else [])
    counted = 'sum("rows"), sum(dead_letters), sum(filtered), sum(ignored)'
    want = (expected.rows, expected.dead_letters, expected.filtered, expected.ignored)
    assert kpipe.sql(f"SELECT {counted} FROM kpipe_batches") == kpipe.sql(f"SELECT {counted} FROM kpipe_commits") == [want]


@pytest.mark.parametrize("stage", STAGES)
def test_the_limit_on_dead_letters_stops_it(begun: Any, kpipe: Any, stage: str) -> None:
    home = begun(stage, **{stage: "dead_letter"}, max_dead_letters=0)
    with pytest.raises(DeadLettersExceeded, match="max_dead_letters: expected at most 0 dead letters"):
        list(run(home.path, "p"))
    assert not prove(home.pipeline("p"), home).span
    document = kpipe.home / "pipelines" / "p.yaml"
    changed, times = re.subn(r"(max_dead_letters\W+)0", r"\g<1>1", document.read_text())
    assert times == 1
    document.write_text(changed)
    assert total(item.commit.totals for item in run(home.path, "p")).dead_letters == 1
