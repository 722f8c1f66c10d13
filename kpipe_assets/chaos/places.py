"""Places of copies: a folder, a prefix of objects, a schema or a database of their own, created and removed by `kpipe chaos`.

A place contains the tables, dead letters and ledger of one copy, and nothing else. Each has a mark with the copy's name, which
is written when the place is created. A place without the mark is never removed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationError
from kpipe_assets.chaos.database_places import MySQLPlace, PostgresPlace
from resources.destinations.lakehouse_factory import open_catalogue, open_folder
from resources.home import Home
from resources.object_store.uri import is_remote

__all__ = ["MARK", "Place", "place_of", "remove_objects"]

#: File that marks a folder, and object that marks a prefix.
MARK = "kpipe-chaos"


class Place(Protocol):
    """Place of one copy."""

    def describe(self) -> str:
        """Describe the place for messages, without secrets."""
        ...

    def into(self) -> Mapping[str, Any]:
        """Return the fields of `into` that name the place."""
        ...

    def create(self) -> None:
        """Create the place.

        Raises:
            DestinationError: it exists already, or cannot be created.
        """
        ...

    def drop(self) -> None:
        """Remove the place with everything in it; do nothing if it does not exist. Safe to repeat.

        Raises:
            DestinationError: it was not created by `kpipe chaos`, or cannot be removed.
        """
        ...


class InHome:
    """The default database, in the copy's own home: nothing to create.

    Args:
        home: of the copy.
        kind: type of the destination.
    """

    def __init__(self, home: Home, kind: str) -> None:
        self._path = home.data / ("kpipe.duckdb" if kind == "duckdb" else kind)

    def describe(self) -> str:
        """See `Place`."""
        return str(self._path)

    def into(self) -> Mapping[str, Any]:
        """See `Place`."""
        return {"database": None}

    def create(self) -> None:
        """Do nothing."""

    def drop(self) -> None:
        """Do nothing: the home is removed as a whole."""


class FolderPlace:
    """A folder beside the real file or inside of the real folder, and so on the same file system.

    Args:
        parent: folder that contains the real file, or the real tables.
        name: name of the copy.
        file: name of a DuckDB file in it; empty: the folder contains tables of a lake.
    """

    def __init__(self, parent: Path, name: str, file: str = "") -> None:
        self._folder, self._name, self._file = parent / name, name, file

    def describe(self) -> str:
        """See `Place`."""
        return str(self._folder)

    def into(self) -> Mapping[str, Any]:
        """See `Place`."""
        return {"database": str(self._folder / self._file)}

    def create(self) -> None:
        """See `Place`."""
        try:
            self._folder.mkdir(mode=0o700)
            (self._folder / MARK).write_text(self._name)
        except OSError as error:
            raise DestinationError(f"{self._folder} cannot be created: {error.strerror}", "grant access to the folder") from error

    def drop(self) -> None:
        """See `Place`."""
        try:
            if not self._folder.is_dir() or self._folder.is_symlink():
                return
            if not self._is_marked():
                self._folder.rmdir()  # possible only if it is empty: the copy was killed before it wrote the mark
                return
            for entry in self._folder.iterdir():  # the mark last: an interrupted removal is continued
                if entry.name != MARK:
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            (self._folder / MARK).unlink()
            self._folder.rmdir()
        except OSError as error:
            raise DestinationError(f"{self._folder} cannot be removed: {error.strerror}", "remove it by hand") from error

    def _is_marked(self) -> bool:
        with suppress(OSError):
            return (self._folder / MARK).read_text() == self._name
        return False


class ObjectsPlace:
    """Objects with a prefix of their own below that of the real tables.

    Args:
        folder: the prefix of the copy (`BucketFolder`).
        name: name of the copy.
    """

    def __init__(self, folder: Any, name: str) -> None:
        self._folder, self._name = folder, name

    def describe(self) -> str:
        """See `Place`."""
        return str(self._folder.place)

    def into(self) -> Mapping[str, Any]:
        """See `Place`."""
        return {"database": self._folder.place}

    def create(self) -> None:
        """See `Place`."""
        if not self._folder.claim(MARK, self._name.encode()):
            raise DestinationError(f"{self._folder.place} exists already", "run kpipe chaos again: it chooses another name")

    def drop(self) -> None:
        """See `Place`."""
        if self._folder.read(MARK) == self._name.encode():
            remove_objects(self._folder.store, f"{self._folder.place}/")


class CataloguePlace:
    """A folder or a prefix, and the entry of the copy's table in the catalogue of the real table.

    Args:
        files: place of the files.
        opened: opens pyiceberg's catalogue.
        table: namespace and name of the copy's table.
    """

    def __init__(self, files: InHome | FolderPlace | ObjectsPlace, opened: Callable[[], Any], table: tuple[str, str]) -> None:
        self._files, self._opened, self._table = files, opened, table

    def describe(self) -> str:
        """See `Place`."""
        return f"{self._files.describe()}, and table {'.'.join(self._table)} of the catalogue"

    def into(self) -> Mapping[str, Any]:
        """See `Place`."""
        return self._files.into()

    def create(self) -> None:
        """See `Place`. The first commit creates the entry."""
        if self._call(lambda catalogue: catalogue.table_exists(self._table)):
            raise DestinationError(f"table {'.'.join(self._table)} exists already", "run kpipe chaos again")
        self._files.create()

    def drop(self) -> None:
        """See `Place`. An entry whose files are elsewhere is not removed."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        def remove(catalogue: Any) -> None:
            with suppress(NoSuchTableError, NoSuchNamespaceError):
                found = catalogue.load_table(self._table).location().removeprefix("file://")
                if not found.startswith(f"{self._files.describe()}/"):
                    raise DestinationError(f"table {'.'.join(self._table)}: not created by kpipe chaos: it is in {found}", "")
                catalogue.drop_table(self._table)

        self._call(remove)
        self._files.drop()

    def _call(self, action: Callable[[Any], Any]) -> Any:
        from resources.destinations.iceberg.catalogue import FAILURES

        catalogue = self._opened()
        try:
            return action(catalogue.opened)
        except FAILURES as error:
            raise catalogue.failed(error) from None


