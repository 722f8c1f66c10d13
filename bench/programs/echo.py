#!/usr/bin/env python3
"""Each line as it came: what a line program in Python costs at least."""

import sys

for line in sys.stdin.buffer:
    sys.stdout.buffer.write(line)
