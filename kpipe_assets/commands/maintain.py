"""`kpipe maintain NAME`: compact a table in Iceberg or Delta, and prove that its rows stay the same."""

from __future__ import annotations

import click

from kpipe.definition.lakehouse_options import Maintenance
from kpipe.maintenance.facts import Maintained
from kpipe_assets.commands.options import as_json, pipeline_name
from kpipe_assets.runs.maintenance import maintained
from kpipe_assets.terminal import echo, emit, report
from kpipe_assets.wording import count
from resources.home import Home

__all__ = ["maintain"]

_MB = 1 << 20


@click.command()
@pipeline_name
@click.option("--target-file-mb", type=click.IntRange(1, 10_240), metavar="MB", help="Size of new files.")
@click.option(
    "--min-input-files",
    type=click.IntRange(min=2),
    metavar="N",
    help="Number of small files of a partition, or of its files of deletes, that are rewritten together.",
)
@click.option(
    "--delete-ratio",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Rewrite also single files with this share of deleted rows.",
)
@click.option(
    "--retention-hours",
    type=click.IntRange(min=1),
    metavar="N",
    help="Also expire snapshots that were superseded N hours ago, and remove files that no snapshot has had since then.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be rewritten.")
@as_json
def maintain(
    name: str,
    target_file_mb: int | None,
    min_input_files: int | None,
    delete_ratio: float | None,
    retention_hours: int | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Compact the Iceberg or Delta table of the pipeline NAME.

    Small files are merged. Deleted rows are removed from files. Before each commit, the rows of the old and the new files are
    compared, and nothing is committed if they differ. Runs, readers and other maintenance may go on meanwhile. Options
    replace those of `into.maintenance`.

    \b
    Examples:
      kpipe maintain orders
      kpipe maintain orders --dry-run --json
      kpipe maintain orders --target-file-mb 256
      kpipe maintain orders --retention-hours 168
    """
    home = Home.from_env()
    pipeline = home.pipeline(name)
    given = {
        "target_file_mb": target_file_mb,
        "min_input_files": min_input_files,
        "delete_ratio": delete_ratio,
        "retention_hours": retention_hours,
    }
    rules = pipeline.into.maintenance or Maintenance()
    rules = rules.model_copy(update={field: value for field, value in given.items() if value is not None})

    def note(text: str) -> None:
        if not as_json:
            report(text, name)

    done = maintained(pipeline, home, rules, note, dry_run)
    if as_json:
        emit({"event": "maintained", "pipeline": name, "dry_run": dry_run, **done.to_dict()})
    else:
        _show(name, done, dry_run)
    return 0


def _show(name: str, done: Maintained, dry_run: bool) -> None:
    if dry_run:
        echo(f"{name}: {count(done.rewritten, 'file')} of {done.files_before:,} to rewrite, {done.bytes / _MB:,.1f} MB")
        return
    echo(
        f"{name}: {done.files_before:,} -> {count(done.files_after, 'file')},"
        f" {done.deletes_before:,} -> {count(done.deletes_after, 'file')} of deletes;"
        f" {count(done.rows, 'row')} rewritten, and proven to be the same"
    )
    if done.expired or done.removed or done.waiting:
        echo(
            f"{name}: {count(done.expired, 'snapshot')} expired, {count(done.removed, 'file')} removed,"
            f" {done.waiting:,} wait for the retention time"
        )
    if done.left:
        echo(f"{name}: {count(done.left, 'group')} of files left: other commits were first; run it again", err=True)
