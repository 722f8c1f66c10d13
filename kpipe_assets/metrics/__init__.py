"""Metrics for Prometheus: read from ledgers and brokers when they are scraped."""
