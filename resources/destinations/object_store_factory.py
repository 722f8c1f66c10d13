"""Open the folder of a lake in an object store: the form of its name, the client's package and the credentials."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Collection, Mapping
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.secret_values import shown
from kpipe.errors import InvalidPipeline, NotAvailable
from resources.destinations.credentials import secrets
from resources.extras import missing
from resources.object_store.clients import load, store
from resources.object_store.config import CREDENTIALS, PACKAGES
from resources.object_store.uri import account, expected_form, is_remote, kind
from resources.secrets import Secret

__all__ = ["open_bucket"]


def open_bucket(pipeline: Pipeline, place: str, credentials: Mapping[str, str], roots: Collection[str]) -> Any:
    """Open the folder of `into.database` in an object store. Sends no request.

    Args:
        pipeline: the pipeline of the table.
        place: prefix of the objects' names.
        credentials: templates of the store's credentials.
        roots: locations of staged files.

    Raises:
        NotAvailable: the client's package is missing, or files are staged in a store of another kind.
        InvalidPipeline: the name or the credentials are invalid, or delta-rs would use others from the environment.
    """
    who = f"pipeline {pipeline.name}: "
    form = expected_form(place)
    if form is not None:
        raise InvalidPipeline(
            f"{who}into.database: expected {form}, found {shown(('into', 'database'), place)!r}",
            "use letters, digits and _ . = - between slashes; write secrets to into.credentials",
        ).about("into", "database")
    which = kind(place)
    try:
        from resources.destinations.lakehouse.object_store_folder import BucketFolder

        load(which)
    except ImportError as error:
        raise missing(f"{who}into.type {pipeline.into.type}", *PACKAGES[which], error=error) from error
    for root in roots:
        if is_remote(root) and kind(root) != which:
            raise NotAvailable(
                f"{who}KPIPE_STAGING is {root}, but into.database is in another object store: {place}",
                "set KPIPE_STAGING to the same store, to a shared folder, or unset it",
            )
    given = secrets(credentials, CREDENTIALS[which])
    problem = _CHECKS[which](place, given)
    if problem is not None:
        raise InvalidPipeline(f"{who}into.credentials{problem[0]}", problem[1])
    folder = BucketFolder(store(place, tuple(sorted(given.items()))), place)
    if pipeline.into.type == "delta" and given:
        folder.options()  # raises now if delta-rs would use other credentials
    return folder


def _s3(_: str, given: Mapping[str, Secret]) -> tuple[str, str] | None:
    needed = CREDENTIALS["s3"][:2]
    return (" is incomplete", f"set {needed[0]} and {needed[1]}") if given and not {*needed} <= {*given} else None


def _gs(_: str, given: Mapping[str, Secret]) -> tuple[str, str] | None:
    """Check that the key is a service account's, without quoting anything of it."""
    if not given:
        return None
    (name,) = CREDENTIALS["gs"]
    try:
        found = json.loads(given[name])
    except ValueError:
        found = None
    if isinstance(found, dict) and {"client_email", "private_key"} <= found.keys():
        return None
    return f": {name}: expected the JSON of a service account's key", f"set {name} to {{{{ file('/path/to/key.json') }}}}"


def _azure(place: str, given: Mapping[str, Secret]) -> tuple[str, str] | None:
    name, key, token = CREDENTIALS["azure"]
    found = account(place)
    if found and given.get(name, found) != found:
        return f": {name}: expected {found}, the account of into.database, found {given[name]}", f"remove {name}"
    default = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    if found and default not in ("", found) and not {key, token} & given.keys():
        return f": {key} and {token} are missing: AZURE_STORAGE_ACCOUNT_NAME is {default}, not {found}", f"set {key} or {token}"
    if not found and name not in given and not default:
        return f": {name} is missing", f"set {name} or AZURE_STORAGE_ACCOUNT_NAME, or write abfss:// with the account"
    if key in given and not _is_base64(given[key]):
        return f": {key}: expected the account's key in base64", f"copy {key} again from the account's access keys"
    if {key, token} <= given.keys():
        return f": expected {key} or {token}, found both", f"remove {token}"
    variables = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
    if not {key, token} & given.keys() and not any(map(os.environ.get, variables)):
        return f": {key} and {token} are missing", f"set {key} or {token}; or {variables[0]} or {variables[1]}"
    return None


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except ValueError:
        return False


_CHECKS = {"s3": _s3, "gs": _gs, "azure": _azure}