def place_of(pipeline: Pipeline, name: str, home: Home) -> Place:
    """Return the place of a copy. Connects to nothing yet.

    Args:
        pipeline: definition of the pipeline that is copied.
        name: name of the copy: letters, digits and `_`.
        home: home of the copy.

    Raises:
        InvalidPipeline, NotAvailable: the destination's address or credentials are invalid.
    """
    into = pipeline.into
    if into.type == "postgres":
        return PostgresPlace(pipeline, name)
    if into.type == "mysql":
        return MySQLPlace(pipeline, name)
    files = _files_of(pipeline, name, home)
    if into.catalog is None:
        return files
    return CataloguePlace(files, lambda: _Opened(pipeline, home), (into.namespace, name))


def _files_of(pipeline: Pipeline, name: str, home: Home) -> InHome | FolderPlace | ObjectsPlace:
    """Return the place of files: beside the real ones; in the copy's home if their folder is the default or does not exist."""
    into = pipeline.into
    if into.database is None:
        return InHome(home, into.type)
    if into.type == "duckdb":
        parent, file = Path(into.database).absolute().parent, "kpipe.duckdb"
    else:
        folder = open_folder(_files_only(pipeline), home)
        if is_remote(into.database):
            return ObjectsPlace(folder.below(name), name)
        parent, file = folder.path, ""
    return FolderPlace(parent, name, file) if parent.is_dir() else InHome(home, into.type)


def _files_only(pipeline: Pipeline) -> Pipeline:
    """Return the definition without the catalogue's credentials, which a folder rejects."""
    files = {key: text for key, text in pipeline.into.credentials.items() if not key.startswith("catalog.")}
    return pipeline.model_copy(update={"into": pipeline.into.model_copy(update={"credentials": files})})


class _Opened:
    """The catalogue of a pipeline's table, and its errors."""

    def __init__(self, pipeline: Pipeline, home: Home) -> None:
        folder, catalogue = open_catalogue(pipeline, home)
        self.failed, self._open = catalogue.failed, lambda: catalogue.opened(folder)

    @property
    def opened(self) -> Any:
        """pyiceberg's catalogue."""
        return self._open()


def remove_objects(store: Any, prefix: str) -> None:
    """Remove all objects of a prefix, the mark last: an interrupted removal is continued."""
    marks = []
    for entry in store.listed(prefix):
        if entry.uri == f"{prefix}{MARK}":
            marks.append(entry.uri)
        else:
            store.remove(entry.uri)
    for uri in marks:
        store.remove(uri)
