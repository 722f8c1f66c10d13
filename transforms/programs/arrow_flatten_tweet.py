#!/usr/bin/env python3
"""Flat columns of each tweet, by one DuckDB query; stdin: arrow, mode: map. A value that is not a JSON object is all NULL."""

import sys

import duckdb
import pyarrow as pa

QUERY = """
SELECT t.id AS id, t.created_at AS created_at, t.lang AS lang, t.text AS text, t.user.id AS user_id,
    t.user.screen_name AS user_name, t.user.followers_count AS followers, t.user.verified AS verified,
    t.user.location AS location, coalesce([tag.text FOR tag IN t.entities.hashtags], []) AS hashtags,
    coalesce(len(t.entities.mentions), 0) AS mentions, t.coordinates.lat AS lat, t.coordinates.lon AS lon,
    t.retweet_count AS retweets, t.favorite_count AS favorites, t.reply_to AS reply_to
FROM (SELECT TRY(json_transform(value, '{
    "id": "BIGINT", "created_at": "VARCHAR", "lang": "VARCHAR", "text": "VARCHAR",
    "user": {"id": "BIGINT", "screen_name": "VARCHAR", "followers_count": "BIGINT", "verified": "BOOLEAN", "location": "VARCHAR"},
    "entities": {"hashtags": [{"text": "VARCHAR"}], "mentions": ["JSON"]},
    "coordinates": {"lat": "DOUBLE", "lon": "DOUBLE"},
    "retweet_count": "BIGINT", "favorite_count": "BIGINT", "reply_to": "BIGINT"
}')) AS t FROM texts)
"""
ROWS = 16_384


def as_text(batch):
    """The column value as text: the same bytes, checked at once. Bytes that are not UTF-8 become NULL."""
    values = batch.column("value")
    try:
        text = values.view(pa.string())
        text.validate(full=True)
    except pa.ArrowInvalid:
        text = pa.array([decoded(value) for value in values.to_pylist()], pa.string())
    return pa.record_batch([text], names=["value"])


def decoded(value):
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def main():
    connection = duckdb.connect(config={"threads": 1, "preserve_insertion_order": True})
    batches = pa.ipc.open_stream(sys.stdin.buffer)
    # One query over the whole stream: planning it for each batch would cost a fifth of the time.
    texts = pa.RecordBatchReader.from_batches(pa.schema([("value", pa.string())]), map(as_text, batches))  # noqa: F841
    rows = connection.sql(QUERY).to_arrow_reader(ROWS)
    with pa.ipc.new_stream(sys.stdout.buffer, rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)


if __name__ == "__main__":
    main()
