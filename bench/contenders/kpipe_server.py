"""Run kpipe in a process that stays: Spark runs and its workers have imported their modules, as in a long `kpipe run`.

python -m bench.contenders.kpipe_server HOME
"""

from __future__ import annotations

import sys
import time
import uuid
from pathlib import Path
from typing import Any

from bench.child import serve
from bench.contenders.pipelines import pipeline
from kpipe.planning.planner import Idle, Limits, plan
from kpipe_assets.runs.runner import Run
from resources.home import Home
from resources.spark.jvm.session import start
from resources.spark.workers.warm_up import warm


def main() -> None:
    place = Path(sys.argv[1])
    context = start(place)

    def ready() -> dict[str, Any]:
        warm(context)
        return {}

    def staged(home: str, **what: Any) -> dict[str, Any]:
        """Return the seconds from the first request to the brokers until all files are durable; one batch of everything."""
        began = time.monotonic()
        run = Run.real(pipeline(**what), Home.at(home), lambda: context)
        observed = run.loop.reconcile(run.loop.observe())
        batch = plan(observed.ledger, observed.snapshot, Limits(offsets=1 << 40), uuid.uuid4().hex)
        assert not isinstance(batch, Idle)
        reports = run.loop.stage(observed, batch).reports
        seconds = time.monotonic() - began
        # Short ranges of a task share a file, and each of their reports names it.
        files = list(dict.fromkeys(file.path for report in reports for table in report.tables for file in table.files))
        return {"seconds": seconds, "files": files, "task_s": sum(report.seconds for report in reports)}

    def committed(home: str, **what: Any) -> dict[str, Any]:
        """Return the seconds from the first request to the brokers until the last batch was read back."""
        began = time.monotonic()
        run = Run.real(pipeline(**what), Home.at(home), lambda: context)
        ends = [(time.monotonic() - began, done.commit.totals.rows) for done in run.batches()]
        return {"seconds": ends[-1][0], "batches": ends, "data": str(Home.at(home).data)}

    serve({"ready": ready, "staged": staged, "committed": committed}, sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
