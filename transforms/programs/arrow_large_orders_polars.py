#!/usr/bin/env python3
"""Orders of more than 100.00, with polars; stdin: arrow, mode: filter. Polars reads all of stdin before it writes."""

import sys

import polars as pl

ORDER = pl.Struct({"id": pl.Int64, "amount": pl.Float64})


def main():
    records = pl.read_ipc_stream(sys.stdin.buffer.read())
    orders = records.select("offset", order=pl.col("value").cast(pl.String).str.json_decode(ORDER)).unnest("order")
    orders.filter(pl.col("amount") > 100).write_ipc_stream(sys.stdout.buffer)


if __name__ == "__main__":
    main()
