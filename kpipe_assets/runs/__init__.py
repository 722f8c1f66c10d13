"""Runs of a pipeline: locks, stop requests, status, workers, retries."""
