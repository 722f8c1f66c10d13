"""Every way from kpipe to a terminal escapes what a record holds."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from kpipe.errors import KpipeError
from kpipe_assets import cli
from kpipe_assets.console import Terminal, listing
from kpipe_assets.runs.progress import Progress
from kpipe_assets.terminal import echo, unexpected

HOSTILE = "\x1b]0;title\x07\x1b[31mred\x9b1m\u202etxt\u2066"
ROOT = Path(cli.__file__).parent


def clean(text: str) -> None:
    assert text and text.replace("\n", "").isprintable() and "\\x1b" in text, text


def test_errors(capsys: pytest.CaptureFixture[str]) -> None:
    error = KpipeError(f"orders/0 offset 1: {HOSTILE}", HOSTILE)
    error.trace = HOSTILE  # type: ignore[attr-defined]
    for debug in (False, True):
        with pytest.raises(SystemExit):
            try:
                raise error
            except KpipeError:
                cli.fail(error, debug)
        clean(capsys.readouterr().err)
    unexpected(ValueError, ValueError(HOSTILE), None)
    clean(capsys.readouterr().err)


def test_lines_tables_and_progress(capsys: pytest.CaptureFixture[str]) -> None:
    echo(HOSTILE)
    clean(capsys.readouterr().out)
    table = Table(HOSTILE)
    table.add_row(Text(HOSTILE))
    out = io.StringIO()
    console = Terminal(file=out, width=200)
    console.print(table, HOSTILE, f"[bold]{HOSTILE}[/bold]", Text(HOSTILE))
    clean(re.sub(r"^ +| +$", "", out.getvalue(), flags=re.MULTILINE))
    Progress("orders").say(HOSTILE)
    clean(capsys.readouterr().err)


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    names = ("/in/[x].jsonl", "/in/[bold].jsonl", "[link=https://a.example]b[/link]", "\\[x", "[/x]")
    table, out = listing("[red]title", "n>"), io.StringIO()
    for name in names:
        table.add_row(name, "[1, 2)")
    Terminal(file=out, width=200).print(table)
    lines = out.getvalue().splitlines()
    assert [line.split() for line in lines] == [["[red]title", "n"], *([name, "[1,", "2)"] for name in names)]


def test_nothing_else_prints() -> None:
    """A statement that SHOW CREATE gives to a file is the one text that stays as it is."""
    found = {
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in ROOT.rglob("*.py")
        if file.name != "terminal.py"
        for line in file.read_text().splitlines()
        if re.search(r"\bclick\.s?echo|\bConsole\(|^\s*print\(|(stdout|stderr)\.write\(|traceback\.print", line)
    }
    assert {line.split(": ", 1)[0] for line in found} == {
        "__init__.py",
        "commands/json_schema.py",
        "commands/sql.py",
    }, found
