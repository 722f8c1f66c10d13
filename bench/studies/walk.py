"""Count the product files that one batch and one CREATE PIPELINE pass through: `python -m bench.studies.walk [checkout]`.

Three walks, each traced with `sys.setprofile` in one thread:

- `batch`: one pass of `Ingest.run` over one committed batch of JSON records, from the ledger's read to the commit. Kafka is
  librdkafka's mock, the table is in DuckDB, and the task's code runs in this process (`LocalStager`).
- `create`: one `CREATE PIPELINE` into DuckDB, from its text (`read_all`) to the saved definition.
- `expressions`: the same with WHERE and SET, whose expressions are compiled and evaluated.

A walk is the sequence of calls between functions of product files (`kpipe/`, `transforms/`, `resources/`, `kpipe_assets/`).
Imports, generated code, generator expressions and calls within one file are not counted.

- `files`: distinct files with a function that ran.
- `moves`: distinct pairs (calling file, called file), each counted where it is made first.
- `returns`: moves into a file that the walk had visited before that move.
- `climbs`: moves into a package above the caller's (`kpipe` < `transforms` < `resources` < `kpipe_assets`): callbacks and
  methods of an interface.

The same four numbers follow `without leaves`: without files that call no other file in this walk. Most leaves are value types.

The names that the walks need (`Ingest`, `Session`, ...) are looked up in the checkout, so that older layouts can be measured
by the same rules: `git worktree add /tmp/old 57e0a01 && python -m bench.studies.walk /tmp/old`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["LAYERS", "Walk", "trace"]

#: From the ground up.
LAYERS = ("kpipe", "transforms", "resources", "kpipe_assets")
_CREATE = """
CREATE PIPELINE orders AS LOAD DATA KAFKA 'localhost:9092/orders'
INTO TABLE orders FORMAT JSON (id <- id, name <- name){};
"""
_EXPRESSIONS = " WHERE id > 0 SET upper_name = upper(name)"
_RECORDS = 20


@dataclass
class Walk:
    """What one walk passes.

    Attributes:
        visited: files, in the order of their first visit.
        moves: pairs of caller and callee, in the order of their first call; True where the callee had been visited before.
    """

    visited: dict[str, None] = field(default_factory=dict)
    moves: dict[tuple[str, str], bool] = field(default_factory=dict)

    def enter(self, caller: str | None, file: str) -> None:
        """Record a call."""
        if caller is not None and caller != file and (caller, file) not in self.moves:
            self.moves[caller, file] = file in self.visited
        self.visited.setdefault(file)

    def shallow(self) -> Walk:
        """Return the walk without files that call no other file."""
        inner = {caller for caller, _ in self.moves}
        moves = {move: again for move, again in self.moves.items() if move[1] in inner}
        return Walk({file: None for file in self.visited if file in inner}, moves)

    def counts(self) -> dict[str, int]:
        """Return files, moves, returns and climbs."""
        climbs = sum(_layer(callee) > _layer(caller) for caller, callee in self.moves)
        return {"files": len(self.visited), "moves": len(self.moves), "returns": sum(self.moves.values()), "climbs": climbs}


def _layer(file: str) -> int:
    return LAYERS.index(file.split("/", 1)[0])


def trace(root: Path, work: Callable[[], object]) -> Walk:
    """Run some work and return its walk through the product files below `root`."""
    walk, known = Walk(), dict[str, str]()
    ends = tuple(f"{root}{os.sep}{layer}{os.sep}" for layer in LAYERS)

    def product(frame: FrameType) -> str:
        path = frame.f_code.co_filename
        if path not in known:
            known[path] = path[len(str(root)) + 1 :] if path.startswith(ends) else ""
        return "" if frame.f_code.co_name == "<module>" else known[path]

    def called(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or frame.f_code.co_name == "<genexpr>" or not (file := product(frame)):
            return
        above, caller = frame.f_back, ""
        while above is not None and not caller:
            if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(ends):
                return  # while a module is imported
            caller, above = product(above), above.f_back
        walk.enter(caller or None, file)

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return walk


def _symbol(root: Path, name: str, layers: Sequence[str] = LAYERS) -> Any:
    """Return a class or function of the checkout by its name; the lowest layer comes first."""
    line = re.compile(rf"^(?:class|def) {name}\b(?!\(Protocol\))", re.MULTILINE)
    for layer in layers:
        for path in sorted((root / layer).rglob("*.py")):
            if line.search(path.read_text(encoding="utf-8")):
                parts = path.relative_to(root).with_suffix("").parts
                return getattr(importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts)), name)
    raise LookupError(name)


def _batch(root: Path, folder: Path) -> Walk:
    from confluent_kafka import Producer

    os.environ["KPIPE_BROKER_KIND"] = "mock"
    home = _symbol(root, "Home")(folder / "home").make()
    broker = _symbol(root, "LocalBroker")(folder / "broker")
    brokers = broker.start().brokers
    try:
        broker.create_topic("orders", 1)
        producer = Producer({"bootstrap.servers": brokers, "log_level": 0})
        for number in range(_RECORDS):
            producer.produce("orders", json.dumps({"id": number, "name": f"n{number}"}).encode(), partition=0)
        producer.flush(30)
        fields = {
            "name": "orders",
            "source": {"brokers": brokers, "topic": "orders"},
            "format": {"type": "json"},
            "batch": {"max_offsets_per_partition": _RECORDS // 2},
            "into": {"type": "duckdb", "table": "orders"},
        }
        pipeline = _symbol(root, "Pipeline").model_validate(fields)
        destination = _symbol(root, "open_destination")(pipeline, home)
        stager = _symbol(root, "LocalStager")(pipeline, home)
        loop = _symbol(root, "Ingest")(pipeline, _symbol(root, "KafkaTopics")(pipeline.source), stager, destination)
        list(loop.run(1))  # begins the partition, makes the table, loads modules
        return trace(root, lambda: list(loop.run(1)))
    finally:
        broker.stop()


def _create(root: Path, folder: Path, clauses: str = "") -> Walk:
    home, read_all = _symbol(root, "Home")(folder / "home"), _symbol(root, "read_all")
    session = _symbol(root, "Session", ("kpipe_assets",))

    def run(text: str) -> None:
        with session(home) as it:
            for statement in read_all(text):
                list(it.execute(statement))

    statement = _CREATE.format(clauses)
    run(statement.replace("PIPELINE orders", "PIPELINE other"))  # loads modules
    walk = trace(root, lambda: run(statement))
    assert "orders" in home.names()
    return walk


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.studies.walk", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).parents[2], help="folder of a checkout")
    parser.add_argument("--list", action="store_true", help="also print the moves")
    given = parser.parse_args()
    root = given.checkout.resolve()
    sys.path.insert(0, str(root))
    for name in [name for name in sys.modules if name.split(".")[0] in LAYERS]:
        del sys.modules[name]
    folder = Path(tempfile.mkdtemp(prefix="kpipe-walk-"))
    try:
        for name, measure in (("batch", _batch), ("create", _create), ("expressions", partial(_create, clauses=_EXPRESSIONS))):
            walk = measure(root, folder / name)
            sys.stdout.write(f"{name}: {json.dumps(walk.counts())}, without leaves {json.dumps(walk.shallow().counts())}\n")
            for (caller, callee), again in walk.moves.items() if given.list else ():
                climbs = _layer(callee) > _layer(caller)
                sys.stdout.write(f"  {caller} -> {callee}{' (return)' * again}{' (climb)' * climbs}\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
