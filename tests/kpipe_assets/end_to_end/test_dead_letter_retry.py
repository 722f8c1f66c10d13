"""`kpipe errors NAME --retry` from the outside: real Kafka, real Spark, real DuckDB; killed, doubled, and refused."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import NotAvailable
from kpipe_assets.runs.dead_letter_retry import retry
from resources.home import Home

pytestmark = [pytest.mark.broker, pytest.mark.spark]

ROWS = "SELECT id, CAST(day AS VARCHAR), _kafka_partition, _kafka_offset, epoch_ms(_kafka_timestamp) > 0 FROM days ORDER BY ALL"
WRONG, RIGHT = {"day": 'CAST("at" AS DATE)'}, {"day": "CAST(strptime(\"at\", '%d.%m.%Y') AS DATE)"}


def test_a_wrong_definition_is_mended_and_its_dead_letters_become_rows_once(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(2)
    write(name, ['{"id": 1, "at": "24.12.2026"}', '{"id": 2, "at": "2026-12-25"}', "{broken", '{"id": 3, "at": "26.12.2026"}'], 0)
    write(name, ['{"id": 4, "at": "27.12.2026", "more": 1}', '{"id": 9, "at": "28.12.2026"}'], 1)
    kpipe.define("days", name, set=WRONG, errors={"constraint": "dead_letter"})
    done = kpipe.json("run", "days")[-1]
    assert (done["rows"], done["dead_letters"]) == (1, 5)
    # With the same definition nothing changes but the reasons' version; policies do not throw anything away.
    kpipe.define("days", name, set=WRONG, errors={"constraint": "skip", "parse": "skip"})
    (again,) = kpipe.json("errors", "days", "--retry")
    assert (again["tried"], again["rows"], again["filtered"], again["failed"]) == (5, 0, 0, 5)
    assert kpipe.json("verify", "days")[0]["ok"]
    # Mended; killed at points of the commit, in processes of their own.
    kpipe.define("days", name, set=RIGHT, where="id < 9")
    for point in ("commit.data", "commit.before"):
        killed = kpipe.outside("errors", "days", "--retry", status=None, KPIPE_FAULT=f"{point}:1:kill")
        assert killed.returncode == -signal.SIGKILL
        proof = kpipe.json("verify", "days")[0]
        assert proof["ok"] and (proof["dead_letters"], proof["span"]) == (5, 6)
    # Two at once over the same dead letters, then one more: nothing comes twice.
    both = [kpipe.start("errors", "days", "--retry") for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
    assert "1 dead letter retried: 0 gave 0 rows, 0 filtered, 1 failed again" in kpipe("errors", "days", "--retry").stdout
    assert kpipe.sql(ROWS) == [
        (1, "2026-12-24", 0, 0, True),
        (2, "2026-12-25", 0, 1, True),
        (3, "2026-12-26", 0, 3, True),
        (4, "2026-12-27", 1, 0, True),
    ]
    assert kpipe.sql("SELECT more FROM days WHERE id = 4") == [(1,)]
    proof = kpipe.json("verify", "days")[0]
    assert proof["ok"]
    assert [proof[key] for key in ("span", "rows", "dead_letters", "filtered", "gaps")] == [6, 4, 1, 1, 0]
    (letter,) = kpipe.json("errors", "days")
    assert (letter["stage"], letter["load_data_line"], letter["offset"]) == ("parse", "{broken", 2)
    # The pipeline goes on where it stood.
    write(name, ['{"id": 5, "at": "29.12.2026"}'])
    assert kpipe.json("run", "days")[-1]["rows"] == 1
    assert kpipe.json("verify", "days")[0]["ok"]


def test_what_a_program_could_not_take_is_given_to_the_mended_one(kpipe: Any, topic: Any, write: Any, tmp_path: Any) -> None:
    name = topic(1)
    write(name, ['{"id": 1}', '{"id": 2}', '{"id": 3}'])
    program = tmp_path / "program.py"
    text = "#!/usr/bin/env python3\nimport sys\nfor line in sys.stdin:\n    %s\n    print(line, end='', flush=True)\n"
    program.write_text(text % "assert '2' not in line")
    program.chmod(0o755)
    kpipe.define("through", name, transform={"program": str(program)}, errors={"transform": "dead_letter"})
    assert kpipe.json("run", "through")[-1]["dead_letters"] == 1
    program.write_text(text % "line = line.replace('2', '22')")
    killed = kpipe.outside("errors", "through", "--retry", status=None, KPIPE_FAULT="commit.after:1:kill")
    assert killed.returncode == -signal.SIGKILL  # it had landed, and nobody was told
    assert not kpipe.json("errors", "through", "--retry")
    assert kpipe.sql("SELECT id, _kafka_offset FROM through ORDER BY ALL") == [(1, 0), (3, 2), (22, 1)]
    assert kpipe.json("verify", "through")[0]["ok"]


def test_records_of_several_lines_are_tried_whole(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(1)
    write(name, ["1,a\n2,b", "3,c\nx,d\n5,e", "6,f"])
    kpipe("sql", "CREATE TABLE lines (id VARCHAR, name VARCHAR)")
    form = {"type": "csv", "delimiter": ",", "fields": ["id", "name"]}
    wrong = {"set": {"id": "CAST(CAST(id AS BIGINT) AS VARCHAR)"}, "errors": {"constraint": "dead_letter"}}
    kpipe.define("lines", name, format=form, **wrong)
    assert kpipe.json("run", "lines")[-1]["dead_letters"] == 1
    kpipe.define("lines", name, format=form)
    (done,) = kpipe.json("errors", "lines", "--retry")
    assert (done["tried"], done["answered"], done["rows"]) == (1, 1, 3)
    assert kpipe.sql("SELECT _kafka_offset, string_agg(id ORDER BY id) FROM lines GROUP BY 1 ORDER BY 1") == [
        (0, "1,2"),
        (1, "3,5,x"),
        (2, "6"),
    ]
    assert kpipe.json("verify", "lines")[0]["ok"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"into": {"table": "t", "key": ["id"], "on_conflict": "replace"}}, "rows with a key"),
        ({"into": {"table": "t", "type": "delta"}}, "into.type delta"),
    ],
)
def test_what_cannot_be_retried_is_refused_by_name(tmp_path: Any, fields: dict[str, Any], words: str) -> None:
    pipeline = Pipeline.model_validate({"name": "p", "source": {"brokers": "a:1", "topic": "t"}, **fields})
    with pytest.raises(NotAvailable, match=words):
        next(retry(pipeline, Home(tmp_path)))
