"""`python -m tests.cluster up|down|status|run WORDS…`: the cluster of `make cluster`, by hand."""

from __future__ import annotations

import sys
import time

from tests.cluster.cluster import build, default_base, find, in_foreground
from tests.cluster.hosts import Network, obstacle


def main(arguments: list[str]) -> int:
    base = default_base()
    match arguments:
        case ["up"]:
            why = obstacle()
            if why:
                sys.stderr.write(f"no cluster: {why}\n")
                return 1
            began, cluster = time.monotonic(), find(base)
            if cluster is None:
                Network(base).down()
                try:
                    cluster = build(base)
                except BaseException:
                    Network(base).down()
                    raise
                print(f"up in {time.monotonic() - began:.0f} s")
            for name, host in cluster.network.hosts.items():
                print(f"{name:8} {host.address:12} {host.folder}")
            print(f"Kafka {cluster.brokers}\nSpark {cluster.master}\nshared {cluster.shared}")
            print("kpipe on the client: .venv/bin/python -m tests.cluster run kpipe ...")
        case ["down"]:
            Network(base).down()
        case ["status"]:
            cluster = find(base)
            if cluster is None:
                print("no cluster")
                return 1
            for name, host in cluster.network.hosts.items():
                print(f"{name:8} {host.address:12} {len(host.processes())} processes")
        case ["run", *words] if words:
            cluster = find(base)
            if cluster is None:
                sys.stderr.write("no cluster -> make cluster\n")
                return 1
            return in_foreground(cluster, words, cluster["client"].folder / "home")
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
