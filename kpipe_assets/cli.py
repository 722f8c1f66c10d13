"""The command `kpipe`: subcommands, exit statuses, and errors as one line."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module

import click

from kpipe import __version__
from kpipe.errors import KpipeError
from kpipe.process_isolation import deny_tracing
from kpipe_assets.terminal import echo, unexpected

__all__ = ["main"]

# Loaded when they are asked for: `kpipe --help` and `kpipe broker status` must not wait for DuckDB or Spark.
_COMMANDS = {
    "demo": "The whole story on this machine: Kafka, a topic of tweets, a program, Spark, DuckDB, proof.",
    "run": "Ingest until caught up, or for ever with --follow.",
    "status": "Positions, lag and state of pipelines.",
    "batches": "Committed batches of a pipeline.",
    "errors": "Dead letters and failed runs of a pipeline.",
    "sql": "Statements: CREATE, START, STOP, TEST, ALTER, SHOW ..., and SELECT over the views.",
    "verify": "Recount the destination against the ledger.",
    "broker": "The local one-node Kafka for development: start, stop, status, topic.",
    "environment": "The Python environment as an archive, for Spark's workers on other machines.",
    "ui": "Dagster's web UI and daemon on this home.",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"kpipe_assets.commands.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="kpipe")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.pass_context
def kpipe(context: click.Context, debug: bool) -> None:
    """Kafka topics into tables, exactly once.

    Everything kpipe writes lies in KPIPE_HOME (default: .kpipe/ in the current folder).

    Exit status: 0 done, 1 failed, 2 wrong usage or definition, 3 an operator must decide.

    \b
    Examples:
      kpipe demo
      kpipe run tweets --max-batches 3
      kpipe status --json
    """
    context.obj = {"debug": debug}


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Every error is one line on stderr; the exit status says of which sort (design.md 4.3)."""
    sys.excepthook = unexpected
    deny_tracing()
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    given = [item for item in given if item != "--debug"]  # also behind the subcommand
    try:
        status = kpipe.main(["--debug", *given] if debug else given, standalone_mode=False)
    except click.exceptions.Abort:
        echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except BrokenPipeError:
        # The reader of our output is gone (`| head`). Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
    except KpipeError as error:
        fail(error, debug)
    sys.exit(status if isinstance(status, int) else 0)


def fail(error: KpipeError, debug: bool = False) -> None:
    """Say what went wrong in one line and exit."""
    if debug:
        echo(traceback.format_exc().rstrip(), err=True)
        trace = getattr(error, "trace", "")
        if trace:
            echo(trace, err=True)
    echo(" ".join(f"kpipe: {error}".split("\n")), err=True)
    sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
