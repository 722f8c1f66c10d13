"""Write the stores that later versions must open: `python -m tests.upgrade.write_stores FOLDER [NAME ...]`.

Run it in the change that raises `FORMAT_VERSION` to N, and check the folder in as `tests/upgrade/stores/format-N`. A folder
that is checked in is never written again. The file of another DuckDB (`duckdb-1.5`, and the one of `webhook`, which every
version can open) is written with that version first on PYTHONPATH.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb

from kpipe.definition.pipeline import Pipeline
from resources.dev_broker.broker import LocalBroker
from resources.home import Home
from tests.ports import free_port
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PostgresServer
from tests.upgrade.contents import Contents
from tests.upgrade.stores import STORES

__all__ = ["write_home"]

_DEFINITION: dict[str, Any] = {
    "name": "tweets",
    "source": {
        "brokers": "localhost:9092", "topic": "tweets", "start": "latest", "credentials": {"sasl.password": "{{ env('P') }}"},
    },
    "format": {"type": "csv", "fields": ["id", "text"], "delimiter": "|", "quote": "\"", "null": "'; --"},
    "columns": {"id": "BIGINT", "text": "VARCHAR"},
    "into": {"type": "duckdb", "table": "tweets", "key": ["id"], "on_conflict": "replace"},
}  # fmt: skip


def write_home(folder: Path) -> None:
    """Write a home with a definition, a last-seen position, how a run ended, and topics that a pattern has matched."""
    home = Home.at(folder)
    home.save(Pipeline.model_validate(_DEFINITION))
    home.seen("tweets").note("0b5f9c1e-registration", 7)
    home.note("tweets", "error", "it's \u2028 broken")
    home.find("tweets", ["web.a", "web.b"])
    for part in ("data", "staging", "logs"):  # empty, which version control does not keep
        (folder / part).rmdir()


def _started(name: str, folder: Path, stack: ExitStack) -> Any:
    if name == "postgres":
        return stack.enter_context(PostgresServer())
    if name == "mariadb":
        return stack.enter_context(MariaServer())
    if name != "brokers":
        return None
    broker = LocalBroker(folder)
    stack.callback(broker.stop)
    broker.start(free_port())
    return broker.status().brokers


def main() -> None:
    """Write the stores that the command line names, else all."""
    own = f"duckdb-{'.'.join(duckdb.__version__.split('.')[:2])}"
    every = [name for name in STORES if name == own or not name.startswith("duckdb-")]
    to, names = Path(sys.argv[1]), sys.argv[2:] or [*every, "home"]
    for name in names:
        # Lakes' ledgers hold the path: one among temporary files says nothing of the machine.
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kpipe-store-")))
            if name == "home":
                write_home(to / "home")
                continue
            kind = STORES[name]
            store = kind(folder / "place", _started(kind.server, folder / "broker", stack))
            contents = Contents(store.place, folder / "place")
            contents.write()
            contents.check()
            store.save(to / name)
            store.close()
        print(name)


if __name__ == "__main__":
    main()
