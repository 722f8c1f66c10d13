"""`kpipe rebuild NAME`: load a table again beside the live one, compare the two, and exchange them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, InvalidStatement
from kpipe.failpoints import failpoint
from kpipe_assets.commands.options import as_json, pipeline_name
from kpipe_assets.rebuild import report, steps
from kpipe_assets.runs.foreground import run_pipeline
from kpipe_assets.runs.rebuilt import finish
from kpipe_assets.terminal import echo, emit
from resources.home import Home

__all__ = ["rebuild"]


@click.command()
@pipeline_name
@click.option("--file", type=click.Path(dir_okay=False), help="The new definition, of the same name. Default: the present one.")
@click.option("--start", metavar="POSITION", help="earliest (default), latest, a time, or offsets: '{\"0\": 120}'.")
@click.option("--exchange", "exchanges", is_flag=True, help="Exchange the tables when the new one has caught up.")
@click.option(
    "--accept-missing", is_flag=True, help="With --exchange: also if the new table lacks offsets that the live one has."
)
@click.option("--differences", type=click.IntRange(min=1), metavar="N", help="List N offsets that only one of the tables has.")
@click.option("--cancel", is_flag=True, help="Drop the new table, and forget the rebuild.")
@click.option("--drop-replaced", is_flag=True, help="Drop the table that an exchange has replaced.")
@as_json
def rebuild(
    name: str,
    file: str | None,
    start: str | None,
    exchanges: bool,
    accept_missing: bool,
    differences: int | None,
    cancel: bool,
    drop_replaced: bool,
    as_json: bool,
) -> int:
    """Load the table of the pipeline NAME again, beside the live one, with a new definition.

    The pipeline NAME_rebuild loads TABLE_rebuild from the beginning. NAME goes on meanwhile. kpipe then compares the two.
    With --exchange, the new table takes the name of the live one, with its ledger and dead letters, in one commit. The old
    table becomes TABLE_replaced. Run the command again to continue after an interruption.

    \b
    Examples:
      kpipe rebuild orders --file orders-new.yaml
      kpipe rebuild orders --differences 20
      kpipe rebuild orders --exchange
      kpipe rebuild orders --drop-replaced
    """
    if [cancel, drop_replaced, any((file, start, exchanges, accept_missing, differences))].count(True) > 1:
        raise click.UsageError("--cancel and --drop-replaced take no other options")
    if accept_missing and not exchanges:
        raise click.UsageError("--accept-missing needs --exchange")
    home = Home.from_env()
    if cancel or drop_replaced:
        (steps.cancel if cancel else steps.drop_replaced)(home, name)
        echo(f"{name}: {'the rebuild was cancelled' if cancel else 'the replaced table was dropped'}")
        return 0
    if finish(home, name) is not None:
        echo(f"{name}: an interrupted exchange is complete now")
        return 0
    document = "" if file is None else _document(file)
    new = None if file is None else steps.read_definition(document, file, name)
    shadow = steps.begin(home, name, new, _position(start), document)

    def catch_up(pipeline: Pipeline) -> None:
        run_pipeline(pipeline, home, as_json=as_json)

    catch_up(shadow)
    failpoint("rebuild.built")
    found = steps.compare(home, name, differences or 0)
    emit(report.as_dict(found)) if as_json else report.show(name, found)
    if not exchanges:
        if not as_json:
            echo(f"{name}: nothing was exchanged; kpipe rebuild {name} --exchange does so, --cancel drops {shadow.into.table}")
        return 0
    seq = steps.exchange(home, name, catch_up, accept_missing)
    if as_json:
        emit({"event": "exchanged", "pipeline": name, "seq": seq})
    else:
        echo(f"{name}: exchanged by commit {seq}; kpipe verify {name}; kpipe rebuild {name} --drop-replaced drops the old table")
    return 0


def _document(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPipeline(f"{file}: cannot be read: {error}") from error


def _position(text: str | None) -> Any:
    if text is None or text in ("earliest", "latest"):
        return text
    if not text.startswith("{"):
        return {"timestamp": text}
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidStatement(f"--start: not JSON: {error}", """write '{"0": 120}'""") from error
