"""PySpark's daemon, from which every Python worker is forked; programs that a worker starts cannot read its memory."""

from __future__ import annotations

from pyspark import daemon

from kpipe.process_isolation import deny_tracing

if __name__ == "__main__":
    deny_tracing()
    daemon.manager()
