"""What comes before a commit: a batch that was planned and staged; and the next one, extracted while one commits.

Working ahead changes nothing that is promised. The batch is planned from the ledger as it will be if the commit at hand
lands; when it is taken up, the ledger is read again, and unless it is exactly that one, what was staged is left behind
like the files of any batch that failed. The commit compares and swaps as ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kpipe.batch.batch import Batch, RangeReport
from kpipe.column_growth import Closed, Taken, listed, named, names_in, taken
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError, SchemaConflict
from kpipe.expressions.projection import Selection
from kpipe.failpoints import reach
from kpipe.interfaces import Stager, Topics
from kpipe.ledger.ledger import Ledger
from kpipe.planning.planner import Idle, arrivals, check_source
from kpipe.run_events import Event
from kpipe.schema.columns import Columns
from kpipe.schema.growth_limits import room
from kpipe.tables.multi_table import targets
from kpipe.topics import TopicSnapshot

__all__ = ["Ahead", "Extract", "extract_next", "filled", "merged", "staged", "staged_for", "wanted"]

# A batch whose records keep holding columns that no earlier pass has reported would never end. Each pass reports all
# new columns of the whole batch, so a second pass finds no more unless the records changed, which Kafka rules out.
_MOST_STAGINGS = 3


@dataclass(frozen=True)
class Extract:
    """A batch whose rows are staged.

    Attributes:
        batch: what was read.
        snapshot: what the brokers held when it was planned.
        ledger: what was committed then, or will be.
        columns: that rows were staged with, of each table (kpipe/tables/multi_table.py).
        closed: which further columns of records no table takes (kpipe/column_growth.py); empty while every one is still taken.
        reports: of the tasks.
        began: of the monotonic clock, in seconds.
        started_ms: UTC.
    """

    batch: Batch
    snapshot: TopicSnapshot
    ledger: Ledger
    columns: tuple[Columns, ...]
    closed: tuple[Closed, ...]
    reports: Sequence[RangeReport]
    began: float
    started_ms: int


class Ahead:
    """One extraction in a thread of its own.

    Args:
        extract: gives what was extracted, or None where there is nothing to extract; it is given where to tell events.
        ledger: that the commit at hand will leave if it lands.
        tables: the columns of the tables then.
    """

    def __init__(
        self, extract: Callable[[Callable[[Event], None]], Extract | None], ledger: Ledger, tables: tuple[Columns, ...]
    ) -> None:
        self._expected, self._tables = ledger, tables
        self._result: Extract | BaseException | None = None
        self._events: list[Event] = []
        self._began = time.monotonic()

        def work() -> None:
            try:
                self._result = extract(self._events.append)
            except BaseException as error:  # raised again in `take`, in the thread that asks for the result
                self._result = error

        self._thread = threading.Thread(target=work, name="kpipe-ahead", daemon=True)
        self._thread.start()

    def foresaw(self, ledger: Ledger, tables: tuple[Columns | None, ...]) -> bool:
        """Whether ledger and tables have become what was expected."""
        expected = self._expected
        return (ledger.seq, ledger.lanes) == (expected.seq, expected.lanes) and tables == self._tables

    def take(self, tell: Callable[[Event], None]) -> Extract | None:
        """The result, waited for. What it would have told meanwhile is told now.

        Raises:
            KpipeError: what the extraction raised.
        """
        self._thread.join()
        for event in self._events:
            tell(event)
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result

    def drop(self, stager: Stager) -> None:
        """Leave it; when this returns, nothing works on it any more."""
        while self._thread.is_alive():
            stager.give_up()
            self._thread.join(0.1)


def extract_next(
    pipeline: Pipeline,
    topics: Topics,
    stager: Stager,
    ledger: Ledger,
    columns: tuple[Columns, ...],
    planned: Callable[[Ledger, TopicSnapshot], Batch | Idle],
    tell: Callable[[Event], None],
) -> Extract | None:
    """The batch behind one that is being committed; None where there is none, or something has to be decided before.

    Args:
        pipeline: the definition.
        topics: what is read.
        stager: who stages.
        ledger: as it will be.
        columns: of each table, as they will be.
        planned: makes the plan.
        tell: called with every event.

    Raises:
        KpipeError: staging failed.
    """
    began, started_ms = time.monotonic(), int(time.time() * 1000)
    try:
        snapshot = topics.snapshot()
        check_source(ledger, snapshot)
    except KpipeError:
        return None  # asked again, and decided upon, when it is this batch's turn
    batch = planned(ledger, snapshot) if not arrivals(ledger, snapshot) else None
    if batch is None or isinstance(batch, Idle):
        return None
    tell(Event("planned", batch, snapshot=snapshot, ledger=ledger))
    return Extract(batch, snapshot, ledger, *staged(pipeline, stager, batch, columns, tell), began, started_ms)


def wanted(pipeline: Pipeline, table: Columns | None, sample: Callable[[], Columns]) -> Columns:
    """Columns of the table if it exists, else the declared ones before those of a sample (design.md 4.6).

    Raises:
        SchemaConflict: a declared type does not go with the table's.
    """
    declared = filled(pipeline, pipeline.declared)
    if table is not None:
        table = filled(pipeline, table)
        missing = declared.without(table.names())
        return merged(table, missing) if pipeline.evolution == "evolve" else table
    if pipeline.format.type == "raw":
        return filled(pipeline, Columns.of({"key": "BLOB", "value": "BLOB"}))
    return _taken(pipeline, declared, sample().without(declared.names()), 0).columns


def filled(pipeline: Pipeline, table: Columns) -> Columns:
    """Columns of the table that rows have values for: all, unless the definition spells them out; others get their defaults."""
    format = pipeline.format
    if pipeline.select is not None:
        chosen = Selection.of(pipeline)
        given = chosen.outputs if chosen is not None else None
        return table if given is None else Columns(tuple((name, kind) for name, kind in table if name.lower() in given))
    if not (format.mapping or format.fields):
        return table
    key = pipeline.key_format
    if key is not None and not (key.mapping or key.fields):
        return table  # which columns the key gives is seen when it is read
    spelt = [name for part in (format, key) if part is not None for name in part.mapping or part.fields or ()]
    named = {name.lower() for name in (*spelt, *pipeline.set, *pipeline.columns)}
    return Columns(tuple((name, kind) for name, kind in table if name.lower() in named))


def staged(
    pipeline: Pipeline,
    stager: Stager,
    batch: Batch,
    columns: Sequence[Columns],
    tell: Callable[[Event], None],
    known: Sequence[Columns] = (),
    closed: tuple[Closed, ...] = (),
) -> tuple[tuple[Columns, ...], tuple[Closed, ...], Sequence[RangeReport]]:
    """Stage rows with the columns that the tables have or will have.

    New columns that the records hold are handled by the pipeline's schema policy: `evolve` widens as far as the bounds allow
    and stages once more, without the records that hold others; `ignore` leaves them out, `fail` raises.

    Args:
        pipeline: the definition.
        stager: who stages.
        batch: what is read.
        columns: of each table.
        tell: called with every event.
        known: columns of each table without those of a sample; empty: the same.
        closed: what an earlier staging of the batch has decided about further columns.

    Returns:
        Columns of each table, what was decided about further ones, and the reports.

    Raises:
        SchemaConflict: the policy is `fail`, or the types cannot be one.
    """
    reach("plan.frozen")
    columns = tuple(columns)
    parts = targets(pipeline)
    sampled = [_names(have) - _names(base) for have, base in zip(columns, known or columns, strict=True)]
    for attempt in range(1, _MOST_STAGINGS + 1):
        more = {**({"also": columns[1:]} if columns[1:] else {}), **({"closed": closed} if closed else {})}
        reports = stager.stage(batch, columns[0], **more)  # type: ignore[arg-type]
        new = [Columns() for _ in columns]
        for report in reports:
            seen = (report.new_columns, *(share.new_columns for share in report.also))
            new = [have.joined(more, apart=True) for have, more in zip(new, seen, strict=True)]
        if not any(new) or pipeline.evolution == "ignore":
            return columns, closed, reports
        names = listed([f"{name} {kind}" for part in new for name, kind in part], 20)
        if pipeline.evolution == "fail":
            raise SchemaConflict(
                f"batch {batch.id}: records hold columns that the table lacks: {names}",
                "add them to the table or to `columns`, or set schema: evolve or ignore",
            )
        wide = [_taken(*found) for found in zip(parts, columns, new, sampled, strict=True)]
        sampled = [
            _names(after.columns) - _names(have) + count for after, have, count in zip(wide, columns, sampled, strict=True)
        ]
        columns, closed = tuple(found.columns for found in wide), tuple(found.closed for found in wide)
        if attempt < _MOST_STAGINGS:
            tell(Event("restaged", batch, text=f"new columns: {names}"))
    raise SchemaConflict(f"batch {batch.id}: new columns turn up each time it is read: {names}")


def staged_for(
    pipeline: Pipeline,
    tables: Sequence[tuple[Pipeline, Columns | None]],
    stager: Stager,
    batch: Batch,
    tell: Callable[[Event], None],
) -> tuple[tuple[Columns, ...], tuple[Closed, ...], Sequence[RangeReport]]:
    """Stage rows for tables as they are: as `staged`, whose columns are those that `wanted` gives.

    Args:
        pipeline: the definition.
        tables: each table's definition and its columns; None: it does not exist.
        stager: who stages.
        batch: what is read.
        tell: called with every event.

    Raises:
        SchemaConflict: see `wanted` and `staged`.
    """
    samples = [partial(stager.columns, batch, *([at] if at else [])) for at in range(len(tables))]
    columns = [wanted(part, table, sample) for (part, table), sample in zip(tables, samples, strict=True)]
    known = [wanted(part, table, Columns) for part, table in tables]
    return staged(pipeline, stager, batch, columns, tell, known)


def _names(columns: Columns) -> int:
    return sum(names_in(kind) for _, kind in columns)


def _taken(pipeline: Pipeline, columns: Columns, new: Columns, before: int) -> Taken:
    try:
        return taken(columns, new, room(pipeline.into.type), named(pipeline), before)
    except ValueError as error:
        raise SchemaConflict(str(error), "declare its type under `columns`, or change the table") from error


def merged(columns: Columns, new: Columns) -> Columns:
    """Both; the same name with the wider type.

    Raises:
        SchemaConflict: two types of one name that do not go together.
    """
    try:
        return columns.merged(new)
    except ValueError as error:
        raise SchemaConflict(str(error), "declare its type under `columns`, or change the table") from error
