"""A block that takes too much processor time: the record that takes it is a reject, and all others are as without a limit."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Decoded, Payloads
from resources.decode.factory import decoder
from resources.decode.json.decoder import JsonDecoder
from resources.decode.resource_limits import Deadlined, Overrun, limited
from resources.duckdb_engine import in_memory
from tests.cases import each_case
from tests.processes import forked

pytestmark = pytest.mark.heavy

COLUMNS = Columns.of({"id": "BIGINT"})
LEAST_S = 0.4  # of CPU; many times what the good records take on a slow machine, as `decoded_before` imports what they need


def endless() -> None:
    """Python's steps."""
    while True:
        pass


def swallowed() -> None:
    """Whoever handles every error goes on, once."""
    try:
        endless()
    except Exception:
        endless()


def endless_query() -> None:
    """The engine's steps, of which Python sees none."""
    in_memory.ask("SELECT count(*) FROM range(100000000) a, range(100000) b WHERE a.range + b.range = ?", [7])


class Slow:
    """Decodes JSON, and does something endless where a payload asks for it."""

    takes_nulls = False

    def __init__(self, work: Callable[[], None]) -> None:
        self._json, self._work = JsonDecoder(COLUMNS), work

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        if any(b"endless" in value for value in payloads.values):
            self._work()
        return self._json.decode(payloads, keys)


@pytest.fixture(scope="module", autouse=True)
def decoded_before() -> None:
    JsonDecoder(COLUMNS).decode(Payloads.of([b'{"id": 0}', b"nothing", b'{"id": 2, "more": "x"}']))


BLOCK = [b'{"id": 0}', b"nothing", b'{"id": 2, "more": "x"}', b'{"id": 3, "endless": 1}', b'{"id": 4}', b'{"id": 5}', b"{}"]


@each_case("work", [endless, swallowed, endless_query])
def test_the_record_that_takes_too_long_is_a_reject_and_the_others_are_rows(work: Callable[[], None]) -> None:
    found = Deadlined(Slow(work), least_s=LEAST_S).decode(Payloads.of(BLOCK))
    alone = JsonDecoder(COLUMNS).decode(Payloads.of([*BLOCK[:3], *BLOCK[4:]]))
    assert found.table.to_pydict() == alone.table.to_pydict() == {"id": [0, 2, 4, 5, None]}
    assert found.kept == [0, 2, 4, 5, 6] and found.rows == 5
    assert [at for at, _ in found.rejects] == [1, 3]
    assert "CPU time" in dict(found.rejects)[3]
    assert dict(found.rejects)[1] == alone.rejects[0][1]
    assert found.new_columns == alone.new_columns == Columns.of({"more": "VARCHAR"})


def test_it_works_in_a_forked_worker_and_in_any_thread() -> None:
    """Spark forks its workers from a process that may have decoded before; the driver decodes a sample in a thread."""
    Deadlined(Slow(endless), least_s=LEAST_S).decode(Payloads.of(BLOCK))
    ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)

    def inside() -> None:
        found: list[Decoded] = []
        thread = threading.Thread(
            target=lambda: found.append(Deadlined(Slow(endless), least_s=LEAST_S).decode(Payloads.of(BLOCK)))
        )
        thread.start()
        thread.join()
        theirs.send(found[0].kept)

    process = forked(inside)
    try:
        assert ours.poll(600), "the worker does not end"
        assert ours.recv() == [0, 2, 4, 5, 6]
    finally:
        process.kill()
        process.join()


def test_what_waits_takes_no_processor_time() -> None:
    assert limited(0.2, lambda: threading.Event().wait(1.5)) is False


def test_a_limit_that_is_over_raises_nothing_later() -> None:
    for _ in range(3):
        with pytest.raises(Overrun):
            limited(0.1, endless)
        assert sum(range(3_000_000)) == 4_499_998_500_000  # steps enough for what would still be pending
    assert limited(60, lambda: sum(range(1_000))) == 499_500


PROFILED = """
import sys
from resources.decode.resource_limits import Overrun, limited

def endless():
    try:
        while True:
            pass
    except BaseException:  # decoding ends without the error: it is not raised a second time
        return

for _ in range(2):
    try:
        limited(0.1, endless)
    except Overrun:
        print("over")
sys.setprofile(lambda *_: None)
(lambda: None)()
sys.setprofile(None)
print("ended")
"""


def test_a_process_can_be_profiled_after_a_limit_that_is_over() -> None:
    done = subprocess.run([sys.executable, "-c", PROFILED], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.split() == ["over", "over", "ended"]


def test_errors_of_the_decoder_are_its_own() -> None:
    with pytest.raises(KeyError):
        limited(60, lambda: {}["x"])


def test_halves_of_a_block_keep_records_without_a_value() -> None:
    """A null payload is a row of `raw`, and not an empty one."""
    lines = pa.array([b"a\n", None, b"\n", b"b\n"], pa.large_binary())
    whole = Payloads.of_array(lines)
    reads = decoder(Format(type="raw"), Columns.of({"key": "BLOB", "value": "BLOB"}))
    keys = pa.array([b"1", b"2", b"3", None], pa.binary())
    parts = [reads.decode(whole.part(start, end), keys.slice(start, end - start)).table for start, end in ((0, 2), (2, 4))]
    assert pa.concat_tables(parts).to_pydict() == reads.decode(whole, keys).table.to_pydict()
    assert reads.decode(whole, keys).table.column("value").to_pylist() == [b"a", None, b"", b"b"]


def test_a_process_that_has_decoded_ends_without_a_report_of_leaks() -> None:
    """DuckDB's binding prints one if a connection still exists when the interpreter ends."""
    program = """
import time
import pyarrow as pa
from resources.decode.resource_limits import limited
from resources.duckdb_engine import in_memory

in_memory.json_valid(pa.array(["1"]))
limited(60, lambda: time.sleep(0.3))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
