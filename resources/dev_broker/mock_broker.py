"""A stand-in for Kafka where no Java or no jars can be had: librdkafka's mock cluster, in a process of its own.

What it is good for: producing (also in transactions), consuming from an offset, watermarks. It speaks the protocol
over TCP, so every client of this machine can use it. Topics and records live in its memory only: a restart has
another port, another cluster id, and no topics.

Tried with librdkafka 2.16:

    answered        Metadata (cluster id, topics, partitions), DescribeCluster, DescribeTopics (with topic id, and an
                    error for unknown ones), ListOffsets earliest and latest, consumer groups, transactions (their end
                    takes one offset, as in Kafka: the gap is there, too)
    not answered    CreateTopics, DeleteTopics, CreatePartitions, DescribeConfigs: "not supported by broker"
    misleading      ListOffsets by timestamp answers -1 (none) for any time; producing to or asking the metadata of an
                    unknown topic creates it with 4 partitions, whatever the client's settings say

So topics are made by `request`: a file in `FOLDER/requests`, which this process turns into a call of librdkafka's C
interface, the only way to choose the number of partitions. DescribeCluster and DescribeTopics answer only because a
controller is set here; without one, clients wait for it until their time-out.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import sys
import time
import uuid
from pathlib import Path
from typing import Any

__all__ = ["address", "command", "prepare", "request"]

POLL_SECONDS = 0.02

REPLY_SECONDS = 10.0


def command(folder: Path) -> list[str]:
    """What runs the mock in the foreground; `-I`, so that neither the caller's folder nor variables reach it."""
    return [sys.executable, "-I", str(Path(__file__).resolve()), str(folder)]


def prepare(folder: Path) -> None:
    """Forget the last mock: call before starting one."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("requests", "replies"):
        (folder / name).mkdir(parents=True)


def address(folder: Path) -> str | None:
    """`127.0.0.1:PORT`, or None as long as the process has not told it."""
    try:
        return (folder / "address").read_text(encoding="ascii").strip()
    except OSError:
        return None


def request(folder: Path, operation: str, topic: str, partitions: int = 0) -> str | None:
    """Have the process `create` or `delete` a topic; returns librdkafka's reason if it did not, else None.

    Raises:
        TimeoutError: no answer after 10 s.
    """
    name = f"{uuid.uuid4().hex}.json"
    _put(folder / "requests" / name, json.dumps([operation, topic, partitions]))
    reply = folder / "replies" / name
    deadline = time.monotonic() + REPLY_SECONDS
    while not reply.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the mock broker did not answer: {operation} {topic}")
        time.sleep(POLL_SECONDS)
    answer = json.loads(reply.read_text(encoding="utf-8"))
    reply.unlink()
    return None if answer is None else str(answer)


def serve(folder: Path) -> None:
    """Run until a signal ends the process, or its folder is gone."""
    rdkafka = _rdkafka()
    reason = ctypes.create_string_buffer(512)
    handle = rdkafka.rd_kafka_new(0, rdkafka.rd_kafka_conf_new(), reason, len(reason))
    if not handle:
        raise RuntimeError(reason.value.decode())
    cluster = rdkafka.rd_kafka_mock_cluster_new(handle, 1)
    rdkafka.rd_kafka_mock_set_controller_id(cluster, 1)
    _put(folder / "address", rdkafka.rd_kafka_mock_cluster_bootstraps(cluster).decode("ascii"))
    while folder.is_dir():
        for path in sorted((folder / "requests").glob("*.json")):
            operation, topic, partitions = json.loads(path.read_text(encoding="utf-8"))
            if operation == "create":
                code = rdkafka.rd_kafka_mock_topic_create(cluster, topic.encode(), partitions, 1)
            else:
                code = rdkafka.rd_kafka_mock_topic_delete(cluster, topic.encode())
            path.unlink()
            answer = rdkafka.rd_kafka_err2str(code).decode() if code else None
            _put(folder / "replies" / path.name, json.dumps(answer))
        time.sleep(POLL_SECONDS)


def _put(path: Path, text: str) -> None:
    scratch = path.with_suffix(".new")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


def _rdkafka() -> Any:
    """The library that confluent_kafka ships (delvewheel, auditwheel and delocate put it beside the package)."""
    import confluent_kafka

    package = Path(confluent_kafka.__file__).parent
    found = [*package.parent.glob("confluent_kafka.libs/librdkafka*"), *package.glob(".dylibs/librdkafka*.dylib")]
    library = ctypes.CDLL(str(found[0]) if found else "librdkafka.so.1")
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_err2str", text, [number]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_set_controller_id", number, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
        ("rd_kafka_mock_topic_delete", number, [pointer, text]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
