"""Contenders: kpipe, and the systems that are measured beside it."""
