"""Open a lake's table with the code of its destination, by the fields of `source.lake`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.source import SourceLake
from kpipe.errors import DestinationBusy, DestinationError, InvalidPipeline, NotAvailable, ReadFailed, ReadStalled
from resources.secrets import Secret

__all__ = ["NoHome", "as_destination", "translated"]


class NoHome:
    """A home without folders: the table's is always named."""

    data = Path("/nonexistent")
    cache = Path("/nonexistent")
    roots: tuple[str, ...] = ()


def as_destination(lake: SourceLake, credentials: dict[str, str]) -> Pipeline:
    """Return the definition of a pipeline into the table."""
    into = {
        "type": lake.type,
        "database": lake.database,
        "table": "source",
        "credentials": {name: str(value) for name, value in credentials.items()},
        **({"namespace": lake.namespace} if lake.type == "iceberg" else {}),
        **({"catalog": lake.catalog} if lake.catalog else {}),
        **({"catalog_name": lake.catalog_name} if lake.catalog_name else {}),
    }
    return Pipeline.model_validate({"name": "source", "source": {"brokers": "none", "topic": "none"}, "into": into})


@contextmanager
def translated(lake: SourceLake, secrets: dict[str, Secret], *failures: type[Exception]) -> Iterator[Any]:
    """Convert the errors of a destination, and of its library, to those of a source."""
    try:
        yield
    except (InvalidPipeline, NotAvailable) as error:
        what = error.what.replace("pipeline source: ", "").replace("into.database", "source.lake.database")
        raise type(error)(what.replace("into.", "source."), error.hint.replace("into.", "source.")) from None
    except DestinationError as error:
        kind = ReadStalled if isinstance(error, DestinationBusy) else ReadFailed
        raise kind(f"table {lake.name}: {error.what}", error.hint.replace("into.", "source.")) from None
    except failures as error:
        text = " ".join(str(error).split())[:300]
        for secret in secrets.values():
            text = text.replace(secret, "***") if secret else text
        raise ReadFailed(f"table {lake.name}: {text}", "check source.lake and source.credentials; run it again") from None
