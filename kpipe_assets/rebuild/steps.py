"""The steps of a rebuild. Each can be repeated: a process that is killed leaves the live pipeline as it is."""

from __future__ import annotations

import getpass
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import from_yaml, to_yaml
from kpipe.errors import Fenced, InvalidPipeline, InvalidStatement, NotAvailable
from kpipe.failpoints import failpoint
from kpipe.rebuild.definitions import REBUILD, REPLACED, check, check_unchanged, rebuilding, renamed, table_names
from kpipe.rebuild.exchange import Coordinates, Exchange, Exchanging, TableNames, missing
from kpipe.verification.verify import Audit
from kpipe_assets.runs.proof import prove
from kpipe_assets.runs.rebuilt import Rebuild, finish, forget, has_replaced_ledger, is_replaced, load
from kpipe_assets.runs.run_locks import is_running
from kpipe_assets.validation import validate
from resources.definition_lock import defining
from resources.destinations import open_destination, summary
from resources.home import Home

__all__ = ["Comparison", "begin", "cancel", "compare", "drop_replaced", "exchange"]

# The live pipeline reads on while the exchange is tried: each time, the new table catches up first.
_TRIES = 20


@dataclass(frozen=True)
class Comparison:
    """The live table and the rebuilt one.

    Attributes:
        live: proof of the live table.
        rebuilt: proof of the rebuilt one.
        waiting: offsets that only the live table has so far.
        missing: offsets that only the live table has, and that will not be read.
        differences: coordinates of rows that only one of them has, by table, if they were requested.
    """

    live: Audit
    rebuilt: Audit
    waiting: list[str]
    missing: list[str]
    differences: dict[str, Coordinates]


def begin(home: Home, name: str, new: Pipeline | None, start: Any = None, document: str = "") -> Pipeline:
    """Store the definition of a rebuild, or continue one, and return the pipeline that loads the new table.

    Args:
        home: KPIPE_HOME.
        name: the live pipeline's name.
        new: its new definition; None: that of the rebuild that has begun, else the present one.
        start: where to begin; None: where a rebuild has begun, else the earliest offset.
        document: of the new definition, whose templates are kept; empty: the live one's.

    Raises:
        InvalidStatement: another rebuild has begun, its definition was edited, or a name that it needs is taken.
        InvalidPipeline, NotAvailable: the pipeline cannot be rebuilt with this definition.
    """
    finish(home, name)
    live, known = home.pipeline(name), load(home, name)
    if known is None:
        new = new or live
        check(live, new)
        place = _exchanging(live, home)
        shadow = rebuilding(new, "earliest" if start is None else start)
        _check_free(home, name, shadow.name)
        _check_free(home, name, name + REPLACED)
        renamed(live)
        place.check_rebuild(TableNames(name, shadow.name, name + REPLACED), table_names(live))
        validate(shadow, home)
        text = home.document(name)
        begun = Rebuild(to_yaml(live, text), to_yaml(new, document or text))
        begun.save(home, name)
        home.note(shadow.name, "stopped")
        home.save(shadow, begun.new)
        failpoint("rebuild.begun")
        return shadow
    wanted = rebuilding(new or known.after, "earliest" if start is None else start)
    if name + REBUILD not in home.names():  # killed before it was written
        home.save(wanted, known.new)
    shadow = home.pipeline(name + REBUILD)
    is_other = new is not None and new.to_dict() != known.after.to_dict()
    if is_other or (start is not None and shadow.source.start != wanted.source.start):
        raise InvalidStatement(
            f"pipeline {name}: a rebuild with another definition or start has begun",
            f"continue it without these options, or kpipe rebuild {name} --cancel first",
        )
    _check_shadow(name, shadow, known)
    return shadow


def compare(home: Home, name: str, differences: int = 0) -> Comparison:
    """Prove both tables, and compare which offsets they cover.

    Raises:
        InvalidPipeline: a pipeline has committed nothing yet.
    """
    live, shadow = home.pipeline(name), home.pipeline(name + REBUILD)
    place = _exchanging(live, home)
    waiting, gone = missing(open_destination(live, home).ledger()[1], open_destination(shadow, home).ledger()[1])
    found = {one.live: place.differences(one, differences) for one in table_names(live)} if differences else {}
    failpoint("rebuild.compared")
    return Comparison(prove(live, home), prove(shadow, home), waiting, gone, found)


