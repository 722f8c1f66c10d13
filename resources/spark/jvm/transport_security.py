"""Authentication and encryption of Spark's connections: jobs, and with them credentials, travel over these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kpipe.errors import NotAvailable
from resources.object_store.config import StoreAccess
from resources.secrets import secrets_in

if TYPE_CHECKING:
    from pyspark import SparkContext

    from resources.spark.task.task_spec import JobSpec

__all__ = ["ALLOW_PLAINTEXT", "LOCAL", "check_private", "credentials"]

ALLOW_PLAINTEXT: Final = "spark.kpipe.allowPlaintextCredentials"
"""Spark setting that permits credentials on connections without authentication and encryption."""

# A local driver listens on 127.0.0.1, where every user of the machine can connect. Without authentication its block
# manager returns any broadcast, which includes the job, and its RPC port deserializes Java objects. Spark generates the
# secret itself for `local` masters (SecurityManager.initializeAuth). Nothing of a batch crosses these ports.
LOCAL: Final = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}

# Each encrypts RPC and block transfers: AES by a key exchange, DIGEST-MD5 with SASL, TLS (Spark's security page).
_ENCRYPTION = ("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption", "spark.ssl.rpc.enabled")


def check_private(context: SparkContext, job: JobSpec | StoreAccess) -> None:
    """Check that what is sent to tasks contains no credentials, or that only tasks can read it.

    Raises:
        NotAvailable: it contains credentials, and Spark's connections are neither authenticated nor encrypted.
    """
    found = sorted(set(credentials(job)))
    if not found:
        return
    conf = context.getConf()

    def on(name: str) -> bool:
        return str(conf.get(name, "false")).lower() == "true"

    missing = [name for name in ("spark.authenticate",) if not on(name)]
    if not any(on(name) for name in _ENCRYPTION):
        missing.append(_ENCRYPTION[0])
    if not missing or on(ALLOW_PLAINTEXT):
        return
    raise NotAvailable(
        f"Spark master {context.master}: tasks need {', '.join(found)}, and anyone who can reach Spark's ports could read them:"
        f" expected {' and '.join(f'{name}=true' for name in missing)}",
        f"set it for the application, and on a standalone cluster also spark.authenticate.secret, the same on all hosts;"
        f" or, where the network is trusted, set {ALLOW_PLAINTEXT}=true",
    )


def credentials(job: JobSpec | StoreAccess) -> Iterator[str]:
    """Name the credentials that a job contains; their values are not returned."""
    if isinstance(job, StoreAccess):
        if any(value for _, value in job.secrets):
            yield "the object store's keys"
        return
    if secrets_in(job.config) or (job.connector is not None and any(job.connector.secrets)):
        yield "source.credentials"
    if job.access is not None and job.access.secrets:
        yield "the schema registry's credentials"
    if job.program is not None and job.program.env:
        yield "transform.env"
    if job.store is not None:
        yield from credentials(job.store)
