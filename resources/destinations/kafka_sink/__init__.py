"""Another topic as a destination: rows, dead letters and ledger in one transaction of Kafka's."""

from resources.destinations.kafka_sink.destination import KafkaDestination

__all__ = ["KafkaDestination"]
