"""The rebuild of a pipeline in its home: what is being rebuilt, and the home's part of an exchange.

The destination exchanges tables and ledgers in one commit. Before it, the home stores both definitions and the commit's id. After
it, `finish` writes the definitions and the last-seen positions. A process that is killed in between leaves that to the next run.

Definitions are stored as documents with their templates: the value of a template may be a secret.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import from_yaml, to_yaml
from kpipe.errors import InvalidPipeline, KpipeError, NeedsOperator
from kpipe.failpoints import failpoint
from kpipe.rebuild.definitions import REBUILD, REPLACED, renamed
from kpipe.rebuild.exchange import Exchanging
from kpipe_assets.runs.stop_requests import ask
from resources.destinations import open_destination
from resources.home import Home

__all__ = [
    "Rebuild",
    "dropped",
    "finish",
    "forget",
    "has_replaced_ledger",
    "is_outdated",
    "is_replaced",
    "load",
    "was_exchanged",
]

_PART, _RECORD = "rebuild", "replaced"
_ORIGIN = "exchanged"  # of NAME_replaced: registration id of the ledger that the exchange gave it


@dataclass(frozen=True)
class Rebuild:
    """A rebuild that has begun and has not ended.

    Attributes:
        old: document of the live definition when it began.
        new: document of the pipeline's definition after the exchange.
        exchange: id of the exchange; empty before it is committed.
    """

    old: str
    new: str
    exchange: str = ""

    @property
    def before(self) -> Pipeline:
        """The live definition when it began.

        Raises:
            InvalidPipeline: a variable of a template is not set.
        """
        return from_yaml(self.old, "the stored definition before the rebuild")

    @property
    def after(self) -> Pipeline:
        """The pipeline's definition after the exchange.

        Raises:
            InvalidPipeline: a variable of a template is not set.
        """
        return from_yaml(self.new, "the stored definition of the rebuild")

    def save(self, home: Home, name: str) -> None:
        """Store it."""
        home.keep(name, _PART, asdict(self))


def load(home: Home, name: str) -> Rebuild | None:
    """Return the rebuild of a pipeline; None without one.

    Raises:
        KpipeError: its file is damaged.
    """
    try:
        fields = home.kept(name, _PART)
        if fields is None:
            return None
        for part in ("old", "new"):
            if not isinstance(fields[part], str):  # fields that an older kpipe stored, with the values of templates
                fields[part] = to_yaml(Pipeline.model_validate(fields[part]), home.document(name))
        return Rebuild(**fields)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KpipeError(f"{home.state / name}.{_PART}.json is damaged: {error}", "restore it from a backup") from error


def forget(home: Home, name: str) -> None:
    """Forget a rebuild and the definition of its pipeline; the destination is left as it is."""
    home.remove(name + REBUILD)
    (home.state / f"{name}{REBUILD}.json").unlink(missing_ok=True)
    home.keep(name, _PART, None)


def dropped(home: Home, name: str) -> None:
    """Forget the rebuild of a dropped pipeline, and that of NAME if NAME_rebuild was dropped and no exchange was sent."""
    home.keep(name, _PART, None)
    live = name.removesuffix(REBUILD)
    if live != name and (found := load(home, live)) is not None and not found.exchange:
        home.keep(live, _PART, None)


def is_replaced(home: Home, name: str) -> bool:
    """Return whether this is the pipeline of a table that an exchange has replaced, NAME_replaced."""
    live = name.removesuffix(REPLACED)
    return live != name and has_replaced_ledger(home, live, home.seen(name).uid)


def has_replaced_ledger(home: Home, name: str, uid: str) -> bool:
    """Return whether NAME_replaced was made by an exchange, and is not a pipeline of the user with that name.

    Args:
        home: KPIPE_HOME.
        name: of the live pipeline.
        uid: registration id of the ledger of NAME_replaced; empty: it has none, or has none any more.
    """
    if (origin := home.kept(name + REPLACED, _ORIGIN)) is not None:
        return uid in ("", origin["uid"])
    return bool(uid) and _replaced(home, name) == uid  # an older kpipe exchanged it


def _replaced(home: Home, name: str) -> str:
    """Return the registration id of the ledger that the last exchange replaced; empty: no exchange is recorded."""
    return str((home.kept(name, _RECORD) or {}).get("old", ""))


def finish(home: Home, name: str) -> Pipeline | None:
    """Complete an exchange that the destination has committed. Repeatable after each step.

    Returns:
        The new definition; None if no exchange was committed.

    Raises:
        NeedsOperator: the definition was edited in between; it stays as it is.
        KpipeError: the destination does not answer, or the home cannot be written.
    """
    found = load(home, name)
    if found is None or not found.exchange:
        return None
    new, old = found.after, found.before
    destination = open_destination(new, home)
    if not isinstance(destination, Exchanging) or not destination.exchanged(found.exchange):
        return None
    failpoint("rebuild.exchanged")
    _check_edit(home, old, new)
    home.save(renamed(old), found.old)
    home.note(name + REPLACED, "stopped")
    home.save(new, found.new)
    failpoint("rebuild.defined")
    for pipeline in (new, renamed(old)):
        uid, ledger = open_destination(pipeline, home).ledger()
        seen = home.seen(pipeline.name)
        if pipeline is new and seen.uid != uid:
            home.keep(name, _RECORD, {"old": seen.uid, "uid": uid, "seq": ledger.seq, "definition": found.old})
        seen.note(uid, ledger.age)
    home.keep(name + REPLACED, _ORIGIN, {"uid": uid})
    forget(home, name)
    ask(home, name, "restart")
    return new


def _check_edit(home: Home, old: Pipeline, new: Pipeline) -> None:
    """Check that the present definition was not edited since the rebuild began: the new one is about to replace it.

    Raises:
        NeedsOperator: it was edited.
    """
    name = old.name
    if name not in home.names():
        return
    now, before = home.pipeline(name).to_dict(), old.to_dict()
    if now in (before, new.to_dict()):
        return
    edited = sorted(field for field in {**now, **before} if now.get(field) != before.get(field))
    raise NeedsOperator(
        f"{home.pipelines / name}.yaml was edited before the exchange of the rebuilt table was complete: {', '.join(edited)};"
        " the table and its ledger are exchanged",
        f"move the file to another folder; kpipe rebuild {name} then writes the rebuilt definition; repeat the edit in that one",
    )


def was_exchanged(home: Home, name: str, uid: str) -> bool:
    """Return whether the ledger with this registration id was replaced by a rebuilt one, and complete that exchange.

    Args:
        home: KPIPE_HOME.
        name: the pipeline's name.
        uid: that a run has seen; empty: none.
    """
    finish(home, name)
    return bool(uid) and _replaced(home, name) == uid


def is_outdated(home: Home, pipeline: Pipeline, uid: str) -> bool:
    """Return whether a run, or a retry of dead letters, has a definition from before the exchange that made its ledger.

    Its process read the definition, then the exchange was completed, then it read the last-seen position: that of the new table.

    Args:
        home: KPIPE_HOME.
        pipeline: the definition that was read.
        uid: registration id of the ledger that it is used for.
    """
    record = home.kept(pipeline.name, _RECORD) or {}
    if not uid or record.get("uid") != uid or not _is_stored(record.get("definition"), pipeline):
        return False
    return pipeline.name in home.names() and home.pipeline(pipeline.name).to_dict() != pipeline.to_dict()


def _is_stored(definition: Any, pipeline: Pipeline) -> bool:
    """Return whether a stored definition is this one. An older kpipe stored its fields, and not a document."""
    if not isinstance(definition, str):
        return bool(definition == pipeline.to_dict())
    with suppress(InvalidPipeline):  # a variable is not set: this process cannot have read that definition
        return from_yaml(definition).to_dict() == pipeline.to_dict()
    return False
