"""Files of other versions of DuckDB: older ones are opened, and stay what they are; newer ones are refused in one sentence."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import duckdb
import pytest

from kpipe.errors import DestinationError
from resources.testing.place import batch
from tests.upgrade.contents import Contents
from tests.upgrade.stores import FORMATS, STORES, WRITTEN

_INSTALLED = tuple(map(int, duckdb.__version__.split(".")[:2]))
_AT = 12  # offset of the storage version in a file, 64 bits; before it a checksum and "DUCK"


def storage_version(path: Path) -> int:
    with path.open("rb") as file:
        return int(struct.unpack_from("<Q", file.read(64), _AT)[0])


def checksum(data: bytearray) -> int:
    """Return the checksum of a file's first header, which is in front of it (DuckDB's src/common/checksum.cpp)."""
    found = 5381
    for word in struct.unpack_from("<511Q", data, 8):
        found ^= word * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    return found


@pytest.mark.parametrize("written", FORMATS)
@pytest.mark.parametrize(("name", "storage"), [("duckdb-1.5", 64), ("duckdb-2.0", 999)])
def test_a_file_is_opened_or_refused(name: str, storage: int, written: int, tmp_path: Path) -> None:
    store = STORES[name](tmp_path)
    store.restore(WRITTEN / f"format-{written}" / name)
    before, contents = store.fingerprint(), Contents(store.place, tmp_path)
    assert storage_version(store.place.path) == storage
    if tuple(map(int, name.removeprefix("duckdb-").split("."))) > _INSTALLED:
        refused(contents)
        assert store.fingerprint() == before
        return
    destination = contents.open()
    seq = destination.commit(batch(store.place, destination.ledger()[1], {0: 11})).seq
    assert contents.open().ledger()[1].seq == seq == 4
    assert store.fingerprint() != before
    assert storage_version(store.place.path) == storage  # what could open it before still can


def test_a_file_of_a_later_duckdb_is_refused_as_it_is(tmp_path: Path) -> None:
    store = STORES["duckdb-1.5"](tmp_path)
    store.restore(WRITTEN / f"format-{FORMATS[-1]}" / "duckdb-1.5")
    data = bytearray(store.place.path.read_bytes())
    assert struct.unpack_from("<Q", data)[0] == checksum(data)
    struct.pack_into("<Q", data, _AT, 1_000_000)
    struct.pack_into("<Q", data, 0, checksum(data))
    store.place.path.write_bytes(data)
    before = store.fingerprint()
    refused(Contents(store.place, tmp_path))
    assert store.fingerprint() == before


def refused(contents: Contents) -> None:
    path = contents.place.path  # type: ignore[attr-defined]
    for call in (contents.open().ledger, contents.open().history, lambda: contents.open().view("batches")):
        with pytest.raises(DestinationError) as found:
            call()
        assert re.fullmatch(
            rf"{re.escape(str(path))}: written by a newer DuckDB: expected storage version \d+ or older, found \d+"
            " -> upgrade it: pip install --upgrade duckdb",
            str(found.value),
        )
