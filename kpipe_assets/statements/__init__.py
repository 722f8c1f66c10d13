"""Statements executed: what `kpipe sql` does with what kpipe/sql has read."""
