"""Sources other than Kafka: a connector lists splits with their ends, and reads ranges of a split."""
