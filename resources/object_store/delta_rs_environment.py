"""Reject variables of the environment that delta-rs uses beside the options that it gets.

delta-rs completes its options from the environment (`with_env_s3`, `AzureConfigHelper`, `GcpConfigHelper`). An option that is
given wins, so clients give one for each setting that decides whose credentials go where. No option can state that a setting
has no value: AWS rejects an empty session token, and Azure an empty account key.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from kpipe.errors import InvalidPipeline

__all__ = ["reject_variables"]


def reject_variables(names: Collection[str], credential: str = "") -> None:
    """Reject variables that delta-rs would use beside the credentials.

    Args:
        names: of the variables, in lower case, as delta-rs ignores case.
        credential: name of a credential that can be set instead; empty: none.

    Raises:
        InvalidPipeline: one of them is set.
    """
    for name, value in os.environ.items():
        if value and name.lower() in names:
            raise InvalidPipeline(
                f"into.credentials: the variable {name} is set, and delta-rs would use it beside these credentials",
                f"unset {name} for kpipe" + (f", or set into.credentials {credential}" if credential else ""),
            ).about("into", "credentials")
