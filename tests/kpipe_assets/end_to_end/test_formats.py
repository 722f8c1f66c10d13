"""Each format from the outside: real Kafka, real Spark, real DuckDB."""

from __future__ import annotations

from typing import Any

LAST = {"messages", "rows", "dead_letters", "filtered", "gaps"}


def last(kpipe: Any, name: str) -> dict[str, int]:
    """What the run's summary counts."""
    summary = kpipe.json("run", name)[-1]
    assert summary["status"] == "caught_up"
    return {key: summary[key] for key in LAST}


def test_csv_with_several_lines_in_a_message(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(2)
    write(name, ["1,Ada,x,3.5\n2,Bob,y,\\N", '3,"Cy, the third",z,1', None, "", "four,Dee,z,1\n5,Eve,z,1"], 0)
    write(name, ["6,Flo,z,1\n7,Gus,z,1\n8,Hal,z,1"], 1)
    format = {"type": "csv", "delimiter": ",", "quote": '"', "fields": ["id", "name", "@skip", "late"]}
    kpipe.define("lines", name, format=format, columns={"id": "BIGINT"})
    assert last(kpipe, "lines") == {"messages": 6, "rows": 6, "dead_letters": 1, "filtered": 2, "gaps": 0}
    assert kpipe.sql("SELECT id, name, late, _kafka_partition, _kafka_offset FROM lines ORDER BY id") == [
        (1, "Ada", "3.5", 0, 0),
        (2, "Bob", None, 0, 0),
        (3, "Cy, the third", "1", 0, 1),
        (6, "Flo", "1", 1, 0),
        (7, "Gus", "1", 1, 0),
        (8, "Hal", "1", 1, 0),
    ]
    dead = kpipe.json("errors", "lines")[0]
    assert (dead["load_data_line"], dead["offset"]) == ("four,Dee,z,1\n5,Eve,z,1", 4)
    assert 'line 1: id: "four" is not a BIGINT' in dead["error_message"]
    proof = kpipe.json("verify", "lines")[0]
    assert proof["ok"] and (proof["span"], proof["rows"], proof["dead_letters"], proof["filtered"]) == (6, 6, 1, 2)


def test_csv_without_names_for_columns_says_what_to_do(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(1)
    write(name, ["1\t2"])
    kpipe.define("nameless", name, format={"type": "csv"})
    done = kpipe("run", "nameless", status=2)
    assert "format.fields" in done.stderr and "CSV has no column names" in done.stderr


def test_csv_from_a_program(kpipe: Any, topic: Any, write: Any, tmp_path: Any) -> None:
    name = topic(1)
    write(name, ["1 a", "2 b", "x c"])
    file = tmp_path / "comma"
    file.write_text("#!/bin/sh\nexec sed -u 's/ /,/'\n")
    file.chmod(0o755)
    kpipe.define(
        "comma",
        name,
        transform={"program": str(file)},
        format={"type": "csv", "delimiter": ","},
        columns={"a": "INT", "b": "TEXT"},
    )
    assert last(kpipe, "comma") == {"messages": 3, "rows": 2, "dead_letters": 1, "filtered": 0, "gaps": 0}
    assert kpipe.sql("SELECT a, b, _kafka_offset FROM comma ORDER BY a") == [(1, "a", 0), (2, "b", 1)]
    assert kpipe.json("verify", "comma")[0]["ok"]
