"""Read Kafka to files with Spark's own means, in a session that stays. Runs under the peers' Python, without kpipe.

python spark_server.py JAR[,JAR...] SCRATCH
"""

import json
import os
import shutil
import sys
import time
import traceback
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

ANSWER = "@answer "
SCHEMA = (
    "id BIGINT, created_at TIMESTAMP, text STRING, lang STRING,"
    " user STRUCT<id: BIGINT, screen_name: STRING, followers: BIGINT>, retweets BIGINT, score DOUBLE"
)


def session(jars: str, scratch: str) -> SparkSession:
    delta = "delta" in jars
    builder = SparkSession.builder.master("local[*]").appName("bench")
    for name, value in {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": scratch + "/warehouse",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        **({"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension"} if delta else {}),
        **({"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"} if delta else {}),
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def last_commit(out: str, kind: str) -> float:
    """Return the time at which the last batch became visible, in seconds since 1970."""
    log, names = ("_delta_log", "*.json") if kind == "delta" else ("_spark_metadata", "[0-9]*")
    return max(file.stat().st_mtime for file in (Path(out) / log).glob(names))


class Server:
    def __init__(self, jars: str, scratch: str) -> None:
        self.spark = session(jars, scratch)
        self.streams = {}

    def parsed(self, brokers: str, topic: str, schema: str, options: dict) -> DataFrame:
        records = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers)
        records = records.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()
        return records.select(F.from_json(F.col("value").cast("string"), schema).alias("j")).select("j.*")

    def ready(self) -> dict:
        self.spark.range(1).count()
        return {}

    def drain(self, kind: str, brokers: str, topic: str, out: str, options: dict | None = None) -> dict:
        """Run Structured Streaming with availableNow: read everything available, then end."""
        shutil.rmtree(out, ignore_errors=True)
        began, wall = time.monotonic(), time.time()
        query = (
            self.parsed(brokers, topic, SCHEMA, options or {})
            .writeStream.format(kind)
            .option("checkpointLocation", out + "/checkpoint")
            .trigger(availableNow=True)
            .start(out + "/table")
        )
        query.awaitTermination()
        visible = last_commit(out + "/table", kind)
        return {"seconds": visible - wall, "visible": visible, "returned_s": time.monotonic() - began}

    def pipe(self, brokers: str, topic: str, out: str, command: str) -> dict:
        """Run Spark's `pipe`: read a batch, write each value as a line to the command's stdin, parse its lines, write Parquet."""
        shutil.rmtree(out, ignore_errors=True)
        began = time.monotonic()
        records = self.spark.read.format("kafka").option("kafka.bootstrap.servers", brokers).option("subscribe", topic)
        values = records.load().select(F.col("value").cast("string"))
        # The RDD of the JVM: through pyspark's every record would cross to Python and back as well.
        strings = self.spark._jvm.org.apache.spark.sql.Encoders.STRING()
        lines = getattr(values._jdf, "as")(strings).javaRDD().pipe(command).rdd()
        piped = DataFrame(self.spark._jsparkSession.createDataset(lines, strings).toDF(), self.spark)
        piped.select(F.from_json("value", SCHEMA).alias("j")).select("j.*").write.parquet(out + "/table")
        return {"seconds": time.monotonic() - began, "visible": time.time()}

    def follow(self, brokers: str, topic: str, out: str, trigger: str) -> dict:
        """Run Structured Streaming until `unfollow`. Records contain their produce time, t."""
        query = self.parsed(brokers, topic, "t DOUBLE, " + SCHEMA, {})
        writer = query.writeStream.format("parquet").option("checkpointLocation", out + "/checkpoint")
        self.streams[out] = writer.trigger(processingTime=trigger).start(out + "/table")
        return {}

    def unfollow(self, out: str) -> dict:
        query = self.streams.pop(out)
        failed = query.exception()
        query.stop()
        return {"error": str(failed)} if failed else {}


def main() -> None:
    server = Server(*sys.argv[1:])
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(server, order.pop("do"))(**order)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        sys.stdout.write(ANSWER + json.dumps(answer) + "\n")
        sys.stdout.flush()
    server.spark.stop()
    os._exit(0)  # nothing is left to do; the JVM ends when its stdin does


if __name__ == "__main__":
    main()
