"""An archive of Kafka's classes, from which the brokers of tests start: `python -m tests.servers.kafka_archive` makes it.

Formatting a folder and starting a broker take 3.5 seconds of CPU with the archive and 5.3 without (Java 17, busy machine).
Java checks that its own version and the jars are those of the archive, and starts without it where they are not.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from kpipe.errors import KpipeError
from resources.dev_broker import kafka_node
from resources.dev_broker.broker import LocalBroker
from tests.ports import free_port

ARCHIVE = Path(sys.prefix) / "share" / "kpipe" / f"kafka-{kafka_node.VERSION}-tests.jsa"


def options() -> tuple[str, ...]:
    """Return the JVM's options; none where there is no archive."""
    if not ARCHIVE.is_file():
        return ()
    return f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"


def make() -> None:
    """Make the archive, unless there is one: start a broker, which writes its classes when it ends.

    Raises:
        KpipeError: the broker does not start, or was killed before it had written all.
    """
    if ARCHIVE.is_file():
        return
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kpipe-archive-") as folder:
        made, plain = Path(folder) / "classes.jsa", kafka_node.JVM
        base = Path(folder) / "broker"
        base.mkdir()
        kafka_node.write_configuration(base, free_port(), free_port())
        kafka_node.format_storage(base)  # by a Java of its own, which writes no archive
        kafka_node.JVM = (*plain, f"-XX:ArchiveClassesAtExit={made}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
        broker = LocalBroker(base)
        broker.start(free_port())
        try:
            broker.create_topic("archive", 1, {})
        finally:
            broker.stop()
        kafka_node.JVM = (*plain, f"-XX:SharedArchiveFile={made}", "-Xshare:on", "-XX:+VerifySharedSpaces")
        *java, _, _ = kafka_node.command(base)
        checked = subprocess.run([*java, "-version"], capture_output=True, text=True, check=False)
        if checked.returncode:
            raise KpipeError(f"{made.name}: incomplete archive of Kafka's classes: {checked.stderr or checked.stdout}")
        aside = ARCHIVE.with_suffix(".new")
        aside.write_bytes(made.read_bytes())
        aside.replace(ARCHIVE)  # whole, or not there: two sessions may make it at once


if __name__ == "__main__":
    try:
        make()
    except (KpipeError, OSError) as error:
        print(f"WARNING: brokers of tests will start slower: {error}", file=sys.stderr)
