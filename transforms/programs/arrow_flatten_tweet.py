#!/usr/bin/env python3
"""Flat columns of each tweet, with DuckDB in batches; stdin: arrow, mode: map. A value that is not a JSON object is all NULL."""

import sys

import duckdb
import pyarrow as pa

QUERY = """
SELECT t.id AS id, t.created_at AS created_at, t.lang AS lang, t.text AS text, t.user.id AS user_id,
    t.user.screen_name AS user_name, t.user.followers_count AS followers, t.user.verified AS verified,
    t.user.location AS location, coalesce([tag.text FOR tag IN t.entities.hashtags], []) AS hashtags,
    coalesce(len(t.entities.mentions), 0) AS mentions, t.coordinates.lat AS lat, t.coordinates.lon AS lon,
    t.retweet_count AS retweets, t.favorite_count AS favorites, t.reply_to AS reply_to
FROM (SELECT TRY(json_transform(v, '{
    "id": "BIGINT", "created_at": "VARCHAR", "lang": "VARCHAR", "text": "VARCHAR",
    "user": {"id": "BIGINT", "screen_name": "VARCHAR", "followers_count": "BIGINT", "verified": "BOOLEAN", "location": "VARCHAR"},
    "entities": {"hashtags": [{"text": "VARCHAR"}], "mentions": ["JSON"]},
    "coordinates": {"lat": "DOUBLE", "lon": "DOUBLE"},
    "retweet_count": "BIGINT", "favorite_count": "BIGINT", "reply_to": "BIGINT"
}')) AS t FROM (SELECT TRY(decode(value)) AS v FROM batch))
"""


def main():
    connection = duckdb.connect(config={"threads": 1, "preserve_insertion_order": True})
    reader = pa.ipc.open_stream(sys.stdin.buffer)
    writer = None
    for batch in reader:  # noqa: B007  # the query reads it by its name
        found = connection.sql(QUERY).to_arrow_table()
        writer = writer or pa.ipc.new_stream(sys.stdout.buffer, found.schema)
        writer.write_table(found)
    (writer or pa.ipc.new_stream(sys.stdout.buffer, pa.schema([]))).close()


if __name__ == "__main__":
    main()
