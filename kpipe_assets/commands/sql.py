"""`kpipe sql`: manage pipelines by statements, and query their tables."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from kpipe.errors import InvalidStatement, KpipeError
from kpipe.sql.parser import read_all
from kpipe.sql.statements import Statement
from kpipe.terminal import plain
from kpipe_assets.commands.options import as_json
from kpipe_assets.statements.execute import Session
from kpipe_assets.statements.result import Result
from kpipe_assets.terminal import echo, emit
from kpipe_assets.wording import count
from resources.home import Home

__all__ = ["sql"]

_HELP = """\
CREATE [OR REPLACE] PIPELINE [IF NOT EXISTS] name AS LOAD DATA KAFKA 'host:port/topic' ... INTO TABLE table FORMAT ...
ALTER PIPELINE name SET ...        DROP PIPELINE name             SHOW PIPELINES
START PIPELINE name [FOREGROUND [LIMIT n BATCHES]]                START ALL PIPELINES     START FAILED PIPELINES
STOP PIPELINE name [CANCEL]        DETACH PIPELINE name           SHOW CREATE PIPELINE name [EXTENDED]
TEST PIPELINE name [LIMIT n]       EXTRACT PIPELINE name INTO OUTFILE 'file'
BACKFILL PIPELINE name [PARTITION n] [FROM a TO b]                CLEAR PIPELINE ERRORS [FOR name]
REPLAY PIPELINE name               TRUNCATE TABLE table           RESET PIPELINE name
INFER PIPELINE AS LOAD DATA KAFKA 'host:port/topic' FORMAT JSON
SELECT * FROM kpipe_cursors        any query in DuckDB's SQL      exit"""


@click.command()
@click.argument("text", metavar="[STATEMENTS]", required=False)
@click.option("-e", "--execute", metavar="STATEMENTS", multiple=True, help="Execute these statements. Repeatable.")
@click.option(
    "-f",
    "--file",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Execute the statements of a file. Repeatable.",
)
@click.option(
    "--database", metavar="FILE", type=click.Path(dir_okay=False), help="DuckDB file to query. Default: the file in KPIPE_HOME."
)
@as_json
def sql(text: str | None, execute: tuple[str, ...], files: tuple[str, ...], database: str | None, as_json: bool) -> int:
    """Create, start, stop, test and query pipelines by statements in SingleStore's grammar.

    Statements end with `;`. Without STATEMENTS, -e or -f, they are read from standard input. On a terminal this is a
    prompt with history and completion (Tab). All statements are parsed before the first is executed, and the first
    error ends the command.

    \b
    Examples:
      kpipe sql 'SHOW PIPELINES'
      kpipe sql -e 'TEST PIPELINE tweets LIMIT 5'
      kpipe sql -f pipelines.sql
      kpipe sql --json 'SELECT * FROM kpipe_cursors'
    """
    texts = [
        *([("", text)] if text is not None else []),
        *(("", item) for item in execute),
        *((name, _read(name)) for name in files),
    ]
    if not texts and not sys.stdin.isatty():
        texts = [("", sys.stdin.read())]
    with Session(Home.from_env(), as_json, database, report=lambda line: echo(line, err=True)) as session:
        if not texts:
            return _dialogue(session, as_json)
        statements = [statement for name, item in texts for statement in _parsed(item, name)]
        for statement in statements:
            _execute(session, statement, as_json)
    return 0


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidStatement(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _parsed(text: str, file: str) -> list[Statement]:
    try:
        return list(read_all(text, file))
    except InvalidStatement as error:
        _point(error)
        raise


def _execute(session: Session, statement: Statement, as_json: bool) -> None:
    try:
        for result in session.execute(statement):
            _print(result, as_json)
    except InvalidStatement as error:
        _point(error)
        raise


def _point(error: InvalidStatement) -> None:
    """Print the excerpt with the position of the error. The error itself is printed below it."""
    for line in error.excerpt.splitlines():
        echo(f"  {plain(line)}", err=True)


def _dialogue(session: Session, as_json: bool) -> int:
    from kpipe_assets.commands.sql_prompt import Dialogue

    home = Home.from_env().make()
    echo("statements end with ; (help lists them, Tab completes, Ctrl-D exits)")
    for text in Dialogue(home.path / "sql_history", home.names):
        if text.strip().rstrip(";").lower() == "help":
            echo(_HELP)
            continue
        try:
            for statement in _parsed(text, ""):
                _execute(session, statement, as_json)
        except KpipeError as error:
            echo(f"kpipe: {error}", err=True)
        except KeyboardInterrupt:
            echo("interrupted", err=True)
    return 0


def _print(result: Result, as_json: bool) -> None:
    if as_json:
        for row in result.rows:
            emit({name: _plain(value) for name, value in zip(result.columns, row, strict=True)})
        if result.message:
            echo(result.message, err=True)
        return
    if result.text:
        for row in result.rows:
            (echo if sys.stdout.isatty() else click.echo)(row[-1])  # unescaped, for redirection to a file
    elif result.columns:
        _table(result)
    if result.message:
        echo(result.message)


def _table(result: Result) -> None:
    from rich.text import Text

    from kpipe_assets.console import listing, wide

    table = listing(*(plain(name) for name in result.columns))
    rows = 0
    for row in result.rows:
        table.add_row(*(Text(_shown(value)) for value in row))
        rows += 1
    if rows:
        wide().print(table)
    if not result.message:
        echo(count(rows, "row"))


def _shown(value: Any) -> str:
    value = _plain(value)
    return "NULL" if value is None else plain(value if isinstance(value, str) else str(value))


def _plain(value: Any) -> Any:
    """Convert a value for output: times to UTC, bytes to text if they are UTF-8, else to hexadecimal."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            return "\\x" + bytes(value).hex()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value