def exchange(home: Home, name: str, catch_up: Callable[[Pipeline], None], accept_missing: bool = False) -> int:
    """Exchange the tables, and return the number of the commit.

    Args:
        home: KPIPE_HOME.
        name: the live pipeline's name.
        catch_up: loads the pipeline's new records.
        accept_missing: whether offsets may be missing that the live table has.

    Raises:
        InvalidStatement: a definition was edited, or the rebuilt table is not proven, or would lack something.
        Fenced: the live pipeline was ahead each time.
        KpipeError: the destination failed.
    """
    shadow = home.pipeline(name + REBUILD)
    for attempt in range(_TRIES):
        catch_up(shadow)
        found = load(home, name)
        assert found is not None
        check_unchanged(name, home.pipeline(name), found.before.to_dict())
        _check_shadow(name, home.pipeline(shadow.name), found)
        new = found.after
        result = prove(shadow, home)
        if not result.ok:
            raise InvalidStatement(
                f"pipeline {shadow.name}: the rebuilt table is not proven: {result.problems[0]}", f"kpipe verify {shadow.name}"
            )
        work = Exchange(
            id=found.exchange or uuid.uuid4().hex,  # a commit that was sent may land late
            pipelines=TableNames(name, shadow.name, name + REPLACED),
            tables=table_names(new),
            accept_missing=accept_missing,
            note=f"exchange: {', '.join(one.table for one in new.tables)} rebuilt; {getpass.getuser()} on the command line",
            run_id=f"pid-{os.getpid()}",
            config=summary(new),
        )
        with defining(home):  # the exchange would undo an edit of the live definition
            replace(found, exchange=work.id).save(home, name)
            failpoint("rebuild.exchanging")
            try:
                check_unchanged(name, home.pipeline(name), found.before.to_dict())
                _check_free(home, name, name + REPLACED)  # it may have been created since the rebuild began
                seq = _exchanging(home.pipeline(name), home).exchange(work)
            except (Fenced, InvalidStatement, NotAvailable) as refused:
                if not found.exchange:  # no commit with this id was sent, so none can land later
                    found.save(home, name)
                if isinstance(refused, Fenced) and attempt < _TRIES - 1:
                    continue
                raise
            finish(home, name)
        return seq
    raise AssertionError


def cancel(home: Home, name: str) -> None:
    """Drop the rebuilt table with its ledger, and forget the rebuild.

    Raises:
        InvalidStatement: there is no rebuild, or it is running.
    """
    finish(home, name)
    found = load(home, name)
    if found is None:
        raise InvalidStatement(f"pipeline {name}: no rebuild has begun", f"kpipe rebuild {name} begins one")
    old = found.before
    _discard(home, old, name + REBUILD, [one.rebuilt for one in table_names(old)])
    forget(home, name)


def drop_replaced(home: Home, name: str) -> None:
    """Drop the table that an exchange has replaced, with its ledger and definition.

    Raises:
        InvalidStatement: it is running, does not exist, or was not made by an exchange.
    """
    finish(home, name)
    if name + REPLACED not in home.names():
        raise InvalidStatement(f"pipeline {name}: no exchange has replaced a table", "")
    replaced = home.pipeline(name + REPLACED)  # the live definition may have been edited since
    if not has_replaced_ledger(home, name, open_destination(replaced, home).ledger()[0]):
        raise InvalidStatement(
            f"pipeline {replaced.name}: no exchange of {name} has replaced its ledger, so it may be yours; nothing was dropped",
            f"if nothing needs it: DROP PIPELINE {replaced.name}, and drop its table by hand",
        )
    _discard(home, replaced, replaced.name, [one.table for one in replaced.tables])
    home.remove(name + REPLACED)
    (home.state / f"{name}{REPLACED}.json").unlink(missing_ok=True)


def _check_free(home: Home, name: str, wanted: str) -> None:
    """Check that the home defines no pipeline of a name that the rebuild of the pipeline `name` needs.

    Raises:
        InvalidStatement: it does.
    """
    if wanted in home.names():
        own = f'DROP PIPELINE {wanted}, if nothing needs it: docs/how-to/operate/rebuild.md, "Names that are taken"'
        raise InvalidStatement(
            f"pipeline {wanted} exists: kpipe rebuild {name} would use its name",
            f"kpipe rebuild {name} --drop-replaced" if is_replaced(home, wanted) else own,
        )


def _check_shadow(name: str, shadow: Pipeline, found: Rebuild) -> None:
    begun = rebuilding(found.after, shadow.source.start)
    check_unchanged(name, shadow, begun.to_dict())


def _discard(home: Home, place: Pipeline, name: str, tables: Sequence[str]) -> None:
    """Drop the tables and the ledger of the pipeline `name` in the database of `place`."""
    if is_running(home, name):
        raise InvalidStatement(f"pipeline {name} is running", f"STOP PIPELINE {name} first")
    _exchanging(place, home).discard(name, tables)


def _exchanging(live: Pipeline, home: Home) -> Exchanging:
    destination = open_destination(live, home)
    if not isinstance(destination, Exchanging):
        raise NotAvailable(
            f"pipeline {live.name}: into.type {live.into.type}: a rebuilt table and its ledger cannot be exchanged in one commit",
            "load into another table with a pipeline of another name, and move the readers",
        )
    destination.check_exchange()
    return destination


def read_definition(text: str, file: str, name: str) -> Pipeline:
    """Parse a definition from a file.

    Raises:
        InvalidPipeline: it is invalid, or of another pipeline.
    """
    pipeline = from_yaml(text, file)
    if pipeline.name != name:
        raise InvalidPipeline(f"{file}: name is {pipeline.name!r}", f"expected the definition of {name}")
    return pipeline
