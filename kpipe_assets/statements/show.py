"""Execute SHOW PIPELINES and SHOW CREATE PIPELINE."""

from __future__ import annotations

from collections.abc import Mapping

from kpipe.definition.pipeline import Pipeline
from kpipe.sql.renderer import to_sql, write
from kpipe.sql.statements import Alter, SetOffsets, ShowCreate
from kpipe.topics import Part, part
from kpipe_assets.runs.status import state_of
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.statements.result import Result
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["show_create", "show_pipelines"]


def show_pipelines(home: Home, sensor_states: SensorStates) -> Result:
    """Execute SHOW PIPELINES."""
    on, unserved = sensor_states.on(), sensor_states.unserved()
    rows = [(name, state_of(home, name, name in on, name not in unserved)) for name in home.names()]
    return Result(columns=("pipeline", "state"), rows=rows)


def show_create(home: Home, statement: ShowCreate) -> Result:
    """Execute SHOW CREATE PIPELINE. EXTENDED adds the statement that seeks a copy to the same offsets."""
    pipeline = home.pipeline(statement.pipeline)
    text = to_sql(pipeline)
    if statement.extended:
        positions = _positions(home, pipeline)
        if positions:
            text += "\n" + write(Alter(pipeline.name, (SetOffsets(dict(positions)),)))
    return Result(columns=("pipeline", "statement"), rows=[(pipeline.name, text)], text=True)


def _positions(home: Home, pipeline: Pipeline) -> Mapping[Part, int]:
    """Return the next offsets by partition; empty if several topic ids share a name."""
    _, ledger = open_destination(pipeline, home).ledger()
    positions = ledger.positions()
    numbers = {part(source, pipeline.source.multi_topic): offset for source, offset in sorted(positions.items())}
    return numbers if len(numbers) == len(positions) else {}
