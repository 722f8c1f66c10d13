#!/usr/bin/env python3
"""A row for each word of a text, in SQL; stdin: arrow, mode: flatmap. DuckDB reads all of stdin before it writes.

ORDER BY keeps the rows in the order of their records, which kpipe requires.
"""

import sys

import duckdb
import pyarrow as pa

QUERY = """
SELECT "offset", generate_subscripts(words, 1)::INTEGER AS number, unnest(words) AS word
FROM (SELECT "offset", regexp_extract_all(lower(decode(value)), '[a-z]+') AS words FROM records WHERE value IS NOT NULL)
ORDER BY "offset", number
"""


def main():
    records = pa.ipc.open_stream(sys.stdin.buffer).read_all()  # noqa: F841  # the query reads it by its name
    connection = duckdb.connect(config={"threads": 1})
    found = connection.sql(QUERY).to_arrow_table()
    with pa.ipc.new_stream(sys.stdout.buffer, found.schema) as writer:
        writer.write_table(found, max_chunksize=1 << 16)


if __name__ == "__main__":
    main()
