"""One run: streaming, and every way of breaking the contract (faults C1 to C5)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from kpipe.errors import TransformFailed
from tests.patience import longer
from transforms import Program, TransformRun, line_blocks, run

ROOT = Path(__file__).resolve().parents[2]


def shell(text: str, **options: object) -> Program:
    return Program(("sh", "-c", text), **options)  # type: ignore[arg-type]


def failure(program: Program, blocks: list[bytes] | None = None, where: str = "tweets/3 [120,240)") -> TransformFailed:
    with pytest.raises(TransformFailed) as caught:
        list(TransformRun(program, blocks or [], where=where))
    return caught.value


def test_what_goes_into_cat_comes_out_and_is_counted(settled: None) -> None:
    with TransformRun(Program(("cat",)), [b"a\n", b"", b"b\nc\n"]) as transform:
        assert b"".join(transform) == b"a\nb\nc\n"
    report = transform.report
    assert (report.exit_status, report.bytes_in, report.bytes_consumed, report.bytes_out) == (0, 6, 6, 6)
    assert not report.leftovers


def test_no_input_is_a_run_too() -> None:
    assert list(run(Program(("cat",)), [])) == []


def test_200_megabytes_stream_in_bounded_memory() -> None:
    block = (b"x" * 99 + b"\n") * 10_000  # 1 MB, made before memory is watched
    tracemalloc.start()
    try:
        total = sum(len(chunk) for chunk in run(Program(("cat",)), (block for _ in range(200))))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == 200 * len(block)
    assert peak < 6 << 20


def test_a_program_that_writes_ten_times_its_input_before_reading_does_not_deadlock() -> None:
    data = b"y" * 99 + b"\n"
    blocks = [data * 10_000] * 4
    out = sum(map(len, run(shell("head -c 40000000 /dev/zero | tr '\\0' '\\n'; cat"), blocks)))
    assert out == 40_000_000 + 4_000_000


def test_a_slow_reader_of_output_does_not_break_the_run() -> None:
    def read(limit_s: float) -> bytes:
        got = b""
        for chunk in run(Program(("cat",), idle_timeout_s=limit_s), (b"z" * 65535 + b"\n" for _ in range(40))):
            if not got:
                time.sleep(limit_s + 1)  # the caller's time does not count
            got += chunk
        return got

    assert len(longer(read, 3, 60)) == 40 * 65536


def test_waiting_for_input_does_not_count_as_idle() -> None:
    def slow(seconds: float) -> Iterator[bytes]:
        yield b"1\n"
        time.sleep(seconds)
        yield b"2\n"

    def read(limit_s: float) -> list[bytes]:
        return list(run(Program(("cat",), idle_timeout_s=limit_s, total_timeout_s=limit_s + 0.5), slow(limit_s + 1)))

    assert b"".join(longer(read, 3, 60)) == b"1\n2\n"


def test_a_block_is_pulled_only_when_the_one_before_is_sent() -> None:
    pulled = 0

    def blocks() -> Iterator[bytes]:
        nonlocal pulled
        for _ in range(100):
            pulled += 1
            yield b"x" * ((1 << 20) - 1) + b"\n"

    failure_of_a_program_that_never_reads = shell("sleep 60", idle_timeout_s=0.3)
    with pytest.raises(TransformFailed):
        list(run(failure_of_a_program_that_never_reads, blocks()))
    assert pulled <= 2  # one in the pipe, one waiting


def test_output_comes_promptly_while_input_is_still_open() -> None:
    order = []

    def blocks() -> Iterator[bytes]:
        for number in range(3000):
            if any(word.startswith("out") for word in order):
                return
            order.append(f"in {number}")
            yield f"{number}\n".encode()
            time.sleep(0.1)  # the program starts meanwhile

    for chunk in run(Program(("cat",)), blocks()):
        order.append(f"out {chunk.decode().strip()}")
    assert sum(word.startswith("in") for word in order) < 3000, "the first of them came out before the last one went in"
    assert any(word.startswith("out 0") for word in order)


def test_output_may_be_larger_than_the_input() -> None:
    assert sum(map(len, run(Program(("sed", "p;p;p;p")), [b"abc\n" * 100_000]))) == 5 * 400_000


@pytest.mark.parametrize("size", [1, 60_000, 300_000, 5_000_000])
def test_exit_0_without_reading_is_an_error(size: int) -> None:
    error = failure(Program(("true",)), [b"r" * size + b"\n"])
    assert "before the end of its input" in error.what
    assert "tweets/3 [120,240)" in error.what
    assert "transform true" in error.what


def test_exit_0_while_input_was_still_being_sent_is_an_error() -> None:
    def blocks() -> Iterator[bytes]:
        yield b"1\n"
        time.sleep(0.3)
        yield b"2\n"

    error = failure(shell("read line; echo $line"), blocks())  # type: ignore[arg-type]
    assert "before the end of its input" in error.what


def test_head_leaves_input_behind() -> None:
    error = failure(Program(("head", "-n2")), [b"line\n" * 100_000])
    assert "unread" in error.what


def test_a_program_that_ends_exactly_with_its_input_is_fine() -> None:
    assert b"".join(run(shell("read a; read b; echo $a$b"), [b"1\n2\n"])) == b"12\n"


def test_an_exit_status_is_named_with_the_last_words() -> None:
    error = failure(shell("cat >/dev/null; echo one >&2; echo two >&2; exit 3"), [b"1\n"])
    assert "exited with status 3" in error.what
    assert error.what.endswith("stderr: one | two")


def test_killed_after_its_output() -> None:
    transform = TransformRun(shell("cat; kill -9 $$"), [b"1\n2\n"])
    with pytest.raises(TransformFailed, match="killed by SIGKILL"):
        list(transform)
    assert transform.report.exit_status == -9
    assert transform.report.bytes_consumed == 4


def test_a_crash_is_named() -> None:
    assert "killed by SIGSEGV" in failure(shell("kill -SEGV $$")).what


@pytest.mark.parametrize("text", ['{"a":1}\\n{"b":2', '{"a":1}'])
def test_a_torn_last_line_is_an_error_though_the_status_is_0(text: str) -> None:
    assert "torn" in failure(Program(("printf", text))).what


def test_bytes_need_no_newline_when_the_format_is_not_lines() -> None:
    program = Program(("printf", "ab"), line_output=False)
    transform = TransformRun(program, [])
    assert b"".join(transform) == b"ab"


def test_a_hang_is_noticed() -> None:
    error = failure(Program(("sleep", "3600"), idle_timeout_s=0.3))
    assert "no progress for 0.3 s" in error.what
    assert "idle_timeout_s" in error.hint


def test_a_program_that_only_talks_on_stderr_makes_no_progress() -> None:
    assert "no progress" in failure(shell("while :; do echo busy >&2; sleep 0.05; done", idle_timeout_s=0.3)).what


def test_slow_but_alive_is_fine_until_the_total_deadline() -> None:
    text = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done"
    assert b"".join(run(shell(text, idle_timeout_s=60), [])) == b"1\n2\n3\n4\n5\n6\n"
    assert "not done after 0.3 s" in failure(shell(text, idle_timeout_s=60, total_timeout_s=0.3)).what


def test_an_output_bomb_is_stopped() -> None:
    transform = TransformRun(Program(("yes",), max_output_bytes=1_000_000), [])
    with pytest.raises(TransformFailed, match="more than 1,000,000 bytes"):
        list(transform)
    assert transform.report.bytes_out < 3_000_000


def test_two_runs_do_not_mix() -> None:
    with TransformRun(Program(("cat",)), [b"1\n"]) as one, TransformRun(Program(("cat",)), [b"2\n"]) as two:
        assert [b"".join(two), b"".join(one)] == [b"2\n", b"1\n"]


def test_a_run_is_for_once() -> None:
    transform = TransformRun(Program(("cat",)), [])
    assert list(transform) == []
    with pytest.raises(RuntimeError):
        list(transform)


def test_an_error_of_the_caller_passes_through() -> None:
    def blocks() -> Iterator[bytes]:
        yield b"1\n"
        raise KeyError("kafka")

    with pytest.raises(KeyError, match="kafka"):
        list(run(Program(("cat",)), blocks()))


def test_blocks_of_lines_from_a_program() -> None:
    data = b"".join(b"%d\n" % number for number in range(200_000))
    blocks = list(line_blocks(run(Program(("cat",)), [data]), block_bytes=100_000))
    assert b"".join(blocks) == data
    assert all(block.endswith(b"\n") for block in blocks)
    assert len(blocks) > 1


STOPPED = """
import os, sys
from transforms import Program, run
text = "echo 1; while [ ! -e $0 ]; do sleep 0.1; done; echo 2; touch $0.written; exec sleep 3600"
for chunk in run(Program(("sh", "-c", text, sys.argv[1]), idle_timeout_s=float(sys.argv[2])), []):
    print(chunk.decode().strip(), flush=True)
"""


def test_time_in_which_the_worker_itself_stood_still_is_not_the_programs(tmp_path: Path) -> None:
    """A worker that is stopped, or starved on a busy machine, finds in the pipe what the program has written meanwhile."""

    def stopped(limit_s: float) -> None:
        go, written = tmp_path / f"go-{limit_s}", tmp_path / f"go-{limit_s}.written"
        command = [sys.executable, "-c", STOPPED, str(go), str(limit_s)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
            try:
                assert worker.stdout is not None and worker.stderr is not None
                assert worker.stdout.readline() == "1\n"
                worker.send_signal(signal.SIGSTOP)
                go.touch()
                while not written.exists():
                    time.sleep(0.01)
                time.sleep(limit_s + 0.5)  # more than the program may be without progress
                worker.send_signal(signal.SIGCONT)
                assert worker.stdout.readline() == "2\n"
                assert f"no progress for {limit_s:g} s" in worker.stderr.read()
            finally:
                worker.kill()  # the end of the block waits for it

    longer(stopped, 2, 60)
