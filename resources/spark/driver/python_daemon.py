"""PySpark's daemon, of which every Python worker is a fork: none of them can be read by a program that a worker starts."""

from __future__ import annotations

from pyspark import daemon

from kpipe.process_isolation import deny_tracing

if __name__ == "__main__":
    deny_tracing()
    daemon.manager()
