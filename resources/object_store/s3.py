"""An object store with S3's API: whole objects, put there at once or not at all, named `s3://bucket/key`.

Endpoint and region are AWS's own variables (`AWS_ENDPOINT_URL`, `AWS_REGION`); credentials are given, or found as every AWS
client finds them (variables, profiles, roles of the machine). boto3, and no lighter client: what is staged is proven by the
store's own SHA-256, which others do not give back, and PyArrow's file system has no conditional put.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Any, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from resources.object_store.config import StoreAccess
from resources.object_store.uri import SCHEME, split
from resources.secrets import Secret, redact

__all__ = ["SECRETS", "Found", "Store", "StoreFailed", "store", "use"]

#: What `into.credentials` may hold for a store.
SECRETS = ("access.key.id", "secret.access.key", "session.token")
#: Bytes that one put can send: S3's own limit.
LARGEST = 5 << 30
_TRIES = 5  # of one request: what an outage of some seconds, or a store that asks for patience, needs
_CONFLICTS = 8  # of a conditional put with others: the store says 409 and wants it sent again
_REGION = "us-east-1"  # where none is named: other stores than AWS's take any


class StoreFailed(OSError):
    """The store did not do what it was asked, or its answer was lost."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.strerror = text  # what people see of an OSError
        self.status = status

    @property
    def passes(self) -> bool:
        """Whether it may be otherwise in a while: there was no answer, or one that says so."""
        return self.status in (0, 408, 429) or self.status >= 500


@dataclass(frozen=True)
class Found:
    """What a store knows of an object.

    Attributes:
        uri: where it is.
        size: bytes.
        modified: seconds since 1970, by the store's clock.
        tag: changes with the content.
        sha256: over its bytes, in hex, as the store has computed it; "" where it was not asked to.
    """

    uri: str
    size: int
    modified: float
    tag: str = ""
    sha256: str = ""


_given: StoreAccess | None = None  # what `use` was told


@lru_cache(maxsize=16)
def store(secrets: tuple[tuple[str, Secret], ...] = ()) -> Store:
    """The client for these credentials, one for a process; none: those that it was given, or that the process finds."""
    if not secrets and _given is not None:
        return Store(dict(_given.secrets), _given.endpoint, _given.region)
    return Store(dict(secrets))


def use(access: StoreAccess | None) -> None:
    """From now on, clients of this process for which no credentials are named are made of that; None: they find their own."""
    global _given
    if access != _given:
        _given = access
        store.cache_clear()


