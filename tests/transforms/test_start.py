"""What a program starts with: limits, signals, descriptors, environment, folder; and why it cannot start (fault C11)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kpipe.errors import TransformFailed
from transforms import Limits, Program, run

Script = Callable[..., str]


def shell(text: str, **options: object) -> Program:
    return Program(("sh", "-c", text), **options)  # type: ignore[arg-type]


def failure(program: Program) -> TransformFailed:
    with pytest.raises(TransformFailed) as caught:
        list(run(program, []))
    return caught.value


@pytest.mark.parametrize(
    ("limits", "text", "said"),
    [
        (Limits(cpu_s=1), "while :; do :; done", "SIGXCPU"),
        (Limits(file_bytes=4096), "exec head -c 100000 /dev/zero > file", "SIGXFSZ"),
        (Limits(open_files=3), "true", "Too many open files"),
        (Limits(address_space_bytes=300 << 20), "exec awk 'BEGIN { s = \"x\"; while (1) s = s s }'", "transform sh"),
    ],
)
def test_limits_hold(limits: Limits, text: str, said: str) -> None:
    assert said in failure(shell(text, limits=limits, idle_timeout_s=300)).what


def test_no_core_file_and_no_new_privileges() -> None:
    out = b"".join(run(shell("ulimit -c; grep NoNewPrivs /proc/self/status; ulimit -n"), []))
    assert re.match(rb"0\nNoNewPrivs:\t1\n\d+\n$", out)


def test_signals_are_as_a_program_expects_them() -> None:
    out = b"".join(run(Program(("grep", "-E", "Sig(Blk|Ign)", "/proc/self/status")), []))
    masks = {name: int(mask, 16) for name, mask in re.findall(rb"Sig(\w+):\t(\w+)", out)}
    # 32 and 33 are the C library's own: whoever started us may have them ignored, and no program can change or use them.
    reserved = 1 << 31 | 1 << 32
    assert {name: mask & ~reserved for name, mask in masks.items()} == {b"Blk": 0, b"Ign": 0}


def test_only_the_three_pipes_are_open(script: Script) -> None:
    leaked, other = os.pipe()
    os.set_inheritable(leaked, True)
    try:
        out = b"".join(run(Program((script("#!/bin/sh\nexec ls /proc/self/fd\n"),)), []))
    finally:
        os.close(leaked)
        os.close(other)
    assert out.split() == [b"0", b"1", b"2", b"3"]  # 3 is the folder that ls reads


def test_the_environment_is_exactly_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "secret")
    out = b"".join(run(Program(("env",), env={"KPIPE_TOPIC": "t", "LANG": "C"}), [])).decode()
    variables = dict(line.split("=", 1) for line in out.splitlines())
    assert set(variables) == {"PATH", "HOME", "LANG", "TMPDIR", "KPIPE_TOPIC"}
    assert variables["LANG"] == "C"
    assert variables["HOME"] == variables["TMPDIR"]


def test_the_working_directory_is_private_and_goes_away() -> None:
    out = b"".join(run(shell("touch file; stat -c %a .; pwd"), []))
    mode, path = out.decode().split()
    assert mode == "700"
    assert not os.path.exists(path)


def test_python3_of_a_shebang_is_the_interpreter_that_runs_kpipe(script: Script) -> None:
    out = b"".join(run(Program((script("#!/usr/bin/env python3\nimport sys; print(sys.prefix)\n"),)), []))
    assert out.decode().strip() == sys.prefix


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("#!/no/such/interpreter\n", 0o755, "interpreter"),
        ("#!/bin/sh\necho\n", 0o644, "executable"),
        ("echo hello\n", 0o755, "#!"),
    ],
)
def test_why_a_program_cannot_be_started(script: Script, text: str, mode: int, reason: str) -> None:
    error = failure(Program((script(text, mode=mode),)))
    assert "transform program" in error.what
    assert "could not be started" in error.what
    assert reason in error.what


def test_a_missing_program_and_a_missing_directory(tmp_path: Path) -> None:
    assert "no such program in PATH" in failure(Program(("no-such-program",))).what
    assert "no such program" in failure(Program((str(tmp_path / "none"),))).what
    assert "could not be started" in failure(Program(("cat",), cwd=tmp_path / "none")).what


def test_a_program_is_a_path_from_the_root_or_a_bare_name() -> None:
    with pytest.raises(ValueError, match="relative"):
        Program(("bin/program",))
    with pytest.raises(ValueError, match="NUL"):
        Program(("cat", "a\0b"))
