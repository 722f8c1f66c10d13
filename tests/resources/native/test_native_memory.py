"""The compiled loops stay inside of their buffers, whatever the payloads hold: under the address and undefined sanitizers."""

from __future__ import annotations

import io
import json
import random
import subprocess
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest

from resources.decode.avro.native import written
from resources.decode.avro.schema_plan import plan
from resources.decode.native_columns import planned
from resources.decode.protobuf import message_plan, native
from resources.decode.protobuf.descriptors import Files
from tests.resources.decode.protobuf import protobufs
from tests.resources.native.sanitized import Sanitized

pytestmark = pytest.mark.heavy

#: The same ones in each run; new ones in `make chaos`.
SEEDS = pytest.mark.parametrize(
    "first", [2, pytest.param(random.SystemRandom().randrange(1 << 32), marks=pytest.mark.chaos, id="new")]
)


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    return Sanitized(tmp_path_factory.mktemp("sanitized"))


@pytest.fixture
def fuzzer(sanitized: Sanitized) -> Path:
    return sanitized.built("fuzz")


@pytest.fixture(params=[4, pytest.param(1, marks=pytest.mark.chaos)], ids=["a quarter", "all"])
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Run a fuzzer for so many rounds: all of them in `make chaos` and `make sanitizers`, else their first quarter."""

    def fuzz(fuzzer: Path, rounds: int, seed: int, *more: Path) -> None:
        done = subprocess.run([fuzzer, str(rounds // request.param), str(seed), *more], capture_output=True, text=True)
        assert done.returncode == 0, f"seed {seed}: {done.stdout}{done.stderr}"

    return fuzz


def test_nothing_is_touched_outside_of_the_buffers(fuzzer: Path, run: Callable[..., None]) -> None:
    for seed in (1, 2):
        run(fuzzer, 30_000, seed)


def test_the_search_for_members_touches_nothing_outside_of_the_buffers(sanitized: Sanitized, run: Callable[..., None]) -> None:
    fuzzer = sanitized.built("fuzz_members")
    run(fuzzer, 100_000, 1)
    run(fuzzer, 100_000, random.SystemRandom().randrange(1 << 60))


def test_copies_for_postgres_touch_nothing_outside_of_the_buffers(sanitized: Sanitized, run: Callable[..., None]) -> None:
    for seed in (1, random.SystemRandom().randrange(1 << 60)):
        run(sanitized.built("fuzz_pgcopy"), 4_000, seed)


# Every step that there is, also in parts that are only skipped.
_NEXT = {"name": "next", "type": ["null", "I"]}
_INNER = {"type": "record", "name": "I", "fields": [{"name": "s", "type": "string"}, _NEXT]}
_TYPES: list[tuple[Any, Any]] = [
    ("boolean", True), ("int", -7), ("long", 2**62), ("float", 0.5), ("double", 1e300), ("bytes", b"\0\xff"),
    ("string", "ä€x" * 9),
    ({"type": "fixed", "name": "F", "size": 4}, b"abcd"), ({"type": "enum", "name": "E", "symbols": ["A", "BB"]}, "BB"),
    (["null", "string"], "x"), (["int", "null"], None), ("null", None),
    ({"type": "array", "items": _INNER}, [{"s": "q", "next": None}]),
    ({"type": "array", "items": {"type": "array", "items": ["null", "long"]}}, [[1, None], []]),
    ({"type": "map", "values": ["null", "int", "string"]}, {"a": None, "b": 5, "c": "x"}),
    ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}, Decimal("-123456.78")),
    ({"type": "fixed", "name": "D", "size": 20, "logicalType": "decimal", "precision": 30, "scale": 0}, Decimal(5)),
    ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, b"0123456789abcdef"),
    ({"type": "int", "logicalType": "time-millis"}, 5), ({"type": "long", "logicalType": "timestamp-millis"}, 1_700_000_000_000),
]  # fmt: skip


@SEEDS
def test_avro_touches_nothing_outside_of_the_buffers(
    sanitized: Sanitized, tmp_path: Path, first: int, run: Callable[..., None]
) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": f"f{at}", "type": kind} for at, (kind, _) in enumerate(_TYPES)]}
    chosen = plan(json.dumps(schema))
    payload = io.BytesIO()
    fastavro.schemaless_writer(payload, fastavro.parse_schema(schema), {f"f{at}": value for at, (_, value) in enumerate(_TYPES)})
    (steps, symbols), (columns, ranges, names) = written(chosen), planned(chosen.carried)
    bounds = np.array([0, len(payload.getvalue())], np.int64)
    parts = [steps.tobytes(), symbols, columns.tobytes(), ranges.tobytes(), names, payload.getvalue(), bounds.tobytes()]
    sizes = np.array([*map(len, parts), len(chosen.nodes), -1], np.int64)
    file = tmp_path / "plan"
    file.write_bytes(sizes.tobytes() + b"".join(parts))
    fuzzer = sanitized.built("fuzz_typed")
    for seed in (1, first):
        run(fuzzer, 8_000, seed, file)


@SEEDS
def test_protobuf_touches_nothing_outside_of_the_buffers(
    sanitized: Sanitized, tmp_path: Path, first: int, run: Callable[..., None]
) -> None:
    fuzzer = sanitized.built("fuzz_typed")
    for seed in range(first, first + 4):  # schemas at random, and messages of them
        dice = random.Random(seed)
        text, kind = protobufs.loaded(protobufs.schema(dice))
        chosen = message_plan.plan(Files(text).named("t.M"))
        payloads = [protobufs.filled(dice, kind()).SerializeToString() for _ in range(5)]
        (steps, texts), (columns, ranges, names) = native.written(chosen), planned(chosen.carried)
        bounds = np.cumsum([0, *map(len, payloads)]).astype(np.int64)
        parts = [steps.tobytes(), texts, columns.tobytes(), ranges.tobytes(), names, b"".join(payloads), bounds.tobytes()]
        sizes = np.array([*map(len, parts), len(chosen.messages), len(chosen.enums)], np.int64)
        file = tmp_path / f"plan{seed}"
        file.write_bytes(sizes.tobytes() + b"".join(parts))
        run(fuzzer, 4_000, seed, file)


@pytest.mark.chaos
@pytest.mark.parametrize("run", [1], indirect=True)
def test_nothing_is_touched_outside_of_the_buffers_for_long(fuzzer: Path, run: Callable[..., None]) -> None:
    for _ in range(20):
        run(fuzzer, 300_000, random.SystemRandom().randrange(1 << 60))
