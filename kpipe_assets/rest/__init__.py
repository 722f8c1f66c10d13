"""Kafka Connect's REST API, version 4, and kpipe's own resources, over a home."""
