"""Set a consumer group's offsets in Kafka after commits, for tools that monitor lag. kpipe never reads them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeout

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kpipe.definition.pipeline import Source
from kpipe.errors import CredentialUnavailable, InvalidPipeline, SourceError
from kpipe.topics import PartitionId
from resources.kafka.client_config import admin_config, client_config
from resources.kafka.errors import Voice
from resources.secrets import redact, secrets_in

__all__ = ["GroupOffsets"]

_LOG = logging.getLogger("kpipe.kafka")
_PATIENCE_S = 2.0  # the next batch waits for this request


class GroupOffsets:
    """Offsets of the group that `source.group` names.

    Args:
        source: of the pipeline.
        environ: variables for the templates of credentials; None: this process's environment.
    """

    def __init__(self, source: Source, environ: Mapping[str, str] | None = None) -> None:
        assert source.group is not None
        self._group = source.group
        client_config(source, environ, read=False)
        self._source, self._environ, self._secrets = source, environ, tuple[str, ...]()
        self._admin: AdminClient | None = None
        self._failed = False

    def follow(self, positions: Mapping[PartitionId, int]) -> bool:
        """Set the group's offsets to these next offsets. Best effort: a failure is logged once until it works again.

        Returns:
            True if the offsets were set.

        Raises:
            InvalidPipeline: librdkafka rejects the source's settings.
        """
        if not positions:
            return True
        places = [TopicPartition(source.topic.name, source.partition, at) for source, at in sorted(positions.items())]
        try:
            answers = self._client().alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self._group, places)], request_timeout=_PATIENCE_S
            )
            results = answers[self._group].result(_PATIENCE_S + 1).topic_partitions
            wrong = next((result.error for result in results if result.error is not None), None)
        except (KafkaException, FutureTimeout) as error:
            wrong = error.args[0] if error.args else type(error).__name__
        except (SourceError, CredentialUnavailable) as error:
            wrong = error
        if wrong is not None and not self._failed:
            text = redact(str(wrong), self._secrets)
            _LOG.warning(
                "group %s: offsets could not be set (ingest continues; its offsets are in the ledger): %s", self._group, text
            )
        self._failed = wrong is not None
        if wrong is not None:
            self._admin = None  # the next client reads credentials again
        return wrong is None

    def _client(self) -> AdminClient:
        if self._admin is None:
            config = admin_config(client_config(self._source, self._environ))
            self._secrets = secrets_in(config)
            try:
                self._admin = AdminClient(Voice(self._secrets).connecting(config))
            except (KafkaException, ValueError, TypeError) as error:
                # From None: librdkafka quotes the rejected value.
                what = redact(str(error), self._secrets)
                raise InvalidPipeline(f"source: the Kafka client rejects its settings: {what}") from None
        return self._admin
