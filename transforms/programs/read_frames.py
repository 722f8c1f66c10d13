#!/usr/bin/env python3
"""Length-prefixed input, as SingleStore frames it: {"bytes": n, "sha256": ...} for each record; map mode.

For values that contain newlines or are binary: images, Avro, compressed blocks.
"""

import hashlib
import json
import struct
import sys

LENGTH = struct.Struct("@Q")  # 8 bytes, unsigned, in the machine's byte order


def frames(file):
    while head := file.read(LENGTH.size):
        if len(head) < LENGTH.size:
            raise EOFError("input ends inside a length")
        (size,) = LENGTH.unpack(head)
        value = file.read(size)
        if len(value) < size:
            raise EOFError("input ends inside a value")
        yield value


for value in frames(sys.stdin.buffer):
    row = {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    sys.stdout.write(json.dumps(row) + "\n")
sys.stdout.flush()  # at exit it would happen too, but an error there does not change the exit status