class Store:
    """A client. Threads may share it.

    Args:
        secrets: by the names of `SECRETS`; empty: found as every AWS client finds them.
        endpoint: address of the store; None: as AWS's variables say.
        region: of the store; empty: as AWS's variables say.
    """

    def __init__(self, secrets: Mapping[str, Secret] | None = None, endpoint: str | None = None, region: str = "") -> None:
        given = dict(secrets or {})
        self._session = boto3.session.Session(
            aws_access_key_id=given.get("access.key.id"),
            aws_secret_access_key=given.get("secret.access.key"),
            aws_session_token=given.get("session.token"),
        )
        self.region = region or self._session.region_name or os.environ.get("AWS_REGION") or _REGION
        self.endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        settings = Config(
            retries={"mode": "standard", "total_max_attempts": _TRIES},
            connect_timeout=10,
            read_timeout=60,
            # Other stores than AWS's know no bucket as a host, and not all know the checksums that AWS puts into every request.
            s3={"addressing_style": "path"} if self.endpoint else {},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        self._client = self._session.client("s3", endpoint_url=self.endpoint, region_name=self.region, config=settings)

    def credentials(self) -> dict[str, Secret]:
        """What was found, for a library that cannot find it itself; fresh, as roles' credentials expire."""
        held = self._session.get_credentials()
        if held is None:
            return {}
        frozen = held.get_frozen_credentials()
        found = zip(SECRETS, (frozen.access_key, frozen.secret_key, frozen.token), strict=True)
        return {name: Secret(value) for name, value in found if value}

    def access(self) -> StoreAccess:
        """What a client like this one is made of, elsewhere."""
        return StoreAccess(self.endpoint, self.region, tuple(sorted(self.credentials().items())))

    def get(self, uri: str, start: int = 0, end: int | None = None) -> bytes | None:
        """The object's bytes, or some of them; None when there is no such object.

        Raises:
            StoreFailed: it could not be asked, or refused.
        """
        some = {} if end is None else {"Range": f"bytes={start}-{end - 1}"}
        try:
            answer = self._ask(uri, self._client.get_object, **some)
            return cast("bytes", answer["Body"].read())
        except (BotoCoreError, OSError) as error:
            if isinstance(error, StoreFailed):
                if error.status == 404:
                    return None
                raise
            raise self._failed(uri, error) from None  # its body broke off

    def head(self, uri: str) -> Found | None:
        """What the store knows of the object; None when there is none.

        Raises:
            StoreFailed: it could not be asked, or refused.
        """
        try:
            answer = self._ask(uri, self._client.head_object, ChecksumMode="ENABLED")
        except StoreFailed as error:
            if error.status == 404:
                return None
            raise
        whole = answer.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT"
        summed = base64.b64decode(answer.get("ChecksumSHA256") or "").hex() if whole else ""
        return Found(uri, answer["ContentLength"], answer["LastModified"].timestamp(), answer.get("ETag", ""), summed)

    def put(self, uri: str, data: bytes | IO[bytes], sha256: str | None = None) -> None:
        """Put an object there, or other bytes in its place. The store refuses bytes that are not of that hash, and remembers it.

        Raises:
            StoreFailed: it could not be asked, or refused.
        """
        digest = bytes.fromhex(sha256) if sha256 else hashlib.sha256(cast("bytes", data)).digest()
        self._ask(uri, self._client.put_object, Body=data, ChecksumSHA256=base64.b64encode(digest).decode())

    def put_new(self, uri: str, data: bytes) -> bool:
        """Put an object there unless there is one: of any number of callers one is told True.

        An answer that was lost is asked for again, and the store then says that the name is taken. So the bytes must be
        such as no other caller puts there: who finds its own is the one.

        Raises:
            StoreFailed: also when it is not known whether it is there.
        """
        for attempt in range(_CONFLICTS):
            try:
                self._ask(uri, self._client.put_object, Body=data, IfNoneMatch="*")
                return True
            except StoreFailed as error:
                if error.status == 412:
                    return self.get(uri) == data
                if error.status != 409 or attempt == _CONFLICTS - 1:
                    raise
                time.sleep(0.05 * (attempt + 1))
        raise AssertionError  # the last attempt raises

    def copy(self, origin: str, uri: str) -> None:
        """Copy an object inside of the store: its bytes do not pass through here.

        Raises:
            StoreFailed: it could not be asked, or refused.
        """
        bucket, key = split(origin)
        self._ask(uri, self._client.copy_object, CopySource={"Bucket": bucket, "Key": key})

    def remove(self, uri: str) -> None:
        """Remove an object, if there is one.

        Raises:
            StoreFailed: it could not be asked, or refused.
        """
        self._ask(uri, self._client.delete_object)

    def listed(self, prefix: str) -> Iterator[Found]:
        """All objects whose names begin so, in order.

        Raises:
            StoreFailed: it could not be asked, or refused.
        """
        for page in self._pages(prefix):
            for item in page.get("Contents", ()):
                yield Found(
                    self._named(prefix, item["Key"]), item["Size"], item["LastModified"].timestamp(), item.get("ETag", "")
                )

    def folders(self, prefix: str) -> Iterator[str]:
        """What would be folders directly below a prefix that ends with a slash, without slashes.

        Raises:
            StoreFailed: it could not be asked, or refused.
        """
        key = split(prefix)[1]
        for page in self._pages(prefix, Delimiter="/"):
            for item in page.get("CommonPrefixes", ()):
                yield item["Prefix"].removeprefix(key).rstrip("/")

    def names(self, prefix: str) -> Iterator[str]:
        """Names of objects directly below a prefix that ends with a slash.

        Raises:
            StoreFailed: it could not be asked, or refused.
        """
        key = split(prefix)[1]
        for page in self._pages(prefix, Delimiter="/"):
            for item in page.get("Contents", ()):
                yield item["Key"].removeprefix(key)

    def _pages(self, prefix: str, **how: Any) -> Iterator[Mapping[str, Any]]:
        bucket, key = split(prefix)
        token: dict[str, Any] = {}
        while True:
            page = self._call(prefix, self._client.list_objects_v2, Bucket=bucket, Prefix=key, **how, **token)
            yield page
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def _named(self, prefix: str, key: str) -> str:
        return f"{SCHEME}{split(prefix)[0]}/{key}"

    def _ask(self, uri: str, call: Callable[..., Any], **how: Any) -> Any:
        bucket, key = split(uri)
        return self._call(uri, call, Bucket=bucket, Key=key, **how)

    def _call(self, uri: str, call: Callable[..., Any], **how: Any) -> Any:
        try:
            return call(**how)
        except ClientError as error:
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            raise self._failed(uri, error, status) from None  # what is chained shows up in tracebacks
        except BotoCoreError as error:
            raise self._failed(uri, error) from None

    def _failed(self, uri: str, error: Exception, status: int = 0) -> StoreFailed:
        return StoreFailed(f"{uri}: {redact(str(error), self.credentials().values())}", status)
