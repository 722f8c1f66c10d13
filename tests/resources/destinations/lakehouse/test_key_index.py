"""The index of keys follows any history of snapshots: commits of kpipe, of others, and rollbacks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from kpipe.schema.columns import Columns
from resources.destinations.lakehouse.keyed.key_index import KeyIndex
from resources.destinations.lakehouse.live_files import Changes, Live, LiveFile, Version

COLUMNS = Columns.of({"k": "BIGINT"})
Places = Mapping[str, frozenset[int]]  # positions by file


@dataclass(frozen=True)
class Snapshot:
    """A version of a table in memory: sequence number and keys of each file, sequence number and places of each delete."""

    id: str
    parent: str = ""
    files: Mapping[str, tuple[int, Sequence[int]]] = field(default_factory=dict)
    deletes: Mapping[str, tuple[int, Places]] = field(default_factory=dict)
    columns: Columns = COLUMNS

    def rows(self) -> dict[tuple[str, int], int]:
        found = {(path, at): key for path, (_, keys) in self.files.items() for at, key in enumerate(keys)}
        for seq, places in self.deletes.values():
            for path, positions in places.items():
                for at in positions if path in self.files and self.files[path][0] <= seq else ():
                    found.pop((path, at), None)
        return found


class Lake:
    """The parts of `Deleting` that an index reads. Delta's vectors belong to one file each and are replaced."""

    def __init__(self, vectors: bool) -> None:
        self.vectors, self.number = vectors, 0

    def version(self, state: Snapshot) -> Version:
        return Version("t", state.id, state.parent)

    def live(self, state: Snapshot) -> Live:
        files = [LiveFile(path, len(keys), seq) for path, (seq, keys) in state.files.items()]
        return Live(files, {path: seq for path, (seq, _) in state.deletes.items()})

    def blocks(self, state: Snapshot, file: LiveFile, names: Sequence[str]) -> Iterator[pa.Table]:
        yield pa.table({"k": pa.array(state.files[file.path][1], pa.int64())})

    def positions(self, state: Snapshot, path: str) -> Iterator[pa.Table]:
        pairs = [(name, at) for name, places in state.deletes[path][1].items() for at in sorted(places)]
        yield pa.table({"path": [name for name, _ in pairs], "position": pa.array([at for _, at in pairs], pa.int64())})

    def next(self) -> tuple[str, int]:
        self.number += 1
        return f"n{self.number}", 0 if self.vectors else self.number

    def commit(self, state: Snapshot, keys: Sequence[int], gone: set[tuple[str, int]]) -> tuple[Snapshot, Changes]:
        """Add a file, and delete rows."""
        name, seq = self.next()
        files, deletes = {**state.files, name: (seq, keys)}, dict(state.deletes)
        places = {path: frozenset(at for other, at in gone if other == path) for path, _ in sorted(gone)}
        new, ended, whole = list[str](), list[str](), list[str]()
        if self.vectors:
            for path, positions in places.items():
                old = [key for key in deletes if key.partition("\n")[0] == path]
                ended += old
                all_of = positions.union(*(deletes.pop(key)[1][path] for key in old))
                if len(all_of) == len(files[path][1]):
                    whole.append(path)
                    del files[path]
                else:
                    new.append(f"{path}\n{name}")
                    deletes[new[-1]] = 0, {path: all_of}
        elif places:
            new.append(f"d{name}")
            deletes[new[-1]] = seq, places
        return Snapshot(name, state.id, files, deletes), Changes([LiveFile(name, len(keys), seq)], new, ended, whole)

    def compacted(self, state: Snapshot, paths: Sequence[str], keeps: bool) -> Snapshot:
        """Rewrite files, as another program does."""
        name, seq = self.next()
        keys = [key for (path, _), key in state.rows().items() if path in paths]
        files = {path: item for path, item in state.files.items() if path not in paths}
        deletes = {
            key: item for key, item in state.deletes.items()
            if (key.partition("\n")[0] not in paths if self.vectors else keeps or not files.keys().isdisjoint(item[1]))
        }  # fmt: skip
        return Snapshot(name, state.id, {**files, name: (seq, keys)}, deletes)


class Followed:
    """An index in memory, which is compared with each snapshot."""

    def __init__(self, vectors: bool) -> None:
        self.lake: Any = Lake(vectors)
        self.connection = duckdb.connect()
        self.connection.execute("ATTACH ':memory:' AS idx; CREATE TEMP TABLE gone (f INTEGER, pos BIGINT)")
        self.index = KeyIndex(self.connection, COLUMNS)

    def begin(self, state: Snapshot) -> None:
        self.index.begin(self.lake, state, COLUMNS)
        self.check(state)

    def commit(self, state: Snapshot, keys: Sequence[int], gone: set[tuple[str, int]]) -> Snapshot:
        """A commit of kpipe."""
        self.begin(state)
        after, changes = self.lake.commit(state, keys, gone)
        numbers = dict(self.connection.execute("SELECT path, id FROM idx.files").fetchall())
        self.connection.execute("DELETE FROM gone")
        for path, at in gone:
            self.connection.execute("INSERT INTO gone VALUES ($1, $2)", [numbers[path], at])
        self.index.advance(self.lake, after, state.id, changes, "temp.gone")
        self.check(after)
        return after  # type: ignore[no-any-return]

    def check(self, state: Snapshot) -> None:
        rows = self.connection.execute("SELECT f.path, r.pos, r.k0 FROM idx.rows AS r JOIN idx.files AS f ON f.id = r.f")
        assert {(path, at): key for path, at, key in rows.fetchall()} == state.rows(), state


def test_a_file_that_is_back_has_its_rows_and_its_deletes() -> None:
    """The deletes stay in the table when others compact it, and the table is rolled back."""
    followed = Followed(vectors=False)
    first = followed.commit(Snapshot("n0"), [1, 2, 3], set())
    second = followed.commit(first, [1], {("n1", 0)})
    compacted = followed.lake.compacted(second, ["n1", "n2"], True)
    assert compacted.deletes == second.deletes
    for state in (compacted, second, first, compacted):
        followed.begin(state)


def test_a_file_whose_rows_were_all_deleted_is_back() -> None:
    followed = Followed(vectors=True)
    first = followed.commit(Snapshot("n0"), [1, 2], set())
    second = followed.commit(first, [1, 2], {("n1", 0), ("n1", 1)})
    assert list(second.files) == ["n2"]
    for state in (first, second, first):
        followed.begin(state)


@pytest.mark.chaos
@pytest.mark.parametrize("vectors", [False, True], ids=["position deletes", "vectors"])
def test_any_history_of_snapshots(vectors: bool) -> None:
    for seed in range(12):
        chance, followed, state = random.Random(seed), Followed(vectors), Snapshot("n0")
        history = [state]
        for _ in range(40):
            what = chance.random()
            if what < 0.2:
                state = chance.choice(history)  # rolled back
            elif what < 0.4 and state.files:
                chosen = chance.sample(sorted(state.files), chance.randint(1, len(state.files)))
                state = followed.lake.compacted(state, chosen, chance.random() < 0.5)
            else:
                rows, keys = sorted(state.rows()), [chance.randint(0, 99) for _ in range(chance.randint(0, 3))]
                gone = set(chance.sample(rows, min(len(rows), chance.randint(0, 4))))
                if what < 0.8:
                    state = followed.commit(state, keys, gone)
                else:  # of another home
                    state = followed.lake.commit(state, keys, gone)[0]
            history.append(state)
            if chance.random() < 0.3:
                followed.begin(state)
