"""The command `kpipe`: subcommands, exit statuses, and errors as one line."""

from __future__ import annotations

import os
import sys
import traceback
from difflib import get_close_matches
from importlib import import_module

import click

from kpipe import __version__
from kpipe.errors import KpipeError
from kpipe.process_isolation import deny_tracing
from kpipe_assets.telemetry.sender import finish_all
from kpipe_assets.terminal import check_logs, echo, log, logs_json, unexpected

__all__ = ["main"]

# Modules are imported on use: `kpipe --help` and `kpipe broker status` must not wait for DuckDB or Spark.
_COMMANDS = {
    "demo": "Load a topic of sample tweets into DuckDB on this machine, with a local Kafka and Spark.",
    "run": "Ingest until caught up, or continuously with --follow.",
    "status": "Show positions, lag and state of pipelines.",
    "batches": "List committed batches of a pipeline.",
    "logs": "Show what runs of this home have logged, by pipeline or by batch.",
    "errors": "List dead letters and failed runs of a pipeline, or retry its dead letters.",
    "sql": "Execute statements: CREATE, START, STOP, TEST, ALTER, SHOW ..., and SELECT.",
    "trace": "Show what became of an offset, or which offset gave a row.",
    "as-of": "Show the snapshot of each table at given offsets, or at a time.",
    "verify": "Recount the destination against the ledger.",
    "adopt": "Let a pipeline go on where another loader has stopped.",
    "rebuild": "Load a table again beside the live one, compare the two, and exchange them.",
    "maintain": "Compact a table in Iceberg or Delta, and prove that its rows stay the same.",
    "audit": "Compare a table that any program loaded with its topic, offset by offset.",
    "chaos": "Kill and stop runs of copies of a pipeline, then prove that the copies are complete.",
    "broker": "Manage a local one-node Kafka for development: install, start, stop, status, topic.",
    "environment": "Pack the Python environment for Spark workers on other machines.",
    "serve": "Run all started pipelines in one process, without Dagster or beside it.",
    "ui": "Start Dagster's web UI and daemon for the pipelines of KPIPE_HOME.",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"kpipe_assets.commands.{name}"), name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        near = get_close_matches(args[0], _COMMANDS, 1)
        if args[0] not in _COMMANDS and near:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="kpipe")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.pass_context
def kpipe(context: click.Context, debug: bool) -> None:
    """Load Kafka topics into tables, exactly once.

    kpipe writes all its files to KPIPE_HOME (default: .kpipe/ in the current folder).

    Exit status: 0 success, 1 failure, 2 invalid usage or definition, 3 an operator must decide.

    \b
    Examples:
      kpipe demo
      kpipe run tweets --max-batches 3
      kpipe status --json
    """
    context.obj = {"debug": debug}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. An error is one line on stderr; the exit status is its category (design.md 4.3)."""
    sys.excepthook = unexpected
    deny_tracing()
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [item for item in arguments if item != "--debug"]  # also accepted after the subcommand
    try:
        check_logs()
        status = kpipe.main(["--debug", *arguments] if debug else arguments, standalone_mode=False)
    except click.exceptions.Abort:
        log("interrupted")
        sys.exit(130)
    except click.ClickException as error:
        log(error.format_message(), "error") if logs_json() else error.show()
        sys.exit(2)
    except BrokenPipeError:
        # The reader closed the pipe (`| head`). Without this, Python reports it again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
    except KpipeError as error:
        fail(error, debug)
    finally:
        finish_all()
    sys.exit(status if isinstance(status, int) else 0)


def fail(error: KpipeError, debug: bool = False) -> None:
    """Print the error on one line and exit with its status."""
    if debug:
        echo(traceback.format_exc().rstrip(), err=True)
        trace = getattr(error, "trace", "")
        if trace:
            echo(trace, err=True)
    from kpipe_assets.telemetry.run_log import shown

    log(" ".join(f"kpipe: {shown(error)}".split("\n")), "error")
    sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
