"""Kafka: client settings, topic metadata, bounded reads. Imports nothing, so that workers load only what they use."""
