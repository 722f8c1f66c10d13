"""A program for SingleStore's framing is recognized when it is given lines, and no other program is."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kpipe.batch.batch import Piece
from kpipe.definition.formats import Format
from kpipe.errors import TransformFailed
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.kafka.record_block import RecordBlock
from resources.spark.task import range_task
from resources.spark.task.task_spec import JobSpec, ProgramSpec, TableSpec
from transforms import resolve

#: As the manual's example reads its records, for Python 3.
LENGTHS = """#!/usr/bin/env python3
import struct, sys
while True:
    head = sys.stdin.buffer.read(8)
    if len(head) < 8:
        assert not head
        break
    value = sys.stdin.buffer.read(struct.unpack("L", head)[0])
    sys.stdout.buffer.write(value + b"\\n")
"""
#: One that never fails: what it reads is a length or it is not.
TOLERANT = """#!/usr/bin/env python3
import sys
data = sys.stdin.buffer.read()
while data:
    size = int.from_bytes(data[:8], sys.byteorder)
    sys.stdout.buffer.write(data[8 : 8 + size].strip() + b"\\n")
    data = data[8 + size :]
# read(8)
"""
#: The same in C: one that stops when a length cannot be one, one that fails then, and one that reads whatever there is.
COMPILED = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    uint64_t size;
    while (fread(&size, 8, 1, stdin) == 1) {
        if (size > 1 << 20) %s;
        char *value = malloc(size);
        if (fread(value, 1, size, stdin) != size) return 1;
        fwrite(value, 1, size, stdout);
        putchar('\\n');
        free(value);
    }
    return 0;
}
"""
#: Programs in C that read lines: one writes them, one none of them, one fails; each takes a line for a text of C.
OF_LINES = """
#include <stdio.h>
#include <string.h>
int main(void) {
    static char line[1 << 16];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\\n")] = 0;
        %s;
    }
    return 0;
}
"""
VALUES = [b'{"id": 1}', b'{"id": 2}', b'{"id": 3}']
SOURCE = PartitionId(TopicId("c", "i", "t"), 0)
PIECE = Piece(SOURCE, Range(0, 3))


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., JobSpec]:
    """`job(text, stdin, values)`: a batch of these records, through a program of that text."""

    def made(text: str, stdin: str = "lines", values: list[bytes] = VALUES) -> JobSpec:
        path = tmp_path / "program.py"
        if text.startswith("#!"):
            path.write_text(text)
            path.chmod(0o755)
        else:
            compiler = shutil.which("gcc") or shutil.which("cc") or pytest.skip("no C compiler here")
            subprocess.run([compiler, "-x", "c", "-w", "-o", path, "-"], input=text.encode(), check=True)
        found = resolve(path)
        (tmp_path / "programs").mkdir(exist_ok=True)
        (tmp_path / "batch").mkdir(exist_ok=True)
        return JobSpec(
            batch="batch", config={}, staging=str(tmp_path), format=Format(type="json"),
            tables=(TableSpec(Columns.of({"id": "BIGINT"})),),
            programs=str(tmp_path / "programs"), held={SOURCE: RecordBlock.of(range(len(values)), [0] * len(values), values)},
            program=ProgramSpec(str(found.file), None, found.sha256, stdin=stdin, mode="flatmap", idle_timeout_s=300),
        )  # fmt: skip

    return made


@pytest.mark.parametrize("text", [LENGTHS, TOLERANT, COMPILED % "return 0", COMPILED % "return 1", COMPILED % "abort()"])
def test_it_is_told_how_it_is_declared(job: Callable[..., JobSpec], text: str) -> None:
    with pytest.raises(TransformFailed) as raised:
        range_task.sample(job(text), PIECE, 10)
    assert raised.value.what == (
        "t/0: the program reads the length of each record, 8 bytes, as SingleStore gives them:"
        " expected length-prefixed records, found lines"
    )
    assert "WITH TRANSFORM (...) STDIN LENGTH_PREFIXED, or transform.stdin: length-prefixed" in raised.value.hint


def test_so_it_is_after_a_failure_when_no_columns_are_looked_for(job: Callable[..., JobSpec]) -> None:
    with pytest.raises(TransformFailed, match="expected length-prefixed records, found lines"):
        range_task.stage(job(LENGTHS), PIECE)


def test_declared_it_gives_its_rows(job: Callable[..., JobSpec]) -> None:
    assert range_task.sample(job(LENGTHS, "length-prefixed"), PIECE, 10) == (VALUES, {})
    assert range_task.stage(job(LENGTHS, "length-prefixed"), PIECE).counts.rows == 3


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\n# read(8)\nexec cat\n",
        "#!/usr/bin/env python3\nimport sys\nwhile block := sys.stdin.buffer.read(8):\n    sys.stdout.buffer.write(block)\n",
        "#!/bin/sh\nexec sed 's/read(8)//'\n",
    ],
)
def test_a_program_that_reads_lines_goes_on_doing_so(job: Callable[..., JobSpec], text: str) -> None:
    assert range_task.sample(job(text), PIECE, 10) == (VALUES, {})


def test_a_program_that_fails_for_a_reason_of_its_own_says_that(job: Callable[..., JobSpec]) -> None:
    text = "#!/bin/sh\n# read(8)\necho broken >&2\nexit 3\n"
    with pytest.raises(TransformFailed) as raised:
        range_task.sample(job(text), PIECE, 10)
    assert "broken" in raised.value.what and "lines" not in raised.value.what


LONG = [b'{"id": %d, "text": "%s"}' % (at, b"x" * (20 + at)) for at in range(3)]


@pytest.mark.parametrize("values", [VALUES, LONG])
def test_a_compiled_program_that_reads_lines_goes_on_doing_so(job: Callable[..., JobSpec], values: list[bytes]) -> None:
    assert range_task.sample(job(OF_LINES % "puts(line)", values=values), PIECE, 10) == (values, {})
    filtering = OF_LINES % "if (line[0] != '{') puts(line)"
    assert range_task.sample(job(filtering, values=values), PIECE, 10) == ([], {})


def test_a_compiled_program_that_fails_for_a_reason_of_its_own_says_that(job: Callable[..., JobSpec]) -> None:
    with pytest.raises(TransformFailed) as raised:
        range_task.sample(job(OF_LINES % 'fprintf(stderr, "broken"); return 3'), PIECE, 10)
    assert "broken" in raised.value.what and "lines" not in raised.value.what


def test_a_compiled_program_for_lengths_is_declared_and_gives_its_rows(job: Callable[..., JobSpec]) -> None:
    assert range_task.sample(job(COMPILED % "return 1", "length-prefixed"), PIECE, 10) == (VALUES, {})
