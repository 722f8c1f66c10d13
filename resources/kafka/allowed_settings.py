"""Lists of librdkafka's settings that a pipeline may set, and reasons for those that it may not.

A pipeline's definition is less trusted than the machine that runs it: some settings load libraries, run commands, or
send credentials elsewhere. So this is an allow-list: kpipe rejects a setting of a later librdkafka until it has been
reviewed. Names and meanings: librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ALLOWED", "CONSUMER_ONLY", "CREDENTIALS", "DEFAULTS", "FIXED", "OAUTH", "OAUTH_CREDENTIALS", "OPERATION_TIMEOUT", "OPT_IN",
    "READER", "SECRETS", "why_refused",
]  # fmt: skip

OPT_IN: Final = "allow.plaintext.credentials"
"""kpipe's own key in `source.config`: SASL without TLS, for a trusted network."""

OPERATION_TIMEOUT: Final = "operation.timeout.ms"
"""Longest time for a metadata request; SingleStore's name and default (10,000 ms)."""

OAUTH: Final = frozenset(
    {
        "https.ca.location", "sasl.oauthbearer.client.id", "sasl.oauthbearer.extensions", "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope", "sasl.oauthbearer.token.endpoint.url",
    }
)  # fmt: skip
"""librdkafka's settings of OAUTHBEARER in `source.config`, which kpipe uses itself (token_settings.py)."""

OAUTH_CREDENTIALS: Final = frozenset({"sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.token"})
"""The same, in `source.credentials`. `sasl.oauthbearer.token` is kpipe's: a token, usually from a file or a command."""

