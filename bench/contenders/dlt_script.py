"""Load a topic into DuckDB through dlt, with a resource that yields a decoded record for each message, as its Kafka source does.

    python dlt_script.py BROKERS TOPIC FOLDER

dlt normalizes the nested `user` to columns. Prints a JSON line.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dlt
from confluent_kafka import Consumer, TopicPartition

_SETTINGS = {"group.id": "bench-dlt", "enable.auto.commit": False, "auto.offset.reset": "error", "queued.min.messages": 200_000}


def main() -> None:
    brokers, topic, folder = sys.argv[1:]
    os.environ["NORMALIZE__WORKERS"] = "2"
    os.environ["DATA_WRITER__FILE_MAX_ITEMS"] = "200000"
    began = time.time()

    @dlt.resource(name="bench", write_disposition="append")
    def messages() -> Iterator[list[dict[str, Any]]]:
        consumer = Consumer({"bootstrap.servers": brokers, **_SETTINGS})
        left = 0
        starts = []
        for number in consumer.list_topics(topic, 10).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), 10)
            left += high - low
            starts.append(TopicPartition(topic, number, low))
        consumer.assign(starts)
        while left:
            found = consumer.consume(10_000, timeout=0.2)
            left -= len(found)
            yield [json.loads(message.value()) for message in found]
        consumer.close()

    database = Path(folder) / "tweets.duckdb"
    database.parent.mkdir(parents=True)
    pipeline = dlt.pipeline(
        "bench", pipelines_dir=str(Path(folder) / "dlt"), destination=dlt.destinations.duckdb(str(database)), dataset_name="bench"
    )
    pipeline.run(messages(), loader_file_format="parquet")
    answer = {"seconds": time.time() - began, "database": str(database)}
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        answer["cpu_s"] = answer.get("cpu_s", 0) + used.ru_utime + used.ru_stime
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
