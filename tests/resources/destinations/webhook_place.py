"""A receiver of webhooks as a place for the conformance suite."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from kpipe.definition.pipeline import Into
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from resources.destinations.webhook import Rules, WebhookDestination
from resources.destinations.webhook.sender import Endpoint
from resources.destinations.webhook.url_guard import Url
from tests.receiver import Receiver
from tests.resources.destinations.kafka_place import meant
from tests.resources.destinations.place import DuckDBPlace

BODY = '{"row": ${*}, "at": [${_kafka_partition}, ${_kafka_offset}]}'


class WebhookPlace(DuckDBPlace):
    """Rows are those that the receiver has taken, each key once, and the ledger has receipts of."""

    keyed = False
    null_json = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.receiver = Receiver()

    def into(self, table: str = "tweets", **more: Any) -> Into:
        """Fields of a destination here."""
        fields = {"type": "webhook", "url": self.receiver.url, "table": table, "body": BODY, "max_records": 3, "retry_s": 2}
        return Into.model_validate({**fields, "allow_hosts": ["127.0.0.1"], **more})

    def open(
        self,
        pipeline: str = "tweets",
        table: str = "tweets",
        rule: KeyRule | None = None,
        rules: Rules | None = None,
        signing: tuple[bytes, ...] = (),
        **more: Any,
    ) -> WebhookDestination:
        assert rule is None
        into = self.into(table, **more)
        endpoint = Endpoint(
            Url.of(str(into.url)), into.headers, signing, (), into.allow_hosts, into.concurrency, into.timeout_s, into.retry_s
        )
        return WebhookDestination(into, endpoint, self.path, pipeline, {"source_type": "KAFKA"}, (self.staging,), rules, 5)

    def columns(self, table: str) -> Columns:
        return Columns.of(dict(json.loads(self.sql("SELECT columns FROM kpipe_sent WHERE target_table = ?", table)[0][0])))

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        receipts = super().rows(table)
        taken = {one.key: json.loads(one.body, parse_float=Decimal) for one in self.receiver.taken}
        taken = {key: body if isinstance(body, list) else [body] for key, body in taken.items()}
        columns = self.columns(table) if receipts else Columns()
        sent: dict[tuple[str, int, int | None], list[dict[str, Any]]] = {}
        for key, bodies in taken.items():
            for body in bodies:
                sent.setdefault((key, *body["at"]), []).append(body["row"])
        found, nth = [], dict.fromkeys(sent, 0)
        for receipt in receipts:
            at = receipt["_kafka_partition"], receipt["_kafka_offset"]
            place = (receipt["request"], *at)
            values = sent[place][nth[place] % len(sent[place])]  # a receipt without a request fails here
            nth[place] += 1
            row = {name: meant(values.get(name), kind) for name, kind in columns}
            found.append({**row, "_kafka_partition": at[0], "_kafka_offset": at[1]})
        return sorted(found, key=lambda row: (row["_kafka_partition"], row["_kafka_offset"] or 0))

    def close(self) -> None:
        self.receiver.stop()
