"""What a run of the service does before its first batch."""

from __future__ import annotations

from pathlib import Path

from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.service.admission import Admission
from kpipe_assets.service.pipeline_thread import PipelineThread
from kpipe_assets.service.shared_spark import SharedSpark
from resources.home import Home


def test_a_run_that_began_while_its_pipeline_was_stopped_reads_nothing(tmp_path: Path) -> None:
    home = Home.at(tmp_path).make()
    ends = []
    with SensorStates(home) as switches:
        for on in (True, False):
            switches.turn("orders", on)
            thread = PipelineThread(home, "orders", SharedSpark(home), Admission(), lambda _: None)
            thread._ready()  # called when the run is marked, so that STOP PIPELINE waits for it
            ends.append(thread._is_over())
    assert ends == [False, True]
