"""Logs, lineage and traces of runs. None of them delays or fails a load."""
