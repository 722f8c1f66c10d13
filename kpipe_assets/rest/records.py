"""Store what a client has set and no definition contains: target state, the config as it came, positions of a reset.

The file is beside the home's other state. The switch and the ledger decide what runs and where it continues; this file only
distinguishes PAUSED from STOPPED, and keeps the client's own keys for GET.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kpipe.definition.pipeline import Pipeline
from resources.home import Home

__all__ = ["Record", "digest", "forget", "read", "write"]


_WRITING = threading.Lock()


@dataclass(frozen=True)
class Record:
    """Values that a client has set for a connector.

    Attributes:
        target: `PAUSED` or `STOPPED`: the state of a connector that is stopped.
        config: the config as it came, with dotted keys; it contains no secrets.
        definition: digest of the definition that it gave; after another change, the config is that of the definition.
        topics: positions at which the active topics were reset, by `TOPIC/PARTITION`.
    """

    target: str = "STOPPED"
    config: Mapping[str, str] = field(default_factory=dict)
    definition: str = ""
    topics: Mapping[str, int] = field(default_factory=dict)


def digest(pipeline: Pipeline) -> str:
    """Return a digest of a definition."""
    text = json.dumps(pipeline.to_dict(), sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def read(home: Home, name: str) -> Record:
    """Return the record of a connector; an empty one if there is none or it cannot be read."""
    try:
        fields: dict[str, Any] = json.loads((home.state / f"{name}.connector.json").read_text(encoding="utf-8"))
        topics = {name: int(offset) for name, offset in fields["topics"].items()}
        return Record(str(fields["target"]), dict(fields["config"]), str(fields["definition"]), topics)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Record()


def write(home: Home, name: str, **changes: Any) -> None:
    """Change members of the record."""
    file = home.make().state / f"{name}.connector.json"
    with _WRITING:
        fresh = file.with_suffix(f".{uuid.uuid4().hex}")
        fresh.write_text(json.dumps(asdict(replace(read(home, name), **changes))), encoding="utf-8")
        fresh.replace(file)


def forget(home: Home, name: str) -> None:
    """Delete the record of a dropped pipeline."""
    (home.state / f"{name}.connector.json").unlink(missing_ok=True)