SECRETS: Final = (
    frozenset({"sasl.password", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password"}) | OAUTH_CREDENTIALS
) - OAUTH
"""Only under `source.credentials`."""

CREDENTIALS: Final = SECRETS | {"sasl.username", "sasl.oauthbearer.client.id"}
"""Settings that `source.credentials` may contain."""

READER: Final = frozenset(
    {
        "fetch.error.backoff.ms", "fetch.max.bytes", "fetch.message.max.bytes", "fetch.min.bytes",
        "fetch.queue.backoff.ms", "fetch.wait.max.ms", "max.partition.fetch.bytes", "queued.max.messages.kbytes",
        "queued.min.messages",
    }
)  # fmt: skip
"""Settings of reads; a client that reads no records does not support them."""

ALLOWED: Final = READER | frozenset(
    {
        "api.version.request.timeout.ms", "broker.address.family", "broker.address.ttl", "client.dns.lookup", "client.id",
        "client.rack", "connections.max.idle.ms", "max.in.flight", "max.in.flight.requests.per.connection",
        "message.max.bytes", "metadata.max.age.ms", "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy", "receive.message.max.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
        "retry.backoff.max.ms", "retry.backoff.ms", "sasl.kerberos.keytab", "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal", "sasl.kerberos.service.name", "sasl.mechanism", "sasl.mechanisms", "sasl.username",
        "security.protocol", "socket.connection.setup.timeout.ms", "socket.keepalive.enable", "socket.max.fails",
        "socket.nagle.disable", "socket.receive.buffer.bytes", "socket.send.buffer.bytes", "socket.timeout.ms",
        "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.cipher.suites",
        "ssl.crl.location", "ssl.curves.list", "ssl.key.location", "ssl.keystore.location", "ssl.sigalgs.list",
        "topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.interval.ms",
    }
)  # fmt: skip
"""Settings that `source.config` may contain."""

DEFAULTS: Final[dict[str, str | int]] = {
    "client.id": "kpipe",
    # The records of a range exist already, so waiting for more gains nothing. It would only delay the end-of-partition
    # event, which librdkafka sends after one empty fetch (500 ms by librdkafka's default).
    "fetch.wait.max.ms": 10,
    # Bounded memory: librdkafka reads 16 MB of records ahead, not 64. Measured to be as fast (bench/studies/reader.py) if it
    # checks every 2 ms instead of every 1000 whether the queue has room again.
    "queued.max.messages.kbytes": 16384,
    "fetch.queue.backoff.ms": 2,
    # A fetch is a quarter of the queue instead of 1 MB: fewer responses to wait for, a tenth faster.
    "fetch.message.max.bytes": 4_194_304,
    # By default a refused connection is tried again every 50 ms.
    "reconnect.backoff.ms": 200,
    "socket.connection.setup.timeout.ms": 10_000,
}
"""kpipe's defaults for settings that the pipeline omits."""

FIXED: Final[dict[str, str | int | bool]] = {
    # librdkafka requires a group for a consumer; with `assign` and no commit, nothing is stored in it.
    "group.id": "kpipe-stores-nothing",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "check.crcs": True,
    "allow.auto.create.topics": False,
    # A batch may be decoded for longer than librdkafka's five minutes between two reads.
    "max.poll.interval.ms": 86_400_000,
    # Time until an unknown topic is reported, instead of 30 s.
    "topic.metadata.propagation.max.ms": 5000,
}
"""kpipe's fixed settings: exactly-once depends on them."""

CONSUMER_ONLY: Final = (READER | FIXED.keys()) - {"allow.auto.create.topics", "topic.metadata.propagation.max.ms"}
"""Settings about which an admin client would log a warning."""

_LEDGER = "the ledger in the destination is the only record of progress"
_CODE = "it would load or run code that the pipeline's definition chooses"
_TLS = "kpipe verifies the brokers' certificate and host name; name your authority in ssl.ca.location"
_REASONS: Final = {
    "bootstrap.servers": "write it as source.brokers",
    "metadata.broker.list": "write it as source.brokers",
    "group.id": _LEDGER,
    "enable.auto.commit": _LEDGER,
    "auto.commit.enable": _LEDGER,
    "auto.commit.interval.ms": _LEDGER,
    "enable.auto.offset.store": _LEDGER,
    "offset.store.method": _LEDGER,
    "isolation.level": "kpipe reads committed records only; its ends are last stable offsets",
    "auto.offset.reset": "an offset that does not exist is an error to kpipe; where to begin is source.start",
    "enable.partition.eof": "kpipe proves the end of a range by it",
    "check.crcs": "kpipe always checks them",
    "allow.auto.create.topics": "kpipe never creates a topic by reading",
    "max.poll.interval.ms": "kpipe is in no consumer group",
    "plugin.library.paths": _CODE,
    "ssl.engine.location": _CODE,
    "ssl.engine.id": _CODE,
    "ssl.providers": _CODE,
    "sasl.kerberos.kinit.cmd": _CODE,
    "debug": "its log lines may contain confidential data",
    "log_level": "kpipe hands the client's lines to Python's logging, logger kpipe.kafka",
    "enable.ssl.certificate.verification": _TLS,
    "ssl.endpoint.identification.algorithm": _TLS,
    "builtin.features": "it is not a setting",
    "sasl.oauthbearer.config": "tokens come from sasl.oauthbearer.token.endpoint.url, or from source.credentials"
    " sasl.oauthbearer.token",
    "test.mock.num.brokers": "it would read from a mock inside the client",
}
_PREFIXES: Final = {
    "sasl.oauthbearer.": "kpipe requests tokens by client credentials only; run a command for others: source.credentials"
    " sasl.oauthbearer.token",
    "enable.sasl.oauthbearer.": "it accepts unsigned tokens",
    "group.": "kpipe is in no consumer group",
    "test.": "it is for librdkafka's own tests",
}


def why_refused(key: str) -> str:
    """Return why kpipe rejects a setting; empty for an unknown setting."""
    if key in _REASONS:
        return _REASONS[key]
    if key.endswith("_cb"):
        return _CODE
    return next((reason for prefix, reason in _PREFIXES.items() if key.startswith(prefix)), "")
