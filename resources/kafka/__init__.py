"""Kafka: settings and secrets, what brokers say about topics, bounded reads. Imports nothing: workers load only what they use."""
