"""A client of an S3-compatible object store. Objects are named `s3://bucket/key`; a put is atomic.

Endpoint and region come from AWS's variables (`AWS_ENDPOINT_URL`, `AWS_REGION`) or the profile. Credentials are passed, or
found in AWS's default chain: variables, profiles, instance roles. Why boto3: staged files are verified by the SHA-256 that
the store computes. Lighter clients do not return it, and PyArrow's file system lacks conditional puts.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from resources.object_store.config import CREDENTIALS, StoreAccess
from resources.object_store.delta_rs_environment import reject_variables
from resources.object_store.store import Found, StoreFailed
from resources.object_store.uri import split
from resources.secrets import Secret, redact

__all__ = ["S3Store"]

_SECRETS = CREDENTIALS["s3"]
_TRIES = 5  # per request: enough for an outage of some seconds, or for throttling
_CONFLICTS = 8  # conditional puts that race with others: the store answers 409, and the put is retried
_REGION = "us-east-1"  # the default; stores other than AWS's accept any region
# Variables from which delta-rs takes a session token; a role; and, in spite of an endpoint, whether to assume the role.
_TOKENS = ("aws_session_token", "aws_token", "session_token", "token")
_ROLES = ("aws_iam_role_arn", "aws_s3_assume_role_arn")
_OFF = ("aws_allow_invalid_certificates", "aws_s3_express", "aws_skip_signature", "aws_virtual_hosted_style_request")
_ASSUMES_ROLES = {"AWS_FORCE_CREDENTIAL_LOAD", "AWS_S3_LOCKING_PROVIDER"}


class S3Store:
    """A client of an S3-compatible object store; see `Store`.

    Args:
        secrets: by the names in `CREDENTIALS`; empty: AWS's default chain.
        endpoint: URL of the store; None: from AWS's variables or the profile.
        region: of the store; empty: from AWS's variables or the profile.
    """

    largest = 5 << 30  # of one put

    def __init__(self, secrets: Mapping[str, Secret] | None = None, endpoint: str | None = None, region: str = "") -> None:
        given = dict(secrets or {})
        self._session = boto3.session.Session(
            aws_access_key_id=given.get("access.key.id"),
            aws_secret_access_key=given.get("secret.access.key"),
            aws_session_token=given.get("session.token"),
        )
        self.region = region or self._session.region_name or os.environ.get("AWS_REGION") or _REGION
        self.endpoint = endpoint or self._configured()
        settings = Config(
            retries={"mode": "standard", "total_max_attempts": _TRIES},
            connect_timeout=10,
            read_timeout=60,
            # Stores other than AWS's do not resolve a bucket as a host name, and not all support AWS's default checksums.
            s3={"addressing_style": "path"} if self.endpoint else {},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        self._client = self._session.client("s3", endpoint_url=self.endpoint, region_name=self.region, config=settings)

    def _configured(self) -> str | None:
        """Return the endpoint that boto3 finds in variables or the profile; None: AWS's own."""
        settings = (Config(), Config(ignore_configured_endpoint_urls=True))
        clients = (self._session.client("s3", region_name=self.region, config=each) for each in settings)
        found, own = (str(client.meta.endpoint_url) for client in clients)
        return found if found != own else None

    def credentials(self) -> dict[str, Secret]:
        """Return the credentials for a library that cannot find them. Resolved at each call, as credentials of roles expire."""
        held = self._session.get_credentials()
        if held is None:
            return {}
        frozen = held.get_frozen_credentials()
        found = zip(_SECRETS, (frozen.access_key, frozen.secret_key, frozen.token), strict=True)
        return {name: Secret(value) for name, value in found if value}

    def access(self) -> StoreAccess:
        """Return settings with which another process creates an equal client."""
        return StoreAccess(self.endpoint, self.region, tuple(sorted(self.credentials().items())))

    def options(self) -> dict[str, str]:
        """Return the options of delta-rs; see `Store`."""
        names = dict(zip(_SECRETS, ("access_key_id", "secret_access_key", "session_token"), strict=True))
        given: dict[str, str] = {f"aws_{names[key]}": value for key, value in self.credentials().items()}
        if "aws_session_token" not in given:
            reject_variables(_TOKENS, "session.token")
        if _ASSUMES_ROLES & os.environ.keys():
            reject_variables(_ROLES)
        own = f"https://s3.{self.region}.amazonaws.com" + (".cn" if self.region.startswith("cn-") else "")
        endpoint = self.endpoint or own
        return {
            "aws_region": self.region,
            "aws_endpoint": endpoint,
            "aws_endpoint_url_s3": endpoint,  # which delta-rs prefers
            "aws_allow_http": str(endpoint.startswith("http:")).lower(),
            **dict.fromkeys(_OFF, "false"),
            **given,
        }

    def hide(self, text: str) -> str:
        """Mask the credentials in a text."""
        return redact(text, self.credentials().values())

    def get(self, uri: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Read an object's bytes from `start` to `end` (exclusive). None: the object does not exist.

        Raises:
            StoreFailed: the request failed or was rejected.
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
            raise self._failed(uri, error) from None  # the response's body ended early

    def head(self, uri: str) -> Found | None:
        """Read an object's metadata. None: the object does not exist.

        Raises:
            StoreFailed: the request failed or was rejected.
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
        """Create or replace an object. The store rejects content that does not match the hash, and keeps the hash.

        Raises:
            StoreFailed: the request failed or was rejected.
        """
        digest = bytes.fromhex(sha256) if sha256 else hashlib.sha256(cast("bytes", data)).digest()
        self._ask(uri, self._client.put_object, Body=data, ChecksumSHA256=base64.b64encode(digest).decode())

    def put_new(self, uri: str, data: bytes) -> bool:
        """Create an object unless it exists. Among concurrent callers, exactly one gets True.

        After a lost response, the request is sent again, and the store answers that the name is taken. The caller whose bytes
        are stored then gets True, so no two callers may put equal bytes.

        Raises:
            StoreFailed: the request failed; the object may exist.
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
        """Copy an object inside the store; its bytes do not pass through this process.

        Raises:
            StoreFailed: the request failed or was rejected.
        """
        bucket, key = split(origin)
        self._ask(uri, self._client.copy_object, CopySource={"Bucket": bucket, "Key": key})

    def remove(self, uri: str) -> None:
        """Delete an object, if it exists.

        Raises:
            StoreFailed: the request failed or was rejected.
        """
        self._ask(uri, self._client.delete_object)

    def listed(self, prefix: str) -> Iterator[Found]:
        """List all objects whose names start with the prefix, in order of their names.

        Raises:
            StoreFailed: the request failed or was rejected.
        """
        for page in self._pages(prefix):
            for item in page.get("Contents", ()):
                yield Found(
                    self._named(prefix, item["Key"]), item["Size"], item["LastModified"].timestamp(), item.get("ETag", "")
                )

    def folders(self, prefix: str) -> Iterator[str]:
        """List the names of folders directly below a prefix that ends with a slash; names have no slashes.

        Raises:
            StoreFailed: the request failed or was rejected.
        """
        key = split(prefix)[1]
        for page in self._pages(prefix, Delimiter="/"):
            for item in page.get("CommonPrefixes", ()):
                yield item["Prefix"].removeprefix(key).rstrip("/")

    def names(self, prefix: str) -> Iterator[str]:
        """List the names of objects directly below a prefix that ends with a slash.

        Raises:
            StoreFailed: the request failed or was rejected.
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
        return f"s3://{split(prefix)[0]}/{key}"

    def _ask(self, uri: str, call: Callable[..., Any], **how: Any) -> Any:
        bucket, key = split(uri)
        return self._call(uri, call, Bucket=bucket, Key=key, **how)

    def _call(self, uri: str, call: Callable[..., Any], **how: Any) -> Any:
        try:
            return call(**how)
        except ClientError as error:
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            raise self._failed(uri, error, status) from None  # a chained exception would show secrets in tracebacks
        except BotoCoreError as error:
            raise self._failed(uri, error) from None

    def _failed(self, uri: str, error: Exception, status: int = 0) -> StoreFailed:
        return StoreFailed(f"{uri}: {self.hide(str(error))}", status)
