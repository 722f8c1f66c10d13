#!/usr/bin/env python3
"""Each batch as it came, with pyarrow; stdin: arrow, any mode."""

import sys

import pyarrow as pa

reader = pa.ipc.open_stream(sys.stdin.buffer)
with pa.ipc.new_stream(sys.stdout.buffer, reader.schema) as writer:
    for batch in reader:
        writer.write_batch(batch)
