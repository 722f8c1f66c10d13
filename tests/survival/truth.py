"""What was written to a topic, as its writer knows it: every id with one of three outcomes, committed, aborted, unknown.

An exception is not "did not happen": what a broker was asked for while it died may be there or not, and a transaction
is there as a whole or not at all. The ids stand in the records' keys, so that records without a value have one, too.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

PATIENCE_S = 60.0  # for a broker that is away


@dataclass
class Truth:
    """Ids by outcome.

    Attributes:
        committed: acknowledged, with partition and offset.
        aborted: in transactions that were aborted.
        unknown: sets that are there as a whole or not at all.
    """

    committed: dict[int, tuple[int, int]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    unknown: list[set[int]] = field(default_factory=list)


def payload(number: int) -> bytes | None:
    """Most are rows; some have no value (tombstones), some are not JSON and become dead letters."""
    if number % 23 == 7:
        return None
    if number % 29 == 11:
        return b"{broken %d" % number
    return json.dumps({"id": number, "text": "é" * (number % 50), "list": [number % 3] * (number % 4)}).encode()


class Writer:
    """Writes rounds of records: plain ones, transactions that commit, and some that abort.

    Args:
        brokers: `host:port`.
        topic: the topic.
        partitions: how many it has.
        chance: which records go where, and which transactions abort.
    """

    def __init__(self, brokers: str, topic: str, partitions: int, chance: random.Random) -> None:
        self.truth = Truth()
        self.error: BaseException | None = None
        self._topic, self._partitions, self._chance = topic, partitions, chance
        self._next = 0
        quiet = {"bootstrap.servers": brokers, "linger.ms": 5, "log_level": 0, "error_cb": lambda _: None}
        self._plain = Producer({**quiet, "enable.idempotence": True, "message.timeout.ms": int(PATIENCE_S * 1000)})
        self._settings: dict[str, Any] = {**quiet, "transactional.id": f"writer-{topic}", "transaction.timeout.ms": 600_000}
        self._transactional: Producer | None = None
        self._admin = AdminClient(quiet)

    def round(self, records: int = 60) -> None:
        """About so many records: a third plain, the rest in transactions, one of which aborts every now and then."""
        third = max(1, records // 3)
        self.plain(third)
        self.transaction(third)
        if self._chance.random() < 0.4:
            self.transaction(third, abort=True)
        else:
            self.transaction(third)

    def plain(self, records: int) -> None:
        """Records outside of transactions, each with its own outcome."""
        told: dict[int, Message | None] = {}
        ids = self._send(self._plain, records, told)
        self._plain.flush(PATIENCE_S + 10)
        for number in ids:
            found = told.get(number)
            if found is not None:
                self.truth.committed[number] = (found.partition(), found.offset())
            else:
                self.truth.unknown.append({number})

    def transaction(self, records: int, abort: bool = False) -> None:
        """One transaction. Aborted ones are in the log as well, when they are flushed before."""
        told: dict[int, Message | None] = {}
        ids: list[int] = []
        try:
            producer = self._ready()
            producer.begin_transaction()
            ids = self._send(producer, records, told)
            if abort:
                producer.flush(PATIENCE_S)
                self._insist(producer.abort_transaction)
            else:
                self._insist(producer.commit_transaction)
        except KafkaException as error:
            self._failed(error.args[0], ids)
            return
        self._settle()
        if abort:
            self.truth.aborted.update(ids)
        else:
            self.truth.committed.update({n: (m.partition(), m.offset()) for n, m in told.items() if m is not None})
            assert all(told.get(number) is not None for number in ids), "a transaction committed without all of its records"

    @contextmanager
    def steadily(self, a_second: int) -> Iterator[None]:
        """Write at that rate in the background while inside."""
        end = threading.Event()

        def work() -> None:
            try:
                while not end.is_set():
                    self.round(max(3, a_second // 5))
                    end.wait(0.2)
            except BaseException as error:
                self.error = error

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join(10 * PATIENCE_S)
            assert not thread.is_alive(), "the writer does not end"
            if self.error is not None:
                raise self.error

    def _send(self, producer: Producer, records: int, told: dict[int, Message | None]) -> list[int]:
        ids = list(range(self._next, self._next + records))
        self._next += records

        def heard(number: int) -> Callable[[KafkaError | None, Message], None]:
            return lambda error, message: told.__setitem__(number, None if error else message)

        for number in ids:
            where = self._chance.randrange(self._partitions)
            producer.produce(self._topic, payload(number), str(number), where, on_delivery=heard(number))
        return ids

    def _ready(self) -> Producer:
        if self._transactional is None:
            producer = Producer(self._settings)
            self._insist(producer.init_transactions)
            self._transactional = producer
        return self._transactional

    def _settle(self, within: float = 10) -> None:
        """Wait until what is committed can be read: a broker answers before it has written that into all partitions.

        A run that begins before would be caught up with less than the oracle then sees. A broker that fails is not waited for.
        """
        places = [TopicPartition(self._topic, number) for number in range(self._partitions)]
        until = time.monotonic() + within
        while time.monotonic() < until:
            ends = []
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
                asked = {place: OffsetSpec.latest() for place in places}
                try:
                    found = self._admin.list_offsets(asked, isolation_level=level, request_timeout=10)
                    ends.append({place.partition: future.result(30).offset for place, future in found.items()})
                except (KafkaException, FutureTimeoutError):
                    return
            if ends[0] == ends[1]:
                return
            time.sleep(0.02)

    def _insist(self, call: Callable[[float], None]) -> None:
        """Again as long as the client says that it may be tried again; it remembers what it was asked for."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return call(10)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > until:
                    raise

    def _failed(self, error: KafkaError, ids: list[int]) -> None:
        """The client is given up. Its successor of the same name ends what it left open, one way or the other."""
        self._transactional = None
        if ids:
            self.truth.unknown.append(set(ids))
        self.last_failure = error
