"""Create a topic and write the lines of a file to it, one record each.

python produce.py TOPIC FILE [--partitions N] [--key FIELD]
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BROKERS = {"bootstrap.servers": os.environ.get("KAFKA_BROKERS", "localhost:9092")}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Create a topic and write the lines of a file to it, one record each.")
    parser.add_argument("topic")
    parser.add_argument("file", type=Path)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument(
        "--key", help="member of the JSON object that is the record's key; an object with no other member is a tombstone"
    )
    options = parser.parse_args()
    admin = AdminClient(BROKERS)
    (created,) = admin.create_topics([NewTopic(options.topic, options.partitions)]).values()
    try:
        created.result()
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise
    producer = Producer({**BROKERS, "enable.idempotence": True})
    lines = options.file.read_text(encoding="utf-8").splitlines()
    for line in lines:
        key, value = None, line
        if options.key:
            record = json.loads(line)
            key = str(record.pop(options.key))
            value = line if record else None
        producer.produce(options.topic, value, key)
    if producer.flush(60):
        raise SystemExit(f"{options.topic}: not every record was written within 60 s")
    print(f"{len(lines)} records written to {options.topic}")  # noqa: T201


if __name__ == "__main__":
    main()
