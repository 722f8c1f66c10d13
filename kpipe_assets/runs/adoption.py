"""Take over another loader's position: read it, compare it with brokers and ledger, and begin the pipeline there."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kpipe.adoption.judge import Adoption, compare, differences, judge
from kpipe.adoption.positions import Positions
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, InvalidStatement, NotAvailable, SourceIdentityChanged
from kpipe.ledger.ledger import ADOPTED, Ledger
from kpipe.planning.reconcile import Survey
from kpipe.run_events import Decisions
from kpipe.topics import TopicSnapshot
from kpipe_assets.runs.run_locks import is_running
from resources.adoption.records_between import records_between
from resources.adoption.sources import Loader, parsed, read
from resources.adoption.table_offsets import TableColumns
from resources.audit.sources import TYPES
from resources.audit.table_address import TableAddress
from resources.destinations import open_destination
from resources.home import Home
from resources.kafka.topic_metadata import KafkaTopics

__all__ = ["Proposal", "Request", "adopt", "own_table", "propose"]


@dataclass(frozen=True)
class Request:
    """Source of a position, and what to compare it with, as an operator names them.

    Attributes:
        source: the source of the positions; see `resources.adoption.sources.FORMS`.
        checks: sources to compare them with.
        table: the other loader's table; None: the pipeline's own.
        columns, credentials, included: see `Loader`.
        accept_loss: whether offsets that Kafka has deleted unread may be recorded as lost.
    """

    source: str
    checks: Sequence[str] = ()
    table: TableAddress | None = None
    columns: TableColumns = field(default_factory=TableColumns)
    credentials: dict[str, str] = field(default_factory=dict)
    included: bool | None = None
    accept_loss: bool = False


@dataclass(frozen=True)
class Proposal:
    """Positions that a pipeline could begin at.

    Attributes:
        adoption: the positions, notes and problems.
        positions: as the source gave them.
        begun: whether the pipeline is at these positions already, so that nothing is left to write.
        survey: reader and writer of the pipeline's ledger.
        loader: the loader.
    """

    adoption: Adoption
    positions: Positions
    begun: bool
    survey: Survey
    loader: Loader


def propose(pipeline: Pipeline, home: Home, request: Request) -> Proposal:
    """Read the positions, and judge them. Writes nothing.

    The positions are read first, then the ledger, then the brokers' offsets: the log can only have grown since.

    Raises:
        NotAvailable: the pipeline is bounded.
        InvalidStatement: it is running.
        KpipeError: a source cannot be read, or gives no position.
    """
    if pipeline.source.end is not None:
        raise NotAvailable(
            f"pipeline {pipeline.name}: source.end: a bounded pipeline cannot take over a position", "set source.start to it"
        )
    if is_running(home, pipeline.name):
        raise InvalidStatement(f"pipeline {pipeline.name} is running", f"STOP PIPELINE {pipeline.name} first")
    kinds = [parsed(text)[0] for text in (request.source, *request.checks)]
    survey = _survey(pipeline, home)
    before = survey.topics.snapshot()
    address = request.table
    if address is None and {*kinds} & {"table", "iceberg-sink", "delta-txn"}:
        address = own_table(pipeline, home)
    partitions = tuple(before.partitions)
    loader = Loader(pipeline, partitions, address, request.columns, request.credentials, request.included)
    positions = read(request.source, loader)
    others = [read(text, loader) for text in request.checks]
    snapshot, ledger = survey.observe()
    if snapshot.topics() != before.topics():
        raise SourceIdentityChanged(
            f"topics of pipeline {pipeline.name} were recreated while positions were read", "run it again"
        )
    adoption = judge(positions, snapshot, request.accept_loss)
    begun, problem = _begun(pipeline, ledger, snapshot, adoption)
    if problem:
        adoption = replace(adoption, problems=(*adoption.problems, problem))
    for other in () if begun or problem else others:
        adoption = _checked(pipeline, adoption, other)
    return Proposal(adoption, positions, begun, survey, loader)


def adopt(proposal: Proposal, request: Request) -> int:
    """Commit the first lanes, and return the number of the commit.

    Positions of all sources but tables are read again just before: a loader that was not stopped has moved on.

    Raises:
        InvalidStatement: there are problems, or the positions have changed.
        Fenced: a run of the pipeline began in the meantime. Nothing was changed.
    """
    adoption, survey = proposal.adoption, proposal.survey
    if adoption.problems:
        raise InvalidStatement(f"pipeline {survey.pipeline.name}: {adoption.problems[0]}", "fix it, then run the command again")
    if parsed(request.source)[0] != "table":
        again = read(request.source, proposal.loader)
        if again.offsets != proposal.positions.offsets or again.problems:
            raise InvalidStatement(
                f"{proposal.positions.origin}: the position has changed: the loader is still running",
                "stop it, then run this again",
            )
    ledger = survey.decide("adopt", adoption.changes, f"{adoption.note}; {survey.decisions.who}")
    return ledger.seq


def own_table(pipeline: Pipeline, home: Home) -> TableAddress:
    """Return the address of a pipeline's own table.

    Raises:
        InvalidPipeline: tables of its type cannot be read.
    """
    into = pipeline.into
    if into.is_template:
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: into.table {into.table} names several tables, not the loader's table",
            "name the loader's table: --type, --database and --table",
        )
    if into.type not in TYPES or into.type == "parquet":
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: a table of type {into.type} cannot be read",
            "name the loader's table: --type and --database",
        )
    default = home.data / ("kpipe.duckdb" if into.type == "duckdb" else into.type)
    place = into.database if into.database is not None else str(default)
    return TableAddress(
        into.type,
        place,
        into.table,
        catalog=into.catalog,
        catalog_name=into.catalog_name,
        namespace=into.namespace or "default",
        credentials=into.credentials,
    )


def _survey(pipeline: Pipeline, home: Home) -> Survey:
    home.make()  # the last seen position is stored in it
    return Survey(
        pipeline=pipeline,
        topics=KafkaTopics(pipeline.source),
        destination=open_destination(pipeline, home),
        decisions=Decisions(who=f"{getpass.getuser()} on the command line"),
        seen=home.seen(pipeline.name),
        run_id="adopt",
    )


def _begun(pipeline: Pipeline, ledger: Ledger, snapshot: TopicSnapshot, adoption: Adoption) -> tuple[bool, str]:
    """Return whether the ledger has exactly these first lanes, and the problem if it has others."""
    if not any(source in snapshot.partitions or snapshot.means(source.topic.name) for source in ledger.sources()):
        return False, ""
    mine = {lane.become.key: lane.become for lane in adoption.changes if lane.become is not None}
    if dict(ledger.lanes) == mine and any(lane.kind == ADOPTED for lane in mine.values()):
        return True, ""
    heads = ", ".join(f"{source} at {at}" for source, at in list(ledger.positions().items())[:5])
    return False, (
        f"pipeline {pipeline.name} has begun already: {heads}; adopt with a pipeline of another name, or move this one:"
        f" ALTER PIPELINE {pipeline.name} SET OFFSETS"
    )


def _checked(pipeline: Pipeline, adoption: Adoption, other: Positions) -> Adoption:
    """Compare with a second source: count the records between both positions of each partition."""
    found = compare(adoption, other)
    counted = {item: records_between(pipeline.source, item.source, item.range) for item in found if item.readable}
    notes, problems = differences(other, found, counted)
    if not problems and not other.problems:
        notes = [*notes, f"compared with {other.origin}: the same position"]
    return replace(
        adoption,
        notes=[*adoption.notes, *other.notes, *notes],
        problems=[*adoption.problems, *other.problems, *problems],
    )
