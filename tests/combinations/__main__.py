"""Survey this tree: every kind of finding that comes up in a time, and which of the known defects they are.

python -m tests.combinations duckdb webhook --seconds 300 --seed 1
python -m tests.combinations duckdb --until '^C3'     the first finding that matches, as JSON (see mutants.py)
python -m tests.combinations duckdb --until '^C3' --pinned        the same in the pinned examples
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import kpipe
from resources.dev_broker.broker import LocalBroker
from tests.combinations.course import Wrong
from tests.combinations.defects import DEFECTS
from tests.combinations.judging import Sites, check, survey
from tests.combinations.outlets import KafkaSite, WebhookSite
from tests.combinations.pinned import PINNED
from tests.combinations.servers import MySQLSite, PostgresSite
from tests.combinations.sites import DuckDBSite, DuckLakeSite, LakeSite, Site
from tests.combinations.strategies import APART, DESTINATIONS
from tests.ports import free_port
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PostgresServer


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.combinations", description=__doc__)
    parser.add_argument("destinations", nargs="*", choices=(*DESTINATIONS, *APART, []), metavar="DESTINATION")
    parser.add_argument("--seconds", type=float, default=300, help="for each destination")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--until", metavar="REGEX", help="end at the first finding that matches")
    parser.add_argument("--pinned", action="store_true", help="with --until: run the pinned examples")
    parser.add_argument("--changes", action="store_true", help="only examples of change events")
    parser.add_argument("--broker", help="host:port of a Kafka that runs; else one is started for `kafka`")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        for destination in chosen.destinations or DESTINATIONS:
            sites = _sites(destination, stack, chosen.broker)
            if chosen.pinned:
                _pinned(destination, sites, chosen.until)
            elif chosen.until:
                _first(destination, sites, chosen.seed, chosen.seconds, chosen.until, chosen.changes)
            else:
                _report(destination, sites, chosen.seed, chosen.seconds, chosen.changes)


def _first(destination: str, sites: Sites, seed: int, seconds: float, wanted: str, changes: bool) -> None:
    def enough(text: str) -> bool:
        return re.search(wanted, text) is not None

    done = survey(destination, sites, seed, seconds, lambda _: None, enough, changes)
    _tell(done.examples, done.seconds, done.last_seed, done.failure)


def _pinned(destination: str, sites: Sites, wanted: str) -> None:
    began, count, failure = time.monotonic(), 0, ""
    for example in (example for example in PINNED.values() if example.definition.destination == destination):
        count += 1
        try:
            check(example, sites)
        except Wrong as wrong:
            if re.search(wanted, str(wrong)):
                failure = str(wrong)
                break
    _tell(count, time.monotonic() - began, 0, failure)


def _tell(examples: int, seconds: float, seed: int, failure: str) -> None:
    told = {"examples": examples, "seconds": round(seconds, 1), "seed": seed}
    print(json.dumps({**told, "finding": failure.partition("\n")[0][:200], "code": str(Path(kpipe.__file__))}))


def _report(destination: str, sites: Sites, seed: int, seconds: float, changes: bool) -> None:
    def tell(text: str) -> None:
        print(f"{'=' * 80}\n{destination}: {text}\n", flush=True)

    done = survey(destination, sites, seed, seconds, tell, changes=changes)
    ran = f"{done.examples} examples, {done.refused} definitions refused, {done.seconds:.0f} s, seeds {seed} to {done.last_seed}"
    print(f"{destination}: {ran}")
    for defect in DEFECTS:
        mine = [(at, passed) for at, passed, text in done.kinds.values() if defect.shows(destination, text)]
        if destination in defect.destinations:
            at, passed = min(mine, default=(0, 0.0))
            print(f"  {defect.name}: {f'after {at} examples, {passed:.0f} s' if mine else 'not found'}", flush=True)


def _sites(destination: str, stack: ExitStack, broker: str | None) -> Sites:
    if destination == "kafka" and broker is None:
        folder = Path(tempfile.mkdtemp(prefix="kpipe-mix-broker-"))
        local = LocalBroker(folder)
        broker = local.start(free_port()).brokers  # the usual port may be another broker's
        stack.callback(local.stop)
    server = {"postgres": PostgresServer, "mysql": MariaServer}.get(destination)
    started = stack.enter_context(server()) if server is not None else None

    def made(kind: str, folder: Path) -> Site:
        match kind:
            case "duckdb":
                return DuckDBSite(folder)
            case "ducklake":
                return DuckLakeSite(folder)
            case "kafka":
                return KafkaSite(folder, str(broker))
            case "webhook":
                return WebhookSite(folder)
            case "postgres":
                assert isinstance(started, PostgresServer)
                return PostgresSite(folder, started)
            case "mysql":
                assert isinstance(started, MariaServer)
                return MySQLSite(folder, started)
        return LakeSite(folder, kind)

    return made


if __name__ == "__main__":
    main()
